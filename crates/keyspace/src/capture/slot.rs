//! The capture of one slot. Its state lies in the slot, under the slot's lock.
//!
//! What it is: a walk over the entries of the slot in the order of their positions. An entry ahead of the
//! walk is captured just before it changes. A key that is about to be added ahead of the walk is noted, so
//! that the walk skips it. A long list is shared. Long strings, and big collections of other types, are
//! captured step by step after the end of the walk; each of these collections has a capture of its own. If
//! such a value is removed or replaced before it is captured completely, the capture takes its entry over,
//! and frees the entry later without the lock.
//! What it is not: the decision how much is done under one lock (see `Capture`).
//!
//! Invariants
//! - Before a key of the slot changes, `about_to_change` is called; when a table is removed or swapped with
//!   another, `detach_table` or `swap` is called under the same lock. So everything ahead of the walk is as
//!   it was when the capture began, unless it was captured or noted.
//! - The stream has the names of keys and the numbers of databases as they were when the capture began, even
//!   if a value has another key or database since.
//! - A large value that is being captured is either at a key of this slot or kept by the capture. Only three
//!   changes make the capture copy all or the rest of such a value at once: a Move of a big collection to
//!   another slot, a Move of a long string, and an edit of a long string.

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
    large: VecDeque<LargeValue>,
    /// Bytes copied ahead of the walk of the slot, or of the walk of a collection, and not reported yet.
    pub(super) copied_bytes: u64,
    /// Long lists that were met since the last step.
    pub(super) lists: Vec<SharedList>,
    /// Memory to be freed without the lock.
    pub(super) garbage: Garbage,
}

/// Tables and values that can take long to free.
#[derive(Default)]
pub(super) struct Garbage(Vec<Table>, Vec<LargeValue>);

/// How a change treats the entry that is at the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Impact {
    /// The value is changed in place.
    Edit,
    /// The entry is removed or replaced as a whole, or nothing but its deadline changes.
    Keep,
}

struct Walk {
    sources: [Source; DB_COUNT],
    /// The database in which the walk is, and the `h16` at which it continues.
    db: DbId,
    from: u32,
}

/// Where the walk finds the entries of one database.
struct Source {
    place: TablePlace,
    /// Keys that were captured ahead of the walk, or are new.
    met: HashSet<Box<[u8]>>,
}

enum TablePlace {
    /// The entries are in this database of the slot.
    At(DbId),
    /// The database was emptied during the capture, which keeps the former table.
    Detached(Table),
}

/// A long string, or a collection, that is captured step by step.
struct LargeValue {
    origin: Origin,
    /// The database and the key of the value, while its place is [`Place::AtItsKey`].
    db: DbId,
    key: Box<[u8]>,
    place: Place,
    progress: Progress,
}

/// The database, key and deadline that a value had when the capture began.
#[derive(Clone)]
struct Origin {
    db: DbId,
    key: Box<[u8]>,
    expire_at_ms: Option<u64>,
}

enum Place {
    AtItsKey,
    /// The value is on its way from a key to another one, under one lock.
    OnTheMove,
    /// The entry is no longer at its key, and is kept for the capture.
    Detached(Entry),
    /// The collection was moved to another slot. Just before the move, the rest of the collection was
    /// captured as this part.
    Gone(Part),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// How many bytes of a string are in the stream.
    String(usize),
    /// Whether the stream has nothing of the collection yet.
    Collection { is_new: bool },
}

