//! How much there is, as INFO and metrics tell it.
//!
//! What it is: the numbers of keys and libraries that belong to a position of the log that is committed.
//! What it is not: the figures of the process, such as memory, counters of commands and positions of the log. They are those of
//! the moment.
//!
//! Invariants
//! - Nothing is told of what is not committed: either the figures may be told at once, or with the position that the reply must
//!   wait for.
//! - Who asks how the server is gets an answer also while nothing is committed, because a disk hangs or replicas are missing: after
//!   [`STALLED_MS`] the newest figures that are known to be committed.

use std::sync::Arc;

use engine::replication::Replication;
use env::Clock;
use keyspace::{DbId, Keyspace};
use lsn::Lsn;
use parking_lot::Mutex;

use crate::attached_log::AttachedLog;

/// If figures have waited for so long to be committed, older ones are told.
const STALLED_MS: u64 = 1000;

/// What there is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// Of each database that has keys: how many, and how many of them have a deadline.
    pub(crate) keys: Vec<(DbId, u64, u64)>,
    /// Libraries of functions.
    pub(crate) libraries: usize,
    /// Functions in them.
    pub(crate) functions: usize,
}

impl Figures {
    fn of(keyspace: &Keyspace) -> Figures {
        let libraries = keyspace.libraries().libraries;
        let count = |db| (db, keyspace.len(db), keyspace.expiring_len(db));
        Figures {
            keys: DbId::all().map(count).filter(|(_, keys, _)| *keys > 0).collect(),
            libraries: libraries.len(),
            functions: libraries.functions_len(),
        }
    }
}

/// Figures that wait to be committed.
#[derive(Debug)]
struct Waiting {
    figures: Figures,
    end: Lsn,
    since_ms: u64,
}

/// See the module documentation.
pub(crate) struct Inventory {
    keyspace: Arc<Keyspace>,
    log: Arc<AttachedLog>,
    replication: Arc<dyn Replication>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest that are known to be committed.
    committed: Figures,
    waiting: Option<Waiting>,
}

impl Inventory {
    pub(crate) fn new(
        keyspace: Arc<Keyspace>,
        log: Arc<AttachedLog>,
        replication: Arc<dyn Replication>,
        clock: Arc<dyn Clock>,
    ) -> Inventory {
        Inventory { keyspace, log, replication, clock, state: Mutex::default() }
    }

    /// The newest that may be told at once, from time to time a second old.
    pub(crate) fn committed_figures(&self) -> Figures {
        match self.figures() {
            (figures, Lsn::ZERO) => figures,
            _ => self.state.lock().committed.clone(),
        }
    }

    /// What there is, and the position that must be committed before it is told; [`Lsn::ZERO`]: at once. To be called from time
    /// to time, so that there is something to tell when the log stalls.
    pub(crate) fn figures(&self) -> (Figures, Lsn) {
        // The figures first: what they show is in the log before its end.
        let figures = Figures::of(&self.keyspace);
        let Some(log) = self.log.get() else { return (figures, Lsn::ZERO) };
        let end = log.appended_lsn().min(self.replication.shown_lsn());
        self.state.lock().tell(figures, end, log.committed_lsn(), self.clock.monotonic_us() / 1000)
    }
}

impl State {
    fn tell(&mut self, figures: Figures, end: Lsn, committed: Lsn, now_ms: u64) -> (Figures, Lsn) {
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.end <= committed) {
            self.committed = waiting.figures;
        }
        if end <= committed {
            self.committed = figures.clone();
            self.waiting = None;
            return (figures, Lsn::ZERO);
        }
        let waiting =
            self.waiting.get_or_insert_with(|| Waiting { figures: figures.clone(), end, since_ms: now_ms });
        if now_ms.saturating_sub(waiting.since_ms) >= STALLED_MS {
            return (self.committed.clone(), Lsn::ZERO);
        }
        (figures, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(libraries: usize) -> Figures {
        Figures { libraries, ..Figures::default() }
    }

    #[test]
    fn what_is_not_committed_waits_and_while_the_log_stalls_older_figures_are_told() {
        let mut state = State::default();
        let mut tell = |libraries, end, committed, now_ms| {
            let (told, gate) = state.tell(figures(libraries), Lsn::new(end), Lsn::new(committed), now_ms);
            (told.libraries, gate.get())
        };
        assert_eq!(tell(1, 100, 100, 0), (1, 0), "all of it is committed");
        assert_eq!(tell(2, 200, 100, 10), (2, 200));
        assert_eq!(tell(3, 300, 200, 20), (3, 300), "the log goes on");
        assert_eq!(tell(4, 400, 200, 1019), (4, 400));
        assert_eq!(tell(4, 400, 200, 1020), (2, 0), "nothing was committed for a second");
        assert_eq!(tell(4, 400, 300, 1030), (4, 400));
        assert_eq!(tell(5, 500, 300, 2030), (3, 0));
        assert_eq!(tell(5, 500, 500, 2040), (5, 0));
    }
}
