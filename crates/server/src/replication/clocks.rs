//! Compares the time of day here with the leader's: a batch that was just closed carries its closing time.
//!
//! Keys expire by the leader's clock. If the clocks of the members differ, keys expire too early or too late
//! after a change of leaders. Votes and leases do not depend on these clocks.
//!
//! A committed batch may be old when it arrives; an uncommitted one was just written. A batch with a time in
//! the future always shows that a clock is wrong, so the end of the log is checked at a start, too. The time
//! in the log never goes back: a leader whose clock is behind repeats the time of the batch before. Followers
//! notice such a leader once the repeated time is a minute ago by their clocks.

use lsn::Lsn;
use parking_lot::Mutex;
use storage::BatchInfo;

use crate::repeated::Repeated;

/// Differences above this cause a warning, because no new batch takes so long to arrive.
const APART_MS_MAX: u64 = 60_000;

/// The warnings about clocks that were given lately.
#[derive(Default)]
pub(super) struct Clocks(Mutex<Repeated>);

impl Clocks {
    /// Checks the newest of these batches of the log. Batches that end after `commit` were just written.
    pub(super) fn look(&self, batches: &[BatchInfo], commit: Lsn, unix_ms: u64, now_ms: u64) {
        let Some(apart_ms) = apart_ms(batches, commit, unix_ms) else { return };
        let text = if apart_ms > 0 { "ahead of" } else { "behind" };
        if let Some(unlogged) = self.0.lock().note(text, now_ms) {
            tracing::warn!(
                target: "group", seconds = apart_ms.unsigned_abs() / 1000, unlogged,
                "the clock of the leader, or of the leader before it, is {text} the clock here: keys expire by the clock of whoever leads. Set the \
                 time of both machines (NTP)"
            );
        }
    }
}

/// The milliseconds by which the clock that closed the newest batch is ahead of the clock here; negative if
/// it is behind. `None` if they differ by at most [`APART_MS_MAX`], or there is no batch. Also `None` if the
/// batch is from the past and committed already, because such a batch may be old.
fn apart_ms(batches: &[BatchInfo], commit: Lsn, unix_ms: u64) -> Option<i64> {
    let newest = batches.last()?;
    let apart_ms = newest.closed_at_ms.cast_signed().saturating_sub(unix_ms.cast_signed());
    let tells = newest.end > commit || apart_ms > 0;
    (tells && apart_ms.unsigned_abs() > APART_MS_MAX).then_some(apart_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_MS: u64 = 365 * 24 * 3_600_000;
    const NOW_MS: u64 = 50 * YEAR_MS;

    fn batch(end: u64, closed_at_ms: u64) -> BatchInfo {
        let (start, end) = (Lsn::ZERO, Lsn::new(end));
        BatchInfo { start, end, number: 0, epoch: 1, closed_at_ms, reign: 1, chain: 0 }
    }

    #[test]
    fn a_clock_that_is_years_off_is_noticed_by_a_batch_that_was_just_closed() {
        let of = |closed_at_ms, commit| apart_ms(&[batch(8192, closed_at_ms)], Lsn::new(commit), NOW_MS);
        assert_eq!(of(NOW_MS + 2 * YEAR_MS, 4096), Some(2 * YEAR_MS as i64));
        assert_eq!(of(NOW_MS - 2 * YEAR_MS, 4096), Some(-2 * YEAR_MS as i64));
        assert_eq!(of(NOW_MS - 2 * YEAR_MS, 8192), None, "it may be as old as that");
        assert_eq!(of(NOW_MS + 2 * YEAR_MS, 8192), Some(2 * YEAR_MS as i64), "nothing is younger than now");
        assert_eq!(of(NOW_MS + APART_MS_MAX, 4096), None);
        assert_eq!(of(NOW_MS - APART_MS_MAX, 4096), None);
        assert_eq!(apart_ms(&[], Lsn::ZERO, NOW_MS), None);
    }

    #[test]
    fn a_differing_clock_is_logged_once_a_minute() {
        let clocks = Clocks::default();
        let ahead = [batch(8192, NOW_MS + YEAR_MS)];
        clocks.look(&ahead, Lsn::ZERO, NOW_MS, 1);
        clocks.look(&ahead, Lsn::ZERO, NOW_MS, 2);
        assert_eq!(clocks.0.lock().note("ahead of", 60_001), Some(1), "the second time was not logged");
    }
}
