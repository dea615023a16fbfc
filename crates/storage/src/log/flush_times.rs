//! When the latest batches were written, so that a trace can tell why a reply has waited. Kept only on
//! request.
//!
//! Invariants
//! - The time of a batch is known before anybody is told that the batch is committed.

use std::collections::VecDeque;

use lsn::Lsn;
use parking_lot::Mutex;

use super::Log;
use crate::sync::{AtomicBool, Ordering};

/// The maximum number of batches whose times are kept: about 0.1 s on a fast disk.
const BATCHES_KEPT: usize = 1024;

/// When a batch was written, or the batches that a mirror wrote at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushTime {
    /// Where the batch begins.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// When the write began, monotonic microseconds by the log's clock.
    pub began_us: u64,
    /// When the batch was written and, if the durability demands it, synced; on the same clock.
    pub ended_us: u64,
}

/// The times of the latest batches.
pub(super) struct FlushTimes {
    is_wanted: AtomicBool,
    recent: Mutex<VecDeque<FlushTime>>,
}

impl Default for FlushTimes {
    fn default() -> Self {
        FlushTimes { is_wanted: AtomicBool::new(false), recent: Mutex::default() }
    }
}

impl FlushTimes {
    pub(super) fn note(&self, time: FlushTime) {
        if self.is_wanted.load(Ordering::Relaxed) {
            let mut recent = self.recent.lock();
            if recent.len() == BATCHES_KEPT {
                recent.pop_front();
            }
            recent.push_back(time);
        }
    }

    fn find(&self, lsn: Lsn) -> Option<FlushTime> {
        let recent = self.recent.lock();
        let after = recent.partition_point(|time| time.end < lsn);
        recent.get(after).filter(|time| time.start < lsn).copied()
    }
}

impl Log {
    /// Begins to keep the times of flushes, for [`Log::flush_time`].
    pub fn keep_flush_times(&self) {
        self.shared.flush_times.is_wanted.store(true, Ordering::Relaxed);
    }

    /// When the batch with the record at `lsn` was written; `None` if that is not known (any more).
    pub fn flush_time(&self, lsn: Lsn) -> Option<FlushTime> {
        self.shared.flush_times.find(lsn)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::tests::{append, disk, recover};

    #[test]
    fn the_time_of_a_record_is_that_of_its_batch() {
        let (_, log) = recover(&disk()).expect("an empty disk");
        let mut appender = log.appender();
        let before = append(&mut appender, b"payload");
        log.flush_all().expect("flushes");
        log.keep_flush_times();
        let (first, second) = (append(&mut appender, b"payload"), append(&mut appender, b"payload"));
        assert_eq!(log.flush_time(first), None, "not written yet");
        log.flush_all().expect("flushes");
        let third = append(&mut appender, b"payload");
        log.flush_all().expect("flushes");
        let time = log.flush_time(first).expect("it was written");
        assert!(time.start < first && second <= time.end && time.began_us <= time.ended_us);
        assert_eq!(log.flush_time(second), Some(time));
        assert_eq!(log.flush_time(third).map(|later| later.start), Some(time.end));
        assert_eq!(log.flush_time(before), None, "from before they were wanted");
    }

    #[test]
    fn only_the_latest_are_kept() {
        let times = FlushTimes::default();
        times.is_wanted.store(true, Ordering::Relaxed);
        let count = BATCHES_KEPT as u64 + 1;
        for at in 0..count {
            let (start, end) = (Lsn::new(10 * at), Lsn::new(10 * at + 10));
            times.note(FlushTime { start, end, began_us: at, ended_us: at });
        }
        assert_eq!(times.find(Lsn::new(10)), None);
        assert_eq!(times.find(Lsn::new(11)).map(|time| time.began_us), Some(1));
        assert_eq!(times.find(Lsn::new(10 * count)).map(|time| time.began_us), Some(count - 1));
        assert_eq!(times.find(Lsn::new(10 * count + 1)), None);
    }
}
