//! Capturing: slots on their way into a snapshot, each exactly as it was at one moment, while writers go on.
//!
//! What it is: `Capture`, which walks a range of slots and writes what is in them as a stream of bytes, and `Loader`, which
//! makes slots of such a stream. Whoever keeps the stream (a snapshot) may cut it into chunks of any size.
//! What it is not: aware of files, threads or pace.
//!
//! The moment of a slot is when the walk locks it: all its small entries are copied then. Big collections only begin to be
//! captured: a list is shared, and what changes later is copied first (`long_list`); the others are walked in bounded steps,
//! and a segment that changes before its turn is copied first (`field_map`). So no step takes long, and all of the slot is
//! of the moment at which its `last_lsn` was what the stream says.
//!
//! # Stream
//! For each slot a head and then rows and effects (see [`Effect`]), which on an empty slot make what was there: a row for a key
//! whose value is one piece of memory, with that memory; Puts and effects that add to them, in order, for what is large.
//!
//! ```text
//! head:  0  u8   0xfe, which no effect begins with
//!        1  u16  slot, little-endian
//!        3  u64  its last LSN
//!       11  u32  about how many keys follow, to make room for
//!
//! row:   0  u8   0xfd, which no effect begins with
//!        1  u8   database
//!        2  u8   type of the value: 0 string, 1 list, 2 set, 3 sorted set, 4 hash; and 0x80 if it expires
//!        3  LEB128 numbers: deadline in Unix ms if it expires; bytes of key; bytes of payload
//!       ..  key, payload: of a string its bytes, of a collection its packed form (see `collection`)
//! ```
//! A slot that never had a record is left out; one that is empty now is not, because its LSN counts.
//!
//! Invariants
//! - Effects of a slot follow its head, and no other head comes between.
//! - A collection that is being captured is at its key, or detached into `CapturedMaps` by what removed it from there.

mod load;
mod row;

use std::collections::VecDeque;

pub use load::{LoadError, Loader};
use lsn::Lsn;
use row::Row;

use crate::collection::part::Part;
use crate::collection::{Big, LongList, View};
use crate::effect::{Effect, ItemsBuf};
use crate::entry::{Entry, EntryRef};
use crate::hash::KeyHash;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::slot::SlotGuard;
use crate::table::Table;
use crate::value::{Value, ValueType};

/// The first byte of a head.
const HEAD: u8 = 0xfe;
/// Bytes of a head.
const HEAD_BYTES: usize = 15;
/// Strings above this size go into the stream in pieces of it.
const STRING_PIECE_BYTES: usize = 1 << 20;

/// Captures a range of slots. See the module documentation.
pub struct Capture<'k> {
    keyspace: &'k Keyspace,
    /// The slot to go on with, and the last one.
    next: Option<SlotId>,
    last: SlotId,
    /// What is left to do of the slot before.
    rest: Option<Rest>,
    /// Bytes that did not fit into the chunk before.
    carried: Vec<u8>,
    /// The slot that was begun last, and its LSN.
    slot: SlotId,
    lsn: Lsn,
}

/// A piece of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The slot that the first byte belongs to.
    pub first_slot: SlotId,
    /// Whether it goes on with the slot that the piece before ended in.
    pub continues: bool,
    /// Keys that begin here.
    pub keys: u32,
    /// The highest LSN of the slots in it.
    pub lsn: Lsn,
}

/// What is left to do of a slot.
#[derive(Default)]
struct Rest {
    lists: VecDeque<SharedList>,
    maps: VecDeque<BigMap>,
}

/// A long list as it was.
struct SharedList {
    db: DbId,
    key: Box<[u8]>,
    expire_at_ms: Option<u64>,
    list: LongList,
    /// Elements in the stream so far.
    done: usize,
}

/// A collection that is captured step by step.
struct BigMap {
    db: DbId,
    key: Box<[u8]>,
    expire_at_ms: Option<u64>,
    is_new: bool,
}

impl<'k> Capture<'k> {
    /// Captures the slots from `first` to `last`, both included.
    pub fn new(keyspace: &'k Keyspace, first: SlotId, last: SlotId) -> Self {
        Capture {
            keyspace,
            next: Some(first),
            last,
            rest: None,
            carried: Vec::new(),
            slot: first,
            lsn: Lsn::ZERO,
        }
    }

    /// The slot that comes next, for progress; `None` when all have begun.
    pub fn next_slot(&self) -> Option<SlotId> {
        self.next
    }

