//! A simulation of groups: members with disks, clocks and a network that fail, from one seed.
//!
//! ```text
//! events, in real time: ticks, deliveries, disk writes, pieces of the log, crashes, starts, partitions,
//! writes and reads of clients, changes of members, transfers
//! ```
//!
//! The log of a server is a list of batches. Each batch has a value that no other has, so equality of logs is
//! equality of values. A follower joins as the server's followers do: it compares its log with the leader's,
//! and cuts what the leader does not have, while it restarts.
//!
//! Checked at every step
//! - What one member knows to be committed is a prefix of, or the same as, what any other ever knew.
//! - A leader of a term is the only one, and has everything that was committed in earlier terms.
//! - A read that a lease allows sees every write that was acknowledged before it began.
//! - A member never goes back behind what it knew to be committed.
//!
//! In a third of the runs one server is a witness: it keeps the log and no data. It takes no writes and shows
//! nothing; it hands the lead on as soon as a voter with data has its log; and it forgets log that no voter
//! lacks, which is checked when a voter asks it for its log.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use prng::sweep::{rounds, seed_or};

use super::{member::Fault, *};

/// The length of a run, in real microseconds.
const RUN_US: u64 = 20_000_000;
const SERVERS: u64 = 5;
/// The server that is a witness, if there is one.
const WITNESS: u64 = 3;
/// A learner that lacks at most so many batches becomes a voter. So many are kept that everybody has.
const CAUGHT_UP: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    epoch: u32,
    value: u64,
    members: Option<Members>,
}

/// What a server keeps when it crashes.
#[derive(Debug, Default)]
struct Disk {
    log: Vec<Stored>,
    /// Batches before that were forgotten.
    start: usize,
    /// Batches that survive a power cut; the rest is being written.
    durable: usize,
    ballot: Ballot,
    /// A position that was known to be committed: that of a snapshot.
    committed: usize,
    /// The members that were last in force, and the position at which they were.
    in_force: Option<(usize, Members)>,
}

struct Running {
    member: Member,
    /// It was elected in this incarnation.
    was_elected: bool,
    /// It leads, and its epoch has begun.
    opened: Option<u64>,
    link: Option<(Link, usize)>,
    /// The batches that the memory has.
    applied: usize,
    committed: usize,
    /// The position of a change of members that is not committed yet.
    pending_change: Option<usize>,
}

struct Server {
    disk: Disk,
    running: Option<Running>,
    /// Its clock: an offset, and its speed in thousandths.
    clock: (u64, u64),
    incarnation: u64,
    paused_until_us: u64,
    delivered: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick { server: u64, incarnation: u64 },
    Deliver { number: usize },
    Flush { server: u64, incarnation: u64 },
    Promote { server: u64, incarnation: u64, term: u64 },
    Pull { server: u64, incarnation: u64 },
    Client,
    Operator,
    Trouble,
    Start { server: u64 },
    Lease { voter: u64, leader: u64, candidate: u64 },
}

/// A deliberate fault outside of the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Member(Fault),
    JoinsAnyLeader,
    BeginsAnEpochAtItsStart,
    ProposesWhatIsNotDurable,
    CutsCommitted,
    ForgetsItsMembers,
}

struct World {
    prng: prng::Prng,
    now_us: u64,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Event)>>,
    count: u64,
    servers: BTreeMap<u64, Server>,
    messages: Vec<Option<Message>>,
    /// Pairs (from, to) that do not hear each other.
    cut_off: BTreeSet<(u64, u64)>,
    is_calm: bool,
    /// Clients only read until then.
    quiet_until_us: u64,
    /// Everything that any member ever knew to be committed.
    committed: Vec<Stored>,
    leaders: BTreeMap<u64, u64>,
    next_value: u64,
    broken: Option<Break>,
    has_witness: bool,
    /// What was found, for runs with a deliberate break.
    found: Option<String>,
    figures: Figures,
}

#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    acknowledged: usize,
    ballots: usize,
    elections: usize,
    crashes: usize,
    cuts: usize,
    reads: usize,
    changes: usize,
    transfers: usize,
    witness_elections: usize,
    forgotten: usize,
}

fn id(number: u64) -> MemberId {
    MemberId::new(number).expect("not 0")
}

fn end_of(batches: usize) -> Lsn {
    Lsn::new(batches as u64 * 4096)
}

fn batches(log: &[Stored], from: usize) -> Vec<Batch> {
    let of = |(at, stored): (usize, &Stored)| Batch {
        number: at as u64,
        epoch: stored.epoch,
        end: end_of(at + 1),
    };
    log.iter().enumerate().skip(from).map(of).collect()
}

