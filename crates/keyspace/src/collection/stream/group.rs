//! Groups: consumers that share the entries of a stream, and the entries that each has not acknowledged.
//!
//! What it is: the position of a group, its consumers by name, its pending entries, and for each consumer the
//! ids of the entries pending for it. What it is not: aware of the entries themselves: a pending one may have
//! been removed from the stream.
//!
//! Invariants
//! - An entry is pending for one consumer only; the `ids` of that consumer contain the entry's id.
//! - The index of a consumer in `consumers` is its number until it is removed; another consumer may then get
//!   the number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::StreamId;
use super::pending::{PENDING_BYTES, Pending, PendingMap, Run};

/// About the bytes of memory of a group or a consumer, not counting names and entries.
const BYTES_EACH: usize = 160;

/// The largest [`GroupPosition::entries_read`]: a record of the log stores the number plus 1.
pub const ENTRIES_READ_MAX: u64 = u64::MAX - 1;

/// How far a group has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupPosition {
    /// The id of the last entry that was delivered to any consumer, or another id that a client has set.
    pub last_id: StreamId,
    /// The number of entries ever added up to `last_id`, as counted here or set by a client; `None` if it is
    /// unknown.
    pub entries_read: Option<u64>,
}

/// The time at which a pending entry was delivered last, and the number of its deliveries. XCLAIM can set
/// either to another value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The entry.
    pub id: StreamId,
    /// When the entry was delivered last, Unix time in milliseconds.
    pub time_ms: u64,
    /// How often the entry was delivered.
    pub count: u32,
}

/// The times of a consumer's last actions. A consumer that was copied from another server keeps its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerTimes {
    /// The Unix time in milliseconds at which the consumer was made or was last seen to request entries. Not
    /// every request is noted.
    pub seen_ms: u64,
    /// Unix time in milliseconds at which an entry last became pending for the consumer; `None` for never.
    pub active_ms: Option<u64>,
}

#[derive(Debug)]
struct Consumer {
    name: Arc<[u8]>,
    times: ConsumerTimes,
    ids: BTreeSet<StreamId>,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    position: GroupPosition,
    pub(super) pending: PendingMap,
    /// The consumers by number.
    consumers: Vec<Option<Consumer>>,
    by_name: BTreeMap<Arc<[u8]>, u32>,
    name_bytes: usize,
}

impl Group {
    /// Sets the position of the group; returns whether it has changed.
    pub(super) fn set_position(&mut self, position: GroupPosition) -> bool {
        std::mem::replace(&mut self.position, position) != position
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        (1 + self.consumers.len()) * BYTES_EACH + self.name_bytes + self.pending.len() * PENDING_BYTES
    }

    /// Makes a consumer, or changes its times; returns whether it is new.
    pub(super) fn put_consumer(&mut self, name: &[u8], times: ConsumerTimes) -> bool {
        if let Some(consumer) =
            self.number_of(name).and_then(|number| self.consumers[number as usize].as_mut())
        {
            consumer.times = times;
            return false;
        }
        let name: Arc<[u8]> = name.into();
        let consumer = Some(Consumer { name: name.clone(), times, ids: BTreeSet::new() });
        let number = match self.consumers.iter().position(Option::is_none) {
            Some(free) if self.by_name.len() < self.consumers.len() => {
                self.consumers[free] = consumer;
                free
            }
            _ => {
                self.consumers.push(consumer);
                self.consumers.len() - 1
            }
        };
        self.name_bytes += name.len();
        self.by_name.insert(name, number as u32);
        true
    }

    /// Removes a consumer with its pending entries; returns the number of these entries, or `None` if there
    /// is no consumer of this name. Each run is passed to `capture` before it changes.
    pub(super) fn remove_consumer(
        &mut self,
        name: &[u8],
        mut capture: impl FnMut(&Group, &mut Run),
    ) -> Option<usize> {
        let number = self.number_of(name)?;
        let ids = std::mem::take(&mut self.consumers.get_mut(number as usize)?.as_mut()?.ids);
        for &id in &ids {
            self.change_pending(|group, pending| pending.remove(id, |run| capture(group, run)));
        }
        self.by_name.remove(name);
        self.name_bytes -= name.len();
        self.consumers[number as usize] = None;
        while self.consumers.pop_if(|last| last.is_none()).is_some() {}
        Some(ids.len())
    }

    /// Makes an entry pending for an existing consumer. Returns whether the entry was pending before.
    pub(super) fn pend(
        &mut self,
        consumer: u32,
        delivery: Delivery,
        captured: u32,
        mut capture: impl FnMut(&Group, &mut Run),
    ) -> bool {
        let Delivery { id, time_ms, count } = delivery;
        let pending = Pending { id, time_ms, count, consumer };
        let before = self.change_pending(|group, map| map.put(pending, captured, |run| capture(group, run)));
        let owner = before.map(|before| before.consumer);
        if owner != Some(consumer) {
            self.forget(owner, id);
            if let Some(consumer) = &mut self.consumers[consumer as usize] {
                consumer.ids.insert(id);
            }
        }
        owner.is_some()
    }

    /// Acknowledges an entry; returns whether it was pending.
    pub(super) fn unpend(&mut self, id: StreamId, mut capture: impl FnMut(&Group, &mut Run)) -> bool {
        let removed = self.change_pending(|group, map| map.remove(id, |run| capture(group, run)));
        self.forget(removed.map(|removed| removed.consumer), id);
        removed.is_some()
    }

