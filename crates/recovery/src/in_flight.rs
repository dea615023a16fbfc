//! `InFlight`: measures how long the oldest operation of one kind has been under way.
//!
//! Two kinds of operations are measured: writes of small files (`replication.json`, `group.json`, the epochs
//! of the log, the file of settings), and the captures of a snapshot's chunks.
//!
//! A disk that does not answer, or a lock that another thread holds, can block such an operation and all work
//! after it. No write of the log need be in flight meanwhile, so the watch over the log's writes does not
//! notice the block.
//!
//! An `InFlight` is not a lock, and does not order the operations.

use std::sync::Arc;

use env::Clock;
use parking_lot::Mutex;

/// The operations of one kind that are under way; see the module documentation.
pub struct InFlight {
    clock: Arc<dyn Clock>,
    /// The start of each operation under way, in microseconds of the monotonic clock. There are at most as
    /// many as threads that carry out such operations.
    begun_us: Mutex<Vec<u64>>,
}

impl InFlight {
    /// No operation is under way.
    pub fn new(clock: Arc<dyn Clock>) -> InFlight {
        InFlight { clock, begun_us: Mutex::default() }
    }

    /// Carries out an operation, which is under way until it returns.
    pub fn during<T>(&self, operation: impl FnOnce() -> T) -> T {
        let begun_us = self.clock.monotonic_us();
        self.begun_us.lock().push(begun_us);
        let _until_it_ends = Begun { all: self, begun_us };
        operation()
    }

    /// Microseconds since the oldest operation began; 0 if none is under way.
    pub fn oldest_us(&self) -> u64 {
        let oldest = self.begun_us.lock().iter().min().copied();
        oldest.map_or(0, |begun_us| self.clock.monotonic_us().saturating_sub(begun_us))
    }
}

struct Begun<'a> {
    all: &'a InFlight,
    begun_us: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut begun_us = self.all.begun_us.lock();
        if let Some(at) = begun_us.iter().position(|&it| it == self.begun_us) {
            begun_us.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use env::SimClock;

    use super::*;

    #[test]
    fn the_oldest_operation_counts_until_it_ends() {
        let clock = Arc::new(SimClock::new(0));
        let writes = InFlight::new(clock.clone());
        assert_eq!(writes.oldest_us(), 0);
        writes.during(|| {
            clock.advance_us(5);
            writes.during(|| {
                clock.advance_us(2);
                assert_eq!(writes.oldest_us(), 7);
            });
            assert_eq!(writes.oldest_us(), 7);
        });
        clock.advance_us(9);
        assert_eq!(writes.oldest_us(), 0);
    }
}
