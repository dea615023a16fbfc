//! HTTP/1.1 for a client: encodes requests, decodes responses.
//!
//! Responses may arrive in any pieces. Only one response at a time is supported, with a counted or chunked
//! body.
//!
//! Invariants
//! - An incomplete response is never returned, and bytes behind a complete one are an error.

use thiserror::Error;

/// Maximum length of a response's head, and of the line of a chunk.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// The response is not valid, or not supported, HTTP.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no HTTP: {0}")]
pub struct NoHttp(&'static str);

/// Appends a request. Without a body it has no content type.
pub fn write_request(out: &mut Vec<u8>, method: &str, path: &str, body: &[u8]) {
    for part in [method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    if !body.is_empty() {
        let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        out.extend_from_slice(length.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// The expected next part of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Head,
    /// This many bytes of a counted body.
    Counted(usize),
    ChunkHead,
    /// This many bytes of a chunk, followed by its line end.
    Chunk(usize),
    ChunkEnd,
    LastLine,
    Nothing,
}

/// Reads responses, one after the other.
#[derive(Debug)]
pub struct AnswerReader {
    next: Next,
    unread: Vec<u8>,
    /// The status of the response, once its head is read.
    pub status: u16,
    /// The received part of the body; a caller that reads a stream removes bytes from it.
    pub body: Vec<u8>,
}

impl Default for AnswerReader {
    fn default() -> AnswerReader {
        AnswerReader { next: Next::Head, unread: Vec::new(), status: 0, body: Vec::new() }
    }
}

impl AnswerReader {
    /// Consumes received bytes. Returns whether the response is complete.
    pub fn feed(&mut self, input: &[u8]) -> Result<bool, NoHttp> {
        self.unread.extend_from_slice(input);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        while self.next != Next::Nothing && self.step(&mut rest)? {}
        if self.next == Next::Nothing && !rest.is_empty() {
            return Err(NoHttp("more than an answer"));
        }
        self.unread = rest.to_vec();
        Ok(self.next == Next::Nothing)
    }

    /// Prepares for the head of the next response.
    pub fn begin(&mut self) {
        self.next = Next::Head;
        self.body.clear();
    }

    /// Consumes one part from `rest`; `false` if more bytes are needed.
    fn step(&mut self, rest: &mut &[u8]) -> Result<bool, NoHttp> {
        match self.next {
            Next::Head => self.read_head(rest),
            Next::ChunkHead => self.read_chunk_head(rest),
            Next::Counted(left) => {
                let left = self.take_body(left, rest);
                self.next = if left == 0 { Next::Nothing } else { Next::Counted(left) };
                Ok(left == 0)
            }
            Next::Chunk(left) => {
                let left = self.take_body(left, rest);
                self.next = if left == 0 { Next::ChunkEnd } else { Next::Chunk(left) };
                Ok(left == 0)
            }
            Next::ChunkEnd => self.read_empty_line(Next::ChunkHead, rest),
            Next::LastLine => self.read_empty_line(Next::Nothing, rest),
            Next::Nothing => Ok(false),
        }
    }

    fn read_empty_line(&mut self, then: Next, rest: &mut &[u8]) -> Result<bool, NoHttp> {
        match rest.strip_prefix(b"\r\n") {
            Some(after) => {
                (self.next, *rest) = (then, after);
                Ok(true)
            }
            None if rest.len() < 2 => Ok(false),
            None => Err(NoHttp("a chunk that does not end")),
        }
    }

    fn take_body(&mut self, left: usize, rest: &mut &[u8]) -> usize {
        let (taken, after) = rest.split_at(left.min(rest.len()));
        self.body.extend_from_slice(taken);
        *rest = after;
        left - taken.len()
    }

    fn read_head(&mut self, rest: &mut &[u8]) -> Result<bool, NoHttp> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(rest).map_err(|_| NoHttp("a head that cannot be read"))?;
        let httparse::Status::Complete(len) = parsed else {
            return if rest.len() > HEAD_BYTES_MAX {
                Err(NoHttp("a head without an end"))
            } else {
                Ok(false)
            };
        };
        let value = |name: &str| {
            head.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name)).map(|header| header.value)
        };
        self.status = head.code.unwrap_or(0);
        self.next = match value("transfer-encoding") {
            Some(value) if value.eq_ignore_ascii_case(b"chunked") => Next::ChunkHead,
            Some(_) => return Err(NoHttp("an encoding that was not asked for")),
            None => {
                let length =
                    value("content-length").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
                Next::Counted(length.ok_or(NoHttp("a body of unknown length"))?)
            }
        };
        *rest = &rest[len..];
        Ok(true)
    }

    fn read_chunk_head(&mut self, rest: &mut &[u8]) -> Result<bool, NoHttp> {
        match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((len, size))) => {
                *rest = &rest[len..];
                self.next = if size == 0 { Next::LastLine } else { Next::Chunk(size as usize) };
                Ok(true)
            }
            Ok(httparse::Status::Partial) if rest.len() <= HEAD_BYTES_MAX => Ok(false),
            _ => Err(NoHttp("a chunk without a size")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let mut reader = AnswerReader::default();
        for (answer, status) in [(COUNTED, 201), (CHUNKED, 200)] {
            for cut in 0..answer.len() {
                reader.begin();
                assert_eq!(reader.feed(&answer[..cut]), Ok(false), "{cut}");
                assert_eq!(reader.feed(&answer[cut..]), Ok(true), "{cut}");
                assert_eq!((reader.status, reader.body.as_slice()), (status, b"hello".as_slice()));
            }
            reader.begin();
            let complete = answer.iter().filter(|byte| reader.feed(&[**byte]).unwrap()).count();
            assert_eq!((complete, reader.body.as_slice()), (1, b"hello".as_slice()));
        }
    }

    #[test]
    fn anything_but_one_complete_answer_is_refused() {
        let refused: [&[u8]; 6] = [
            b"+PONG\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
        ];
        for answer in refused {
            assert!(AnswerReader::default().feed(answer).is_err(), "{}", String::from_utf8_lossy(answer));
        }
    }

    #[test]
    fn a_request_has_a_type_and_a_length_only_with_a_body() {
        let mut out = Vec::new();
        write_request(&mut out, "GET", "/bench", b"");
        assert_eq!(out, b"GET /bench HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
        write_request(&mut out, "PUT", "/bench/a", b"{}");
        assert!(out.ends_with(b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));
    }
}
