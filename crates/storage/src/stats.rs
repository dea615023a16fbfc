//! Counters of the log. Written with relaxed atomics, mostly by the flusher; read by INFO and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a [`Histogram`]: upper bounds 1, 2, 4, ... 2^(N-2), then infinity.
const BUCKET_COUNT: usize = 28;

/// A histogram with power-of-two buckets: cheap enough to be always on, and exact enough to show changes of a
/// disk's speed.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT], sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one observation of `value`.
    pub fn observe(&self, value: u64) {
        let index = (64 - value.saturating_sub(1).leading_zeros() as usize).min(BUCKET_COUNT - 1);
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Pairs of (upper bound, number of observations not above it) for every bucket; the last bound is
    /// `None`, infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let mut total = 0;
        self.buckets.iter().enumerate().map(move |(index, bucket)| {
            total += bucket.load(Ordering::Relaxed);
            ((index < BUCKET_COUNT - 1).then(|| 1 << index), total)
        })
    }

    /// Sum of all observed values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

/// Counters of one log since it was opened.
#[derive(Debug, Default)]
pub struct LogStats {
    /// Batches written; several batches that a mirror writes at once count as one.
    pub batches: AtomicU64,
    /// Records in batches that were closed here or taken from a mirror's source, without batch-end records.
    pub records: AtomicU64,
    /// Bytes written, padding included.
    pub bytes: AtomicU64,
    /// Number of synchronous writes and syncs.
    pub syncs: AtomicU64,
    /// Segments created by recycling an old one.
    pub segments_recycled: AtomicU64,
    /// Segments created as new files.
    pub segments_created: AtomicU64,
    /// Microseconds from the start of a batch's write until the batch is durable (or handed to the OS).
    pub flush_us: Histogram,
    /// Records per batch that was closed here.
    pub batch_records: Histogram,
    /// The longest write or sync since [`LogStats::take_slowest_us`], in microseconds.
    slowest_us: AtomicU64,
}

impl LogStats {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Notes the duration of one batch write or sync, in microseconds.
    pub(crate) fn took(&self, usec: u64) {
        self.slowest_us.fetch_max(usec, Ordering::Relaxed);
    }

    /// The longest write or sync since the previous call, in microseconds.
    pub fn take_slowest_us(&self) -> u64 {
        self.slowest_us.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, u64::MAX >> 1] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets[0], (Some(1), 2));
        assert_eq!(buckets[1], (Some(2), 3));
        assert_eq!(buckets[2], (Some(4), 5));
        assert_eq!(buckets[3], (Some(8), 6));
        assert_eq!(buckets.last(), Some(&(None, 7)));
        assert_eq!(histogram.count(), 7);
    }

    #[test]
    fn the_slowest_is_told_once() {
        let stats = LogStats::default();
        [3, 9, 5].into_iter().for_each(|usec| stats.took(usec));
        assert_eq!((stats.take_slowest_us(), stats.take_slowest_us()), (9, 0));
    }
}
