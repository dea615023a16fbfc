//! Elements: how one byte string is stored inside a packed collection.
//!
//! What it is: an encoding in which integers take one to nine bytes and other strings their length and their
//! bytes. Every byte string has exactly one encoding. So two elements are equal exactly if their encodings
//! are equal, and a search compares bytes.
//! What it is not: verified at every read. Decoding trusts the bytes. Snapshots and the log also hold encoded
//! elements, in packed collections and in blocks of streams; these are verified once, when they are loaded
//! ([`checked_len`]).
//!
//! # Encoding
//! | first byte | then | element |
//! |------------|------|---------|
//! | 0x00..=0x7f | | the integer 0..=127 |
//! | 0x80..=0xbf | bytes | a string of 0..=63 bytes |
//! | 0xc0..=0xcf | one byte, bytes | a string of up to 4095 bytes; length: 4 bits here, 8 in the next byte |
//! | 0xd0..=0xdf | one byte | the integer 128..=4223; 128 + 4 bits here and 8 in the next byte |
//! | 0xe0, 0xe1, 0xe2, 0xe3, 0xe4 | 2, 3, 4, 6, 8 bytes | an integer, little-endian |
//! | 0xf0 | four bytes, bytes | a longer string; length little-endian |
//!
//! Invariants
//! - A string is stored as an integer exactly if it is the canonical decimal text of an `i64`.
//! - An integer has the first form for integers in the table that can hold it; any other string has the first
//!   form for strings that can hold it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

const SHORT: u8 = 0x80;
const SHORT_MAX: usize = 63;
const MEDIUM: u8 = 0xc0;
const MEDIUM_MAX: usize = 4095;
const INT_12: u8 = 0xd0;
const INT_12_MIN: i64 = 128;
const INT_12_MAX: i64 = INT_12_MIN + 4095;
const INT_16: u8 = 0xe0;
const INT_24: u8 = 0xe1;
const INT_32: u8 = 0xe2;
const INT_48: u8 = 0xe3;
const INT_64: u8 = 0xe4;
const LONG: u8 = 0xf0;

/// The maximum number of bytes of an encoding, not counting the bytes of the string.
const HEAD_MAX: usize = 9;
/// Digits and sign of the longest `i64`.
const DIGITS_MAX: usize = 20;

/// One element of a collection. Dereferences to the bytes that a client stored.
#[derive(Clone, Copy)]
pub struct Element<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Bytes(&'a [u8]),
    Integer { value: i64, digits: [u8; DIGITS_MAX], len: u8 },
}

impl<'a> Element<'a> {
    /// The element with these bytes. Elements with the same bytes are equal, also if one was made of an
    /// integer.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Element(Form::Bytes(bytes))
    }

    /// The element that is the canonical decimal text of an integer.
    #[inline]
    pub(crate) fn from_integer(value: i64) -> Self {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value).as_bytes();
        let mut digits = [0; DIGITS_MAX];
        digits[..text.len()].copy_from_slice(text);
        Element(Form::Integer { value, digits, len: text.len() as u8 })
    }

    /// The integer whose canonical decimal text this element is; `None` for other elements.
    #[inline]
    pub fn integer(&self) -> Option<i64> {
        match self.0 {
            Form::Bytes(bytes) => canonical_integer(bytes),
            Form::Integer { value, .. } => Some(value),
        }
    }
}

impl Deref for Element<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Bytes(bytes) => bytes,
            Form::Integer { digits, len, .. } => &digits[..*len as usize],
        }
    }
}

impl AsRef<[u8]> for Element<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Element<'_> {}

