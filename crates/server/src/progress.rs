//! How far recovery has come: written by the reader thread, read by INFO, `/_up`, the LOADING check and the terminal.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use commands::Loading;
use env::Clock;
use lsn::Lsn;

/// See the module documentation.
pub struct LoadProgress {
    clock: Arc<dyn Clock>,
    loading: AtomicBool,
    started_us: AtomicU64,
    ended_us: AtomicU64,
    start: AtomicU64,
    position: AtomicU64,
    end: AtomicU64,
    records: AtomicU64,
}

impl LoadProgress {
    /// Progress of a recovery that has not begun; it counts as loading.
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
        }
    }

    pub(crate) fn begin(&self, start: Lsn, end: Lsn) {
        self.started_us.store(self.clock.monotonic_us(), Relaxed);
        self.start.store(start.get(), Relaxed);
        self.position.store(start.get(), Relaxed);
        self.end.store(end.get(), Relaxed);
    }

    pub(crate) fn reached(&self, lsn: Lsn) {
        self.position.store(lsn.get(), Relaxed);
    }

    pub(crate) fn count_record(&self) {
        // One writer.
        self.records.store(self.records.load(Relaxed) + 1, Relaxed);
    }

    /// Recovery is done.
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

    /// Bytes of log (done, in all).
    pub fn bytes(&self) -> (u64, u64) {
        let start = self.start.load(Relaxed);
        let done = self.position.load(Relaxed) - start;
        (done, self.end.load(Relaxed).saturating_sub(start).max(done))
    }

    /// Seconds that recovery has taken so far, or took.
    pub fn seconds(&self) -> f64 {
        let end = if self.is_loading() { self.clock.monotonic_us() } else { self.ended_us.load(Relaxed) };
        end.saturating_sub(self.started_us.load(Relaxed)) as f64 / 1e6
    }

    /// Percent and time to go.
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
