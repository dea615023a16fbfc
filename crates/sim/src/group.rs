//! A simulated group: servers with the product's own storage, which elect a leader by votes. One seed decides
//! the whole run.
//!
//! ```text
//! events, in real time: ticks and messages of the votes | batches written | the log shipped, accepted,
//!     applied | clients write and read | members change | the lead is handed over | crashes, power failures,
//!     failing and lost disks, pauses, partitions, starts
//! ```
//!
//! Each [`Server`] is made of the product's parts: its votes (`membership`, `consensus`) with `group.json`,
//! the log, recovery at each start, and the machines of `replication`. The driver does the work of the
//! server's threads: one event is one turn of a thread. The real threads are tested as processes
//! (`tests/faults`), and the machine of the votes also alone (`consensus::simulation`).
//!
//! Checked invariants
//! - The part of the log that a member knows to be committed is equal, byte by byte, at all members, and
//!   never changes ([`Truth`]).
//! - No member that starts lacks committed batches that it had: those that it knew to be committed, or that a
//!   leader has counted on. A group often survives such a loss, so the loss itself is judged, not its
//!   consequences.
//! - A term has at most one leader, which has everything that was committed in earlier terms.
//! - An acknowledged write is committed.
//! - A read at a leader shows committed data, and every write that was acknowledged before it began.
//! - A follower shows committed data: whole records, in order, nothing else.
//! - No member votes twice in a term, forgets a vote, or goes back in its terms ([`Ballots`]); no id changes.
//! - Without faults a leader is elected within seconds, and all members get the same log and the same data.

mod ballots;
mod changing;
mod faults;
mod following;
mod leading;
mod options;
mod relays;
mod server;
mod settling;
mod standing;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    path::Path,
};

use consensus::{ELECTION_US, Kind, Leadership, Link, Member, MemberId, Message, TICK_US};
use engine::replication::Address;
use env::{
    Prng,
    sim::{CrashMode, FaultPlan},
};
use lsn::Lsn;
use membership::references;
use storage::{Chains, CursorRead};

pub use self::options::{GroupFault, GroupFigures, GroupOptions};
use self::{
    ballots::Ballots,
    following::{Following, Next},
    leading::{Leading, Reply},
    server::{MEMBER_DIR, Part, Server},
};
use crate::cluster::{
    copying::Copying,
    leading::{holds, plan_copy},
    network::{Network, NodeId},
    node::{Failure, flush},
    truth::Truth,
};

/// The number of servers, not all of which are members at first.
const SERVERS: usize = 5;
/// The time until the first trouble: some members have joined by then.
const QUIET_US: u64 = 1_200_000;
/// The maximum bytes of the log in one read of the thread "group".
const READ_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The process starts.
    Start(NodeId),
    /// A turn of the thread "group" because a tick is due.
    Tick(NodeId, u64),
    /// A turn of the thread "group" because batches are durable.
    Tail(NodeId, u64),
    /// A turn of the log thread.
    Flush(NodeId, u64),
    /// A turn of the thread "group-role".
    Role(NodeId, u64),
    /// The end of a promotion: the server takes writes.
    Open(NodeId, u64),
    /// A deposed leader has known no other leader for too long.
    Restart(NodeId, u64),
    /// A turn of the threads that ship, receive and apply the log.
    Work(NodeId, u64),
    /// A message of the votes arrives.
    Deliver(usize),
    Client,
    Operator,
    Trouble,
    /// `voter`, which has most likely granted `leader` its lease, is cut off from `leader`, and restarts if
    /// it runs. Nothing happens unless `candidate` runs and does not lead: see `begin_to_forget` in `faults`.
    Forget {
        voter: NodeId,
        leader: NodeId,
        candidate: NodeId,
    },
    /// Nothing reaches this server, or leaves it.
    CutOff(NodeId),
    /// The disk of this member is lost: see `faults`.
    LoseDisk(NodeId),
}

/// A simulated group: its servers, their network, and the judges, driven by the events of one seed.
pub struct GroupWorld {
    options: GroupOptions,
    prng: Prng,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    servers: Vec<Server>,
    ids: BTreeMap<MemberId, NodeId>,
    /// Members whose disks were lost.
    lost: BTreeSet<MemberId>,
    network: Network,
    messages: Vec<Option<Message>>,
    truth: Truth,
    ballots: Ballots,
    writes: u64,
    /// The end of the newest acknowledged write.
    acknowledged: Lsn,
    is_calm: bool,
    /// Clients only read until this time.
    quiet_until_us: u64,
    figures: GroupFigures,
}

