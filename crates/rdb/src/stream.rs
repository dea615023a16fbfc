//! Streams: entries in listpacks, metadata, groups, consumers and pending entries.
//!
//! ```text
//! stream:    count, node, ...
//!            number of entries, last id [, first id, highest deleted id, entries ever added]
//!            count, group, ...
//! node:      id, listpack
//! listpack:  number of entries, number of deleted entries, count, field, ..., 0, entry, ...
//! entry:     flags, ms and seq as distances from the id of the node
//!            value, ... for the fields of the node   or: count, field, value, field, value, ...
//!            number of elements of the entry so far
//! group:     name, last id [, entries read], count, pending entry, ..., count, consumer, ...
//! pending:   id, time, number of deliveries
//! consumer:  name, seen [, active], count, id of a pending entry, ...
//! ```
//!
//! `count` is the number of things that follow. Older types lack the parts in `[...]`.
//!
//! The module reads and writes streams piece by piece. It does not check that the entries named by a group
//! exist: these entries may have been deleted.

use std::{cmp::Ordering, collections::HashMap};

use crate::compact::{Item, Listpack, Walk};
use crate::input::Input;
use crate::writer::{Output, Writer};
use crate::{Error, types};

/// Milliseconds and sequence number of an entry.
pub type StreamId = (u64, u64);

/// Bytes of an id in its binary form.
const ID_BYTES: usize = 16;
/// The flags of entries.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// The value for an unknown number of entries, and for a time that is not set.
const NONE: u64 = u64::MAX;

const MALFORMED: Error = Error::Malformed("stream");

/// Metadata of a stream's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamHead {
    /// The id of the last entry that was added, or a higher one that a client has set.
    pub last_id: StreamId,
    /// The highest id of a deleted entry. An encoding without it gives 0-0.
    pub max_deleted_id: StreamId,
    /// Number of entries ever added. An encoding without it gives the number of entries.
    pub entries_added: u64,
}

/// A part of a stream, in the order of the encoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamElement<'a> {
    /// An entry; ids ascend.
    Entry {
        /// The id of the entry.
        id: StreamId,
        /// Fields and values in turn.
        pairs: &'a [Vec<u8>],
    },
    /// The metadata; comes once, after the entries.
    Head(StreamHead),
    /// A group.
    Group {
        /// The name of the group.
        name: &'a [u8],
        /// The id of the last delivered entry, or one that a client has set.
        last_id: StreamId,
        /// The number of entries ever added up to `last_id`; `None` if unknown.
        entries_read: Option<u64>,
    },
    /// A consumer of the preceding group.
    Consumer {
        /// The name of the consumer.
        name: &'a [u8],
        /// Time of the consumer's last request, Unix time in milliseconds.
        seen_ms: u64,
        /// Time of the last delivery to the consumer, Unix time in milliseconds; `None` if there was none.
        /// An encoding without it gives `seen_ms`.
        active_ms: Option<u64>,
    },
    /// An entry that is pending for the preceding consumer.
    Pending {
        /// The id of the entry.
        id: StreamId,
        /// Time of the entry's last delivery, Unix time in milliseconds.
        time_ms: u64,
        /// Number of the entry's deliveries.
        count: u64,
    },
}

/// A complete stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    /// Ids, each with fields and values in turn.
    pub entries: Vec<(StreamId, Vec<Vec<u8>>)>,
    /// Metadata of the entries.
    pub head: StreamHead,
    /// The groups of the stream.
    pub groups: Vec<StreamGroup>,
}

/// A group of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamGroup {
    /// The name of the group.
    pub name: Vec<u8>,
    /// The id of the last delivered entry, or one that a client has set.
    pub last_id: StreamId,
    /// The number of entries ever added up to `last_id`; `None` if unknown.
    pub entries_read: Option<u64>,
    /// The consumers of the group.
    pub consumers: Vec<StreamConsumer>,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConsumer {
    /// The name of the consumer.
    pub name: Vec<u8>,
    /// Time of the consumer's last request, Unix time in milliseconds.
    pub seen_ms: u64,
    /// Time of the last delivery to the consumer, Unix time in milliseconds; `None` if there was none.
    pub active_ms: Option<u64>,
    /// The consumer's pending entries: id, time of the last delivery, number of deliveries.
    pub pending: Vec<(StreamId, u64, u64)>,
}

