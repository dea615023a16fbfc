//! Undoing the changes of a script, of IDEMP, or of an EXEC that has commands on documents or may be
//! offloaded, before any other client has seen them.
//!
//! Before each effect is made, this module notes the effects that undo it. Small values are copied as a
//! whole. Of large values, only the elements that the effect names are copied, so that a script that pushes
//! onto a long list does not copy it. Undos nest: a script that IDEMP runs is undone alone, or with all
//! changes of IDEMP. Undo is not for effects that other clients may have seen. The slots stay locked from the
//! first effect to the last one undone, and the record of the unit is truncated to its former length.
//!
//! Invariants
//! - After undoing, the keyspace is as before, except for access stamps, and so are documents. No event or
//!   message is published, and no invalidation for a key that a client has read: the tracking of the key
//!   continues. But a WATCH may count the key as changed, and an undone SWAPDB invalidates all keys.
//! - Documents are undone with the outermost undo only: an inner one changes no documents.
//! - FLUSHALL and FLUSHDB cannot be undone, nor can the other changes since the undo began.

mod streams;

use std::collections::HashSet;

use keyspace::{
    DbId, Effect, EntryRef, GlobalOp, Items, ItemsBuf, KeyOp, ListEnd, ScoredItemsBuf, ValueBuf, View,
};
use smallvec::SmallVec;

use super::Unit;
use crate::stats::Expired;

/// Values up to this size, in bytes, are copied as a whole.
const COPIED_BYTES_MAX: usize = 1 << 8;

/// The notes of one undo: effects that take its changes back, and the state before it.
#[derive(Debug, Default)]
pub struct Undo {
    /// The encoded effects that undo the changes.
    effects: Vec<u8>,
    /// The start, in `effects`, of each group of effects. One group undoes one change; the groups are applied
    /// from the last one to the first one.
    steps: Vec<usize>,
    /// Keys that were copied as a whole, or did not exist: later changes of them need no notes, because
    /// undoing runs backwards and ends with the copy.
    whole: Keys,
    /// Whether an effect that cannot be undone was made.
    is_lost: bool,
    /// Whether keys were renamed or moved between databases: notes by name no longer apply to them.
    has_moved: bool,
    flushed_all: bool,
    expired: Expired,
    record_bytes: usize,
    messages: usize,
    ready: usize,
    noted: usize,
    invalidations: usize,
    /// The undo that was begun before, and ends later.
    outer: Option<Box<Undo>>,
}

/// The maximum bytes of each buffer of an ended undo that are kept for the next one.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The maximum number of equal elements of a list that are put back one by one; with more, the list is
/// copied.
const PUT_BACK_MAX: usize = 16;

/// The maximum number of changed keys that are compared one by one; further keys are in a hash table.
const FEW: usize = 8;

#[derive(Debug, Default)]
struct Keys {
    /// Databases of the first keys, and the ends of their names in `names`.
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

    /// Adds a key that is not in the set.
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
    /// Notes how to undo changes from now on, until [`Unit::end_undo`].
    pub fn begin_undo(&mut self) {
        let mut undo = self.kept_undo.take().unwrap_or_default();
        undo.flushed_all = self.flushes_all;
        undo.expired = self.expired;
        undo.record_bytes = self.effects.len();
        undo.messages = self.messages;
        undo.ready = self.ready.len();
        undo.noted = self.events.noted();
        undo.invalidations = self.invalidations.len();
        undo.outer = self.undo.take();
        self.undo = Some(undo);
    }

    /// Whether all changes since the outermost active [`Unit::begin_undo`] can be undone; `false` if none is
    /// active.
    pub fn can_undo(&self) -> bool {
        let mut undos = std::iter::successors(self.undo.as_deref(), |undo| undo.outer.as_deref()).peekable();
        undos.peek().is_some() && undos.all(|undo| !undo.is_lost)
    }

    /// Undoes all changes since [`Unit::begin_undo`], and begins again. Returns whether that was possible.
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
        self.expired = undo.expired;
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

    /// Keeps the changes since [`Unit::begin_undo`], unless an outer undo takes them back. Returns whether
    /// there are any.
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

