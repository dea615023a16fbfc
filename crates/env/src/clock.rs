//! `Clock`: the time of day and a monotonic time, real or set by hand.
//!
//! This module has no timers, and nothing in it waits.
//!
//! Invariants
//! - `monotonic_us` never decreases; its origin is arbitrary, so only differences are meaningful.
//! - `unix_ms` may jump in both directions when the machine's clock is set, so a difference of two values is
//!   no reliable duration.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of the time of day and of a monotonic time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01 UTC. 0 if the machine's clock is set before that.
    fn unix_ms(&self) -> u64;

    /// Microseconds since an arbitrary origin; never decreases.
    fn monotonic_us(&self) -> u64;

    /// Microseconds since an arbitrary origin, perhaps another than that of [`Clock::monotonic_us`]; never
    /// decreases. Time during which the machine is suspended counts, too, so this is the clock for promises
    /// to other machines, such as leases.
    fn boot_us(&self) -> u64 {
        self.monotonic_us()
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Default, Debug)]
pub struct RealClock;

/// The origin of all `RealClock`s, so that times of different clocks can be compared.
static MONOTONIC_ORIGIN: OnceLock<Instant> = OnceLock::new();

impl Clock for RealClock {
    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn monotonic_us(&self) -> u64 {
        MONOTONIC_ORIGIN.get_or_init(Instant::now).elapsed().as_micros() as u64
    }

    fn boot_us(&self) -> u64 {
        crate::process::boot_us()
    }
}

/// A clock that moves only through its methods.
#[derive(Debug)]
pub struct SimClock {
    unix_us: AtomicU64,
    monotonic_us: AtomicU64,
}

impl SimClock {
    /// A clock that shows `unix_ms`; its monotonic time starts at 0.
    pub fn new(unix_ms: u64) -> Self {
        SimClock { unix_us: AtomicU64::new(unix_ms * 1000), monotonic_us: AtomicU64::new(0) }
    }

    /// Lets `us` microseconds pass on both clocks.
    pub fn advance_us(&self, us: u64) {
        self.unix_us.fetch_add(us, Ordering::Relaxed);
        self.monotonic_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Lets `ms` milliseconds pass on both clocks.
    pub fn advance_ms(&self, ms: u64) {
        self.advance_us(ms * 1000);
    }

    /// Sets the time of day, also backwards; the monotonic time does not change.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.unix_us.store(unix_ms * 1000, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn unix_ms(&self) -> u64 {
        self.unix_us.load(Ordering::Relaxed) / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.monotonic_us.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_clock_is_after_2020_and_monotonic() {
        assert!(RealClock.unix_ms() > 1_577_836_800_000);
        let earlier = RealClock.monotonic_us();
        assert!(RealClock.monotonic_us() >= earlier);
    }

    #[test]
    fn sim_clock_moves_only_by_hand() {
        let clock = SimClock::new(5_000);
        clock.advance_us(1_500);
        assert_eq!((clock.unix_ms(), clock.monotonic_us()), (5_001, 1_500));
        clock.advance_ms(2);
        assert_eq!((clock.unix_ms(), clock.monotonic_us()), (5_003, 3_500));
        clock.set_unix_ms(1);
        assert_eq!((clock.unix_ms(), clock.monotonic_us()), (1, 3_500));
    }
}
