//! Capturing: slots on their way into a snapshot, each exactly as it was at one moment, while writers go on.
//!
//! What it is: `Capture`, which walks a range of slots and writes their content as a stream of bytes, and
//! `Loader`, which fills slots from such a stream. The owner of the stream (a snapshot) may cut it into
//! chunks of any size. What it is not: aware of files, threads or pace.
//!
//! The moment of a slot is the time at which the walk first locks the slot. The rest of the slot is captured
//! in further steps, none of which holds the lock for long. An entry that changes before its turn is captured
//! before the change (`slot`). The same holds for a segment of a big collection (`field_map`) and for a block
//! of a stream (`stream`). A long list is shared and written without the lock; an edit copies the chunk that
//! it changes (`long_list`). So the whole slot is captured as it was when its `last_lsn` had the value that
//! is in the stream.
//!
//! A follower must apply every Move that its leader has logged, even if the destination is captured already
//! and the source is not. The moment of the source is then taken just before the Move, ahead of the walk
//! (`early`). From then on, entries of the source are captured before they change, as in the slot that the
//! walk is in.
//!
//! # Stream
//! For each slot, the stream has a head and then rows and effects (see [`crate::Effect`]), which make the
//! content of the slot if it is empty before. A key with a big collection, or with a string above
//! `STRING_PIECE_BYTES`, is a Put and effects that add to its value, in order. Every other key is a row with
//! the bytes of its value.
//!
//! ```text
//! head:  0  u8   0xfe, which no effect begins with
//!        1  u16  slot, little-endian
//!        3  u64  its last LSN
//!       11  u32  about how many keys follow, so that a loader can make room
//!
//! row:   0  u8   0xfd, which no effect begins with
//!        1  u8   database
//!        2  u8   type of the value: 0 string, 1 list, 2 set, 3 sorted set, 4 hash; and 0x80 if it expires
//!        3  LEB128 numbers: deadline in Unix ms if it expires; length of key; length of payload
//!       ..  key, payload: of a string its bytes, of a collection its packed form (see `collection`)
//! ```
//! The libraries of functions, and the settings that belong to the data, stand among the effects of [their
//! slot](crate::libraries::LIBRARIES_SLOT).
//!
//! A slot without keys and without a record is left out. A slot that has become empty is not left out,
//! because a replay needs its LSN.
//!
//! Invariants
//! - Everything between two heads belongs to the slot of the first head.

mod early;
mod load;
mod row;
mod slot;

use std::collections::VecDeque;

pub(crate) use early::{EarlySlots, Moment};
pub use load::{LoadError, Loader};
use lsn::Lsn;
pub(crate) use slot::{Impact, SlotCapture};

use crate::collection::LongList;
use crate::effect::{ItemsBuf, KeyOp};
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::slot::SlotGuard;
use crate::value::Value;

/// The first byte of a head.
pub(crate) const HEAD: u8 = 0xfe;
const HEAD_BYTES: usize = 15;
/// Strings above this size go into the stream in pieces of this size.
const STRING_PIECE_BYTES: usize = if cfg!(test) { 1000 } else { 1 << 20 };

/// Captures a range of slots, in short steps.
pub struct Capture<'k> {
    keyspace: &'k Keyspace,
    /// The slot that is captured next, and the last slot.
    next: Option<SlotId>,
    last: SlotId,
    /// Whether the slot that was begun last has a remainder to capture, apart from its long lists.
    is_in_slot: bool,
    /// Long lists of the slot that was begun last; they are still to be captured.
    lists: VecDeque<SharedList>,
    /// Bytes copied ahead of the walk, and not reported yet.
    copied_bytes: u64,
    /// Bytes that did not fit into the previous piece.
    carried: Vec<u8>,
    /// The slot that was begun last, and its LSN.
    slot: SlotId,
    lsn: Lsn,
}

/// A description of one piece of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The slot that the first byte belongs to.
    pub first_slot: SlotId,
    /// Whether the piece continues the slot in which the previous piece ended.
    pub continues: bool,
    /// The number of keys of the slots that begin in the piece, even if later pieces have some of these keys.
    pub keys: u32,
    /// An LSN that is not below the LSN of any slot in the piece.
    pub lsn: Lsn,
}

/// A long list as it was at the moment of its slot.
struct SharedList {
    db: DbId,
    key: Box<[u8]>,
    expire_at_ms: Option<u64>,
    list: LongList,
    /// Elements in the stream so far.
    done: usize,
}

impl<'k> Capture<'k> {
    /// Captures the slots from `first` to `last`, both included.
    pub fn new(keyspace: &'k Keyspace, first: SlotId, last: SlotId) -> Self {
        Capture {
            keyspace,
            next: Some(first),
            last,
            is_in_slot: false,
            copied_bytes: 0,
            lists: VecDeque::new(),
            carried: Vec::new(),
            slot: first,
            lsn: Lsn::ZERO,
        }
    }

    /// The slot that comes next, for progress; `None` when all have begun.
    pub fn next_slot(&self) -> Option<SlotId> {
        self.next
    }

