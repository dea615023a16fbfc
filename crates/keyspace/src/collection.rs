//! Collections: how lists, sets, sorted sets, hashes and streams lie in memory.
//!
//! What it is: two forms for each type, the views that read either form, and the changes that effects make to
//! them. The packed form is a byte string inside the entry of the key. A collection that outgrows the packed
//! form gets the big form. A stream has only the big form.
//! What it is not: commands. Whether a change is allowed was decided before its effect was made.
//!
//! ```text
//! entry: header | key | packed form          element, element, ...    one allocation with the key
//! entry: header | key | address of a Big --> LongList, FieldMap, ...  above a limit of `PackedLimits`
//! ```
//!
//! Invariants
//! - A collection is never empty: the maker of a Put gives it elements, and applying an effect removes the
//!   key of a collection that becomes empty. Only a stream may be empty.
//! - No edit of a collection makes a big one packed. No effect and no value depends on the form.

mod chunk;
pub(crate) mod element;
pub(crate) mod field_map;
mod hash;
mod limits;
mod list;
mod long_list;
mod packed;
pub(crate) mod part;
pub(crate) mod rank_tree;
mod set;
mod stream;
mod value_buf;
pub(crate) mod verify;
mod zset;

#[cfg(test)]
mod testing;

pub use element::Element;
pub use hash::{HashField, HashView};
pub use limits::PackedLimits;
pub(crate) use limits::SharedLimits;
pub use list::{ListIter, ListView};
pub use set::SetView;
pub use stream::{
    ConsumerTimes, ConsumerView, Delivery, ENTRIES_READ_MAX, GroupPosition, GroupView, PendingView,
    SharedEntries, StreamBlock, StreamEntry, StreamFields, StreamHead, StreamId, StreamImage, StreamOrder,
    StreamView,
};
pub use value_buf::ValueBuf;
pub use zset::{ZsetRange, ZsetView};

use field_map::FieldMap;
pub(crate) use long_list::LongList;
use part::Part;
use stream::Stream;
use zset::RankedMap;

use crate::access::AccessStamp;
use crate::apply::Applied;
use crate::effect::{ItemsBuf, KeyOp, ScoredItemsBuf};
use crate::entry::Entry;
use crate::freed::Freed;
use crate::value::{Value, ValueType};

/// A collection that has outgrown its packed form.
pub(crate) enum Big {
    /// A list.
    List(LongList),
    /// A hash: fields with their values.
    Hash(FieldMap),
    /// A set: members as fields with empty values.
    Set(FieldMap),
    /// A sorted set.
    Zset(RankedMap),
    /// A stream, which has no other form. Boxed, because `Stream` is the largest of these structures.
    Stream(Box<Stream>),
}

impl Big {
    /// Begins to capture the collection. A list is not captured like this but shared.
    pub(crate) fn begin_capture(&mut self) {
        match self {
            Big::List(_) => unreachable!("lists are shared"),
            Big::Hash(map) => map.begin_capture(Part::Hash(ItemsBuf::new(), Vec::new())),
            Big::Set(map) => map.begin_capture(Part::Set(ItemsBuf::new())),
            Big::Zset(map) => map.scores_mut().begin_capture(Part::Zset(ScoredItemsBuf::new())),
            Big::Stream(stream) => stream.begin_capture(),
        }
    }

    /// As `FieldMap::capture_step`.
    pub(crate) fn capture_step(&mut self, bytes: usize) -> (Part, bool) {
        match self {
            Big::List(_) => unreachable!("lists are shared"),
            Big::Hash(map) | Big::Set(map) => map.capture_step(bytes),
            Big::Zset(map) => map.scores_mut().capture_step(bytes),
            Big::Stream(stream) => {
                let (image, has_ended) = stream.capture_step(bytes);
                (Part::Stream(Box::new(image)), has_ended)
            }
        }
    }

    /// Bytes that the capture has copied since its last step and that the next step takes. These are parts
    /// that were about to change; before the first step, also the head and the groups of a stream, which are
    /// copied when a capture begins.
    pub(crate) fn captured_ahead_bytes(&self) -> usize {
        match self {
            Big::List(_) => 0,
            Big::Hash(map) | Big::Set(map) => map.captured_ahead_bytes(),
            Big::Zset(map) => map.scores().captured_ahead_bytes(),
            Big::Stream(stream) => stream.captured_ahead_bytes(),
        }
    }

