//! The numbers of keys and libraries for INFO and metrics, as of a committed position of the log.
//!
//! Figures of the process (memory, counters of commands, positions of the log) are not kept here, because
//! they are always current.
//!
//! Invariants
//! - Once the server has recovered, uncommitted data are not shown: figures are either committed, or come
//!   with the position that the reply must wait for.
//! - INFO is answered even if nothing is committed, because a disk hangs or replicas are missing. After
//!   [`STALLED_MS`] it shows the newest figures known to be committed.

use std::sync::Arc;

use engine::replication::Replication;
use env::Clock;
use keyspace::{DbId, Keyspace};
use lsn::Lsn;
use parking_lot::Mutex;

use crate::attached_log::AttachedLog;

/// After this time without commits, the newest committed figures are shown.
const STALLED_MS: u64 = 1000;

/// Numbers of keys and functions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// For each database with keys: its number, its keys, and its keys with an expiry time.
    pub(crate) keys: Vec<(DbId, u64, u64)>,
    /// The number of libraries of functions.
    pub(crate) libraries: usize,
    /// The number of functions in all libraries together.
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

/// Figures that are not yet committed.
#[derive(Debug)]
struct Waiting {
    figures: Figures,
    end: Lsn,
    since_ms: u64,
}

pub(crate) struct Inventory {
    keyspace: Arc<Keyspace>,
    log: Arc<AttachedLog>,
    replication: Arc<dyn Replication>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest figures known to be committed.
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

    /// The newest figures known to be committed: up to about a second old while the log is busy, older while
    /// nothing is committed.
    pub(crate) fn committed_figures(&self) -> Figures {
        match self.figures() {
            (figures, Lsn::ZERO) => figures,
            _ => self.state.lock().committed.clone(),
        }
    }

    /// The current figures, and the position that must be committed before they are shown ([`Lsn::ZERO`]:
    /// show them at once). Called periodically, so that committed figures are at hand when the log stalls.
    pub(crate) fn figures(&self) -> (Figures, Lsn) {
        // The figures are read first, so that their records are before `end`.
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
    fn uncommitted_figures_wait_and_older_ones_are_shown_while_the_log_stalls() {
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