impl Stream {
    pub(crate) fn add(&mut self, element: StreamElement<'_>) {
        match element {
            StreamElement::Entry { id, pairs } => self.entries.push((id, pairs.to_vec())),
            StreamElement::Head(head) => self.head = head,
            StreamElement::Group { name, last_id, entries_read } => {
                let (name, consumers) = (name.to_vec(), Vec::new());
                self.groups.push(StreamGroup { name, last_id, entries_read, consumers });
            }
            StreamElement::Consumer { name, seen_ms, active_ms } => {
                let consumer =
                    StreamConsumer { name: name.to_vec(), seen_ms, active_ms, pending: Vec::new() };
                self.groups.last_mut().into_iter().for_each(|group| group.consumers.push(consumer.clone()));
            }
            StreamElement::Pending { id, time_ms, count } => {
                let consumer = self.groups.last_mut().and_then(|group| group.consumers.last_mut());
                consumer.into_iter().for_each(|consumer| consumer.pending.push((id, time_ms, count)));
            }
        }
    }
}

/// Reads a stream whose type number was read before, and passes its parts to `visit`.
pub(crate) fn read_stream<E: From<Error>>(
    value_type: u8,
    input: &mut impl Input,
    mut visit: impl FnMut(StreamElement<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let has_offsets = value_type != types::STREAM_LISTPACKS;
    let has_active_times = value_type == types::STREAM_LISTPACKS_3;
    let (mut key, mut node, mut first, mut last) = (Vec::new(), Vec::new(), None, (0, 0));
    for _ in 0..input.number()? {
        input.string(&mut key)?;
        input.string(&mut node)?;
        let base = key.as_slice().try_into().map(id_of).map_err(|_| MALFORMED)?;
        read_node(base, &node, |id, pairs| {
            if id <= std::mem::replace(&mut last, id) {
                return Err(MALFORMED.into());
            }
            first.get_or_insert(id);
            visit(StreamElement::Entry { id, pairs })
        })?;
    }
    let len = input.number()?;
    let mut head = StreamHead { last_id: read_id(input)?, entries_added: len, ..StreamHead::default() };
    if has_offsets {
        read_id(input)?;
        head.max_deleted_id = read_id(input)?;
        head.entries_added = input.number()?;
    }
    if head.last_id < last {
        return Err(MALFORMED.into());
    }
    visit(StreamElement::Head(head))?;
    for _ in 0..input.number()? {
        input.string(&mut key)?;
        let last_id = read_id(input)?;
        let entries_read = if has_offsets {
            Some(input.number()?).filter(|&read| read != NONE)
        } else {
            read_through(last_id, &head, first)
        };
        visit(StreamElement::Group { name: &key, last_id, entries_read })?;
        read_group(has_active_times, input, &mut visit)?;
    }
    Ok(())
}

/// The number of entries that a group at this id has read, for an encoding that lacks this number. As in
/// Redis, no entry counts as deleted, and the number is known only at the ends of the stream. `first` is the
/// id of the first entry.
fn read_through(id: StreamId, head: &StreamHead, first: Option<StreamId>) -> Option<u64> {
    if head.entries_added == 0 {
        return Some(0);
    }
    match (id.cmp(&head.last_id), id.cmp(&first?)) {
        (Ordering::Equal, _) => Some(head.entries_added),
        (Ordering::Less, Ordering::Less) => Some(0),
        (Ordering::Less, Ordering::Equal) => Some(1),
        _ => None,
    }
}

/// Reads the pending entries of a group and its consumers. Takes memory for all pending entries.
fn read_group<E: From<Error>>(
    has_active_times: bool,
    input: &mut impl Input,
    visit: &mut impl FnMut(StreamElement<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pending = HashMap::new();
    for _ in 0..input.number()? {
        let id = id_of(input.array()?);
        pending.insert(id, (time(input)?.unwrap_or(0), input.number()?));
    }
    let mut name = Vec::new();
    for _ in 0..input.number()? {
        input.string(&mut name)?;
        let seen_ms = time(input)?;
        let active_ms = if has_active_times { time(input)? } else { seen_ms };
        visit(StreamElement::Consumer { name: &name, seen_ms: seen_ms.unwrap_or(0), active_ms })?;
        for _ in 0..input.number()? {
            let id = id_of(input.array()?);
            let (time_ms, count) = pending.remove(&id).ok_or(MALFORMED)?;
            visit(StreamElement::Pending { id, time_ms, count })?;
        }
    }
    // Every pending entry belongs to a consumer.
    if pending.is_empty() { Ok(()) } else { Err(MALFORMED.into()) }
}

/// Reads a time in milliseconds; `None` if it is before 1970.
fn time(input: &mut impl Input) -> Result<Option<u64>, Error> {
    Ok(u64::try_from(i64::from_le_bytes(input.array()?)).ok())
}

fn read_id(input: &mut impl Input) -> Result<StreamId, Error> {
    Ok((input.number()?, input.number()?))
}

fn id_of(bytes: [u8; ID_BYTES]) -> StreamId {
    let id = u128::from_be_bytes(bytes);
    ((id >> 64) as u64, id as u64)
}

/// Reads the entries of a node that are not deleted.
fn read_node<E: From<Error>>(
    (base_ms, base_seq): StreamId,
    node: &[u8],
    mut visit: impl FnMut(StreamId, &[Vec<u8>]) -> Result<(), E>,
) -> Result<(), E> {
    let mut walk = Listpack::new(node)?;
    let (entries, deleted) = (count(&mut walk)?, count(&mut walk)?);
    let fields = count(&mut walk)?;
    let mut names = Vec::new();
    for _ in 0..fields {
        names.push(text(&mut walk)?);
    }
    number(&mut walk)?;
    let mut pairs: Vec<Vec<u8>> = Vec::new();
    for _ in 0..entries.saturating_add(deleted) {
        let flags = number(&mut walk)?;
        let ms = base_ms.wrapping_add_signed(number(&mut walk)?);
        let seq = base_seq.wrapping_add_signed(number(&mut walk)?);
        pairs.clear();
        if flags & SAME_FIELDS != 0 {
            for name in &names {
                pairs.push(name.clone());
                pairs.push(text(&mut walk)?);
            }
        } else {
            for _ in 0..count(&mut walk)? {
                pairs.push(text(&mut walk)?);
                pairs.push(text(&mut walk)?);
            }
        }
        number(&mut walk)?;
        if flags & DELETED == 0 {
            visit((ms, seq), &pairs)?;
        }
    }
    if walk.next()?.is_some() { Err(MALFORMED.into()) } else { Ok(()) }
}

fn text<'a>(walk: &mut impl Walk<'a>) -> Result<Vec<u8>, Error> {
    Ok(walk.next_of_group("stream")?.text(&mut itoa::Buffer::new()).to_vec())
}

fn number<'a>(walk: &mut impl Walk<'a>) -> Result<i64, Error> {
    match walk.next_of_group("stream")? {
        Item::Integer(value) => Ok(value),
        Item::Bytes(bytes) => {
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or(MALFORMED)
        }
    }
}

