//! Values, element by element.
//!
//! The walk over a value of any type and encoding passes on each element as soon as the element is read. So a
//! value of any size takes the memory of a few strings. A stream also takes the memory of the pending entries
//! of one group. The walk does not check for duplicate members, because this check would take the memory of
//! all members.

use crate::compact::{Intset, Listpack, Walk, Ziplist, Zipmap};
use crate::input::{Input, parse_double};
use crate::stream::{StreamElement, read_stream};
use crate::{Error, types};

/// The type of a value, independent of its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A byte string.
    String,
    /// Elements from head to tail.
    List,
    /// Members.
    Set,
    /// Members with scores.
    Zset,
    /// Fields with values.
    Hash,
    /// Entries, and groups that read them.
    Stream,
}

/// A part of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element<'a> {
    /// A whole string.
    String(&'a [u8]),
    /// The next element of a list, towards the tail.
    Item(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored(f64, &'a [u8]),
    /// A field of a hash.
    Field {
        /// The name of the field.
        name: &'a [u8],
        /// The value of the field.
        value: &'a [u8],
        /// Unix time in milliseconds at which the field expires; `None` if it does not expire.
        expire_at_ms: Option<u64>,
    },
    /// A part of a stream.
    Stream(StreamElement<'a>),
}

/// The numbering of value types. Above 21, the numbers of Redis and Valkey differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Redis.
    Redis,
    /// Valkey since 9.0.
    Valkey,
}

/// The kind of values of a type; `None` if the type is unknown.
pub(crate) fn kind_of(value_type: u8, dialect: Dialect) -> Option<Kind> {
    Some(match value_type {
        types::STRING => Kind::String,
        types::LIST | types::LIST_ZIPLIST | types::LIST_QUICKLIST | types::LIST_QUICKLIST_2 => Kind::List,
        types::SET | types::SET_INTSET | types::SET_LISTPACK => Kind::Set,
        types::ZSET | types::ZSET_2 | types::ZSET_ZIPLIST | types::ZSET_LISTPACK => Kind::Zset,
        types::HASH | types::HASH_ZIPMAP | types::HASH_ZIPLIST | types::HASH_LISTPACK => Kind::Hash,
        types::STREAM_LISTPACKS | types::STREAM_LISTPACKS_2 | types::STREAM_LISTPACKS_3 => Kind::Stream,
        types::VALKEY_HASH_2 if dialect == Dialect::Valkey => Kind::Hash,
        types::HASH_METADATA_PRE_GA
        | types::HASH_LISTPACK_EX_PRE_GA
        | types::HASH_METADATA
        | types::HASH_LISTPACK_EX
            if dialect == Dialect::Redis =>
        {
            Kind::Hash
        }
        _ => return None,
    })
}

/// The container types of a quicklist node.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;
/// The deadline of a Valkey field without expiry.
const VALKEY_NO_DEADLINE: i64 = -1;

/// Reads a value whose type number was read before, and passes its elements to `visit`.
pub(crate) fn read_elements<I: Input, E: From<Error>>(
    value_type: u8,
    dialect: Dialect,
    input: &mut I,
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if kind_of(value_type, dialect).is_none() {
        return Err(Error::UnknownType(value_type).into());
    }
    let mut packed = Vec::new();
    match value_type {
        types::STRING => {
            input.string(&mut packed)?;
            visit(Element::String(&packed))
        }
        types::LIST => strings(input, |item| visit(Element::Item(item))),
        types::SET => strings(input, |member| visit(Element::Member(member))),
        types::ZSET | types::ZSET_2 => zset(value_type, input, visit),
        types::HASH => hash(input, |_| Ok(None), |_| Ok(None), visit),
        types::VALKEY_HASH_2 if dialect == Dialect::Valkey => {
            hash(input, |_| Ok(None), valkey_deadline, visit)
        }
        types::HASH_METADATA_PRE_GA => {
            hash(input, |input| Ok(Some(input.number()?).filter(|ms| *ms > 0)), |_| Ok(None), visit)
        }
        types::HASH_METADATA => {
            let first_ms = u64::from_le_bytes(input.array()?);
            hash(input, |input| relative_deadline(input, first_ms), |_| Ok(None), visit)
        }
        types::STREAM_LISTPACKS | types::STREAM_LISTPACKS_2 | types::STREAM_LISTPACKS_3 => {
            read_stream(value_type, input, |element| visit(Element::Stream(element)))
        }
        types::LIST_QUICKLIST => {
            for _ in 0..input.number()? {
                input.string(&mut packed)?;
                each(Ziplist::new(&packed)?, |item| visit(Element::Item(item)))?;
            }
            Ok(())
        }
        types::LIST_QUICKLIST_2 => {
            for _ in 0..input.number()? {
                let container = input.number()?;
                input.string(&mut packed)?;
                match container {
                    NODE_PLAIN => visit(Element::Item(&packed))?,
                    NODE_PACKED => each(Listpack::new(&packed)?, |item| visit(Element::Item(item)))?,
                    _ => return Err(Error::Malformed("quicklist node").into()),
                }
            }
            Ok(())
        }
        _ => {
            if value_type == types::HASH_LISTPACK_EX {
                // Skips the earliest deadline of all fields: only readers that do not decode the value need
                // it.
                input.array::<8>()?;
            }
            input.string(&mut packed)?;
            packed_elements(value_type, &packed, visit)
        }
    }
}

/// Passes on the elements of a value that is one packed string.
fn packed_elements<E: From<Error>>(
    value_type: u8,
    packed: &[u8],
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match value_type {
        types::LIST_ZIPLIST => each(Ziplist::new(packed)?, |item| visit(Element::Item(item))),
        types::SET_INTSET => each(Intset::new(packed)?, |member| visit(Element::Member(member))),
        types::SET_LISTPACK => each(Listpack::new(packed)?, |member| visit(Element::Member(member))),
        types::ZSET_ZIPLIST => scored(Ziplist::new(packed)?, visit),
        types::ZSET_LISTPACK => scored(Listpack::new(packed)?, visit),
        types::HASH_ZIPMAP => fields(Zipmap::new(packed)?, false, visit),
        types::HASH_ZIPLIST => fields(Ziplist::new(packed)?, false, visit),
        types::HASH_LISTPACK => fields(Listpack::new(packed)?, false, visit),
        types::HASH_LISTPACK_EX | types::HASH_LISTPACK_EX_PRE_GA => {
            fields(Listpack::new(packed)?, true, visit)
        }
        other => Err(Error::UnknownType(other).into()),
    }
}

/// Reads a length and that many strings.
fn strings<E: From<Error>>(
    input: &mut impl Input,
    mut visit: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut string = Vec::new();
    for _ in 0..input.number()? {
        input.string(&mut string)?;
        visit(&string)?;
    }
    Ok(())
}

fn zset<E: From<Error>>(
    value_type: u8,
    input: &mut impl Input,
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut member = Vec::new();
    for _ in 0..input.number()? {
        input.string(&mut member)?;
        let score = if value_type == types::ZSET { input.text_double()? } else { input.double()? };
        visit(Element::Scored(score, &member))?;
    }
    Ok(())
}

/// Reads fields and values. A deadline may come before or after each pair, depending on the type of the
/// value: `before` or `after` reads it, and the other function reads nothing.
fn hash<I: Input, E: From<Error>>(
    input: &mut I,
    before: impl Fn(&mut I) -> Result<Option<u64>, Error>,
    after: impl Fn(&mut I) -> Result<Option<u64>, Error>,
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    for _ in 0..input.number()? {
        let first = before(input)?;
        input.string(&mut name)?;
        input.string(&mut value)?;
        let expire_at_ms = first.or(after(input)?);
        visit(Element::Field { name: &name, value: &value, expire_at_ms })?;
    }
    Ok(())
}

/// Reads a deadline, which is stored as its distance in milliseconds from the earliest deadline of the hash,
/// plus one; 0 stands for no deadline.
fn relative_deadline(input: &mut impl Input, first_ms: u64) -> Result<Option<u64>, Error> {
    match input.number()?.checked_sub(1) {
        None => Ok(None),
        Some(later_ms) => first_ms.checked_add(later_ms).map(Some).ok_or(Error::Malformed("field expiry")),
    }
}

fn valkey_deadline(input: &mut impl Input) -> Result<Option<u64>, Error> {
    match i64::from_le_bytes(input.array()?) {
        VALKEY_NO_DEADLINE => Ok(None),
        deadline_ms => u64::try_from(deadline_ms).map(Some).map_err(|_| Error::Malformed("field expiry")),
    }
}

fn each<'a, E: From<Error>>(
    mut walk: impl Walk<'a>,
    mut visit: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut digits = itoa::Buffer::new();
    while let Some(item) = walk.next()? {
        visit(item.text(&mut digits))?;
    }
    Ok(())
}

/// Passes on members with their scores, which follow each other in `walk`.
fn scored<'a, E: From<Error>>(
    mut walk: impl Walk<'a>,
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut digits = itoa::Buffer::new();
    while let Some(member) = walk.next()? {
        let score = parse_double(walk.next_of_group("sorted set")?.text(&mut itoa::Buffer::new()))?;
        visit(Element::Scored(score, member.text(&mut digits)))?;
    }
    Ok(())
}

/// Passes on fields with their values, which follow each other in `walk`. If `expire` is set, a deadline
/// follows each value; 0 stands for no deadline.
fn fields<'a, E: From<Error>>(
    mut walk: impl Walk<'a>,
    expire: bool,
    visit: &mut impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut name_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    while let Some(name) = walk.next()? {
        let value = walk.next_of_group("hash")?;
        let expire_at_ms = if expire { packed_deadline(&mut walk)? } else { None };
        let (name, value) = (name.text(&mut name_digits), value.text(&mut value_digits));
        visit(Element::Field { name, value, expire_at_ms })?;
    }
    Ok(())
}

fn packed_deadline<'a>(walk: &mut impl Walk<'a>) -> Result<Option<u64>, Error> {
    let item = walk.next_of_group("hash")?;
    let mut digits = itoa::Buffer::new();
    let deadline = std::str::from_utf8(item.text(&mut digits)).ok().and_then(|text| text.parse::<u64>().ok());
    let deadline_ms = deadline.ok_or(Error::Malformed("field expiry"))?;
    Ok((deadline_ms > 0).then_some(deadline_ms))
}
