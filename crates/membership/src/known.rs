//! The roster in the memory of a member, and the members that are in force.
//!
//! ```text
//! record in the log -> applied: seen -> committed -> saved -> in force: told to the machine of the votes
//! ```
//!
//! Invariants
//! - Once the server runs, members come into force when their record is committed, and are saved before.
//! - At a start it is not known whether the newest roster in the data is committed, unless `group.json` says
//!   so. If it is not known, the members before the newest change are in force, provided that `group.json`
//!   has members, the roster names those before its change, and this server is one of them.

use std::sync::Arc;

use consensus::{MemberId, Members};
use keyspace::DataSettings;
use lsn::Lsn;

use crate::{Roster, Votes};

/// The roster in the memory of this server.
#[derive(Debug, Default)]
pub struct Known {
    data: Arc<DataSettings>,
    /// The roster that the data has; `None` also if it is of another group.
    pub roster: Option<Roster>,
    /// The position of the record of the roster, or a later one; the roster comes into force once this
    /// position is committed.
    recorded_at: Lsn,
    /// A position up to which the log was applied when the roster was seen. Once the roster is in force, its
    /// members are reported to the votes as known up to this position.
    applied_at: Lsn,
    /// The members in force; empty if this server is no member yet.
    pub in_force: Members,
    is_saved: bool,
    /// At the start, the newest roster was not known to be committed.
    is_pending: bool,
    /// Whether the record of the pending roster was found at the start: it ends at `recorded_at`.
    is_exact: bool,
    /// A position up to which the log was known to be committed at the start.
    pub(crate) committed: Lsn,
}

/// The news that a look at the data has found.
#[derive(Debug, Default)]
pub struct Seen {
    /// The settings of the data, among them the roster, may have changed: connections to members may have to
    /// change as well.
    pub is_news: bool,
    /// To be passed to the machine of the votes: the members, and the position up to which they include
    /// every change.
    pub configure: Option<(Members, Lsn)>,
    /// To be saved ([`Votes::save_members`]): these members come into force ([`Known::put_in_force`]) once
    /// they are saved. The earlier members stay in force until then.
    pub to_save: Option<(Members, Lsn)>,
}

impl Known {
    /// The members after recovery, of a log that ends at `end`; `None`: the group has removed this server,
    /// which was stopped before it could note that.
    pub fn start(votes: &Votes, data: Arc<DataSettings>, end: Lsn) -> Option<Known> {
        let state = votes.state();
        let roster = Roster::of(&data).filter(|roster| roster.group == state.group_id);
        let founder = || Members { voters: vec![votes.id()], learners: Vec::new() };
        let (saved, saved_at) = votes.members_in_force().unzip();
        let committed_before = roster.as_ref().map_or(0, |roster| roster.committed_before);
        let committed = saved_at.unwrap_or(Lsn::ZERO).max(Lsn::new(committed_before));
        let pending = roster.as_ref().filter(|roster| Some(roster.members()) != saved);
        // The newest change is perhaps not committed; the change before it is.
        let in_force = saved.clone().and_then(|saved| match pending {
            Some(roster) => roster.members_before(),
            None => Some(saved),
        });
        let members = match &roster {
            // The members in force decide, not the newest roster: its change is perhaps not committed.
            Some(_) if in_force.as_ref().is_some_and(|it| lists(it, votes.id())) => in_force,
            Some(roster) if roster.find(votes.id()).is_some() => Some(roster.members()),
            Some(_) => return None,
            None => state.founded.then(founder),
        };
        Some(Known {
            in_force: members.unwrap_or_default(),
            is_saved: saved.is_some(),
            is_pending: pending.is_some(),
            is_exact: false,
            data,
            roster,
            recorded_at: end,
            applied_at: end,
            committed,
        })
    }

    /// Whether the newest roster was not known to be committed at the start.
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Notes, at a start, that the record of the pending roster ends at `at`.
    pub(crate) fn is_recorded_at(&mut self, at: Lsn) {
        (self.recorded_at, self.is_exact) = (at, true);
    }