fn count<'a>(walk: &mut impl Walk<'a>) -> Result<u64, Error> {
    u64::try_from(number(walk)?).map_err(|_| MALFORMED)
}

/// A node to be written: entries with ids close to each other.
#[derive(Debug)]
pub struct StreamNode {
    base: StreamId,
    names: Vec<Vec<u8>>,
    entries: usize,
    /// The part of the listpack from the first entry on; `elements` is the number of elements in it.
    body: Vec<u8>,
    elements: usize,
}

impl StreamNode {
    /// A node whose first entry has this id and these fields. The first entry must then be added like others.
    pub fn new<'a>(base: StreamId, names: impl Iterator<Item = &'a [u8]>) -> StreamNode {
        let names = names.map(<[u8]>::to_vec).collect();
        StreamNode { base, names, entries: 0, body: Vec::new(), elements: 0 }
    }

    /// Adds an entry. Ids must ascend.
    pub fn add<P: AsRef<[u8]>, Q: AsRef<[u8]>>(
        &mut self,
        (ms, seq): StreamId,
        pairs: impl ExactSizeIterator<Item = (P, Q)> + Clone,
    ) {
        let names = self.names.iter().map(Vec::as_slice);
        let is_same = pairs.len() == names.len()
            && pairs.clone().zip(names).all(|((own, _), name)| own.as_ref() == name);
        let before = self.elements;
        self.put_integer(if is_same { SAME_FIELDS } else { 0 });
        self.put_integer(ms.wrapping_sub(self.base.0) as i64);
        self.put_integer(seq.wrapping_sub(self.base.1) as i64);
        if !is_same {
            self.put_integer(pairs.len() as i64);
        }
        for (name, value) in pairs {
            if !is_same {
                self.put_text(name.as_ref());
            }
            self.put_text(value.as_ref());
        }
        self.put_integer((self.elements - before) as i64);
        self.entries += 1;
    }

    fn put_integer(&mut self, value: i64) {
        put_integer(&mut self.body, value);
        self.elements += 1;
    }

    fn put_text(&mut self, text: &[u8]) {
        put_text(&mut self.body, text);
        self.elements += 1;
    }

    fn listpack(&self) -> Vec<u8> {
        let mut head = Vec::new();
        for number in [self.entries, 0, self.names.len()] {
            put_integer(&mut head, number as i64);
        }
        self.names.iter().for_each(|name| put_text(&mut head, name));
        put_integer(&mut head, 0);
        let size = 4 + 2 + head.len() + self.body.len() + 1;
        let elements = self.elements + 4 + self.names.len();
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(&(size as u32).to_le_bytes());
        out.extend_from_slice(&u16::try_from(elements).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.body);
        out.push(0xff);
        out
    }
}

