//! A rate limit for background work: bytes, or CPU time, per second, shared by several threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A rate limit. Each use takes time according to the rate, and its user pauses until that time and the time
/// of all earlier uses are over. Idle time is not saved up.
#[derive(Default)]
pub(crate) struct Pace {
    paid_at_us: AtomicU64,
}

impl Pace {
    /// The pause at `now_us`, in microseconds, after using `used` (bytes, or microseconds of CPU time) at the
    /// rate `per_second`. A rate of 0 means no limit.
    pub(crate) fn pause_us(&self, used: u64, per_second: u64, now_us: u64) -> u64 {
        if per_second == 0 {
            return 0;
        }
        let price_us = u64::try_from(u128::from(used) * 1_000_000 / u128::from(per_second));
        let price_us = price_us.unwrap_or(u64::MAX);
        let paid = |paid_at_us: u64| paid_at_us.max(now_us).saturating_add(price_us);
        let before = self.paid_at_us.fetch_update(Relaxed, Relaxed, |paid_at_us| Some(paid(paid_at_us)));
        let (Ok(before) | Err(before)) = before;
        paid(before) - now_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_share_the_rate() {
        let pace = Pace::default();
        assert_eq!(pace.pause_us(1000, 1_000_000, 5_000), 1000);
        assert_eq!(pace.pause_us(500, 1_000_000, 5_000), 1500);
        assert_eq!(pace.pause_us(500, 1_000_000, 6_000), 1000);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let pace = Pace::default();
        assert_eq!(pace.pause_us(1, 1_000_000, 0), 1);
        assert_eq!(pace.pause_us(1000, 1_000_000, 9_000_000), 1000);
    }

    #[test]
    fn no_limit_is_no_pause() {
        assert_eq!(Pace::default().pause_us(u64::MAX, 0, 7), 0);
    }

    #[test]
    fn slow_rates_do_not_overflow() {
        let pace = Pace::default();
        assert_eq!(pace.pause_us(u64::MAX, 1, 0), u64::MAX);
        assert_eq!(pace.pause_us(1, 1, 10), u64::MAX - 10);
    }
}
