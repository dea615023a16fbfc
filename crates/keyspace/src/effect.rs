//! Effects: the changes of the keyspace, which log records contain besides messages and changes of documents.
//!
//! What it is: deterministic changes (after-images or operations on one key, absolute deadlines) and their
//! compact encoding. Applying the same effects in the same order gives the same data: live, in recovery, on a
//! replica. What it is not: a command. Conditions (NX, XX, types, limits) were decided before an effect was
//! made.
//!
//! Invariants
//! - An effect touches one slot (`Scope::Slot`) or all slots (`Scope::Global`). Only a Move touches the slots
//!   of two keys (`Scope::Two`). Code that splits effects by slot must bring the work on these two slots
//!   together.
//! - Applying never fails. On an absent key, Put, Append, SetRange, ListPush, SetAdd, ZsetPut, HashPut,
//!   HashUpdate, StreamAdd and StreamPutGroup create the key; other operations do nothing. An expired but not
//!   yet deleted key is present for all effects: the maker of an effect that relies on the key's absence
//!   deletes the key first.
//! - An operation on the value of one type does nothing to a key of another type. A collection that becomes
//!   empty is removed with its key, but a stream is not.
//! - Decoding arbitrary bytes never panics and never reads past their end. Every effect has exactly one
//!   encoding.
//!
//! ```text
//! KeyOp::Append { suffix }.on(db, key)  =  Effect::Key { db, key, op: KeyOp::Append { suffix } }
//! ```
//!
//! An operation on a key is named in [`KeyOp`], encoded and decoded in `codec`, and applied in `apply` or, on
//! a collection, in `collection`.
//!
//! # Encoding
//! An effect is an opcode byte followed by the fields below; `db` is one byte 0..=15, numbers are LEB128
//! (shortest form), `bytes` is a length (LEB128) and that many bytes. A SET of a small value takes 4 bytes
//! besides the key and the value.
//!
//! | opcode | effect | fields |
//! |--------|--------|--------|
//! | 0x00 | never used: zeroed memory does not decode | |
//! | 0x01 | Delete | db, key bytes |
//! | 0x02 | SetExpiry, to none | db, key bytes |
//! | 0x03 | SetExpiry | db, key bytes, deadline in Unix ms |
//! | 0x04 | Move | db, key bytes, db and key bytes of the new place |
//! | 0x10 | Put of a string that never expires | db, key bytes, value bytes |
//! | 0x11 | Put of a string | db, key bytes, value bytes, deadline in Unix ms |
//! | 0x12 | Append | db, key bytes, suffix bytes |
//! | 0x13 | SetRange | db, key bytes, offset, bytes |
//! | 0x14, 0x15 | Put of a list, that never expires or expires | db, key bytes, items, (deadline) |
//! | 0x16, 0x17 | Put of a set | as a list |
//! | 0x18, 0x19 | Put of a sorted set | db, key bytes, scored items, (deadline) |
//! | 0x1a, 0x1b | Put of a hash | as a list; fields and values in turn |
//! | 0x1c, 0x1d | Put of a stream without entries | db, key bytes, head, (deadline) |
//! | 0x20, 0x21 | ListPush at the head, at the tail | db, key bytes, items |
//! | 0x22, 0x23 | ListPop at the head, at the tail | db, key bytes, count |
//! | 0x24 | ListSet | db, key bytes, index, item bytes |
//! | 0x25 | ListInsert | db, key bytes, index, item bytes |
//! | 0x26, 0x27 | ListRemove from the head on, from the tail on | db, key bytes, count, item bytes |
//! | 0x30 | SetAdd | db, key bytes, items |
//! | 0x31 | SetRemove | db, key bytes, items |
//! | 0x40 | ZsetPut | db, key bytes, scored items |
//! | 0x41 | ZsetRemove | db, key bytes, items |
//! | 0x42 | ZsetRemoveRanks | db, key bytes, first rank, count |
//! | 0x50 | HashPut | db, key bytes, items: fields and values in turn |
//! | 0x51 | HashUpdate | as HashPut |
//! | 0x52 | HashRemove | db, key bytes, items |
//! | 0x53 | HashSetExpiry, to none | db, key bytes, items |
//! | 0x54 | HashSetExpiry | db, key bytes, items, deadline in Unix ms |
//! | 0x60 | StreamAdd | db, key bytes, id, items: fields and values in turn |
//! | 0x61 | StreamAddBlock | db, key bytes, bytes of a [block](StreamBlock) |
//! | 0x62 | StreamTrim | db, key bytes, id |
//! | 0x63 | StreamDelete | db, key bytes, ids |
//! | 0x64 | StreamSetHead | db, key bytes, head |
//! | 0x65 | StreamPutGroup | db, key bytes, group bytes, last id, entries read plus 1, or 0 if unknown |
//! | 0x66 | StreamDropGroup | db, key bytes, group bytes |
//! | 0x67 | StreamPutConsumer | db, key bytes, group bytes, consumer bytes, seen, active |
//! | 0x68 | StreamDropConsumer | db, key bytes, group bytes, consumer bytes |
//! | 0x69 | StreamPend | db, key bytes, group bytes, consumer bytes, deliveries |
//! | 0x6a | StreamUnpend | db, key bytes, group bytes, ids |
//! | 0x70 | no effect but a [message](LoggedMessage) to a durable channel | channel bytes, payload bytes |
//! | 0x71 | no effect but a [change of documents](Item::Documents) | bytes |
//! | 0x78 | Library | name bytes, code bytes, items: three for each function |
//! | 0x79 | Library, removed | name bytes |
//! | 0x7a | Setting | name bytes, value bytes |
//! | 0x7b | Setting, removed | name bytes |
//! | 0xf0 | FlushDb | db |
//! | 0xf1 | FlushAll | |
//! | 0xf2 | SwapDb | db, db |
//!
//! - An id of a stream is two numbers, ms and seq.
//! - A head is the last id, the highest deleted id and the number of entries ever added.
//! - A delivery is an id, a time in Unix ms and a count.
//! - `ids` and `deliveries` are a number, and then as many ids or deliveries.
//! - `seen` and `active` of a consumer are times in Unix ms. `active` is stored plus 1, or as 0 if the
//!   consumer was never active.