/// Appends an integer to a listpack, followed by the length of the element.
fn put_integer(out: &mut Vec<u8>, value: i64) {
    let start = out.len();
    if let 0..=127 = value {
        out.push(value as u8);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xf1);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xf3);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(0xf4);
        out.extend_from_slice(&value.to_le_bytes());
    }
    put_back_length(out, start);
}

/// Appends a string to a listpack, followed by the length of the element.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    match text.len() {
        len @ 0..=63 => out.push(0x80 | len as u8),
        len @ 64..=4095 => out.extend_from_slice(&[0xe0 | (len >> 8) as u8, len as u8]),
        len => {
            out.push(0xf0);
            out.extend_from_slice(&(len as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
    put_back_length(out, start);
}

/// Appends the length of the element that begins at `start`, in groups of 7 bits, the highest first. All its
/// bytes but the first have the top bit set.
fn put_back_length(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    let groups = match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    for group in (0..groups).rev() {
        let low = (len >> (7 * group)) as u8 & 0x7f;
        out.push(if group == groups - 1 { low } else { low | 0x80 });
    }
}

impl<O: Output> Writer<O> {
    /// Writes the type number of a stream and the number of its nodes. The caller then writes the nodes,
    /// [`Writer::stream_head`] and the groups.
    pub fn begin_stream(&mut self, nodes: usize) {
        let known = self.knows_active_times();
        self.begin(if known { types::STREAM_LISTPACKS_3 } else { types::STREAM_LISTPACKS_2 });
        self.number(nodes as u64);
    }

    /// Writes one of the nodes that [`Writer::begin_stream`] has announced.
    pub fn stream_node(&mut self, node: &StreamNode) {
        self.number(ID_BYTES as u64);
        self.stream_id(node.base);
        self.string(&node.listpack());
    }

    /// Writes the metadata, the number of entries, the first id, and the number of groups that follow.
    pub fn stream_head(&mut self, head: StreamHead, len: usize, first: StreamId, groups: usize) {
        self.number(len as u64);
        for (ms, seq) in [head.last_id, first, head.max_deleted_id] {
            self.number(ms);
            self.number(seq);
        }
        self.number(head.entries_added);
        self.number(groups as u64);
    }

    /// Writes a group and the number of [`Writer::stream_pending`] calls that follow. After these, the caller
    /// writes the number of its consumers and the consumers.
    pub fn stream_group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
        pending: usize,
    ) {
        self.string(name);
        for number in [last_id.0, last_id.1, entries_read.unwrap_or(NONE), pending as u64] {
            self.number(number);
        }
    }

    /// Writes a pending entry of the group, of any consumer.
    pub fn stream_pending(&mut self, id: StreamId, time_ms: u64, count: u64) {
        self.stream_id(id);
        self.output().put(&time_ms.to_le_bytes());
        self.number(count);
    }

    /// Writes a consumer and the number of [`Writer::stream_id`] calls that follow, one per pending entry.
    pub fn stream_consumer(&mut self, name: &[u8], seen_ms: u64, active_ms: Option<u64>, pending: usize) {
        self.string(name);
        self.output().put(&seen_ms.to_le_bytes());
        if self.knows_active_times() {
            self.output().put(&active_ms.unwrap_or(NONE).to_le_bytes());
        }
        self.number(pending as u64);
    }

    /// Writes the id of an entry in its binary form.
    pub fn stream_id(&mut self, (ms, seq): StreamId) {
        self.output().put(&ms.to_be_bytes());
        self.output().put(&seq.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_has_read_is_known_at_the_ends_of_an_old_stream() {
        let head = StreamHead { last_id: (5, 0), entries_added: 5, ..StreamHead::default() };
        let cases = [((0, 0), Some(0)), ((1, 0), Some(1)), ((1, 1), None), ((5, 0), Some(5)), ((5, 1), None)];
        for (id, read) in cases {
            assert_eq!(read_through(id, &head, Some((1, 0))), read, "{id:?}");
        }
        let empty = StreamHead { last_id: (5, 0), ..StreamHead::default() };
        assert_eq!(read_through((7, 0), &empty, None), Some(0));
    }
}
