//! A witness: a voter that keeps the log of its group and has no data.
//!
//! ```text
//! start:   the roster from its log, or from group.json -> into memory, where other members have it, too
//! a tick:  the roster in force -> group.json;  log that all members have -> forgotten
//! elected: a voter with data has all of the log -> it is handed the lead
//! ```
//!
//! The rules of votes are in `consensus`; `storage` and `recovery` open, copy and cut a log that
//! has no data beside it.
//!
//! Invariants
//! - The roster is in `group.json` before the part of the log that names the members is forgotten. A copied
//!   log names the members itself.
//! - Log that a member may lack is kept, unless the disk is full. On a full disk the committed part is
//!   forgotten, so that the group goes on; a member that lacks this part waits for another member with data.
//! - A witness leads only until it can hand the leadership on.

use std::{sync::Arc, thread, time::Duration};

use consensus::Member;
use keyspace::{AccessClock, Effect, Freed, LIBRARIES_SLOT};
use lsn::Lsn;
use membership::{OF_GROUP, ROSTER, Roster, Votes};
use storage::{Admission, Log};

use super::Group;

/// The interval at which a witness that leads looks for a voter with data.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// How long an attempt to hand the lead on may take.
const ATTEMPT_US: u64 = 5_000_000;

impl Group {
    /// Puts the roster into the memory of a starting witness, if its log has none. If no roster is found and
    /// the log is not empty, the log is copied anew.
    pub(super) fn recall_roster(&self, votes: &Votes, log: &Log) {
        if !votes.is_witness() || Roster::of(&self.keyspace.data_settings()).is_some() {
            return;
        }
        let saved = votes.state().roster.clone();
        if saved.is_empty() {
            if log.appended_lsn() > Lsn::ZERO {
                tracing::warn!(target: "group", "the log of this witness does not name the members: it is copied anew");
                self.node.copy_anew();
            }
            return;
        }
        let name = format!("{OF_GROUP}{ROSTER}");
        let recalled = Effect::Setting { name: name.as_bytes(), value: Some(saved.as_bytes()) };
        let mut slot = self.keyspace.lock(LIBRARIES_SLOT);
        slot.apply(&recalled, AccessClock::default(), &mut Freed::new());
        let last = slot.last_lsn();
        slot.set_last_lsn(last);
    }

    /// Once the roster is saved, forgets the log that no member needs, or, on a full disk, the log that is
    /// committed. Does nothing on other members.
    pub(super) fn keep_log_alone(&self, votes: &Votes) {
        let Some(log) = self.log.get().filter(|_| votes.is_witness()) else { return };
        let roster = {
            let known = self.known.lock();
            known.roster.clone().filter(|_| known.is_in_force())
        };
        // If no roster is in force, a change of members is under way, or no roster is known yet.
        let Some(roster) = roster else { return };
        if let Err(error) = votes.save_roster(&roster.text()) {
            tracing::error!(target: "group", %error, "cannot save the members of the group");
            return;
        }
        let is_full = log.admit(0) == Admission::NoRoom;
        // Unless the disk is full, one segment more than needed is kept, because a learner that becomes a
        // voter may lack the end of the log.
        let (dispensable, kept_bytes) = match is_full {
            true => (Some(votes.committed()), 0),
            false => (votes.look(Member::held_by_all).flatten(), log.segment_bytes()),
        };
        let Some(dispensable) = dispensable else { return };
        let outcome = forget(log, dispensable.min(self.node.applied(log)), kept_bytes);
        match outcome {
            Ok(Some(kept_from)) => {
                tracing::info!(target: "group", kept_from = kept_from.get(), is_full, "this witness has forgotten the log before that");
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(target: "group", %error, "this witness cannot forget log");
            }
        }
    }

    /// Hands the leadership on if this server is a witness that was elected. Does nothing on other members.
    pub(super) fn hand_on(self: &Arc<Self>) {
        let Some(votes) = self.votes.clone().filter(|votes| votes.is_witness()) else { return };
        let spawned = self.spawn("group-hand-on", move |group| {
            while !group.is_stopping() && votes.look(Member::leads) == Some(true) {
                if let Some(to) = group.voter_with_all(&votes, |_| true) {
                    let until_us = votes.now_us() + ATTEMPT_US;
                    match group.elect(&votes, to, until_us, || ()) {
                        Ok(()) => return,
                        Err(reason) => tracing::warn!(target: "group", %to, reason, "this witness could not hand the lead on; trying again"),
                    }
                }
                thread::sleep(LOOK_PERIOD);
            }
        });
        if let Err(error) = spawned {
            tracing::error!(target: "group", %error, "cannot start a thread");
        }
    }
}

/// Forgets the log before the batch at the position `kept_bytes` before `dispensable`, if that frees a
/// segment. Returns the new start of the log; `None` if nothing was forgotten. At least the last batch is
/// kept, because the log must be able to name its last batch.
fn forget(log: &Log, dispensable: Lsn, kept_bytes: u64) -> Result<Option<Lsn>, storage::Error> {
    let segment = |lsn: Lsn| lsn.align_down(log.segment_bytes());
    let (before, kept_from) = (log.start_lsn(), Lsn::new(dispensable.get().saturating_sub(kept_bytes)));
    if segment(kept_from) <= segment(before) {
        return Ok(None);
    }
    let batch = log.batch_at(kept_from)?.filter(|batch| segment(batch.start) > segment(before));
    let Some(batch) = batch else { return Ok(None) };
    log.forget_before(batch.start)?;
    let now = log.start_lsn();
    Ok((now > before).then_some(now))
}
