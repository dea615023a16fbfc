//! Blocks: neighbouring entries of a stream in one piece of memory.
//!
//! What it is: up to a hundred entries. The id of an entry is stored as its distance from the id of the
//! block. An entry whose fields have the names in the head of the block is stored without names.
//! What it is not: an index. A search walks from entry to entry.
//!
//! # Encoding
//! Numbers are LEB128, `element` is as in [`element`], `name` is a length and that many bytes.
//!
//! ```text
//! block:  ms, seq of its id | number of fields | name of each | entry, entry, ...
//! entry:  length of the rest * 2, plus 1 if it has fields of its own
//!         ms minus that of the block | seq, minus that of the block if the ms are the same
//!         one element for each field of the block   or: number of fields | name, element, name, element, ...
//! ```
//!
//! The same bytes go into snapshots and into the log.
//!
//! Invariants
//! - Ids ascend, and none is below the id of the block. A block that is made here has the id of its first
//!   entry, which may have been removed since.
//! - A block that is in a stream has at least one entry.
//! - Bytes from outside are verified once by [`StreamBlock::verify`] and trusted afterwards.
//! - Copies of a [`Block`] share its bytes until one of them changes; the changed copy then has bytes of its
//!   own.

use std::ops::Range;
use std::sync::Arc;

use varint::take_trusted;

use super::StreamId;
use crate::collection::element::{self, Element, Encoded};
use crate::effect::{Items, Reader};

/// A block with this many entries gets no more.
const ENTRIES_MAX: u32 = 100;
/// The maximum bytes of a block with more than one entry made here. Once sealed, such a block takes up to
/// 4,096 bytes of memory, including its two reference counters.
const BYTES_MAX: usize = 4096 - COUNTERS_BYTES;
/// Bytes of the two reference counters in front of shared bytes.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();

/// The bytes of a valid block: they were verified, or written by this module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamBlock<'a>(&'a [u8]);

impl<'a> StreamBlock<'a> {
    /// Verifies bytes from outside; `None` if they are no block.
    pub fn verify(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        let (ms, seq) = (reader.number().ok()?, reader.number().ok()?);
        let fields = reader.number().ok()?;
        for _ in 0..fields {
            reader.bytes().ok()?;
        }
        let base = StreamId { ms, seq };
        let mut before = None;
        while !reader.rest.is_empty() {
            let head = reader.number().ok()?;
            let len = usize::try_from(head >> 1).ok()?;
            let (body, rest) = reader.rest.split_at_checked(len)?;
            reader.rest = rest;
            let id = verify_entry(body, base, (head & 1 == 0).then_some(fields))?;
            if before.is_some_and(|before| before >= id) {
                return None;
            }
            before = Some(id);
        }
        before.map(|_| StreamBlock(bytes))
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The id from which the ids of the entries are counted.
    pub(super) fn base(&self) -> StreamId {
        Names::of(self.0).base
    }

    /// The entries in order.
    pub fn entries(&self) -> impl Iterator<Item = StreamEntry<'a>> + use<'a> {
        Entries::of(self.0)
    }
}

impl std::fmt::Debug for StreamBlock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries().map(|entry| entry.id)).finish()
    }
}

/// The id of an entry that consists of these bytes; `None` if they are malformed. The entry has the fields of
/// the block, whose number is `fields`, or fields of its own.
fn verify_entry(body: &[u8], base: StreamId, fields: Option<u64>) -> Option<StreamId> {
    let mut reader = Reader { rest: body };
    let (ms, seq) = (reader.number().ok()?, reader.number().ok()?);
    let id = match ms {
        0 => StreamId { ms: base.ms, seq: base.seq.checked_add(seq)? },
        _ => StreamId { ms: base.ms.checked_add(ms)?, seq },
    };
    let (count, has_names) = match fields {
        Some(fields) => (fields, false),
        None => (reader.number().ok()?, true),
    };
    for _ in 0..count {
        if has_names {
            reader.bytes().ok()?;
        }
        let value_len = element::checked_len(reader.rest)?.encoded_len;
        reader.rest = &reader.rest[value_len..];
    }
    reader.rest.is_empty().then_some(id)
}

/// A block that belongs to a stream, or did so when it was copied.
#[derive(Clone, Debug)]
pub(super) struct Block {
    bytes: Bytes,
    entries: u32,
    /// The number of the last capture that has copied the block or, if none has, of the last capture that was
    /// begun before the block was made.
    pub(super) captured: u32,
}

