//! Items: the byte strings that an effect on a collection carries.
//!
//! What it is: a borrowed list of byte strings, or of scores and byte strings. The list consists of slices,
//! such as the arguments of a command, or it is encoded, as in a log record. Readers need not know which.
//! What it is not: how collections lie in memory (see `collection`).
//!
//! # Encoding
//! ```text
//! items:         number of items | length, bytes        | length, bytes        | ...
//! scored items:  number of items | score, length, bytes | score, length, bytes | ...
//! ```
//! The number and the lengths are LEB128. A score is a little-endian IEEE 754 double, and never NaN.

use super::EffectError;
use super::codec::{Encode, Reader, Writer};

/// Byte strings: elements, members, fields, or fields and values in turn.
#[derive(Clone, Copy)]
pub enum Items<'a> {
    /// The items where they lie, such as in a command.
    Slices(&'a [&'a [u8]]),
    /// Items one after the other, as a log record or an [`ItemsBuf`] holds them.
    Encoded(EncodedItems<'a>),
}

/// Members with their scores.
#[derive(Clone, Copy)]
pub enum ScoredItems<'a> {
    /// The members where they lie, such as in a command.
    Slices(&'a [(f64, &'a [u8])]),
    /// Items one after the other, as a log record or a [`ScoredItemsBuf`] holds them.
    Encoded(EncodedItems<'a>),
}

/// Items whose encoding was verified, or made by a buffer of this module.
#[derive(Clone, Copy)]
pub struct EncodedItems<'a> {
    pub(super) count: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Items<'a> {
    /// No items.
    pub const EMPTY: Items<'static> = Items::Slices(&[]);

    /// The number of items.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Items::Slices(slices) => slices.len(),
            Items::Encoded(encoded) => encoded.count,
        }
    }

    /// Whether there is no item.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (slices, encoded): (&'a [&'a [u8]], _) = match *self {
            Items::Slices(slices) => (slices, EncodedItems { count: 0, bytes: &[] }),
            Items::Encoded(encoded) => (&[], encoded),
        };
        ItemsIter { slices: slices.iter(), encoded }
    }

    /// The items two by two: fields and values. An odd item at the end is left out.
    #[inline]
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (slices, encoded): (&'a [&'a [u8]], _) = match *self {
            Items::Slices(slices) => (slices, EncodedItems { count: 0, bytes: &[] }),
            Items::Encoded(encoded) => (&[], encoded),
        };
        Pairs { slices: slices.as_chunks().0.iter(), encoded }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, EffectError> {
        EncodedItems::decode(reader, |reader| reader.bytes().map(drop)).map(Items::Encoded)
    }
}

impl<'a> ScoredItems<'a> {
    /// The number of items.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            ScoredItems::Slices(slices) => slices.len(),
            ScoredItems::Encoded(encoded) => encoded.count,
        }
    }

    /// Whether there is no item.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (f64, &'a [u8])> + use<'a> {
        let (slices, encoded): (&'a [(f64, &'a [u8])], _) = match *self {
            ScoredItems::Slices(slices) => (slices, EncodedItems { count: 0, bytes: &[] }),
            ScoredItems::Encoded(encoded) => (&[], encoded),
        };
        ScoredItemsIter { slices: slices.iter(), encoded }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, EffectError> {
        let scored = |reader: &mut Reader<'a>| {
            if reader.score()?.is_nan() {
                return Err(EffectError::MalformedNumber);
            }
            reader.bytes().map(drop)
        };
        EncodedItems::decode(reader, scored).map(ScoredItems::Encoded)
    }
}

impl Encode for Items<'_> {
    fn write(&self, out: &mut impl Writer) {
        out.number(self.len() as u64);
        match *self {
            Items::Slices(slices) => slices.iter().for_each(|item| _ = out.bytes(item)),
            Items::Encoded(encoded) => _ = out.raw(encoded.bytes),
        }
    }
}

impl Encode for ScoredItems<'_> {
    fn write(&self, out: &mut impl Writer) {
        out.number(self.len() as u64);
        match *self {
            ScoredItems::Slices(slices) => slices.iter().for_each(|item| put_scored(out, *item)),
            ScoredItems::Encoded(encoded) => _ = out.raw(encoded.bytes),
        }
    }
}

fn put_scored(out: &mut impl Writer, (score, item): (f64, &[u8])) {
    out.raw(&score.to_le_bytes()).bytes(item);
}

