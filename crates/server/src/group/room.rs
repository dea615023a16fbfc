//! A leader whose disk has no room for the log hands over to a voter that has room: every message between
//! members says whether its sender has room.
//!
//! Invariants
//! - Only a voter that has data, all of the log and room is chosen. If there is none, this server goes on
//!   leading, and refuses writes before they are executed, as a server without a group does.
//! - At most one attempt in [`ROOM_BACKOFF_US`].

use std::{sync::Arc, thread};

use consensus::Member;
use membership::Votes;
use storage::Admission;

use super::Group;

/// The pause after an attempt.
pub(super) const ROOM_BACKOFF_US: u64 = 5_000_000;

impl Group {
    /// Whether the disk here has room for the log, and for the vote without which this member cannot be
    /// elected.
    pub(super) fn has_room(&self) -> bool {
        self.log.get().is_none_or(|log| log.admit(0) != Admission::NoRoom && log.has_room_for_small_files())
    }

    /// Begins to hand over to a voter with room. Returns false if this server does not lead, or there is no
    /// such voter.
    pub(super) fn begin_to_yield(self: &Arc<Self>, votes: &Votes) -> bool {
        let Some(to) = self.voter_with_all(votes, |it| !it.lacks_room) else { return false };
        tracing::warn!(target: "group", %to, "the disk here has no room for the log: the lead goes to a member that has room");
        let group = self.clone();
        let hand_over = move || {
            let Some(votes) = &group.votes else { return };
            if let Err(reason) = group.hand_over(votes, Some(&to.to_string()), || {})
                && votes.look(Member::leads) == Some(true)
            {
                tracing::warn!(target: "group", reason, "the lead was not handed over");
            }
        };
        if let Err(error) = thread::Builder::new().name("group-change".into()).spawn(hand_over) {
            tracing::error!(target: "group", %error, "cannot start a thread");
        }
        true
    }
}
