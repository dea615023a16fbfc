//! A JSON pull reader for documents: it reads members in place, validates the text once, and copies values
//! without white space.
//!
//! Numbers, strings and the order of members stay as given; the module also writes strings. It builds no tree
//! of values ([`crate::mango::Value`] is one) and does not parse settings (`serde_json` does).
//!
//! Values that some peers cannot hold are refused. In PouchDB, a number beyond the range of a double becomes
//! `null`, although the revision stays the same. In CouchDB, a surrogate without its partner is no text.
//! Documents that an earlier version stored with such numbers are read with [`Reader::of_stored`].
//!
//! Invariants
//! - Text that was read or copied without an error is JSON by RFC 8259, in UTF-8, with escaped surrogates in
//!   pairs and numbers that are finite doubles. Only [`Reader::of_stored`], [`Reader::raw_of_any`] and
//!   [`Reader::raw_members`] let other numbers and surrogates pass.
//! - Nothing recurses deeper than [`JSON_DEPTH_MAX`], counted anew within [`Reader::with_depth_of_its_own`].

use std::borrow::Cow;

use crate::DocError;

/// The maximum nesting of arrays and objects.
pub const JSON_DEPTH_MAX: u32 = 256;

/// A number of at most this many characters without an exponent is within the range of a double.
const DOUBLE_DIGITS: usize = 308;

/// An error of reading JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON or not UTF-8, or has a number or a surrogate that some peers cannot hold. CouchDB
    /// has the same error text for all of these.
    #[error("invalid UTF-8 JSON")]
    Malformed,
    /// Nested deeper than [`JSON_DEPTH_MAX`].
    #[error("JSON is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
}

impl From<JsonError> for DocError {
    fn from(error: JsonError) -> DocError {
        DocError::BadRequest(error.to_string().into())
    }
}

/// The type of a value, derived from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// Reads a text from its start. After an error, the position is undefined, and the reader must not be used
/// any more.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    /// Whether numbers of any size and lone surrogates are skipped without an error.
    takes_any: bool,
}

