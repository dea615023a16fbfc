//! [`Decoder`]: values from bytes that arrive in parts.
//!
//! A decoder keeps the aggregates that have begun, with the values that they have so far, and its position in
//! the bytes. So a long reply that arrives in many reads costs no more than in one read.
//!
//! Invariant: a call returns what a new decoder would return for all bytes since the start of the value.

use super::{DecodeError, DecodeLimits, NESTING_CEILING, Value};
use crate::number::{parse_f64, parse_i64};

/// The maximum number of values for which room is reserved in advance. More room is taken only as values
/// arrive.
const RESERVED_MAX: usize = 1024;

/// Decodes one value after another, each as its bytes arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    progress: Progress,
    /// The aggregates that have begun, the outermost first.
    open: Vec<Aggregate>,
    /// The number of values, at all depths, that have begun since the start of the outermost value.
    elements: usize,
}

/// The position within the incomplete value, relative to its first byte.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Start of the next header or line, or of the content of the bulk string in `bulk`.
    at: usize,
    /// The number of bytes after the type byte at `at` that are known to have no line end.
    scanned: usize,
    /// Type and length of the bulk string at `at`, once its header is read.
    bulk: Option<(u8, usize)>,
}

/// An aggregate with the values it has so far.
#[derive(Debug)]
struct Aggregate {
    kind: u8,
    /// The number of values still to come. A key and its value are two values; for attributes, the described
    /// value is included.
    left: usize,
    values: Vec<Value>,
}

impl Decoder {
    /// A decoder at the start of a value.
    pub const fn new() -> Decoder {
        let progress = Progress { at: 0, scanned: 0, bulk: None };
        Decoder { progress, open: Vec::new(), elements: 0 }
    }

