//! Bytes of effects. The byte map is documented at the parent module and pinned by a golden test.

use super::{Effect, EffectError};
use crate::id::DbId;
use crate::value::Value;

const DELETE: u8 = 0x01;
const PERSIST: u8 = 0x02;
const SET_EXPIRY: u8 = 0x03;
const PUT_STRING: u8 = 0x10;
const PUT_STRING_EXPIRING: u8 = 0x11;
const APPEND: u8 = 0x12;
const SET_RANGE: u8 = 0x13;
const FLUSH_DB: u8 = 0xf0;
const FLUSH_ALL: u8 = 0xf1;
const SWAP_DB: u8 = 0xf2;

impl<'a> Effect<'a> {
    /// Exactly how many bytes `encode_into` adds.
    pub fn encoded_len(&self) -> usize {
        match *self {
            Effect::Put { key, value: Value::String(value), expire_at_ms, .. } => {
                2 + bytes_len(key) + bytes_len(value) + expire_at_ms.map_or(0, number_len)
            }
            Effect::Delete { key, .. } => 2 + bytes_len(key),
            Effect::SetExpiry { key, expire_at_ms, .. } => {
                2 + bytes_len(key) + expire_at_ms.map_or(0, number_len)
            }
            Effect::Append { key, suffix, .. } => 2 + bytes_len(key) + bytes_len(suffix),
            Effect::SetRange { key, offset, bytes, .. } => {
                2 + bytes_len(key) + number_len(offset) + bytes_len(bytes)
            }
            Effect::FlushDb { .. } => 2,
            Effect::FlushAll => 1,
            Effect::SwapDb { .. } => 3,
        }
    }

    /// Adds the encoding to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        match *self {
            Effect::Put { db, key, value: Value::String(value), expire_at_ms } => {
                let opcode = if expire_at_ms.is_some() { PUT_STRING_EXPIRING } else { PUT_STRING };
                put_keyed(out, opcode, db, key);
                put_bytes(out, value);
                put_deadline(out, expire_at_ms);
            }
            Effect::Delete { db, key } => put_keyed(out, DELETE, db, key),
            Effect::SetExpiry { db, key, expire_at_ms } => {
                let opcode = if expire_at_ms.is_some() { SET_EXPIRY } else { PERSIST };
                put_keyed(out, opcode, db, key);
                put_deadline(out, expire_at_ms);
            }
            Effect::Append { db, key, suffix } => {
                put_keyed(out, APPEND, db, key);
                put_bytes(out, suffix);
            }
            Effect::SetRange { db, key, offset, bytes } => {
                put_keyed(out, SET_RANGE, db, key);
                put_number(out, offset);
                put_bytes(out, bytes);
            }
            Effect::FlushDb { db } => out.extend_from_slice(&[FLUSH_DB, db.get()]),
            Effect::FlushAll => out.push(FLUSH_ALL),
            Effect::SwapDb { a, b } => out.extend_from_slice(&[SWAP_DB, a.get(), b.get()]),
        }
    }

    /// Decodes the effect at the start of `input` and moves `input` past it; `None` at the end of the input.
    ///
    /// # Errors
    /// If the bytes are not an effect. `input` is then unchanged.
    pub fn decode_next(input: &mut &'a [u8]) -> Result<Option<Effect<'a>>, EffectError> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader { rest: input };
        let effect = reader.effect()?;
        *input = reader.rest;
        Ok(Some(effect))
    }
}

fn put_keyed(out: &mut Vec<u8>, opcode: u8, db: DbId, key: &[u8]) {
    out.extend_from_slice(&[opcode, db.get()]);
    put_bytes(out, key);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_deadline(out: &mut Vec<u8>, expire_at_ms: Option<u64>) {
    if let Some(deadline_ms) = expire_at_ms {
        put_number(out, deadline_ms);
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes of a LEB128 number: one for each started group of seven bits.
fn number_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn bytes_len(bytes: &[u8]) -> usize {
    number_len(bytes.len() as u64) + bytes.len()
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn effect(&mut self) -> Result<Effect<'a>, EffectError> {
        match self.byte()? {
            DELETE => Ok(Effect::Delete { db: self.db()?, key: self.bytes()? }),
            PERSIST => Ok(Effect::SetExpiry { db: self.db()?, key: self.bytes()?, expire_at_ms: None }),
            SET_EXPIRY => Ok(Effect::SetExpiry {
                db: self.db()?,
                key: self.bytes()?,
                expire_at_ms: Some(self.number()?),
            }),
            PUT_STRING => Ok(Effect::Put {
                db: self.db()?,
                key: self.bytes()?,
                value: Value::String(self.bytes()?),
                expire_at_ms: None,
            }),
            PUT_STRING_EXPIRING => Ok(Effect::Put {
                db: self.db()?,
                key: self.bytes()?,
                value: Value::String(self.bytes()?),
                expire_at_ms: Some(self.number()?),
            }),
            APPEND => Ok(Effect::Append { db: self.db()?, key: self.bytes()?, suffix: self.bytes()? }),
            SET_RANGE => Ok(Effect::SetRange {
                db: self.db()?,
                key: self.bytes()?,
                offset: self.number()?,
                bytes: self.bytes()?,
            }),
            FLUSH_DB => Ok(Effect::FlushDb { db: self.db()? }),
            FLUSH_ALL => Ok(Effect::FlushAll),
            SWAP_DB => Ok(Effect::SwapDb { a: self.db()?, b: self.db()? }),
            opcode => Err(EffectError::UnknownOpcode(opcode)),
        }
    }

    fn byte(&mut self) -> Result<u8, EffectError> {
        let (&byte, rest) = self.rest.split_first().ok_or(EffectError::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    fn db(&mut self) -> Result<DbId, EffectError> {
        let number = self.byte()?;
        DbId::new(number).ok_or(EffectError::UnknownDb(number))
    }

    fn bytes(&mut self) -> Result<&'a [u8], EffectError> {
        let len = usize::try_from(self.number()?).map_err(|_| EffectError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(EffectError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, EffectError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let fits = bits << shift >> shift == bits;
            // A last byte of zero would be a second encoding of the same number.
            if !fits || (byte == 0 && shift > 0) {
                return Err(EffectError::MalformedNumber);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(EffectError::MalformedNumber)
    }
}
