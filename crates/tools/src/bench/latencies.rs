//! The distribution of latencies, in memory of a fixed size.

/// Buckets per doubling: a figure is at most 1/64 above the true one.
const PER_DOUBLING: usize = 64;
/// Doublings above 63 µs: up to several hours.
const DOUBLINGS: usize = 28;

/// Counts of latencies. Up to 127 µs they are exact.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Vec<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(vec![0; PER_DOUBLING * (DOUBLINGS + 1)])
    }
}

impl Latencies {
    pub(super) fn add(&mut self, us: u64) {
        let last = self.0.len() - 1;
        self.0[bucket(us).min(last)] += 1;
    }

    /// The smallest latency that `percent` per cent of all latencies do not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, percent: u64) -> u64 {
        let wanted = (self.0.iter().sum::<u64>() * percent).div_ceil(100);
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= wanted
        };
        if wanted == 0 { 0 } else { self.0.iter().position(reaches).map_or(0, bound_us) }
    }
}

fn bucket(us: u64) -> usize {
    let doubling = (us.max(1).ilog2() as usize + 1).saturating_sub(PER_DOUBLING.ilog2() as usize);
    match doubling {
        0 => us as usize,
        doubling => doubling * PER_DOUBLING + (us >> (doubling - 1)) as usize - PER_DOUBLING,
    }
}

/// The largest latency of a bucket.
fn bound_us(bucket: usize) -> u64 {
    let (doubling, rest) = (bucket / PER_DOUBLING, (bucket % PER_DOUBLING) as u64);
    match doubling {
        0 => rest,
        doubling => ((PER_DOUBLING as u64 + rest + 1) << (doubling - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_largest_latency_of_its_bucket() {
        for at in 0..PER_DOUBLING * DOUBLINGS {
            assert_eq!(bucket(bound_us(at)), at);
            assert_eq!(bucket(bound_us(at) + 1), at + 1);
        }
        for us in [1_u64, 63, 64, 100, 12_345, 99_999_999] {
            let bound = bound_us(bucket(us));
            assert!(bound >= us && bound - us <= us / 64, "{us}: {bound}");
        }
    }

    #[test]
    fn quantiles_are_those_of_all_latencies() {
        let mut one = Latencies::default();
        (1..=100).for_each(|us: u64| one.add(us.min(60)));
        let figures = [1, 50, 51, 100].map(|percent| one.quantile_us(percent));
        assert_eq!(figures, [1, 50, 51, 60]);
        assert_eq!(Latencies::default().quantile_us(50), 0);
        one.add(u64::MAX);
        assert!(one.quantile_us(100) > 3_600_000_000);
    }
}