    /// Decodes the first value in `bytes`, and returns it with its encoded length; `None` if it is
    /// incomplete. The next call must then have the same limits, and the same bytes followed by further
    /// bytes.
    ///
    /// After a value or an error, the decoder is at the start of a value again.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(
        &mut self,
        bytes: &[u8],
        limits: &DecodeLimits,
    ) -> Result<Option<(Value, usize)>, DecodeError> {
        let window = &bytes[..bytes.len().min(limits.bytes_max)];
        let outcome = match self.value(window, limits) {
            Ok(None) if bytes.len() >= limits.bytes_max => Err(DecodeError::TooLong),
            other => other,
        };
        let outcome = outcome.map(|value| value.map(|value| (value, self.progress.at)));
        if !matches!(outcome, Ok(None)) {
            *self = Decoder::new();
        }
        outcome
    }

    fn value(&mut self, window: &[u8], limits: &DecodeLimits) -> Result<Option<Value>, DecodeError> {
        loop {
            let Some(value) = self.single(window, limits)? else { return Ok(None) };
            if let Some(whole) = self.add(value) {
                return Ok(Some(whole));
            }
        }
    }

    /// The next value without elements: a scalar, a string or an empty aggregate. Aggregates whose headers
    /// come before it are added to `open`. `None` if bytes are missing.
    fn single(&mut self, window: &[u8], limits: &DecodeLimits) -> Result<Option<Value>, DecodeError> {
        loop {
            if let Some((kind, len)) = self.progress.bulk {
                return self.bulk(window, kind, len);
            }
            if self.elements >= limits.elements_max {
                return Err(DecodeError::TooManyElements);
            }
            let Some(&kind) = window.get(self.progress.at) else { return Ok(None) };
            let is_aggregate = match kind {
                b'*' | b'~' | b'>' | b'%' | b'|' => true,
                b'$' | b'!' | b'=' | b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => false,
                other => return Err(DecodeError::UnknownType(other)),
            };
            if is_aggregate && self.open.len() >= limits.nesting_max.min(NESTING_CEILING) {
                return Err(DecodeError::TooDeep);
            }
            let Some(line) = self.line(window)? else { return Ok(None) };
            self.elements += 1;
            match kind {
                b'$' | b'!' | b'=' => match length(line, kind == b'$')? {
                    Some(len) => self.progress.bulk = Some((kind, len)),
                    None => return Ok(Some(Value::Null)),
                },
                _ if !is_aggregate => return scalar(kind, line).ok_or(DecodeError::InvalidScalar).map(Some),
                _ => {
                    let Some(len) = length(line, kind == b'*')? else { return Ok(Some(Value::Null)) };
                    let announced = if matches!(kind, b'%' | b'|') { len.saturating_mul(2) } else { len };
                    // An aggregate whose elements would exceed the limit is refused at its header.
                    if announced > limits.elements_max - self.elements {
                        return Err(DecodeError::TooManyElements);
                    }
                    let left = if kind == b'|' { announced + 1 } else { announced };
                    if left == 0 {
                        return Ok(Some(aggregate(kind, Vec::new())));
                    }
                    let arrived = window.len() - self.progress.at;
                    let values = Vec::with_capacity(left.min(RESERVED_MAX).min(arrived));
                    self.open.push(Aggregate { kind, left, values });
                }
            }
        }
    }

    /// Adds a value to the innermost aggregate in `open`. Returns the outermost value if this completes it.
    fn add(&mut self, mut value: Value) -> Option<Value> {
        while let Some(mut inner) = self.open.pop() {
            inner.values.push(value);
            inner.left -= 1;
            if inner.left > 0 {
                self.open.push(inner);
                return None;
            }
            value = aggregate(inner.kind, inner.values);
        }
        Some(value)
    }

    /// The value of a bulk string of this type; `None` if bytes are missing.
    fn bulk(&mut self, window: &[u8], kind: u8, len: usize) -> Result<Option<Value>, DecodeError> {
        let Some((content, rest)) = window[self.progress.at..].split_at_checked(len) else { return Ok(None) };
        match rest {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(None),
            _ => return Err(DecodeError::MissingLineEnd),
        }
        self.progress = Progress { at: self.progress.at + len + 2, scanned: 0, bulk: None };
        Ok(Some(match (kind, content) {
            (b'$', content) => Value::Bulk(content.to_vec()),
            (b'!', content) => Value::Error(content.to_vec()),
            (_, [a, b, c, b':', text @ ..]) => Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() },
            _ => return Err(DecodeError::InvalidScalar),
        }))
    }

    /// The line after the type byte, up to the next CR LF; `None` if that has not arrived. A CR or LF without
    /// the other is an error.
    fn line<'b>(&mut self, window: &'b [u8]) -> Result<Option<&'b [u8]>, DecodeError> {
        let rest = &window[self.progress.at + 1..];
        let Some(offset) = memchr::memchr2(b'\r', b'\n', &rest[self.progress.scanned..]) else {
            self.progress.scanned = rest.len();
            return Ok(None);
        };
        self.progress.scanned += offset;
        let (line, behind) = rest.split_at(self.progress.scanned);
        match behind {
            [b'\r', b'\n', ..] => {}
            [b'\r'] => return Ok(None),
            _ => return Err(DecodeError::MissingLineEnd),
        }
        self.progress = Progress { at: self.progress.at + 1 + line.len() + 2, scanned: 0, bulk: None };
        Ok(Some(line))
    }
}

/// A length; `None` if it is -1 and `nullable`.
fn length(line: &[u8], nullable: bool) -> Result<Option<usize>, DecodeError> {
    let len = parse_i64(line).ok_or(DecodeError::InvalidLength)?;
    if len == -1 && nullable {
        return Ok(None);
    }
    usize::try_from(len).map(Some).map_err(|_| DecodeError::InvalidLength)
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

/// The aggregate of this type with these values.
fn aggregate(kind: u8, mut values: Vec<Value>) -> Value {
    match kind {
        b'%' => Value::Map(pairs(values)),
        b'|' => {
            let described = values.pop().unwrap_or(Value::Null);
            Value::Attributed { attributes: pairs(values), value: Box::new(described) }
        }
        b'~' => Value::Set(values),
        b'>' => Value::Push(values),
        _ => Value::Array(values),
    }
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
}
