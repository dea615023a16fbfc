//! Primitives: lengths, strings, numbers. They are read in the same way from a payload in memory ([`Reader`])
//! and from a file.
//!
//! # Lengths
//! | first byte | then | length |
//! |------------|------|--------|
//! | 00xxxxxx | | 6 bits |
//! | 01xxxxxx | one byte | 14 bits, big-endian |
//! | 0x80 | four bytes | 32 bits, big-endian |
//! | 0x81 | eight bytes | 64 bits, big-endian |
//! | 11xxxxxx | | none: a string in another form (0..=2: an integer of 1, 2, 4 bytes; 3: compressed) |

use crate::{Error, lzf};

/// The maximum bytes of a string in a file, and of a decompressed string.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

/// A length, or the form of a string without one.
pub(crate) enum Length {
    Plain(u64),
    Special(u8),
}

/// A source of encoded bytes.
pub(crate) trait Input {
    /// The next `N` bytes.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error>;

    /// Replaces `out` with the next `len` bytes. Memory is allocated as bytes arrive, not for all of `len`.
    fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), Error>;

    fn byte(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Length::Plain(low.into()),
            1 => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            2 => match first {
                0x80 => Length::Plain(u32::from_be_bytes(self.array()?).into()),
                0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
                _ => return Err(Error::Malformed("length")),
            },
            _ => Length::Special(low),
        })
    }

    /// Reads a number that is encoded as a length.
    fn number(&mut self) -> Result<u64, Error> {
        match self.length()? {
            Length::Plain(number) => Ok(number),
            Length::Special(_) => Err(Error::Malformed("length")),
        }
    }

    /// Reads a string, in whichever form it is encoded, and replaces `out` with it.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self.length()? {
            Length::Plain(len) => return self.bytes(len, out),
            Length::Special(0) => set_integer(out, i8::from_le_bytes(self.array()?).into()),
            Length::Special(1) => set_integer(out, i16::from_le_bytes(self.array()?).into()),
            Length::Special(2) => set_integer(out, i32::from_le_bytes(self.array()?).into()),
            Length::Special(3) => {
                let (compressed_len, len) = (self.number()?, self.number()?);
                if len > STRING_BYTES_MAX {
                    return Err(Error::TooLong(len));
                }
                let mut compressed = Vec::new();
                self.bytes(compressed_len, &mut compressed)?;
                return lzf::decompress(&compressed, len as usize, out);
            }
            Length::Special(_) => return Err(Error::Malformed("string encoding")),
        }
        Ok(())
    }

    /// Reads a score that is stored as text after a length of one byte; the lengths 253 to 255 stand for NaN
    /// and the infinities.
    fn text_double(&mut self) -> Result<f64, Error> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Err(Error::Malformed("score")),
            len => {
                let mut text = Vec::new();
                self.bytes(len.into(), &mut text)?;
                parse_double(&text)
            }
        }
    }

    /// Reads a score that is stored in eight bytes.
    fn double(&mut self) -> Result<f64, Error> {
        let score = f64::from_le_bytes(self.array()?);
        if score.is_nan() { Err(Error::Malformed("score")) } else { Ok(score) }
    }
}

fn set_integer(out: &mut Vec<u8>, value: i64) {
    out.clear();
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Parses a score written as decimal text.
pub(crate) fn parse_double(text: &[u8]) -> Result<f64, Error> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or(Error::Malformed("score"))
}

/// A cursor over bytes in memory.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A cursor at the start of the bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl Input for Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let bytes = self.take(usize::try_from(len).map_err(|_| Error::Truncated)?)?;
        out.clear();
        out.extend_from_slice(bytes);
        Ok(())
    }
}
