//! The capture of one slot: the part that is not captured yet, under the slot's lock.
//!
//! What it is: a walk over the entries of the slot in the order of their positions. An entry that is about to
//! change before the walk has come to it is captured then, ahead of the walk. A key that is about to be added
//! ahead of the walk is noted, so that the walk skips it. A long list is shared. Another big collection gets
//! a capture of its own, which continues after the end of the walk. What it is not: the decision how much is
//! done under one lock (see `Capture`).
//!
//! Invariants
//! - Before a key of the slot changes, `about_to_change` is called; when a table is removed or swapped with
//!   another, `detach_table` or `swap` is called under the same lock. So everything ahead of the walk is as
//!   it was when the capture began.
//! - The stream names the keys and databases of the moment at which the capture began, even if they are gone.
//! - A big collection that is being captured is at its key or detached from it. A Delete or a Move of the
//!   collection captures the rest of it first.
//! - All long strings of a database are captured before the walk leaves the database.

use std::collections::{HashSet, VecDeque};

use super::row::Row;
use super::{Moment, STRING_PIECE_BYTES, SharedList};
use crate::collection::part::Part;
use crate::collection::{Big, View};
use crate::effect::{Effect, KeyOp};
use crate::entry::{Entry, EntryRef};
use crate::hash::KeyHash;
use crate::id::{DB_COUNT, DbId};
use crate::keyspace::Keyspace;
use crate::slot::{SlotGuard, SlotState};
use crate::table::{POSITION_END, Table};
use crate::value::{Value, ValueType};

pub(crate) struct SlotCapture {
    /// The moment of a slot that was captured early (see `early`), until the walk takes the capture over.
    pub(super) moment: Option<Box<Moment>>,
    /// `None` after the walk has met all entries.
    walk: Option<Walk>,
    /// The parts that were captured ahead of the walk, in the form of the stream.
    ahead: Vec<u8>,
    maps: VecDeque<CapturedMap>,
    /// Bytes copied ahead of the walk of the slot, or of the walk of a collection, since the last step.
    pub(super) copied_bytes: u64,
    /// Long lists that were met since the last step.
    pub(super) lists: Vec<SharedList>,
    /// Memory to be freed without the lock.
    pub(super) garbage: Garbage,
}

/// Tables and collections that can take long to free.
#[derive(Default)]
pub(super) struct Garbage(Vec<Table>, Vec<CapturedMap>);

struct Walk {
    sources: [Source; DB_COUNT],
    /// The database in which the walk is, and the `h16` at which it continues.
    db: DbId,
    from: u32,
    /// Strings that go into the stream in pieces, all of `db`.
    strings: VecDeque<LongString>,
}

/// The location of the entries of a database that the walk has not left.
struct Source {
    place: TablePlace,
    /// Keys that were captured ahead of the walk, or are new.
    met: HashSet<Box<[u8]>>,
}

enum TablePlace {
    /// The entries are in this database of the slot.
    At(DbId),
    /// The database was emptied meanwhile.
    Detached(Table),
}

/// A string that goes into the stream in pieces, and how many of its bytes are there.
struct LongString {
    key: Box<[u8]>,
    done: usize,
}

/// A collection that is captured step by step.
struct CapturedMap {
    origin: Origin,
    is_new: bool,
    /// The database in which the collection is, or was last.
    db: DbId,
    key: Box<[u8]>,
    place: SuccessorState,
}

/// The key and the database as they were when the capture began.
#[derive(Clone)]
struct Origin {
    db: DbId,
    key: Box<[u8]>,
    expire_at_ms: Option<u64>,
}

enum SuccessorState {
    AtItsKey,
    /// The collection was replaced, emptied or flushed, and is kept for the capture.
    Detached(Entry),
    /// The collection was deleted or moved to another key. Its rest, which is here, was captured at that
    /// time.
    Gone(Part),
}

/// Some members of a collection.
pub(super) struct MapPart {
    origin: Origin,
    is_new: bool,
    part: Part,
}