impl<'a> Reader<'a> {
    /// Reads bytes that should be a JSON text.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, JsonError> {
        std::str::from_utf8(bytes).map(Reader::of).map_err(|_| JsonError::Malformed)
    }

    /// Reads text that is known to be UTF-8.
    pub fn of(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0, depth: 0, takes_any: false }
    }

    /// Reads text that was stored, maybe by a version that took numbers of any size.
    pub fn of_stored(text: &'a str) -> Reader<'a> {
        Reader { takes_any: true, ..Reader::of(text) }
    }

    /// Runs `read` with a nesting depth that starts at 0 again, so that a value has the same limit of depth
    /// wherever it is in the text.
    pub fn with_depth_of_its_own<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::take(&mut self.depth);
        let done = read(self);
        self.depth = outer;
        done
    }

    /// The type of the next value, without consuming it.
    pub fn peek(&mut self) -> Result<Kind, JsonError> {
        self.space();
        match self.next() {
            Some(b'n') => Ok(Kind::Null),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b'"') => Ok(Kind::String),
            Some(b'[') => Ok(Kind::Array),
            Some(b'{') => Ok(Kind::Object),
            _ => Err(JsonError::Malformed),
        }
    }

    /// Skips the next value and returns its text.
    pub fn raw(&mut self) -> Result<&'a str, JsonError> {
        self.space();
        let from = self.at;
        self.skip(&mut |_, _| ())?;
        Ok(&self.text[from..self.at])
    }

    /// Skips the next value and returns its text. Only the grammar of JSON is checked: the value may have
    /// numbers, surrogates and a nesting that other methods refuse.
    pub fn raw_of_any(&mut self) -> Result<&'a str, JsonError> {
        self.space();
        let (from, strict) = (self.at, std::mem::replace(&mut self.takes_any, true));
        let skipped = self.skip_of_any_depth();
        self.takes_any = strict;
        skipped.map(|()| &self.text[from..self.at])
    }

    /// Reads the next value, which must be an object. Like [`Reader::raw_of_any`], it checks only the
    /// grammar. `member` is called with the text of each key, including its quotes, and of its value.
    pub fn raw_members(&mut self, mut member: impl FnMut(&'a str, &'a str)) -> Result<(), JsonError> {
        self.takes_any = true;
        self.enter(b'{')?;
        let mut first = true;
        while self.another(b'}', first)? {
            let key = self.quoted()?;
            self.colon()?;
            member(key, self.raw_of_any()?);
            first = false;
        }
        Ok(())
    }

    /// Appends the next value, without white space.
    pub fn copy(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        self.space();
        let (bytes, mut from) = (self.text.as_bytes(), self.at);
        self.skip(&mut |gap, end| {
            out.extend_from_slice(&bytes[from..gap]);
            from = end;
        })?;
        out.extend_from_slice(&bytes[from..self.at]);
        Ok(())
    }

    /// Reads the next value, which must be a string.
    pub fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.space();
        let quoted = self.quoted()?;
        let inner = &quoted[1..quoted.len() - 1];
        Ok(if inner.contains('\\') { Cow::Owned(unescape(inner)?) } else { Cow::Borrowed(inner) })
    }

    /// Reads the next value, which must be `true` or `false`.
    pub fn boolean(&mut self) -> Result<bool, JsonError> {
        match self.raw()? {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(JsonError::Malformed),
        }
    }

    /// Reads the next value, which must be an object. `member` is called with each key, and must read the
    /// value or fail.
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.enter(b'{')?;
        let mut first = true;
        while self.another(b'}', first)? {
            let key = self.string()?;
            self.colon()?;
            member(self, key)?;
            first = false;
        }
        Ok(())
    }

    /// Reads the next value, which must be an array. `element` is called for each element, and must read it
    /// or fail.
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.enter(b'[')?;
        let mut first = true;
        while self.another(b']', first)? {
            element(self)?;
            first = false;
        }
        Ok(())
    }

    /// Returns an error if anything but white space follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(JsonError::Malformed) }
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space; returns the position where it began.
    fn space(&mut self) -> usize {
        let from = self.at;
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.at += 1;
        }
        from
    }

    fn take(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.next() != Some(byte) {
            return Err(JsonError::Malformed);
        }
        self.at += 1;
        Ok(())
    }

    fn enter(&mut self, open: u8) -> Result<(), JsonError> {
        self.space();
        self.take(open)?;
        self.depth += 1;
        if self.depth > JSON_DEPTH_MAX { Err(JsonError::TooDeep) } else { Ok(()) }
    }

    fn colon(&mut self) -> Result<(), JsonError> {
        self.space();
        self.take(b':')
    }

    /// Whether another element or member follows; if not, consumes the closing bracket.
    fn another(&mut self, close: u8, first: bool) -> Result<bool, JsonError> {
        self.space();
        if self.next() == Some(close) {
            self.at += 1;
            self.depth -= 1;
            return Ok(false);
        }
        if !first {
            self.take(b',')?;
            self.space();
        }
        Ok(true)
    }

    /// Skips the value at the current position. `gap` is called with the range of each white space in it.
    fn skip(&mut self, gap: &mut impl FnMut(usize, usize)) -> Result<(), JsonError> {
        match self.next() {
            Some(b'"') => self.quoted().map(drop),
            Some(b'{') => self.skip_nested(b'{', b'}', gap),
            Some(b'[') => self.skip_nested(b'[', b']', gap),
            Some(b'n') => self.word("null"),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            _ => self.number(),
        }
    }

    fn skip_nested(
        &mut self,
        open: u8,
        close: u8,
        gap: &mut impl FnMut(usize, usize),
    ) -> Result<(), JsonError> {
        self.enter(open)?;
        self.tell_space(gap);
        if self.next() != Some(close) {
            loop {
                if open == b'{' {
                    self.quoted()?;
                    self.tell_space(gap);
                    self.take(b':')?;
                    self.tell_space(gap);
                }
                self.skip(gap)?;
                self.tell_space(gap);
                if self.next() != Some(b',') {
                    break;
                }
                self.at += 1;
                self.tell_space(gap);
            }
        }
        self.depth -= 1;
        self.take(close)
    }

    /// Skips the value at the current position without recursion.
    fn skip_of_any_depth(&mut self) -> Result<(), JsonError> {
        // The brackets that are still to be closed.
        let mut open = Vec::new();
        loop {
            let nested = match self.next() {
                Some(b'{') => Some((b'{', b'}')),
                Some(b'[') => Some((b'[', b']')),
                _ => None,
            };
            match nested {
                Some((bracket, close)) => {
                    self.take(bracket)?;
                    self.space();
                    open.push(close);
                    if self.next() != Some(close) {
                        self.skip_key_of(close)?;
                        continue;
                    }
                }
                None => self.skip(&mut |_, _| ())?,
            }
            // The position is after a value, or at the closing bracket of an empty array or object.
            loop {
                let Some(&close) = open.last() else { return Ok(()) };
                self.space();
                if self.next() == Some(close) {
                    self.at += 1;
                    open.pop();
                    continue;
                }
                self.take(b',')?;
                self.space();
                self.skip_key_of(close)?;
                break;
            }
        }
    }

    /// In an object, skips a key and the colon after it.
    fn skip_key_of(&mut self, close: u8) -> Result<(), JsonError> {
        if close == b'}' {
            self.quoted()?;
            self.colon()?;
            self.space();
        }
        Ok(())
    }

    fn tell_space(&mut self, gap: &mut impl FnMut(usize, usize)) {
        let from = self.space();
        if from != self.at {
            gap(from, self.at);
        }
    }

    fn word(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(JsonError::Malformed);
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        let mut is_long = false;
        if self.next() == Some(b'-') {
            self.at += 1;
        }
        match self.next() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.next() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.next() {
            is_long = true;
            self.at += 1;
            if let Some(b'+' | b'-') = self.next() {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[from..self.at];
        is_long |= text.len() > DOUBLE_DIGITS;
        let is_held = self.takes_any || !is_long || text.parse::<f64>().is_ok_and(f64::is_finite);
        if is_held { Ok(()) } else { Err(JsonError::Malformed) }
    }

    /// Skips digits, at least one.
    fn digits(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.next() {
            self.at += 1;
        }
        if self.at == from { Err(JsonError::Malformed) } else { Ok(()) }
    }

    /// Skips the string at the current position; returns it with its quotes.
    fn quoted(&mut self) -> Result<&'a str, JsonError> {
        let from = self.at;
        self.take(b'"')?;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = memchr::memchr2(b'"', b'\\', rest).ok_or(JsonError::Malformed)?;
            // `fold` has no early exit, so that the compiler can vectorise it.
            if rest[..plain].iter().fold(false, |found, byte| found | (*byte < 0x20)) {
                return Err(JsonError::Malformed);
            }
            self.at += plain;
            if rest[plain] == b'"' {
                self.at += 1;
                return Ok(&self.text[from..self.at]);
            }
            self.at += match escaped(&self.text[self.at..]) {
                Ok((_, bytes)) => bytes,
                Err(Escape::Surrogate) if self.takes_any => SURROGATE_BYTES,
                Err(_) => return Err(JsonError::Malformed),
            };
        }
    }
}