/// A part of a collection, on its way into the stream.
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
        let walk = Walk { sources, db: DbId::ZERO, from: 0 };
        SlotCapture {
            moment: None,
            walk: Some(walk),
            ahead: Vec::new(),
            copied_bytes: 0,
            large: VecDeque::new(),
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
        let mut part = None;
        while part.is_none()
            && self.walk.is_none()
            && stream.len() < enough
            && let Some(value) = self.large.front_mut()
        {
            let has_ended;
            (part, has_ended) = value.step(guard, stream, enough, &mut self.copied_bytes);
            if has_ended {
                self.garbage.1.extend(self.large.pop_front());
            }
        }
        part
    }

    /// Whether all of the slot is captured.
    pub(super) fn has_ended(&self) -> bool {
        self.walk.is_none() && self.large.is_empty() && self.ahead.is_empty()
    }

    /// The smallest step of the walk: a few entries.
    fn walk_on(&mut self, guard: &mut SlotGuard<'_>, stream: &mut Vec<u8>) {
        let Some(walk) = &mut self.walk else { return };
        let (origin, source) = (walk.db, &walk.sources[walk.db.index()]);
        let table = match &source.place {
            TablePlace::At(db) => guard.state.table(*db),
            TablePlace::Detached(table) => Some(table),
        };
        let table = table.filter(|table| table.len() > 0);
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
        let progress = match found.entry().view() {
            View::List(list) => {
                let list = list.share().expect("a big one");
                self.lists.push(SharedList::new(db, origin.key, origin.expire_at_ms, list));
                return;
            }
            View::String(_) => Progress::String(0),
            View::Set(_) | View::Zset(_) | View::Hash(_) | View::Stream(_) => {
                found.update(|entry| entry.big_mut().expect("a big one").begin_capture());
                Progress::Collection { is_new: true }
            }
        };
        let (place, at_db) = match at_db {
            Some(at_db) => (Place::AtItsKey, at_db),
            None => (Place::Detached(found.remove()), db),
        };
        let key = origin.key.clone();
        self.large.push_back(LargeValue { origin, db: at_db, key, place, progress });
    }

    /// Prepares the capture for a change of a key. If the key is ahead of the walk, captures its value, or
    /// begins to, or notes that the key is new. If the value is a long string that is about to be edited,
    /// captures the rest of the string.
    pub(crate) fn about_to_change(
        &mut self,
        state: &mut SlotState,
        keyspace: &Keyspace,
        (db, hash, key): (DbId, &KeyHash, &[u8]),
        impact: Impact,
    ) {
        if let Some(origin) = self.walk.as_ref().and_then(|walk| walk.ahead(db, hash)) {
            self.meet(state, keyspace, origin, (db, hash, key));
        }
        if impact == Impact::Edit
            && let Some(entry) = state.table(db).and_then(|table| table.get(hash, key))
            && is_long_string(entry)
            && let Some(at) = self.large.iter().position(|value| value.is_at(db, key))
            && let Some(mut string) = self.large.remove(at)
        {
            while !string.put_piece(entry, &mut self.ahead) {}
        }
    }

    /// Captures, or begins to capture, a value ahead of the walk. `origin` is the number that the database
    /// had when the capture began.
    fn meet(
        &mut self,
        state: &mut SlotState,
        keyspace: &Keyspace,
        origin: DbId,
        (db, hash, key): (DbId, &KeyHash, &[u8]),
    ) {
        let Some(walk) = &mut self.walk else { return };
        if !walk.sources[origin.index()].met.insert(key.into()) {
            return;
        }
        match state.table(db).and_then(|table| table.get(hash, key)) {
            Some(entry) if is_large(entry) => self.begin_large(state, keyspace, origin, key.into()),
            Some(entry) => Row::of(origin, entry).encode_into(&mut self.ahead),
            None => {}
        }
    }

    /// Whether the capture still reads this entry, which has just been taken from its key.
    pub(crate) fn needs(&self, db: DbId, entry: &Entry) -> bool {
        let is_it = |value: &LargeValue| value.is_at(db, entry.as_ref().key());
        entry.is_being_captured() || is_long_string(entry.as_ref()) && self.large.iter().any(is_it)
    }

    /// Keeps an entry that was removed from its key while it is being captured.
    pub(crate) fn detach(&mut self, db: DbId, entry: Entry) {
        let value = self.at_its_key(db, entry.as_ref().key());
        value.place = Place::Detached(entry);
    }

    /// Keeps the table of a database that was emptied, or returns the table if the walk does not need it. In
    /// either case, takes the values that are being captured out of the table and keeps them.
    pub(crate) fn detach_table(&mut self, db: DbId, mut table: Table, keyspace: &Keyspace) -> Option<Table> {
        for value in self.large.iter_mut().filter(|value| value.is_at_its_key() && value.db == db) {
            let found = table.get_mut(&keyspace.hash(&value.key), &value.key);
            value.place = Place::Detached(found.expect("what removes it says so").remove());
        }
        let Some(walk) = &mut self.walk else { return Some(table) };
        let Some(origin) = walk.origin_of(db).filter(|&origin| origin >= walk.db) else { return Some(table) };
        walk.sources[origin.index()].place = TablePlace::Detached(table);
        None
    }

    /// Notes that a collection that is being captured was taken from this key, to be put at another one.
    pub(crate) fn lift(&mut self, db: DbId, key: &[u8]) {
        self.at_its_key(db, key).place = Place::OnTheMove;
    }

    /// If a collection was lifted, notes its new key, which is in this slot.
    pub(crate) fn put_down(&mut self, db: DbId, key: &[u8]) {
        if let Some(value) = self.on_the_move() {
            (value.db, value.key, value.place) = (db, key.into(), Place::AtItsKey);
        }
    }

    /// If a collection was lifted, captures its rest, because the collection goes to another slot. This takes
    /// time in proportion to the size of the rest. It is rare: only collections that are being captured are
    /// lifted.
    pub(crate) fn finish(&mut self, entry: &mut Entry) {
        if let Some(value) = self.on_the_move() {
            let big = entry.big_mut().expect("only big ones are lifted");
            value.place = Place::Gone(big.capture_step(usize::MAX).0);
        }
    }

    /// Notes that two databases have been swapped.
    pub(crate) fn swap(&mut self, a: DbId, b: DbId) {
        let change = |db: &mut DbId| match *db {
            it if it == a => *db = b,
            it if it == b => *db = a,
            _ => {}
        };
        self.large.iter_mut().filter(|value| value.is_at_its_key()).for_each(|value| change(&mut value.db));
        for source in self.walk.iter_mut().flat_map(|walk| &mut walk.sources) {
            if let TablePlace::At(db) = &mut source.place {
                change(db);
            }
        }
    }

    /// Gives the capture up before it is complete. Collections are then as if the capture had never begun.
    pub(super) fn abandon(&self, guard: &mut SlotGuard<'_>) {
        for value in self.large.iter().filter(|value| value.is_at_its_key()) {
            let hash = guard.keyspace.hash(&value.key);
            let found = guard.state.table_mut(value.db).get_mut(&hash, &value.key);
            let abandon = |entry: &mut Entry| entry.big_mut().map(Big::abandon_capture);
            found.expect("what removes it says so").update(abandon);
        }
    }

    fn at_its_key(&mut self, db: DbId, key: &[u8]) -> &mut LargeValue {
        let found = self.large.iter_mut().find(|value| value.is_at(db, key));
        found.expect("a value that is being captured is known")
    }

    fn on_the_move(&mut self) -> Option<&mut LargeValue> {
        self.large.iter_mut().find(|value| matches!(value.place, Place::OnTheMove))
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

    /// The number that database `db` had when the capture began, if the walk has yet to come to the entries
    /// with this hash. A table that is newer than the capture has no key that is to be captured.
    fn ahead(&self, db: DbId, hash: &KeyHash) -> Option<DbId> {
        let is_ahead = |&origin: &DbId| (origin, u32::from(hash.h16)) >= (self.db, self.from);
        self.origin_of(db).filter(is_ahead)
    }
}

