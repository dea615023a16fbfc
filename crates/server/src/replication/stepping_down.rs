//! The end of a reign in a group: the server follows from then on, with the memory that it has.
//!
//! ```text
//! deposed: takes no writes -> connections are closed -> rounds in progress have ended
//!     -> is all of the log committed?  no: restart within the process, with an empty memory
//!     -> the log is a mirror again -> replies leave without a lease -> the threads of a replica begin
//! ```
//!
//! Invariants
//! - The memory holds what the log says and nothing else. Every later leader has all of this log, because the
//!   group has committed it.
//! - Nothing is appended between the end that is known to be committed and the return of the mirror.
//! - No reply that was made while this server led leaves after the mirror has returned, because the reply's
//!   connection is closed before.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use keyspace::LIBRARIES_SLOT;
use storage::Chains;

use super::Node;

impl Node {
    /// Follows from now on, after [`Node::depose`]. Returns false if this server must restart within the
    /// process instead, for example if:
    /// - it is a witness;
    /// - the group may not have committed all that is in memory here;
    /// - `gives_up` returned true before all long units had ended;
    /// - a restart was requested meanwhile;
    /// - this server was elected again.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// The reason why this server cannot follow, in words. The server must then restart, too.
    pub(crate) fn step_down(self: &Arc<Self>, gives_up: &dyn Fn() -> bool) -> Result<bool, String> {
        if self.is_witness() {
            // A witness has no data in memory that is worth keeping. The restart also drops the pin by which
            // the witness, as leader, kept log for its followers (`Leader::keep_log`). With the pin, it could
            // not forget that log.
            return Ok(false);
        }
        let _one_at_a_time = self.promotion.lock();
        let (Some(log), Some(votes)) = (self.log(), self.votes()) else { return Ok(false) };
        // The connections are closed before anything that waits, so that clients look for the new leader.
        self.hang_up();
        if !self.wait_for_rounds(gives_up) {
            return Ok(false);
        }
        let parts = self.following_parts.lock().clone();
        let Some(parts) = parts.filter(|_| !self.is_restarting()) else { return Ok(false) };
        // Settings and facts about the group are recorded outside of rounds. Their writers hold the lock of
        // this slot, and check first that the log is no mirror.
        let recording = parts.keyspace.lock(LIBRARIES_SLOT);
        let end = log.appended_lsn();
        let is_committed = votes.look(|member| member.has_committed_all(end)) == Some(true);
        let Some(mut mirror) = self.mirror.lock().take().filter(|_| is_committed) else { return Ok(false) };
        let is_mirror = mirror.resume(end).map_err(|error| error.to_string())?;
        drop(recording);
        // Replies that were begun under the lease must not leave without a lease. So the counter rises before
        // any reply may leave.
        self.times_stepped_down.fetch_add(1, SeqCst);
        if !is_mirror || !votes.step_down() {
            return Ok(false);
        }
        self.leader.disconnect();
        parts.documents.end_reign();
        let begun = parts.begin(self, mirror, Chains::from(end)).map_err(|error| error.to_string())?;
        *self.following.lock() = Some(begun);
        self.change_role_here(|role| role.step_down());
        self.has_led.store(false, SeqCst);
        Ok(true)
    }

    /// See [`engine::replication::Availability::times_stepped_down`].
    pub(super) fn times_stepped_down(&self) -> u64 {
        self.times_stepped_down.load(SeqCst)
    }

    /// Closes the connections of all clients.
    pub(super) fn hang_up(&self) {
        if let Some(hangs_up) = self.hangs_up.get() {
            hangs_up();
        }
    }
}