    /// Passes the first run that begins at this id or after it to `capture`. Returns the id at which to
    /// continue; `None` at the end.
    pub(super) fn capture_run(
        &mut self,
        from: StreamId,
        capture: impl FnOnce(&Group, &mut Run),
    ) -> Option<StreamId> {
        self.change_pending(|group, pending| {
            let (run, next) = pending.run_from(from)?;
            capture(group, run);
            next
        })
    }

    /// Takes all pending entries out, because the group is removed.
    pub(super) fn take_runs(&mut self) -> impl Iterator<Item = Run> + use<> {
        std::mem::take(&mut self.pending).into_runs()
    }

    pub(super) fn position(&self) -> GroupPosition {
        self.position
    }

    pub(super) fn named_consumers(&self) -> impl Iterator<Item = (Arc<[u8]>, ConsumerTimes)> {
        self.consumers.iter().flatten().map(|consumer| (consumer.name.clone(), consumer.times))
    }

    /// Takes the pending entries out while `change` changes them, so that `change` can read the rest of the
    /// group.
    fn change_pending<R>(&mut self, change: impl FnOnce(&Group, &mut PendingMap) -> R) -> R {
        let mut pending = std::mem::take(&mut self.pending);
        let result = change(self, &mut pending);
        self.pending = pending;
        result
    }

    fn forget(&mut self, consumer: Option<u32>, id: StreamId) {
        if let Some(Some(consumer)) = consumer.and_then(|number| self.consumers.get_mut(number as usize)) {
            consumer.ids.remove(&id);
        }
    }

    pub(super) fn number_of(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The name of the consumer with this number.
    pub(super) fn name_of(&self, number: u32) -> Option<&Arc<[u8]>> {
        Some(&self.consumers.get(number as usize)?.as_ref()?.name)
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.pending.check();
        let mut indexed = 0;
        for (name, &number) in &self.by_name {
            let consumer = self.consumers[number as usize].as_ref().expect("a consumer with a name");
            assert_eq!(consumer.name, *name);
            indexed += consumer.ids.len();
            for &id in &consumer.ids {
                assert_eq!(self.pending.get(id).map(|pending| pending.consumer), Some(number));
            }
        }
        assert_eq!(indexed, self.pending.len());
        assert_eq!(self.by_name.len(), self.consumers.iter().flatten().count());
        assert_eq!(self.name_bytes, self.by_name.keys().map(|name| name.len()).sum::<usize>());
    }
}

/// A group, to be read.
#[derive(Clone, Copy)]
pub struct GroupView<'a>(pub(super) &'a Group);

/// A consumer, to be read.
#[derive(Clone, Copy)]
pub struct ConsumerView<'a>(&'a Consumer);

/// An entry that is pending.
#[derive(Clone, Copy)]
pub struct PendingView<'a> {
    /// The name of the consumer for which the entry is pending.
    pub consumer: &'a [u8],
    /// The entry, its last delivery and the number of deliveries.
    pub delivery: Delivery,
}

impl<'a> GroupView<'a> {
    /// The position of the group.
    pub fn position(&self) -> GroupPosition {
        self.0.position
    }

    /// How many entries are pending.
    pub fn pending_len(&self) -> usize {
        self.0.pending.len()
    }

    /// The lowest id that is pending.
    pub fn first_pending(&self) -> Option<StreamId> {
        self.0.pending.first()
    }

    /// The highest id that is pending.
    pub fn last_pending(&self) -> Option<StreamId> {
        self.0.pending.last()
    }

    /// The pending entry with this id.
    pub fn pending(&self, id: StreamId) -> Option<PendingView<'a>> {
        Some(self.shown(self.0.pending.get(id)?))
    }

    /// The pending entries with ids in a range, in order.
    pub fn pending_in(
        &self,
        ids: RangeInclusive<StreamId>,
    ) -> impl Iterator<Item = PendingView<'a>> + use<'a> {
        let group = *self;
        self.0.pending.range(ids).map(move |pending| group.shown(pending))
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<ConsumerView<'a>> {
        let number = self.0.number_of(name)?;
        self.0.consumers.get(number as usize)?.as_ref().map(ConsumerView)
    }

    /// How many consumers there are.
    pub fn consumers_len(&self) -> usize {
        self.0.by_name.len()
    }

    /// The consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = ConsumerView<'a>> + use<'a> {
        let group = self.0;
        group
            .by_name
            .values()
            .filter_map(|&number| group.consumers.get(number as usize)?.as_ref().map(ConsumerView))
    }

    fn shown(&self, pending: &Pending) -> PendingView<'a> {
        let Pending { id, time_ms, count, consumer } = *pending;
        let consumer = self.0.name_of(consumer).map_or(&[][..], |name| name);
        PendingView { consumer, delivery: Delivery { id, time_ms, count } }
    }
}

impl<'a> ConsumerView<'a> {
    /// The name of the consumer.
    pub fn name(&self) -> &'a [u8] {
        &self.0.name
    }

    /// The times of the consumer's last actions.
    pub fn times(&self) -> ConsumerTimes {
        self.0.times
    }

    /// The number of entries that are pending for the consumer.
    pub fn pending_len(&self) -> usize {
        self.0.ids.len()
    }

    /// The pending ids in a range, in order.
    pub fn pending_ids(&self, ids: RangeInclusive<StreamId>) -> impl Iterator<Item = StreamId> + use<'a> {
        // A range whose bounds are in the wrong order is empty.
        let found = (ids.start() <= ids.end()).then(|| self.0.ids.range(ids));
        found.into_iter().flatten().copied()
    }
}
