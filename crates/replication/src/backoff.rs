//! The delays between a replica's attempts to reach its leader: they grow, with random differences between
//! replicas.

/// The maximum of the first delay.
const FIRST_MS: u64 = 100;
/// The longest delay, in milliseconds.
const LONGEST_MS: u64 = 5_000;

/// The state of the delays.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next_ms: FIRST_MS }
    }
}

impl Backoff {
    /// The next delay: between half of the current maximum and all of it, chosen by `random`. The maximum
    /// doubles up to `LONGEST_MS`.
    pub fn wait_ms(&mut self, random: u64) -> u64 {
        let longest = self.next_ms;
        self.next_ms = (longest * 2).min(LONGEST_MS);
        longest / 2 + random % (longest / 2 + 1)
    }

    /// Restarts with short delays, once a connection works.
    pub fn reset(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit_and_begin_anew() {
        let mut backoff = Backoff::default();
        for longest_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let mut same = backoff;
            assert_eq!((backoff.wait_ms(0), same.wait_ms(longest_ms / 2)), (longest_ms / 2, longest_ms));
        }
        backoff.reset();
        assert!(backoff.wait_ms(u64::MAX) <= FIRST_MS);
    }
}
