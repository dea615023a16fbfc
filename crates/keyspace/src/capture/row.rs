//! Rows: entries in the stream of a capture, each with its payload as it lies in memory.
//!
//! What it is: the encoding of a row. The parent module describes the bytes.
//! What it is not: a verdict on the payload: see `collection::verify`.

use crate::collection::verify::{Fit, verify};
use crate::collection::{PackedLimits, ValueBuf};
use crate::effect::{EffectError, Reader};
use crate::entry::{Entry, EntryRef};
use crate::id::DbId;
use crate::value::ValueType;

/// The first byte of a row.
pub(super) const MARK: u8 = 0xfd;
/// Added to the type of a value that expires.
const EXPIRING: u8 = 0x80;
/// Bytes of the shortest row.
pub(super) const BYTES_MIN: usize = 5;

/// An entry in the form of a row: the payload is a string, or the packed form of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row<'a> {
    pub(super) db: DbId,
    value_type: ValueType,
    expire_at_ms: Option<u64>,
    pub(super) key: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Row<'a> {
    pub(super) fn of(db: DbId, entry: EntryRef<'a>) -> Self {
        let (value_type, expire_at_ms) = (entry.value_type(), entry.expire_at_ms());
        Row { db, value_type, expire_at_ms, key: entry.key(), payload: entry.payload() }
    }

    #[inline]
    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        let expiring = if self.expire_at_ms.is_some() { EXPIRING } else { 0 };
        out.extend_from_slice(&[MARK, self.db.get(), self.value_type as u8 | expiring]);
        if let Some(deadline_ms) = self.expire_at_ms {
            varint::put(out, deadline_ms);
        }
        varint::put(out, self.key.len() as u64);
        varint::put(out, self.payload.len() as u64);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.payload);
    }

    /// Decodes the row that `input` begins with, and moves `input` past it.
    ///
    /// # Errors
    /// [`EffectError::Truncated`] if the input ends inside the row; another error if the row is malformed.
    /// The input is then unchanged.
    #[inline]
    pub(super) fn decode_next(input: &mut &'a [u8]) -> Result<Row<'a>, EffectError> {
        let mut reader = Reader { rest: input };
        // The mark of a row, by which the caller has found it.
        reader.byte()?;
        let db = reader.db()?;
        let kind = reader.byte()?;
        let value_type = match kind & !EXPIRING {
            0 => ValueType::String,
            1 => ValueType::List,
            2 => ValueType::Set,
            3 => ValueType::Zset,
            4 => ValueType::Hash,
            _ => return Err(EffectError::UnknownOpcode(kind)),
        };
        let expire_at_ms = if kind & EXPIRING == 0 { None } else { Some(reader.number()?) };
        let lengths = [reader.number()?, reader.number()?].map(usize::try_from);
        let [Ok(key_len), Ok(payload_len)] = lengths else { return Err(EffectError::Truncated) };
        let (key, rest) = reader.rest.split_at_checked(key_len).ok_or(EffectError::Truncated)?;
        let (payload, rest) = rest.split_at_checked(payload_len).ok_or(EffectError::Truncated)?;
        *input = rest;
        Ok(Row { db, value_type, expire_at_ms, key, payload })
    }

    /// Whether the payload fits these limits; `None` if it is invalid for its type.
    #[inline]
    pub(super) fn verify(&self, limits: &PackedLimits) -> Option<Fit> {
        verify(self.value_type, self.payload, limits)
    }

    /// An entry with this payload, which must have been verified.
    #[inline]
    pub(super) fn entry(&self, stamp: crate::access::AccessStamp) -> Entry {
        Entry::packed(self.value_type, self.key, self.payload, self.expire_at_ms, stamp)
    }

    /// The value, as effects carry it, and its deadline.
    pub(super) fn value(&self) -> (ValueBuf, Option<u64>) {
        let entry = self.entry(Default::default());
        (ValueBuf::of(entry.as_ref()), self.expire_at_ms)
    }
}