impl GroupWorld {
    /// A founder, and servers that may join it; none is up.
    pub fn new(options: GroupOptions) -> GroupWorld {
        let mut prng = Prng::new(options.seed);
        let servers: Vec<Server> = (0..SERVERS).map(|number| Server::new(number, &mut prng)).collect();
        let mut world = GroupWorld {
            options,
            network: Network::new(SERVERS, prng.fork()),
            prng,
            now_us: 0,
            events: BinaryHeap::new(),
            count: 0,
            servers,
            ids: BTreeMap::new(),
            lost: BTreeSet::new(),
            messages: Vec::new(),
            truth: Truth::new(),
            ballots: Ballots::default(),
            writes: 0,
            acknowledged: Lsn::ZERO,
            is_calm: false,
            quiet_until_us: 0,
            figures: GroupFigures::default(),
        };
        for id in 0..SERVERS.min(4) {
            world.at(id as u64 * 1_000, Event::Start(id));
        }
        world.at(50_000, Event::Client);
        world.at(60_000, Event::Operator);
        world.at(QUIET_US, Event::Trouble);
        world
    }

    /// Runs to the end, the last part of it without faults.
    ///
    /// # Errors
    /// The first broken invariant, as text.
    pub fn run(mut self) -> Result<GroupFigures, String> {
        let run_us = self.options.run_ms * 1000;
        self.run_until(run_us * 3 / 4)?;
        self.settle_down(run_us)?;
        self.figures.acknowledged = self.truth.acknowledged() as u64;
        Ok(self.figures)
    }

    fn run_until(&mut self, until_us: u64) -> Result<(), String> {
        while let Some(Reverse((at_us, _, event))) = self.events.peek().copied() {
            if at_us > until_us {
                break;
            }
            self.events.pop();
            self.now_us = at_us;
            self.handle(event).map_err(|broken| format!("after {} ms: {broken}", at_us / 1000))?;
        }
        Ok(())
    }

