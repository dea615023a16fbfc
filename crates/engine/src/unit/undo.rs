//! Undoing what a command of many steps has done, a script, IDEMP or an EXEC with documents, before anybody has seen it.
//!
//! What it is: for every effect, noted before it is made, the effects that take it back. What is small is copied as a whole;
//! of what is large only the elements that the effect names, so that a script that pushes onto a long list does not copy it.
//! One may begin within another: a script that IDEMP runs is undone by itself, or with all that IDEMP did.
//! What it is not: for effects that others may have seen. The slots stay locked from the first effect to the last one undone,
//! and the record of the unit is cut to what it was.
//!
//! Invariants
//! - After undoing, the keyspace is what it was, up to access stamps, and so are documents. Nothing of it is told: no event, no
//!   message, no invalidation of a key that somebody has read, which he still tracks. Only those who WATCH a key may take it for
//!   changed, and an undone SWAPDB invalidates all.
//! - Documents are undone with what has begun first: what begins within it changes none.
//! - FLUSHALL and FLUSHDB cannot be undone, nor can what was done before them.

mod streams;

use std::collections::HashSet;

use keyspace::{DbId, Effect, EntryRef, Items, ItemsBuf, ListEnd, Scope, ScoredItemsBuf, ValueBuf, View};
use smallvec::SmallVec;

use super::Unit;

/// Values up to this size, in bytes, are copied as a whole.
const COPIED_BYTES_MAX: usize = 1 << 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Undo {
    /// Effects that take back, encoded.
    effects: Vec<u8>,
    /// Where those of each effect begin. They are made from the last one to the first one.
    steps: Vec<usize>,
    /// Keys that were copied whole, or were not there: whatever is done to them later needs no note, because undoing runs
    /// backwards and ends with what they were.
    whole: Keys,
    /// Something was done that cannot be undone.
    is_lost: bool,
    /// Keys have changed their names or databases: what was noted by name is elsewhere now.
    has_moved: bool,
    flushed_all: bool,
    record_bytes: usize,
    messages: usize,
    ready: usize,
    noted: usize,
    invalidations: usize,
    /// What was begun before, and ends later.
    outer: Option<Box<Undo>>,
}

/// An ended undo is kept for the next one with what it has allocated, up to so many bytes in each of its buffers.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Equal elements of a list that are put back one by one: for more the list is copied.
const PUT_BACK_MAX: usize = 16;

/// Keys that are compared one by one: most scripts change no more.
const FEW: usize = 8;

/// A set of keys.
#[derive(Debug, Default)]
struct Keys {
    /// Databases of the first keys, and where their names end in `names`.
    few: Vec<(DbId, usize)>,
    names: Vec<u8>,
    others: HashSet<(DbId, Box<[u8]>)>,
}

impl Keys {
    fn few(&self) -> impl Iterator<Item = (DbId, &[u8])> {
        self.few.iter().scan(0, |start, (db, end)| {
            let name = &self.names[std::mem::replace(start, *end)..*end];
            Some((*db, name))
        })
    }

    fn contains(&self, db: DbId, key: &[u8]) -> bool {
        self.few().any(|known| known == (db, key))
            || !self.others.is_empty() && self.others.contains(&(db, key.into()))
    }

    /// Adds a key that is not there.
    fn insert(&mut self, db: DbId, key: &[u8]) {
        match self.few.len() {
            0..FEW => {
                self.names.extend_from_slice(key);
                self.few.push((db, self.names.len()));
            }
            _ => {
                self.others.insert((db, key.into()));
            }
        }
    }

    fn add_all(&mut self, keys: &Keys) {
        for (db, key) in keys.few().chain(keys.others.iter().map(|(db, key)| (*db, &**key))) {
            if !self.contains(db, key) {
                self.insert(db, key);
            }
        }
    }

    fn clear(&mut self) {
        self.few.clear();
        self.names.clear();
        self.others.clear();
    }
}

