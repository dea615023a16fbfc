//! A member of a group: the driver of the Raft engine.
//!
//! ```text
//! tick, receive, accept, durable, configure, transfer, note_room, announce   (inputs, one at a time)
//!    -> the engine -> `Ready`s, in order: each waits until its entries are durable here
//!    -> Actions: 1. save the ballot  2. send messages  3. the committed position and the leadership
//! ```
//!
//! Invariants: those of the crate, and
//! - The engine's acknowledgements and votes leave in the order of its `Ready`s, each after the entries
//!   before it are durable. Answers to heartbeats do not wait for the disk, and an acknowledgement that is
//!   repeated with them names only durable batches.
//! - The engine's log has no batch that the caller lacks, except for the first batch of a term, which the
//!   elected leader has yet to write. The engine has every batch that the log here has taken from a leader.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lsn::Lsn;
use prng::Prng;
use raft::{
    CAMPAIGN_TRANSFER, Config, RawNode, StateRole,
    eraftpb::{ConfChange, ConfChangeType, ConfState, Entry, Message as EngineMessage, MessageType},
};

use crate::{
    Actions, Ballot, Batch, ELECTION_TICKS, ELECTION_US, HEARTBEAT_TICKS, Kind, Leadership, Link, MemberId,
    Members, Message, Progress, Refused, Start, TERM_JUMP_MAX, TERM_MAX, TransferError, WITNESS_TICKS,
    entries::{Entries, index_of},
    lease::{Lease, RELEASE_US},
    message::TERMS,
};

/// A `Ready` of the engine that waits for the disk.
struct Waiting {
    number: u64,
    /// The index of the last entry of the `Ready`; `None` if it has no entries.
    last: Option<u64>,
    messages: Vec<EngineMessage>,
}

/// Once the times of so many senders are kept, the times of senders that are no members are dropped.
const STAMPS_MAX: usize = 64;

/// A deliberate fault, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    AcknowledgesBeforeItIsDurable,
    VotesAtOnceAfterAStart,
    LeaseDuringTransfer,
    ForgetsItsVote,
    CampaignsWithOldMembers,
    ForgetsWhatAnotherLacks,
}

/// A member of a group; see the module documentation.
pub struct Member {
    id: MemberId,
    is_witness: bool,
    engine: RawNode<Entries>,
    waiting: VecDeque<Waiting>,
    /// The index up to which the log is durable here.
    durable: u64,
    /// A leader's batches that are durable and not proposed yet.
    unproposed: VecDeque<Batch>,
    /// Whether the log has batches of an earlier reign of this member that the engine never saw. The member
    /// then must not lead before it is started again.
    has_orphans: bool,
    lease: Lease,
    /// For each leader that this member has followed, the term and the time of the newest heartbeat.
    heard: BTreeMap<MemberId, (u64, u64)>,
    /// The time of each sender's last message; [`STAMPS_MAX`] limits the number of senders that are no
    /// members. The time may go back: a message may come late, and the clock of a machine that was started
    /// again begins anew. This is harmless: a message that repeats an older time only counts as less fresh.
    stamps: BTreeMap<MemberId, u64>,
    /// The members whose last messages said that their disks have no room.
    full: BTreeSet<MemberId>,
    /// Whether the disk of this member has no room.
    lacks_room: bool,
    /// The candidate for whom the leader has released this voter, and the time at which the release ends.
    released: Option<(MemberId, u64)>,
    /// The newest request for a vote that says that the leader has released the voters, if the release itself
    /// has not arrived yet.
    early: Option<Message>,
    /// The connection to a leader, and the index of the last batch that was accepted on it: up to this batch,
    /// the leader's log and the log here are equal.
    accepted: Option<(Link, u64)>,
    /// The highest index up to which all members have the log, as leaders have said; 0 for unknown.
    held_by_all: u64,
    /// The leader's order to campaign, which waits until this member may campaign.
    awaited: Option<Message>,
    /// The position of the log up to which `members` includes every change of members.
    configured_up_to: Lsn,
    members: Members,
    started_us: u64,
    ballot_at_start: Ballot,
    /// The ballot as it was saved, or is to be saved next.
    ballot: Ballot,
    now_us: u64,
    timeouts: Prng,
    /// The term and the role for which the election timeout was drawn.
    drawn_in: (u64, StateRole),
    timeout_ticks: usize,
    leadership: Leadership,
    actions: Actions,
    #[cfg(test)]
    pub(crate) fault: Option<Fault>,
}

