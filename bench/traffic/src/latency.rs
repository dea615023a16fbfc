//! A histogram of times in microseconds, with a precision of two percent.

/// Times below twice this number of microseconds are counted exactly; longer times in this many steps per
/// power of two.
const STEPS: u64 = 64;
/// The number of buckets: enough for times up to 2^32 microseconds.
const BUCKETS: usize = 64 * 28;

/// A histogram of times: how many times fell into each bucket.
#[derive(Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Latencies {
    /// Adds `count` times of this length.
    pub fn add(&mut self, us: u64, count: u64) {
        self.counts[bucket(us).min(BUCKETS - 1)] += count;
        self.total += count;
    }

    /// The time that this share of all times does not exceed, in milliseconds; 0 if the histogram is empty.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        found.map_or(0.0, |bucket| longest_us(bucket) as f64 / 1e3)
    }
}

fn bucket(us: u64) -> usize {
    let shift = (us / STEPS).checked_ilog2().unwrap_or(0);
    (u64::from(shift) * STEPS + (us >> shift)) as usize
}

/// The longest time counted in a bucket.
fn longest_us(bucket: usize) -> u64 {
    let shift = (bucket as u64 / STEPS).saturating_sub(1);
    ((bucket as u64 - shift * STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_their_times() {
        let mut last = 0;
        for us in 0..100_000 {
            let bucket = bucket(us);
            assert!(bucket == last || bucket == last + 1, "{us}");
            assert!(longest_us(bucket) >= us && longest_us(bucket) <= us + us / STEPS, "{us}");
            last = bucket;
        }
        assert!(bucket(1 << 31) < BUCKETS);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ms(0.5), 0.0);
        (1..=100).for_each(|us| latencies.add(us, 1));
        assert_eq!((latencies.quantile_ms(0.5), latencies.quantile_ms(0.99)), (0.050, 0.099));
        latencies.add(5000, 1000);
        assert!((latencies.quantile_ms(0.5) - 5.0).abs() < 0.1);
    }
}