impl LargeValue {
    fn is_at_its_key(&self) -> bool {
        matches!(self.place, Place::AtItsKey)
    }

    fn is_at(&self, db: DbId, key: &[u8]) -> bool {
        self.is_at_its_key() && (self.db, &*self.key) == (db, key)
    }

    /// Captures more of the value, until the stream has `enough` bytes. Returns members of a collection,
    /// which the caller adds to the stream, and whether the value has ended.
    fn step(
        &mut self,
        guard: &mut SlotGuard<'_>,
        stream: &mut Vec<u8>,
        enough: usize,
        copied_bytes: &mut u64,
    ) -> (Option<MapPart>, bool) {
        let LargeValue { origin, db, key, place, progress } = self;
        let mut step = |entry: &mut Entry| progress.step(origin, entry, stream, enough, copied_bytes);
        match place {
            Place::AtItsKey => {
                let hash = guard.keyspace.hash(key);
                let found = guard.state.table_mut(*db).get_mut(&hash, key);
                found.expect("what removes it says so").update(step)
            }
            Place::OnTheMove => unreachable!("it is put down under the lock under which it was lifted"),
            Place::Detached(entry) => step(entry),
            Place::Gone(part) => {
                let none = part.none_of();
                let part = std::mem::replace(part, none);
                *copied_bytes += part.size_bytes() as u64;
                (progress.part(origin, part), true)
            }
        }
    }

    /// Adds the next piece of a string, which is in this entry, to the stream. Returns whether it was the
    /// last one.
    fn put_piece(&mut self, entry: EntryRef<'_>, stream: &mut Vec<u8>) -> bool {
        self.progress.put_piece(&self.origin, entry, stream)
    }
}

impl Progress {
    fn step(
        &mut self,
        origin: &Origin,
        entry: &mut Entry,
        stream: &mut Vec<u8>,
        enough: usize,
        copied_bytes: &mut u64,
    ) -> (Option<MapPart>, bool) {
        let Some(big) = entry.big_mut() else {
            let mut has_ended = false;
            while !has_ended && stream.len() < enough {
                has_ended = self.put_piece(origin, entry.as_ref(), stream);
            }
            return (None, has_ended);
        };
        *copied_bytes += big.captured_ahead_bytes() as u64;
        let (part, has_ended) = big.capture_step(enough - stream.len());
        (self.part(origin, part), has_ended)
    }

    fn put_piece(&mut self, origin: &Origin, entry: EntryRef<'_>, stream: &mut Vec<u8>) -> bool {
        let Progress::String(done) = self else { unreachable!("only strings go into the stream in pieces") };
        let (db, key, rest) = (origin.db, &*origin.key, &entry.payload()[*done..]);
        let piece = &rest[..rest.len().min(STRING_PIECE_BYTES)];
        let effect = match *done {
            0 => {
                let value = Value::String(piece);
                KeyOp::Put { value, expire_at_ms: origin.expire_at_ms }.on(db, key)
            }
            _ => KeyOp::Append { suffix: piece }.on(db, key),
        };
        effect.encode_into(stream);
        *done += piece.len();
        piece.len() == rest.len()
    }

    fn part(&mut self, origin: &Origin, part: Part) -> Option<MapPart> {
        let Progress::Collection { is_new } = self else { unreachable!("a string has no parts") };
        let stepped = MapPart { origin: origin.clone(), is_new: *is_new, part };
        *is_new &= stepped.part.is_empty();
        Some(stepped)
    }
}

/// Whether the value of an entry is too large to go into the stream at once.
fn is_large(entry: EntryRef<'_>) -> bool {
    entry.is_big() || is_long_string(entry)
}

fn is_long_string(entry: EntryRef<'_>) -> bool {
    entry.value_type() == ValueType::String && entry.payload().len() > STRING_PIECE_BYTES
}
