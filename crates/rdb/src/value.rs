//! One value of any type.

use std::collections::HashSet;

use crate::compact;
use crate::reader::{Error, Reader, parse_double};
use crate::types;

/// One field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashField {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Unix time in milliseconds at which it expires.
    pub expire_at_ms: Option<u64>,
}

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Bytes.
    String(Vec<u8>),
    /// Elements from head to tail.
    List(Vec<Vec<u8>>),
    /// Members.
    Set(Vec<Vec<u8>>),
    /// Scores and members, in the order in which they were written.
    Zset(Vec<(f64, Vec<u8>)>),
    /// Fields.
    Hash(Vec<HashField>),
}

/// Containers of a quicklist node.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

/// Decodes a value whose type number was read before.
///
/// # Errors
/// If the bytes are not a value of this type, or the type is not known.
pub fn decode_value(value_type: u8, reader: &mut Reader<'_>) -> Result<Value, Error> {
    let value = match value_type {
        types::STRING => return Ok(Value::String(reader.string()?)),
        types::LIST => Value::List(strings(reader)?),
        types::LIST_ZIPLIST => Value::List(compact::ziplist(&reader.string()?)?),
        types::LIST_QUICKLIST => Value::List(quicklist(reader)?),
        types::LIST_QUICKLIST_2 => Value::List(quicklist_2(reader)?),
        types::SET => Value::Set(strings(reader)?),
        types::SET_INTSET => Value::Set(compact::intset(&reader.string()?)?),
        types::SET_LISTPACK => Value::Set(compact::listpack(&reader.string()?)?),
        types::ZSET | types::ZSET_2 => Value::Zset(zset(reader, value_type)?),
        types::ZSET_ZIPLIST => Value::Zset(scored(compact::ziplist(&reader.string()?)?)?),
        types::ZSET_LISTPACK => Value::Zset(scored(compact::listpack(&reader.string()?)?)?),
        types::HASH => Value::Hash(hash(reader)?),
        types::HASH_ZIPMAP => Value::Hash(fields(compact::zipmap(&reader.string()?)?)?),
        types::HASH_ZIPLIST => Value::Hash(fields(compact::ziplist(&reader.string()?)?)?),
        types::HASH_LISTPACK => Value::Hash(fields(compact::listpack(&reader.string()?)?)?),
        types::HASH_METADATA | types::HASH_METADATA_PRE_GA => Value::Hash(expiring_hash(reader, value_type)?),
        types::HASH_LISTPACK_EX => {
            // The first deadline, for scanning without decoding.
            reader.array::<8>()?;
            Value::Hash(expiring_fields(compact::listpack(&reader.string()?)?)?)
        }
        types::HASH_LISTPACK_EX_PRE_GA => {
            Value::Hash(expiring_fields(compact::listpack(&reader.string()?)?)?)
        }
        other => return Err(Error::UnknownType(other)),
    };
    verify(&value)?;
    Ok(value)
}

/// Whether a collection has elements, and none twice.
fn verify(value: &Value) -> Result<(), Error> {
    fn distinct<'a>(names: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<(), Error> {
        let len = names.len();
        if len == 0 {
            return Err(Error::Empty);
        }
        if names.collect::<HashSet<_>>().len() == len { Ok(()) } else { Err(Error::Duplicate) }
    }
    match value {
        Value::String(_) => Ok(()),
        Value::List(elements) if elements.is_empty() => Err(Error::Empty),
        Value::List(_) => Ok(()),
        Value::Set(members) => distinct(members.iter().map(Vec::as_slice)),
        Value::Zset(members) => distinct(members.iter().map(|(_, member)| member.as_slice())),
        Value::Hash(fields) => distinct(fields.iter().map(|field| field.name.as_slice())),
    }
}

/// As many strings as a length says. Grows with what is read, not with what is promised.
fn strings(reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let count = reader.number()?;
    let mut strings = Vec::new();
    for _ in 0..count {
        strings.push(reader.string()?);
    }
    Ok(strings)
}

