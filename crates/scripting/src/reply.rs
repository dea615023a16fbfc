//! Replies of commands as Lua values.
//!
//! A status is a table `{ok = text}`, an error `{err = text}`, nothing is `false` (in RESP3 nil), a map `{map = {..}}`, a set
//! `{set = {member = true}}`, a double `{double = number}`, a big number `{big_number = digits}`, a verbatim text
//! `{verbatim_string = {format = .., string = ..}}`.

use mlua::{Lua, Result, Table, Value};

/// How deep replies of commands are nested.
const DEPTH_MAX: usize = 32;

/// The value of a reply, and whether it is an error.
pub(crate) fn to_lua(lua: &Lua, reply: &[u8]) -> Result<(Value, bool)> {
    let mut reader = Reader { lua, rest: reply };
    let value = reader.value(0)?;
    Ok((value, reply.first() == Some(&b'-')))
}

/// The value of a reply that is an integer: what is asked for most takes nothing to be told.
pub(crate) fn integer(reply: &[u8]) -> Option<i64> {
    let line = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    Reader::number(line).ok()
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

fn broken() -> mlua::Error {
    mlua::Error::runtime("a reply that is none")
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == b'\r').ok_or_else(broken)?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).ok_or_else(broken)?;
        Ok(line)
    }

    fn number(line: &[u8]) -> Result<i64> {
        std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or_else(broken)
    }

    fn bytes(&mut self, len: i64) -> Result<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| broken())?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(broken)?;
        self.rest = rest.get(2..).ok_or_else(broken)?;
        Ok(bytes)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return Err(broken());
        }
        let line = self.line()?;
        let (kind, line) = line.split_first().ok_or_else(broken)?;
        match kind {
            b'$' => match Self::number(line)? {
                -1 => Ok(Value::Boolean(false)),
                len => Ok(Value::String(self.lua.create_string(self.bytes(len)?)?)),
            },
            b':' => Ok(Value::Integer(Self::number(line)?)),
            b'+' => self.field("ok", line),
            b'-' => self.field("err", line),
            b'*' | b'>' => match Self::number(line)? {
                -1 => Ok(Value::Boolean(false)),
                len => self.array(len, depth),
            },
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => {
                let text = std::str::from_utf8(line).map_err(|_| broken())?;
                let number: f64 = text.parse().map_err(|_| broken())?;
                self.wrapped("double", Value::Number(number))
            }
            b'(' => self.field("big_number", line),
            b'%' => {
                let table = self.lua.create_table()?;
                for _ in 0..Self::number(line)? {
                    let key = self.value(depth + 1)?;
                    let value = self.value(depth + 1)?;
                    table.raw_set(key, value)?;
                }
                self.wrapped("map", Value::Table(table))
            }
            b'~' => {
                let table = self.lua.create_table()?;
                for _ in 0..Self::number(line)? {
                    table.raw_set(self.value(depth + 1)?, true)?;
                }
                self.wrapped("set", Value::Table(table))
            }
            b'=' => {
                let bytes = self.bytes(Self::number(line)?)?;
                let (format, text) = bytes.split_at_checked(4).ok_or_else(broken)?;
                let verbatim = self.lua.create_table_with_capacity(0, 2)?;
                verbatim.raw_set("format", self.lua.create_string(&format[..3])?)?;
                verbatim.raw_set("string", self.lua.create_string(text)?)?;
                self.wrapped("verbatim_string", Value::Table(verbatim))
            }
            _ => Err(broken()),
        }
    }

    fn array(&mut self, len: i64, depth: usize) -> Result<Value> {
        // A header says more than there is only if the reply is none: what is reserved is bounded by what follows.
        let capacity = usize::try_from(len).unwrap_or(0).min(self.rest.len());
        let table = self.lua.create_table_with_capacity(capacity, 0)?;
        for index in 1..=len {
            let value = self.value(depth + 1)?;
            if !value.is_nil() {
                table.raw_set(index, value)?;
            }
        }
        Ok(Value::Table(table))
    }

    fn field(&self, name: &str, text: &[u8]) -> Result<Value> {
        self.wrapped(name, Value::String(self.lua.create_string(text)?))
    }

    fn wrapped(&self, name: &str, value: Value) -> Result<Value> {
        let table: Table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_reply_is_an_error() {
        let lua = Lua::new();
        let deep = "*1\r\n".repeat(1000);
        for reply in
            ["", "$5\r\nab\r\n", "*3\r\n:1\r\n", "?\r\n", ":x\r\n", "%1\r\n+a\r\n", &deep, "*99999999999\r\n"]
        {
            assert!(to_lua(&lua, reply.as_bytes()).is_err(), "{reply:?}");
        }
    }
}