#[derive(Clone, Debug)]
enum Bytes {
    /// Bytes that are changed in place; their memory may have spare room.
    Open(Arc<Vec<u8>>),
    /// Bytes in memory of exactly their length.
    Sealed(Arc<[u8]>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Open(bytes) => bytes,
            Bytes::Sealed(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// The bytes, to be changed. Sealed bytes, and bytes that another copy of the block shares, are copied
    /// first.
    #[inline]
    fn open(&mut self) -> &mut Vec<u8> {
        if let Bytes::Sealed(bytes) = self {
            *self = Bytes::Open(Arc::new(bytes.to_vec()));
        }
        match self {
            Bytes::Open(bytes) => Arc::make_mut(bytes),
            Bytes::Sealed(_) => unreachable!("they were opened"),
        }
    }
}

impl Block {
    /// A block with one entry. `room` is memory for its bytes, left over from a sealed block, or empty.
    pub(super) fn new(id: StreamId, pairs: Items<'_>, captured: u32, mut room: Vec<u8>) -> Self {
        room.clear();
        room.reserve(pairs.iter().map(|item| item.len() + 2).sum::<usize>() + 16);
        for number in [id.ms, id.seq, pairs.len() as u64 / 2] {
            varint::put(&mut room, number);
        }
        for (name, _) in pairs.pairs() {
            put_name(&mut room, name);
        }
        let values_len = pairs.pairs().map(|(_, value)| value.len()).sum();
        put_entry(&mut room, id, id, pairs, true, values_len);
        Block { bytes: Bytes::Open(Arc::new(room)), entries: 1, captured }
    }

    /// A copy of a block from outside.
    pub(super) fn of(block: StreamBlock<'_>, captured: u32) -> Self {
        Block { bytes: Bytes::Sealed(block.0.into()), entries: block.entries().count() as u32, captured }
    }

    /// Adds an entry, whose id is above all ids of the block, unless the block is full; returns whether it
    /// was added.
    pub(super) fn push(&mut self, id: StreamId, pairs: Items<'_>) -> bool {
        if self.entries >= ENTRIES_MAX {
            return false;
        }
        let mut names = Names::of(&self.bytes);
        let base = names.base;
        let (mut names_len, mut values_len, mut has_names) = (0, 0, names.left == pairs.len() as u64 / 2);
        for (name, value) in pairs.pairs() {
            names_len += name.len();
            values_len += value.len();
            has_names = has_names && names.next().is_some_and(|own| own == name);
        }
        // An entry that probably does not fit is refused before it is written.
        if self.bytes.len() + names_len + values_len >= BYTES_MAX {
            return false;
        }
        let before = self.bytes.len();
        let bytes = self.bytes.open();
        put_entry(bytes, base, id, pairs, has_names, values_len);
        let fits = bytes.len() <= BYTES_MAX;
        match fits {
            true => self.entries += 1,
            false => bytes.truncate(before),
        }
        fits
    }

    /// Removes an entry; returns whether it was there.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let Some(range) = self.range_of(id) else { return false };
        self.bytes.open().drain(range);
        self.entries -= 1;
        true
    }

    /// The range of bytes that holds an entry.
    fn range_of(&self, id: StreamId) -> Option<Range<usize>> {
        let mut entries = self.entries();
        let mut start = self.bytes.len() - entries.rest.len();
        while let Some(entry) = entries.next()
            && entry.id <= id
        {
            let end = self.bytes.len() - entries.rest.len();
            if entry.id == id {
                return Some(start..end);
            }
            start = end;
        }
        None
    }

    /// Removes the entries up to and including `id`; returns their number.
    pub(super) fn remove_through(&mut self, id: StreamId) -> usize {
        let mut entries = Entries::of(&self.bytes);
        let start = self.bytes.len() - entries.rest.len();
        let (mut end, mut count) = (start, 0);
        while let Some(entry) = entries.next()
            && entry.id <= id
        {
            end = self.bytes.len() - entries.rest.len();
            count += 1;
        }
        self.bytes.open().drain(start..end);
        self.entries -= count as u32;
        count
    }

    /// Copies the bytes to memory without room for further entries. Returns the former memory, for another
    /// block, unless a copy shares it.
    pub(super) fn seal(&mut self) -> Vec<u8> {
        let sealed = Bytes::Sealed(self.bytes[..].into());
        match std::mem::replace(&mut self.bytes, sealed) {
            Bytes::Open(bytes) => Arc::into_inner(bytes).unwrap_or_default(),
            Bytes::Sealed(_) => Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries as usize
    }

    /// Bytes of memory, shared or not.
    pub(super) fn allocated_bytes(&self) -> usize {
        COUNTERS_BYTES
            + match &self.bytes {
                Bytes::Open(bytes) => size_of::<Vec<u8>>() + bytes.capacity(),
                Bytes::Sealed(bytes) => bytes.len(),
            }
    }

    pub(super) fn as_block(&self) -> StreamBlock<'_> {
        StreamBlock(&self.bytes)
    }

    pub(super) fn entries(&self) -> Entries<'_> {
        Entries::of(&self.bytes)
    }
}

