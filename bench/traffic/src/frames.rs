//! The frames that servers send to publishers and subscribers, in RESP2: integers, errors, and arrays of
//! three, or of four if a durable channel includes positions. It is not a general RESP parser: anything else
//! is [`Garbled`].

use thiserror::Error;

/// Maximum length of a line with a length or an integer.
const LINE_BYTES_MAX: usize = 24;
/// Maximum length of an error.
const ERROR_BYTES_MAX: usize = 4096;

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The reply to a PUBLISH.
    Integer(u64),
    /// An error.
    Error(&'a [u8]),
    /// A message of a channel.
    Message { channel: &'a [u8], message: &'a [u8] },
    /// A subscription was confirmed.
    Began { name: &'a [u8] },
    /// The end of a subscription was confirmed.
    Ended { name: &'a [u8] },
}

/// The server sent something other than the expected frames.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the server sent something that is neither a reply nor a message")]
pub struct Garbled;

/// Reads frames. Caches the head of the last message, because the next one usually has the same.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The bytes before the message itself, and the range of the channel's name in it.
    head: Vec<u8>,
    name: std::ops::Range<usize>,
    message_bytes: usize,
}

impl FrameReader {
    /// The first frame and its length; `None` if it is incomplete.
    #[inline]
    pub fn read<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Garbled> {
        let head_bytes = self.head.len();
        let end = head_bytes + self.message_bytes + 2;
        if head_bytes > 0 && bytes.len() >= end && bytes[..head_bytes] == self.head[..] {
            let message = &bytes[head_bytes..end - 2];
            return Ok(Some((Frame::Message { channel: &self.head[self.name.clone()], message }, end)));
        }
        self.read_any(bytes)
    }

    fn read_any<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Garbled> {
        let Some(kind) = bytes.first() else { return Ok(None) };
        match kind {
            b':' => {
                let Some((number, end)) = number(bytes)? else { return Ok(None) };
                Ok(Some((Frame::Integer(number), end)))
            }
            b'-' => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => Ok(Some((Frame::Error(bytes[1..end].trim_ascii_end()), end + 1))),
                None if bytes.len() > ERROR_BYTES_MAX => Err(Garbled),
                None => Ok(None),
            },
            b'*' => self.read_array(bytes),
            _ => Err(Garbled),
        }
    }

    fn read_array<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Garbled> {
        let Some((count, at)) = number(bytes)? else { return Ok(None) };
        if !(3..=4).contains(&count) {
            return Err(Garbled);
        }
        let Some((verb, at)) = bulk(bytes, at)? else { return Ok(None) };
        let Some((name, after_name)) = bulk(bytes, at)? else { return Ok(None) };
        let mut rest_at = after_name;
        if count == 4 {
            let Some((_position, after_position)) = bulk(bytes, after_name)? else { return Ok(None) };
            rest_at = after_position;
        }
        match (count, verb) {
            (3, b"message") => {
                let Some((message, end)) = bulk(bytes, after_name)? else { return Ok(None) };
                self.message_bytes = message.len();
                self.head.clear();
                self.head.extend_from_slice(&bytes[..end - message.len() - 2]);
                self.name = after_name - 2 - name.len()..after_name - 2;
                Ok(Some((Frame::Message { channel: name, message }, end)))
            }
            (4, b"xmessage") => {
                let Some((message, end)) = bulk(bytes, rest_at)? else { return Ok(None) };
                Ok(Some((Frame::Message { channel: name, message }, end)))
            }
            (3, b"subscribe" | b"psubscribe") | (4, b"xsubscribe") => {
                let Some((_, len)) = number(&bytes[rest_at..])? else { return Ok(None) };
                Ok(Some((Frame::Began { name }, rest_at + len)))
            }
            (3, b"unsubscribe" | b"punsubscribe") => {
                let Some((_, len)) = number(&bytes[rest_at..])? else { return Ok(None) };
                Ok(Some((Frame::Ended { name }, rest_at + len)))
            }
            _ => Err(Garbled),
        }
    }
}

/// The number in a line that begins with a type byte, and the start of the next line.
fn number(bytes: &[u8]) -> Result<Option<(u64, usize)>, Garbled> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' if index < LINE_BYTES_MAX => value = value.wrapping_mul(10) + u64::from(byte - b'0'),
            b'\r' => return Ok((bytes.len() > index + 1).then_some((value, index + 2))),
            _ => return Err(Garbled),
        }
    }
    Ok(None)
}

/// The string at `at`, and the start of the next value.
fn bulk(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Garbled> {
    let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    if rest[0] != b'$' {
        return Err(Garbled);
    }
    let Some((len, from)) = number(rest)? else { return Ok(None) };
    let end = from.saturating_add(len as usize);
    Ok(rest.get(from..end).filter(|_| rest.len() >= end + 2).map(|string| (string, at + end + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames of `bytes` in debug format, read in growing pieces as from a socket.
    fn frames(bytes: &[u8], piece: usize) -> Vec<String> {
        let (mut reader, mut at, mut seen, mut shown) = (FrameReader::default(), 0, 0, Vec::new());
        while at < bytes.len() {
            seen = (seen + piece).min(bytes.len());
            while let Some((frame, len)) = reader.read(&bytes[at..seen]).unwrap() {
                shown.push(format!("{frame:?}"));
                at += len;
            }
        }
        shown
    }

    #[test]
    fn frames_may_be_cut_anywhere() {
        let bytes = b":12\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n\
            *3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nho\r\n*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$3\r\n\r\nx\r\n-ERR no\r\n\
            *3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n*4\r\n$10\r\nxsubscribe\r\n$1\r\na\r\n$4\r\n3:99\r\n:1\r\n\
            *4\r\n$8\r\nxmessage\r\n$1\r\na\r\n$5\r\n3:107\r\n$2\r\nhi\r\n";
        let (a, b, r_n_x) = (b"a", b"b", b"\r\nx");
        let expected = [
            Frame::Integer(12),
            Frame::Began { name: a },
            Frame::Message { channel: a, message: b"hi" },
            Frame::Message { channel: a, message: b"ho" },
            Frame::Message { channel: b, message: r_n_x },
            Frame::Error(b"ERR no"),
            Frame::Ended { name: a },
            Frame::Began { name: a },
            Frame::Message { channel: a, message: b"hi" },
        ]
        .map(|frame| format!("{frame:?}"));
        for piece in [1, 2, 7, bytes.len()] {
            assert_eq!(frames(bytes, piece), expected, "{piece} bytes at once");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            "+OK\r\n",
            "*2\r\n",
            "*5\r\n",
            "*3\r\n:1\r\n",
            "*3\r\n$4\r\nblah\r\n$1\r\na\r\n",
            ":x\r\n",
            "$-1\r\n",
        ] {
            assert_eq!(FrameReader::default().read(bytes.as_bytes()), Err(Garbled), "{bytes:?}");
        }
    }
}
