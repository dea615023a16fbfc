//! The server's side of a backup: sessions that pin a snapshot and the log after it, and the routes that send
//! their files.
//!
//! The crate `backup` describes how a copy is made and its contents.
//!
//! Invariants
//! - The copying client may choose the name of its session, and begin again under this name after an
//!   interruption: the new session replaces the earlier one.
//! - A session ends when the log has grown by a bounded number of bytes, or when its client stops asking.

mod file_body;
pub(crate) mod routes;
mod session;

use std::sync::Arc;

use engine::DocumentsCell;
use env::{Clock, Entropy};
use settings::Key;
use storage::Log;

use self::session::{Sessions, remove_unpinned};
use crate::{
    attached_log::AttachedLog, config::Config, group::Group, snapshots::Snapshots, startup_info::StartupInfo,
};

/// The sessions of backups, and the parts of the server that they need.
pub(crate) struct Backups {
    sessions: Sessions,
    startup: Arc<StartupInfo>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    config: Arc<Config>,
    log: Arc<AttachedLog>,
    documents: Arc<DocumentsCell>,
    snapshots: Arc<Snapshots>,
    group: Arc<Group>,
}

impl Backups {
    pub(crate) fn new(
        (snapshots, group): (&Arc<Snapshots>, Arc<Group>),
        documents: Arc<DocumentsCell>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> Backups {
        let sources = &snapshots.sources;
        Backups {
            sessions: Sessions::traced(sources.node.traces.clone()),
            startup: sources.startup.clone(),
            clock: sources.clock.clone(),
            entropy,
            config: sources.config.clone(),
            log: sources.log.clone(),
            documents,
            snapshots: snapshots.clone(),
            group,
        }
    }

    /// Ends the sessions that are over one of their limits, and removes the files that they alone have kept.
    /// Called once a second.
    pub(crate) fn end_due(&self) {
        let Some(log) = self.log.get() else { return };
        let retained_bytes_max = self.config.current().integer(Key::BackupRetentionBytes);
        if self.sessions.end_due(self.clock.monotonic_us(), retained_bytes_max, log) {
            self.remove_unpinned(log);
        }
    }

    fn remove_unpinned(&self, log: &Log) {
        remove_unpinned(&self.startup.dir, log);
    }
}
