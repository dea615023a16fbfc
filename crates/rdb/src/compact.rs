//! The compact encodings inside strings: listpacks, ziplists, intsets, zipmaps. Each encoding is read with a
//! [`Walk`] over its items; there is no editing.
//!
//! Invariants
//! - Sizes and counts of the header are checked against the bytes. Exceptions are the count of a zipmap, and
//!   a count of 65,535, which stands for an unknown count. A walk ends only at the end of the encoding.
//! - A walk does not allocate: a packed string of many small items is much smaller than a list of them.

use crate::Error;
use crate::input::{Input, Reader};

const END: u8 = 0xff;

/// One item of a compact encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Item<'a> {
    /// The item as a string: its bytes, or its integer in decimal digits.
    pub(crate) fn text<'t>(&'t self, digits: &'t mut itoa::Buffer) -> &'t [u8]
    where
        'a: 't,
    {
        match self {
            Item::Bytes(bytes) => bytes,
            Item::Integer(value) => digits.format(*value).as_bytes(),
        }
    }
}

/// An iterator over the items from first to last.
pub(crate) trait Walk<'a>: Sized {
    /// The next item; `None` at the end, after all checks have passed.
    fn next(&mut self) -> Result<Option<Item<'a>>, Error>;

    /// The next item. It is an error if there is none, because the item belongs to a group (such as a field
    /// and its value) that has begun.
    fn next_of_group(&mut self, group: &'static str) -> Result<Item<'a>, Error> {
        self.next()?.ok_or(Error::Malformed(group))
    }
}

/// A listpack.
///
/// ```text
/// size in bytes, u32 | count, u16 | element | its length, 1 to 5 bytes | element | its length | ... | 0xff
/// ```
pub(crate) struct Listpack<'a> {
    reader: Reader<'a>,
    count: u16,
    seen: usize,
}

impl<'a> Listpack<'a> {
    const MALFORMED: Error = Error::Malformed("listpack");

    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let size = u32::from_le_bytes(reader.array()?) as usize;
        let count = u16::from_le_bytes(reader.array()?);
        if size == bytes.len() { Ok(Listpack { reader, count, seen: 0 }) } else { Err(Self::MALFORMED) }
    }
}

impl<'a> Walk<'a> for Listpack<'a> {
    fn next(&mut self) -> Result<Option<Item<'a>>, Error> {
        let reader = &mut self.reader;
        let before = reader.rest().len();
        let first = reader.byte()?;
        let item = match first {
            END => {
                let counts = self.count == u16::MAX || usize::from(self.count) == self.seen;
                return if reader.is_at_end() && counts { Ok(None) } else { Err(Self::MALFORMED) };
            }
            0x00..=0x7f => Item::Integer(first.into()),
            0x80..=0xbf => Item::Bytes(reader.take((first & 0x3f).into())?),
            0xc0..=0xdf => {
                let raw = i64::from(first & 0x1f) << 8 | i64::from(reader.byte()?);
                Item::Integer(if raw >= 1 << 12 { raw - (1 << 13) } else { raw })
            }
            0xe0..=0xef => {
                let len = usize::from(first & 0x0f) << 8 | usize::from(reader.byte()?);
                Item::Bytes(reader.take(len)?)
            }
            0xf0 => {
                let len = u32::from_le_bytes(reader.array()?) as usize;
                Item::Bytes(reader.take(len)?)
            }
            0xf1 => Item::Integer(i16::from_le_bytes(reader.array()?).into()),
            0xf2 => Item::Integer(int24(reader)?),
            0xf3 => Item::Integer(i32::from_le_bytes(reader.array()?).into()),
            0xf4 => Item::Integer(i64::from_le_bytes(reader.array()?)),
            _ => return Err(Self::MALFORMED),
        };
        let encoded_len = before - reader.rest().len();
        check_back_length(reader, encoded_len)?;
        self.seen += 1;
        Ok(Some(item))
    }
}

/// Checks the length that follows an element. It consists of groups of 7 bits, the highest first. All its
/// bytes but the first have the top bit set.
fn check_back_length(reader: &mut Reader<'_>, encoded_len: usize) -> Result<(), Error> {
    let size = match encoded_len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let bytes = reader.take(size)?;
    let length = bytes.iter().fold(0u64, |length, byte| length << 7 | u64::from(byte & 0x7f));
    if length == encoded_len as u64 { Ok(()) } else { Err(Error::Malformed("listpack")) }
}

/// A ziplist.
///
/// ```text
/// size in bytes, u32 | offset of the last element, u32 | count, u16
///     | length of the previous element, element | length of the previous element, element | ... | 0xff
/// ```
pub(crate) struct Ziplist<'a> {
    reader: Reader<'a>,
    size: usize,
    /// The offset of the last element, as the header gives it.
    last: usize,
    count: u16,
    seen: usize,
    previous_len: usize,
    last_start: usize,
}