    /// Notes how to undo an effect that is about to be made.
    #[cold]
    pub(super) fn note_undo(&mut self, effect: &Effect<'_>) {
        let Some(mut undo) = self.undo.take() else { return };
        let start = undo.effects.len();
        let entry = |unit: &Self, db: DbId, key: &[u8], note: &mut dyn FnMut(Option<EntryRef<'_>>)| {
            let hash = unit.hash(key);
            note(unit.locked.slot(hash.slot()).get_raw(db, &hash, key));
        };
        match *effect {
            Effect::Key { db, key, ref op } => {
                entry(self, db, key, &mut |entry| undo.note(op, db, key, entry));
            }
            Effect::Move { db, key, to_db, to_key } => {
                let mut exists = false;
                entry(self, db, key, &mut |entry| exists = entry.is_some());
                if exists && (db, key) != (to_db, to_key) {
                    undo.forget_names();
                    undo.add(&Effect::Move { db: to_db, key: to_key, to_db: db, to_key: key });
                    entry(self, to_db, to_key, &mut |entry| {
                        if entry.is_some() {
                            undo.restore(to_db, to_key, entry);
                        }
                    });
                }
            }
            Effect::Library { name, .. } => match self.libraries().get(name) {
                Some(library) => library.with_effect(|effect| undo.add(effect)),
                None => undo.add(&Effect::Library { name, content: None }),
            },
            Effect::Setting { name, .. } => {
                undo.add(&Effect::Setting { name, value: self.data_settings().get(name) });
            }
            Effect::Global(GlobalOp::SwapDb { .. }) => {
                undo.forget_names();
                undo.add(effect);
            }
            Effect::Global(GlobalOp::FlushDb { .. } | GlobalOp::FlushAll) => undo.lose(),
        }
        if undo.effects.len() > start {
            undo.steps.push(start);
        }
        self.undo = Some(undo);
    }
}

impl Undo {
    /// Gives the undo up: an effect that cannot be undone is about to be made.
    fn lose(&mut self) {
        self.is_lost = true;
        self.effects = Vec::new();
        self.steps = Vec::new();
    }

    fn forget_names(&mut self) {
        self.whole.clear();
        self.has_moved = true;
    }

    /// Clears the undo for reuse; `None` if its buffers are too large to keep.
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

    /// Takes over the notes of an inner undo that has ended.
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

    /// Notes effects that restore the present state of a key.
    fn restore(&mut self, db: DbId, key: &[u8], entry: Option<EntryRef<'_>>) {
        let Some(entry) = entry else { return self.add(&KeyOp::Delete.on(db, key)) };
        let value = ValueBuf::of(entry);
        value.for_each_effect(db, key, entry.expire_at_ms(), |effect| self.add(effect));
    }

    /// Notes how to undo an operation on a key. `entry` is the key's entry before the operation.
    fn note(&mut self, op: &KeyOp<'_>, db: DbId, key: &[u8], entry: Option<EntryRef<'_>>) {
        if self.whole.contains(db, key) {
            return;
        }
        let large = entry.filter(|entry| entry.allocated_bytes() > COPIED_BYTES_MAX);
        let is_noted = large.is_some_and(|entry| self.note_elements(op, db, key, entry));
        if !is_noted {
            self.restore(db, key, entry);
            self.whole.insert(db, key);
        }
    }