    /// Gives a capture up before it is complete.
    pub(crate) fn abandon_capture(&mut self) {
        match self {
            Big::List(_) => {}
            Big::Hash(map) | Big::Set(map) => map.abandon_capture(),
            Big::Zset(map) => map.scores_mut().abandon_capture(),
            Big::Stream(stream) => stream.abandon_capture(),
        }
    }

    /// Whether a capture of the collection has begun and not ended.
    pub(crate) fn is_being_captured(&self) -> bool {
        match self {
            Big::List(_) => false,
            Big::Hash(map) | Big::Set(map) => map.is_being_captured(),
            Big::Zset(map) => map.scores().is_being_captured(),
            Big::Stream(stream) => stream.is_being_captured(),
        }
    }

    /// Prefetches the memory in which these members or fields are looked up.
    pub(crate) fn prefetch_members<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        match self {
            Big::List(_) | Big::Stream(_) => {}
            Big::Hash(map) | Big::Set(map) => map.prefetch(members),
            Big::Zset(map) => map.scores().prefetch(members),
        }
    }

    /// Bytes of memory, including the bytes of this structure itself.
    pub(crate) fn bytes(&self) -> usize {
        let content = match self {
            Big::List(list) => list.bytes(),
            Big::Hash(map) | Big::Set(map) => map.bytes(),
            Big::Zset(map) => map.bytes(),
            Big::Stream(stream) => stream.bytes(),
        };
        size_of::<Big>() + content
    }
}

