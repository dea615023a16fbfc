//! Progress of recovery, through the snapshot and then the log: the recovering threads write it, other
//! threads read it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use engine::Loading;
use env::Clock;
use lsn::Lsn;

/// Progress of one recovery, with its start and end times.
pub struct LoadProgress {
    clock: Arc<dyn Clock>,
    loading: AtomicBool,
    started_us: AtomicU64,
    ended_us: AtomicU64,
    start: AtomicU64,
    position: AtomicU64,
    end: AtomicU64,
    records: AtomicU64,
    snapshot_bytes: AtomicU64,
    snapshot_bytes_loaded: AtomicU64,
    rows: AtomicU64,
}

impl LoadProgress {
    /// Progress of a recovery that has not begun; it already counts as loading.
    pub fn new(clock: Arc<dyn Clock>) -> LoadProgress {
        let started_us = clock.monotonic_us().into();
        LoadProgress {
            clock,
            loading: true.into(),
            started_us,
            ended_us: 0.into(),
            start: 0.into(),
            position: 0.into(),
            end: 0.into(),
            records: 0.into(),
            snapshot_bytes: 0.into(),
            snapshot_bytes_loaded: 0.into(),
            rows: 0.into(),
        }
    }

    /// Begins: a snapshot of `snapshot_bytes` (0: none) is loaded, then the log from `start` to `end` is
    /// replayed.
    pub fn begin(&self, snapshot_bytes: u64, start: Lsn, end: Lsn) {
        self.snapshot_bytes.store(snapshot_bytes, Relaxed);
        self.started_us.store(self.clock.monotonic_us(), Relaxed);
        self.start.store(start.get(), Relaxed);
        self.position.store(start.get(), Relaxed);
        self.end.store(end.get(), Relaxed);
    }

    /// Counts loaded bytes and rows of the snapshot.
    pub fn loaded(&self, bytes: u64, rows: u64) {
        self.snapshot_bytes_loaded.fetch_add(bytes, Relaxed);
        self.rows.fetch_add(rows, Relaxed);
    }

    pub(crate) fn reached(&self, lsn: Lsn) {
        self.position.store(lsn.get(), Relaxed);
    }

    pub(crate) fn count_record(&self) {
        // A plain store suffices: there is one writer.
        self.records.store(self.records.load(Relaxed) + 1, Relaxed);
    }

    /// Marks the recovery as complete.
    pub fn finish(&self) {
        self.ended_us.store(self.clock.monotonic_us(), Relaxed);
        self.loading.store(false, std::sync::atomic::Ordering::Release);
    }

    /// Whether recovery is still running.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.loading.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Records replayed so far.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    /// Rows of the snapshot loaded so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Bytes of snapshot and log: done and total.
    pub fn bytes(&self) -> (u64, u64) {
        let start = self.start.load(Relaxed);
        let replayed = self.position.load(Relaxed).saturating_sub(start);
        let log_bytes = self.end.load(Relaxed).saturating_sub(start).max(replayed);
        let loaded = self.snapshot_bytes_loaded.load(Relaxed);
        (loaded + replayed, self.snapshot_bytes.load(Relaxed).max(loaded) + log_bytes)
    }

    /// Seconds that recovery has taken so far, or took in total.
    pub fn seconds(&self) -> f64 {
        let end = if self.is_loading() { self.clock.monotonic_us() } else { self.ended_us.load(Relaxed) };
        end.saturating_sub(self.started_us.load(Relaxed)) as f64 / 1e6
    }

    /// Percentage and estimated time left; `None` after the recovery.
    pub fn loading(&self) -> Option<Loading> {
        if !self.is_loading() {
            return None;
        }
        let (done, total) = self.bytes();
        let share = if total == 0 { 0.0 } else { done as f64 / total as f64 };
        let eta_seconds = (share > 0.0).then(|| self.seconds() * (1.0 - share) / share);
        Some(Loading { percent: share * 100.0, eta_seconds })
    }
}

#[cfg(test)]
mod tests {
    use env::SimClock;

    use super::*;

    #[test]
    fn snapshot_and_log_are_one_whole() {
        let clock = Arc::new(SimClock::new(0));
        let progress = LoadProgress::new(clock.clone());
        progress.begin(300, Lsn::new(4096), Lsn::new(4196));
        let seen = || (progress.bytes(), progress.loading().map(|loading| loading.percent));
        assert_eq!(seen(), ((0, 400), Some(0.0)));
        clock.advance_us(3_000_000);
        progress.loaded(300, 7);
        assert_eq!(seen(), ((300, 400), Some(75.0)));
        assert_eq!(progress.loading().and_then(|loading| loading.eta_seconds), Some(1.0));
        progress.reached(Lsn::new(4196));
        assert_eq!((seen(), progress.rows()), (((400, 400), Some(100.0)), 7));
        progress.finish();
        assert_eq!(progress.loading(), None);
    }
}
