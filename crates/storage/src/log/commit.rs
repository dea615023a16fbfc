//! The committed position: records before it are safe in as many places as configured, so replies may show
//! them.
//!
//! The committed position is the smaller of two positions, one for this disk and one for other servers. The
//! position for this disk is the durable position, or the written position if the durability does not sync
//! every batch. With `durability = none`, a sync may be minutes away, and no reply waits for the sync. The
//! position for other servers is determined elsewhere and set by [`Log::set_acked`]: on a leader, what enough
//! replicas have or its group has committed; on a follower, what its leader has committed or memory shows
//! already. By default there is none, and only the position for this disk counts.
//!
//! Invariants
//! - Both positions are stored before waiters are woken, and waiters check both after registering: no wake-up
//!   is lost, whichever position moves last.

use lsn::Lsn;

use super::{Log, LogState};
use crate::sync::Ordering;

/// The value of `acked` when only the position for this disk counts.
pub(super) const UNASKED: u64 = u64::MAX;

impl Log {
    /// The position up to which records are committed, so replies may show them.
    #[inline]
    pub fn committed_lsn(&self) -> Lsn {
        Lsn::new(self.shared.committed())
    }

    /// Sets the position after which nothing is committed, whatever this disk has: on a leader, what enough
    /// replicas have or its group has committed; on a follower, what it may show. [`Lsn::MAX`] for no such
    /// limit.
    pub fn set_acked(&self, position: Lsn) {
        self.shared.acked.store(position.get(), Ordering::SeqCst);
        self.shared.waiters.wake(self.committed_lsn());
        self.shared.notify_progress();
    }

    /// Begins to require acknowledgements of replicas, where none were required: from now on nothing is
    /// committed beyond the position that is returned, until [`Log::set_acked`] says so. The committed
    /// position does not go back.
    pub fn begin_to_await_acks(&self) -> Lsn {
        // While the flusher is locked, nothing is written or synced.
        let _flusher = self.shared.flusher.lock();
        let committed = self.committed_lsn();
        self.shared.acked.store(committed.get(), Ordering::SeqCst);
        committed
    }

    /// Whether commits depend on other servers, by [`Log::set_acked`] or [`Log::begin_to_await_acks`].
    #[inline]
    pub fn awaits_acks(&self) -> bool {
        self.shared.awaits_acks()
    }

    /// The position up to which clients may see the log: up to there, the log may leave the server, and it is
    /// committed if commits depend on other servers.
    pub fn showable_lsn(&self) -> Lsn {
        if self.awaits_acks() { self.committed_lsn() } else { self.shippable_lsn() }
    }

    /// Wakes waiting cursors so that they check conditions other than the log.
    pub fn wake_cursors(&self) {
        self.shared.notify_progress();
    }
}

impl LogState {
    #[inline]
    pub(super) fn awaits_acks(&self) -> bool {
        self.acked.load(Ordering::Relaxed) != UNASKED
    }

    #[inline]
    pub(super) fn committed(&self) -> u64 {
        // `shippable` must be loaded before `acked`. The log may begin to await acknowledgements between the
        // two loads. A position that becomes durable after that is not committed before replicas have it.
        let shippable = self.shippable_lsn().get();
        self.acked.load(Ordering::SeqCst).min(shippable)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc,
        },
        thread,
        time::Duration,
    };

    use super::*;
    use crate::{
        Durability, Prepare,
        log::tests::{append, disk, recover},
    };

    #[test]
    fn a_record_that_needs_acks_is_committed_with_them() {
        let (_, log) = recover(&disk()).expect("an empty disk");
        let mut appender = log.appender();
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = calls.clone();
        appender.listen(move || _ = counter.fetch_add(1, SeqCst));
        log.set_acked(Lsn::ZERO);
        let lsn = append(&mut appender, b"payload");
        log.flush_all().expect("flushes");
        assert!(log.durable_lsn() >= lsn && log.committed_lsn() < lsn && log.awaits_acks());
        assert!(appender.wait_for(lsn), "not committed");
        let before = calls.load(SeqCst);
        log.set_acked(lsn);
        assert_eq!((calls.load(SeqCst), log.committed_lsn()), (before + 1, lsn));
        log.set_acked(Lsn::MAX);
        assert!(!log.awaits_acks() && log.committed_lsn() == log.durable_lsn());
        assert!(!appender.wait_for(lsn));
    }

    #[test]
    fn what_was_committed_without_acks_stays_committed() {
        let (_, log) = recover(&disk()).expect("an empty disk");
        let mut appender = log.appender();
        append(&mut appender, b"payload");
        log.flush_all().expect("flushes");
        let before = log.committed_lsn();
        assert!(before > Lsn::ZERO);
        assert_eq!((log.begin_to_await_acks(), log.committed_lsn()), (before, before));
        append(&mut appender, b"payload");
        log.flush_all().expect("flushes");
        assert!(log.awaits_acks() && log.committed_lsn() == before && log.durable_lsn() > before);
    }

    #[test]
    fn without_syncs_a_record_is_committed_when_it_is_written() {
        for durability in [Durability::None, Durability::Interval] {
            let (_, log) = recover(&disk()).expect("an empty disk");
            // Listeners are also called when room is made.
            while log.prepare_segment().expect("makes a segment") == Prepare::Made {}
            log.set_durability(durability);
            let mut appender = log.appender();
            let calls = Arc::new(AtomicUsize::new(0));
            let counter = calls.clone();
            appender.listen(move || _ = counter.fetch_add(1, SeqCst));
            let lsn = append(&mut appender, b"payload");
            assert!(appender.wait_for(lsn), "not written yet");
            let before = calls.load(SeqCst);
            log.flush_all().expect("writes");
            assert_eq!(calls.load(SeqCst), before + 1, "{durability:?}");
            assert!(log.durable_lsn() < lsn && log.committed_lsn() >= lsn, "{durability:?}");
        }
    }

    #[test]
    fn cursors_are_woken_without_progress() {
        let (_, log) = recover(&disk()).expect("an empty disk");
        let cursor = log.cursor(log.shippable_lsn());
        let (ended, has_ended) = mpsc::channel();
        let waiting = thread::spawn(move || ended.send(cursor.wait(Duration::from_secs(3600))));
        // The wake-up is repeated, because it may come before the cursor waits; a minute is enough for any
        // machine.
        let found = (0..60_000).find_map(|_| {
            log.wake_cursors();
            has_ended.recv_timeout(Duration::from_millis(1)).ok()
        });
        assert_eq!(found, Some(false), "it is woken, and nothing more can be read");
        waiting.join().expect("no panic").expect("we listen");
    }
}
