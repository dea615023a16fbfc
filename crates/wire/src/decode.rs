//! Decodes replies, and writes decoded ones in either version of the protocol: for tests, simulations,
//! importers and stored replies; not for the hot path.
//!
//! Decodes one complete RESP2 or RESP3 value at a time into owned memory. Streamed strings and aggregates
//! (`$?`, `*?`) are refused: neither Redis nor this server sends them. Memory is bounded by the limits and by
//! the bytes received, depth by [`DecodeLimits::nesting_max`].

use crate::number::{parse_f64, parse_i64};

#[cfg(test)]
mod tests;
mod write;

/// One decoded value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a simple string.
    Simple(Vec<u8>),
    /// `-` or `!`: an error, including its code.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`: a bulk string.
    Bulk(Vec<u8>),
    /// `_`, `$-1` or `*-1`.
    Null,
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`: an integer of any size, as its digits.
    BigNumber(Vec<u8>),
    /// `=`: text and its format.
    Verbatim {
        /// Such as `txt`.
        format: [u8; 3],
        /// The text itself.
        text: Vec<u8>,
    },
    /// `*`
    Array(Vec<Value>),
    /// `%`: pairs in the order sent.
    Map(Vec<(Value, Value)>),
    /// `~`: values in the order sent.
    Set(Vec<Value>),
    /// `>`: out-of-band data.
    Push(Vec<Value>),
    /// `|`: attributes and the value that they describe.
    Attributed {
        /// Pairs in the order sent.
        attributes: Vec<(Value, Value)>,
        /// The described value.
        value: Box<Value>,
    },
}

impl Value {
    /// The number of values that it consists of, itself included: as [`DecodeLimits::elements_max`] counts.
    pub fn elements(&self) -> usize {
        let in_pairs = |pairs: &[(Value, Value)]| -> usize {
            pairs.iter().map(|(name, value)| name.elements() + value.elements()).sum()
        };
        1 + match self {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => {
                values.iter().map(Value::elements).sum()
            }
            Value::Map(pairs) => in_pairs(pairs),
            Value::Attributed { attributes, value } => in_pairs(attributes) + value.elements(),
            _ => 0,
        }
    }
}

/// Bounds of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum length of the encoded value, in bytes.
    pub bytes_max: usize,
    /// Maximum number of values within it, on all levels together.
    pub elements_max: usize,
    /// Maximum nesting of aggregates. Capped at [`NESTING_CEILING`], to bound the use of the stack.
    pub nesting_max: usize,
}

impl DecodeLimits {
    /// 512 MiB, a million values, 32 levels.
    pub const DEFAULT: DecodeLimits =
        DecodeLimits { bytes_max: 512 * 1024 * 1024, elements_max: 1024 * 1024, nesting_max: 32 };
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why bytes are not a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A type byte of no version of the protocol.
    #[error("unknown type byte {0:#04x}")]
    UnknownType(u8),
    /// A length that is not a number, is negative, or is that of a streamed value.
    #[error("invalid length")]
    InvalidLength,
    /// An invalid number, boolean or format.
    #[error("invalid scalar")]
    InvalidScalar,
    /// A line or bulk string that does not end in CR LF.
    #[error("missing line end")]
    MissingLineEnd,
    /// Longer than [`DecodeLimits::bytes_max`].
    #[error("value too long")]
    TooLong,
    /// More than [`DecodeLimits::elements_max`] values.
    #[error("too many elements")]
    TooManyElements,
    /// Deeper than [`DecodeLimits::nesting_max`].
    #[error("nested too deeply")]
    TooDeep,
}

/// Decodes the first value in `bytes`, and returns it with its encoded length; `None` if it is incomplete.
///
/// Each call starts from the first byte.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Option<(Value, usize)>, DecodeError> {
    let window = &bytes[..bytes.len().min(limits.bytes_max)];
    let mut reader = Reader { rest: window, elements_left: limits.elements_max };
    match reader.value(limits.nesting_max.min(NESTING_CEILING)) {
        Ok(value) => Ok(Some((value, window.len() - reader.rest.len()))),
        Err(Stop::Incomplete) if bytes.len() >= limits.bytes_max => Err(DecodeError::TooLong),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Invalid(error)) => Err(error),
    }
}

/// Upper bound of [`DecodeLimits::nesting_max`].
const NESTING_CEILING: usize = 1000;

/// Maximum number of values to reserve room for. Further room is taken only as values arrive.
const RESERVED_MAX: usize = 1024;

/// Why decoding ended early.
enum Stop {
    Incomplete,
    Invalid(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Stop::Invalid(error)
    }
}

struct Reader<'b> {
    rest: &'b [u8],
    elements_left: usize,
}

impl<'b> Reader<'b> {
    fn value(&mut self, levels_left: usize) -> Result<Value, Stop> {
        self.elements_left = self.elements_left.checked_sub(1).ok_or(DecodeError::TooManyElements)?;
        let (&kind, rest) = self.rest.split_first().ok_or(Stop::Incomplete)?;
        self.rest = rest;
        match kind {
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let levels_left = levels_left.checked_sub(1).ok_or(DecodeError::TooDeep)?;
                self.aggregate(kind, levels_left)
            }
            b'$' => Ok(self.bulk(true)?.map_or(Value::Null, |bytes| Value::Bulk(bytes.to_vec()))),
            b'!' => Ok(Value::Error(self.present_bulk()?.to_vec())),
            b'=' => self.verbatim(),
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {
                Ok(scalar(kind, self.line()?).ok_or(DecodeError::InvalidScalar)?)
            }
            other => Err(DecodeError::UnknownType(other).into()),
        }
    }

    fn aggregate(&mut self, kind: u8, levels_left: usize) -> Result<Value, Stop> {
        let Some(len) = self.length(kind == b'*')? else {
            return Ok(Value::Null);
        };
        Ok(match kind {
            b'%' => Value::Map(self.pairs(len, levels_left)?),
            b'|' => Value::Attributed {
                attributes: self.pairs(len, levels_left)?,
                value: Box::new(self.value(levels_left)?),
            },
            b'~' => Value::Set(self.values(len, levels_left)?),
            b'>' => Value::Push(self.values(len, levels_left)?),
            _ => Value::Array(self.values(len, levels_left)?),
        })
    }

    fn values(&mut self, len: usize, levels_left: usize) -> Result<Vec<Value>, Stop> {
        self.check_elements(len)?;
        let mut values = Vec::with_capacity(len.min(RESERVED_MAX).min(self.rest.len()));
        for _ in 0..len {
            values.push(self.value(levels_left)?);
        }
        Ok(values)
    }

    fn pairs(&mut self, len: usize, levels_left: usize) -> Result<Vec<(Value, Value)>, Stop> {
        self.check_elements(len.saturating_mul(2))?;
        let mut pairs = Vec::with_capacity(len.min(RESERVED_MAX).min(self.rest.len()));
        for _ in 0..len {
            pairs.push((self.value(levels_left)?, self.value(levels_left)?));
        }
        Ok(pairs)
    }

    /// Refuses an aggregate at its header if its elements would exceed the limit.
    fn check_elements(&self, announced: usize) -> Result<(), DecodeError> {
        if announced > self.elements_left { Err(DecodeError::TooManyElements) } else { Ok(()) }
    }

    fn verbatim(&mut self) -> Result<Value, Stop> {
        match self.present_bulk()? {
            [a, b, c, b':', text @ ..] => Ok(Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }),
            _ => Err(DecodeError::InvalidScalar.into()),
        }
    }

    fn present_bulk(&mut self) -> Result<&'b [u8], Stop> {
        Ok(self.bulk(false)?.ok_or(DecodeError::InvalidLength)?)
    }

    /// The content of a bulk string, from its length on; `None` if the length is -1.
    fn bulk(&mut self, nullable: bool) -> Result<Option<&'b [u8]>, Stop> {
        let Some(len) = self.length(nullable)? else {
            return Ok(None);
        };
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Stop::Incomplete)?;
        self.rest = match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(DecodeError::MissingLineEnd.into()),
        };
        Ok(Some(bytes))
    }

    /// A length; `None` if it is -1 and `nullable`.
    fn length(&mut self, nullable: bool) -> Result<Option<usize>, Stop> {
        let len = parse_i64(self.line()?).ok_or(DecodeError::InvalidLength)?;
        if len == -1 && nullable {
            return Ok(None);
        }
        Ok(Some(usize::try_from(len).map_err(|_| DecodeError::InvalidLength)?))
    }

    /// The bytes up to the next CR LF. A single CR or LF is an error.
    fn line(&mut self) -> Result<&'b [u8], Stop> {
        let end = memchr::memchr2(b'\r', b'\n', self.rest).ok_or(Stop::Incomplete)?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(DecodeError::MissingLineEnd.into()),
        };
        Ok(line)
    }
}

/// A value that consists of one line.
fn scalar(kind: u8, line: &[u8]) -> Option<Value> {
    match (kind, line) {
        (b'+', text) => Some(Value::Simple(text.to_vec())),
        (b'-', text) => Some(Value::Error(text.to_vec())),
        (b':', digits) => parse_i64(digits).map(Value::Integer),
        (b'_', b"") => Some(Value::Null),
        (b',', number) if number.eq_ignore_ascii_case(b"nan") => Some(Value::Double(f64::NAN)),
        (b',', number) => parse_f64(number).map(Value::Double),
        (b'#', b"t") => Some(Value::Boolean(true)),
        (b'#', b"f") => Some(Value::Boolean(false)),
        (b'(', digits) => is_big_number(digits).then(|| Value::BigNumber(digits.to_vec())),
        _ => None,
    }
}

fn is_big_number(line: &[u8]) -> bool {
    let digits = line.strip_prefix(b"-").or(line.strip_prefix(b"+")).unwrap_or(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}
