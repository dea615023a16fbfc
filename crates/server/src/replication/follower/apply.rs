//! The thread "replica-apply": applies the log to memory up to the commit position. While it drains, it
//! applies all of the log.

use std::{sync::Arc, time::Duration};

use engine::{Host, ReplayObservers, replication::LinkState};
use keyspace::{Effect, Keyspace};
use lsn::Lsn;
use recovery::replay::{Observer, Replayer};
use replication::ACK_BUSY_MS;
use storage::{Chains, Chunk, CursorRead, LogCursor};

use super::{super::Node, FollowingParts, following::Following};

/// The maximum bytes of the local log in one read of the applier.
const APPLY_BYTES: usize = 1 << 20;
/// The longest sleep of the applier, so that acknowledgements are sent in time.
const APPLY_WAIT: Duration = Duration::from_millis(ACK_BUSY_MS);

/// The state of the applier thread.
pub(super) struct ApplyParts {
    pub(super) node: Arc<Node>,
    pub(super) parts: Arc<FollowingParts>,
    pub(super) following: Arc<Following>,
    pub(super) replayer: Replayer,
}

impl ApplyParts {
    /// Applies until it has drained, or the server restarts. Returns the incomplete payloads at the end, or
    /// `None` if the log cannot be applied.
    pub(super) fn run(mut self) -> Option<Chains> {
        let mut observers = ReplayObservers::new((self.parts.new_executor)());
        if let Err(reason) = self.apply(&mut observers) {
            tracing::error!(
                target: "replication", reason,
                "the replica cannot apply its log and goes on showing old data. Check its disk with `sheaf check`"
            );
            return None;
        }
        Some(self.replayer.into_chains())
    }

    fn apply(&mut self, observers: &mut ReplayObservers) -> Result<(), String> {
        let mut settings = FollowedSettings { keyspace: self.parts.keyspace.clone(), generation: 0 };
        let mut cursor = self.parts.log.cursor(self.replayer.applied());
        let mut held: Option<Chunk> = None;
        loop {
            let is_draining = self.following.is_draining();
            if self.following.is_stopping() && !is_draining && self.node.is_restarting() {
                return Ok(());
            }
            let committed = if is_draining { Lsn::MAX } else { self.following.committed() };
            let chunk = match held.take() {
                Some(chunk) => Some(chunk),
                None => read(&mut cursor)?,
            };
            if let Some(chunk) = &chunk
                && committed.min(chunk.end) > self.replayer.applied()
            {
                self.apply_chunk(chunk, committed, observers, &mut settings)?;
            }
            self.following.ack(&self.parts.log, self.node.now_ms());
            held = chunk.filter(|chunk| chunk.end > self.replayer.applied());
            if held.is_some() {
                self.following.await_commit(self.replayer.applied(), APPLY_WAIT);
            } else if self.parts.log.shippable_lsn() <= cursor.position() {
                if is_draining {
                    return Ok(());
                }
                self.note_caught_up(committed);
                cursor.wait(APPLY_WAIT);
            }
        }
    }

    fn apply_chunk(
        &mut self,
        chunk: &Chunk,
        until: Lsn,
        observers: &mut ReplayObservers,
        settings: &mut FollowedSettings,
    ) -> Result<(), String> {
        let host = &self.parts.host;
        let now = keyspace::AccessClock { now_ms: host.clock.unix_ms(), ..Default::default() };
        let mut observed = Observed { observers: &mut *observers, settings, host };
        let applied =
            self.replayer.apply(chunk, until, now, &mut observed).map_err(|error| error.to_string())?;
        observers.tell(host);
        self.parts.reaper.free(self.replayer.take_freed());
        self.following.note_applied(applied, self.replayer.needed_from());
        // Committed log is shown even without a connection to the leader, because the votes of a group report
        // commits, too.
        if !self.following.is_draining() && !self.node.is_stale() {
            self.following.show_committed(&self.parts.log);
        }
        self.node.settle_waits();
        Ok(())
    }

    fn note_caught_up(&self, committed: Lsn) {
        if self.following.link() == LinkState::Connected && self.replayer.applied() >= committed {
            self.following.note_caught_up(self.node.now_ms());
        }
    }
}

/// The settings of the data and the users, as the applied records have made them.
struct FollowedSettings {
    keyspace: Arc<Keyspace>,
    /// The state of [`Keyspace::data_settings_generation`] that is in force.
    generation: u64,
}

impl FollowedSettings {
    /// Puts changed settings and users in force. Called after each record, without locks.
    #[inline]
    fn follow(&mut self, host: &Host) {
        let generation = self.keyspace.data_settings_generation();
        if generation != self.generation {
            self.generation = generation;
            put_in_force(&self.keyspace, host);
        }
    }
}

#[cold]
fn put_in_force(keyspace: &Keyspace, host: &Host) {
    host.config.apply_data_settings();
    // The next command of a client would refresh the users, too, but perhaps no command comes.
    host.users.refresh(keyspace, &host.clients);
}

/// Observes applied effects: tells the clients of this server of them, and follows the settings among them.
struct Observed<'a> {
    observers: &'a mut ReplayObservers,
    settings: &'a mut FollowedSettings,
    host: &'a Host,
}

impl Observer for Observed<'_> {
    #[inline]
    fn saw(&mut self, effect: &Effect<'_>) {
        self.observers.saw(effect);
    }

    #[inline]
    fn after_record(&mut self, lsn: Lsn) {
        // The settings come first: clients that the record serves are judged by the rights that the record
        // gives them.
        self.settings.follow(self.host);
        self.observers.after_record(lsn, self.host);
    }
}

fn read(cursor: &mut LogCursor) -> Result<Option<Chunk>, String> {
    match cursor.read(APPLY_BYTES) {
        Ok(CursorRead::Chunk(chunk)) => Ok(Some(chunk)),
        Ok(CursorRead::UpToDate) => Ok(None),
        Ok(CursorRead::Forgotten(start)) => Err(format!("the log here starts at lsn {start} already")),
        Err(error) => Err(error.to_string()),
    }
}