impl MapPart {
    /// Adds the members to the stream.
    pub(super) fn put(&self, stream: &mut Vec<u8>) {
        if self.part.is_empty() {
            return;
        }
        let place = (self.origin.db, &*self.origin.key);
        let encode = |effect: &Effect<'_>| effect.encode_into(stream);
        self.part.for_each_effect(place, self.is_new, self.origin.expire_at_ms, encode);
    }
}

impl SlotCapture {
    /// The capture of a slot of which nothing is captured yet.
    pub(super) fn new() -> Self {
        let source = |db| Source { place: TablePlace::At(db), met: HashSet::new() };
        let sources = std::array::from_fn(|index| source(DbId::new(index as u8).expect("below the count")));
        let walk = Walk { sources, db: DbId::ZERO, from: 0, strings: VecDeque::new() };
        SlotCapture {
            moment: None,
            walk: Some(walk),
            ahead: Vec::new(),
            copied_bytes: 0,
            maps: VecDeque::new(),
            lists: Vec::new(),
            garbage: Garbage::default(),
        }
    }

    /// Continues for about `wanted` bytes of stream. The caller adds the returned part to the stream.
    pub(super) fn step(
        &mut self,
        guard: &mut SlotGuard<'_>,
        stream: &mut Vec<u8>,
        wanted: usize,
    ) -> Option<MapPart> {
        let enough = stream.len().saturating_add(wanted);
        self.copied_bytes += self.ahead.len() as u64;
        stream.append(&mut self.ahead);
        while self.walk.is_some() && stream.len() < enough {
            self.walk_on(guard, stream);
        }
        let map = self.maps.front_mut().filter(|_| self.walk.is_none() && stream.len() < enough)?;
        let (part, has_ended, copied_bytes) = map.step(guard, enough - stream.len());
        self.copied_bytes += copied_bytes as u64;
        let stepped = MapPart { origin: map.origin.clone(), is_new: map.is_new, part };
        map.is_new &= stepped.part.is_empty();
        if has_ended {
            self.garbage.1.extend(self.maps.pop_front());
        }
        Some(stepped)
    }

    /// Whether all of the slot is captured.
    pub(super) fn has_ended(&self) -> bool {
        self.walk.is_none() && self.maps.is_empty() && self.ahead.is_empty()
    }

    /// The smallest step of the walk: a few entries, or a piece of a string.
    fn walk_on(&mut self, guard: &mut SlotGuard<'_>, stream: &mut Vec<u8>) {
        let Some(walk) = &mut self.walk else { return };
        let (origin, source) = (walk.db, &walk.sources[walk.db.index()]);
        let table = match &source.place {
            TablePlace::At(db) => guard.state.table(*db),
            TablePlace::Detached(table) => Some(table),
        };
        let table = table.filter(|table| table.len() > 0);
        if let Some(string) = walk.strings.front_mut() {
            let found = table.and_then(|table| table.get(&guard.keyspace.hash(&string.key), &string.key));
            if string.put_piece(origin, found.expect("what changes it says so"), stream) {
                walk.strings.pop_front();
            }
            return;
        }
        let Some(table) = table.filter(|_| walk.from < POSITION_END) else {
            return self.leave_database();
        };
        let mut large = Vec::new();
        walk.from = table.visit_from(walk.from, |entry| {
            if source.met.contains(entry.key()) {
                return;
            }
            match is_large(entry) {
                true => large.push(Box::from(entry.key())),
                false => Row::of(origin, entry).encode_into(stream),
            }
        });
        large
            .into_iter()
            .for_each(|key: Box<[u8]>| self.begin_large(&mut guard.state, guard.keyspace, origin, key));
    }

    /// Continues the walk in the next database, or ends it.
    fn leave_database(&mut self) {
        let Some(walk) = &mut self.walk else { return };
        let source = &mut walk.sources[walk.db.index()];
        if let TablePlace::Detached(table) = &mut source.place {
            self.garbage.0.push(std::mem::take(table));
        }
        source.met = HashSet::new();
        match DbId::new(walk.db.get() + 1) {
            Some(next) => (walk.db, walk.from) = (next, 0),
            None => self.walk = None,
        }
    }