fn members_of(log: &[Stored]) -> Members {
    let newest = log.iter().rev().find_map(|stored| stored.members.clone());
    newest.unwrap_or(Members { voters: vec![id(1)], learners: Vec::new() })
}

/// The members before the newest change.
fn members_before(log: &[Stored]) -> Members {
    let newest = log.iter().rposition(|stored| stored.members.is_some()).unwrap_or(0);
    members_of(&log[..newest])
}

impl World {
    fn new(seed: u64, broken: Option<Break>) -> World {
        let mut prng = prng::Prng::new(seed);
        let mut world = World {
            now_us: 0,
            events: BinaryHeap::new(),
            count: 0,
            servers: BTreeMap::new(),
            messages: Vec::new(),
            cut_off: BTreeSet::new(),
            is_calm: false,
            quiet_until_us: 0,
            committed: Vec::new(),
            leaders: BTreeMap::new(),
            next_value: 1,
            broken,
            has_witness: seed.is_multiple_of(3),
            found: None,
            figures: Figures::default(),
            prng: prng.fork(),
        };
        for number in 1..=SERVERS {
            let clock = (prng.below(1 << 40), 960 + prng.below(81));
            let mut disk = Disk::default();
            if number <= 3 && seed.is_multiple_of(2) {
                // A group of three from the start, in half of the runs; else it grows from one.
                let all = Members { voters: (1..=3).map(id).collect(), learners: Vec::new() };
                disk.log = vec![Stored { epoch: 1, value: 0, members: Some(all) }];
                (disk.durable, disk.in_force) = (1, disk.log[0].members.clone().map(|members| (1, members)));
            }
            let server = Server {
                disk,
                running: None,
                clock,
                incarnation: 0,
                paused_until_us: 0,
                delivered: Vec::new(),
            };
            world.servers.insert(number, server);
            world.at(prng.below(100_000), Event::Start { server: number });
        }
        world.at(0, Event::Client);
        world.at(0, Event::Operator);
        world.at(2_000_000, Event::Trouble);
        world
    }

    fn at(&mut self, delay_us: u64, event: Event) {
        self.count += 1;
        self.events.push(std::cmp::Reverse((self.now_us + delay_us, self.count, event)));
    }

    fn local_us(&self, server: u64) -> u64 {
        let (offset, speed) = self.servers[&server].clock;
        offset + self.now_us * speed / 1000
    }

    fn violation(&mut self, text: String) {
        assert!(self.broken.is_some(), "at {} us: {text}", self.now_us);
        self.found.get_or_insert(text);
    }

    fn is_witness(&self, number: u64) -> bool {
        self.has_witness && number == WITNESS
    }

    fn is_broken(&self, by: Break) -> bool {
        self.broken == Some(by)
    }

    fn run(mut self) -> (Option<String>, Figures) {
        while let Some(std::cmp::Reverse((at_us, _, event))) = self.events.pop() {
            if at_us > RUN_US || self.found.is_some() {
                break;
            }
            self.now_us = at_us;
            if at_us > RUN_US * 3 / 4 && !self.is_calm {
                self.is_calm = true;
                self.cut_off.clear();
                for number in 1..=SERVERS {
                    self.at(100_000, Event::Start { server: number });
                }
            }
            self.handle(event);
        }
        if self.broken.is_none() {
            self.check_end();
        }
        (self.found, self.figures)
    }

    /// After a quarter of the run without trouble, somebody leads, and has committed everything.
    fn check_end(&self) {
        let leads = |(number, server): &(&u64, &Server)| {
            !self.is_witness(**number) && server.running.as_ref().is_some_and(|it| it.opened.is_some())
        };
        let leader = self.servers.iter().find(leads).map(|(_, server)| server);
        let leader = leader.unwrap_or_else(|| panic!("nobody leads at the end: {}", self.shown()));
        let running = leader.running.as_ref().expect("it runs");
        assert!(running.committed + 50 > leader.disk.log.len(), "the leader commits what it writes");
        assert!(running.member.lease_until_us() > 0, "the leader has a lease");
    }

    /// The servers, for the message of a failed run.
    fn shown(&self) -> String {
        let show = |(number, server): (&u64, &Server)| {
            let running = server.running.as_ref().map(|it| {
                let (member, link, committed) = (&it.member, it.link, it.committed);
                format!(
                    "{:?} {:?} link {link:?} committed {committed} {}",
                    member.leadership(),
                    member.members(),
                    member.shown()
                )
            });
            let last = server.disk.log.last().map(|stored| stored.epoch);
            format!(
                "\n{number}: log {} of {last:?}, {}",
                server.disk.log.len(),
                running.unwrap_or("down".into())
            )
        };
        self.servers.iter().map(show).collect()
    }

