//! The entries of Raft: the batches of the log, by reference.
//!
//! `Entries` keeps the epoch and the end of all batches that are not committed, and of the last committed
//! ones; see [`KEPT_MAX`]. Older batches are never needed: the messages between members carry no entries,
//! because batches are sent on the connection that ships the log.
//!
//! Invariants
//! - Entries are contiguous; the entry before the first one is committed.
//! - An entry is never replaced: a log that has diverged is cut while its server restarts.

use std::collections::VecDeque;

use lsn::Lsn;
use raft::{
    Error, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
};

use crate::Batch;

/// While more entries than this are kept, the oldest committed ones are dropped.
pub(crate) const KEPT_MAX: usize = 4096;

pub(crate) fn index_of(number: u64) -> u64 {
    number + 1
}

#[derive(Debug, Clone, Copy)]
struct Reference {
    term: u64,
    /// The end of the batch; zero until [`Entries::place`] notes it.
    end: Lsn,
}

pub(crate) struct Entries {
    /// The entry before the first kept entry, with its index.
    before: (u64, Reference),
    kept: VecDeque<Reference>,
    initial: RaftState,
}

impl Entries {
    /// The entries of a log. `before` is committed, and `batches` follow it without a gap.
    pub(crate) fn new(
        before: Option<Batch>,
        batches: &[Batch],
        ballot: (u64, u64),
        conf: ConfState,
    ) -> Entries {
        let reference = |batch: &Batch| Reference { term: batch.epoch.into(), end: batch.end };
        let before = match before {
            Some(batch) => (index_of(batch.number), reference(&batch)),
            None => (0, Reference { term: 0, end: Lsn::ZERO }),
        };
        let hard_state =
            HardState { term: ballot.0, vote: ballot.1, commit: before.0, ..HardState::default() };
        Entries {
            before,
            kept: batches.iter().map(reference).collect(),
            initial: RaftState::new(hard_state, conf),
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.before.0 + self.kept.len() as u64
    }

    fn get(&self, index: u64) -> Option<Reference> {
        match index.checked_sub(self.before.0)? {
            0 => Some(self.before.1),
            behind => self.kept.get(behind as usize - 1).copied(),
        }
    }

    /// The term of an entry; `None` if the entry is too old, or does not exist.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        self.get(index).map(|reference| reference.term)
    }

    /// The end of an entry's batch; `None` if the entry is too old or does not exist, or the end is not
    /// noted.
    pub(crate) fn end_of(&self, index: u64) -> Option<Lsn> {
        self.get(index).map(|reference| reference.end).filter(|&end| end > Lsn::ZERO || index == 0)
    }

    /// The index of the last entry whose batch ends at or before `position`; if there is none, the index of
    /// the entry before the first kept one.
    pub(crate) fn last_before(&self, position: Lsn) -> u64 {
        let known =
            self.kept.partition_point(|reference| reference.end > Lsn::ZERO && reference.end <= position);
        self.before.0 + known as u64
    }

    /// Adds an entry of the engine.
    ///
    /// # Panics
    /// If it is not the next entry.
    pub(crate) fn push(&mut self, index: u64, term: u64) {
        assert_eq!(index, self.last() + 1, "entries are contiguous");
        self.kept.push_back(Reference { term, end: Lsn::ZERO });
    }

    /// Notes the end of an entry's batch, if the entry is still kept.
    ///
    /// # Panics
    /// If the entry does not exist yet, or is another batch.
    pub(crate) fn place(&mut self, batch: &Batch) {
        let index = index_of(batch.number);
        let Some(at) = index.checked_sub(self.before.0 + 1) else { return };
        let reference = self.kept.get_mut(at as usize).expect("the entry exists");
        assert_eq!(reference.term, u64::from(batch.epoch), "entry {index} is another batch");
        reference.end = batch.end;
    }

    /// Drops the oldest committed entries while more than [`KEPT_MAX`] entries are kept.
    pub(crate) fn trim(&mut self, committed: u64) {
        while self.kept.len() > KEPT_MAX && self.before.0 + 1 < committed {
            let Some(first) = self.kept.pop_front() else { return };
            self.before = (self.before.0 + 1, first);
        }
    }
}

impl Storage for Entries {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        _: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = |index: u64| {
            let term = self.term_of(index).ok_or(Error::Store(StorageError::Unavailable))?;
            Ok(Entry { index, term, ..Entry::default() })
        };
        (low..high).map(entry).collect()
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_of(index) {
            Some(term) => Ok(term),
            None if index < self.before.0 => Err(Error::Store(StorageError::Compacted)),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// The engine never copies a snapshot: a member that lags too far copies files.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