impl<'a> EncodedItems<'a> {
    /// Reads the number of items and then each item.
    pub(super) fn decode(
        reader: &mut Reader<'a>,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<(), EffectError>,
    ) -> Result<Self, EffectError> {
        let count = usize::try_from(reader.number()?).map_err(|_| EffectError::Truncated)?;
        let start = reader.rest;
        for _ in 0..count {
            item(reader)?;
        }
        Ok(EncodedItems { count, bytes: &start[..start.len() - reader.rest.len()] })
    }

    /// Takes one item off the front.
    #[inline]
    pub(super) fn take<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, EffectError>,
    ) -> Option<T> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader { rest: self.bytes };
        let item = read(&mut reader).expect("verified when it was decoded, or written by a buffer");
        self.bytes = reader.rest;
        Some(item)
    }
}

struct ItemsIter<'a> {
    slices: std::slice::Iter<'a, &'a [u8]>,
    encoded: EncodedItems<'a>,
}

impl<'a> Iterator for ItemsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.slices.next().copied().or_else(|| self.encoded.take(Reader::bytes))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.slices.len() + self.encoded.count;
        (len, Some(len))
    }
}

impl ExactSizeIterator for ItemsIter<'_> {}

struct Pairs<'a> {
    slices: std::slice::Iter<'a, [&'a [u8]; 2]>,
    encoded: EncodedItems<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    // Inlined always, because a call of this function would take longer than its work on a pair.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.slices.next() {
            Some(&[first, second]) => Some((first, second)),
            None => self.next_encoded(),
        }
    }
}

impl<'a> Pairs<'a> {
    fn next_encoded(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        Some((self.encoded.take(Reader::bytes)?, self.encoded.take(Reader::bytes)?))
    }
}

struct ScoredItemsIter<'a> {
    slices: std::slice::Iter<'a, (f64, &'a [u8])>,
    encoded: EncodedItems<'a>,
}

impl<'a> Iterator for ScoredItemsIter<'a> {
    type Item = (f64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(f64, &'a [u8])> {
        let next = self.slices.next().copied();
        next.or_else(|| self.encoded.take(|reader| Ok((reader.score()?, reader.bytes()?))))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.slices.len() + self.encoded.count;
        (len, Some(len))
    }
}

impl ExactSizeIterator for ScoredItemsIter<'_> {}

impl PartialEq for Items<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Items<'_> {}

impl std::fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|item| item.escape_ascii().to_string())).finish()
    }
}

impl PartialEq for ScoredItems<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

// Scores are never NaN, so equality is reflexive.
impl Eq for ScoredItems<'_> {}

impl std::fmt::Debug for ScoredItems<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items = self.iter().map(|(score, item)| (score, item.escape_ascii().to_string()));
        f.debug_list().entries(items).finish()
    }
}

/// A buffer in which the items of an effect are gathered.
#[derive(Clone, Debug, Default)]
pub struct ItemsBuf {
    count: usize,
    bytes: Vec<u8>,
}

impl ItemsBuf {
    /// A buffer without items.
    pub const fn new() -> Self {
        ItemsBuf { count: 0, bytes: Vec::new() }
    }

    /// Adds an item.
    pub fn push(&mut self, item: &[u8]) {
        self.bytes.bytes(item);
        self.count += 1;
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes the items, and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Bytes that an effect takes for these items, without the count of items.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The items, for an effect.
    pub fn as_items(&self) -> Items<'_> {
        Items::Encoded(EncodedItems { count: self.count, bytes: &self.bytes })
    }
}

/// A buffer in which the scored items of an effect are gathered.
#[derive(Clone, Debug, Default)]
pub struct ScoredItemsBuf {
    count: usize,
    bytes: Vec<u8>,
}

impl ScoredItemsBuf {
    /// A buffer without items.
    pub const fn new() -> Self {
        ScoredItemsBuf { count: 0, bytes: Vec::new() }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// If the score is NaN.
    pub fn push(&mut self, score: f64, item: &[u8]) {
        assert!(!score.is_nan(), "a score is a number");
        put_scored(&mut self.bytes, (score, item));
        self.count += 1;
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes the items, and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Bytes that an effect takes for these items, without the count of items.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The items, for an effect.
    pub fn as_items(&self) -> ScoredItems<'_> {
        ScoredItems::Encoded(EncodedItems { count: self.count, bytes: &self.bytes })
    }
}
