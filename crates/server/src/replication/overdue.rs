//! Detects replies that have waited for replicas longer than `ack-timeout`.
//!
//! The end of the log is sampled with the time, just often enough to tell when the timeout has passed. The
//! waiting replies themselves, each with its own position, are not known here.

use std::collections::VecDeque;

use lsn::Lsn;

/// The resolution: the timeout is divided into this many steps.
const STEPS: u64 = 32;
/// The maximum number of samples: one per step, the last overdue one, and one more in case the timeout was
/// raised.
const SEEN_MAX: usize = STEPS as usize + 2;

/// The samples of the uncommitted log.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// Uncommitted ends of the log with the times of their samples, in order.
    seen: VecDeque<(u64, Lsn)>,
}

impl Overdue {
    /// Samples the end of the log and the commit position. Returns the position up to which replies have
    /// waited longer than `timeout_ms`. A timeout of 0 is no limit.
    pub(super) fn look(&mut self, now_ms: u64, end: Lsn, committed: Lsn, timeout_ms: u64) -> Option<Lsn> {
        self.seen.retain(|(_, seen)| *seen > committed);
        if timeout_ms == 0 || end <= committed {
            self.seen.clear();
            return None;
        }
        let is_due = |(seen_ms, seen): &(u64, Lsn)| *seen < end && now_ms >= seen_ms + timeout_ms / STEPS;
        if self.seen.len() < SEEN_MAX && self.seen.back().is_none_or(is_due) {
            self.seen.push_back((now_ms, end));
        }
        let is_over = |(seen_ms, _): &(u64, Lsn)| now_ms >= seen_ms + timeout_ms;
        let over = self.seen.iter().take_while(|seen| is_over(seen)).count();
        // Of the overdue samples, only the last one is needed.
        self.seen.drain(..over.saturating_sub(1));
        self.seen.front().filter(|seen| is_over(seen)).map(|(_, lsn)| *lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_positions_are_overdue_after_the_timeout_and_not_before() {
        let mut overdue = Overdue::default();
        let mut look = |now_ms, end, committed| {
            overdue.look(now_ms, Lsn::new(end), Lsn::new(committed), 10_000).map(Lsn::get)
        };
        assert_eq!(look(0, 100, 100), None);
        assert_eq!(look(1000, 200, 100), None);
        assert_eq!(look(5000, 300, 100), None);
        assert_eq!(look(10_999, 400, 100), None);
        assert_eq!(look(11_000, 400, 100), Some(200));
        assert_eq!(look(15_000, 400, 100), Some(300), "each at its time");
        assert_eq!(look(16_000, 400, 300), None, "a replica has it");
        assert_eq!(look(21_000, 400, 300), Some(400));
        assert_eq!(look(22_000, 400, 400), None);
        assert_eq!(look(40_000, 500, 400), None, "counted from when it was seen");
    }

    #[test]
    fn without_a_timeout_nothing_is_overdue_and_few_positions_are_kept() {
        let mut overdue = Overdue::default();
        for now_ms in (0..100_000_000).step_by(1000) {
            assert_eq!(overdue.look(now_ms, Lsn::new(1 + now_ms), Lsn::ZERO, 0), None);
        }
        assert!(overdue.seen.is_empty());
        for now_ms in (0..100_000_000).step_by(1000) {
            let over = overdue.look(now_ms, Lsn::new(1 + now_ms), Lsn::ZERO, 1_000_000);
            assert_eq!(over.is_some(), now_ms >= 1_000_000, "{now_ms}");
            assert!(over.is_none_or(|over| over.get() + 1_000_000 <= now_ms + 1));
            assert!(overdue.seen.len() <= SEEN_MAX);
        }
    }
}
