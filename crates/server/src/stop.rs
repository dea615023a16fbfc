//! The request to stop the server, by SHUTDOWN or a signal.

use parking_lot::Mutex;
use tokio::sync::watch;

/// Whether the server takes a snapshot when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtStop {
    /// A snapshot is taken only if the next start would have to replay much without it.
    IfWorthIt,
    Take,
    Leave,
}

/// The request to stop. Once made, it holds for all incarnations of the process.
pub(crate) struct Stop {
    requested: watch::Sender<bool>,
    at_stop: Mutex<AtStop>,
}

impl Default for Stop {
    fn default() -> Stop {
        Stop { requested: watch::Sender::new(false), at_stop: Mutex::new(AtStop::IfWorthIt) }
    }
}

impl Stop {
    pub(crate) fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Completes when the stop was requested.
    pub(crate) async fn requested(&self) {
        // The wait fails only if there is no sender any more, and `self` has one.
        let _ = self.requested.subscribe().wait_for(|is_requested| *is_requested).await;
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Chooses whether the stop takes a snapshot.
    pub(crate) fn set_at_stop(&self, at_stop: AtStop) {
        *self.at_stop.lock() = at_stop;
    }

    /// Whether the stop takes a snapshot.
    pub(crate) fn at_stop(&self) -> AtStop {
        *self.at_stop.lock()
    }
}
