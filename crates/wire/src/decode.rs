//! Decodes replies, and writes decoded replies in either version of the protocol. This is for clients, tests,
//! simulations and stored replies, not for the hot path.
//!
//! One RESP2 or RESP3 value at a time is decoded into owned memory, at once or as its bytes arrive. Streamed
//! strings and aggregates (`$?`, `*?`) are refused: neither Redis nor this server sends them.
//!
//! Invariants
//! - Memory is bounded by the limits and by the bytes received, depth by [`DecodeLimits::nesting_max`].
//! - The result does not depend on how the bytes are divided into calls.

mod decoder;
#[cfg(test)]
mod tests;
mod write;

pub use self::decoder::Decoder;

/// One decoded value, with all values inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a simple string.
    Simple(Vec<u8>),
    /// `-` or `!`: an error, including its code.
    Error(Vec<u8>),
    /// `:`: an integer.
    Integer(i64),
    /// `$`: a bulk string.
    Bulk(Vec<u8>),
    /// A null: `_`, `$-1` or `*-1`.
    Null,
    /// `,`: a floating-point number.
    Double(f64),
    /// `#`: a boolean.
    Boolean(bool),
    /// `(`: an integer of any size, as its digits.
    BigNumber(Vec<u8>),
    /// `=`: text and its format.
    Verbatim {
        /// The format of the text, such as `txt`.
        format: [u8; 3],
        /// The text, without its format.
        text: Vec<u8>,
    },
    /// `*`: values in order.
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
        /// The value that the attributes describe.
        value: Box<Value>,
    },
}

impl Value {
    /// The number of values of which this value consists, itself included, as [`DecodeLimits::elements_max`]
    /// counts them.
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

/// Bounds that one value must keep to while it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum length of the encoded value, in bytes.
    pub bytes_max: usize,
    /// Maximum number of values, counted as [`Value::elements`] counts them.
    pub elements_max: usize,
    /// The maximum nesting of aggregates. A number above [`NESTING_CEILING`] is reduced to it, to bound the
    /// use of the stack.
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
    /// A type byte that no version of the protocol has.
    #[error("unknown type byte {0:#04x}")]
    UnknownType(u8),
    /// A length that is not a number (`?` of a streamed value included), or is negative and stands for no
    /// null.
    #[error("invalid length")]
    InvalidLength,
    /// An invalid number, boolean, null or format.
    #[error("invalid scalar")]
    InvalidScalar,
    /// A line or bulk string that does not end in CR LF.
    #[error("missing line end")]
    MissingLineEnd,
    /// The encoded value is longer than [`DecodeLimits::bytes_max`].
    #[error("value too long")]
    TooLong,
    /// The value has more than [`DecodeLimits::elements_max`] values.
    #[error("too many elements")]
    TooManyElements,
    /// Aggregates are nested deeper than [`DecodeLimits::nesting_max`].
    #[error("nested too deeply")]
    TooDeep,
}

/// Decodes the first value in `bytes`, and returns it with its encoded length; `None` if it is incomplete.
///
/// Each call starts from the first byte. For bytes that arrive in parts, use a [`Decoder`].
///
/// # Errors
/// [`DecodeError`].
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Option<(Value, usize)>, DecodeError> {
    Decoder::new().decode(bytes, limits)
}

/// The largest [`DecodeLimits::nesting_max`] that has an effect.
const NESTING_CEILING: usize = 1000;
