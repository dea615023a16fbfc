//! What a worker looks at from time to time: clients that say nothing, and clients that do not take what they are sent.

use commands::{Host, clients::ClientKind};

use super::Worker;
use crate::connection::Connection;

/// How often connections are looked at for what they have not taken.
const LIMITS_PERIOD_MS: u64 = 1000;

impl Worker {
    /// Closes connections that have been silent for longer than the setting `timeout`.
    pub(super) fn close_idle(&self) {
        let timeout_seconds = self.host.idle_timeout_seconds();
        if timeout_seconds == 0 {
            return;
        }
        let now_ms = self.host.unix_ms();
        let silent = |connection: &Connection| {
            let client = connection.client();
            // Who listens has nothing to say.
            let waits = client.is_blocked() || client.kind() == ClientKind::PubSub;
            client.idle_seconds(now_ms) >= timeout_seconds && !waits
        };
        let idle: Vec<_> = self.connections.borrow().values().filter(|it| silent(it)).cloned().collect();
        idle.iter().for_each(|connection| connection.kill());
    }

    /// Disconnects clients that take too slowly what they are sent.
    pub(super) fn enforce_limits(&self) {
        let now_ms = self.host.monotonic_us() / 1000;
        if now_ms < self.limits_due_ms.get() {
            return;
        }
        self.limits_due_ms.set(now_ms + LIMITS_PERIOD_MS);
        self.connections.borrow().values().for_each(|connection| connection.enforce_limits(now_ms));
    }
}