    /// Begins to capture a value that does not go into the stream at once.
    fn begin_large(&mut self, state: &mut SlotState, keyspace: &Keyspace, db: DbId, key: Box<[u8]>) {
        let Some(walk) = &mut self.walk else { return };
        let (at_db, table) = match &mut walk.sources[db.index()].place {
            TablePlace::At(at) => (Some(*at), state.table_mut(*at)),
            TablePlace::Detached(table) => (None, table),
        };
        let mut found = table.get_mut(&keyspace.hash(&key), &key).expect("it was met under this lock");
        let origin = Origin { db, key, expire_at_ms: found.entry().expire_at_ms() };
        match found.entry().view() {
            View::String(_) => walk.strings.push_back(LongString { key: origin.key, done: 0 }),
            View::List(list) => {
                let list = list.share().expect("a big one");
                self.lists.push(SharedList::new(db, origin.key, origin.expire_at_ms, list));
            }
            View::Set(_) | View::Zset(_) | View::Hash(_) | View::Stream(_) => {
                found.update(|entry| entry.big_mut().expect("a big one").begin_capture());
                let (place, at_db) = match at_db {
                    Some(at_db) => (SuccessorState::AtItsKey, at_db),
                    None => (SuccessorState::Detached(found.remove()), db),
                };
                let key = origin.key.clone();
                self.maps.push_back(CapturedMap { origin, is_new: true, db: at_db, key, place });
            }
        }
    }

    /// Captures the value of a key that is about to be changed or removed, or notes a key that is about to be
    /// added, if the key is still ahead of the walk; or captures the rest of a long string.
    pub(crate) fn about_to_change(
        &mut self,
        state: &mut SlotState,
        keyspace: &Keyspace,
        (db, hash, key): (DbId, &KeyHash, &[u8]),
    ) {
        let Some(walk) = &mut self.walk else { return };
        // A table that is newer than the capture has no key that is to be captured.
        let Some(origin) = walk.origin_of(db) else { return };
        if origin < walk.db {
            return;
        }
        let entry = state.table(db).and_then(|table| table.get(hash, key));
        if origin == walk.db && u32::from(hash.h16) < walk.from {
            if let Some(at) = walk.strings.iter().position(|string| *string.key == *key)
                && let (Some(mut string), Some(entry)) = (walk.strings.remove(at), entry)
            {
                while !string.put_piece(origin, entry, &mut self.ahead) {}
            }
            return;
        }
        if !walk.sources[origin.index()].met.insert(key.into()) {
            return;
        }
        let Some(entry) = entry else { return };
        if entry.is_big() {
            self.begin_large(state, keyspace, origin, key.into());
        } else if is_large(entry) {
            let mut string = LongString { key: key.into(), done: 0 };
            while !string.put_piece(origin, entry, &mut self.ahead) {}
        } else {
            Row::of(origin, entry).encode_into(&mut self.ahead);
        }
    }

    /// Keeps an entry that was removed from its key while it is being captured.
    pub(crate) fn detach(&mut self, db: DbId, entry: Entry) {
        let map = self.at_its_key(db, entry.as_ref().key());
        map.place = SuccessorState::Detached(entry);
    }

    /// Keeps the table of a database that was emptied, or returns the table if the walk does not need it. In
    /// either case, takes the collections that are being captured out of the table and keeps them.
    pub(crate) fn detach_table(&mut self, db: DbId, mut table: Table, keyspace: &Keyspace) -> Option<Table> {
        for map in self.maps.iter_mut().filter(|map| map.is_at_its_key() && map.db == db) {
            let found = table.get_mut(&keyspace.hash(&map.key), &map.key);
            map.place = SuccessorState::Detached(found.expect("what removes it says so").remove());
        }
        let Some(walk) = &mut self.walk else { return Some(table) };
        let Some(origin) = walk.origin_of(db).filter(|&origin| origin >= walk.db) else { return Some(table) };
        walk.sources[origin.index()].place = TablePlace::Detached(table);
        None
    }

    /// Captures the rest of a collection that is deleted or moved to another key. That takes time in
    /// proportion to its size, and is rare: it happens only while this collection is being captured.
    pub(crate) fn finish(&mut self, db: DbId, entry: &mut Entry) {
        let map = self.at_its_key(db, entry.as_ref().key());
        let big = entry.big_mut().expect("only big ones are captured");
        map.place = SuccessorState::Gone(big.capture_step(usize::MAX).0);
    }