    /// Looks for a new roster that is committed. `applied`, which is called before the data is read, returns
    /// a position up to which the log is in the data. The data may have more. With `is_tick`, the votes also
    /// learn the position up to which the members are known.
    pub fn look(
        &mut self,
        votes: &Votes,
        look_at_data: impl FnOnce() -> (Arc<DataSettings>, Lsn),
        applied: impl FnOnce() -> Lsn,
        is_tick: bool,
    ) -> Seen {
        // The position is taken before the data is read, so that the data has everything up to it.
        let applied_before = applied();
        let (data, recorded_at) = look_at_data();
        let mut seen = Seen { is_news: !Arc::ptr_eq(&data, &self.data), ..Seen::default() };
        if seen.is_news {
            let roster = Roster::of(&data).filter(|roster| roster.group == votes.state().group_id);
            // This is not the position up to which the log is applied now: another roster may have been
            // applied since the data was read.
            let applied_at = applied_before.max(recorded_at);
            (self.data, self.roster, self.recorded_at, self.applied_at) =
                (data, roster, recorded_at, applied_at);
            self.is_exact = false;
        }
        let Some(members) = self.roster.as_ref().map(Roster::members) else { return seen };
        let is_change = members != self.in_force || !self.is_saved;
        if is_change && votes.committed() < self.recorded_at {
            // If the record of the new roster ends exactly at `recorded_at`, which is not committed, the
            // members in force include every committed change. The votes must learn that: a member campaigns
            // only if its members are known up to the committed position.
            if is_tick && self.is_exact {
                let known_up_to = applied_before.min(votes.committed());
                seen.configure = Some((self.in_force.clone(), known_up_to));
            }
        } else if is_change {
            seen.to_save = Some((members, self.recorded_at));
        } else if is_tick {
            seen.configure = Some((members, applied_before.min(votes.committed())));
        }
        seen
    }

    /// Puts members in force, after they were saved. Returns the arguments for
    /// [`consensus::Member::configure`].
    pub fn put_in_force(&mut self, members: Members) -> (Members, Lsn) {
        self.in_force.clone_from(&members);
        self.is_saved = true;
        (members, self.applied_at)
    }

    /// The position of the record with the roster that the data has, or a later position.
    pub fn recorded_at(&self) -> Lsn {
        self.recorded_at
    }

    /// Whether the roster that the data has is in force.
    pub fn is_in_force(&self) -> bool {
        self.roster.as_ref().is_some_and(|roster| roster.members() == self.in_force)
    }

    /// Whether the log of this server says that the group has removed this server.
    pub fn has_removed(&self, id: MemberId) -> bool {
        self.is_saved && self.roster.is_some() && !lists(&self.in_force, id)
    }
}

fn lists(members: &Members, id: MemberId) -> bool {
    members.voters.contains(&id) || members.learners.contains(&id)
}

/// The roster after a change, to be recorded in the data; one change is made at a time.
///
/// # Errors
/// If this member does not lead, or has committed nothing in its term yet; if another change is not in force
/// yet, or the leader would not be a member; or `change` fails.
pub fn changed_roster(
    votes: &Votes,
    data: &DataSettings,
    change: impl FnOnce(&mut Roster) -> Result<(), String>,
) -> Result<Roster, String> {
    let in_force = votes.look(|member| member.has_committed().then(|| member.members().clone())).flatten();
    let in_force = in_force.ok_or("ERR this member does not lead, or has only just begun to")?;
    let group_id = votes.state().group_id.clone();
    let mut roster = Roster::of(data).filter(|roster| roster.group == group_id).unwrap_or_default();
    if !roster.members.is_empty() && roster.members() != in_force {
        return Err("ERR another change of members is not in force yet, try again".into());
    }
    roster.group = group_id;
    let before = roster.clone();
    change(&mut roster)?;
    if roster.find(votes.id()).is_none() {
        // A server joins while the group is being founded: the founder would be no member of the group.
        return Err("ERR the group is being founded, try again".into());
    }
    roster.note_before(&before, &in_force, votes.committed());
    Ok(roster)
}
