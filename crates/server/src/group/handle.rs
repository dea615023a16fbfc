//! The group as commands see it: implements [`engine::group::Group`].

use std::{sync::Arc, thread, time::Duration};

use consensus::{Leadership, Member, MemberId, Progress};
use engine::{
    Responder,
    group::{GroupView, JoinRequest, MemberKind, MemberView, NO_GROUP, Standing},
};
use lsn::Lsn;
use membership::{Listed, Votes};

use super::{Group, joining::NOT_LEADER};
use crate::spawn::spawn_with;

/// The answer to a server that asks to join while too many others do.
const TOO_MANY_ASKERS: &str = "TRYAGAIN many servers ask to join at the moment";
/// The time that a member has, before a transfer, to catch up and to apply its log, while the leader still
/// takes writes. This limit, like [`PAUSE_US_MAX`], counts if the client of the transfer gives no timeout.
const TRANSFER_TIMEOUT_US: u64 = 10_000_000;
/// The time for which a transfer may keep writes out while it waits for commands in progress. The same limit
/// counts again for the wait until the end of the log is on the other member's disk.
const PAUSE_US_MAX: u64 = 1_000_000;
/// A member that has sent nothing for this long counts as one that does not answer. A follower that is alive
/// answers several heartbeats in this time.
const HEARD_US: u64 = 1_000_000;
/// The interval at which progress is checked.
const LOOK_PERIOD: Duration = Duration::from_millis(2);

/// The interface for commands. Holds an `Arc`, because some operations outlive the command.
pub(crate) struct GroupHandle(pub(crate) Arc<Group>);

impl engine::group::Group for GroupHandle {
    fn view(&self) -> Option<GroupView> {
        let (group, votes) = (&self.0, self.0.votes.as_ref()?);
        let state = votes.state();
        let (progress, committed) =
            votes.look(|member| (member.progress(), member.committed())).unwrap_or((Vec::new(), Lsn::ZERO));
        let (term, leader) = match votes.leadership() {
            Leadership::Leads { term } => (term, Some(votes.id())),
            Leadership::Follows { term, leader } => (term, Some(leader)),
            Leadership::Unknown { term } => (term, None),
        };
        let standing = match state.has_joined() {
            _ if state.is_removed => Standing::Removed,
            true => Standing::Member,
            false => Standing::Joining,
        };
        let end = group.log.get().map_or(Lsn::ZERO, |log| log.shippable_lsn());
        let now_us = votes.now_us();
        let voters = group.known_voters(votes);
        let roster = group.shown_roster(votes);
        let view = |listed: &Listed| {
            let id = listed.member_id()?;
            let is_self = id == votes.id();
            let other = progress.iter().find(|it| it.id == id);
            let durable = if is_self { Some(end) } else { other.and_then(|it| it.durable) };
            let peers = group.peers.get();
            let is_connected = peers.is_some_and(|peers| peers.is_connected(id));
            // A leader and its followers hear each other; followers send each other nothing.
            let is_silent = progress.is_empty() && leader != Some(id);
            let heard = peers.and_then(|peers| peers.heard(id));
            let heard_us =
                if is_silent && is_connected { Some(now_us) } else { heard.map(|heard| heard.at_us) };
            let is_heard = group.has_heard(votes, id, HEARD_US);
            Some(MemberView {
                id: listed.id.clone(),
                address: listed.address(),
                http_port: listed.http_port,
                kind: match (listed.is_voter && voters.contains(&id), listed.is_witness) {
                    (_, true) => MemberKind::Witness,
                    (false, false) => MemberKind::Learner,
                    (true, false) => MemberKind::Voter,
                },
                has_vote: listed.is_voter && voters.contains(&id),
                is_self,
                answers: is_self || is_connected && (is_silent || is_heard),
                epoch: if is_self { Some(term) } else { heard.filter(|_| is_heard).map(|heard| heard.term) },
                durable,
                committed: if is_self { Some(committed) } else { other.and_then(|it| it.committed) },
                lag_bytes: durable
                    .filter(|_| !progress.is_empty())
                    .map(|at| end.get().saturating_sub(at.get())),
                heard_ms: heard_us.map(|heard_us| now_us.saturating_sub(heard_us) / 1000),
            })
        };
        Some(GroupView {
            name: state.name.clone(),
            id: state.group_id.clone(),
            term,
            leader: leader.map(|leader| leader.to_string()),
            standing,
            members: roster.members.iter().filter_map(view).collect(),
        })
    }

    fn join(&self, request: JoinRequest, responder: Responder) {
        let Some(place) = self.0.askers.enter() else {
            return responder.keep(Err(TOO_MANY_ASKERS.into()));
        };
        self.in_thread(responder, move |group, votes, responder| {
            let _until_answered = place;
            let added = group.add(votes, &request);
            responder.answer(|reply| match &added {
                Ok(group_id) => reply.simple(group_id),
                Err(error) => reply.error(error),
            });
        });
    }