    /// Notes that two databases have been swapped.
    pub(crate) fn swap(&mut self, a: DbId, b: DbId) {
        let change = |db: &mut DbId| match *db {
            it if it == a => *db = b,
            it if it == b => *db = a,
            _ => {}
        };
        self.maps.iter_mut().filter(|map| map.is_at_its_key()).for_each(|map| change(&mut map.db));
        for source in self.walk.iter_mut().flat_map(|walk| &mut walk.sources) {
            if let TablePlace::At(db) = &mut source.place {
                change(db);
            }
        }
    }

    /// Gives the capture up before it is complete. Collections are then as if it had never begun.
    pub(super) fn abandon(&self, guard: &mut SlotGuard<'_>) {
        for map in self.maps.iter().filter(|map| map.is_at_its_key()) {
            let hash = guard.keyspace.hash(&map.key);
            let found = guard.state.table_mut(map.db).get_mut(&hash, &map.key);
            let abandon = |entry: &mut Entry| entry.big_mut().map(Big::abandon_capture);
            found.expect("what removes it says so").update(abandon);
        }
    }

    fn at_its_key(&mut self, db: DbId, key: &[u8]) -> &mut CapturedMap {
        let is_it = |map: &&mut CapturedMap| map.is_at_its_key() && (map.db, &*map.key) == (db, key);
        self.maps.iter_mut().find(is_it).expect("a collection that is being captured is known")
    }
}

impl Walk {
    /// The number that the table of database `db` had when the capture began; `None` if the table is newer
    /// than the capture.
    fn origin_of(&self, db: DbId) -> Option<DbId> {
        let is_it =
            |origin: &DbId| matches!(self.sources[origin.index()].place, TablePlace::At(at) if at == db);
        DbId::all().find(is_it)
    }
}

impl LongString {
    /// Adds the next piece of the string in this entry to the stream. Returns whether it was the last one.
    fn put_piece(&mut self, db: DbId, entry: EntryRef<'_>, stream: &mut Vec<u8>) -> bool {
        let (key, rest) = (&*self.key, &entry.payload()[self.done..]);
        let piece = &rest[..rest.len().min(STRING_PIECE_BYTES)];
        let effect = match self.done {
            0 => KeyOp::Put { value: Value::String(piece), expire_at_ms: entry.expire_at_ms() }.on(db, key),
            _ => KeyOp::Append { suffix: piece }.on(db, key),
        };
        effect.encode_into(stream);
        self.done += piece.len();
        piece.len() == rest.len()
    }
}

impl CapturedMap {
    fn is_at_its_key(&self) -> bool {
        matches!(self.place, SuccessorState::AtItsKey)
    }

    /// Captures more of the collection; returns that part, whether it is the last one, and how many of its
    /// bytes were copied earlier.
    fn step(&mut self, guard: &mut SlotGuard<'_>, bytes: usize) -> (Part, bool, usize) {
        let step = |entry: &mut Entry| {
            let big = entry.big_mut().expect("only big ones are captured");
            let copied_bytes = big.captured_ahead_bytes();
            let (part, has_ended) = big.capture_step(bytes);
            (part, has_ended, copied_bytes)
        };
        match &mut self.place {
            SuccessorState::AtItsKey => {
                let hash = guard.keyspace.hash(&self.key);
                let found = guard.state.table_mut(self.db).get_mut(&hash, &self.key);
                found.expect("what removes it says so").update(step)
            }
            SuccessorState::Detached(entry) => step(entry),
            SuccessorState::Gone(part) => {
                let none = part.none_of();
                let part = std::mem::replace(part, none);
                let copied_bytes = part.size_bytes();
                (part, true, copied_bytes)
            }
        }
    }
}

/// Whether an entry is captured step by step.
fn is_large(entry: EntryRef<'_>) -> bool {
    entry.is_big() || entry.value_type() == ValueType::String && entry.payload().len() > STRING_PIECE_BYTES
}