    fn at(&mut self, delay_us: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now_us + delay_us, self.count, event)));
    }

    fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    fn has(&self, fault: GroupFault) -> bool {
        self.options.fault == Some(fault)
    }

    /// Whether a server takes part in an event. If not, the event is postponed or void.
    fn is_on(&mut self, event: Event, id: NodeId, incarnation: Option<u64>) -> bool {
        let server = &self.servers[id];
        let is_current = incarnation.is_none_or(|it| it == server.incarnation);
        if !is_current || incarnation.is_some() && server.running.is_none() {
            return false;
        }
        let paused_us = server.paused_until_us.saturating_sub(self.now_us);
        if paused_us > 0 {
            let jitter_us = self.prng.below(2_000);
            self.at(paused_us + jitter_us, event);
        }
        paused_us == 0
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Start(id) => {
                if self.servers[id].running.is_none() && !self.servers[id].is_removed {
                    return self.act(id, GroupWorld::start);
                }
                Ok(())
            }
            Event::Tick(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                let delay_us = self.servers[id].real_us(TICK_US) + self.prng.below(4_000);
                self.at(delay_us, event);
                self.act_on_ballot(id, |world, id| world.group_turn(id, true))
            }
            Event::Tail(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                self.act_on_ballot(id, |world, id| world.group_turn(id, false))
            }
            Event::Flush(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                self.act(id, GroupWorld::flush)
            }
            Event::Role(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                self.act(id, GroupWorld::take_role)
            }
            Event::Open(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                self.act(id, GroupWorld::open)
            }
            Event::Restart(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                let is_deposed = self.servers[id].running.as_ref().is_some_and(|it| it.is_deposed);
                if is_deposed { self.act(id, GroupWorld::restart) } else { Ok(()) }
            }
            Event::Work(id, incarnation) if self.is_on(event, id, Some(incarnation)) => {
                let delay_us = 1_000 + self.prng.below(9_000);
                self.at(delay_us, event);
                self.act(id, GroupWorld::work)
            }
            Event::Deliver(number) => {
                let Some(message) = self.messages[number] else { return Ok(()) };
                let Some(&to) = self.ids.get(&message.to) else { return Ok(()) };
                if !self.is_on(event, to, None) {
                    return Ok(());
                }
                self.messages[number] = None;
                if self.servers[to].running.is_none() {
                    return Ok(());
                }
                self.act_on_ballot(to, |world, to| {
                    let Some(running) = &world.servers[to].running else { return Ok(()) };
                    running.votes.input(|member, now_us| member.receive(&message, now_us));
                    Ok(())
                })
            }
            Event::Client => {
                let delay_us = 3_000 + self.prng.below(30_000);
                self.at(delay_us, event);
                self.serve_clients()
            }
            Event::Operator => {
                let delay_us =
                    if self.now_us < QUIET_US { 30_000 } else { 100_000 + self.prng.below(900_000) };
                self.at(delay_us, event);
                self.operate()
            }
            Event::Trouble if !self.is_calm => {
                let delay_us = 30_000 + self.prng.below(400_000);
                self.at(delay_us, event);
                self.trouble()
            }
            Event::Forget { voter, leader, candidate } if !self.is_calm => {
                let running = self.servers[candidate].running.as_ref();
                let is_electable = running.is_some_and(|it| it.votes.look(Member::leads) == Some(false));
                if is_electable { self.forget(voter, leader) } else { Ok(()) }
            }
            Event::CutOff(id) if !self.is_calm => {
                for other in 0..SERVERS {
                    self.network.block(id, other);
                    self.network.block(other, id);
                }
                Ok(())
            }
            Event::LoseDisk(id) if !self.is_calm => {
                self.lose_disk(id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has a server act, and carries out the decisions that its votes have made meanwhile.
    fn act(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut GroupWorld, NodeId) -> Result<(), Failure>,
    ) -> Result<(), String> {
        let now_us = self.now_us;
        self.servers[id].sync_clock(now_us);
        let outcome = act(self, id).and_then(|()| self.carry_out(id));
        // Messages that left before the machine stopped still arrive.
        let sent = self.post(id);
        let has_stopped = self.servers[id].disk.has_stopped();
        match outcome {
            _ if sent.is_err() => sent,
            Err(Failure::Breach(broken)) => Err(format!("server {id}: {broken}")),
            _ if has_stopped => {
                self.crash(id, CrashMode::Random);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Failure::Disk(_)) if self.servers[id].is_troubled => {
                self.crash(id, CrashMode::Random);
                Ok(())
            }
            Err(Failure::Disk(reason)) => Err(format!("server {id} stops: {reason}")),
        }
    }

    /// As [`GroupWorld::act`], for an act that may save the ballot. Now and then the machine stops in the
    /// middle of the save, the disk fails, or the power fails when the vote has just left.
    fn act_on_ballot(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut GroupWorld, NodeId) -> Result<(), Failure>,
    ) -> Result<(), String> {
        let is_tried = !self.is_calm && self.now_us > QUIET_US && !self.servers[id].is_troubled;
        let before = self.servers[id].ballot();
        let acted = self.try_on_ballot(id, is_tried, act);
        if is_tried && self.servers[id].ballot().is_some_and(|it| Some(it) != before) && self.prng.chance(3) {
            self.fail_power();
        }
        acted
    }

    fn try_on_ballot(
        &mut self,
        id: NodeId,
        is_tried: bool,
        act: impl FnOnce(&mut GroupWorld, NodeId) -> Result<(), Failure>,
    ) -> Result<(), String> {
        if self.has(GroupFault::SendsBeforeItHasSaved) {
            let (ballot, file) = (self.servers[id].ballot(), self.servers[id].ballot_file());
            let acted = self.act(id, act);
            if self.servers[id].ballot().is_some_and(|it| Some(it) != ballot)
                && is_tried
                && self.prng.chance(10)
            {
                self.crash(id, CrashMode::KeepAll);
                self.servers[id].restore_ballot_file(file);
            }
            return acted;
        }
        if !is_tried || !self.prng.chance(4) {
            return self.act(id, act);
        }
        let plan = self.plan_for_next(id, 7);
        let is_crash = plan.crash_at_io.is_some();
        let incarnation = self.servers[id].incarnation;
        self.servers[id].disk.set_fault_plan(plan);
        self.servers[id].is_troubled = true;
        let acted = self.act(id, act);
        let server = &mut self.servers[id];
        if server.running.is_none() && is_crash {
            self.figures.crashes_in_saves += 1;
        } else if server.running.is_some() && server.incarnation == incarnation {
            server.disk.set_fault_plan(FaultPlan::default());
            server.is_troubled = false;
            let is_unsaved = server.running.as_ref().is_some_and(|running| running.votes.is_unsaved());
            self.figures.failed_saves += u64::from(is_unsaved);
        }
        acted
    }

    fn start(&mut self, id: NodeId) -> Result<(), Failure> {
        let server = &mut self.servers[id];
        server.start(self.options.fault, &self.ballots)?;
        self.figures.starts += 1;
        let Some(running) = &server.running else { return Ok(()) };
        let (incarnation, own) = (server.incarnation, running.votes.id());
        server.paused_until_us = 0;
        self.ids.insert(own, id);
        if running.is_member {
            server.id = Some(own);
        }
        let (tick_us, work_us) = (self.prng.below(TICK_US), self.prng.below(5_000));
        self.at(tick_us, Event::Tick(id, incarnation));
        self.at(work_us, Event::Work(id, incarnation));
        Ok(())
    }

    /// A turn of the thread "group": reports durable batches, the passing of time, and the roster to the
    /// votes.
    fn group_turn(&mut self, id: NodeId, is_tick: bool) -> Result<(), Failure> {
        let Some(running) = &mut self.servers[id].running else { return Ok(()) };
        if !running.is_member {
            return if is_tick { self.join(id) } else { Ok(()) };
        }
        let votes = running.votes.clone();
        loop {
            match running.tail.read(READ_BYTES)? {
                CursorRead::Chunk(chunk) => {
                    let early = self.options.fault == Some(GroupFault::ReportsBeforeItIsDurable)
                        && matches!(running.part, Part::Following(_));
                    if !early {
                        votes.durable(&references(&chunk.batches()));
                    }
                }
                CursorRead::UpToDate => break,
                CursorRead::Forgotten(_) => return self.restart(id),
            }
        }
        if votes.is_unsaved() {
            return if is_tick && votes.store().is_ok() { self.restart(id) } else { Ok(()) };
        }
        let applied = running.applied();
        let keyspace = running.keyspace.clone();
        let is_tick_for_members = is_tick || votes.look(Member::awaits_members) == Some(true);
        let mut seen =
            running.known.look(&votes, || keyspace.data_settings_and_lsn(), || applied, is_tick_for_members);
        if let Some((members, at)) = seen.to_save {
            if votes.save_members(&members, at).is_err() {
                // Tried again at the next turn.
                return Ok(());
            }
            seen.configure = Some(running.known.put_in_force(members));
        }
        if let Some((members, up_to)) = seen.configure {
            votes.input(|member, _| member.configure(&members, up_to));
        }
        let Some(running) = &mut self.servers[id].running else { return Ok(()) };
        if running.known.has_removed(votes.id()) {
            // If the removal cannot be saved, the next start finds it again.
            let _ = votes.note_removal();
            return self.restart(id);
        }
        if is_tick {
            votes.input(Member::tick);
            running.ticks += 1;
            if running.ticks.is_multiple_of(2) {
                self.promote_learner(id)?;
            }
            self.step_hand_over(id)?;
        }
        Ok(())
    }

    /// A turn of the log thread.
    fn flush(&mut self, id: NodeId) -> Result<(), Failure> {
        let is_tried = !self.is_calm && !self.servers[id].is_troubled && self.now_us > QUIET_US;
        let plan = (is_tried && self.prng.below(150) == 0).then(|| self.plan_for_next(id, 4));
        let server = &mut self.servers[id];
        let Some(running) = &mut server.running else { return Ok(()) };
        running.is_flush_due = false;
        if let Some(plan) = plan {
            server.disk.set_fault_plan(plan);
        }
        let flushed = flush(&running.log);
        if plan.is_some() {
            let has_stopped = server.disk.has_stopped();
            self.figures.crashes_in_batches += u64::from(has_stopped);
            if !has_stopped {
                server.disk.set_fault_plan(FaultPlan::default());
                // A failed flush poisons the log: the process ends.
                server.is_troubled |= flushed.is_err();
            }
        }
        flushed?;
        let incarnation = server.incarnation;
        let delay_us = self.prng.below(1_500);
        self.at(delay_us, Event::Tail(id, incarnation));
        Ok(())
    }

    /// A turn of the thread "group-role": follows, leads, or restarts, as the votes say.
    fn take_role(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(running) = &mut self.servers[id].running else { return Ok(()) };
        let pending = std::mem::take(&mut running.leaderships);
        // Only the newest counts.
        let Some((&leadership, older)) = pending.split_last() else { return Ok(()) };
        let was_elected = older.iter().any(|it| matches!(it, Leadership::Leads { .. }));
        match leadership {
            Leadership::Leads { term } => self.promote(id, term),
            // The server is deposed: it has led, or was elected and lost that again before this turn. In the
            // second case the votes know of a first batch that was never written, so it has to restart.
            _ if was_elected || running.has_led => {
                running.standing.change(Path::new(MEMBER_DIR), |role| (role.depose(), false))?;
                if let Part::Leading(leading) = &mut running.part {
                    leading.waiting.clear();
                }
                if !was_elected && self.step_down(id)? {
                    let Leadership::Follows { term, leader } = leadership else { return Ok(()) };
                    let Some(&node) = self.ids.get(&leader) else { return Ok(()) };
                    return self.follow(id, Some(Link { leader, term }), node);
                }
                if !matches!(leadership, Leadership::Unknown { .. }) {
                    return self.restart(id);
                }
                let Some(running) = &mut self.servers[id].running else { return Ok(()) };
                // The server waits: after its restart it votes for nobody for a while, and its vote may be
                // needed.
                if !std::mem::replace(&mut running.is_deposed, true) {
                    let (delay_us, incarnation) =
                        (self.servers[id].real_us(ELECTION_US), self.servers[id].incarnation);
                    self.at(delay_us, Event::Restart(id, incarnation));
                }
                Ok(())
            }
            Leadership::Follows { term, leader } => {
                let Some(&node) = self.ids.get(&leader) else { return Ok(()) };
                self.follow(id, Some(Link { leader, term }), node)
            }
            Leadership::Unknown { .. } => Ok(()),
        }
    }

    /// Has a deposed leader follow with its present memory, if the group has committed all of it. Returns
    /// whether the leader follows; if not, it has to restart.
    fn step_down(&mut self, id: NodeId) -> Result<bool, Failure> {
        let keeps_all = self.has(GroupFault::KeepsItsMemory);
        let server = &mut self.servers[id];
        let now_ms = server.now_ms();
        let Some(running) = &mut server.running else { return Ok(false) };
        let end = running.log.appended_lsn();
        let is_committed = running.votes.look(|member| member.has_committed_all(end)) == Some(true);
        let Some(mirror) = running.mirror.as_mut().filter(|_| is_committed || keeps_all) else {
            return Ok(false);
        };
        if !mirror.resume(end)? || !running.votes.step_down() {
            return Ok(false);
        }
        running.standing.change(Path::new(MEMBER_DIR), |role| (role.step_down(), false))?;
        let Some(mirror) = running.mirror.take() else { return Ok(false) };
        let replayer = (running.keyspace.clone(), Chains::from(end));
        let following = Following::new((&running.log, mirror), replayer, now_ms, false);
        if let Part::Leading(leading) =
            std::mem::replace(&mut running.part, Part::Following(following.into()))
        {
            running.appenders = Some(leading.into_appenders());
        }
        (running.has_led, running.is_deposed) = (false, false);
        self.figures.kept_memories += 1;
        Ok(true)
    }

    fn follow(&mut self, id: NodeId, link: Option<Link>, leader: NodeId) -> Result<(), Failure> {
        let sent_ms = self.now_ms();
        let server = &mut self.servers[id];
        let now_ms = server.now_ms();
        let Some(running) = &mut server.running else { return Ok(()) };
        let address = Address { host: format!("server-{leader}"), port: 6379 };
        running.standing.change(Path::new(MEMBER_DIR), |role| {
            let follow = role.follow(address);
            ((), follow != replication::Follow::Already)
        })?;
        if let Part::Following(following) = &mut running.part {
            following.named = Some((link, leader));
            following.leave(&mut self.network, &mut server.prng, (now_ms, sent_ms));
        }
        Ok(())
    }

    /// Begins the epoch of a member that was elected. The promotion ends with [`GroupWorld::open`].
    fn promote(&mut self, id: NodeId, term: u64) -> Result<(), Failure> {
        self.figures.elections += 1;
        let has_begun = self.with_following(id, |following, around| following.promote(term, around));
        let Some(has_begun) = has_begun else { return self.restart(id) };
        if let Err(failure) = has_begun {
            // A later term may have begun meanwhile, which the log has noted.
            return match failure {
                Failure::Disk(reason) if reason.contains("has begun already") => self.restart(id),
                failure => Err(failure),
            };
        }
        let server = &mut self.servers[id];
        let Some(running) = &mut server.running else { return Ok(()) };
        // Until a batch of this term is committed, nothing is.
        running.log.set_acked(Lsn::ZERO);
        running.has_led = true;
        running.log.mark_epoch()?;
        if let Part::Following(following) = std::mem::replace(&mut running.part, Part::Promoted(term)) {
            running.mirror = Some(following.into_mirror());
        }
        let epoch = running.log.epoch();
        let is_newest = self.truth.epoch() <= epoch;
        let incarnation = server.incarnation;
        self.truth.leads(epoch, id, incarnation).map_err(Failure::Breach)?;
        if is_newest {
            holds(&running.log, &self.truth)?
                .map_err(|lost| Failure::Breach(format!("leads, but {lost}")))?;
        }
        let (open_us, tail_us) = (self.prng.below(20_000), self.prng.below(2_000));
        self.at(open_us, Event::Open(id, incarnation));
        self.at(tail_us, Event::Tail(id, incarnation));
        Ok(())
    }

    /// The end of a promotion: takes writes, unless another member leads by now.
    fn open(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(running) = &mut self.servers[id].running else { return Ok(()) };
        let Part::Promoted(term) = running.part else { return Ok(()) };
        let standing = &mut running.standing;
        let mut opened = Ok(());
        let has_opened = running
            .votes
            .open(term, || opened = standing.change(Path::new(MEMBER_DIR), |role| (role.open(), false)));
        opened?;
        if !has_opened {
            return self.restart(id);
        }
        running.part = Part::Leading(Leading::new(term, &running.log, running.appenders.take()));
        running.note_committed(Lsn::ZERO);
        self.found(id)
    }

    /// A turn of the threads that ship, receive and apply the log.
    fn work(&mut self, id: NodeId) -> Result<(), Failure> {
        let next = self.with_following(id, |following, around| following.step(around));
        match next.unwrap_or(Ok(Next::Stay))? {
            Next::Stay => {}
            Next::Cut(at) => {
                self.figures.cuts += 1;
                let at = if self.has(GroupFault::CutsCommitted) { self.too_early(id, at) } else { at };
                self.servers[id].diverged_at = Some(at);
                return self.restart(id);
            }
            Next::CopyAnew => {
                let Some(running) = &mut self.servers[id].running else { return Ok(()) };
                if let Part::Following(following) = &mut running.part {
                    following.copy_anew();
                }
            }
            Next::Copy(from) => self.begin_copy(id, from)?,
            Next::Copied => {
                self.figures.copies += 1;
                return self.restart(id);
            }
            Next::Restart => return self.restart(id),
        }
        self.look_at(id)?;
        let has_tick_ended = self.prng.chance(60);
        let sent_ms = self.now_ms();
        let server = &mut self.servers[id];
        let now_ms = server.now_ms();
        let Some(running) = &mut server.running else { return Ok(()) };
        let commit = running.commit();
        running.relays.step(&mut relays::Around {
            number: id,
            network: &mut self.network,
            log: &running.log,
            commit,
            now_ms,
            sent_ms,
            has_tick_ended,
        })
    }

    /// A batch boundary a few batches before `at`; `at` itself if there are too few.
    fn too_early(&self, id: NodeId, at: Lsn) -> Lsn {
        let Some(running) = &self.servers[id].running else { return at };
        let batches = running.log.last_batches(Lsn::ZERO, 1000).unwrap_or_default();
        let before = batches.iter().rev().filter(|batch| batch.end <= at).nth(3);
        before.map_or(at, |batch| batch.end)
    }

    /// Sometimes checks the data that a follower shows.
    fn look_at(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(running) = &self.servers[id].running else { return Ok(()) };
        if !running.shows_as_follower() || !self.prng.chance(20) {
            return Ok(());
        }
        self.figures.reads_at_followers += 1;
        let checked = self.truth.check(&running.keyspace, running.applied());
        checked.map_err(Failure::Breach)
    }

    /// Calls `act` if the server follows, or tries to.
    fn with_following<T>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut following::Following, &mut following::Around<'_>) -> T,
    ) -> Option<T> {
        let source = self.servers[id].running.as_ref().and_then(|running| match &running.part {
            Part::Following(following) => following.copies_from(),
            _ => None,
        });
        let has_source = source.is_some_and(|(from, incarnation)| {
            let server = &self.servers[from];
            server.incarnation == incarnation && server.running.is_some() && self.network.reaches(id, from)
        });
        let sent_ms = self.now_ms();
        let server = &mut self.servers[id];
        let now_ms = server.now_ms();
        let running = server.running.as_mut()?;
        let Part::Following(following) = &mut running.part else { return None };
        Some(act(
            following,
            &mut following::Around {
                number: id,
                log: &running.log,
                votes: &running.votes,
                standing: &mut running.standing,
                member_dir: Path::new(MEMBER_DIR),
                network: &mut self.network,
                disk: &server.disk,
                prng: &mut server.prng,
                now_ms,
                sent_ms,
                fault: self.options.fault,
                has_source,
            },
        ))
    }

    /// Begins a full copy from a leader, if it is reachable.
    fn begin_copy(&mut self, id: NodeId, from: NodeId) -> Result<(), Failure> {
        let is_up = self.servers[from].paused_until_us <= self.now_us && self.network.reaches(id, from);
        let source = &mut self.servers[from];
        let Some(running) = source.running.as_ref().filter(|it| is_up && matches!(it.part, Part::Leading(_)))
        else {
            return Ok(());
        };
        let planned = plan_copy(
            (&running.log, &running.keyspace, &running.dir),
            &source.disk,
            &self.truth,
            &mut source.prng,
        );
        // A failing disk of the leader ends the leader's process at its next write, not here.
        let Ok(Some(plan)) = planned else { return Ok(()) };
        let (disk, dir, incarnation) = (source.disk.clone(), running.dir.clone(), source.incarnation);
        let server = &mut self.servers[id];
        let (into, now_ms) = (server.new_home(), server.now_ms());
        if let Some(running) = &mut server.running
            && let Part::Following(following) = &mut running.part
        {
            following.copy(Copying::new((from, incarnation), plan, (disk, dir), into, now_ms));
        }
        Ok(())
    }

    /// Carries out the decisions of a server's votes, and their consequences.
    fn carry_out(&mut self, id: NodeId) -> Result<(), Failure> {
        let server = &mut self.servers[id];
        let incarnation = server.incarnation;
        let Some(running) = server.running.as_mut().filter(|_| !server.disk.has_stopped()) else {
            return Ok(());
        };
        let (committed, leaderships) = {
            let mut decided = running.decided.lock();
            (decided.committed.take(), std::mem::take(&mut decided.leaderships))
        };
        let has_news = !leaderships.is_empty();
        for leadership in leaderships {
            running.knows_leader = !matches!(leadership, Leadership::Unknown { .. });
            running.leaderships.push(leadership);
        }
        if let Some(committed) = committed {
            running.note_committed(committed);
        }
        // Committed log is judged once it is on the disk of this server.
        let known = running.votes.committed().min(running.log.shippable_lsn());
        running.witness.show(&running.log, known, &mut self.truth)?.map_err(Failure::Breach)?;
        server.committed = server.committed.max(known);
        let needs_flush = running.log.appended_lsn() > running.log.durable_lsn() && !running.is_flush_due;
        running.is_flush_due |= needs_flush;
        let is_slow = server.slow_until_us > self.now_us;
        self.note_counted(id, known);
        self.answer(id)?;
        if has_news {
            let delay_us = self.prng.below(15_000);
            self.at(delay_us, Event::Role(id, incarnation));
        }
        if needs_flush {
            let delay_us = match self.prng.below(60) {
                _ if is_slow => 20_000 + self.prng.below(300_000),
                0 => self.prng.below(60_000),
                _ => 300 + self.prng.below(2_500),
            };
            self.at(delay_us, Event::Flush(id, incarnation));
        }
        Ok(())
    }

    /// Notes that a leader counts on other members to have the log that the leader knows to be committed.
    fn note_counted(&mut self, id: NodeId, committed: Lsn) {
        let Some(running) = &self.servers[id].running else { return };
        // A member that does not lead has no progress of others.
        for progress in running.votes.look(Member::progress).unwrap_or_default() {
            let member = self.servers.iter_mut().find(|server| server.id == Some(progress.id));
            if let (Some(member), Some(durable)) = (member, progress.durable) {
                member.committed = member.committed.max(durable.min(committed));
            }
        }
    }

    /// Sends the replies of a leader that have a committed gate, while the leader has the lease.
    fn answer(&mut self, id: NodeId) -> Result<(), Failure> {
        let fault = self.options.fault;
        let Some(running) = &mut self.servers[id].running else { return Ok(()) };
        let Part::Leading(leading) = &mut running.part else { return Ok(()) };
        if leading.waiting.is_empty()
            || !running.votes.may_answer() && fault != Some(GroupFault::AnswersWithoutLease)
        {
            return Ok(());
        }
        let committed = match fault {
            Some(GroupFault::AnswersBeforeCommit) => running.log.shippable_lsn(),
            _ => running.log.committed_lsn(),
        };
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut leading.waiting).into_iter().partition(|reply| reply.gate() <= committed);
        leading.waiting = waiting;
        for reply in ready {
            match reply {
                Reply::Write { lsn, number } => {
                    self.truth.acknowledges(number).map_err(Failure::Breach)?;
                    self.acknowledged = self.acknowledged.max(lsn);
                }
                Reply::Read { gate, values, acknowledged } => {
                    self.figures.reads_at_leaders += 1;
                    self.check_read(gate, &values, acknowledged).map_err(Failure::Breach)?;
                }
            }
        }
        Ok(())
    }

    /// Checks a read at a leader. The read saw the state at `gate`, and must have seen all writes up to
    /// `acknowledged`.
    fn check_read(
        &self,
        gate: Lsn,
        values: &[(Vec<u8>, Option<Vec<u8>>)],
        acknowledged: Lsn,
    ) -> Result<(), String> {
        if gate > self.truth.end() {
            return Err(format!(
                "a read shows what was written at {gate}, committed is {}",
                self.truth.end()
            ));
        }
        let at = gate.max(acknowledged);
        for (key, value) in values {
            if value.as_deref() != self.truth.value_at(at, key) {
                let key = key.escape_ascii();
                return Err(format!(
                    "a read of {key} shows the state at {gate}, and {acknowledged} was acknowledged before"
                ));
            }
        }
        Ok(())
    }

    /// Sends the messages of a server.
    fn post(&mut self, id: NodeId) -> Result<(), String> {
        let Some(running) = &self.servers[id].running else { return Ok(()) };
        let messages = std::mem::take(&mut running.decided.lock().messages);
        let slow_us = self.servers[id].slow_until_us.saturating_sub(self.now_us).min(200_000);
        for message in messages {
            self.ballots.note(&message)?;
            let Some(&to) = self.ids.get(&message.to) else { continue };
            if self.network.is_blocked(id, to) || !self.is_calm && self.prng.chance(2) {
                continue;
            }
            let copies = if self.prng.chance(2) { 2 } else { 1 };
            for _ in 0..copies {
                let delay_us = match self.prng.below(100) {
                    0..3 if !self.is_calm => self.prng.below(2_000_000),
                    3..15 => self.prng.below(60_000),
                    _ => self.prng.below(4_000),
                };
                // A vote leaves only when the ballot is saved, which takes long on a slow disk.
                let is_ballot = matches!(message.kind, Kind::Vote | Kind::VoteAnswer);
                let saved_us = if is_ballot && slow_us > 0 { self.prng.below(slow_us) } else { 0 };
                self.messages.push(Some(message));
                let number = self.messages.len() - 1;
                self.at(delay_us + saved_us, Event::Deliver(number));
            }
        }
        Ok(())
    }

    /// Restarts the server within the process, after an orderly stop.
    fn restart(&mut self, id: NodeId) -> Result<(), Failure> {
        let now_ms = self.now_ms();
        self.post(id).map_err(Failure::Breach)?;
        let server = &mut self.servers[id];
        let Some(running) = server.running.take() else { return Ok(()) };
        self.network.crash(id, now_ms);
        running.votes.stop();
        running.log.close()?;
        let delay_us = 1_000 + self.prng.below(20_000);
        self.at(delay_us, Event::Start(id));
        Ok(())
    }

    /// The process or the machine stops, and starts again later.
    fn crash(&mut self, id: NodeId, mode: CrashMode) {
        let now_ms = self.now_ms();
        self.figures.crashes += 1;
        self.network.crash(id, now_ms);
        self.servers[id].crash(mode);
        let delay_us = match self.prng.below(3) {
            0 => self.prng.below(20_000),
            1 => self.prng.below(300_000),
            _ => self.prng.below(2_000_000),
        };
        self.at(delay_us, Event::Start(id));
    }

    /// Clients write and read at every server that may think that it leads.
    fn serve_clients(&mut self) -> Result<(), String> {
        for id in 0..SERVERS {
            let server = &self.servers[id];
            let leads = server.running.as_ref().is_some_and(|it| matches!(it.part, Part::Leading(_)));
            if !leads || server.paused_until_us > self.now_us {
                continue;
            }
            let (writes, reads) = (self.prng.chance(60), self.prng.chance(50));
            let writes = writes && self.now_us >= self.quiet_until_us;
            self.act(id, |world, id| {
                let server = &mut world.servers[id];
                let Some(running) = &mut server.running else { return Ok(()) };
                let takes_writes = running.takes_writes() && running.knows_leader;
                let Part::Leading(leading) = &mut running.part else { return Ok(()) };
                if reads && running.standing.role().unconfirmed() == Lsn::ZERO {
                    leading.read(&running.keyspace, world.acknowledged, &mut server.prng);
                }
                if writes && takes_writes {
                    world.writes += 1;
                    leading.write(&running.log, &running.keyspace, world.writes, &mut server.prng)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