impl Unit<'_> {
    /// From now on keeps what it takes to undo, until [`Unit::end_undo`].
    pub fn begin_undo(&mut self) {
        let mut undo = self.kept_undo.take().unwrap_or_default();
        undo.flushed_all = self.flushes_all;
        undo.record_bytes = self.effects.len();
        undo.messages = self.messages;
        undo.ready = self.ready.len();
        undo.noted = self.events.noted();
        undo.invalidations = self.invalidations.len();
        undo.outer = self.undo.take();
        self.undo = Some(undo);
    }

    /// Whether everything can be undone since the first [`Unit::begin_undo`] that has not ended.
    pub fn can_undo(&self) -> bool {
        let mut undos = std::iter::successors(self.undo.as_deref(), |undo| undo.outer.as_deref()).peekable();
        undos.peek().is_some() && undos.all(|undo| !undo.is_lost)
    }

    /// Undoes everything since [`Unit::begin_undo`], and goes on keeping. Returns whether that was possible.
    pub fn undo(&mut self) -> bool {
        let Some(mut undo) = self.undo.take() else { return false };
        if undo.is_lost {
            self.undo = Some(undo);
            return false;
        }
        let mut end = undo.effects.len();
        for start in undo.steps.iter().rev() {
            let mut step = &undo.effects[*start..end];
            while let Some(effect) = Effect::decode_next(&mut step).expect("what was encoded decodes") {
                self.make(&effect);
            }
            end = *start;
        }
        self.flushes_all = undo.flushed_all;
        self.effects.truncate(undo.record_bytes);
        self.messages = undo.messages;
        self.ready.truncate(undo.ready);
        self.events.forget_from(undo.noted);
        self.interests.tracking().not_changed(undo.invalidations, self.invalidations);
        if undo.outer.is_none()
            && let Some(databases) = &mut self.databases
        {
            databases.undo();
        }
        self.undo = undo.outer.take();
        *self.kept_undo = undo.emptied();
        self.begin_undo();
        true
    }

    /// What was done since [`Unit::begin_undo`] stays, unless what began before it is undone. Returns whether something was
    /// changed.
    pub fn end_undo(&mut self) -> bool {
        let Some(mut undo) = self.undo.take() else { return false };
        let changed = self.effects.len() > undo.record_bytes;
        self.undo = undo.outer.take();
        if let Some(outer) = &mut self.undo {
            outer.take_over(&mut undo);
        }
        *self.kept_undo = undo.emptied();
        changed
    }

    /// An effect is about to be made.
    #[cold]
    pub(super) fn note_undo(&mut self, effect: &Effect<'_>) {
        let Some(mut undo) = self.undo.take() else { return };
        let start = undo.effects.len();
        let entry = |unit: &Self, db: DbId, key: &[u8], note: &mut dyn FnMut(Option<EntryRef<'_>>)| {
            let hash = unit.hash(key);
            note(unit.locked.slot(hash.slot()).get_raw(db, &hash, key));
        };
        match (effect.scope(), *effect) {
            (_, Effect::PutLibrary { name, .. } | Effect::DropLibrary { name }) => {
                match self.libraries().get(name) {
                    Some(library) => library.with_effect(|effect| undo.add(effect)),
                    None => undo.add(&Effect::DropLibrary { name }),
                }
            }
            (_, Effect::PutSetting { name, .. } | Effect::DropSetting { name }) => {
                match self.data_settings().get(name) {
                    Some(value) => undo.add(&Effect::PutSetting { name, value }),
                    None => undo.add(&Effect::DropSetting { name }),
                }
            }
            (Scope::Slot(key), _) => {
                let db = effect.target().map_or(DbId::ZERO, |(db, _)| db);
                entry(self, db, key, &mut |entry| undo.note(effect, db, key, entry));
            }
            (_, Effect::Move { db, key, to_db, to_key }) if (db, key) != (to_db, to_key) => {
                let mut exists = false;
                entry(self, db, key, &mut |entry| exists = entry.is_some());
                if exists {
                    undo.forget_names();
                    undo.add(&Effect::Move { db: to_db, key: to_key, to_db: db, to_key: key });
                    entry(self, to_db, to_key, &mut |entry| {
                        if entry.is_some() {
                            undo.restore(to_db, to_key, entry);
                        }
                    });
                }
            }
            (_, Effect::SwapDb { .. }) => {
                undo.forget_names();
                undo.add(effect);
            }
            (_, Effect::FlushDb { .. } | Effect::FlushAll) => undo.lose(),
            _ => {}
        }
        if undo.effects.len() > start {
            undo.steps.push(start);
        }
        self.undo = Some(undo);
    }
}

impl Undo {
    /// Nothing can be undone any more.
    fn lose(&mut self) {
        self.is_lost = true;
        self.effects = Vec::new();
        self.steps = Vec::new();
    }

    fn forget_names(&mut self) {
        self.whole.clear();
        self.has_moved = true;
    }

