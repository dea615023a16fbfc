//! The writes in flight of a server's role (`replication.json`), of its votes and the members of its group
//! (`group.json`), and of the epochs of its log.
//!
//! A disk that does not answer keeps these writes waiting, and with them the change that they belong to. No
//! write of the log need be in flight then, so nothing else notices.
//!
//! What it is: how long the oldest of them has waited.
//! What it is not: a lock, or an order of these writes.

use std::sync::Arc;

use env::Clock;
use parking_lot::Mutex;

/// The writes in flight of one server; see the module documentation.
pub struct StateWrites {
    clock: Arc<dyn Clock>,
    /// When the writes began, in microseconds of the monotonic clock: at most one for each thread that
    /// writes.
    begun_us: Mutex<Vec<u64>>,
}

impl StateWrites {
    /// No write is in flight.
    pub fn new(clock: Arc<dyn Clock>) -> StateWrites {
        StateWrites { clock, begun_us: Mutex::default() }
    }

    /// Carries out a write, which is in flight until it returns.
    pub fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        let begun_us = self.clock.monotonic_us();
        self.begun_us.lock().push(begun_us);
        let _in_flight = InFlight { writes: self, begun_us };
        write()
    }

    /// Microseconds since the oldest write in flight began; 0 if none is in flight.
    pub fn oldest_us(&self) -> u64 {
        let oldest = self.begun_us.lock().iter().min().copied();
        oldest.map_or(0, |begun_us| self.clock.monotonic_us().saturating_sub(begun_us))
    }
}

struct InFlight<'w> {
    writes: &'w StateWrites,
    begun_us: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut begun_us = self.writes.begun_us.lock();
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
    fn the_oldest_write_in_flight_counts_until_it_ends() {
        let clock = Arc::new(SimClock::new(0));
        let writes = StateWrites::new(clock.clone());
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
