//! JSON as Lua values. Incomplete values are on an explicit stack, so that nesting does not use the thread's
//! stack.

use mlua::{Lua, Result, String as LuaString, Table, Value};

use super::Options;
use crate::meter::{Meter, Steps};

/// A table whose elements are still being read.
enum Open {
    Array(Table),
    /// An object, and the key of its next value.
    Object(Table, LuaString),
}

/// Decodes a text that is one value.
pub(super) fn decode(lua: &Lua, text: &[u8], options: &Options, meter: &Meter) -> Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(mlua::Error::runtime("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut reader = Reader { lua, text, at: 0, options };
    let (mut open, mut steps) = (Vec::new(), Steps::new(meter));
    steps.bytes(text.len())?;
    loop {
        steps.step()?;
        let token = reader.next();
        let mut value = match reader.begin(token, &mut open)? {
            Some(value) => value,
            // A table begins: its first element comes next.
            None => continue,
        };
        // A complete value is added to the innermost open table. The value may complete the table, which is
        // then added to the next open table.
        loop {
            match open.pop() {
                None => {
                    let token = reader.next();
                    return match token.kind {
                        Kind::End => Ok(value),
                        _ => Err(reader.unexpected("the end", &token)),
                    };
                }
                Some(Open::Array(table)) => {
                    table.raw_push(&value)?;
                    let token = reader.next();
                    match token.kind {
                        Kind::Comma => open.push(Open::Array(table)),
                        Kind::ArrayEnd => {
                            value = Value::Table(table);
                            continue;
                        }
                        _ => return Err(reader.unexpected("comma or array end", &token)),
                    }
                }
                Some(Open::Object(table, key)) => {
                    table.raw_set(key, &value)?;
                    let token = reader.next();
                    match token.kind {
                        Kind::Comma => {
                            let token = reader.next();
                            let key = reader.key(&token)?;
                            open.push(Open::Object(table, key));
                        }
                        Kind::ObjectEnd => {
                            value = Value::Table(table);
                            continue;
                        }
                        _ => return Err(reader.unexpected("comma or object end", &token)),
                    }
                }
            }
            break;
        }
    }
}

#[derive(Debug)]
enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::String(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Error(text) => text,
        }
    }
}

struct Token {
    kind: Kind,
    at: usize,
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    options: &'a Options,
}