    /// Without anything noted, for another time; `None` if it keeps much memory.
    fn emptied(mut self: Box<Self>) -> Option<Box<Undo>> {
        let Keys { few, names, others } = &self.whole;
        let is_small = self.effects.capacity().max(names.capacity()) <= KEPT_BYTES_MAX
            && self.steps.capacity() * size_of::<usize>() <= KEPT_BYTES_MAX
            && others.capacity() == 0;
        debug_assert!(few.len() <= FEW);
        self.effects.clear();
        self.steps.clear();
        self.whole.clear();
        (self.is_lost, self.has_moved) = (false, false);
        is_small.then_some(self)
    }

    /// Goes on with what was kept for a part of what this is for, which has ended.
    fn take_over(&mut self, part: &mut Undo) {
        if part.is_lost {
            self.lose();
        }
        if part.has_moved {
            self.forget_names();
        }
        self.whole.add_all(&part.whole);
        let start = self.effects.len();
        if start == 0 {
            std::mem::swap(&mut self.effects, &mut part.effects);
        } else {
            self.effects.extend_from_slice(&part.effects);
        }
        self.steps.extend(part.steps.iter().map(|step| start + step));
    }

    fn add(&mut self, effect: &Effect<'_>) {
        if !self.is_lost {
            effect.encode_into(&mut self.effects);
        }
    }

    /// Makes the key what it is now.
    fn restore(&mut self, db: DbId, key: &[u8], entry: Option<EntryRef<'_>>) {
        let Some(entry) = entry else { return self.add(&Effect::Delete { db, key }) };
        let value = ValueBuf::of(entry);
        value.for_each_effect(db, key, entry.expire_at_ms(), |effect| self.add(effect));
    }

    /// An effect on one key, with what is there.
    fn note(&mut self, effect: &Effect<'_>, db: DbId, key: &[u8], entry: Option<EntryRef<'_>>) {
        if self.whole.contains(db, key) {
            return;
        }
        let large = entry.filter(|entry| entry.allocated_bytes() > COPIED_BYTES_MAX);
        let is_noted = large.is_some_and(|entry| self.note_elements(effect, db, key, entry));
        if !is_noted {
            self.restore(db, key, entry);
            self.whole.insert(db, key);
        }
    }

