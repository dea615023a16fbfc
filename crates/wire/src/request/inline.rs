//! Inline commands: one line of words, as typed by a person.
//!
//! Words are separated by spaces, tabs or line ends. A double-quoted part may have the escapes `\n \r \t \b
//! \a \xHH` and `\` before any other byte; a single-quoted part only `\'`. A quote may begin within a word,
//! but must end at the end of the word.
//!
//! Invariant: no line after a line of HTTP becomes a command. Any web page can make a browser send such
//! lines.

use super::ProtocolError;
use super::args::{OwnedArgs, Span};
use super::batch::RequestBatch;

/// A line that begins with one of these methods is HTTP whatever its target is. A line that begins with any
/// other word is HTTP only if its target is a path. A method alone proves nothing, because `GET` is also a
/// command: the line must also end in a version of HTTP.
const HTTP_METHODS: [&[u8]; 8] =
    [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"];

/// Whether a line is HTTP: it begins with `POST` or `Host:`, as in Redis, or is another request line. A web
/// page can control the headers and the body after such a line, so no command is read from them.
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

/// The words of a line, by the rules of inline commands.
///
/// # Errors
/// If a quote is not closed, or not at the end of a word.
pub fn split_words(line: &[u8]) -> Result<OwnedArgs, ProtocolError> {
    let (mut words, mut bytes, mut line) = (OwnedArgs::default(), Vec::new(), line);
    while let Some(text) = next_word(line) {
        bytes.clear();
        line = word(text, &mut bytes)?;
        words.push(&bytes);
    }
    Ok(words)
}

/// The line from its first word on; `None` if it has no words.
fn next_word(line: &[u8]) -> Option<&[u8]> {
    let start = line.iter().position(|byte| !is_space(*byte))?;
    line.get(start..)
}

/// Appends the first word of `text` to `out` and returns the rest of the text.
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

/// Checks that a closing quote is followed by a space or the end; returns the rest of the text.
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

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

/// Whether `isspace` is true for the byte in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
