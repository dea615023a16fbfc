//! A complete value of any type.

use std::collections::HashSet;

use crate::Error;
use crate::element::{Dialect, Element, Kind, kind_of, read_elements};
use crate::input::Reader;
use crate::stream::Stream;

/// One field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashField {
    /// The name of the field.
    pub name: Vec<u8>,
    /// The value of the field.
    pub value: Vec<u8>,
    /// Unix time in milliseconds at which the field expires; `None` if it does not expire.
    pub expire_at_ms: Option<u64>,
}

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A byte string.
    String(Vec<u8>),
    /// Elements from head to tail.
    List(Vec<Vec<u8>>),
    /// Members.
    Set(Vec<Vec<u8>>),
    /// Scores and members, in the order of the encoding.
    Zset(Vec<(f64, Vec<u8>)>),
    /// Fields.
    Hash(Vec<HashField>),
    /// A stream.
    Stream(Stream),
}

impl Value {
    pub(crate) fn empty(kind: Kind) -> Value {
        match kind {
            Kind::String => Value::String(Vec::new()),
            Kind::List => Value::List(Vec::new()),
            Kind::Set => Value::Set(Vec::new()),
            Kind::Zset => Value::Zset(Vec::new()),
            Kind::Hash => Value::Hash(Vec::new()),
            Kind::Stream => Value::Stream(Stream::default()),
        }
    }

    pub(crate) fn add(&mut self, element: Element<'_>) {
        match (self, element) {
            (Value::String(string), Element::String(bytes)) => string.extend_from_slice(bytes),
            (Value::List(items), Element::Item(item)) => items.push(item.to_vec()),
            (Value::Set(members), Element::Member(member)) => members.push(member.to_vec()),
            (Value::Zset(members), Element::Scored(score, member)) => members.push((score, member.to_vec())),
            (Value::Hash(fields), Element::Field { name, value, expire_at_ms }) => {
                fields.push(HashField { name: name.to_vec(), value: value.to_vec(), expire_at_ms });
            }
            (Value::Stream(stream), Element::Stream(element)) => stream.add(element),
            _ => unreachable!("the elements of a value are of its kind"),
        }
    }

    /// Checks that a list, set, sorted set or hash has elements, and that the last three have no duplicates.
    fn verify(&self) -> Result<(), Error> {
        fn distinct<'a>(names: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<(), Error> {
            let len = names.len();
            if len == 0 {
                return Err(Error::Empty);
            }
            if names.collect::<HashSet<_>>().len() == len { Ok(()) } else { Err(Error::Duplicate) }
        }
        match self {
            Value::List(items) if items.is_empty() => Err(Error::Empty),
            Value::String(_) | Value::List(_) => Ok(()),
            Value::Set(members) => distinct(members.iter().map(Vec::as_slice)),
            Value::Zset(members) => distinct(members.iter().map(|(_, member)| member.as_slice())),
            Value::Hash(fields) => distinct(fields.iter().map(|field| field.name.as_slice())),
            // Groups and consumers may have duplicates.
            Value::Stream(_) => Ok(()),
        }
    }
}

/// Decodes a value whose type number was read before.
///
/// # Errors
/// If the bytes are not a value of this type, or the type is unknown.
pub(crate) fn decode_value(
    value_type: u8,
    dialect: Dialect,
    reader: &mut Reader<'_>,
) -> Result<Value, Error> {
    let kind = kind_of(value_type, dialect).ok_or(Error::UnknownType(value_type))?;
    let mut value = Value::empty(kind);
    read_elements(value_type, dialect, reader, &mut |element| {
        value.add(element);
        Ok::<(), Error>(())
    })?;
    value.verify()?;
    Ok(value)
}