/// The value of a key, for reading.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// Bytes.
    String(&'a [u8]),
    /// Elements in order.
    List(ListView<'a>),
    /// Members.
    Set(SetView<'a>),
    /// Members ordered by score.
    Zset(ZsetView<'a>),
    /// Fields with values.
    Hash(HashView<'a>),
    /// Entries, and groups that read them.
    Stream(StreamView<'a>),
}

impl<'a> View<'a> {
    /// The value in the payload of an entry that is not big.
    #[inline]
    pub(crate) fn of_packed(value_type: ValueType, payload: &'a [u8]) -> Self {
        match value_type {
            ValueType::String => View::String(payload),
            ValueType::List => View::List(ListView::of_packed(payload)),
            ValueType::Set => View::Set(SetView::of_packed(payload)),
            ValueType::Zset => View::Zset(ZsetView::of_packed(payload)),
            ValueType::Hash => View::Hash(HashView::of_packed(payload)),
            ValueType::Stream => unreachable!("a stream is always big"),
        }
    }

    /// The value of a big entry.
    #[inline]
    pub(crate) fn of_big(big: &'a Big) -> Self {
        match big {
            Big::List(list) => View::List(ListView::of_long(list)),
            Big::Hash(map) => View::Hash(HashView::of_big(map)),
            Big::Set(map) => View::Set(SetView::of_big(map)),
            Big::Zset(map) => View::Zset(ZsetView::of_big(map)),
            Big::Stream(stream) => View::Stream(StreamView(stream)),
        }
    }

    /// Number of elements; 1 for a string.
    pub fn len(&self) -> usize {
        match self {
            View::String(_) => 1,
            View::List(list) => list.len(),
            View::Set(set) => set.len(),
            View::Zset(zset) => zset.len(),
            View::Hash(hash) => hash.len(),
            View::Stream(stream) => stream.len(),
        }
    }

    /// Whether the key must be removed because nothing is left in its collection. An empty stream keeps its
    /// key.
    pub(crate) fn is_gone(&self) -> bool {
        !matches!(self, View::Stream(_)) && self.is_empty()
    }

    /// Whether there is no element. In a keyspace, only a stream can be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The limits and the seed that edits depend on besides the effect.
pub(crate) struct Rules {
    pub(crate) limits: PackedLimits,
    /// Seeds the hashing inside big collections.
    pub(crate) seed: u64,
}

/// A new entry with a value, packed or big as the limits in `rules` demand.
pub(crate) fn create(
    key: &[u8],
    value: Value<'_>,
    expire_at_ms: Option<u64>,
    stamp: AccessStamp,
    rules: &Rules,
) -> Entry {
    let mut entry = match value {
        Value::String(bytes) => return Entry::new(key, bytes, expire_at_ms, stamp),
        other => empty(other.value_type(), key, expire_at_ms, stamp),
    };
    match value {
        Value::String(_) => {}
        Value::List(items) => list::fill(&mut entry, items, rules),
        Value::Set(members) => set::fill(&mut entry, members, rules),
        Value::Zset(members) => zset::fill(&mut entry, members, rules),
        Value::Hash(pairs) => hash::fill(&mut entry, pairs, rules),
        Value::Stream(head) => stream::fill(&mut entry, head),
    }
    entry
}

/// A new entry with an empty collection.
pub(crate) fn empty(
    value_type: ValueType,
    key: &[u8],
    expire_at_ms: Option<u64>,
    stamp: AccessStamp,
) -> Entry {
    let payload = match value_type {
        ValueType::List => list::EMPTY,
        ValueType::Set => set::EMPTY,
        ValueType::Zset => zset::EMPTY,
        ValueType::Hash => hash::EMPTY,
        ValueType::Stream => stream::EMPTY,
        ValueType::String => unreachable!("no collection of this type"),
    };
    let mut entry = Entry::packed(value_type, key, payload, expire_at_ms, stamp);
    if value_type == ValueType::Stream {
        stream::promote(&mut entry);
    }
    entry
}

/// The type that an operation on a collection works on and whether it creates the key; `None` for other
/// operations.
#[inline]
pub(crate) fn edited_type(op: &KeyOp<'_>) -> Option<(ValueType, bool)> {
    match op {
        KeyOp::ListPush { .. } => Some((ValueType::List, true)),
        KeyOp::ListPop { .. }
        | KeyOp::ListSet { .. }
        | KeyOp::ListInsert { .. }
        | KeyOp::ListRemove { .. } => Some((ValueType::List, false)),
        KeyOp::SetAdd { .. } => Some((ValueType::Set, true)),
        KeyOp::SetRemove { .. } => Some((ValueType::Set, false)),
        KeyOp::ZsetPut { .. } => Some((ValueType::Zset, true)),
        KeyOp::ZsetRemove { .. } | KeyOp::ZsetRemoveRanks { .. } => Some((ValueType::Zset, false)),
        KeyOp::HashPut { .. } | KeyOp::HashUpdate { .. } => Some((ValueType::Hash, true)),
        KeyOp::HashRemove { .. } | KeyOp::HashSetExpiry { .. } => Some((ValueType::Hash, false)),
        KeyOp::StreamAdd { .. } | KeyOp::StreamPutGroup { .. } => Some((ValueType::Stream, true)),
        KeyOp::StreamAddBlock { .. }
        | KeyOp::StreamTrim { .. }
        | KeyOp::StreamDelete { .. }
        | KeyOp::StreamSetHead { .. }
        | KeyOp::StreamDropGroup { .. }
        | KeyOp::StreamPutConsumer { .. }
        | KeyOp::StreamDropConsumer { .. }
        | KeyOp::StreamPend { .. }
        | KeyOp::StreamUnpend { .. } => Some((ValueType::Stream, false)),
        KeyOp::Put { .. }
        | KeyOp::Delete
        | KeyOp::SetExpiry { .. }
        | KeyOp::Append { .. }
        | KeyOp::SetRange { .. } => None,
    }
}

/// Applies an operation to an entry of its type. Memory that would take long to free goes to `freed`.
#[inline]
pub(crate) fn edit(entry: &mut Entry, op: &KeyOp<'_>, rules: &Rules, freed: &mut Freed) -> Applied {
    match *op {
        KeyOp::ListPush { end, items } => list::push(entry, end, items, rules),
        KeyOp::ListPop { end, count } => list::pop(entry, end, count, freed),
        KeyOp::ListSet { index, item } => list::set(entry, index, item, rules),
        KeyOp::ListInsert { index, item } => list::insert(entry, index, item, rules),
        KeyOp::ListRemove { end, count, item } => list::remove(entry, end, count, item),
        KeyOp::SetAdd { members } => set::add(entry, members, rules),
        KeyOp::SetRemove { members } => set::remove(entry, members),
        KeyOp::ZsetPut { members } => zset::put(entry, members, rules),
        KeyOp::ZsetRemove { members } => zset::remove(entry, members),
        KeyOp::ZsetRemoveRanks { first, count } => zset::remove_ranks(entry, first, count),
        KeyOp::HashPut { pairs } => hash::put(entry, pairs, false, rules, freed),
        KeyOp::HashUpdate { pairs } => hash::put(entry, pairs, true, rules, freed),
        KeyOp::HashRemove { fields } => hash::remove(entry, fields),
        KeyOp::HashSetExpiry { fields, expire_at_ms } => hash::set_expiry(entry, fields, expire_at_ms, rules),
        _ => stream::edit(entry, op, freed),
    }
}
