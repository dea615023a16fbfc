//! Rates per second, for INFO, from the counters of two moments a second apart.

use parking_lot::Mutex;

use crate::parts::Parts;

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    at_us: u64,
    calls: u64,
    input_bytes: u64,
    output_bytes: u64,
}

/// The figures of the last second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PerSecond {
    pub(crate) calls: u64,
    pub(crate) input_kib: f64,
    pub(crate) output_kib: f64,
}

/// The counters of the last two looks.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    looks: Mutex<(Counts, Counts)>,
}

impl Rates {
    /// Reads the counters; called once a second.
    pub(crate) fn look(&self, parts: &Parts) {
        let (input_bytes, output_bytes) = parts.clients.traffic_bytes();
        let (at_us, calls) = (parts.clock.monotonic_us(), parts.data.stats.total_calls());
        self.add(Counts { at_us, calls, input_bytes, output_bytes });
    }

    fn add(&self, counts: Counts) {
        let mut looks = self.looks.lock();
        *looks = (looks.1, counts);
    }

    /// The figures of the time between the last two looks.
    pub(crate) fn per_second(&self) -> PerSecond {
        let (before, now) = *self.looks.lock();
        if before.at_us == 0 || now.at_us <= before.at_us {
            return PerSecond::default();
        }
        let seconds = (now.at_us - before.at_us) as f64 / 1e6;
        // CONFIG RESETSTAT sets counters back.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        PerSecond {
            calls: rate(now.calls, before.calls).round() as u64,
            input_kib: rate(now.input_bytes, before.input_bytes) / 1024.0,
            output_kib: rate(now.output_bytes, before.output_bytes) / 1024.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_the_last_two_looks() {
        let rates = Rates::default();
        let look =
            |at_us, calls| rates.add(Counts { at_us, calls, input_bytes: calls * 1024, output_bytes: 0 });
        assert_eq!(rates.per_second(), PerSecond::default());
        look(1_000_000, 100);
        assert_eq!(rates.per_second(), PerSecond::default(), "nothing to compare with");
        look(3_000_000, 500);
        assert_eq!(rates.per_second(), PerSecond { calls: 200, input_kib: 200.0, output_kib: 0.0 });
        look(4_000_000, 10);
        assert_eq!(rates.per_second().calls, 0, "the counters were set back");
    }
}