fn quicklist(reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let nodes = reader.number()?;
    let mut elements = Vec::new();
    for _ in 0..nodes {
        elements.extend(compact::ziplist(&reader.string()?)?);
    }
    Ok(elements)
}

fn quicklist_2(reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let nodes = reader.number()?;
    let mut elements = Vec::new();
    for _ in 0..nodes {
        match reader.number()? {
            NODE_PLAIN => elements.push(reader.string()?),
            NODE_PACKED => elements.extend(compact::listpack(&reader.string()?)?),
            _ => return Err(Error::Malformed("quicklist node")),
        }
    }
    Ok(elements)
}

fn zset(reader: &mut Reader<'_>, value_type: u8) -> Result<Vec<(f64, Vec<u8>)>, Error> {
    let count = reader.number()?;
    let mut members = Vec::new();
    for _ in 0..count {
        let member = reader.string()?;
        let score = if value_type == types::ZSET { reader.text_double()? } else { reader.double()? };
        members.push((score, member));
    }
    Ok(members)
}

fn hash(reader: &mut Reader<'_>) -> Result<Vec<HashField>, Error> {
    let count = reader.number()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let (name, value) = (reader.string()?, reader.string()?);
        fields.push(HashField { name, value, expire_at_ms: None });
    }
    Ok(fields)
}

/// Fields with deadlines: relative to the smallest and plus one, zero for none; absolute in the form before the release.
fn expiring_hash(reader: &mut Reader<'_>, value_type: u8) -> Result<Vec<HashField>, Error> {
    let first_ms = if value_type == types::HASH_METADATA { u64::from_le_bytes(reader.array()?) } else { 0 };
    let count = reader.number()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let ttl = reader.number()?;
        let (name, value) = (reader.string()?, reader.string()?);
        let expire_at_ms = match (ttl, value_type) {
            (0, _) => None,
            (ttl, types::HASH_METADATA) => {
                Some(first_ms.checked_add(ttl - 1).ok_or(Error::Malformed("field expiry"))?)
            }
            (ttl, _) => Some(ttl),
        };
        fields.push(HashField { name, value, expire_at_ms });
    }
    Ok(fields)
}

/// Members and scores in turn.
fn scored(elements: Vec<Vec<u8>>) -> Result<Vec<(f64, Vec<u8>)>, Error> {
    let mut elements = elements.into_iter();
    let mut members = Vec::with_capacity(elements.len() / 2);
    while let Some(member) = elements.next() {
        let score = elements.next().ok_or(Error::Malformed("sorted set"))?;
        members.push((parse_double(&score)?, member));
    }
    Ok(members)
}

/// Fields and values in turn.
fn fields(elements: Vec<Vec<u8>>) -> Result<Vec<HashField>, Error> {
    let mut elements = elements.into_iter();
    let mut fields = Vec::with_capacity(elements.len() / 2);
    while let Some(name) = elements.next() {
        let value = elements.next().ok_or(Error::Malformed("hash"))?;
        fields.push(HashField { name, value, expire_at_ms: None });
    }
    Ok(fields)
}

/// Fields, values and deadlines in turn; a deadline of 0 is none.
fn expiring_fields(elements: Vec<Vec<u8>>) -> Result<Vec<HashField>, Error> {
    const MALFORMED: Error = Error::Malformed("hash");
    let mut elements = elements.into_iter();
    let mut fields = Vec::with_capacity(elements.len() / 3);
    while let Some(name) = elements.next() {
        let value = elements.next().ok_or(MALFORMED)?;
        let deadline = elements.next().ok_or(MALFORMED)?;
        let deadline = std::str::from_utf8(&deadline).ok().and_then(|text| text.parse::<u64>().ok());
        let deadline_ms = deadline.ok_or(Error::Malformed("field expiry"))?;
        fields.push(HashField { name, value, expire_at_ms: (deadline_ms > 0).then_some(deadline_ms) });
    }
    Ok(fields)
}