impl Hash for Element<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// The encoding of one element, without a copy of its bytes: to be written or to be looked for.
#[derive(Clone, Copy)]
pub(crate) struct Encoded<'a> {
    head: [u8; HEAD_MAX],
    head_len: u8,
    tail: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// The encoding of these bytes.
    ///
    /// # Panics
    /// If there are 2^32 bytes or more.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        match canonical_integer(bytes) {
            Some(value) => Encoded::of_integer(value),
            None => Encoded::of_string(bytes),
        }
    }

    /// The encoding of the decimal text of an integer.
    pub(crate) fn of_integer(value: i64) -> Self {
        match value {
            0..=127 => Encoded::new(&[value as u8], &[]),
            INT_12_MIN..=INT_12_MAX => {
                let offset = (value - INT_12_MIN) as u16;
                Encoded::new(&[INT_12 | (offset >> 8) as u8, offset as u8], &[])
            }
            _ => {
                const WIDTHS: [(u8, usize); 5] =
                    [(INT_16, 2), (INT_24, 3), (INT_32, 4), (INT_48, 6), (INT_64, 8)];
                let (marker, width) = WIDTHS
                    .into_iter()
                    .find(|(_, width)| {
                        let unused = 64 - 8 * width;
                        value << unused >> unused == value
                    })
                    .expect("the last width holds every integer");
                let mut head = [marker; HEAD_MAX];
                head[1..=width].copy_from_slice(&value.to_le_bytes()[..width]);
                Encoded { head, head_len: 1 + width as u8, tail: &[] }
            }
        }
    }

    fn of_string(bytes: &'a [u8]) -> Self {
        let len = bytes.len();
        if len <= SHORT_MAX {
            Encoded::new(&[SHORT | len as u8], bytes)
        } else if len <= MEDIUM_MAX {
            Encoded::new(&[MEDIUM | (len >> 8) as u8, len as u8], bytes)
        } else {
            let len = u32::try_from(len).expect("callers limit the length of elements").to_le_bytes();
            Encoded::new(&[LONG, len[0], len[1], len[2], len[3]], bytes)
        }
    }

    #[inline]
    fn new(prefix: &[u8], tail: &'a [u8]) -> Self {
        let mut head = [0; HEAD_MAX];
        head[..prefix.len()].copy_from_slice(prefix);
        Encoded { head, head_len: prefix.len() as u8, tail }
    }

    /// The two parts of the encoding, to be written one after the other.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.head[..self.head_len as usize], self.tail]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.head_len as usize + self.tail.len()
    }

    /// Adds the encoding to `out`.
    #[inline]
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        // The head is mostly one byte, and a push is cheaper than a call that copies.
        out.push(self.head[0]);
        if self.head_len > 1 {
            out.extend_from_slice(&self.head[1..self.head_len as usize]);
        }
        out.extend_from_slice(self.tail);
    }

    /// Whether the element at the start of `packed` is this one.
    #[inline]
    pub(crate) fn is_at(&self, packed: &[u8]) -> bool {
        let [head, tail] = self.parts();
        packed.strip_prefix(head).is_some_and(|rest| rest.starts_with(tail))
    }
}

/// Bytes of the encoding at the start of `packed`.
#[inline]
pub(crate) fn encoded_len(packed: &[u8]) -> usize {
    let first = packed[0];
    match first {
        0..SHORT => 1,
        SHORT..MEDIUM => 1 + (first & 0x3f) as usize,
        MEDIUM..INT_12 => 2 + ((first & 0x0f) as usize) * 256 + packed[1] as usize,
        INT_12..INT_16 => 2,
        LONG => 5 + long_len(packed),
        _ => 1 + integer_width(first),
    }
}

/// The result of [`checked_len`].
pub(crate) struct Checked {
    pub(crate) encoded_len: usize,
    /// Bytes of the string; for an integer or an empty string, bytes of the encoding.
    pub(crate) string_bytes: usize,
}

/// The numbers of bytes of the two parts of an encoding, by its first byte. The parts are the head (the first
/// byte, and the length or the integer) and the tail (the string). (0, 0) if the first byte does not tell.
/// This is a table because elements follow no pattern: the processor would mispredict branches.
const SHAPES: [(u8, u8); 256] = {
    let mut shapes = [(0, 0); 256];
    let mut first = 0;
    while first < 256 {
        shapes[first] = match first as u8 {
            0..SHORT => (1, 0),
            short @ SHORT..MEDIUM => (1, short & 0x3f),
            INT_12..INT_16 => (2, 0),
            wide @ INT_16..=INT_64 => (1 + integer_width(wide) as u8, 0),
            _ => (0, 0),
        };
        first += 1;
    }
    shapes
};

/// Does the same as [`encoded_len`], for untrusted bytes. `None` unless the bytes begin with a complete
/// element.
#[inline]
pub(crate) fn checked_len(packed: &[u8]) -> Option<Checked> {
    let first = *packed.first()?;
    let (head, tail) = match SHAPES[first as usize] {
        (0, _) => long_shape(packed)?,
        (head, tail) => (head as usize, tail as usize),
    };
    let encoded_len = head + tail;
    let string_bytes = if tail == 0 { head } else { tail };
    (encoded_len <= packed.len()).then_some(Checked { encoded_len, string_bytes })
}

/// The numbers of bytes of head and tail, as in [`SHAPES`], of a string that is not short. `None` if the
/// bytes do not begin with a complete head of such a string. Whether the tail is complete is not checked.
#[cold]
fn long_shape(packed: &[u8]) -> Option<(usize, usize)> {
    match packed[0] {
        first @ MEDIUM..INT_12 => Some((2, (first & 0x0f) as usize * 256 + *packed.get(1)? as usize)),
        LONG if packed.len() >= 5 => Some((5, long_len(packed))),
        _ => None,
    }
}