    /// Notes only the elements of a large value that the operation names. Returns `false` if nothing was
    /// noted, so that the whole value must be copied.
    fn note_elements(&mut self, op: &KeyOp<'_>, db: DbId, key: &[u8], entry: EntryRef<'_>) -> bool {
        if let KeyOp::SetExpiry { .. } = op {
            self.add(&KeyOp::SetExpiry { expire_at_ms: entry.expire_at_ms() }.on(db, key));
            return true;
        }
        match (op, entry.view()) {
            (KeyOp::ListPush { end, items }, View::List(_)) => {
                self.add(&KeyOp::ListPop { end: *end, count: items.len() as u64 }.on(db, key));
            }
            (KeyOp::ListPop { end, count }, View::List(list)) if *count < list.len() as u64 => {
                let (len, count) = (list.len(), *count as usize);
                let mut items = ItemsBuf::new();
                match end {
                    // The elements are pushed one by one, so the outermost one must be last.
                    ListEnd::Head => {
                        (0..count).rev().filter_map(|at| list.get(at)).for_each(|it| items.push(&it))
                    }
                    ListEnd::Tail => list.range(len - count..len).for_each(|it| items.push(&it)),
                }
                self.add(&KeyOp::ListPush { end: *end, items: items.as_items() }.on(db, key));
            }
            (KeyOp::ListSet { index, .. }, View::List(list)) => {
                if let Some(item) = usize::try_from(*index).ok().and_then(|at| list.get(at)) {
                    self.add(&KeyOp::ListSet { index: *index, item: &item }.on(db, key));
                }
            }
            (KeyOp::ListRemove { end, count, item }, View::List(list)) => {
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
                // The elements are inserted in ascending order, so that each returns to its index.
                for index in removed {
                    self.add(&KeyOp::ListInsert { index: index as u64, item }.on(db, key));
                }
            }
            (KeyOp::SetAdd { members }, View::Set(set)) => {
                let mut added = ItemsBuf::new();
                members.iter().filter(|member| !set.contains(member)).for_each(|it| added.push(it));
                if !added.is_empty() {
                    self.add(&KeyOp::SetRemove { members: added.as_items() }.on(db, key));
                }
            }
            (KeyOp::SetRemove { members }, View::Set(set)) if members.len() < set.len() => {
                let mut removed = ItemsBuf::new();
                members.iter().filter(|member| set.contains(member)).for_each(|it| removed.push(it));
                if !removed.is_empty() {
                    self.add(&KeyOp::SetAdd { members: removed.as_items() }.on(db, key));
                }
            }
            (KeyOp::ZsetPut { members }, View::Zset(zset)) => {
                let names = members.iter().map(|(_, member)| member);
                self.note_members(db, key, names, |member| zset.score(member));
            }
            (KeyOp::ZsetRemove { members }, View::Zset(zset)) if members.len() < zset.len() => {
                self.note_members(db, key, members.iter(), |member| zset.score(member));
            }
            (KeyOp::ZsetRemoveRanks { first, count }, View::Zset(zset)) if *count < zset.len() as u64 => {
                let first = usize::try_from(*first).unwrap_or(usize::MAX).min(zset.len());
                let end = first.saturating_add(*count as usize).min(zset.len());
                let mut removed = ScoredItemsBuf::new();
                zset.range(first..end).for_each(|(member, score)| removed.push(score, &member));
                if !removed.is_empty() {
                    self.add(&KeyOp::ZsetPut { members: removed.as_items() }.on(db, key));
                }
            }
            (KeyOp::HashPut { pairs } | KeyOp::HashUpdate { pairs }, View::Hash(_)) => {
                self.note_fields(db, key, pairs.pairs().map(|(field, _)| field), entry);
            }
            (KeyOp::HashRemove { fields }, View::Hash(hash)) if fields.len() < hash.len() => {
                self.note_fields(db, key, fields.iter(), entry);
            }
            (KeyOp::HashSetExpiry { fields, .. }, View::Hash(_)) => {
                self.note_fields(db, key, fields.iter(), entry);
            }
            (_, View::Stream(stream)) => return streams::note(self, op, db, key, stream),
            _ => return false,
        }
        true
    }

    /// Notes the present scores of members, and the removal of absent ones.
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
            self.add(&KeyOp::ZsetPut { members: known.as_items() }.on(db, key));
        }
        if !new.is_empty() {
            self.add(&KeyOp::ZsetRemove { members: new.as_items() }.on(db, key));
        }
    }

    /// Notes the present values and deadlines of fields, and the removal of absent ones.
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
            self.add(&KeyOp::HashPut { pairs: known.as_items() }.on(db, key));
        }
        for (field, deadline_ms) in deadlines {
            let fields = Items::Slices(&[field]);
            self.add(&KeyOp::HashSetExpiry { fields, expire_at_ms: Some(deadline_ms) }.on(db, key));
        }
        if !new.is_empty() {
            self.add(&KeyOp::HashRemove { fields: new.as_items() }.on(db, key));
        }
    }
}
