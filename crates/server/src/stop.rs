//! The request to stop the server, by SHUTDOWN or a signal.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Whether the server takes a snapshot when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtStop {
    /// A snapshot is taken only if the next start would have to replay much without it.
    IfWorthIt,
    Take,
    Leave,
}

pub(crate) struct Stop {
    requested: Notify,
    at_stop: Mutex<AtStop>,
}

impl Default for Stop {
    fn default() -> Stop {
        Stop { requested: Notify::new(), at_stop: Mutex::new(AtStop::IfWorthIt) }
    }
}

impl Stop {
    /// Requests the stop.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// Completes when the stop was requested.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
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