    fn is_current(&self, server: u64, incarnation: u64) -> bool {
        let server = &self.servers[&server];
        server.incarnation == incarnation && server.running.is_some()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start { server } => self.start(server),
            Event::Tick { server, incarnation } if self.is_current(server, incarnation) => {
                let paused_us = self.servers[&server].paused_until_us.saturating_sub(self.now_us);
                if paused_us > 0 {
                    return self.at(paused_us, Event::Tick { server, incarnation });
                }
                let delay_us = TICK_US * 1000 / self.servers[&server].clock.1 + self.prng.below(5_000);
                self.at(delay_us, Event::Tick { server, incarnation });
                let now_us = self.local_us(server);
                self.with(server, |member| member.tick(now_us));
                if self.prng.chance(5) {
                    // A connection was made.
                    self.with(server, |member| member.announce(now_us));
                }
                self.choose_link(server);
                if self.is_witness(server) {
                    self.act_as_witness(server);
                }
                let late = std::mem::take(&mut self.servers.get_mut(&server).expect("known").delivered);
                late.into_iter().for_each(|message| self.deliver(message));
            }
            Event::Deliver { number } => {
                if let Some(message) = self.messages[number].take() {
                    self.deliver(message);
                }
            }
            Event::Flush { server, incarnation } if self.is_current(server, incarnation) => {
                self.flush(server)
            }
            Event::Promote { server, incarnation, term } if self.is_current(server, incarnation) => {
                self.promote(server, term);
            }
            Event::Pull { server, incarnation } if self.is_current(server, incarnation) => self.pull(server),
            // The voter forgets that it has granted a lease, and hears of the leader no more.
            Event::Lease { voter, leader, candidate } if !self.is_calm => {
                let running = self.servers[&candidate].running.as_ref();
                if running.is_some_and(|running| !running.member.is_about_to_campaign()) {
                    return self.at(TICK_US / 2, Event::Lease { voter, leader, candidate });
                }
                self.cut_off.extend([(leader, voter), (voter, leader)]);
                self.crash(voter);
                self.start(voter);
            }
            Event::Client => {
                self.client();
                let delay_us = 5_000 + self.prng.below(40_000);
                self.at(delay_us, Event::Client);
            }
            Event::Operator => {
                self.operate();
                let delay_us = 200_000 + self.prng.below(1_500_000);
                self.at(delay_us, Event::Operator);
            }
            Event::Trouble if !self.is_calm => {
                self.trouble();
                let delay_us = 50_000 + self.prng.below(900_000);
                self.at(delay_us, Event::Trouble);
            }
            _ => {}
        }
    }

    fn start(&mut self, number: u64) {
        if self.servers[&number].running.is_some() {
            return;
        }
        let (now_us, seed, is_witness) =
            (self.local_us(number), self.prng.next_u64(), self.is_witness(number));
        let raises = self.is_broken(Break::BeginsAnEpochAtItsStart);
        let fault = self.broken.and_then(|it| if let Break::Member(fault) = it { Some(fault) } else { None });
        let server = self.servers.get_mut(&number).expect("known");
        server.incarnation += 1;
        server.paused_until_us = 0;
        server.delivered.clear();
        let disk = &mut server.disk;
        disk.log.truncate(disk.durable);
        disk.committed = disk.committed.min(disk.log.len());
        let in_log = members_of(&disk.log);
        // The newest change may not be committed; the one before it is, or it would not have been followed.
        let changes = disk.log.iter().enumerate().filter(|(_, stored)| stored.members.is_some());
        let before_newest = changes.map(|(at, _)| at + 1).rev().nth(1).unwrap_or(0);
        let in_force_at = disk.in_force.as_ref().map_or(0, |(at, _)| *at).min(disk.log.len());
        disk.committed = disk.committed.max(before_newest).max(in_force_at);
        let is_committed = disk.in_force.as_ref().is_none_or(|(_, members)| *members == in_log);
        let (known, members) = match is_committed {
            true => (disk.log.len(), in_log),
            false => (disk.committed, members_before(&disk.log)),
        };
        let all = batches(&disk.log, 0);
        let mut ballot = disk.ballot;
        if raises {
            ballot = Ballot { term: ballot.term + 1, voted_for: Some(id(number)) };
        }
        let mut member = Member::start(Start {
            id: id(number),
            is_witness,
            members,
            configured_up_to: end_of(known),
            ballot,
            committed: disk.committed.checked_sub(1).map(|at| all[at]),
            batches: &all[disk.committed..],
            now_us,
            seed,
        });
        member.fault = fault;
        let (applied, committed) = (disk.log.len(), disk.committed);
        server.running = Some(Running {
            member,
            was_elected: false,
            opened: None,
            link: None,
            applied,
            committed,
            pending_change: None,
        });
        let incarnation = server.incarnation;
        let delay_us = self.prng.below(TICK_US);
        self.at(delay_us, Event::Tick { server: number, incarnation });
        self.at(delay_us, Event::Flush { server: number, incarnation });
        if raises {
            self.promote(number, ballot.term);
        }
    }

    /// Gives the member an input, and acts on what it says.
    fn with(&mut self, number: u64, input: impl FnOnce(&mut Member)) {
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        input(&mut running.member);
        let actions = running.member.take_actions();
        if let Some(ballot) = actions.ballot {
            self.figures.ballots += 1;
            self.servers.get_mut(&number).expect("known").disk.ballot = ballot;
            // A crash between the saved ballot and the messages.
            if !self.is_calm && self.prng.below(200) == 0 {
                return self.crash(number);
            }
        }
        for message in actions.messages {
            self.send(message);
        }
        if let Some(end) = actions.committed {
            self.commit(number, (end.get() / 4096) as usize);
        }
        if let Some(leadership) = actions.leadership {
            self.lead_or_follow(number, leadership);
        }
    }

    fn send(&mut self, message: Message) {
        let (from, to) = (message.from.get(), message.to.get());
        if self.cut_off.contains(&(from, to)) || !self.is_calm && self.prng.chance(3) {
            return;
        }
        let copies = if self.prng.chance(3) { 2 } else { 1 };
        for _ in 0..copies {
            let delay_us = match self.prng.below(100) {
                0..3 if !self.is_calm => self.prng.below(3_000_000),
                3..20 => self.prng.below(60_000),
                _ => self.prng.below(5_000),
            };
            self.messages.push(Some(message));
            self.at(delay_us, Event::Deliver { number: self.messages.len() - 1 });
        }
    }

    fn deliver(&mut self, message: Message) {
        let to = message.to.get();
        let server = self.servers.get_mut(&to).expect("known");
        if server.running.is_none() {
            return;
        }
        if server.paused_until_us > self.now_us {
            server.delivered.push(message);
            return;
        }
        let now_us = self.local_us(to);
        self.with(to, |member| member.receive(&message, now_us));
    }

    fn commit(&mut self, number: u64, position: usize) {
        let server = &self.servers[&number];
        let log: Vec<Stored> = server.disk.log.get(..position).unwrap_or(&server.disk.log).to_vec();
        if log.len() < position {
            return self.violation(format!("{number} commits {position} of {}", log.len()));
        }
        let common = position.min(self.committed.len());
        if log[..common] != self.committed[..common] {
            return self.violation(format!("{number} commits another log, in the first {common} batches"));
        }
        if position > self.committed.len() {
            self.figures.acknowledged += position - self.committed.len();
            self.committed = log;
        }
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        running.committed = running.committed.max(position);
        running.applied = running.applied.max(position);
        if running.pending_change.is_some_and(|at| at < position) {
            running.pending_change = None;
        }
        // Members change here when the change is committed; they are saved before.
        let is_leader = running.opened.is_some();
        let members = members_of(&self.servers[&number].disk.log[..position]);
        if self.is_broken(Break::Member(Fault::CampaignsWithOldMembers)) && !is_leader {
            return;
        }
        if !self.is_broken(Break::ForgetsItsMembers) {
            let disk = &mut self.servers.get_mut(&number).expect("known").disk;
            if disk.in_force.as_ref().is_some_and(|(known, _)| *known > position) {
                // A start knows less of what is committed than the server knew before.
                return self.with(number, |member| {
                    let members = member.members().clone();
                    member.configure(&members, end_of(position));
                });
            }
            disk.in_force = Some((position, members.clone()));
        }
        self.with(number, |member| member.configure(&members, end_of(position)));
        let server = self.servers.get_mut(&number).expect("known");
        if self.prng.chance(5) && server.disk.durable >= position {
            server.disk.committed = server.disk.committed.max(position);
        }
    }

    fn lead_or_follow(&mut self, number: u64, leadership: Leadership) {
        let was_elected = self.servers[&number].running.as_ref().is_some_and(|running| running.was_elected);
        match leadership {
            Leadership::Leads { term } => {
                self.figures.elections += 1;
                self.figures.witness_elections += usize::from(self.is_witness(number));
                let incarnation = self.servers[&number].incarnation;
                if let Some(running) =
                    self.servers.get_mut(&number).and_then(|server| server.running.as_mut())
                {
                    (running.link, running.was_elected) = (None, true);
                }
                let delay_us = self.prng.below(50_000);
                self.at(delay_us, Event::Promote { server: number, incarnation, term });
            }
            // A leader that was deposed has an empty memory first, and votes that know of no batch but those
            // on disk.
            _ if was_elected => self.restart(number),
            _ => {
                if let Some(running) =
                    self.servers.get_mut(&number).and_then(|server| server.running.as_mut())
                {
                    running.link = None;
                }
            }
        }
    }

    /// Everything received is durable and applied; then the epoch begins.
    fn promote(&mut self, number: u64, term: u64) {
        let raises = self.is_broken(Break::BeginsAnEpochAtItsStart);
        let length = self.servers[&number].disk.log.len();
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        if running.member.leadership() != (Leadership::Leads { term }) && !raises {
            return;
        }
        running.opened = Some(term);
        running.applied = running.applied.max(length);
        if let Some(other) = self.leaders.insert(term, number)
            && other != number
        {
            self.violation(format!("{number} and {other} lead in term {term}"));
        }
        let log = &self.servers[&number].disk.log;
        let has_all = log.len() >= self.committed.len() && log[..self.committed.len()] == self.committed[..];
        // A later leader may have committed more.
        let is_newest = self.leaders.keys().all(|other| *other <= term);
        if !has_all && is_newest {
            self.violation(format!("{number} leads in term {term} without everything that is committed"));
        }
        self.append(number, None);
    }

    fn append(&mut self, number: u64, members: Option<Members>) {
        let value = self.next_value;
        self.next_value += 1;
        let early = self.is_broken(Break::ProposesWhatIsNotDurable);
        let server = self.servers.get_mut(&number).expect("known");
        let Some(term) = server.running.as_ref().and_then(|running| running.opened) else { return };
        server.disk.log.push(Stored { epoch: term as u32, value, members });
        if let Some(running) = &mut server.running {
            running.applied = server.disk.log.len();
        }
        if early {
            let (now_us, last) = (self.local_us(number), self.servers[&number].disk.log.len() - 1);
            let batch = batches(&self.servers[&number].disk.log, last);
            self.with(number, |member| member.durable(&batch, now_us));
        }
    }

    /// What was written so far becomes durable.
    fn flush(&mut self, number: u64) {
        let incarnation = self.servers[&number].incarnation;
        let delay_us = match self.prng.below(50) {
            0 => 300_000,
            1..10 => 30_000,
            _ => 3_000,
        };
        let delay_us = self.prng.below(delay_us).max(500);
        self.at(delay_us, Event::Flush { server: number, incarnation });
        let server = self.servers.get_mut(&number).expect("known");
        if server.paused_until_us > self.now_us || server.disk.durable == server.disk.log.len() {
            return;
        }
        let from = server.disk.durable;
        server.disk.durable = server.disk.log.len();
        let written = batches(&server.disk.log, from);
        let now_us = self.local_us(number);
        if !self.is_broken(Break::ProposesWhatIsNotDurable)
            || self.servers[&number].running.as_ref().is_some_and(|it| it.opened.is_none())
        {
            self.with(number, |member| member.durable(&written, now_us));
        }
    }

    /// A follower without a connection joins the leader that it knows.
    fn choose_link(&mut self, number: u64) {
        let Some(running) = self.servers[&number].running.as_ref() else { return };
        if running.link.is_some() || running.opened.is_some() || !self.prng.chance(60) {
            return;
        }
        let target = match running.member.leadership() {
            Leadership::Follows { term, leader } => Some((term, leader.get())),
            // A server that is no member yet follows whom the operator names.
            Leadership::Unknown { term } if running.member.members().voters == [id(1)] && number != 1 => {
                Some((term, 1))
            }
            _ => None,
        };
        let old = |world: &World| {
            let open = |(&other, server): (&u64, &Server)| Some((server.running.as_ref()?.opened?, other));
            world.servers.iter().filter_map(open).find(|(_, other)| *other != number)
        };
        let target = if self.is_broken(Break::JoinsAnyLeader) { old(self).or(target) } else { target };
        let Some((term, leader)) = target else { return };
        let is_open = self.servers[&leader].running.as_ref().is_some_and(|running| {
            running.opened == Some(term)
                || running.opened.is_some()
                    && !matches!(
                        self.servers[&number].running.as_ref().map(|it| it.member.leadership()),
                        Some(Leadership::Follows { .. })
                    )
        });
        if !is_open || self.cut_off.contains(&(leader, number)) || self.cut_off.contains(&(number, leader)) {
            return;
        }
        let (own, theirs) = (&self.servers[&number].disk, &self.servers[&leader].disk);
        if own.log.len() < theirs.start {
            let is_voter = |it: &Running| it.member.members().voters.contains(&id(number));
            if self.servers[&leader].running.as_ref().is_some_and(is_voter) {
                self.violation(format!("{leader} has forgotten log that the voter {number} lacks"));
            }
            return;
        }
        // Only what is durable on both sides is compared.
        if own.durable < own.log.len() {
            return;
        }
        let same = own.log.iter().zip(&theirs.log[..theirs.durable]).take_while(|(a, b)| a == b).count();
        if same < own.log.len() {
            self.figures.cuts += 1;
            let committed = self.servers[&number].running.as_ref().map_or(0, |running| running.committed);
            let same = if self.is_broken(Break::CutsCommitted) { same / 2 } else { same };
            if same < committed && !self.is_broken(Break::CutsCommitted) {
                return self
                    .violation(format!("{number} would cut at {same} what is committed up to {committed}"));
            }
            let server = self.servers.get_mut(&number).expect("known");
            server.disk.log.truncate(same);
            (server.disk.durable, server.disk.committed) = (same, server.disk.committed.min(same));
            return self.restart(number);
        }
        let position = own.log.len();
        let incarnation = self.servers[&number].incarnation;
        if let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) {
            running.link = Some((Link { leader: id(leader), term }, position));
        }
        // The logs are equal: a member says so, although nothing may be written for a while.
        let (link, now_us) = (Link { leader: id(leader), term }, self.local_us(number));
        self.with(number, |member| _ = member.accept(link, &[], Lsn::ZERO, now_us));
        self.at(1_000, Event::Pull { server: number, incarnation });
    }

    /// The next piece of the leader's log arrives.
    fn pull(&mut self, number: u64) {
        let Some((link, position)) = self.servers[&number].running.as_ref().and_then(|running| running.link)
        else {
            return;
        };
        let leader = link.leader.get();
        let incarnation = self.servers[&number].incarnation;
        let is_cut_off = self.cut_off.contains(&(leader, number));
        let serves = self.servers[&leader].running.as_ref().is_some_and(|running| {
            running.opened == Some(link.term)
                || !matches!(
                    self.servers[&number].running.as_ref().map(|it| it.member.leadership()),
                    Some(Leadership::Follows { .. })
                )
        });
        let paused = self.servers[&number].paused_until_us > self.now_us;
        let delay_us = if self.prng.chance(5) && !self.is_calm { 200_000 } else { 8_000 };
        let delay_us = 500 + self.prng.below(delay_us);
        if is_cut_off || !serves || self.prng.below(300) == 0 {
            if let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) {
                running.link = None;
            }
            return;
        }
        self.at(delay_us, Event::Pull { server: number, incarnation });
        if paused {
            return;
        }
        let most = position + 1 + self.prng.below(20) as usize;
        let source = &self.servers[&leader];
        let until = source.disk.durable.min(most);
        if until <= position || source.disk.log.len() < until {
            return;
        }
        let commit = end_of(source.running.as_ref().map_or(0, |running| running.committed));
        let piece = source.disk.log[position..until].to_vec();
        let mut offered = batches(&source.disk.log[..until], position);
        let now_us = self.local_us(number);
        let is_member = {
            let running = self.servers[&number].running.as_ref().expect("it runs");
            matches!(running.member.leadership(), Leadership::Follows { .. })
        };
        let mut accepted = true;
        if is_member || !self.servers[&number].disk.log.is_empty() && self.knows_itself(number) {
            self.with(number, |member| accepted = member.accept(link, &offered, commit, now_us).is_ok());
        } else {
            // It copies everything as a replica, before it is a member, and starts with that.
            let server = self.servers.get_mut(&number).expect("known");
            server.disk.log.extend(piece);
            server.disk.durable = server.disk.log.len();
            return self.restart(number);
        }
        offered.clear();
        let Some(server) = self.servers.get_mut(&number).filter(|server| server.running.is_some()) else {
            return;
        };
        if accepted && server.incarnation == incarnation {
            server.disk.log.extend(piece);
        }
        if let Some(running) = &mut server.running {
            running.link = accepted.then_some((link, server.disk.log.len()));
        }
    }

    /// A witness forgets log that all have, and hands the lead on.
    fn act_as_witness(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        let Some(running) = &server.running else { return };
        if let Some(held) = running.member.held_by_all() {
            let kept_from = ((held.get() / 4096) as usize).saturating_sub(CAUGHT_UP);
            self.figures.forgotten += kept_from.saturating_sub(server.disk.start);
            server.disk.start = server.disk.start.max(kept_from);
        }
        if running.opened.is_none() || !running.member.has_committed() || running.member.is_transferring() {
            return;
        }
        let end = end_of(server.disk.log.len());
        let voters = &running.member.members().voters;
        let has_all = |it: &Progress| voters.contains(&it.id) && it.durable >= Some(end);
        if let Some(to) = running.member.progress().into_iter().find(has_all) {
            let now_us = self.local_us(number);
            self.with(number, |member| _ = member.transfer(to.id, now_us));
        }
    }

    fn knows_itself(&self, number: u64) -> bool {
        let members = members_of(&self.servers[&number].disk.log);
        members.voters.contains(&id(number)) || members.learners.contains(&id(number))
    }

    fn client(&mut self) {
        let open: Vec<u64> = self
            .servers
            .iter()
            .filter(|(number, server)| {
                !self.is_witness(**number)
                    && server.paused_until_us <= self.now_us
                    && server.running.as_ref().is_some_and(|running| running.opened.is_some())
            })
            .map(|(&number, _)| number)
            .collect();
        for number in open {
            let now_us = self.local_us(number);
            let running = self.servers[&number].running.as_ref().expect("it runs");
            if running.member.lease_until_us() > now_us {
                self.figures.reads += 1;
                let log = &self.servers[&number].disk.log;
                if log.len() < self.committed.len() || log[..self.committed.len()] != self.committed[..] {
                    let text = format!("a read on {number} misses acknowledged writes, within its lease");
                    self.violation(text);
                    return;
                }
            }
            // A hand-over has ended writes; whether reads may go on is for the member to say.
            let is_writable = !running.member.is_transferring();
            if is_writable && self.prng.chance(70) && self.now_us >= self.quiet_until_us {
                self.append(number, None);
            }
        }
    }

    /// An operator changes the members, or transfers the lead.
    fn operate(&mut self) {
        let leads = |running: &Running| running.opened.is_some() && running.member.has_committed();
        let leader = self
            .servers
            .iter()
            .find(|(_, server)| server.running.as_ref().is_some_and(leads))
            .map(|(&number, _)| number);
        let Some(number) = leader.filter(|&number| !self.is_witness(number)) else { return };
        let now_us = self.local_us(number);
        if self.prng.chance(60) && !self.is_calm {
            let to = id(1 + self.prng.below(SERVERS));
            if self.is_witness(to.get()) {
                return;
            }
            self.figures.transfers += 1;
            self.with(number, |member| _ = member.transfer(to, now_us));
            if self.prng.chance(30) {
                // What was sent arrives, but the leader hears nothing of the election.
                for other in 1..=SERVERS {
                    self.cut_off.extend([(number, other), (other, number)]);
                }
            }
            return;
        }
        let running = self.servers[&number].running.as_ref().expect("it runs");
        if running.pending_change.is_some() || running.member.is_transferring() {
            return;
        }
        // One at a time: the one before is committed and in force.
        let mut members = members_of(&self.servers[&number].disk.log);
        if members != *running.member.members() {
            return;
        }
        let progress = running.member.progress();
        let caught_up = |one: &MemberId| {
            let durable = progress.iter().find(|it| it.id == *one).and_then(|it| it.durable);
            durable.is_some_and(|durable| {
                durable.get() + CAUGHT_UP as u64 * 4096 > self.servers[&number].disk.log.len() as u64 * 4096
            })
        };
        if let Some(at) = members.learners.iter().position(caught_up) {
            let learner = members.learners.remove(at);
            members.voters.push(learner);
        } else {
            let one = id(1 + self.prng.below(SERVERS));
            if members.voters.contains(&one)
                && members.voters.len() > 1
                && one != id(number)
                && self.prng.chance(40)
            {
                members.voters.retain(|it| *it != one);
            } else if !members.voters.contains(&one) && !members.learners.contains(&one) {
                members.learners.push(one);
            } else {
                return;
            }
        }
        self.figures.changes += 1;
        let at = self.servers[&number].disk.log.len();
        self.servers.get_mut(&number).expect("known").running.as_mut().expect("it runs").pending_change =
            Some(at);
        self.append(number, Some(members));
    }

    fn trouble(&mut self) {
        let one = 1 + self.prng.below(SERVERS);
        let leader = self
            .servers
            .iter()
            .find(|(_, server)| server.running.as_ref().is_some_and(|it| it.opened.is_some()));
        let one = leader.map(|(&number, _)| number).filter(|_| self.prng.chance(40)).unwrap_or(one);
        match self.prng.below(9) {
            0 | 1 => self.crash(one),
            // One voter has not heard of the leader for an election timeout when another one restarts.
            7 => {
                let Some((one, candidate, voter)) = self.leader_and_voters() else { return };
                self.cut_off.clear();
                self.cut_off.extend([(one, candidate), (candidate, one)]);
                // Without writes the voter that hears nothing stays electable.
                self.quiet_until_us = self.now_us + 5 * ELECTION_US;
                let delay_us = ELECTION_US + self.prng.below(3 * ELECTION_US);
                self.at(delay_us, Event::Lease { voter, leader: one, candidate });
            }
            2 => {
                let pause_us = self.prng.below(3_000_000);
                self.servers.get_mut(&one).expect("known").paused_until_us = self.now_us + pause_us;
            }
            3 => {
                for other in 1..=SERVERS {
                    self.cut_off.extend([(one, other), (other, one)]);
                }
            }
            4 => {
                for other in 1..=SERVERS {
                    self.cut_off.insert(if self.prng.chance(50) { (one, other) } else { (other, one) });
                }
            }
            5 => {
                let other = 1 + self.prng.below(SERVERS);
                self.cut_off.insert((one, other));
            }
            _ => self.cut_off.clear(),
        }
    }

    /// A leader, and two other voters of its group.
    fn leader_and_voters(&mut self) -> Option<(u64, u64, u64)> {
        let open = |(&number, server): (&u64, &Server)| {
            let running = server.running.as_ref().filter(|running| running.opened.is_some())?;
            let voters = running.member.members().voters.iter().map(|id| id.get());
            Some((number, voters.filter(|&voter| voter != number).collect::<Vec<u64>>()))
        };
        let (leader, voters) = self.servers.iter().find_map(open).filter(|(_, voters)| voters.len() > 1)?;
        let first = self.prng.index(voters.len());
        Some((leader, voters[first], voters[(first + 1) % voters.len()]))
    }

    fn crash(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        if server.running.take().is_none() {
            return;
        }
        self.figures.crashes += 1;
        if self.prng.chance(30) {
            // The machine was started again, and its clock begins anew.
            server.clock.0 = self.prng.below(1 << 40);
        }
        // Of what was being written, some may be on the disk.
        let written = server.disk.log.len() - server.disk.durable;
        let kept = self.prng.below(written as u64 + 1) as usize;
        server.disk.durable += kept;
        let delay_us = match self.prng.below(3) {
            0 => self.prng.below(20_000),
            _ => self.prng.below(2_000_000),
        };
        self.at(delay_us, Event::Start { server: number });
    }

    /// A restart in order, within the process.
    fn restart(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        server.running = None;
        server.disk.durable = server.disk.log.len();
        let delay_us = self.prng.below(30_000);
        self.at(delay_us, Event::Start { server: number });
    }
}

