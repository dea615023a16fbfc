//! Primitives: lengths, strings, numbers.
//!
//! What it is: a cursor over a byte slice. What it is not: aware of values.
//!
//! # Lengths
//! | first byte | then | length |
//! |------------|------|--------|
//! | 00xxxxxx | | 6 bits |
//! | 01xxxxxx | one byte | 14 bits, big-endian |
//! | 0x80 | four bytes | 32 bits, big-endian |
//! | 0x81 | eight bytes | 64 bits, big-endian |
//! | 11xxxxxx | | not a length: a string in another form (0..=2: an integer of 1, 2, 4 bytes; 3: compressed) |

use crate::lzf;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end too early.
    #[error("the bytes end inside a value")]
    Truncated,
    /// A length, an encoding or a number that cannot be.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A value type that this version does not know.
    #[error("unknown value type {0}")]
    UnknownType(u8),
    /// A value without elements.
    #[error("an empty collection")]
    Empty,
    /// A member or field that is there twice.
    #[error("a duplicate member")]
    Duplicate,
}

/// A cursor over encoded bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// A length, or the form of a string that has none.
pub(crate) enum Length {
    Plain(u64),
    Special(u8),
}

impl<'a> Reader<'a> {
    /// A cursor at the start of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next byte.
    ///
    /// # Errors
    /// If there is none.
    pub fn byte(&mut self) -> Result<u8, Error> {
        let (byte, rest) = self.rest.split_first().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(crate) fn length(&mut self) -> Result<Length, Error> {
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

    /// A number of things.
    ///
    /// # Errors
    /// If it is cut short or no plain length.
    pub fn number(&mut self) -> Result<u64, Error> {
        match self.length()? {
            Length::Plain(number) => Ok(number),
            Length::Special(_) => Err(Error::Malformed("length")),
        }
    }

    /// A string in any of its forms.
    ///
    /// # Errors
    /// If it is cut short or malformed.
    pub fn string(&mut self) -> Result<Vec<u8>, Error> {
        let integer = |value: i64| value.to_string().into_bytes();
        match self.length()? {
            Length::Plain(len) => {
                let len = usize::try_from(len).map_err(|_| Error::Truncated)?;
                Ok(self.take(len)?.to_vec())
            }
            Length::Special(0) => Ok(integer(i8::from_le_bytes(self.array()?).into())),
            Length::Special(1) => Ok(integer(i16::from_le_bytes(self.array()?).into())),
            Length::Special(2) => Ok(integer(i32::from_le_bytes(self.array()?).into())),
            Length::Special(3) => {
                let compressed_len = usize::try_from(self.number()?).map_err(|_| Error::Truncated)?;
                let len = usize::try_from(self.number()?).map_err(|_| Error::Truncated)?;
                lzf::decompress(self.take(compressed_len)?, len)
            }
            Length::Special(_) => Err(Error::Malformed("string encoding")),
        }
    }

    /// A score as text with a length of one byte, in which 253 to 255 stand for NaN and the infinities.
    pub(crate) fn text_double(&mut self) -> Result<f64, Error> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Err(Error::Malformed("score")),
            len => parse_double(self.take(len.into())?),
        }
    }

    /// A score in eight bytes.
    pub(crate) fn double(&mut self) -> Result<f64, Error> {
        let score = f64::from_le_bytes(self.array()?);
        if score.is_nan() { Err(Error::Malformed("score")) } else { Ok(score) }
    }
}

/// A score written as decimal text.
pub(crate) fn parse_double(text: &[u8]) -> Result<f64, Error> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or(Error::Malformed("score"))
}
