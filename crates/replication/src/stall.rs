//! The decision when scripts of clients are ended because they hold the slots that the applier of a replica
//! needs.
//!
//! Scripts that only read run on replicas, and may be endless. The leader, readers and a promotion wait for
//! the applier, so such scripts are ended after [`STALL_MS`], and after [`PROMOTION_STALL_MS`] during a
//! promotion. This module does not end them.
//!
//! Invariants
//! - An applier that has nothing to apply is not stalled, however long.

use lsn::Lsn;

/// Milliseconds without progress after which scripts are ended.
pub const STALL_MS: u64 = 5_000;

/// Milliseconds without progress after which scripts are ended during a promotion: clients wait for this
/// server to lead.
pub const PROMOTION_STALL_MS: u64 = 500;

/// Watches one applier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stall {
    applied: Lsn,
    /// The time since which the applier has applied nothing although there was something to apply.
    since_ms: Option<u64>,
}

impl Stall {
    /// Whether the applier has been stalled for `patience_ms`, so that scripts that have run for as long have
    /// to end. The applier has reached `applied` and may apply the log up to `applicable`. To be called about
    /// once a second.
    pub fn look(&mut self, now_ms: u64, applied: Lsn, applicable: Lsn, patience_ms: u64) -> bool {
        if applied >= applicable {
            self.since_ms = None;
        } else if applied != self.applied || self.since_ms.is_none() {
            self.since_ms = Some(now_ms);
        }
        self.applied = applied;
        self.since_ms.is_some_and(|since_ms| now_ms >= since_ms + patience_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_applier_has_stalled_only_if_it_applies_nothing_of_a_log_that_it_has() {
        let mut stall = Stall::default();
        let mut look = |now_ms, applied, end| stall.look(now_ms, Lsn::new(applied), Lsn::new(end), STALL_MS);
        assert!(!look(0, 10, 10) && !look(STALL_MS, 10, 10), "it has nothing to do");
        assert!(!look(6_000, 10, 20) && !look(5_999 + STALL_MS, 10, 30));
        assert!(look(6_000 + STALL_MS, 10, 30) && look(7_000 + STALL_MS, 10, 30), "until they have ended");
        assert!(!look(8_000 + STALL_MS, 20, 30), "it goes on");
        assert!(!look(9_000 + STALL_MS, 30, 30) && !look(9_000 + 2 * STALL_MS, 30, 40));
        assert!(look(9_000 + 3 * STALL_MS, 30, 40));
    }

    #[test]
    fn a_promotion_has_less_patience() {
        let mut stall = Stall::default();
        let (applied, end) = (Lsn::new(10), Lsn::new(20));
        assert!(!stall.look(0, applied, end, STALL_MS));
        assert!(!stall.look(1_000, applied, end, STALL_MS));
        assert!(stall.look(1_100, applied, end, PROMOTION_STALL_MS), "it has stalled for longer already");
    }
}