mod codec;
mod items;
mod listed;
mod message;

pub(crate) use codec::Reader;
pub use items::{EncodedItems, Items, ItemsBuf, ScoredItems, ScoredItemsBuf};
pub use listed::{Listable, Listed};
pub use message::{Item, LoggedMessage, encode_documents_into};

use crate::collection::{ConsumerTimes, Delivery, GroupPosition, StreamBlock, StreamHead, StreamId};
use crate::id::DbId;
use crate::libraries::LIBRARIES_KEY;
use crate::value::Value;

/// The maximum end of the range of a SetRange, so that a forged effect cannot demand an unlimited amount of
/// memory.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

/// One deterministic change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<'a> {
    /// Does one operation on one key: changes, creates or removes its value, or sets its deadline.
    Key {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// The operation.
        op: KeyOp<'a>,
    },
    /// Moves a value to another key, with its deadline and the deadlines of its fields, and replaces a value
    /// at that key. Does nothing if the old key is absent, or if both keys are the same. The size of the
    /// encoding depends on the keys, not on the value.
    Move {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// Database of the new key.
        to_db: DbId,
        /// The new key.
        to_key: &'a [u8],
    },
    /// Puts a library of functions, which replaces a library of the same name, or removes the library with
    /// the name.
    Library {
        /// The name of the library.
        name: &'a [u8],
        /// The new content of the library; `None` to remove the library.
        content: Option<LibraryContent<'a>>,
    },
    /// Puts or removes a setting that belongs to the data.
    Setting {
        /// The name of the setting.
        name: &'a [u8],
        /// The value of the setting as text; `None` to remove the setting.
        value: Option<&'a [u8]>,
    },
    /// Changes whole databases.
    Global(GlobalOp),
}

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOp<'a> {
    /// Creates the key, or replaces its value, of whatever type, and its deadline.
    Put {
        /// The new value.
        value: Value<'a>,
        /// Unix time in milliseconds at which the key expires; `None` for never.
        expire_at_ms: Option<u64>,
    },
    /// Removes the key.
    Delete,
    /// Sets or removes the deadline of the key.
    SetExpiry {
        /// Unix time in milliseconds at which the key expires; `None` for never.
        expire_at_ms: Option<u64>,
    },
    /// Adds bytes to the end of a string. Keeps the deadline.
    Append {
        /// The added bytes.
        suffix: &'a [u8],
    },
    /// Overwrites part of a string. A string shorter than `offset` is first padded with zero bytes. Keeps the
    /// deadline.
    SetRange {
        /// The position at which the bytes are written, in bytes from the start of the value. The end of the
        /// written bytes is at most [`STRING_BYTES_MAX`].
        offset: u64,
        /// The bytes to write.
        bytes: &'a [u8],
    },
    /// Adds elements to one end of a list, one after the other, so the last element becomes the outermost.
    /// Keeps the deadline of the key.
    ListPush {
        /// The end at which the elements are added.
        end: ListEnd,
        /// The added elements, in the order in which they are added.
        items: Items<'a>,
    },
    /// Removes elements from one end of a list.
    ListPop {
        /// The end at which the elements are removed.
        end: ListEnd,
        /// The number of elements to remove; all are removed if there are fewer.
        count: u64,
    },
    /// Replaces the element at an index of a list; does nothing if the list is too short.
    ListSet {
        /// The index of the element, counted from the head, which is 0.
        index: u64,
        /// The new element.
        item: &'a [u8],
    },
    /// Adds an element to a list at an index, which may be the length of the list; does nothing if the index
    /// is higher.
    ListInsert {
        /// The index that the element will have.
        index: u64,
        /// The new element.
        item: &'a [u8],
    },
    /// Removes the elements of a list that equal an item.
    ListRemove {
        /// The end at which the search begins.
        end: ListEnd,
        /// The maximum number of elements to remove; 0 for all.
        count: u64,
        /// The value of the elements.
        item: &'a [u8],
    },
    /// Adds members to a set. Keeps the deadline.
    SetAdd {
        /// The members.
        members: Items<'a>,
    },
    /// Removes members from a set.
    SetRemove {
        /// The members.
        members: Items<'a>,
    },
    /// Adds members to a sorted set, or gives them other scores. Keeps the deadline.
    ZsetPut {
        /// The members with their new scores.
        members: ScoredItems<'a>,
    },
    /// Removes members from a sorted set.
    ZsetRemove {
        /// The members.
        members: Items<'a>,
    },
    /// Removes the members of a sorted set that have these ranks, counted from the lowest score.
    ZsetRemoveRanks {
        /// The first rank.
        first: u64,
        /// The number of members; all from `first` on are removed if there are fewer.
        count: u64,
    },
    /// Sets fields of a hash and removes the deadlines of these fields. Keeps the deadline of the key.
    HashPut {
        /// Fields and values in turn.
        pairs: Items<'a>,
    },
    /// Sets fields of a hash and keeps their deadlines.
    HashUpdate {
        /// Fields and values in turn.
        pairs: Items<'a>,
    },
    /// Removes fields from a hash.
    HashRemove {
        /// The fields.
        fields: Items<'a>,
    },
    /// Sets or removes the deadline of fields that a hash has.
    HashSetExpiry {
        /// The fields.
        fields: Items<'a>,
        /// Unix time in milliseconds at which the fields expire; `None` for never.
        expire_at_ms: Option<u64>,
    },
    /// Adds an entry to a stream, unless the last id of the stream's head is this id or a higher one.
    StreamAdd {
        /// The id of the entry.
        id: StreamId,
        /// Fields and values in turn.
        pairs: Items<'a>,
    },
    /// Adds the entries of a block to a stream. Adds none if an id in the block is above the last id of the
    /// stream's head, or if the block's range of ids overlaps that of an existing block.
    StreamAddBlock {
        /// The entries.
        block: StreamBlock<'a>,
    },
    /// Removes the first entries of a stream.
    StreamTrim {
        /// The highest id that is removed.
        through: StreamId,
    },
    /// Removes entries of a stream; ignores ids of absent entries.
    StreamDelete {
        /// The ids of the entries.
        ids: Listed<'a, StreamId>,
    },
    /// Sets the counter and the ids of a stream's head. If the given last id is below the id of the last
    /// entry, the head gets the id of the last entry instead.
    StreamSetHead {
        /// The counter and the ids.
        head: StreamHead,
    },
    /// Makes a group of a stream, or sets the position of the group; makes the stream if it is absent.
    StreamPutGroup {
        /// The name of the group.
        group: &'a [u8],
        /// The position of the group.
        position: GroupPosition,
    },
    /// Removes a group of a stream.
    StreamDropGroup {
        /// The name of the group.
        group: &'a [u8],
    },
    /// Makes a consumer of an existing group, or sets the times of the consumer.
    StreamPutConsumer {
        /// The name of the group.
        group: &'a [u8],
        /// The name of the consumer.
        consumer: &'a [u8],
        /// The times of the consumer's last actions.
        times: ConsumerTimes,
    },
    /// Removes a consumer of a group. The entries that are pending for it are no longer pending, and stay in
    /// the stream.
    StreamDropConsumer {
        /// The name of the group.
        group: &'a [u8],
        /// The name of the consumer.
        consumer: &'a [u8],
    },
    /// Makes entries pending for an existing consumer, and for no other consumer of the group. Also sets the
    /// times and counts of their deliveries.
    StreamPend {
        /// The name of the group.
        group: &'a [u8],
        /// The name of the consumer.
        consumer: &'a [u8],
        /// The entries.
        deliveries: Listed<'a, Delivery>,
    },
    /// Acknowledges entries of a group, so that they are no longer pending.
    StreamUnpend {
        /// The name of the group.
        group: &'a [u8],
        /// The ids of the entries.
        ids: Listed<'a, StreamId>,
    },
}

