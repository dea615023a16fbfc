//! Pending entries: delivered by a group and not acknowledged, in the order of ids.
//!
//! What it is: deliveries in short sorted runs, which are found by id. A change touches one or two runs, and
//! a capture copies one run at a time.
//! What it is not: an index by consumer. Each consumer has its own index (see `group`).
//!
//! Invariants
//! - No run is empty or longer than `RUN_LEN_MAX`. The key of a run in the map is at most its first id, and
//!   above all ids of the previous run.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::StreamId;

/// The maximum number of deliveries in one run.
const RUN_LEN_MAX: usize = if cfg!(test) { 8 } else { 64 };
/// A run that removals have left short is merged with the next one if both together are no longer than this.
const MERGED_LEN_MAX: usize = RUN_LEN_MAX / 2;

/// About the bytes of memory of a pending entry: in its run, which may have spare memory, and in the index of
/// its consumer.
pub(super) const PENDING_BYTES: usize = 80;

/// An entry that was delivered to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    pub(super) id: StreamId,
    /// When the entry was delivered last, Unix time in milliseconds.
    pub(super) time_ms: u64,
    /// How often the entry was delivered.
    pub(super) count: u32,
    /// The number of the consumer in its group.
    pub(super) consumer: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) entries: Vec<Pending>,
    /// As in a `Block`: the number of the last capture that has copied the run or, if none has, of the last
    /// capture that was begun before the run was made.
    pub(super) captured: u32,
}

/// All pending entries of a group.
#[derive(Debug, Default)]
pub(super) struct PendingMap {
    runs: BTreeMap<StreamId, Run>,
    len: usize,
}

impl PendingMap {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The lowest id.
    pub(super) fn first(&self) -> Option<StreamId> {
        Some(self.runs.values().next()?.entries.first()?.id)
    }