    /// Bytes copied ahead of the walk that the steps since the last call have counted. Most of these bytes
    /// were copied because they were about to change.
    pub fn take_copied_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.copied_bytes)
    }

    /// Replaces `stream` by the next piece: about `aim_bytes`, never more than `max_bytes`. `None` at the
    /// end.
    ///
    /// A piece that continues a slot holds nothing of the next slot. Such a piece can only be loaded after
    /// the piece before it, and the next slot must not depend on that order.
    pub fn fill(&mut self, stream: &mut Vec<u8>, aim_bytes: usize, max_bytes: usize) -> Option<Captured> {
        stream.clear();
        stream.append(&mut self.carried);
        let continues = !stream.is_empty() || !self.has_ended();
        let mut captured = Captured { first_slot: self.slot, continues, keys: 0, lsn: Lsn::ZERO };
        if continues {
            captured.lsn = self.lsn;
        }
        while stream.len() < aim_bytes {
            if !self.has_ended() {
                self.go_on(stream, aim_bytes - stream.len());
                continue;
            }
            if captured.continues && !stream.is_empty() {
                break;
            }
            // If the piece was to continue a slot, the rest of that slot has given no bytes.
            captured.continues = false;
            let Some(slot) = self.next else { break };
            self.next = slot.next().filter(|&next| next <= self.last);
            if stream.is_empty() {
                captured.first_slot = slot;
            }
            // A slot that begins within a piece gets as many bytes as a whole piece, so that it is not split
            // only because it begins late in the piece.
            captured.keys += self.begin(slot, stream, aim_bytes);
            captured.lsn = captured.lsn.max(self.lsn);
        }
        if stream.len() > max_bytes {
            self.carried = stream.split_off(max_bytes);
        }
        (!stream.is_empty()).then_some(captured)
    }

    /// Whether all of the slot that was begun last is captured.
    fn has_ended(&self) -> bool {
        !self.is_in_slot && self.lists.is_empty()
    }

    /// Begins to capture a slot, as of now, or as of an earlier moment if a Move has had the slot captured
    /// early. Returns the number of its keys.
    fn begin(&mut self, slot: SlotId, stream: &mut Vec<u8>, wanted: usize) -> u32 {
        let mut guard = self.keyspace.lock(slot);
        let early = self.keyspace.take_early(&mut guard);
        let (moment, capture) =
            early.map_or_else(|| (Moment::of(&guard), Box::new(SlotCapture::new())), |early| *early);
        self.keyspace.captured.set(slot, true);
        let Moment { lsn, keys, libraries, settings } = moment;
        (self.slot, self.lsn) = (slot, lsn);
        if lsn == Lsn::ZERO && keys == 0 {
            return 0;
        }
        stream.push(HEAD);
        stream.extend_from_slice(&slot.get().to_le_bytes());
        stream.extend_from_slice(&self.lsn.get().to_le_bytes());
        stream.extend_from_slice(&keys.to_le_bytes());
        self.step(guard, capture, stream, wanted);
        for library in libraries.iter().flat_map(|libraries| libraries.iter()) {
            library.with_effect(|effect| effect.encode_into(stream));
        }
        for effect in settings.iter().flat_map(|settings| settings.effects()) {
            effect.encode_into(stream);
        }
        keys
    }

    /// Continues with the rest of the slot.
    fn go_on(&mut self, stream: &mut Vec<u8>, wanted: usize) {
        if let Some(list) = self.lists.front_mut() {
            if list.put_some(stream, wanted) {
                self.lists.pop_front();
            }
            return;
        }
        let mut guard = self.keyspace.lock(self.slot);
        let capture = guard.state.extra.as_mut().and_then(|extra| extra.capture.take());
        self.step(guard, capture.expect("a capture is in progress"), stream, wanted);
    }

    fn step(
        &mut self,
        mut guard: SlotGuard<'_>,
        mut capture: Box<SlotCapture>,
        stream: &mut Vec<u8>,
        wanted: usize,
    ) {
        let part = capture.step(&mut guard, stream, wanted);
        self.copied_bytes += std::mem::take(&mut capture.copied_bytes);
        self.lists.extend(capture.lists.drain(..));
        let garbage = std::mem::take(&mut capture.garbage);
        self.is_in_slot = !capture.has_ended();
        if self.is_in_slot {
            guard.state.extra.get_or_insert_default().capture = Some(capture);
        }
        // Long work is done without the lock.
        drop(guard);
        drop(garbage);
        if let Some(part) = part {
            part.put(stream);
        }
    }
}

impl Drop for Capture<'_> {
    /// Takes the state of an abandoned capture out of its slot, and holds the lock only for a short time.
    fn drop(&mut self) {
        if !self.is_in_slot {
            return;
        }
        let mut guard = self.keyspace.lock(self.slot);
        let capture = guard.state.extra.as_mut().and_then(|extra| extra.capture.take());
        if let Some(capture) = &capture {
            capture.abandon(&mut guard);
        }
        // Detached memory can take long to free: not under the lock.
        drop(guard);
        drop(capture);
    }
}

impl SharedList {
    fn new(db: DbId, key: Box<[u8]>, expire_at_ms: Option<u64>, list: LongList) -> Self {
        SharedList { db, key, expire_at_ms, list, done: 0 }
    }

    /// Adds about `wanted` bytes of elements to the stream; returns whether these were the last.
    fn put_some(&mut self, stream: &mut Vec<u8>, wanted: usize) -> bool {
        let mut items = ItemsBuf::new();
        let mut taken = 0;
        for element in self.list.range(self.done..self.list.len()) {
            items.push(&element);
            taken += 1;
            if items.size_bytes() >= wanted {
                break;
            }
        }
        let (db, key, items) = (self.db, &*self.key, items.as_items());
        let effect = match self.done {
            0 => KeyOp::Put { value: Value::List(items), expire_at_ms: self.expire_at_ms }.on(db, key),
            _ => KeyOp::ListPush { end: crate::ListEnd::Tail, items }.on(db, key),
        };
        effect.encode_into(stream);
        self.done += taken;
        self.done == self.list.len()
    }
}

#[cfg(test)]
mod tests;
