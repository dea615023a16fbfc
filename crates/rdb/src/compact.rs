//! The compact encodings inside strings: listpacks, ziplists, intsets, zipmaps.
//!
//! What it is: each as a walk that yields its elements as byte strings. What it is not: edits.
//!
//! Invariants
//! - The header's sizes and counts are checked against the bytes; walks end at the end marker and nowhere else.

use crate::reader::{Error, Reader};

const END: u8 = 0xff;

/// The elements of a listpack.
///
/// Six bytes of header (size, count), then elements, each followed by its own length in 1 to 5 bytes, then 0xff.
pub(crate) fn listpack(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    const MALFORMED: Error = Error::Malformed("listpack");
    let mut reader = Reader::new(bytes);
    let size = u32::from_le_bytes(reader.array()?) as usize;
    let count = u16::from_le_bytes(reader.array()?);
    if size != bytes.len() {
        return Err(MALFORMED);
    }
    let mut elements = Vec::new();
    loop {
        let before = reader.rest().len();
        let first = reader.byte()?;
        let element = match first {
            END => break,
            0x00..=0x7f => integer(first.into()),
            0x80..=0xbf => reader.take((first & 0x3f).into())?.to_vec(),
            0xc0..=0xdf => {
                let raw = i64::from(first & 0x1f) << 8 | i64::from(reader.byte()?);
                integer(if raw >= 1 << 12 { raw - (1 << 13) } else { raw })
            }
            0xe0..=0xef => {
                let len = usize::from(first & 0x0f) << 8 | usize::from(reader.byte()?);
                reader.take(len)?.to_vec()
            }
            0xf0 => {
                let len = u32::from_le_bytes(reader.array()?) as usize;
                reader.take(len)?.to_vec()
            }
            0xf1 => integer(i16::from_le_bytes(reader.array()?).into()),
            0xf2 => integer(int24(&mut reader)?),
            0xf3 => integer(i32::from_le_bytes(reader.array()?).into()),
            0xf4 => integer(i64::from_le_bytes(reader.array()?)),
            _ => return Err(MALFORMED),
        };
        let encoded_len = before - reader.rest().len();
        check_back_length(&mut reader, encoded_len)?;
        elements.push(element);
    }
    let counts = count == u16::MAX || usize::from(count) == elements.len();
    if reader.is_at_end() && counts { Ok(elements) } else { Err(MALFORMED) }
}

/// The length of an element that stands after it: groups of 7 bits, the last byte holds the lowest and all but the first
/// have the top bit set.
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

/// The elements of a ziplist.
///
/// Ten bytes of header (size, offset of the last element, count), then elements, each after the length of the one before
/// it, then 0xff.
pub(crate) fn ziplist(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    const MALFORMED: Error = Error::Malformed("ziplist");
    let mut reader = Reader::new(bytes);
    let size = u32::from_le_bytes(reader.array()?) as usize;
    let last = u32::from_le_bytes(reader.array()?) as usize;
    let count = u16::from_le_bytes(reader.array()?);
    if size != bytes.len() {
        return Err(MALFORMED);
    }
    let mut elements = Vec::new();
    let (mut previous_len, mut last_start) = (0, reader_offset(bytes, &reader));
    loop {
        let start = reader_offset(bytes, &reader);
        let first = reader.byte()?;
        if first == END {
            break;
        }
        let claimed = if first == 0xfe { u32::from_le_bytes(reader.array()?) as usize } else { first.into() };
        if claimed != previous_len {
            return Err(MALFORMED);
        }
        last_start = start;
        elements.push(ziplist_element(&mut reader)?);
        previous_len = reader_offset(bytes, &reader) - start;
    }
    let counts = count == u16::MAX || usize::from(count) == elements.len();
    if reader.is_at_end() && counts && last == last_start { Ok(elements) } else { Err(MALFORMED) }
}

fn ziplist_element(reader: &mut Reader<'_>) -> Result<Vec<u8>, Error> {
    let first = reader.byte()?;
    Ok(match first {
        0x00..=0x3f => reader.take(first.into())?.to_vec(),
        0x40..=0x7f => {
            let len = usize::from(first & 0x3f) << 8 | usize::from(reader.byte()?);
            reader.take(len)?.to_vec()
        }
        0x80 => {
            let len = u32::from_be_bytes(reader.array()?) as usize;
            reader.take(len)?.to_vec()
        }
        0xc0 => integer(i16::from_le_bytes(reader.array()?).into()),
        0xd0 => integer(i32::from_le_bytes(reader.array()?).into()),
        0xe0 => integer(i64::from_le_bytes(reader.array()?)),
        0xf0 => integer(int24(reader)?),
        0xfe => integer(i8::from_le_bytes(reader.array()?).into()),
        0xf1..=0xfd => integer(i64::from(first & 0x0f) - 1),
        _ => return Err(Error::Malformed("ziplist")),
    })
}

fn reader_offset(bytes: &[u8], reader: &Reader<'_>) -> usize {
    bytes.len() - reader.rest().len()
}

/// The members of an intset: width and count in four bytes each, then sorted integers.
pub(crate) fn intset(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut reader = Reader::new(bytes);
    let width = u32::from_le_bytes(reader.array()?) as usize;
    let count = u32::from_le_bytes(reader.array()?) as usize;
    if !matches!(width, 2 | 4 | 8) || reader.rest().len() != count.saturating_mul(width) {
        return Err(Error::Malformed("intset"));
    }
    let mut members = Vec::with_capacity(count);
    let mut previous = None;
    for chunk in reader.rest().chunks_exact(width) {
        let mut bytes = [0; 8];
        bytes[8 - width..].copy_from_slice(chunk);
        let value = i64::from_le_bytes(bytes) >> (64 - 8 * width);
        if previous.is_some_and(|previous| previous >= value) {
            return Err(Error::Malformed("intset"));
        }
        previous = Some(value);
        members.push(integer(value));
    }
    Ok(members)
}

/// Fields and values of a zipmap in turn: a count, then lengths and strings, values with unused bytes after them, then 0xff.
pub(crate) fn zipmap(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    const MALFORMED: Error = Error::Malformed("zipmap");
    let mut reader = Reader::new(bytes);
    reader.byte()?;
    let mut elements = Vec::new();
    let length = |reader: &mut Reader<'_>, first: u8| match first {
        0..=253 => Ok(usize::from(first)),
        254 => Ok(u32::from_le_bytes(reader.array()?) as usize),
        END => Err(MALFORMED),
    };
    loop {
        let first = reader.byte()?;
        if first == END {
            break;
        }
        let len = length(&mut reader, first)?;
        elements.push(reader.take(len)?.to_vec());
        let first = reader.byte()?;
        let len = length(&mut reader, first)?;
        let unused = reader.byte()?;
        elements.push(reader.take(len)?.to_vec());
        reader.take(unused.into())?;
    }
    if reader.is_at_end() { Ok(elements) } else { Err(MALFORMED) }
}

fn int24(reader: &mut Reader<'_>) -> Result<i64, Error> {
    let [low, middle, high] = reader.array()?;
    Ok(i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8))
}

fn integer(value: i64) -> Vec<u8> {
    value.to_string().into_bytes()
}
