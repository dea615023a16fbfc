//! Replies of commands as Lua values.
//!
//! ```text
//! status           {ok = text}
//! error            {err = text}, and a field that says that the host has counted it
//! null             false; nil in RESP3
//! map              {map = {..}}
//! set              {set = {member = true}}
//! double           {double = number}
//! big number       {big_number = digits}
//! verbatim string  {verbatim_string = {format = .., string = ..}}
//! ```

use mlua::{Either, IntoLua, Lua, Result, Value};

use crate::{
    error::COUNTED,
    word::{Word, pairs, sequence, string},
};

/// Maximum nesting of replies that become Lua values.
const DEPTH_MAX: usize = 32;

/// The value of a reply, and whether it is an error.
pub(crate) fn to_lua(lua: &Lua, reply: &[u8]) -> Result<(Value, bool)> {
    let mut reader = Reader { lua, rest: reply };
    let value = reader.value(0)?.into_lua(lua)?;
    Ok((value, reply.first() == Some(&b'-')))
}

/// The value of an integer reply; `None` for other replies. This is a fast path for the most frequent kind of
/// reply.
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

    fn value(&mut self, depth: usize) -> Result<Word<'a>> {
        if depth > DEPTH_MAX {
            return Err(broken());
        }
        let line = self.line()?;
        let (kind, line) = line.split_first().ok_or_else(broken)?;
        match kind {
            b'$' => match Self::number(line)? {
                -1 => Ok(Either::Right(Value::Boolean(false))),
                len => string(self.lua, self.bytes(len)?),
            },
            b':' => Ok(Either::Right(Value::Integer(Self::number(line)?))),
            b'+' => self.wrapped("ok", string(self.lua, line)?),
            b'-' => {
                let fields =
                    [("err", string(self.lua, line)?), (COUNTED, Either::Right(Value::Boolean(true)))];
                Ok(Either::Right(Value::Table(self.lua.create_table_from(fields)?)))
            }
            b'*' | b'>' => match Self::number(line)? {
                -1 => Ok(Either::Right(Value::Boolean(false))),
                len => self.array(len, depth),
            },
            b'_' => Ok(Either::Right(Value::Nil)),
            b'#' => Ok(Either::Right(Value::Boolean(line == b"t"))),
            b',' => {
                let text = std::str::from_utf8(line).map_err(|_| broken())?;
                let number: f64 = text.parse().map_err(|_| broken())?;
                self.wrapped("double", Either::Right(Value::Number(number)))
            }
            b'(' => self.wrapped("big_number", string(self.lua, line)?),
            b'%' => {
                let len = Self::number(line)?;
                let map = self.pairs(len, |reader| Ok((reader.key(depth + 1)?, reader.value(depth + 1)?)))?;
                self.wrapped("map", map)
            }
            b'~' => {
                let len = Self::number(line)?;
                let member = Either::Right(Value::Boolean(true));
                let set = self.pairs(len, |reader| Ok((reader.key(depth + 1)?, member.clone())))?;
                self.wrapped("set", set)
            }
            b'=' => {
                let bytes = self.bytes(Self::number(line)?)?;
                let (format, text) = bytes.split_at_checked(4).ok_or_else(broken)?;
                let fields =
                    [("format", string(self.lua, &format[..3])?), ("string", string(self.lua, text)?)];
                let verbatim = Either::Right(Value::Table(self.lua.create_table_from(fields)?));
                self.wrapped("verbatim_string", verbatim)
            }
            _ => Err(broken()),
        }
    }

    /// Reads a value that can be the key of a table.
    fn key(&mut self, depth: usize) -> Result<Word<'a>> {
        match self.value(depth)? {
            Either::Right(Value::Nil) => Err(broken()),
            key => Ok(key),
        }
    }

    fn array(&mut self, len: i64, depth: usize) -> Result<Word<'a>> {
        // The length in a header exceeds the number of remaining bytes only if the reply is malformed, so
        // room is reserved for no more elements than there are remaining bytes.
        let len = usize::try_from(len).unwrap_or(0);
        let table = sequence(self.lua, len, len.min(self.rest.len()), || self.value(depth + 1))?;
        Ok(Either::Right(Value::Table(table)))
    }

    fn pairs(
        &mut self,
        len: i64,
        mut read: impl FnMut(&mut Self) -> Result<(Word<'a>, Word<'a>)>,
    ) -> Result<Word<'a>> {
        let len = usize::try_from(len).unwrap_or(0);
        Ok(Either::Right(Value::Table(pairs(self.lua, len, || read(self))?)))
    }

    fn wrapped(&self, name: &str, value: Word<'_>) -> Result<Word<'a>> {
        Ok(Either::Right(Value::Table(self.lua.create_table_from([(name, value)])?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_replies_are_errors() {
        let lua = Lua::new();
        let deep = "*1\r\n".repeat(1000);
        for reply in
            ["", "$5\r\nab\r\n", "*3\r\n:1\r\n", "?\r\n", ":x\r\n", "%1\r\n+a\r\n", &deep, "*99999999999\r\n"]
        {
            assert!(to_lua(&lua, reply.as_bytes()).is_err(), "{reply:?}");
        }
    }
}
