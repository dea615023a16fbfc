//! MessagePack as Lua values.

use mlua::{Lua, MultiValue, Result, Value};

use super::UNPACK_DEPTH_MAX;
use crate::meter::{Meter, Steps};

/// Values that are returned at once: the stack of the machine holds no more.
const VALUES_MAX: usize = 7000;

/// At most `limit` values from `offset` on, and where they end.
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
        values.push_back(reader.value(0)?);
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

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(bad());
        }
        self.steps.step()?;
        let kind = self.byte()?;
        let number = |value: f64| Ok(Value::Number(value));
        match kind {
            0x00..0x80 => Ok(Value::Integer(kind.into())),
            0xe0.. => Ok(Value::Integer((kind as i8).into())),
            0x80..0x90 => self.map((kind & 0x0f).into(), depth),
            0x90..0xa0 => self.list((kind & 0x0f).into(), depth),
            0xa0..0xc0 => self.string((kind & 0x1f).into()),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xca => number(f32::from_be_bytes(self.array()?).into()),
            0xcb => number(f64::from_be_bytes(self.array()?)),
            0xcc => Ok(Value::Integer(self.byte()?.into())),
            0xcd => Ok(Value::Integer(u16::from_be_bytes(self.array()?).into())),
            0xce => Ok(Value::Integer(u32::from_be_bytes(self.array()?).into())),
            0xcf => number(u64::from_be_bytes(self.array()?) as f64),
            0xd0 => Ok(Value::Integer((self.byte()? as i8).into())),
            0xd1 => Ok(Value::Integer(i16::from_be_bytes(self.array()?).into())),
            0xd2 => Ok(Value::Integer(i32::from_be_bytes(self.array()?).into())),
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

    fn string(&mut self, len: usize) -> Result<Value> {
        let bytes = self.take(len)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for index in 1..=len {
            table.raw_set(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let is_nan = matches!(key, Value::Number(number) if number.is_nan());
            if is_nan || key.is_nil() {
                return Err(bad());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