/// Why an escape sequence is invalid.
enum Escape {
    Malformed,
    /// One half of a pair of surrogates without the other.
    Surrogate,
}

/// The length of an escaped surrogate, and of every `\u` escape, in bytes.
const SURROGATE_BYTES: usize = 6;

/// Decodes the escape sequence at the start of the text; returns its character and its length in bytes.
fn escaped(text: &str) -> Result<(char, usize), Escape> {
    let plain = match text.as_bytes().get(1) {
        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        _ => return escaped_unicode(text),
    };
    Ok((plain, 2))
}

fn escaped_unicode(text: &str) -> Result<(char, usize), Escape> {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| hex)
    };
    let first = unit(text).ok_or(Escape::Malformed)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, SURROGATE_BYTES));
    }
    // A surrogate pair needs a second escape.
    let second =
        text.get(SURROGATE_BYTES..).and_then(unit).filter(|second| (0xdc00..0xe000).contains(second));
    let second = second.filter(|_| first < 0xdc00).ok_or(Escape::Surrogate)?;
    let character = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
    character.map(|character| (character, 2 * SURROGATE_BYTES)).ok_or(Escape::Surrogate)
}

fn unescape(inner: &str) -> Result<String, JsonError> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(plain) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..plain]);
        let (character, bytes) = escaped(&rest[plain..]).map_err(|_| JsonError::Malformed)?;
        out.push(character);
        rest = &rest[plain + bytes..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Appends a string with quotes, escaping where JSON requires it.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[plain..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(&[
                b'0',
                b'0',
                b'0' + (byte >> 4),
                b"0123456789abcdef"[usize::from(byte & 15)],
            ]);
        }
        plain = at + 1;
    }
    out.extend_from_slice(&text.as_bytes()[plain..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests;
