//! Changes of the members, which the leader makes: it adds, promotes and removes them, and founds the group.
//!
//! ```text
//! GROUP JOIN: who answers there? -> a learner in the roster -> committed -> it has caught up -> a voter
//! GROUP REMOVE: not in the roster -> committed -> told by its log, or by the leader when it connects
//! ```
//!
//! Invariants
//! - One change at a time; see [`Roster`].
//! - The leader lists another member only at an address where a server answers with the member's id. It lists
//!   no new address for a member that still answers at its former address.

use std::{cell::Cell, sync::atomic::Ordering::SeqCst, thread, time::Duration};

use consensus::{Member, MemberId, TICK_US};
use engine::group::JoinRequest;
use lsn::Lsn;
use membership::{Listed, MEMBERS_MAX, ROSTER, Roster, Votes};
use parking_lot::MutexGuard;

use super::{Group, peers::PEER_VERSION};

/// How long a change of members may take until it is committed.
const COMMIT_TIMEOUT_US: u64 = 10_000_000;
/// The interval at which progress is checked.
const LOOK_PERIOD: Duration = Duration::from_millis(2);
/// A learner that lacks at most this much of the log becomes a voter.
const CAUGHT_UP_BYTES: u64 = 1 << 20;

/// How long the answer to a change waits until a majority knows that the change is committed.
const KNOWN_TIMEOUT_US: u64 = 1_000_000;

impl Group {
    /// Adds a member as a learner, or records the new address of a member. Returns the id of the group.
    pub(super) fn add(&self, votes: &Votes, request: &JoinRequest) -> Result<String, String> {
        let state = votes.state();
        if request.version != PEER_VERSION {
            let version = request.version;
            return Err(format!(
                "ERR version {version} of the protocol of groups is not supported, this server speaks version {PEER_VERSION}"
            ));
        }
        if request.id == state.member_id {
            return Err(
                "ERR the server that asks has the id of this one: --join names the server itself, or it runs with a copy of this server's directory. \
                 Name a member of the group; never run a copy of a member's directory, start on an empty one instead".into(),
            );
        }
        if request.group != state.name {
            return Err(format!(
                "ERR this server belongs to the group '{0}', not to '{1}': join it with --group {0}, or name a member of '{1}' with --join",
                state.name, request.group
            ));
        }
        self.require_leader(votes)?;
        let id = MemberId::parse(&request.id).ok_or("ERR no id of a member")?;
        let listed = Listed {
            id: request.id.clone(),
            host: request.address.host.clone(),
            port: request.address.port,
            http_port: request.http_port,
            is_voter: false,
            is_witness: request.is_witness,
        };
        let known = || self.known.lock().roster.as_ref().and_then(|roster| roster.find(id).cloned());
        let is_known =
            || known().is_some_and(|known| Listed { is_voter: listed.is_voter, ..known } == listed);
        if is_known() {
            return Ok(state.group_id.clone());
        }
        // The address is verified before the lock is taken, because a server that does not answer must not
        // delay other changes.
        self.verify(id, &listed, known().as_ref())?;
        let _one_at_a_time = self.begin_change()?;
        if is_known() {
            return Ok(state.group_id.clone());
        }
        let is_new = Cell::new(true);
        self.change_and_wait(votes, |roster| {
            if let Some(known) = roster.members.iter_mut().find(|member| member.id == listed.id) {
                *known = Listed { is_voter: known.is_voter, ..listed.clone() };
                is_new.set(false);
                return Ok(());
            }
            if let Some(other) = roster.members.iter().find(|other| other.address() == listed.address()) {
                let (id, address) = (&other.id, other.address());
                return Err(format!(
                    "ERR the member {id} is listed at {address} and counts as a voter that is away: if its directory was lost or replaced, \
                     GROUP REMOVE {id} on the leader. This server asks again by itself"
                ));
            }
            if roster.members.len() >= MEMBERS_MAX {
                return Err(format!("ERR the group has {MEMBERS_MAX} members already: GROUP REMOVE one"));
            }
            roster.members.push(listed.clone());
            Ok(())
        })?;
        let Listed { id, is_witness, http_port, .. } = &listed;
        if is_new.get() {
            tracing::info!(target: "group", member = id, address = %listed.address(), is_witness, "a member was added, as a learner");
        } else {
            tracing::info!(target: "group", member = id, address = %listed.address(), http_port, "a member has new addresses");
        }
        Ok(state.group_id.clone())
    }

