//! The distribution of a command's durations, in buckets whose bounds double, as LATENCY HISTOGRAM shows
//! them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of buckets. The last has a bound of about a second, and takes all longer durations too.
const BUCKETS: usize = 21;

/// The upper bound of a bucket in microseconds, as Redis reports it: powers of two of about a microsecond,
/// rounded up by the precision of its histograms.
const fn bound_us(bucket: usize) -> u64 {
    let nanoseconds = 1024u64 << bucket;
    (nanoseconds + nanoseconds / 128 - 1) / 1000
}

fn bucket_of(usec: u64) -> usize {
    (0..BUCKETS - 1).find(|&bucket| usec <= bound_us(bucket)).unwrap_or(BUCKETS - 1)
}

/// The counts of one worker, which alone adds to them.
#[derive(Debug, Default)]
pub(super) struct Buckets([AtomicU64; BUCKETS]);

impl Buckets {
    pub(super) fn add(&self, usec: u64, count: u64) {
        let bucket = &self.0[bucket_of(usec)];
        bucket.store(bucket.load(Relaxed) + count, Relaxed);
    }
}

/// The distribution over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    pub(super) fn add(&mut self, buckets: &Buckets) {
        self.0.iter_mut().zip(&buckets.0).for_each(|(sum, bucket)| *sum += bucket.load(Relaxed));
    }

    /// The calls that were added since the distribution was `before`.
    pub(super) fn since(mut self, before: &Histogram) -> Histogram {
        self.0.iter_mut().zip(before.0).for_each(|(sum, before)| *sum -= before);
        self
    }

    /// The number of calls in all buckets.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The percentile in microseconds: the upper bound of the first bucket that has, together with the
    /// buckets before it, at least this percentage of the calls; 0 if there are no calls.
    pub fn percentile_us(&self, percent: f64) -> u64 {
        let wanted = (self.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut calls = 0;
        let reached = self.buckets().find(|(_, count)| {
            calls += count;
            calls >= wanted
        });
        reached.map_or(0, |(bound_us, _)| bound_us)
    }

    /// (upper bound in microseconds, calls) of every bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().map(|(bucket, count)| (bound_us(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let buckets = Buckets::default();
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile_us(99.0), 0);
        buckets.add(1, 98);
        buckets.add(1000, 2);
        histogram.add(&buckets);
        let bounds = [0.0, 50.0, 98.0, 99.0, 100.0].map(|percent| histogram.percentile_us(percent));
        assert_eq!(bounds, [1, 1, 1, 1056, 1056]);
    }

    #[test]
    fn bounds_are_those_of_redis() {
        let bounds: Vec<u64> = (0..BUCKETS).map(bound_us).collect();
        assert_eq!(bounds[..12], [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113]);
        assert_eq!(bounds[15..18], [33_816, 67_633, 135_266]);
    }

    #[test]
    fn every_time_has_a_bucket() {
        let buckets = Buckets::default();
        for usec in [0, 1, 2, 3, 33, 34, 5_000_000, u64::MAX] {
            buckets.add(usec, 2);
        }
        let mut sum = Histogram::default();
        sum.add(&buckets);
        let filled: Vec<_> = sum.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1, 4), (2, 2), (4, 2), (33, 2), (66, 2), (1_082_130, 4)]);
        assert_eq!(sum.count(), 16);
        let before = sum;
        sum.add(&buckets);
        assert_eq!((sum.since(&before), sum.since(&sum).count()), (before, 0));
    }
}
