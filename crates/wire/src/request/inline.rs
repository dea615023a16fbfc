//! Inline commands: one line of words, as a person types them.
//!
//! Words are parted by spaces. A double-quoted part knows the escapes `\n \r \t \b \a \xHH` and `\` before any other byte; a
//! single-quoted one only `\'`. A quote may begin within a word, but one that closes must end it.
//!
//! Invariant: no line after one of HTTP becomes a command. A page of anywhere can make a browser send those.

use super::ProtocolError;
use super::args::{OwnedArgs, Span};
use super::batch::RequestBatch;

/// Methods whose request line may name its target otherwise than by a path. One is a command too, so the whole line is looked at.
const HTTP_METHODS: [&[u8]; 8] =
    [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"];

/// Whether a line is of HTTP: `POST` and `Host:` whatever follows, as in Redis, and other request lines. What comes after it, the
/// headers and the body, is what the page wants executed.
pub(super) fn is_http(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return false };
    if first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:") {
        return true;
    }
    let is_method = HTTP_METHODS.iter().any(|method| first.eq_ignore_ascii_case(method));
    words.next().is_some_and(|target| is_method || target.starts_with(b"/"))
        && words.next().is_some_and(|version| {
            version.get(..5).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"HTTP/"))
        })
        && words.next().is_none()
}

/// Appends the words of `line` to the open command of `batch`. On an error some of them may have been added.
pub(super) fn split_line(line: &[u8], batch: &mut RequestBatch) -> Result<(), ProtocolError> {
    let mut line = line;
    while let Some(text) = next_word(line) {
        line = text;
        let start = batch.inline_bytes.len();
        line = word(line, &mut batch.inline_bytes)?;
        batch.args.push(Span::new(start, batch.inline_bytes.len() - start));
    }
    Ok(())
}

/// The words of a line, as an inline command has them.
///
/// # Errors
/// A quote does not end where a word ends.
pub fn split_words(line: &[u8]) -> Result<OwnedArgs, ProtocolError> {
    let (mut words, mut bytes, mut line) = (OwnedArgs::default(), Vec::new(), line);
    while let Some(text) = next_word(line) {
        bytes.clear();
        line = word(text, &mut bytes)?;
        words.push(&bytes);
    }
    Ok(words)
}

/// The line from its first word on, if it has one.
fn next_word(line: &[u8]) -> Option<&[u8]> {
    let start = line.iter().position(|byte| !is_space(*byte))?;
    line.get(start..)
}

/// Appends the word that `text` begins with to `out` and returns what follows it.
fn word<'t>(mut text: &'t [u8], out: &mut Vec<u8>) -> Result<&'t [u8], ProtocolError> {
    loop {
        match text {
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(text),
            [b'"', rest @ ..] => return double_quoted(rest, out),
            [b'\'', rest @ ..] => return single_quoted(rest, out),
            [byte, rest @ ..] => {
                out.push(*byte);
                text = rest;
            }
        }
    }
}

fn double_quoted<'t>(mut text: &'t [u8], out: &mut Vec<u8>) -> Result<&'t [u8], ProtocolError> {
    loop {
        let (byte, rest) = match text {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', rest @ ..] => return closed(rest),
            [b'\\', b'x', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_value(*high) << 4 | hex_value(*low), rest)
            }
            [b'\\', escaped, rest @ ..] => (unescaped(*escaped), rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        out.push(byte);
        text = rest;
    }
}

fn single_quoted<'t>(mut text: &'t [u8], out: &mut Vec<u8>) -> Result<&'t [u8], ProtocolError> {
    loop {
        let (byte, rest) = match text {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', rest @ ..] => return closed(rest),
            [b'\\', b'\'', rest @ ..] => (b'\'', rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        out.push(byte);
        text = rest;
    }
}

/// What follows a closing quote, which must be a space or nothing.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest {
        [next, ..] if !is_space(*next) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescaped(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

/// What `isspace` of the C locale says.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