    /// Replaces `stream` by the next piece: about `aim_bytes`, never more than `max_bytes`. `None` at the end.
    ///
    /// A piece that continues ends where the slot does, so that what must be loaded one after the other stays short.
    pub fn fill(&mut self, stream: &mut Vec<u8>, aim_bytes: usize, max_bytes: usize) -> Option<Captured> {
        stream.clear();
        stream.append(&mut self.carried);
        let continues = !stream.is_empty() || self.rest.is_some();
        let mut captured = Captured { first_slot: self.slot, continues, keys: 0, lsn: Lsn::ZERO };
        if continues {
            captured.lsn = self.lsn;
        }
        while stream.len() < aim_bytes {
            if self.rest.is_some() {
                self.go_on(stream, aim_bytes);
                continue;
            }
            if continues {
                break;
            }
            let Some(slot) = self.next else { break };
            self.next = slot.next().filter(|&next| next <= self.last);
            if stream.is_empty() {
                captured.first_slot = slot;
            }
            captured.keys += self.begin(slot, stream);
            captured.lsn = captured.lsn.max(self.lsn);
        }
        if stream.len() > max_bytes {
            self.carried = stream.split_off(max_bytes);
        }
        (!stream.is_empty()).then_some(captured)
    }

    /// The moment of a slot. Returns how many keys begin here.
    fn begin(&mut self, slot: SlotId, stream: &mut Vec<u8>) -> u32 {
        let mut guard = self.keyspace.lock(slot);
        self.keyspace.captured.set(slot, true);
        (self.slot, self.lsn) = (slot, guard.last_lsn());
        if self.lsn == Lsn::ZERO && guard.is_empty() {
            return 0;
        }
        let keys: usize = DbId::all().map(|db| guard.len(db)).sum();
        stream.push(HEAD);
        stream.extend_from_slice(&slot.get().to_le_bytes());
        stream.extend_from_slice(&self.lsn.get().to_le_bytes());
        stream.extend_from_slice(&(keys as u32).to_le_bytes());
        let mut big = Vec::new();
        for db in DbId::all() {
            for entry in guard.entries(db) {
                if entry.is_big() {
                    big.push((db, Box::<[u8]>::from(entry.key())));
                } else {
                    put_small(db, entry, stream);
                }
            }
        }
        if !big.is_empty() {
            self.rest = Some(Rest::begin(&mut guard, big));
        }
        keys as u32
    }

    /// Goes on with what is left of the slot.
    fn go_on(&mut self, stream: &mut Vec<u8>, aim_bytes: usize) {
        let Some(rest) = &mut self.rest else { return };
        let wanted = aim_bytes.saturating_sub(stream.len());
        if let Some(list) = rest.lists.front_mut() {
            if list.put_some(stream, wanted) {
                rest.lists.pop_front();
            }
        } else if let Some(map) = rest.maps.front_mut() {
            let (part, has_ended) = capture_step(self.keyspace, self.slot, map, wanted);
            map.put(&part, stream);
            if has_ended {
                rest.maps.pop_front();
            }
        }
        if rest.lists.is_empty() && rest.maps.is_empty() {
            self.rest = None;
        }
    }
}

impl Drop for Capture<'_> {
    /// A capture that is given up leaves nothing behind, and keeps nobody waiting.
    fn drop(&mut self) {
        if self.rest.is_none() {
            return;
        }
        let mut guard = self.keyspace.lock(self.slot);
        let captured = guard.state.extra.as_mut().and_then(|extra| extra.captured.take());
        for map in captured.iter().flat_map(|captured| &captured.maps) {
            map.abandon(&mut guard);
        }
        // What is detached can take long to free: not under the lock.
        drop(guard);
        drop(captured);
    }
}

impl Rest {
    /// Begins to capture big collections.
    fn begin(guard: &mut SlotGuard<'_>, keys: Vec<(DbId, Box<[u8]>)>) -> Rest {
        let mut rest = Rest::default();
        let mut captured = CapturedMaps::default();
        for (db, key) in keys {
            let hash = guard.keyspace.hash(&key);
            let mut found = guard.state.table_mut(db).get_mut(&hash, &key).expect("listed under this lock");
            let expire_at_ms = found.entry().expire_at_ms();
            if let View::List(view) = found.entry().view() {
                let list = view.share().expect("a big one");
                rest.lists.push_back(SharedList { db, key, expire_at_ms, list, done: 0 });
                continue;
            }
            found.update(|entry| entry.big_mut().expect("a big one").begin_capture());
            captured.maps.push(CapturedMap { db, key: key.clone(), place: Place::AtItsKey });
            rest.maps.push_back(BigMap { db, key, expire_at_ms, is_new: true });
        }
        if !captured.maps.is_empty() {
            guard.state.extra.get_or_insert_default().captured = Some(Box::new(captured));
        }
        rest
    }
}

impl SharedList {
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
            0 => Effect::Put { db, key, value: Value::List(items), expire_at_ms: self.expire_at_ms },
            _ => Effect::ListPush { db, key, end: crate::ListEnd::Tail, items },
        };
        effect.encode_into(stream);
        self.done += taken;
        self.done == self.list.len()
    }
}

impl BigMap {
    /// Adds a part to the stream.
    fn put(&mut self, part: &Part, stream: &mut Vec<u8>) {
        if part.is_empty() {
            return;
        }
        let (db, key) = (self.db, &*self.key);
        let effect = match self.is_new {
            true => part.put(db, key, self.expire_at_ms),
            false => part.add_to(db, key),
        };
        effect.encode_into(stream);
        part.for_each_deadline(db, key, |effect| effect.encode_into(stream));
        self.is_new = false;
    }
}