/// An operation on whole databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GlobalOp {
    /// Removes every key of a database.
    FlushDb {
        /// The database.
        db: DbId,
    },
    /// Removes every key, every library and every setting.
    FlushAll,
    /// Exchanges the content of two databases.
    SwapDb {
        /// One database.
        a: DbId,
        /// The other database.
        b: DbId,
    },
}

/// The content of a library of functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LibraryContent<'a> {
    /// The source of the library.
    pub code: &'a [u8],
    /// Three items for each function: its name; a byte of [flags](crate::FunctionFlags) and a byte that is 1
    /// if the function has a description, else 0; its description.
    pub functions: Items<'a>,
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListEnd {
    /// The left end, where indices begin.
    Head,
    /// The right end.
    Tail,
}

/// The slots that an effect touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope<'a> {
    /// The slot of this key. Libraries and settings have the slot of a fixed key.
    Slot(&'a [u8]),
    /// The slots of two keys, the source and the destination, which may be the same slot.
    Two(&'a [u8], &'a [u8]),
    /// Every slot.
    Global,
}

impl<'a> KeyOp<'a> {
    /// The effect that does this operation on a key.
    #[inline]
    pub const fn on(self, db: DbId, key: &'a [u8]) -> Effect<'a> {
        Effect::Key { db, key, op: self }
    }
}

impl<'a> Effect<'a> {
    /// The database and key of an effect on one key; `None` for other effects, including a Move.
    #[inline]
    pub const fn target(&self) -> Option<(DbId, &'a [u8])> {
        match *self {
            Effect::Key { db, key, .. } => Some((db, key)),
            _ => None,
        }
    }