    fn remove(&self, id: &str, by_force: bool, responder: Responder) {
        let id = id.to_string();
        self.in_thread(responder, move |group, votes, responder| {
            responder.keep(group.drop_member(votes, &id, by_force))
        });
    }

    fn transfer(&self, to: Option<&str>, timeout_ms: Option<u64>, responder: Responder) {
        let to = to.map(String::from);
        self.in_thread(responder, move |group, votes, responder| {
            let mut responder = Some(responder);
            let mut answer = |outcome| _ = responder.take().map(|responder| responder.keep(outcome));
            if let Err(reason) = group.hand_over(votes, to.as_deref(), timeout_ms, || answer(Ok(()))) {
                // If another member leads by now, the answer to the client has been given.
                if votes.look(Member::leads) == Some(true) {
                    tracing::warn!(target: "group", reason, "the lead was not handed over");
                }
                answer(Err(reason));
            }
        });
    }
}

impl GroupHandle {
    /// Runs a command that takes long on a thread of its own.
    fn in_thread(&self, responder: Responder, run: impl FnOnce(&Group, &Votes, Responder) + Send + 'static) {
        let Some(votes) = self.0.votes.clone() else { return responder.keep(Err(NO_GROUP.into())) };
        let group = self.0.clone();
        let thread = thread::Builder::new().name("group-change".into());
        if let Err(refused) = spawn_with(thread, responder, move |responder| run(&group, &votes, responder)) {
            refused.value.keep(Err(format!("ERR cannot start a thread: {}", refused.error)));
        }
    }
}

impl Group {
    pub(super) fn require_leader(&self, votes: &Votes) -> Result<(), String> {
        // A witness that leads only hands the leadership on.
        if votes.look(Member::has_committed) == Some(true) && !votes.is_witness() {
            return Ok(());
        }
        let state = votes.state();
        Err(match self.leader_address() {
            _ if state.is_removed => {
                format!("{NOT_LEADER}this server was removed from its group: ask a member")
            }
            _ if !state.has_joined() => {
                format!(
                    "{NOT_LEADER}this server asks to be added to the group itself: ask a member, and have it join one"
                )
            }
            // A server that asks to be added parses this address, so the address comes first.
            Some(leader) => format!("{NOT_LEADER}{leader} leads the group: ask it"),
            None => format!("{NOT_LEADER}no leader is known, try again"),
        })
    }

    /// Ends writes, waits until another voter has all of the log, and has that voter elected. `begins` is
    /// called before the election, because no reply leaves once the election has begun. If the time
    /// `timeout_ms` ends before the election begins, this server stays the leader.
    pub(super) fn hand_over(
        &self,
        votes: &Votes,
        to: Option<&str>,
        timeout_ms: Option<u64>,
        begins: impl FnOnce(),
    ) -> Result<(), String> {
        let ends_us = timeout_ms.map(|ms| votes.now_us().saturating_add(ms.saturating_mul(1000)));
        self.hand_over_until(votes, to, ends_us, begins).map_err(|reason| match ends_us {
            Some(ends_us) if votes.now_us() >= ends_us => {
                let reason = reason.trim_start_matches("ERR ");
                format!("ERR the lead was not handed over within TIMEOUT: {reason}")
            }
            _ => reason,
        })
    }

    fn hand_over_until(
        &self,
        votes: &Votes,
        to: Option<&str>,
        ends_us: Option<u64>,
        begins: impl FnOnce(),
    ) -> Result<(), String> {
        let until_us = |limit_us| ends_us.unwrap_or_else(|| votes.now_us() + limit_us);
        self.require_leader(votes)?;
        let to = match to {
            Some(id) => MemberId::parse(id).filter(|to| *to != votes.id()),
            None => self.fittest(votes),
        };
        let is_voter = |to: &MemberId| self.known.lock().in_force.voters.contains(to);
        let to = to
            .filter(is_voter)
            .ok_or("ERR no other voter has this id, or no other voter with data answers")?;
        if !self.may_lead(to) {
            return Err("ERR that member is a witness: it has no data, so it cannot lead".into());
        }
        if !self.is_heard(votes, to) {
            return Err("ERR that member has not answered for a second, so it cannot be elected: wait until GROUP MEMBERS shows that it is heard".into());
        }
        let caught_up_until_us = until_us(TRANSFER_TIMEOUT_US);
        while !self.has_caught_up(votes, to) {
            if votes.now_us() >= caught_up_until_us || self.is_stopping() {
                return Err(
                    "ERR that member lacks too much of the log: wait until GROUP MEMBERS shows little lag"
                        .into(),
                );
            }
            thread::sleep(LOOK_PERIOD);
        }
        // A follower that cannot apply its log could not lead: a transfer to such a follower would only stop
        // the writes.
        let end = self.log.get().map_or(Lsn::ZERO, |log| log.shippable_lsn());
        while !self.has_applied(to, end) {
            if votes.now_us() >= caught_up_until_us || self.is_stopping() {
                return Err("ERR that member does not apply its log in time: its disk does not answer (`/_up` there), or a script or a command that takes long holds its keys (SCRIPT KILL, FUNCTION KILL)".into());
            }
            thread::sleep(LOOK_PERIOD);
        }
        let ended_until_us = until_us(PAUSE_US_MAX);
        self.node.end_writes_for_transfer(&|| votes.now_us() >= ended_until_us || self.is_stopping())?;
        let handed = self.elect(votes, to, until_us(PAUSE_US_MAX), begins);
        if handed.is_err() {
            self.node.resume_writes();
        }
        handed
    }