/// Writes an entry of the block with the id `base`. The entry includes the names of its fields if they differ
/// from the names of the block.
fn put_entry(
    bytes: &mut Vec<u8>,
    base: StreamId,
    id: StreamId,
    pairs: Items<'_>,
    has_names: bool,
    values_len: usize,
) {
    // The length comes first in the entry, but is known last. The room for the length is a guess that is
    // right if the values are short strings. If the guess is wrong, the rest of the entry is moved.
    let start = bytes.len();
    let room = varint::len(((values_len + pairs.len() / 2) as u64) << 1);
    bytes.resize(start + room, 0);
    let ms = id.ms - base.ms;
    varint::put(bytes, ms);
    varint::put(bytes, if ms == 0 { id.seq - base.seq } else { id.seq });
    if !has_names {
        varint::put(bytes, pairs.len() as u64 / 2);
    }
    for (name, value) in pairs.pairs() {
        if !has_names {
            put_name(bytes, name);
        }
        Encoded::of(value).write_to(bytes);
    }
    let len = bytes.len() - start - room;
    let head = (len as u64) << 1 | u64::from(!has_names);
    match varint::len(head) {
        1 if room == 1 => bytes[start] = head as u8,
        2 if room == 2 => (bytes[start], bytes[start + 1]) = (head as u8 | 0x80, (head >> 7) as u8),
        other => {
            bytes.drain(start..start + room);
            varint::put(bytes, head);
            bytes[start..].rotate_right(other);
        }
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &[u8]) {
    varint::put(bytes, name.len() as u64);
    bytes.extend_from_slice(name);
}

#[inline]
fn take_name<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let len = take_trusted(rest) as usize;
    let (name, behind) = rest.split_at(len);
    *rest = behind;
    name
}

/// The head of a block: its id, and the names of its fields.
#[derive(Clone, Copy)]
struct Names<'a> {
    base: StreamId,
    left: u64,
    rest: &'a [u8],
}

impl<'a> Names<'a> {
    fn of(mut block: &'a [u8]) -> Self {
        let (ms, seq) = (take_trusted(&mut block), take_trusted(&mut block));
        let left = take_trusted(&mut block);
        Names { base: StreamId { ms, seq }, left, rest: block }
    }

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        Some(take_name(&mut self.rest))
    }
}

/// The entries of a block in order.
#[derive(Clone)]
pub(super) struct Entries<'a> {
    names: Names<'a>,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// No entries.
    pub(super) const NONE: Entries<'static> =
        Entries { names: Names { base: StreamId::ZERO, left: 0, rest: &[] }, rest: &[] };

    fn of(block: &'a [u8]) -> Self {
        let names = Names::of(block);
        let mut behind = names;
        while behind.next().is_some() {}
        Entries { names, rest: behind.rest }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let head = take_trusted(&mut self.rest);
        let (mut body, rest) = self.rest.split_at((head >> 1) as usize);
        self.rest = rest;
        let base = self.names.base;
        let (ms, seq) = (take_trusted(&mut body), take_trusted(&mut body));
        let id = match ms {
            0 => StreamId { ms: base.ms, seq: base.seq + seq },
            _ => StreamId { ms: base.ms + ms, seq },
        };
        let (names, left) = match head & 1 {
            0 => (Some(self.names), self.names.left),
            _ => (None, take_trusted(&mut body)),
        };
        Some(StreamEntry { id, fields: StreamFields { names, left: left as usize, rest: body } })
    }
}

/// An entry of a stream.
#[derive(Clone)]
pub struct StreamEntry<'a> {
    /// The id of the entry.
    pub id: StreamId,
    fields: StreamFields<'a>,
}

impl<'a> StreamEntry<'a> {
    /// Names and values in the order in which they were given.
    pub fn fields(&self) -> StreamFields<'a> {
        self.fields.clone()
    }
}

