//! [`ReplyWriter`]: one method per kind of value.

use std::fmt::{self, Display, Write as _};

use crate::double::format_double;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The initial version of every connection.
    #[default]
    Resp2,
    /// The version after `HELLO 3`: with maps, sets, doubles and pushes.
    Resp3,
}

/// The type of a value made of other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Values of any types, in order.
    Array,
    /// Pairs of key and value; the length of a map is its number of pairs.
    Map,
    /// Values without order or repetition.
    Set,
    /// Out-of-band values, such as messages.
    Push,
}

/// The position of an aggregate whose length is not known yet. The caller must pass it to
/// [`ReplyWriter::end_deferred`].
#[must_use = "the reply lacks its header until the aggregate is ended"]
#[derive(Debug)]
pub struct Deferred {
    position: usize,
}

/// Appends replies to a buffer of the caller.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> ReplyWriter<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version that is written.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the version of the following values, for a reply that contains the replies of several commands.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Bytes in the buffer, those of earlier replies included.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// The bytes written since `position`.
    pub fn since(&self, position: usize) -> &[u8] {
        self.out.get(position..).unwrap_or_default()
    }

    /// Removes everything written after `position`, for a command that fails halfway through its reply.
    pub fn truncate(&mut self, position: usize) {
        self.out.truncate(position);
    }

    /// Appends encoded bytes unchanged: an earlier reply, or part of one.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    /// The simple string `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A simple string. Line ends in it become spaces.
    #[inline]
    pub fn simple(&mut self, text: &(impl AsRef<[u8]> + ?Sized)) {
        self.one_line(b'+', |out| out.extend_from_slice(text.as_ref()));
    }

    /// An error, including its code, such as `ERR syntax error`. Line ends in it become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.one_line(b'-', |out| out.extend_from_slice(text.as_ref()));
    }

    /// A signed integer of 64 bits.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A length or count as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.header(b':', value);
    }

    /// A bulk string: any bytes, after their number.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.bulk_end();
    }

    /// The header of a bulk string of `len` bytes. The bytes follow in any number of [`raw`](Self::raw)
    /// calls, then [`bulk_end`](Self::bulk_end).
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.header(b'$', len);
    }

    /// The end of a bulk string begun by [`bulk_header`](Self::bulk_header).
    #[inline]
    pub fn bulk_end(&mut self) {
        self.raw(b"\r\n");
    }

    /// A bulk string with the decimal digits of an integer.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// A bulk string with a floating-point number in its shortest form.
    pub fn bulk_double(&mut self, value: f64) {
        self.bulk_with(|out| format_double(value, out));
    }

    /// A bulk string with a formatted value.
    pub fn bulk_display(&mut self, value: impl Display) {
        self.bulk_with(|out| append_display(out, value));
    }

    /// A bulk string with the bytes that `write` appends.
    pub fn bulk_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let position = self.out.len();
        write(self.out);
        self.insert_header(position, b'$', self.out.len() - position);
        self.bulk_end();
    }

    /// A null; in RESP2 a null bulk string.
    #[inline]
    pub fn null(&mut self) {
        self.raw(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// A null in place of an array; in RESP2 a null array.
    #[inline]
    pub fn null_array(&mut self) {
        self.raw(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// A bulk string, or a null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The header of an array of `len` values.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The header of a map of `pairs`, keys and values in turn.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        self.aggregate(Aggregate::Map, pairs);
    }

    /// The header of a set of `len` values.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.aggregate(Aggregate::Set, len);
    }

    /// The header of a push of `len` values, such as a message or an invalidation. In RESP2 an array.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.aggregate(Aggregate::Push, len);
    }

    /// The header of an aggregate of `len` values (pairs for a map).
    pub fn aggregate(&mut self, aggregate: Aggregate, len: usize) {
        let (kind, count) = self.aggregate_header(aggregate, len);
        self.header(kind, count);
    }

    /// Begins an aggregate whose length is known only after its values are written.
    pub fn begin_deferred(&self) -> Deferred {
        Deferred { position: self.out.len() }
    }

    /// Inserts the header of an aggregate after all its `len` values (pairs for a map) were written. This
    /// moves the values by a few bytes, so it is only for replies whose length cannot be known in advance.
    pub fn end_deferred(&mut self, deferred: Deferred, aggregate: Aggregate, len: usize) {
        let (kind, count) = self.aggregate_header(aggregate, len);
        self.insert_header(deferred.position, kind, count);
    }

    /// The header of `pairs` attributes of the next value. Returns whether the protocol has attributes; if
    /// not, nothing was written, and the caller must not write the pairs.
    #[must_use]
    pub fn attribute(&mut self, pairs: usize) -> bool {
        let readable = self.protocol == Protocol::Resp3;
        if readable {
            self.header(b'|', pairs);
        }
        readable
    }

    /// A floating-point number in its shortest form; in RESP2 as a bulk string.
    pub fn double(&mut self, value: f64) {
        match self.protocol {
            Protocol::Resp2 => self.bulk_double(value),
            Protocol::Resp3 => self.one_line(b',', |out| format_double(value, out)),
        }
    }

    /// A boolean; in RESP2 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// An integer of any size, given as its decimal digits; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &(impl AsRef<[u8]> + ?Sized)) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_ref()),
            Protocol::Resp3 => self.one_line(b'(', |out| out.extend_from_slice(digits.as_ref())),
        }
    }

    /// A verbatim string: a format, such as `*b"txt"`, and text; in RESP2 a bulk string of the text alone.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', format.len() + 1 + text.len());
                self.raw(&format);
                self.raw(b":");
                self.raw(text);
                self.raw(b"\r\n");
            }
        }
    }

    /// Type byte and element count of an aggregate in the version being written.
    fn aggregate_header(&self, aggregate: Aggregate, len: usize) -> (u8, usize) {
        match (self.protocol, aggregate) {
            (_, Aggregate::Array) => (b'*', len),
            (Protocol::Resp2, Aggregate::Map) => (b'*', len * 2),
            (Protocol::Resp2, Aggregate::Set | Aggregate::Push) => (b'*', len),
            (Protocol::Resp3, Aggregate::Map) => (b'%', len),
            (Protocol::Resp3, Aggregate::Set) => (b'~', len),
            (Protocol::Resp3, Aggregate::Push) => (b'>', len),
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, number: impl itoa::Integer) {
        append_header(self.out, kind, number);
    }

    /// Inserts a header at `position`, before the bytes written since.
    fn insert_header(&mut self, position: usize, kind: u8, number: usize) {
        let end = self.out.len();
        append_header(self.out, kind, number);
        let header_bytes = self.out.len() - end;
        self.out[position..].rotate_right(header_bytes);
    }

    /// Writes a value of one line. Line ends in it become spaces.
    #[inline]
    fn one_line(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(kind);
        let position = self.out.len();
        write(self.out);
        for byte in &mut self.out[position..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.raw(b"\r\n");
    }
}

/// Appends `<kind><number>\r\n`. Numbers of one digit, the most frequent, are appended in one piece.
#[inline]
fn append_header(out: &mut Vec<u8>, kind: u8, number: impl itoa::Integer) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    if let [digit] = digits {
        return out.extend_from_slice(&[kind, *digit, b'\r', b'\n']);
    }
    out.reserve(digits.len() + 3);
    out.push(kind);
    out.extend_from_slice(digits);
    out.extend_from_slice(b"\r\n");
}

fn append_display(out: &mut Vec<u8>, value: impl Display) {
    struct Bytes<'v>(&'v mut Vec<u8>);
    impl fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing to a `Vec` cannot fail; a failing `Display` leaves its partial output.
    let _ = write!(Bytes(out), "{value}");
}