/// A step of the first of the collections that are being captured in a slot.
fn capture_step(keyspace: &Keyspace, slot: SlotId, map: &BigMap, bytes: usize) -> (Part, bool) {
    let hash = keyspace.hash(&map.key);
    let mut guard = keyspace.lock(slot);
    let mut captured = guard.state.extra.as_mut().and_then(|extra| extra.captured.take());
    let maps = &mut captured.as_mut().expect("a capture is in progress").maps;
    let stepped = maps[0].step(&mut guard, &hash, bytes);
    let ended = stepped.1.then(|| maps.remove(0));
    if !maps.is_empty() {
        guard.state.extra.get_or_insert_default().captured = captured;
    }
    // What was detached can take long to free: not under the lock.
    drop(guard);
    drop(ended);
    stepped
}

/// The collections of one slot that are being captured, in the order in which they are.
#[derive(Default)]
pub(crate) struct CapturedMaps {
    maps: Vec<CapturedMap>,
}

struct CapturedMap {
    /// Where it is, or was last.
    db: DbId,
    key: Box<[u8]>,
    place: Place,
}

enum Place {
    AtItsKey,
    /// Removed from there, and kept for the capture.
    Detached(Entry),
    /// Gone on elsewhere, after all that was left of it was captured.
    Gone(Part),
}

impl CapturedMap {
    fn step(&mut self, guard: &mut SlotGuard<'_>, hash: &KeyHash, bytes: usize) -> (Part, bool) {
        let step =
            |entry: &mut Entry| entry.big_mut().expect("only big ones are captured").capture_step(bytes);
        match &mut self.place {
            Place::AtItsKey => {
                let found = guard.state.table_mut(self.db).get_mut(hash, &self.key);
                found.expect("what removes it says so").update(step)
            }
            Place::Detached(entry) => step(entry),
            Place::Gone(part) => {
                let none = part.none_of();
                (std::mem::replace(part, none), true)
            }
        }
    }

    fn abandon(&self, guard: &mut SlotGuard<'_>) {
        if let Place::AtItsKey = self.place {
            let hash = guard.keyspace.hash(&self.key);
            let found = guard.state.table_mut(self.db).get_mut(&hash, &self.key);
            let abandon = |entry: &mut Entry| entry.big_mut().map(Big::abandon_capture);
            found.expect("what removes it says so").update(abandon);
        }
    }
}

impl CapturedMaps {
    fn at_its_key(&mut self, db: DbId, key: &[u8]) -> &mut CapturedMap {
        let is_it =
            |map: &&mut CapturedMap| matches!(map.place, Place::AtItsKey) && (map.db, &*map.key) == (db, key);
        self.maps.iter_mut().find(is_it).expect("a collection that is being captured is known")
    }

    /// Keeps an entry that was removed from its key.
    pub(crate) fn detach(&mut self, db: DbId, entry: Entry) {
        let map = self.at_its_key(db, entry.as_ref().key());
        map.place = Place::Detached(entry);
    }

    /// Keeps the entries of a table that is about to be freed.
    pub(crate) fn detach_from(&mut self, db: DbId, table: &mut Table, keyspace: &Keyspace) {
        let in_table = self.maps.iter_mut();
        for map in in_table.filter(|map| matches!(map.place, Place::AtItsKey) && map.db == db) {
            let found = table.get_mut(&keyspace.hash(&map.key), &map.key);
            map.place = Place::Detached(found.expect("what removes it says so").remove());
        }
    }

    /// Captures all that is left of an entry that leaves its slot. Takes as long as it is large: it is rare that a
    /// collection is renamed in the moment in which it is captured.
    pub(crate) fn finish(&mut self, db: DbId, entry: &mut Entry) {
        let map = self.at_its_key(db, entry.as_ref().key());
        let big = entry.big_mut().expect("only big ones are captured");
        map.place = Place::Gone(big.capture_step(usize::MAX).0);
    }

    /// Two databases have changed places.
    pub(crate) fn swap(&mut self, a: DbId, b: DbId) {
        for map in self.maps.iter_mut().filter(|map| matches!(map.place, Place::AtItsKey)) {
            map.db = match map.db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
    }
}

/// Adds an entry which is not big: as a row, or a long string as effects, in pieces.
fn put_small(db: DbId, entry: EntryRef<'_>, stream: &mut Vec<u8>) {
    let (key, expire_at_ms) = (entry.key(), entry.expire_at_ms());
    if entry.value_type() != ValueType::String || entry.payload().len() <= STRING_PIECE_BYTES {
        return Row::of(db, entry).encode_into(stream);
    }
    let (first, others) = entry.payload().split_at(entry.payload().len().min(STRING_PIECE_BYTES));
    Effect::Put { db, key, value: Value::String(first), expire_at_ms }.encode_into(stream);
    for suffix in others.chunks(STRING_PIECE_BYTES) {
        Effect::Append { db, key, suffix }.encode_into(stream);
    }
}

#[cfg(test)]
mod tests;
