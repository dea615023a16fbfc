//! MessagePack as Lua values.

use mlua::{Either, IntoLua, Lua, MultiValue, Result, Value};

use super::UNPACK_DEPTH_MAX;
use crate::{
    meter::{Meter, Steps},
    word::{Word, pairs, sequence, string},
};

/// Maximum number of values returned by one call, bounded by the stack of Lua.
const VALUES_MAX: usize = 7000;

/// At most `limit` values from `offset` on, and the offset of their end.
pub(super) fn unpack(
    lua: &Lua,
    bytes: &[u8],
    offset: usize,
    limit: usize,
    meter: &Meter,
) -> Result<(MultiValue, usize)> {
    let mut reader = Reader { lua, rest: bytes.get(offset..).unwrap_or_default(), steps: Steps::new(meter) };
    let mut values = MultiValue::new();
    while values.len() < limit && !reader.rest.is_empty() {
        if values.len() == VALUES_MAX {
            return Err(mlua::Error::runtime("too many results to unpack"));
        }
        values.push_back(reader.value(0)?.into_lua(lua)?);
    }
    Ok((values, bytes.len() - reader.rest.len()))
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
    steps: Steps<'a>,
}

fn bad() -> mlua::Error {
    mlua::Error::runtime("Bad data format in input.")
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.rest.split_at_checked(len);
        let (taken, rest) = taken.ok_or_else(|| mlua::Error::runtime("Missing bytes in input."))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        taken.first_chunk().copied().ok_or_else(bad)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn len16(&mut self) -> Result<usize> {
        Ok(u16::from_be_bytes(self.array()?).into())
    }

    fn len32(&mut self) -> Result<usize> {
        Ok(u32::from_be_bytes(self.array()?) as usize)
    }

    fn value(&mut self, depth: usize) -> Result<Word<'a>> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(bad());
        }
        self.steps.step()?;
        let kind = self.byte()?;
        let number = |value: f64| Ok(Either::Right(Value::Number(value)));
        let integer = |value: i64| Ok(Either::Right(Value::Integer(value)));
        match kind {
            0x00..0x80 => integer(kind.into()),
            0xe0.. => integer((kind as i8).into()),
            0x80..0x90 => self.map((kind & 0x0f).into(), depth),
            0x90..0xa0 => self.list((kind & 0x0f).into(), depth),
            0xa0..0xc0 => self.string((kind & 0x1f).into()),
            0xc0 => Ok(Either::Right(Value::Nil)),
            0xc2 => Ok(Either::Right(Value::Boolean(false))),
            0xc3 => Ok(Either::Right(Value::Boolean(true))),
            0xca => number(f32::from_be_bytes(self.array()?).into()),
            0xcb => number(f64::from_be_bytes(self.array()?)),
            0xcc => integer(self.byte()?.into()),
            0xcd => integer(u16::from_be_bytes(self.array()?).into()),
            0xce => integer(u32::from_be_bytes(self.array()?).into()),
            0xcf => number(u64::from_be_bytes(self.array()?) as f64),
            0xd0 => integer((self.byte()? as i8).into()),
            0xd1 => integer(i16::from_be_bytes(self.array()?).into()),
            0xd2 => integer(i32::from_be_bytes(self.array()?).into()),
            0xd3 => number(i64::from_be_bytes(self.array()?) as f64),
            0xc4 | 0xd9 => {
                let len = self.byte()?;
                self.string(len.into())
            }
            0xc5 | 0xda => {
                let len = self.len16()?;
                self.string(len)
            }
            0xc6 | 0xdb => {
                let len = self.len32()?;
                self.string(len)
            }
            0xdc => {
                let len = self.len16()?;
                self.list(len, depth)
            }
            0xdd => {
                let len = self.len32()?;
                self.list(len, depth)
            }
            0xde => {
                let len = self.len16()?;
                self.map(len, depth)
            }
            0xdf => {
                let len = self.len32()?;
                self.map(len, depth)
            }
            _ => Err(bad()),
        }
    }

    fn string(&mut self, len: usize) -> Result<Word<'a>> {
        self.steps.bytes(len)?;
        string(self.lua, self.take(len)?)
    }

    /// Reads an array. The table grows with its elements, so the claimed length reserves no memory. Redis
    /// grows the table in the same way, so `pairs` in a script visits the elements in the same order as in
    /// Redis.
    fn list(&mut self, len: usize, depth: usize) -> Result<Word<'a>> {
        let table = sequence(self.lua, len, 0, || self.value(depth + 1))?;
        Ok(Either::Right(Value::Table(table)))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Word<'a>> {
        let table = pairs(self.lua, len, || {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            match key {
                Either::Right(Value::Nil) => Err(bad()),
                Either::Right(Value::Number(number)) if number.is_nan() => Err(bad()),
                key => Ok((key, value)),
            }
        })?;
        Ok(Either::Right(Value::Table(table)))
    }
}
