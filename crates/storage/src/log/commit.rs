//! What is committed: safe in as many places as was asked for, so that replies may show it.
//!
//! What it is: the smaller of two positions, one of this disk and one of the replicas. As a rule no replica is asked for, and
//! the first alone counts.
//! What it is not: who counts replicas. Whoever does says up to where there are enough.
//!
//! Invariants
//! - Both positions are stored before anyone who waits is looked for, and waiters look at both after they have said so: no
//!   wake-up is lost, whichever moves last.

use lsn::Lsn;

use super::{Log, Shared};
use crate::sync::Ordering;

/// Stands for "no replica is asked for".
pub(super) const UNASKED: u64 = u64::MAX;

impl Log {
    /// Up to where replies may show what is in the log.
    #[inline]
    pub fn committed_lsn(&self) -> Lsn {
        Lsn::new(self.shared.committed())
    }

    /// From now on nothing behind `position` is committed, because replicas have to have it as well; [`Lsn::MAX`]: they have not.
    pub fn set_acked(&self, position: Lsn) {
        self.shared.acked.store(position.get(), Ordering::SeqCst);
        self.shared.waiters.wake(self.committed_lsn());
        self.shared.notify_progress();
    }

    /// Whether replicas have to have what is committed.
    #[inline]
    pub fn awaits_acks(&self) -> bool {
        self.shared.awaits_acks()
    }

    /// Up to where clients may be told what the log says: it may leave the server, and replicas have it if they have to.
    pub fn showable_lsn(&self) -> Lsn {
        if self.awaits_acks() { self.committed_lsn() } else { self.shippable_lsn() }
    }

    /// Wakes followers that wait, to look at something else than the log.
    pub fn wake_followers(&self) {
        self.shared.notify_progress();
    }
}

impl Shared {
    #[inline]
    pub(super) fn awaits_acks(&self) -> bool {
        self.acked.load(Ordering::Relaxed) != UNASKED
    }

    #[inline]
    pub(super) fn committed(&self) -> u64 {
        match self.acked.load(Ordering::SeqCst) {
            UNASKED => self.durable.load(Ordering::SeqCst),
            // With a durability that does not wait for this disk, that of the replicas counts.
            acked => acked.min(self.shippable_lsn().get()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::*;
    use crate::log::tests::{append, disk, recover};

    #[test]
    fn what_replicas_must_have_is_committed_when_they_have_it() {
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
}
