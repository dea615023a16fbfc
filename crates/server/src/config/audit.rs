//! Writes the entries of the audit to the log, as messages of its durable channel, soon after they are noted.
//!
//! No action waits for its entry. While the server may not write, for example because it follows another one
//! or its disk is full, the entries go to the server's log lines instead.

use std::{sync::Arc, time::Duration};

use engine::audit::AUDIT_CHANNEL;
use keyspace::{LIBRARIES_SLOT, LoggedMessage};
use storage::{Admission, Log};
use tokio::sync::Notify;

use super::Config;

/// The maximum number of entries in one record.
const ENTRIES_MAX: usize = 64;
/// The pause before the next attempt while [`LIBRARIES_SLOT`] is held.
const PAUSE: Duration = Duration::from_millis(10);

impl Config {
    /// Writes entries whenever there are any. Never completes.
    pub(crate) async fn follow_audit(&self, log: &Log) {
        let noted = Arc::new(Notify::new());
        let wakes = noted.clone();
        self.users.audit.listen(move || wakes.notify_one());
        loop {
            while !self.record_audit(log) {
                tokio::time::sleep(PAUSE).await;
            }
            noted.notified().await;
        }
    }

    /// Writes the entries that wait to be written. Returns whether none is left.
    pub(crate) fn record_audit(&self, log: &Log) -> bool {
        let audit = &self.users.audit;
        while !audit.is_empty() {
            // A leader that steps down locks this slot while its log becomes a mirror. So a log that is no
            // mirror at the check below does not become one before the record is appended.
            let Some(slot) = self.keyspace.try_lock(LIBRARIES_SLOT) else { return false };
            let entries = audit.take(ENTRIES_MAX);
            if self.node.refuses_changes()
                || log.is_mirror()
                || log.is_frozen()
                || log.admit(0) == Admission::NoRoom
            {
                entries.iter().for_each(|entry| tracing::info!(target: "audit", "{entry}"));
                continue;
            }
            let mut record = Vec::new();
            for entry in &entries {
                let message = LoggedMessage { channel: AUDIT_CHANNEL, payload: entry.as_bytes() };
                message.encode_into(&mut record);
            }
            self.append_marked(log, slot, &record, true);
        }
        true
    }
}