    /// The highest id.
    pub(super) fn last(&self) -> Option<StreamId> {
        Some(self.runs.values().next_back()?.entries.last()?.id)
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&Pending> {
        let (_, run) = self.runs.range(..=id).next_back()?;
        let at = run.entries.binary_search_by_key(&id, |pending| pending.id).ok()?;
        Some(&run.entries[at])
    }

    /// The pending entries with an id in a range, in order.
    pub(super) fn range(&self, ids: RangeInclusive<StreamId>) -> impl Iterator<Item = &Pending> {
        let (from, to) = ids.into_inner();
        let start = self.runs.range(..=from).next_back().map_or(from, |(&first, _)| first);
        // A range whose bounds are in the wrong order is empty.
        let runs = (from <= to).then(|| self.runs.range(start..=to));
        let entries = runs.into_iter().flatten().flat_map(|(_, run)| &run.entries);
        entries.skip_while(move |pending| pending.id < from).take_while(move |pending| pending.id <= to)
    }

    /// Adds a pending entry, or replaces the pending entry with the same id and returns the old one. A run is
    /// passed to `capture` before it changes.
    pub(super) fn put(
        &mut self,
        pending: Pending,
        captured: u32,
        mut capture: impl FnMut(&mut Run),
    ) -> Option<Pending> {
        let id = pending.id;
        let Some((&first, run)) = self.runs.range_mut(..=id).next_back() else {
            return self.put_first(pending, captured, capture);
        };
        let at = match run.entries.binary_search_by_key(&id, |pending| pending.id) {
            Ok(at) => {
                capture(run);
                return Some(std::mem::replace(&mut run.entries[at], pending));
            }
            Err(at) => at,
        };
        self.len += 1;
        let is_last = at == run.entries.len();
        if is_last && at >= RUN_LEN_MAX {
            // A new run begins after a full one, which is not split: most entries are added at the end.
            self.runs.insert(id, Run { entries: vec![pending], captured });
            return None;
        }
        capture(run);
        run.entries.insert(at, pending);
        if run.entries.len() > RUN_LEN_MAX {
            let entries = run.entries.split_off(RUN_LEN_MAX / 2);
            let captured = run.captured;
            debug_assert!(first < entries[0].id);
            self.runs.insert(entries[0].id, Run { entries, captured });
        }
        None
    }

    /// Adds a pending entry whose id is below all others.
    fn put_first(
        &mut self,
        pending: Pending,
        captured: u32,
        mut capture: impl FnMut(&mut Run),
    ) -> Option<Pending> {
        self.len += 1;
        let mut run = Run { entries: Vec::new(), captured };
        if let Some(first) = self.runs.first_entry().filter(|first| first.get().entries.len() < RUN_LEN_MAX) {
            run = first.remove();
            capture(&mut run);
        }
        run.entries.insert(0, pending);
        self.runs.insert(pending.id, run);
        None
    }

    /// Removes a pending entry and returns it. Each run is passed to `capture` before it changes.
    pub(super) fn remove(&mut self, id: StreamId, mut capture: impl FnMut(&mut Run)) -> Option<Pending> {
        let (&first, run) = self.runs.range_mut(..=id).next_back()?;
        let at = run.entries.binary_search_by_key(&id, |pending| pending.id).ok()?;
        capture(run);
        let removed = run.entries.remove(at);
        self.len -= 1;
        let left = run.entries.len();
        if left == 0 {
            self.runs.remove(&first);
        } else if left <= MERGED_LEN_MAX / 2 {
            self.merge(first, capture);
        }
        Some(removed)
    }

    /// Merges a run with the next one, if both are short.
    fn merge(&mut self, first: StreamId, mut capture: impl FnMut(&mut Run)) {
        let mut runs = self.runs.range_mut(first..);
        let (Some((_, run)), Some((&next, other))) = (runs.next(), runs.next()) else { return };
        if run.entries.len() + other.entries.len() > MERGED_LEN_MAX {
            return;
        }
        capture(other);
        run.entries.append(&mut other.entries);
        self.runs.remove(&next);
    }

    /// The first run whose key is this id or above it, and the id from which to look for the next run.
    pub(super) fn run_from(&mut self, id: StreamId) -> Option<(&mut Run, Option<StreamId>)> {
        let (_, run) = self.runs.range_mut(id..).next()?;
        let next = run.entries.last().and_then(|last| last.id.next());
        Some((run, next))
    }

    pub(super) fn into_runs(self) -> impl Iterator<Item = Run> {
        self.runs.into_values()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut before = None;
        for (first, run) in &self.runs {
            assert!(!run.entries.is_empty() && run.entries.len() <= RUN_LEN_MAX);
            assert!(*first <= run.entries[0].id && before < Some(*first));
            assert!(run.entries.is_sorted_by(|one, other| one.id < other.id));
            before = run.entries.last().map(|last| last.id);
        }
        assert_eq!(self.len, self.runs.values().map(|run| run.entries.len()).sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_in_runs_is_a_map(
            edits in prop::collection::vec((0..200u64, prop_oneof![2 => Just(true), 1 => Just(false)]), 0..400),
            (from, to) in (0..200u64, 0..200u64),
        ) {
            let (mut map, mut model) = (PendingMap::default(), BTreeMap::new());
            let id = |number| StreamId::new(number / 3, number % 3);
            for (count, (number, puts)) in edits.into_iter().enumerate() {
                let id = id(number);
                let pending = Pending { id, time_ms: 1, count: count as u32, consumer: 0 };
                if puts {
                    prop_assert_eq!(map.put(pending, 0, |_| ()), model.insert(id, pending));
                } else {
                    prop_assert_eq!(map.remove(id, |_| ()), model.remove(&id));
                }
                prop_assert_eq!(map.get(id), model.get(&id));
            }
            map.check();
            let all = map.range(StreamId::ZERO..=StreamId::MAX).copied();
            prop_assert!(all.eq(model.values().copied()));
            let expected = model.values().filter(|pending| id(from) <= pending.id && pending.id <= id(to));
            prop_assert!(map.range(id(from)..=id(to)).eq(expected));
        }
    }
}