    /// Whether the effect can create the value, or add the elements, that a blocked client waits for. `false`
    /// for global effects, although a SwapDb can do so.
    #[inline]
    pub const fn fills(&self) -> bool {
        let Effect::Key { op, .. } = self else { return matches!(self, Effect::Move { .. }) };
        match op {
            KeyOp::ListPush { .. }
            | KeyOp::ZsetPut { .. }
            | KeyOp::StreamAdd { .. }
            | KeyOp::StreamAddBlock { .. } => true,
            KeyOp::Put { value, .. } => matches!(value, Value::List(_) | Value::Zset(_) | Value::Stream(_)),
            _ => false,
        }
    }

    /// Whether the effect is an operation on one key that can remove a stream or one of its groups, for which
    /// clients may wait. `false` for a Move and for global effects, although they can do so, too.
    #[inline]
    pub const fn takes_away(&self) -> bool {
        use KeyOp::{Delete, Put, StreamDropGroup};
        matches!(self, Effect::Key { op: Put { .. } | Delete | StreamDropGroup { .. }, .. })
    }

    /// Whether the effect changes only the groups and the head of a stream. `true` for every StreamPutGroup,
    /// even for one that makes the stream.
    #[inline]
    pub const fn keeps_entries(&self) -> bool {
        let Effect::Key { op, .. } = self else { return false };
        matches!(
            op,
            KeyOp::StreamSetHead { .. }
                | KeyOp::StreamPutGroup { .. }
                | KeyOp::StreamDropGroup { .. }
                | KeyOp::StreamPutConsumer { .. }
                | KeyOp::StreamDropConsumer { .. }
                | KeyOp::StreamPend { .. }
                | KeyOp::StreamUnpend { .. }
        )
    }

    /// The slots that the effect touches.
    #[inline]
    pub const fn scope(&self) -> Scope<'a> {
        match *self {
            Effect::Key { key, .. } => Scope::Slot(key),
            Effect::Move { key, to_key, .. } => Scope::Two(key, to_key),
            Effect::Library { .. } | Effect::Setting { .. } => Scope::Slot(LIBRARIES_KEY),
            Effect::Global(_) => Scope::Global,
        }
    }

    /// The database of an effect on one key.
    #[inline]
    pub const fn db(&self) -> Option<DbId> {
        match *self {
            Effect::Key { db, .. } => Some(db),
            _ => None,
        }
    }

    /// The key of an effect on one key.
    #[inline]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Effect::Key { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// Why bytes are not an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EffectError {
    /// The bytes end inside an effect, or the last field of a hash or of a stream's entry has no value.
    #[error("effect is cut short")]
    Truncated,
    /// No effect has this opcode.
    #[error("unknown effect opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The database number is not 0..=15.
    #[error("effect names database {0}, which does not exist")]
    UnknownDb(u8),
    /// A number is longer than it has to be or does not fit its type, a score is NaN, or a range ends beyond
    /// the longest string.
    #[error("effect holds a malformed number")]
    MalformedNumber,
    /// The block of a StreamAddBlock is malformed.
    #[error("effect holds a malformed block of a stream")]
    MalformedBlock,
    /// A Put of a list, set, sorted set or hash without elements.
    #[error("effect holds an empty collection")]
    EmptyCollection,
}

#[cfg(test)]
mod tests;