fn ids(of: &[MemberId]) -> Vec<u64> {
    of.iter().map(|id| id.get()).collect()
}

impl Member {
    /// A member at its start, which follows nobody. If it is the only voter, it campaigns without waiting for
    /// an election timeout, unless it has taken part in a term before and may have granted a lease.
    pub fn start(start: Start<'_>) -> Member {
        let Start { id, is_witness, members, configured_up_to, .. } = start;
        let Start { ballot, committed, batches, now_us, seed, .. } = start;
        let newest_term = batches.last().or(committed.as_ref()).map_or(0, |batch| u64::from(batch.epoch));
        // A vote counts only in its term, and the log may have batches of a later term.
        let ballot = match ballot.term >= newest_term {
            true => ballot,
            false => Ballot { term: newest_term, voted_for: None },
        };
        let conf = ConfState {
            voters: ids(&members.voters),
            learners: ids(&members.learners),
            ..ConfState::default()
        };
        let vote = ballot.voted_for.map_or(0, MemberId::get);
        let entries = Entries::new(committed, batches, (ballot.term, vote), conf);
        let (durable, applied) = (entries.last(), committed.map_or(0, |batch| index_of(batch.number)));
        let config = Config {
            id: id.get(),
            // A witness has the same election timeout in the engine, because its promise to a leader holds
            // for this time. Its longer timeout before it campaigns is set in `draw_timeout`.
            election_tick: ELECTION_TICKS,
            max_election_tick: WITNESS_TICKS + ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            check_quorum: true,
            pre_vote: true,
            // Batches are not sent by the engine.
            max_inflight_msgs: 1,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let engine = RawNode::new(&config, entries, &logger).expect("the configuration is valid");
        let mut member = Member {
            id,
            is_witness,
            engine,
            waiting: VecDeque::new(),
            durable,
            unproposed: VecDeque::new(),
            has_orphans: false,
            lease: Lease::default(),
            heard: BTreeMap::new(),
            stamps: BTreeMap::new(),
            full: BTreeSet::new(),
            lacks_room: false,
            released: None,
            early: None,
            accepted: None,
            held_by_all: 0,
            awaited: None,
            configured_up_to,
            members,
            started_us: now_us,
            ballot_at_start: ballot,
            ballot,
            now_us,
            timeouts: Prng::new(seed),
            drawn_in: (u64::MAX, StateRole::Follower),
            timeout_ticks: 0,
            leadership: Leadership::Unknown { term: ballot.term },
            actions: Actions::default(),
            #[cfg(test)]
            fault: None,
        };
        member.draw_timeout();
        member
    }

    /// Whether this member campaigns at its next tick if no message of a leader arrives before.
    #[cfg(test)]
    pub(crate) fn is_about_to_campaign(&self) -> bool {
        let raft = &self.engine.raft;
        raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.timeout_ticks
    }

    /// The state of the member, for the message of a failed run.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let (raft, waiting) = (&self.engine.raft, self.waiting.len());
        format!(
            "{:?} elapsed {} of {} waiting {waiting} durable {} last {} committed {:?} members known to {:?} orphans {}",
            raft.state,
            raft.election_elapsed,
            self.timeout_ticks,
            self.durable,
            raft.raft_log.last_index(),
            self.committed(),
            self.configured_up_to,
            self.has_orphans
        )
    }