    /// Asks who answers at the member's new address, and at the address at which the member is listed.
    fn verify(&self, id: MemberId, listed: &Listed, known: Option<&Listed>) -> Result<(), String> {
        let Some(peers) = self.peers.get() else { return Err("LOADING this server is starting".into()) };
        let address = listed.address();
        peers.meet(&address, id).map_err(|reason| {
            format!(
                "ERR the leader does not find the member {id} at {address}, where it says that it is reached (bind, group-host; with a \
                 password, masterauth and masteruser): {reason}"
            )
        })?;
        match known.map(Listed::address).filter(|before| *before != address) {
            Some(before) if peers.meet(&before, id).is_ok() => Err(format!(
                "ERR the member {id} answers at {before} as well as at {address}: two servers run with its directory, or with a copy of it. \
                 Stop one, and have it join anew with an empty directory"
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn drop_member(&self, votes: &Votes, id: &str, by_force: bool) -> Result<(), String> {
        self.require_leader(votes)?;
        if votes.id().to_string() == id {
            return Err(
                "ERR the leader cannot remove itself: GROUP TRANSFER first, then ask the new leader".into()
            );
        }
        let _one_at_a_time = self.begin_change()?;
        if !by_force {
            self.require_majority_without(votes, id)?;
        }
        self.change_and_wait(votes, |roster| {
            let before = roster.members.len();
            roster.members.retain(|member| member.id != id);
            if roster.members.len() < before { Ok(()) } else { Err("ERR no member has this id".into()) }
        })?;
        tracing::info!(target: "group", member = id, "a member was removed");
        Ok(())
    }

    /// Refuses a removal if the remaining voters that answer and have the log would be no majority. After
    /// such a removal nothing could be committed, not even the addition of another member.
    fn require_majority_without(&self, votes: &Votes, id: &str) -> Result<(), String> {
        let mut voters = self.known.lock().in_force.voters.clone();
        let before = voters.len();
        voters.retain(|voter| voter.to_string() != id);
        let is_ready = |voter: &&MemberId| {
            **voter == votes.id() || (self.is_heard(votes, **voter) && self.has_caught_up(votes, **voter))
        };
        let (ready, all) = (voters.iter().filter(is_ready).count(), voters.len());
        if all == before || 2 * ready > all {
            return Ok(());
        }
        Err(format!(
            "ERR without it, only {ready} of {all} voters answer and have the log, and nothing could be committed: wait for the others, remove \
             one that is lost instead, or GROUP REMOVE {id} FORCE"
        ))
    }

    /// Records the roster again at the end of the log. A copy of the log alone may begin after the earlier
    /// record, and must have the roster, too.
    pub(crate) fn repeat_roster(&self) -> Result<(), String> {
        let Some(votes) = &self.votes else { return Ok(()) };
        self.require_leader(votes)?;
        let _one_at_a_time = self.begin_change()?;
        self.change_and_wait(votes, |_| Ok(()))
    }

    /// Waits for the caller's turn to change the roster. While the group is being founded, callers get an
    /// error instead: otherwise one of several servers that ask to join would always hold the turn that the
    /// founder needs.
    ///
    /// # Errors
    /// If the founder has not recorded itself yet.
    fn begin_change(&self) -> Result<MutexGuard<'_, ()>, String> {
        if self.known.lock().roster.is_none() {
            return Err("ERR the group is being founded, try again".into());
        }
        Ok(self.changing.lock())
    }

    /// Changes the roster and waits until the change is committed. Then waits for [`KNOWN_TIMEOUT_US`] at
    /// most until a majority knows that it is committed. [`Group::changing`] is held.
    fn change_and_wait(
        &self,
        votes: &Votes,
        change: impl Fn(&mut Roster) -> Result<(), String>,
    ) -> Result<(), String> {
        let until_us = votes.now_us() + COMMIT_TIMEOUT_US;
        let is_over = || self.is_stopping() || votes.now_us() >= until_us;
        let position = loop {
            match self.change_roster(&change) {
                Ok(position) => break position,
                Err(reason) if is_over() || !reason.ends_with("try again") => return Err(reason),
                Err(_) => thread::sleep(LOOK_PERIOD),
            }
        };
        while votes.committed() < position {
            if is_over() {
                return Err("ERR the change is not committed yet, because a majority of the members is not reachable. It may still be".into());
            }
            thread::sleep(LOOK_PERIOD);
        }
        let until_us = votes.now_us() + KNOWN_TIMEOUT_US;
        while !self.is_known_to_majority(votes, position) && votes.now_us() < until_us && !is_over() {
            thread::sleep(LOOK_PERIOD);
        }
        Ok(())
    }

    /// The voters to be shown. A leader shows a new voter only once a majority knows of the new voter, so
    /// that every member that may be elected counts its vote. If the leader showed the new voter earlier and
    /// then died, perhaps no member that may campaign would be left. Other members show the voters in force
    /// here.
    pub(super) fn known_voters(&self, votes: &Votes) -> Vec<MemberId> {
        let (roster, in_force, recorded_at) = {
            let known = self.known.lock();
            (known.roster.clone(), known.in_force.voters.clone(), known.recorded_at())
        };
        let was_known = self.known_to_majority.load(SeqCst) >= recorded_at.get();
        let before = roster.as_ref().and_then(Roster::members_before);
        match before.filter(|_| !was_known && votes.look(Member::leads) == Some(true)) {
            Some(before) if !self.is_known_to_majority(votes, recorded_at) => before.voters,
            _ => {
                self.known_to_majority.fetch_max(recorded_at.get(), SeqCst);
                in_force
            }
        }
    }

    /// Whether the newest roster is in force here, and a majority of its voters know that the log is
    /// committed up to this position. While that is not so, the death of the leader could leave no member
    /// that may campaign.
    fn is_known_to_majority(&self, votes: &Votes, position: Lsn) -> bool {
        let Some(roster) = Roster::of(&self.keyspace.data_settings()) else { return false };
        let Some((members, progress)) = votes.look(|it| (it.members().clone(), it.progress())) else {
            return false;
        };
        let knows = |voter: &&MemberId| {
            let told = progress.iter().find(|it| it.id == **voter).and_then(|it| it.committed);
            **voter == votes.id() || told.is_some_and(|told| told >= position)
        };
        members == roster.members() && 2 * members.voters.iter().filter(knows).count() > members.voters.len()
    }

    /// Whether the member lacks little of the log of this leader.
    pub(super) fn has_caught_up(&self, votes: &Votes, id: MemberId) -> bool {
        let (Some(log), Some(progress)) = (self.log.get(), votes.look(Member::progress)) else {
            return false;
        };
        let durable = progress.iter().find(|it| it.id == id).and_then(|it| it.durable);
        durable.is_some_and(|durable| durable.advance(CAUGHT_UP_BYTES) >= log.shippable_lsn())
    }

    /// Makes a learner that has caught up a voter.
    pub(super) fn promote_learner(&self, votes: &Votes) {
        let roster = self.known.lock().roster.clone().unwrap_or_default();
        let is_fit =
            |it: &&Listed| !it.is_voter && it.member_id().is_some_and(|id| self.has_caught_up(votes, id));
        let Some(learner) = roster.members.iter().find(is_fit) else { return };
        let id = learner.id.clone();
        let Some(_one_at_a_time) = self.changing.try_lock() else { return };
        let changed = self.change_roster(|roster| {
            let learner = roster.members.iter_mut().find(|it| it.id == id && !it.is_voter);
            learner.map(|learner| learner.is_voter = true).ok_or(String::new())
        });
        if changed.is_ok() {
            tracing::info!(target: "group", member = id, "a member has caught up: it becomes a voter");
        }
    }

    /// Records a changed roster; [`Group::changing`] is held. Returns the position of the record.
    pub(super) fn change_roster(
        &self,
        change: impl FnOnce(&mut Roster) -> Result<(), String>,
    ) -> Result<Lsn, String> {
        let (Some(votes), Some(log)) = (&self.votes, self.log.get()) else {
            return Err(engine::group::NO_GROUP.into());
        };
        let roster = membership::changed_roster(votes, &self.keyspace.data_settings(), change)?;
        let recorded = self.config.record_of_group(log, ROSTER, &roster.text());
        recorded.ok_or(
            "ERR the members cannot be changed now (a script holds the data, or nothing changes), try again"
                .into(),
        )
    }

    /// Records the founder of a group as its first member, unless it is recorded already or leads no more.
    pub(super) fn found(&self) {
        let (Some(votes), Some(own)) = (&self.votes, self.own.get()) else { return };
        let has_roster = || self.known.lock().roster.is_some();
        while votes.state().founded
            && votes.look(Member::leads) == Some(true)
            && !self.is_stopping()
            && !has_roster()
        {
            if let Some(_one_at_a_time) = self.changing.try_lock() {
                let founded = self.change_roster(|roster| {
                    if !roster.members.is_empty() {
                        return Err("the group has members".into());
                    }
                    roster.members = vec![Listed { is_voter: true, ..own.clone() }];
                    Ok(())
                });
                if founded.is_ok() {
                    return;
                }
            }
            thread::sleep(Duration::from_micros(TICK_US));
        }
    }

    /// Closes the connections of removed members that connected while this server had no lease, and so could
    /// not be sure of their removal. They connect again, and are told of it.
    pub(super) fn close_removed(&self) {
        let Some(peers) = self.peers.get() else { return };
        peers.unlisted().into_iter().filter(|&id| self.has_removed(id)).for_each(|id| peers.close_of(id));
    }

    /// Whether the group has no member with this id, and this server can be sure of that, because it leads
    /// within its lease. The member was removed, or never belonged to the group.
    pub(super) fn has_removed(&self, id: MemberId) -> bool {
        let Some(votes) = &self.votes else { return false };
        // Within its lease this server is the only leader, and its data has every earlier change of members.
        // The data is read after the check of the lease: if it were read before, it could lack a member that
        // an earlier leader has added.
        let now_us = votes.now_us();
        let leads_alone = |member: &Member| member.has_committed() && member.lease_until_us() > now_us;
        let in_force = votes.look(|member| leads_alone(member).then(|| member.members().clone())).flatten();
        let Some(in_force) = in_force else { return false };
        let newest = Roster::of(&self.keyspace.data_settings());
        let is_listed = |roster: &Roster| roster.find(id).is_some();
        !in_force.voters.contains(&id)
            && !in_force.learners.contains(&id)
            && newest.is_some_and(|newest| newest.group == votes.state().group_id && !is_listed(&newest))
    }
}
