//! A leader whose disk has no room for the log hands over to a voter that has room. Every message between
//! members says whether its sender has room.
//!
//! A member reserves space ([`env::reserve`]) for its vote, and for the files that it writes when another
//! member leads.
//!
//! Invariants
//! - Only a voter that has data, all of the log and room is chosen. Without such a voter this server stays
//!   the leader and refuses writes before they are executed, as a server without a group does.
//! - The members' reports of room are newer than the lack of room here, because disks often fill up together.
//! - This server hands over only if it can go on as a follower.
//! - At most one attempt in [`ROOM_BACKOFF_US`].

use std::{sync::Arc, thread};

use consensus::{HEARTBEAT_TICKS, Member, TICK_US};
use membership::Votes;

use super::Group;

/// The pause after an attempt.
const ROOM_BACKOFF_US: u64 = 5_000_000;

/// The time for which the disk must have no room before this server hands over. Within this time, every
/// reachable member reports again whether it has room.
const ROOM_REPORTED_US: u64 = 4 * HEARTBEAT_TICKS as u64 * TICK_US;

/// Decides when the leadership may be handed over for lack of room.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    /// The time since which the disk has had no room.
    full_since_us: Option<u64>,
    /// The end of the pause after an attempt.
    due_us: u64,
}

impl Yielding {
    /// Notes whether the disk has room. Returns whether to try to hand over.
    pub(super) fn is_due(&mut self, has_room: bool, now_us: u64) -> bool {
        if has_room {
            self.full_since_us = None;
            return false;
        }
        let since_us = *self.full_since_us.get_or_insert(now_us);
        now_us >= (since_us + ROOM_REPORTED_US).max(self.due_us)
    }

    /// Notes that an attempt has begun.
    pub(super) fn tried(&mut self, now_us: u64) {
        self.due_us = now_us + ROOM_BACKOFF_US;
    }
}

impl Group {
    /// Begins to hand over to a voter with room. Returns false if this server does not lead or could not
    /// follow, or if there is no such voter.
    pub(super) fn begin_to_yield(self: &Arc<Self>, votes: &Votes) -> bool {
        if !self.node.may_follow() {
            return false;
        }
        let Some(to) = self.voter_with_all(votes, |it| !it.lacks_room) else { return false };
        tracing::warn!(target: "group", %to, "the disk here has no room for the log: the lead goes to a member that has room");
        let group = self.clone();
        let hand_over = move || {
            let Some(votes) = &group.votes else { return };
            if let Err(reason) = group.hand_over(votes, Some(&to.to_string()), None, || {})
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_handed_over_once_members_have_reported_and_not_again_at_once() {
        let mut yielding = Yielding::default();
        let begin_us = 5 * ROOM_BACKOFF_US;
        assert!(!yielding.is_due(true, 0));
        assert!(!yielding.is_due(false, begin_us));
        assert!(!yielding.is_due(false, begin_us + ROOM_REPORTED_US - 1));
        let due_us = begin_us + ROOM_REPORTED_US;
        assert!(yielding.is_due(false, due_us));
        yielding.tried(due_us);
        assert!(!yielding.is_due(false, due_us + ROOM_BACKOFF_US - 1));
        assert!(yielding.is_due(false, due_us + ROOM_BACKOFF_US));
        assert!(!yielding.is_due(true, due_us + ROOM_BACKOFF_US));
        assert!(!yielding.is_due(false, due_us + ROOM_BACKOFF_US), "it counts from when the room is gone");
    }
}