/// Fields of an entry in order.
#[derive(Clone)]
pub struct StreamFields<'a> {
    /// The field names of the block; `None` if the entry has names of its own, in front of the values.
    names: Option<Names<'a>>,
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for StreamFields<'a> {
    type Item = (&'a [u8], Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => take_name(&mut self.rest),
        };
        let (value, len) = element::decode(self.rest);
        self.rest = &self.rest[len..];
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StreamFields<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plain = (StreamId, Vec<(Vec<u8>, Vec<u8>)>);

    fn plain(block: StreamBlock<'_>) -> Vec<Plain> {
        let fields = |entry: &StreamEntry<'_>| {
            entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
        };
        block.entries().map(|entry| (entry.id, fields(&entry))).collect()
    }

    fn push(block: &mut Option<Block>, (id, pairs): &Plain) -> bool {
        let items: Vec<&[u8]> = pairs.iter().flat_map(|(name, value)| [&**name, &**value]).collect();
        let items = Items::Slices(&items);
        match block {
            Some(block) => block.push(*id, items),
            None => {
                *block = Some(Block::new(*id, items, 0, Vec::new()));
                true
            }
        }
    }

    fn entries() -> impl Strategy<Value = Vec<Plain>> {
        let id = (prop_oneof![0..5u64, any::<u64>()], prop_oneof![0..5u64, any::<u64>()]);
        let text = || {
            prop_oneof![
                any::<i64>().prop_map(|number| number.to_string().into_bytes()),
                prop::collection::vec(any::<u8>(), 0..5),
                prop::collection::vec(any::<u8>(), 60..90),
            ]
        };
        let name = prop_oneof![Just(b"a".to_vec()), Just(b"field".to_vec()), text()];
        let pairs = prop::collection::vec((name, text()), 1..4);
        prop::collection::btree_map(id.prop_map(|(ms, seq)| StreamId { ms, seq }), pairs, 1..120)
            .prop_map(|entries| entries.into_iter().collect())
    }

    proptest! {
        #[test]
        fn pushed_entries_are_read_until_their_removal(
            entries in entries(),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            before in any::<prop::sample::Index>(),
        ) {
            let mut block = None;
            let mut kept: Vec<Plain> = entries.into_iter().take_while(|entry| push(&mut block, entry)).collect();
            let mut block = block.expect("there is an entry");
            prop_assert_eq!(plain(block.as_block()), kept.clone());
            for index in removed {
                let id = kept[index.index(kept.len())].0;
                if kept.len() > 1 {
                    prop_assert!(block.remove(id));
                    kept.retain(|entry| entry.0 != id);
                }
                prop_assert!(kept.len() == 1 || !block.remove(id));
            }
            let verified = StreamBlock::verify(&block.bytes).expect("it was written here");
            prop_assert_eq!(Block::of(verified, 0).len(), kept.len());
            let through = before.index(kept.len());
            prop_assert_eq!(block.remove_through(kept[through].0), through + 1);
            prop_assert_eq!(plain(block.as_block()), &kept[through + 1..]);
            prop_assert_eq!(block.len(), kept.len() - through - 1);
        }

        #[test]
        fn verified_blocks_are_readable(
            entries in entries(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut block = None;
            entries.iter().take(5).for_each(|entry| { push(&mut block, entry); });
            let mut bytes = block.expect("there is an entry").bytes.to_vec();
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                if let Some(block) = StreamBlock::verify(bytes) {
                    plain(block);
                }
            }
        }
    }

    #[test]
    fn a_block_takes_so_many_entries_or_bytes() {
        let entry = |seq, len| (StreamId::new(1, seq), vec![(b"f".to_vec(), vec![b'x'; len])]);
        for (len, expected) in [(1, 100), (1000, 4), (10_000, 1)] {
            let mut block = None;
            let pushed = (0..200).take_while(|&seq| push(&mut block, &entry(seq, len))).count();
            assert_eq!(pushed, expected, "{len} bytes");
        }
    }

    #[test]
    fn lengths_of_entries_are_as_short_as_they_can_be() {
        let number = (b"n".to_vec(), b"1234567890123456789".to_vec());
        let text = |len| (b"t".to_vec(), vec![b'x'; len]);
        // Four numbers of 19 digits take 9 bytes each, and the distances of the id 2 bytes: 38 bytes.
        let entries = [
            vec![number; 4],
            vec![text(60)],
            vec![text(61)],
            vec![text(8184)],
            vec![text(8185)],
            vec![text(9000)],
        ];
        for (pairs, head_len) in entries.into_iter().zip([1, 1, 2, 2, 3, 3]) {
            let (mut block, entry) = (None, (StreamId::new(1, 1), pairs));
            push(&mut block, &entry);
            let block = block.expect("there is an entry");
            let mut rest = Entries::of(&block.bytes).rest;
            let all = rest.len();
            let len = take_trusted(&mut rest) >> 1;
            assert_eq!((all - rest.len(), len as usize), (head_len, rest.len()));
            assert_eq!(plain(block.as_block()), [entry]);
        }
    }

    #[test]
    fn an_entry_with_the_fields_of_its_block_takes_four_bytes_beside_the_values() {
        let mut block = None;
        for seq in 0..50 {
            push(
                &mut block,
                &(StreamId::new(1_700_000_000_000 + seq, 0), vec![(b"a-name".to_vec(), b"7".to_vec())]),
            );
        }
        let bytes = block.expect("there is an entry").bytes.len();
        assert!(bytes <= 20 + 50 * 4, "{bytes}");
    }
}