/// The element at the start of `packed`, and the length of its encoding.
#[inline]
pub(crate) fn decode(packed: &[u8]) -> (Element<'_>, usize) {
    let len = encoded_len(packed);
    let first = packed[0];
    let element = match first {
        SHORT..MEDIUM => Element::from_bytes(&packed[1..len]),
        MEDIUM..INT_12 => Element::from_bytes(&packed[2..len]),
        LONG => Element::from_bytes(&packed[5..len]),
        _ => Element::from_integer(decode_integer(packed).expect("what is no string is an integer")),
    };
    (element, len)
}

/// The integer at the start of `packed`, which must have a form with a width (`INT_16` to `INT_64`). The
/// integer is assembled in registers. A copy of its bytes into memory would be read again before it has left
/// the processor's store buffer, and that wait takes longer than the rest of the decoding.
#[inline]
fn wide_integer(packed: &[u8]) -> i64 {
    match *packed {
        [INT_16, a, b, ..] => i16::from_le_bytes([a, b]).into(),
        [INT_24, a, b, c, ..] => i64::from(i32::from_le_bytes([0, a, b, c]) >> 8),
        [INT_32, a, b, c, d, ..] => i32::from_le_bytes([a, b, c, d]).into(),
        [INT_48, a, b, c, d, e, f, ..] => i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16,
        [INT_64, a, b, c, d, e, f, g, h, ..] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("no element begins with {:#04x}", packed[0]),
    }
}

/// The integer at the start of `packed`; `None` if the element there is no integer.
#[inline]
pub(crate) fn decode_integer(packed: &[u8]) -> Option<i64> {
    let first = packed[0];
    Some(match first {
        0..SHORT => first.into(),
        SHORT..INT_12 | LONG => return None,
        INT_12..INT_16 => INT_12_MIN + i64::from(first & 0x0f) * 256 + i64::from(packed[1]),
        _ => wide_integer(packed),
    })
}

const fn integer_width(marker: u8) -> usize {
    match marker {
        INT_16 => 2,
        INT_24 => 3,
        INT_32 => 4,
        INT_48 => 6,
        INT_64 => 8,
        _ => panic!("no element begins with this byte"),
    }
}

fn long_len(packed: &[u8]) -> usize {
    let len: [u8; 4] = packed[1..5].try_into().expect("four bytes");
    u32::from_le_bytes(len) as usize
}

/// The integer whose canonical decimal text these bytes are: no sign but `-`, no leading zeros, no `-0`.
#[inline]
pub(crate) fn canonical_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < DIGITS_MAX => {}
        _ => return None,
    }
    // The digits are added up as a negative number, because the smallest number has no positive counterpart.
    let mut value = 0i64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(digit.into())?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Encoded::of(bytes).write_to(&mut out);
        out
    }

    fn check(bytes: &[u8]) {
        let packed = encoded(bytes);
        assert_eq!(packed.len(), Encoded::of(bytes).len());
        assert_eq!(encoded_len(&packed), packed.len(), "{}", bytes.escape_ascii());
        let (element, len) = decode(&packed);
        assert_eq!((&*element, len), (bytes, packed.len()));
        assert!(Encoded::of(bytes).is_at(&packed));
        assert_eq!(element.integer(), canonical_integer(bytes));
    }

    #[test]
    fn integers_take_few_bytes() {
        let lengths = [
            ("0", 1),
            ("127", 1),
            ("128", 2),
            ("4223", 2),
            ("4224", 3),
            ("-1", 3),
            ("32767", 3),
            ("32768", 4),
            ("8388607", 4),
            ("8388608", 5),
            ("-2147483648", 5),
            ("2147483648", 7),
            ("140737488355328", 9),
            ("-9223372036854775808", 9),
            ("9223372036854775807", 9),
        ];
        for (text, len) in lengths {
            assert_eq!(encoded(text.as_bytes()).len(), len, "{text}");
            check(text.as_bytes());
        }
    }

    #[test]
    fn texts_that_resemble_integers_keep_their_bytes() {
        let texts = [
            "",
            "-",
            "-0",
            "+1",
            "007",
            "1 ",
            " 1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "1e3",
        ];
        for text in texts {
            assert_eq!(canonical_integer(text.as_bytes()), None, "{text}");
            check(text.as_bytes());
        }
        for len in [62, 63, 64, 65, 4095, 4096, 70_000] {
            check(&vec![b'x'; len]);
        }
    }

    proptest! {
        #[test]
        fn every_encoded_string_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }

        #[test]
        fn every_encoded_integer_is_decoded_and_has_one_encoding(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            let text = value.to_string();
            check(text.as_bytes());
            prop_assert_eq!(encoded(text.as_bytes()), {
                let mut out = Vec::new();
                Encoded::of_integer(value).write_to(&mut out);
                out
            });
        }
    }
}