#[test]
fn no_committed_batch_is_lost_and_no_read_is_stale() {
    let (mut total, mut seeds) = (Figures::default(), 0);
    let first_seed = seed_or(0);
    for seed in rounds(2_000).map(|round| first_seed + round) {
        seeds += 1;
        let outcome = std::panic::catch_unwind(|| World::new(seed, None).run());
        let (_, figures) =
            outcome.unwrap_or_else(|_| panic!("seed {seed}: SHEAF_SIM_SEED={seed} repeats it"));
        total.acknowledged += figures.acknowledged;
        total.elections += figures.elections;
        total.ballots += figures.ballots;
        total.crashes += figures.crashes;
        total.cuts += figures.cuts;
        total.reads += figures.reads;
        total.changes += figures.changes;
        total.transfers += figures.transfers;
        total.witness_elections += figures.witness_elections;
        total.forgotten += figures.forgotten;
    }
    println!("{seeds} seeds: {total:?}");
    assert!(total.ballots < total.acknowledged / 2, "ballots are saved when they change: {total:?}");
    // Otherwise hardly anything was tested.
    let rare = [total.cuts, total.transfers, total.changes];
    assert!(rare.iter().all(|&count| count > seeds / 20), "{total:?}");
    assert!(total.reads > 5 * seeds && total.forgotten > 5 * seeds, "{total:?}");
    assert!(seeds < 1_000 || total.witness_elections > seeds / 40, "{total:?}");
}

/// The number of runs after which a deliberate break is found.
fn found_after(broken: Break) -> Option<u64> {
    (0..2_000).find(|&seed| {
        std::panic::catch_unwind(|| World::new(seed, Some(broken)).run().0.is_some()).unwrap_or(true)
    })
}

#[test]
fn every_deliberate_break_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let breaks = [
        Break::Member(Fault::AcknowledgesBeforeItIsDurable),
        Break::Member(Fault::VotesAtOnceAfterAStart),
        Break::Member(Fault::LeaseDuringTransfer),
        Break::Member(Fault::ForgetsItsVote),
        Break::Member(Fault::CampaignsWithOldMembers),
        Break::Member(Fault::ForgetsWhatAnotherLacks),
        Break::JoinsAnyLeader,
        Break::BeginsAnEpochAtItsStart,
        Break::ProposesWhatIsNotDurable,
        Break::CutsCommitted,
    ];
    let found = breaks.map(|broken| (broken, found_after(broken)));
    std::panic::set_hook(hook);
    for (broken, after) in found {
        println!("{broken:?}: after {after:?} runs");
        assert!(after.is_some(), "{broken:?} was not found");
    }
}