    /// Whether the member has reported that it has applied the log up to `end`. Also true for a member that
    /// is not connected as a replica under its address in the roster: then the votes alone decide.
    fn has_applied(&self, id: MemberId, end: Lsn) -> bool {
        let applied = self.address_of(id).and_then(|address| self.node.applied_at(&address));
        applied.is_none_or(|applied| applied >= end)
    }

    /// Whether the roster lists the member as a voter that has data.
    pub(super) fn may_lead(&self, id: MemberId) -> bool {
        self.known.lock().roster.as_ref().is_some_and(|roster| roster.is_voter_with_data(id))
    }

    /// Whether the member has sent anything within [`HEARD_US`]. A leader hears from all reachable members.
    pub(super) fn is_heard(&self, votes: &Votes, id: MemberId) -> bool {
        self.has_heard(votes, id, HEARD_US)
    }

    /// A voter with data that has sent something lately, has all of the log, and satisfies `is_fit`.
    pub(super) fn voter_with_all(
        &self,
        votes: &Votes,
        is_fit: impl Fn(&Progress) -> bool,
    ) -> Option<MemberId> {
        let end = self.log.get()?.appended_lsn();
        let voters = self.known.lock().in_force.voters.clone();
        let progress = votes.look(Member::progress)?;
        let has_all = |it: &&Progress| is_fit(it) && it.durable.is_some_and(|durable| durable >= end);
        let may_lead = |id| voters.contains(&id) && self.may_lead(id) && self.is_heard(votes, id);
        progress.iter().filter(has_all).find(|it| may_lead(it.id)).map(|it| it.id)
    }

    /// The voter with the most log, of those that have data and have sent something lately.
    fn fittest(&self, votes: &Votes) -> Option<MemberId> {
        let voters = self.known.lock().in_force.voters.clone();
        let progress = votes.look(Member::progress)?;
        let is_fit = |id| voters.contains(&id) && self.may_lead(id) && self.is_heard(votes, id);
        let others = progress.into_iter().filter(|it| is_fit(it.id));
        others.max_by_key(|it| it.durable).map(|it| it.id)
    }

    /// Waits until another voter has all of the log, and has that voter elected. Nothing may be written
    /// meanwhile.
    pub(super) fn elect(
        &self,
        votes: &Votes,
        to: MemberId,
        until_us: u64,
        begins: impl FnOnce(),
    ) -> Result<(), String> {
        let Some(log) = self.log.get() else { return Err(NO_GROUP.into()) };
        let has_everything = |member: &Member| {
            let durable = member.progress().into_iter().find(|it| it.id == to).and_then(|it| it.durable);
            durable.is_some_and(|durable| durable >= log.appended_lsn())
        };
        while votes.look(has_everything) != Some(true) {
            if votes.now_us() >= until_us || self.is_stopping() {
                return Err("ERR the other member did not have everything in time".into());
            }
            thread::sleep(LOOK_PERIOD);
        }
        tracing::info!(target: "group", %to, "handing the lead over");
        begins();
        // After the first wait, the rounds and long units that were in progress have ended. A worker answers
        // the second wait in a later pass, so by then it has sent their replies, as far as the log is
        // committed, and the answer that `begins` gave.
        let answered = (0..2).all(|_| self.node.wait_for_rounds(&|| votes.now_us() >= until_us));
        if !answered {
            return Err("ERR a script or a command that takes long did not end in time".into());
        }
        let begun = votes.input(|member, now_us| member.transfer(to, now_us));
        begun.ok_or(NO_GROUP)?.map_err(|error| format!("ERR {error}"))?;
        loop {
            match votes.look(|member| (member.leads(), member.is_transferring())) {
                Some((true, true)) if !self.is_stopping() => thread::sleep(LOOK_PERIOD),
                Some((true, _)) => return Err("ERR the other member was not elected in time".into()),
                _ => return Ok(()),
            }
        }
    }
}