    #[cfg(test)]
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Notes that [`TICK_US`](crate::TICK_US) have passed.
    pub fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        let is_leader = self.engine.raft.state == StateRole::Leader;
        if is_leader || self.may_campaign() {
            // Before its start, this member may have been one of several voters and have granted a lease.
            let is_bound = self.ballot_at_start.term > 0 && !self.may_vote();
            if self.is_sole_voter() && !is_leader && !is_bound {
                let _ = self.engine.campaign();
            } else {
                self.engine.tick();
            }
        } else {
            // The engine does not tick, because its tick may campaign. The time without a leader is counted
            // here: the engine votes for another member only after an election timeout.
            let most = ELECTION_TICKS.max(self.timeout_ticks - 1);
            self.engine.raft.election_elapsed = (self.engine.raft.election_elapsed + 1).min(most);
        }
        self.settle();
    }

    /// Whether the term of a message is so far ahead that the message is ignored ([`TERM_JUMP_MAX`]).
    pub fn is_too_far(&self, message: &Message) -> bool {
        message.term > self.engine.raft.term + TERM_JUMP_MAX
    }

    /// Handles a message that has arrived. A message for another member, from this member, without a valid
    /// term, or with a term too far ahead is ignored.
    pub fn receive(&mut self, message: &Message, now_us: u64) {
        self.now_us = now_us;
        if message.to != self.id || message.from == self.id || !TERMS.contains(&message.term) {
            return;
        }
        if self.is_too_far(message) {
            return;
        }
        let is_member =
            |id: &MemberId| self.members.voters.contains(id) || self.members.learners.contains(id);
        if self.stamps.len() >= STAMPS_MAX {
            self.stamps.retain(|id, _| is_member(id));
        }
        self.stamps.insert(message.from, message.sent_us);
        match message.lacks_room && is_member(&message.from) {
            true => self.full.insert(message.from),
            false => self.full.remove(&message.from),
        };
        if message.kind == Kind::Release {
            return self.note_release(message);
        }
        if matches!(message.kind, Kind::Vote | Kind::PreVote) {
            let is_released = message.is_released && self.is_released_for(message.from);
            if message.is_released && !is_released {
                // The request is kept, because the release may arrive later.
                self.early = Some(*message);
            }
            if !is_released && !self.may_vote() {
                return;
            }
        }
        if message.kind == Kind::TimeoutNow {
            return self.campaign_for_transfer(message);
        }
        if let Some(message) = self.for_engine(message) {
            // An error means that the engine does not know the sender, and has changed nothing.
            let _ = self.engine.step(message);
        }
        self.note_times(message);
        self.settle();
        if message.kind == Kind::Heartbeat {
            self.acknowledge_again(message);
        }
    }

    /// Accepts batches that arrived from a leader, before the log here takes them. `commit` is the position
    /// that the leader knew to be committed. A call without batches says that the log here is a prefix of the
    /// leader's log; this is acknowledged after the next heartbeat.
    ///
    /// # Errors
    /// See [`Refused`]; the log must then not take the batches.
    pub fn accept(&mut self, link: Link, batches: &[Batch], commit: Lsn, now_us: u64) -> Result<(), Refused> {
        self.now_us = now_us;
        let raft = &self.engine.raft;
        let follows = raft.state == StateRole::Follower && raft.leader_id == link.leader.get();
        let is_current = follows && raft.term == link.term;
        if !is_current {
            return Err(Refused::NotLeader { link: link.term, known: raft.term });
        }
        let last = raft.raft_log.last_index();
        let Some(first) = batches.first() else {
            self.accepted = Some((link, last));
            return Ok(());
        };
        if index_of(first.number) != last + 1 {
            return Err(Refused::Gap { found: first.number, expected: last });
        }
        let entry = |batch: &Batch| Entry {
            index: index_of(batch.number),
            term: batch.epoch.into(),
            ..Entry::default()
        };
        let mut append = EngineMessage {
            from: link.leader.get(),
            to: self.id.get(),
            term: raft.term,
            index: last,
            log_term: raft.raft_log.term(last).expect("the last entry is known"),
            entries: batches.iter().map(entry).collect(),
            ..EngineMessage::default()
        };
        append.set_msg_type(MessageType::MsgAppend);
        // A leader makes a change of members only after the previous one is committed, so a follower that
        // takes a change must know that the previous one is committed.
        let known = batches.iter().rev().find(|batch| batch.end <= commit);
        append.commit =
            known.map_or_else(|| self.engine.store().last_before(commit), |batch| index_of(batch.number));
        let _ = self.engine.step(append);
        assert_eq!(self.engine.raft.raft_log.last_index(), last + batches.len() as u64, "they were accepted");
        self.accepted = Some((link, last + batches.len() as u64));
        self.settle();
        for batch in batches {
            self.engine.mut_store().place(batch);
        }
        self.settle();
        Ok(())
    }

    /// Notes that these batches, the next ones of the log here, are durable.
    pub fn durable(&mut self, batches: &[Batch], now_us: u64) {
        self.now_us = now_us;
        for batch in batches {
            let index = index_of(batch.number);
            let term = self.engine.raft.term;
            if index <= self.engine.store().last() {
                self.engine.mut_store().place(batch);
            } else if self.engine.raft.state == StateRole::Leader && u64::from(batch.epoch) == term {
                self.unproposed.push_back(*batch);
            } else {
                self.has_orphans = true;
                return;
            }
            self.durable = index;
        }
        self.settle();
    }

    /// Puts these members in force. They include every change of members in the log up to `up_to`, and these
    /// changes are committed. To be called for each change, after the members were saved, and also when
    /// `up_to` moves without a change.
    pub fn configure(&mut self, members: &Members, up_to: Lsn) {
        self.configured_up_to = self.configured_up_to.max(up_to);
        if *members != self.members {
            self.change_members(members);
        }
        if let Some(message) = self.awaited.take() {
            self.campaign_for_transfer(&message);
        }
    }

    fn change_members(&mut self, members: &Members) {
        let is_follower = self.engine.raft.state == StateRole::Follower;
        if !is_follower && !members.voters.contains(&self.id) {
            if self.leads() {
                // Perhaps the other members do not know yet that the change is committed, and that they are
                // voters.
                self.engine.ping();
                self.take_ready();
            }
            // The engine expects leaders and candidates to be voters.
            let term = self.engine.raft.term;
            self.engine.raft.become_follower(term, 0);
        }
        for change in changes(&self.members, members) {
            // The engine refuses a change that leaves no voter.
            let _ = self.engine.apply_conf_change(&change);
        }
        self.members = members.clone();
        if self.leads() {
            // The heartbeat is sent at once: until the other members know that the change is committed, they
            // may find no majority without this leader.
            self.engine.ping();
        }
        self.settle();
    }

    /// Begins to transfer the lead. Nothing may be written during the transfer, which has ended when
    /// [`Member::is_transferring`] is false, or when another member leads.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer(&mut self, to: MemberId, now_us: u64) -> Result<(), TransferError> {
        self.now_us = now_us;
        if !self.leads() {
            return Err(TransferError::NotLeader);
        }
        if to == self.id || !self.members.voters.contains(&to) {
            return Err(TransferError::NoVoter);
        }
        for voter in self.members.voters.clone() {
            if voter != self.id {
                let release = self.message(Kind::Release, voter);
                self.actions.messages.push(Message { index: to.get(), ..release });
            }
        }
        // This leader is released, too, so that it can vote for the candidate.
        self.released = Some((to, now_us + RELEASE_US));
        self.engine.transfer_leader(to.get());
        self.release_lease();
        self.settle();
        Ok(())
    }

    fn release_lease(&mut self) {
        #[cfg(test)]
        if self.has(Fault::LeaseDuringTransfer) {
            return;
        }
        self.lease.release(self.now_us);
    }

    /// Notes whether the disk here has room for the log, for the messages from now on.
    pub fn note_room(&mut self, has_room: bool) {
        self.lacks_room = !has_room;
    }

    /// Notes that a connection to another member was made. A leader then sends a heartbeat at once.
    pub fn announce(&mut self, now_us: u64) {
        self.now_us = now_us;
        if self.leads() {
            self.engine.ping();
            self.settle();
        }
    }

    /// Whether the leader's order to campaign waits until this member may campaign.
    pub fn awaits_members(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether a transfer is in progress.
    pub fn is_transferring(&self) -> bool {
        self.engine.raft.lead_transferee.is_some()
    }

    /// Takes the actions that the owner has to carry out.
    pub fn take_actions(&mut self) -> Actions {
        std::mem::take(&mut self.actions)
    }

    /// The id of this member.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The term of this member.
    pub fn term(&self) -> u64 {
        self.engine.raft.term
    }

    /// The leader, as far as this member knows it.
    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    /// Whether this member leads.
    pub fn leads(&self) -> bool {
        self.engine.raft.state == StateRole::Leader
    }

    /// The members in force here.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The position up to which the log is durable here and, as far as this member knows, committed.
    pub fn committed(&self) -> Lsn {
        let committed = self.engine.raft.raft_log.committed;
        self.engine.store().end_of(committed.min(self.durable)).unwrap_or(Lsn::ZERO)
    }

    /// The number of batches that this member does not know to be committed. Batches that a leader has not
    /// proposed yet count once they are durable; the first batch of an elected leader counts before it is
    /// written.
    pub fn uncommitted_batches(&self) -> u64 {
        let log = &self.engine.raft.raft_log;
        log.last_index().saturating_sub(log.committed) + self.unproposed.len() as u64
    }

    /// Whether all batches that this member has ever proposed or accepted are in the log here, which ends at
    /// `end`, and are committed. Every later leader then has these batches, so the log here will never be
    /// cut.
    pub fn has_committed_all(&self, end: Lsn) -> bool {
        let log = &self.engine.raft.raft_log;
        let last = log.last_index();
        let is_whole = !self.has_orphans && self.unproposed.is_empty() && self.durable == last;
        is_whole && log.committed == last && self.engine.store().end_of(last) == Some(end)
    }

    /// The position up to which the log is committed and every change of members in it is in force here.
    pub fn settled_up_to(&self) -> Lsn {
        self.configured_up_to.min(self.committed())
    }

    /// Whether this leader has committed a batch of its own term. Only then does it know which part of the
    /// log is committed.
    pub fn has_committed(&self) -> bool {
        self.leads() && self.engine.raft.commit_to_current_term()
    }

    /// The time, in microseconds of this server's clock, before which no other member can have been elected;
    /// 0 if it is not known.
    pub fn lease_until_us(&self) -> u64 {
        let is_transferring = self.is_transferring();
        #[cfg(test)]
        let is_transferring = is_transferring && !self.has(Fault::LeaseDuringTransfer);
        if !self.has_committed() || is_transferring {
            return 0;
        }
        self.lease.until_us(self.id, &self.members.voters, self.now_us)
    }

    /// Whether this member leads, and a majority has answered it so recently that no other member can have
    /// been elected. Unlike for [`Member::lease_until_us`], the member need not have committed a batch of its
    /// own term.
    pub fn is_heard(&self) -> bool {
        self.leads() && self.lease.until_us(self.id, &self.members.voters, self.now_us) > self.now_us
    }

    /// The progress of the other members; empty unless this member leads.
    pub fn progress(&self) -> Vec<Progress> {
        if !self.leads() {
            return Vec::new();
        }
        let of = |(&id, progress): (&u64, &raft::Progress)| {
            let id = MemberId::new(id).filter(|&id| id != self.id)?;
            let end_of = |index: u64| self.engine.store().end_of(index).filter(|_| index > 0);
            let (durable, committed) = (end_of(progress.matched), end_of(progress.committed_index));
            Some(Progress { id, durable, committed, lacks_room: self.full.contains(&id) })
        };
        self.engine.raft.prs().iter().filter_map(of).collect()
    }

    /// The position up to which all members, including learners, have the log durably, as far as this member
    /// knows. None of them will request the log before it. `None` if no such position is known, or the known
    /// one is too old.
    pub fn held_by_all(&self) -> Option<Lsn> {
        let told = if self.leads() { self.least_of_all() } else { self.held_by_all };
        #[cfg(test)]
        let told = if self.has(Fault::ForgetsWhatAnotherLacks) { u64::MAX } else { told };
        let index = told.min(self.durable).min(self.engine.raft.raft_log.committed);
        self.engine.store().end_of(index).filter(|_| index > 0)
    }

    /// The index up to which every member has the log, as far as this leader knows.
    fn least_of_all(&self) -> u64 {
        let all = self.engine.raft.prs().iter();
        all.map(|(_, progress)| progress.matched).min().unwrap_or(0).min(self.durable)
    }

    fn is_sole_voter(&self) -> bool {
        self.members.voters == [self.id]
    }

    /// Whether this member may vote, because any lease that it granted before its start has ended.
    fn may_vote(&self) -> bool {
        #[cfg(test)]
        if self.has(Fault::VotesAtOnceAfterAStart) {
            return true;
        }
        self.now_us >= self.started_us + ELECTION_US
    }

    fn may_campaign(&self) -> bool {
        let committed = self.engine.store().end_of(self.engine.raft.raft_log.committed);
        let knows_members = committed.is_some_and(|committed| self.configured_up_to >= committed);
        #[cfg(test)]
        let knows_members = knows_members || self.has(Fault::CampaignsWithOldMembers);
        // The engine requests votes only when its entries are durable. A sole voter requests none, so this
        // must be checked here.
        let is_stable = !self.is_sole_voter() || self.waiting.is_empty();
        let has_next_term = self.engine.raft.term < TERM_MAX;
        knows_members && is_stable && has_next_term && !self.has_orphans
    }

    /// Whether a time of this member's clock, which another member has repeated, is recent. A time in the
    /// future is forged, or from before this machine was started, because the clock has begun anew since.
    fn is_fresh(&self, echo_us: u64) -> bool {
        #[cfg(test)]
        if self.has(Fault::LeaseDuringTransfer) {
            return true;
        }
        self.now_us.checked_sub(echo_us).is_some_and(|age_us| age_us < RELEASE_US)
    }

    /// Repeats the acknowledgement of the log here, because an earlier one may have been lost.
    fn acknowledge_again(&mut self, heartbeat: &Message) {
        let link = Link { leader: heartbeat.from, term: heartbeat.term };
        let is_leader = self.leadership == Leadership::Follows { term: link.term, leader: link.leader };
        let Some((_, accepted)) = self.accepted.filter(|(from, _)| is_leader && *from == link) else {
            return;
        };
        let mut response = EngineMessage {
            to: link.leader.get(),
            term: link.term,
            index: accepted.min(self.durable),
            commit: self.engine.raft.raft_log.committed,
            ..EngineMessage::default()
        };
        response.set_msg_type(MessageType::MsgAppendResponse);
        self.send(&response);
    }

    /// Campaigns on the leader's order, unless the order is too old. If this member may not campaign yet, the
    /// order waits for the next call of [`Member::configure`].
    fn campaign_for_transfer(&mut self, message: &Message) {
        if !self.is_fresh(message.echo_us) {
            return;
        }
        if !self.may_campaign() {
            self.awaited = Some(*message);
        } else if let Some(message) = self.for_engine(message) {
            let _ = self.engine.step(message);
            self.settle();
        }
    }

    fn note_release(&mut self, message: &Message) {
        let is_leader = self.leadership == Leadership::Follows { term: message.term, leader: message.from };
        if is_leader && self.is_fresh(message.echo_us) {
            let until_us = message.echo_us + RELEASE_US;
            self.released = MemberId::new(message.index).map(|candidate| (candidate, until_us));
            if let Some(early) = self.early.take_if(|early| early.from.get() == message.index) {
                self.receive(&early, self.now_us);
            }
        }
    }

    fn note_times(&mut self, message: &Message) {
        let (from, term) = (message.from, message.term);
        match message.kind {
            Kind::Heartbeat if self.engine.raft.leader_id == from.get() && self.engine.raft.term == term => {
                self.held_by_all = self.held_by_all.max(message.index);
                let newest = self.heard.entry(from).or_default();
                *newest = (*newest).max((term, message.sent_us));
            }
            Kind::HeartbeatAnswer | Kind::Accepted
                if self.leads()
                    && self.engine.raft.term == term
                    && (1..=self.now_us).contains(&message.echo_us) =>
            {
                self.lease.note(from, message.echo_us);
            }
            _ => {}
        }
    }

    /// Makes the engine handle its input, and gathers the actions.
    fn settle(&mut self) {
        loop {
            self.let_go();
            self.propose();
            if !self.engine.has_ready() {
                break;
            }
            self.take_ready();
        }
        self.draw_timeout();
        self.note_leadership();
        let applied = self.engine.raft.raft_log.applied;
        self.engine.mut_store().trim(applied);
    }

    /// Releases the messages whose batches are durable by now. Their ballot is saved before they are sent
    /// ([`Actions`]).
    fn let_go(&mut self) {
        while let Some(first) = self.waiting.front() {
            let is_durable = first.last.is_none_or(|last| last <= self.durable);
            #[cfg(test)]
            let is_durable = is_durable || self.has(Fault::AcknowledgesBeforeItIsDurable);
            if !is_durable {
                return;
            }
            let Some(Waiting { number, messages, .. }) = self.waiting.pop_front() else { return };
            self.engine.on_persist_ready(number);
            messages.iter().for_each(|message| self.send(message));
        }
    }

    fn propose(&mut self) {
        while let Some(batch) = self.unproposed.front().copied() {
            if !self.leads() || u64::from(batch.epoch) != self.engine.raft.term {
                self.has_orphans = true;
                self.unproposed.clear();
                return;
            }
            if self.engine.propose(Vec::new(), Vec::new()).is_err() {
                // The engine accepts no proposal during a transfer, so the batches wait for its end.
                return;
            }
            let index = self.engine.raft.raft_log.last_index();
            assert_eq!(index, index_of(batch.number), "a batch is the entry with its number");
            self.take_ready();
            self.engine.mut_store().place(&batch);
            self.unproposed.pop_front();
        }
    }

    fn take_ready(&mut self) {
        let mut ready = self.engine.ready();
        if let Some(state) = ready.hs()
            && ready.must_sync()
        {
            let voted_for = MemberId::new(state.vote);
            #[cfg(test)]
            let voted_for = voted_for.filter(|_| !self.has(Fault::ForgetsItsVote));
            let ballot = Ballot { term: state.term, voted_for };
            // The engine also reports its state when only the committed index has changed.
            if ballot != self.ballot {
                self.ballot = ballot;
                self.actions.ballot = Some(ballot);
            }
        }
        for entry in ready.entries() {
            self.engine.mut_store().push(entry.index, entry.term);
        }
        let last = ready.entries().last().map(|entry| entry.index);
        for message in ready.take_messages() {
            self.send(&message);
        }
        let (now, later): (Vec<_>, Vec<_>) = ready
            .take_persisted_messages()
            .into_iter()
            .partition(|message| message.get_msg_type() == MessageType::MsgHeartbeatResponse);
        now.iter().for_each(|message| self.send(message));
        let committed = ready.take_committed_entries().last().map(|entry| entry.index);
        let number = ready.number();
        self.engine.advance_append_async(ready);
        self.waiting.push_back(Waiting { number, last, messages: later });
        if let Some(index) = committed {
            self.engine.advance_apply_to(index);
            let end = self.engine.store().end_of(index);
            self.actions.committed = end.or(self.actions.committed);
        }
    }

    fn note_leadership(&mut self) {
        let raft = &self.engine.raft;
        let leadership = match MemberId::new(raft.leader_id) {
            _ if raft.state == StateRole::Leader => Leadership::Leads { term: raft.term },
            Some(leader) if leader != self.id => Leadership::Follows { term: raft.term, leader },
            _ => Leadership::Unknown { term: raft.term },
        };
        if leadership == self.leadership {
            return;
        }
        if let Leadership::Leads { .. } = leadership {
            self.lease = Lease::default();
        }
        self.leadership = leadership;
        self.actions.leadership = Some(leadership);
    }

    /// Draws a new election timeout if the term or the role has changed. Replaces the timeout of the engine
    /// by this timeout.
    fn draw_timeout(&mut self) {
        let state = (self.engine.raft.term, self.engine.raft.state);
        if state != self.drawn_in {
            self.drawn_in = state;
            let least_ticks = if self.is_witness { WITNESS_TICKS } else { ELECTION_TICKS };
            self.timeout_ticks = least_ticks + self.timeouts.below(ELECTION_TICKS as u64) as usize;
        }
        self.engine.raft.set_randomized_election_timeout(self.timeout_ticks);
    }

    fn message(&self, kind: Kind, to: MemberId) -> Message {
        Message {
            kind,
            is_rejected: false,
            is_released: false,
            lacks_room: self.lacks_room,
            from: self.id,
            to,
            term: self.engine.raft.term,
            index: 0,
            index_term: 0,
            commit: 0,
            commit_term: 0,
            sent_us: self.now_us,
            echo_us: self.stamps.get(&to).copied().unwrap_or(0),
        }
    }

    /// Sends a message of the engine. Messages that only serve to ship batches are dropped, because the
    /// connection of the log ships them.
    fn send(&mut self, message: &EngineMessage) {
        let kind = match message.get_msg_type() {
            MessageType::MsgRequestPreVote => Kind::PreVote,
            MessageType::MsgRequestPreVoteResponse => Kind::PreVoteAnswer,
            MessageType::MsgRequestVote => Kind::Vote,
            MessageType::MsgRequestVoteResponse => Kind::VoteAnswer,
            MessageType::MsgHeartbeat => Kind::Heartbeat,
            MessageType::MsgHeartbeatResponse => Kind::HeartbeatAnswer,
            MessageType::MsgAppendResponse if !message.reject => Kind::Accepted,
            MessageType::MsgTimeoutNow => Kind::TimeoutNow,
            // The engine's first message of a reign is an append. It is sent as a heartbeat, which says the
            // same; later appends are dropped below.
            MessageType::MsgAppend => Kind::Heartbeat,
            _ => return,
        };
        let Some(to) = MemberId::new(message.to) else { return };
        if kind == Kind::TimeoutNow {
            // The order to campaign may leave long after the transfer has begun, when the other member has
            // caught up. So the lease is released again when the order leaves.
            self.release_lease();
        }
        let is_append = message.get_msg_type() == MessageType::MsgAppend;
        if is_append && self.has_announced(to) {
            return;
        }
        let mut sent = Message {
            is_rejected: message.reject,
            is_released: message.context == CAMPAIGN_TRANSFER,
            term: message.term,
            index: message.index,
            index_term: message.log_term,
            commit: message.commit,
            commit_term: message.commit_term,
            ..self.message(kind, to)
        };
        if is_append {
            // The commit position of a heartbeat covers only batches that its receiver certainly has: none
            // yet in this reign.
            (sent.index, sent.index_term, sent.commit) = (0, 0, 0);
        }
        if kind == Kind::Heartbeat {
            sent.index = self.least_of_all();
        }
        if matches!(kind, Kind::HeartbeatAnswer | Kind::Accepted) {
            // Only the answer to a heartbeat of the same term grants a lease.
            let heard = self.heard.get(&to).filter(|(term, _)| *term == message.term);
            sent.echo_us = heard.map_or(0, |(_, sent_us)| *sent_us);
        }
        self.actions.messages.push(sent);
    }

    /// Whether this reign was announced to the member: earlier, or by a heartbeat that is among the messages.
    fn has_announced(&self, to: MemberId) -> bool {
        self.leadership == Leadership::Leads { term: self.engine.raft.term }
            || self.actions.messages.iter().any(|it| it.to == to && it.kind == Kind::Heartbeat)
    }

    fn for_engine(&self, message: &Message) -> Option<EngineMessage> {
        let mut out = EngineMessage {
            from: message.from.get(),
            to: message.to.get(),
            term: message.term,
            index: message.index,
            log_term: message.index_term,
            commit: message.commit,
            commit_term: message.commit_term,
            reject: message.is_rejected,
            ..EngineMessage::default()
        };
        out.set_msg_type(match message.kind {
            Kind::PreVote => MessageType::MsgRequestPreVote,
            Kind::PreVoteAnswer => MessageType::MsgRequestPreVoteResponse,
            Kind::Vote => MessageType::MsgRequestVote,
            Kind::VoteAnswer => MessageType::MsgRequestVoteResponse,
            Kind::Heartbeat => MessageType::MsgHeartbeat,
            Kind::HeartbeatAnswer => MessageType::MsgHeartbeatResponse,
            Kind::Accepted => MessageType::MsgAppendResponse,
            Kind::TimeoutNow => MessageType::MsgTimeoutNow,
            Kind::Release => return None,
        });
        let log = &self.engine.raft.raft_log;
        match message.kind {
            // The engine ends the process if a message has a position after the end of its log, so such
            // positions are reduced, and such acknowledgements ignored.
            Kind::Heartbeat => (out.index, out.commit) = (0, out.commit.min(log.last_index())),
            Kind::Accepted if out.index > log.last_index() => return None,
            Kind::HeartbeatAnswer => out.commit = out.commit.min(log.committed),
            Kind::Vote if message.is_released && self.is_released_for(message.from) => {
                out.context = CAMPAIGN_TRANSFER.to_vec().into();
            }
            _ => {}
        }
        if message.kind == Kind::Accepted {
            out.commit = out.commit.min(log.committed);
        }
        Some(out)
    }

    fn is_released_for(&self, candidate: MemberId) -> bool {
        #[cfg(test)]
        if self.has(Fault::LeaseDuringTransfer) {
            return true;
        }
        self.released.is_some_and(|(released, until_us)| released == candidate && self.now_us < until_us)
    }
}

/// The changes, one member each, that lead from one set of members to another: additions first, so that there
/// is always a voter.
fn changes(from: &Members, to: &Members) -> Vec<ConfChange> {
    let change = |kind: ConfChangeType, id: MemberId| {
        let mut change = ConfChange { node_id: id.get(), ..ConfChange::default() };
        change.set_change_type(kind);
        change
    };
    let voters = to.voters.iter().filter(|id| !from.voters.contains(id));
    let learners = to.learners.iter().filter(|id| !from.learners.contains(id));
    let is_member = |id: &MemberId| to.voters.contains(id) || to.learners.contains(id);
    let gone = from.voters.iter().chain(&from.learners).filter(|&id| !is_member(id));
    let voters = voters.map(|&id| change(ConfChangeType::AddNode, id));
    let learners = learners.map(|&id| change(ConfChangeType::AddLearnerNode, id));
    voters.chain(learners).chain(gone.map(|&id| change(ConfChangeType::RemoveNode, id))).collect()
}
