//! Moving an entry to another key: the only effect on two keys.
//!
//! What it is: the entry is taken out of its table, and put into the table of its new key. A big collection
//! is moved by its address, so its size does not matter. Only if the collection is being captured and goes to
//! another slot, the capture first copies the part that it has not captured yet. A string or a packed
//! collection lies in one allocation with its key: it is copied if the keys differ in length, or if a capture
//! needs the old entry.
//! What it is not: the choice between a Move and a Put. The maker of the effect makes this choice.
//!
//! Invariants
//! - Both slots stay locked until the entry is at its new key. The bookkeeping of the source is as for a
//!   removed entry, the bookkeeping of the destination as for a new or replaced entry.

use crate::apply::{Applied, Deadlines, Due, Target};
use crate::capture::Impact;
use crate::effect::Effect;
use crate::entry::Entry;
use crate::freed::Freed;
use crate::keyspace::Keyspace;
use crate::slot::{SlotGuard, SlotState};

const NOT_OF_THE_KEYS: &str = "a Move applied to slots that are not those of its keys";

/// Applies a Move from a key of one slot to a key of another.
///
/// # Panics
/// If a key belongs to another slot than its guard's.
pub(crate) fn apply_move_between(
    from: &mut SlotGuard<'_>,
    to: &mut SlotGuard<'_>,
    effect: &Effect<'_>,
    freed: &mut Freed,
) -> Applied {
    let (source, destination) = ends(from.keyspace, effect);
    let slots = (source.hash.slot(), destination.hash.slot());
    assert_eq!(slots, (from.slot(), to.slot()), "{NOT_OF_THE_KEYS}");
    let Some(mut entry) = from.take_entry(source, destination.key, freed) else { return Applied::default() };
    if let Some(capture) = from.state.capture_mut() {
        capture.finish(&mut entry);
    }
    to.place_entry(destination, entry, freed)
}

/// The source and the destination of the entry.
fn ends<'a>(keyspace: &Keyspace, effect: &Effect<'a>) -> (Target<'a>, Target<'a>) {
    let Effect::Move { db, key, to_db, to_key } = *effect else { unreachable!("only a Move has two keys") };
    let target = |db, key| Target { db, hash: keyspace.hash(key), key };
    (target(db, key), target(to_db, to_key))
}

impl SlotGuard<'_> {
    /// Applies a Move between two keys of this slot.
    #[cold]
    pub(super) fn apply_move(&mut self, effect: &Effect<'_>, freed: &mut Freed) -> Applied {
        let (source, destination) = ends(self.keyspace, effect);
        let slots = (source.hash.slot(), destination.hash.slot());
        assert_eq!(slots, (self.slot(), self.slot()), "{NOT_OF_THE_KEYS}");
        if (source.db, source.key) == (destination.db, destination.key) {
            return Applied::default();
        }
        let Some(entry) = self.take_entry(source, destination.key, freed) else { return Applied::default() };
        let applied = self.place_entry(destination, entry, freed);
        if let Some(capture) = self.state.capture_mut() {
            capture.put_down(destination.db, destination.key);
        }
        applied
    }

    /// Takes the entry out of the source and gives it the key of the destination; `None` if the source has no
    /// entry.
    fn take_entry(&mut self, source: Target<'_>, to_key: &[u8], freed: &mut Freed) -> Option<Entry> {
        let mut taken = None;
        self.change(source, Impact::Keep, |state, source| {
            taken = state.take(source, to_key, freed);
            let old = taken.as_ref().map_or_else(Due::default, |entry| Due::of(entry.as_ref()));
            (Applied::default(), Deadlines { old, new: Due::default() })
        });
        taken
    }

    fn place_entry(&mut self, destination: Target<'_>, entry: Entry, freed: &mut Freed) -> Applied {
        self.change(destination, Impact::Keep, |state, destination| state.place(destination, entry, freed))
    }
}

impl SlotState {
    /// Takes an entry out and gives it another key. If the entry is a big collection that is being captured,
    /// the capture notes that the collection moves (`lift`).
    fn take(&mut self, source: Target<'_>, to_key: &[u8], freed: &mut Freed) -> Option<Entry> {
        let entry = self.remove(source)?;
        match self.capture_mut() {
            Some(capture) if capture.needs(source.db, &entry) => {
                if !entry.as_ref().is_big() {
                    let copy = entry.copied_to(to_key);
                    capture.detach(source.db, entry);
                    return Some(copy);
                }
                capture.lift(source.db, source.key);
            }
            _ => {}
        }
        let (entry, left) = entry.rekeyed(to_key);
        if let Some(left) = left {
            freed.entry(left);
        }
        Some(entry)
    }

    /// Puts an entry at the target's key, which the entry already carries. Replaces an entry that is there.
    fn place(&mut self, target: Target<'_>, entry: Entry, freed: &mut Freed) -> (Applied, Deadlines) {
        let mut applied = Applied { changed: true, key_removed: true, ..Applied::default() };
        let new = Due::of(entry.as_ref());
        let table = self.table_mut(target.db);
        let Some(mut occupied) = table.get_mut(&target.hash, target.key) else {
            table.insert(&target.hash, entry);
            applied.key_created = true;
            return (applied, Deadlines { old: Due::default(), new });
        };
        let old = Due::of(occupied.entry());
        let replaced = occupied.update(|there| std::mem::replace(there, entry));
        self.retire(target.db, replaced, freed);
        (applied, Deadlines { old, new })
    }
}