    /// Notes only what the effect names of a large value; `false`: nothing was noted, all of it must be copied.
    fn note_elements(&mut self, effect: &Effect<'_>, db: DbId, key: &[u8], entry: EntryRef<'_>) -> bool {
        if let Effect::SetExpiry { .. } = effect {
            self.add(&Effect::SetExpiry { db, key, expire_at_ms: entry.expire_at_ms() });
            return true;
        }
        match (effect, entry.view()) {
            (Effect::ListPush { end, items, .. }, View::List(_)) => {
                self.add(&Effect::ListPop { db, key, end: *end, count: items.len() as u64 });
            }
            (Effect::ListPop { end, count, .. }, View::List(list)) if *count < list.len() as u64 => {
                let (len, count) = (list.len(), *count as usize);
                let mut items = ItemsBuf::new();
                match end {
                    // Pushed one after the other: the one that was outermost comes last.
                    ListEnd::Head => {
                        (0..count).rev().filter_map(|at| list.get(at)).for_each(|it| items.push(&it))
                    }
                    ListEnd::Tail => list.range(len - count..len).for_each(|it| items.push(&it)),
                }
                self.add(&Effect::ListPush { db, key, end: *end, items: items.as_items() });
            }
            (Effect::ListSet { index, .. }, View::List(list)) => {
                if let Some(item) = usize::try_from(*index).ok().and_then(|at| list.get(at)) {
                    self.add(&Effect::ListSet { db, key, index: *index, item: &item });
                }
            }
            (Effect::ListRemove { end, count, item, .. }, View::List(list)) => {
                let limit =
                    if *count == 0 { usize::MAX } else { usize::try_from(*count).unwrap_or(usize::MAX) };
                let equal =
                    list.iter().enumerate().filter(|(_, element)| **element == **item).map(|(at, _)| at);
                let mut removed: SmallVec<[usize; PUT_BACK_MAX]> = match end {
                    ListEnd::Head => equal.take(limit.min(PUT_BACK_MAX + 1)).collect(),
                    ListEnd::Tail => equal.collect(),
                };
                removed.drain(..removed.len().saturating_sub(limit));
                if removed.len() > PUT_BACK_MAX || removed.len() == list.len() {
                    return false;
                }
                // In ascending order, so that each is put where it was.
                for index in removed {
                    self.add(&Effect::ListInsert { db, key, index: index as u64, item });
                }
            }
            (Effect::SetAdd { members, .. }, View::Set(set)) => {
                let mut added = ItemsBuf::new();
                members.iter().filter(|member| !set.contains(member)).for_each(|it| added.push(it));
                if !added.is_empty() {
                    self.add(&Effect::SetRemove { db, key, members: added.as_items() });
                }
            }
            (Effect::SetRemove { members, .. }, View::Set(set)) if members.len() < set.len() => {
                let mut removed = ItemsBuf::new();
                members.iter().filter(|member| set.contains(member)).for_each(|it| removed.push(it));
                if !removed.is_empty() {
                    self.add(&Effect::SetAdd { db, key, members: removed.as_items() });
                }
            }
            (Effect::ZsetPut { members, .. }, View::Zset(zset)) => {
                let names = members.iter().map(|(_, member)| member);
                self.note_members(db, key, names, |member| zset.score(member));
            }
            (Effect::ZsetRemove { members, .. }, View::Zset(zset)) if members.len() < zset.len() => {
                self.note_members(db, key, members.iter(), |member| zset.score(member));
            }
            (Effect::ZsetRemoveRanks { first, count, .. }, View::Zset(zset))
                if *count < zset.len() as u64 =>
            {
                let first = usize::try_from(*first).unwrap_or(usize::MAX).min(zset.len());
                let end = first.saturating_add(*count as usize).min(zset.len());
                let mut removed = ScoredItemsBuf::new();
                zset.range(first..end).for_each(|(member, score)| removed.push(score, &member));
                if !removed.is_empty() {
                    self.add(&Effect::ZsetPut { db, key, members: removed.as_items() });
                }
            }
            (Effect::HashPut { pairs, .. } | Effect::HashUpdate { pairs, .. }, View::Hash(_)) => {
                self.note_fields(db, key, pairs.pairs().map(|(field, _)| field), entry);
            }
            (Effect::HashRemove { fields, .. }, View::Hash(hash)) if fields.len() < hash.len() => {
                self.note_fields(db, key, fields.iter(), entry);
            }
            (Effect::HashSetExpiry { fields, .. }, View::Hash(_)) => {
                self.note_fields(db, key, fields.iter(), entry);
            }
            (_, View::Stream(stream)) => return streams::note(self, effect, db, key, stream),
            _ => return false,
        }
        true
    }

    /// Gives members the scores that they have, and removes those that are not there.
    fn note_members<'m>(
        &mut self,
        db: DbId,
        key: &[u8],
        members: impl Iterator<Item = &'m [u8]>,
        score: impl Fn(&[u8]) -> Option<f64>,
    ) {
        let (mut known, mut new) = (ScoredItemsBuf::new(), ItemsBuf::new());
        for member in members {
            match score(member) {
                Some(score) => known.push(score, member),
                None => new.push(member),
            }
        }
        if !known.is_empty() {
            self.add(&Effect::ZsetPut { db, key, members: known.as_items() });
        }
        if !new.is_empty() {
            self.add(&Effect::ZsetRemove { db, key, members: new.as_items() });
        }
    }

    /// Gives fields the values and deadlines that they have, and removes those that are not there.
    fn note_fields<'m>(
        &mut self,
        db: DbId,
        key: &[u8],
        fields: impl Iterator<Item = &'m [u8]>,
        entry: EntryRef<'_>,
    ) {
        let View::Hash(hash) = entry.view() else { return };
        let (mut known, mut new) = (ItemsBuf::new(), ItemsBuf::new());
        let mut deadlines = Vec::new();
        for name in fields {
            match hash.field(name) {
                Some(field) => {
                    known.push(name);
                    known.push(&field.value);
                    deadlines.extend(field.expire_at_ms.map(|deadline_ms| (name, deadline_ms)));
                }
                None => new.push(name),
            }
        }
        if !known.is_empty() {
            self.add(&Effect::HashPut { db, key, pairs: known.as_items() });
        }
        for (field, deadline_ms) in deadlines {
            let fields = Items::Slices(&[field]);
            self.add(&Effect::HashSetExpiry { db, key, fields, expire_at_ms: Some(deadline_ms) });
        }
        if !new.is_empty() {
            self.add(&Effect::HashRemove { db, key, fields: new.as_items() });
        }
    }
}