impl<'a> Ziplist<'a> {
    const MALFORMED: Error = Error::Malformed("ziplist");

    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let size = u32::from_le_bytes(reader.array()?) as usize;
        let last = u32::from_le_bytes(reader.array()?) as usize;
        let count = u16::from_le_bytes(reader.array()?);
        if size != bytes.len() {
            return Err(Self::MALFORMED);
        }
        let last_start = size - reader.rest().len();
        Ok(Ziplist { reader, size, last, count, seen: 0, previous_len: 0, last_start })
    }

    fn offset(&self) -> usize {
        self.size - self.reader.rest().len()
    }
}

impl<'a> Walk<'a> for Ziplist<'a> {
    fn next(&mut self) -> Result<Option<Item<'a>>, Error> {
        let start = self.offset();
        let first = self.reader.byte()?;
        if first == END {
            let counts = self.count == u16::MAX || usize::from(self.count) == self.seen;
            let ends = self.reader.is_at_end() && counts && self.last == self.last_start;
            return if ends { Ok(None) } else { Err(Self::MALFORMED) };
        }
        let claimed = match first {
            0xfe => u32::from_le_bytes(self.reader.array()?) as usize,
            len => len.into(),
        };
        if claimed != self.previous_len {
            return Err(Self::MALFORMED);
        }
        self.last_start = start;
        let item = ziplist_item(&mut self.reader)?;
        self.previous_len = self.offset() - start;
        self.seen += 1;
        Ok(Some(item))
    }
}

fn ziplist_item<'a>(reader: &mut Reader<'a>) -> Result<Item<'a>, Error> {
    let first = reader.byte()?;
    Ok(match first {
        0x00..=0x3f => Item::Bytes(reader.take(first.into())?),
        0x40..=0x7f => {
            let len = usize::from(first & 0x3f) << 8 | usize::from(reader.byte()?);
            Item::Bytes(reader.take(len)?)
        }
        0x80 => {
            let len = u32::from_be_bytes(reader.array()?) as usize;
            Item::Bytes(reader.take(len)?)
        }
        0xc0 => Item::Integer(i16::from_le_bytes(reader.array()?).into()),
        0xd0 => Item::Integer(i32::from_le_bytes(reader.array()?).into()),
        0xe0 => Item::Integer(i64::from_le_bytes(reader.array()?)),
        0xf0 => Item::Integer(int24(reader)?),
        0xfe => Item::Integer(i8::from_le_bytes(reader.array()?).into()),
        0xf1..=0xfd => Item::Integer(i64::from(first & 0x0f) - 1),
        _ => return Err(Error::Malformed("ziplist")),
    })
}

/// An intset: width and count in four bytes each, then sorted integers.
pub(crate) struct Intset<'a> {
    reader: Reader<'a>,
    width: usize,
    previous: Option<i64>,
}

impl<'a> Intset<'a> {
    const MALFORMED: Error = Error::Malformed("intset");

    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let width = u32::from_le_bytes(reader.array()?) as usize;
        let count = u32::from_le_bytes(reader.array()?) as usize;
        if !matches!(width, 2 | 4 | 8) || reader.rest().len() != count.saturating_mul(width) {
            return Err(Self::MALFORMED);
        }
        Ok(Intset { reader, width, previous: None })
    }
}

impl<'a> Walk<'a> for Intset<'a> {
    fn next(&mut self) -> Result<Option<Item<'a>>, Error> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let mut bytes = [0; 8];
        bytes[8 - self.width..].copy_from_slice(self.reader.take(self.width)?);
        let value = i64::from_le_bytes(bytes) >> (64 - 8 * self.width);
        if self.previous.is_some_and(|previous| previous >= value) {
            return Err(Self::MALFORMED);
        }
        self.previous = Some(value);
        Ok(Some(Item::Integer(value)))
    }
}

/// A zipmap: a count, then fields and values in turn as lengths and strings, with unused bytes after each
/// value, then 0xff.
pub(crate) struct Zipmap<'a> {
    reader: Reader<'a>,
    is_at_value: bool,
}

impl<'a> Zipmap<'a> {
    const MALFORMED: Error = Error::Malformed("zipmap");

    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        // The count is not used: it is only a hint, because its one byte cannot count 254 fields or more.
        reader.byte()?;
        Ok(Zipmap { reader, is_at_value: false })
    }
}

impl<'a> Walk<'a> for Zipmap<'a> {
    fn next(&mut self) -> Result<Option<Item<'a>>, Error> {
        let reader = &mut self.reader;
        let len = match reader.byte()? {
            END if !self.is_at_value && reader.is_at_end() => return Ok(None),
            END => return Err(Self::MALFORMED),
            254 => u32::from_le_bytes(reader.array()?) as usize,
            len => len.into(),
        };
        let unused = if self.is_at_value { reader.byte()? } else { 0 };
        let bytes = reader.take(len)?;
        reader.take(unused.into())?;
        self.is_at_value = !self.is_at_value;
        Ok(Some(Item::Bytes(bytes)))
    }
}

fn int24(reader: &mut Reader<'_>) -> Result<i64, Error> {
    let [low, middle, high] = reader.array()?;
    Ok(i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8))
}