impl Reader<'_> {
    /// The value of a token; `None` if the token begins a table that is not empty.
    fn begin(&mut self, token: Token, open: &mut Vec<Open>) -> Result<Option<Value>> {
        let at = token.at;
        let value = match token.kind {
            Kind::String(text) => Value::String(self.lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(truth) => Value::Boolean(truth),
            Kind::Null => Value::NULL,
            Kind::ArrayBegin => {
                self.require_depth(open.len(), at)?;
                let table = self.lua.create_table()?;
                if !self.takes(b']') {
                    open.push(Open::Array(table));
                    return Ok(None);
                }
                Value::Table(table)
            }
            Kind::ObjectBegin => {
                self.require_depth(open.len(), at)?;
                let table = self.lua.create_table()?;
                if !self.takes(b'}') {
                    let token = self.next();
                    let key = self.key(&token)?;
                    open.push(Open::Object(table, key));
                    return Ok(None);
                }
                Value::Table(table)
            }
            kind => return Err(self.unexpected("value", &Token { kind, at })),
        };
        Ok(Some(value))
    }

    fn require_depth(&self, depth: usize, at: usize) -> Result<()> {
        if depth < self.options.decode_depth_max {
            return Ok(());
        }
        let (depth, at) = (depth + 1, at + 1);
        Err(mlua::Error::runtime(format!(
            "Found too many nested data structures ({depth}) at character {at}"
        )))
    }

    /// Reads a key and its colon.
    fn key(&mut self, token: &Token) -> Result<LuaString> {
        let Kind::String(key) = &token.kind else { return Err(self.unexpected("object key string", token)) };
        let key = self.lua.create_string(key)?;
        let colon = self.next();
        match colon.kind {
            Kind::Colon => Ok(key),
            _ => Err(self.unexpected("colon", &colon)),
        }
    }

    fn unexpected(&self, wanted: &str, token: &Token) -> mlua::Error {
        let (found, at) = (token.kind.name(), token.at + 1);
        mlua::Error::runtime(format!("Expected {wanted} but found {found} at character {at}"))
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes this byte if it is next; returns whether it was.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Token {
        self.skip_space();
        let at = self.at;
        let Some(&first) = self.text.get(at) else { return Token { kind: Kind::End, at } };
        self.at += 1;
        let kind = match first {
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ArrayBegin,
            b']' => Kind::ArrayEnd,
            b',' => Kind::Comma,
            b':' => Kind::Colon,
            b'"' => self.string(),
            b't' if self.word(b"true") => Kind::Boolean(true),
            b'f' if self.word(b"false") => Kind::Boolean(false),
            b'n' if self.word(b"null") => Kind::Null,
            b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N' => self.number(at),
            _ => Kind::Error("invalid token"),
        };
        // An error in a string is reported at its own position, not at that of the token.
        let at = if matches!(kind, Kind::Error(text) if text != "invalid token") { self.at } else { at };
        Token { kind, at }
    }

    /// Consumes this word if it begins at the byte before the position; returns whether it does.
    fn word(&mut self, word: &[u8]) -> bool {
        let found = self.text[self.at - 1..].starts_with(word);
        if found {
            self.at += word.len() - 1;
        }
        found
    }

    fn number(&mut self, start: usize) -> Kind {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = self.text[start..].iter().take_while(|byte| is_part(byte)).count();
        let Ok(text) = std::str::from_utf8(&self.text[start..start + len]) else {
            return Kind::Error("invalid number");
        };
        self.at = start + len;
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'e' | b'E' | b'+'))
            && !text.starts_with('+');
        let digits = text.trim_start_matches('-');
        let leads_with_zero =
            digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
        let is_strict = is_plain && !leads_with_zero;
        if !is_strict && !self.options.decodes_invalid {
            self.at = start;
            return Kind::Error("invalid number");
        }
        let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok().map(|value| {
                let value = value as f64;
                if text.starts_with('-') { -value } else { value }
            }),
            None => text.parse().ok(),
        };
        match parsed {
            Some(number) => Kind::Number(number),
            None => {
                self.at = start;
                Kind::Error(if is_plain { "invalid number" } else { "invalid token" })
            }
        }
    }

    /// The rest of a string after its opening quote.
    fn string(&mut self) -> Kind {
        let mut out = Vec::new();
        loop {
            let plain =
                self.text[self.at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0)).count();
            out.extend_from_slice(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match (self.text.get(self.at), self.text.get(self.at + 1)) {
                (Some(b'"'), _) => {
                    self.at += 1;
                    return Kind::String(out);
                }
                (Some(b'\\'), Some(b'u')) => match self.unicode() {
                    Some(character) => {
                        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    None => return Kind::Error("invalid unicode escape code"),
                },
                (Some(b'\\'), Some(escaped)) => {
                    out.push(match escaped {
                        b'"' | b'\\' | b'/' => *escaped,
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        _ => return Kind::Error("invalid escape code"),
                    });
                    self.at += 2;
                }
                _ => return Kind::Error("unexpected end of string"),
            }
        }
    }

    /// The character of an escape `\uXXXX`, or of two such escapes that form a surrogate pair.
    fn unicode(&mut self) -> Option<char> {
        let first = self.unit(self.at)?;
        let (code, len) = match first {
            0xD800..0xDC00 => {
                let second = self.unit(self.at + 6).filter(|second| (0xDC00..0xE000).contains(second))?;
                (0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00), 12)
            }
            _ => (first, 6),
        };
        let character = char::from_u32(code)?;
        self.at += len;
        Some(character)
    }

    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}
