//! The group of this server: votes decide who leads, and the log is committed by a majority.
//!
//! ```text
//!                 Votes (the machine of `consensus`, its file)
//!                   ^        |  messages -> Peers -> other members
//!   durable batches |        |  committed -> gates of replies (storage)
//!   ticks, roster   |        '- leadership -> thread "group-role": follow | lead | restart
//!   thread "group" -'
//! ```
//!
//! This module has the threads of a member, and the commands of an operator.
//! The votes themselves are in `consensus`; the transport of the log is in `replication`, because members
//! follow their leader as replicas do.
//!
//! Invariants
//! - A member starts as a replica of nobody. Only an election makes it lead, and the term of the election is
//!   its epoch.
//! - A leader that is deposed takes no writes and shows nothing, until it has restarted within the process
//!   with an empty memory. If the group has committed all of its log, it steps down instead and keeps its
//!   memory.
//! - A server joins as a learner; the leader makes it a voter once it has caught up. One change at a time.

mod askers;
mod changing;
mod copies;
mod events;
mod handle;
mod inboxes;
mod joining;
mod peers;
mod room;
mod stall;
mod witness;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use consensus::{ELECTION_US, Leadership, Link, Member, MemberId, TERM_MAX, TICK_US};
use engine::replication::Address;
use env::Entropy;
use keyspace::Keyspace;
use membership::{Known, Listed, Reports, Roster, Started, Votes, references};
use parking_lot::Mutex;
use settings::{Key, Settings};
use storage::{CursorRead, Log, LogCursor};

pub(crate) use self::handle::GroupHandle;
use self::{
    askers::Askers,
    events::Announced,
    peers::{Peers, Refusal},
    room::Yielding,
};
use crate::{
    config::Config,
    mailbox::{Mailbox, WorkerOrder},
    replication::Node,
};

/// The name of the span from the loss of a leader to the next one.
const ELECTION: &str = "group.election";
/// The most bytes of the log in one read.
const READ_BYTES: usize = 1 << 20;
/// The period at which saving a vote is retried after it has failed.
const SAVE_PERIOD: Duration = Duration::from_millis(200);
/// The period at which a member that was ordered to campaign checks whether it may.
const APPLIED_PERIOD: Duration = Duration::from_millis(1);
/// How often the leader looks for learners that have caught up.
const PROMOTION_PERIOD_US: u64 = 2 * TICK_US;

/// The group of this server; see the module documentation.
pub(crate) struct Group {
    votes: Option<Arc<Votes>>,
    node: Arc<Node>,
    config: Arc<Config>,
    keyspace: Arc<Keyspace>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    peers: OnceLock<Arc<Peers>>,
    log: OnceLock<Log>,
    own: OnceLock<Listed>,
    /// The mailbox of the worker that publishes changes of the group.
    publisher: OnceLock<Mailbox>,
    known: Mutex<Known>,
    /// The position of a record of the roster: the newest one whose voters [`Group::known_voters`] has
    /// returned, or the one that was in the log at the start.
    known_to_majority: AtomicU64,
    /// The servers that ask to join.
    askers: Askers,
    /// Held while the roster is changed.
    changing: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Sends leaderships to the thread "group-role"; `None` ends the thread.
    roles: OnceLock<mpsc::Sender<Option<Leadership>>>,
    stopping: AtomicBool,
}

/// The state of the group as INFO and metrics show it.
pub(crate) struct GroupFigures {
    pub(crate) name: String,
    pub(crate) term: u64,
    pub(crate) leads: bool,
    pub(crate) knows_leader: bool,
    pub(crate) members: usize,
    pub(crate) voters: usize,
    pub(crate) elections_won: u64,
    pub(crate) refused: u64,
    pub(crate) outdated: u64,
    pub(crate) leaderless_us: u64,
    pub(crate) votes: Arc<Votes>,
}

/// The part that this server plays in its group, before the threads of the group begin.
pub(crate) enum Prepared {
    /// This server belongs to no group, or to no group any more.
    Nothing,
    /// This server asks to be added; or it only asks for the leader, because it has to copy everything anew.
    Joins,
    /// This server takes part in votes.
    Member {
        /// The leaderships that the votes decide.
        leaderships: mpsc::Receiver<Option<Leadership>>,
        /// The log after the last batch that the votes know.
        tail: LogCursor,
    },
}

/// The host name or address under which other members reach this server. `redis` has the addresses of its
/// doors for the Redis protocol, the preferred one first.
///
/// # Errors
/// `InvalidInput`, with a reason that names the setting: there is no such door, or no such address.
pub(crate) fn own_host(settings: &Settings, redis: &[SocketAddr]) -> io::Result<String> {
    let refused = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let Some(door) = redis.first() else {
        return Err(refused("a member of a group needs port or tls-port: the others connect to it"));
    };
    let given = settings.text(Key::GroupHost);
    if !given.is_empty() {
        return Ok(given.into());
    }
    let ip = door.ip().to_canonical();
    if ip.is_unspecified() {
        return Err(refused(
            "bind names no address under which the members of the group reach this server: set group-host",
        ));
    }
    Ok(ip.to_string())
}

impl Group {
    pub(crate) fn new(
        node: Arc<Node>,
        config: Arc<Config>,
        keyspace: Arc<Keyspace>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> Group {
        Group {
            votes: node.votes().cloned(),
            node,
            config,
            keyspace,
            entropy,
            peers: OnceLock::new(),
            log: OnceLock::new(),
            own: OnceLock::new(),
            publisher: OnceLock::new(),
            known: Mutex::default(),
            known_to_majority: AtomicU64::new(0),
            askers: Askers::default(),
            changing: Mutex::default(),
            threads: Mutex::default(),
            roles: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Makes the state machine of this member's votes. Called after recovery and before anything is received,
    /// because the votes must know all of the log.
    ///
    /// # Errors
    /// If this server cannot join the group, has no port or known address for the other members, cannot read
    /// the log, or cannot write `group.json`.
    pub(crate) fn prepare(
        &self,
        log: &Log,
        (redis, http_port): (&[SocketAddr], u16),
        mailboxes: &[Mailbox],
    ) -> io::Result<Prepared> {
        let Some(votes) = &self.votes else { return Ok(Prepared::Nothing) };
        let state = votes.state();
        if state.is_removed {
            self.node.follow_nobody();
            tracing::warn!(
                target: "group",
                "this server was removed from the group '{}' and refuses reads and writes. To join again, start it on an empty directory \
                 with --join; to lead its old data alone, start it with --group none", state.name
            );
            return Ok(Prepared::Nothing);
        }
        let host = own_host(&self.config.current(), redis)?;
        if !state.has_joined() {
            self.check_joiner(&state, log)?;
        }
        let own = Listed {
            id: state.member_id.clone(),
            host,
            port: redis.first().map_or(0, SocketAddr::port),
            http_port,
            is_voter: false,
            is_witness: votes.is_witness(),
        };
        let node = self.node.clone();
        let introduction = move || node.introduction();
        let peers = Arc::new(Peers::new(votes.clone(), &state.group_id, introduction));
        let _ = (self.own.set(own), self.log.set(log.clone()), self.peers.set(peers.clone()));
        self.recall_roster(votes, log);
        self.node.look_at_clock(log);
        let Some(mut known) = Known::start(votes, self.keyspace.data_settings(), log.appended_lsn()) else {
            votes.note_removal()?;
            return self.prepare(log, (redis, http_port), mailboxes);
        };
        if let Some(roster) = &known.roster {
            peers.follow(roster, !known.is_pending());
        }
        let tail = log.cursor(log.shippable_lsn());
        let started = membership::start(votes, &mut known, log, self.entropy.random_u64());
        self.known_to_majority.store(known.recorded_at().get(), SeqCst);
        *self.known.lock() = known;
        let member = match started.map_err(io::Error::other)? {
            Started::Member(member) => *member,
            Started::Joins => return Ok(Prepared::Joins),
            Started::CopiesAnew => {
                tracing::warn!(target: "group", "the log here does not tell its last batch: everything is copied from the leader");
                self.node.copy_anew();
                return Ok(Prepared::Joins);
            }
        };
        let (sender, leaderships) = mpsc::channel();
        let _ = self.roles.set(sender.clone());
        let (node, committing) = (self.node.clone(), self.node.clone());
        if let Some(first) = mailboxes.first() {
            let _ = self.publisher.set(first.clone());
        }
        let (waking, woken) = (mailboxes.to_vec(), log.clone());
        votes.begin(
            member,
            Reports {
                send: Box::new(move |messages| peers.send(messages)),
                committed: Box::new(move |committed| committing.note_committed(committed)),
                leadership: Box::new(move |leadership| {
                    node.note_leadership(leadership);
                    let _ = sender.send(Some(leadership));
                }),
                lease: Box::new(move || {
                    waking.iter().for_each(|mailbox| mailbox.send(WorkerOrder::LeaseRenewed))
                }),
                awaits_members: Box::new(move || woken.wake_cursors()),
            },
        );
        Ok(Prepared::Member { leaderships, tail })
    }

    /// Begins to take part, after the threads of a replica have begun.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub(crate) fn start(self: &Arc<Self>, prepared: Prepared) -> io::Result<()> {
        match prepared {
            Prepared::Nothing => Ok(()),
            Prepared::Joins => self.spawn("group-join", Self::join),
            Prepared::Member { leaderships, tail } => {
                // Other members may still look for this member at its former address, where messages do not
                // reach it.
                self.renew_listing();
                self.spawn("group-role", move |group| group.take_roles(&leaderships))?;
                self.spawn("group", move |group| group.run(tail))
            }
        }
    }

    /// Serves the member that sent GROUP PEER on a client's connection.
    pub(crate) fn serve_member(&self, socket: TcpStream, from: IpAddr, words: &[Vec<u8>]) {
        let Some(peers) = self.peers.get().filter(|_| !self.is_stopping()) else {
            return peers::put_off(socket);
        };
        match peers.check(words) {
            Ok(id) if self.has_removed(id) => peers.refuse((socket, from), &Refusal::removed(id)),
            Ok(id) => peers.serve(socket, id),
            Err(refusal) => peers.refuse((socket, from), &refusal),
        }
    }

    /// Ends this server's part in votes, before its log is closed. Blocks.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(votes) = &self.votes {
            votes.stop();
        }
        if let Some(peers) = self.peers.get() {
            peers.stop();
        }
        if let Some(log) = self.log.get() {
            log.wake_cursors();
        }
        if let Some(roles) = self.roles.get() {
            let _ = roles.send(None);
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }

    /// Whether this server keeps the log of its group and no data.
    pub(crate) fn is_witness(&self) -> bool {
        self.node.is_witness()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst) || self.node.is_restarting()
    }

    fn spawn(self: &Arc<Self>, name: &str, run: impl FnOnce(&Arc<Group>) + Send + 'static) -> io::Result<()> {
        let group = self.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&group))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The thread "group": reports durable batches, the passing of time, and the roster to the votes.
    fn run(self: &Arc<Self>, mut tail: LogCursor) {
        let Some(votes) = &self.votes else { return };
        let (mut tick_due_us, mut promotion_due_us) = (votes.now_us(), votes.now_us());
        let mut yielding = Yielding::default();
        let mut announced = Announced::default();
        while !self.is_stopping() {
            loop {
                match tail.read(READ_BYTES) {
                    Ok(CursorRead::Chunk(chunk)) => {
                        let batches = references(&chunk.batches());
                        votes.durable(&batches);
                    }
                    Ok(CursorRead::UpToDate) => break,
                    Ok(CursorRead::Forgotten(_)) | Err(_) => {
                        tracing::error!(target: "group", "the log cannot be read any more: this member restarts");
                        return self.node.request_restart();
                    }
                }
            }
            if votes.is_unsaved() {
                if votes.store().is_ok() {
                    tracing::info!(target: "group", "this member's vote is saved: it restarts within the process");
                    return self.node.request_restart();
                }
                thread::sleep(SAVE_PERIOD);
                continue;
            }
            let now_us = votes.now_us();
            let awaits_members = votes.look(Member::awaits_members) == Some(true);
            self.look_at_roster(votes, awaits_members || now_us >= tick_due_us);
            if self.is_removed(votes) {
                return self.end_membership(votes);
            }
            if now_us >= tick_due_us {
                // However late a tick is, it counts as one tick, because a lease must not end early.
                tick_due_us = now_us + TICK_US;
                let has_room = self.node.has_room();
                self.note_stall(votes);
                votes.input(|member, now_us| {
                    member.note_room(has_room);
                    member.tick(now_us);
                });
                if yielding.is_due(has_room, now_us) && self.begin_to_yield(votes) {
                    yielding.tried(now_us);
                }
                if has_room {
                    self.node.keep_reserve();
                }
                self.keep_log_alone(votes);
                self.close_removed();
                self.node.note_majority_awaited(votes.majority_awaited_us(), votes.uncommitted_batches());
                votes.note_leader(votes.leadership());
                self.announce(&mut announced);
            }
            if now_us >= promotion_due_us {
                promotion_due_us = now_us + PROMOTION_PERIOD_US;
                self.promote_learner(votes);
            }
            let until_tick = Duration::from_micros(tick_due_us.saturating_sub(votes.now_us()).max(1));
            tail.wait(if awaits_members { until_tick.min(APPLIED_PERIOD) } else { until_tick });
        }
    }

    /// Whether a member has sent a message within this time.
    fn has_heard(&self, votes: &Votes, id: MemberId, within_us: u64) -> bool {
        let heard = self.peers.get().and_then(|peers| peers.heard(id));
        heard.is_some_and(|heard| votes.now_us().saturating_sub(heard.at_us) < within_us)
    }

    /// Puts a new roster in force; see [`Known::look`].
    fn look_at_roster(&self, votes: &Votes, is_tick: bool) {
        let Some(log) = self.log.get() else { return };
        let (look_at_data, applied) = (|| self.keyspace.data_settings_and_lsn(), || self.node.applied(log));
        let mut seen = self.known.lock().look(votes, look_at_data, applied, is_tick);
        // No lock that clients need is held while the members are saved.
        if let Some((members, at)) = seen.to_save {
            match votes.save_members(&members, at) {
                Ok(()) => {
                    seen.is_news = true;
                    seen.configure = Some(self.known.lock().put_in_force(members));
                }
                Err(error) => {
                    tracing::error!(target: "group", %error, "cannot save the members of the group");
                }
            }
        }
        if seen.is_news {
            let known = self.known.lock();
            if let (Some(roster), Some(peers)) = (&known.roster, self.peers.get()) {
                peers.follow(roster, known.is_in_force());
            }
        }
        if let Some((members, up_to)) = seen.configure {
            votes.input(|member, _| member.configure(&members, up_to));
        }
    }

    /// Whether this server was removed from its group, according to its log or to the leader.
    fn is_removed(&self, votes: &Votes) -> bool {
        self.known.lock().has_removed(votes.id()) || self.peers.get().is_some_and(|peers| peers.is_removed())
    }

    /// Ends this server's part in its group, which has removed this server.
    fn end_membership(&self, votes: &Votes) {
        tracing::error!(target: "group", "this server was removed from its group (GROUP REMOVE): it restarts within the process, and takes no part any more");
        if let Err(error) = votes.note_removal() {
            tracing::error!(target: "group", %error, "cannot save that this server was removed");
        }
        self.node.request_restart();
    }

    /// The thread "group-role": follows, leads, or restarts, according to the votes.
    fn take_roles(self: &Arc<Self>, leaderships: &mpsc::Receiver<Option<Leadership>>) {
        let mut election = None;
        while let Ok(Some(mut leadership)) = leaderships.recv() {
            // Only the newest leadership counts.
            let mut was_elected = false;
            while let Ok(Some(newer)) = leaderships.try_recv() {
                was_elected |= matches!(leadership, Leadership::Leads { .. });
                leadership = newer;
            }
            if self.is_stopping() {
                return;
            }
            // From an election on, the votes know the first batch of its term, which is written only when
            // this thread leads. If the leadership was lost before that, the votes know a batch that the log
            // does not have, and only a restart corrects that. A server that has led restarts, too, unless it
            // can step down and keep its memory.
            let leads = matches!(leadership, Leadership::Leads { .. });
            let must_restart =
                !leads && (was_elected || (self.node.has_led() && !self.step_down(leadership.term())));
            match leadership {
                Leadership::Leads { term } => match self.node.lead_in_group(term) {
                    Ok(()) => {
                        tracing::info!(target: "group", term, "this server leads the group");
                        let election = election.take().unwrap_or_else(|| self.node.traces.job(ELECTION));
                        election.end(vec![("sheaf.term", term.into()), ("sheaf.leads", true.into())], None);
                        self.found();
                        self.hand_on();
                    }
                    Err(reason) => {
                        tracing::warn!(target: "group", term, reason, "this server was elected, but cannot lead: it restarts within the process");
                        return self.node.request_restart();
                    }
                },
                _ if must_restart => {
                    tracing::warn!(target: "group", term = leadership.term(), "this server leads the group no more: it restarts within the process");
                    self.node.depose();
                    if self.await_leader(leaderships, leadership) {
                        self.node.request_restart();
                    }
                    return;
                }
                Leadership::Follows { term, leader } => {
                    let address = self.address_of(leader);
                    tracing::info!(target: "group", term, %leader, address = address.as_ref().map(tracing::field::display), "a leader is known");
                    if let Some(election) = election.take() {
                        election.end(vec![("sheaf.term", term.into()), ("sheaf.leads", false.into())], None);
                    }
                    let link = Link { leader, term };
                    match address {
                        Some(address) => self.node.follow_in_group(Some(link), address),
                        None => self.find_leader(link),
                    }
                }
                Leadership::Unknown { term } if term >= TERM_MAX => tracing::error!(
                    target: "group", term,
                    "the group has had its last term, and no member can be elected any more: restore its data into a new directory (sheaf restore)"
                ),
                Leadership::Unknown { term } => {
                    tracing::info!(target: "group", term, "no leader is known");
                    election.get_or_insert_with(|| self.node.traces.job(ELECTION));
                }
            }
        }
    }

    /// Steps down after a deposition. The server keeps its memory if the group has committed all of its log.
    /// Returns false if the server must restart within the process instead.
    fn step_down(&self, term: u64) -> bool {
        let Some(votes) = &self.votes else { return false };
        self.node.depose();
        let until_us = votes.now_us() + ELECTION_US;
        let stepped_down = self.node.step_down(&|| self.is_stopping() || votes.now_us() >= until_us);
        match stepped_down {
            Ok(true) => {
                tracing::info!(target: "group", term, "this server leads the group no more, which has committed all that it has: it follows from now on");
                true
            }
            Ok(false) => false,
            Err(reason) => {
                tracing::error!(target: "group", term, reason, "this server cannot follow with the memory that it has");
                false
            }
        }
    }

    /// Takes part in votes until a leader is known, for one election timeout at most. The vote of this server
    /// may be needed, and after a restart the server usually gives none for that time. Returns false if the
    /// server stops meanwhile.
    fn await_leader(
        &self,
        leaderships: &mpsc::Receiver<Option<Leadership>>,
        mut leadership: Leadership,
    ) -> bool {
        let Some(votes) = &self.votes else { return false };
        let until_us = votes.now_us() + ELECTION_US;
        while let Leadership::Unknown { .. } = leadership {
            let left = Duration::from_micros(until_us.saturating_sub(votes.now_us()));
            leadership = match leaderships.recv_timeout(left) {
                Ok(Some(newer)) => newer,
                Ok(None) => return false,
                Err(_) => break,
            };
        }
        true
    }

    /// The figures of the group; `None` without one.
    pub(crate) fn figures(&self) -> Option<GroupFigures> {
        let votes = self.votes.as_ref()?;
        let leadership = votes.leadership();
        let roster = self.shown_roster(votes);
        Some(GroupFigures {
            name: votes.state().name.clone(),
            term: leadership.term(),
            leads: matches!(leadership, Leadership::Leads { .. }),
            knows_leader: !matches!(leadership, Leadership::Unknown { .. }),
            voters: self.known_voters(votes).len(),
            members: roster.members.len(),
            elections_won: votes.elections(),
            refused: self.peers.get().map_or(0, |peers| peers.refused()),
            outdated: self.peers.get().map_or(0, |peers| peers.outdated()),
            leaderless_us: votes.leaderless_us(),
            votes: votes.clone(),
        })
    }

    /// The roster for people. Before the data has a roster, the founder shows itself alone, and a joining
    /// server shows no members.
    fn shown_roster(&self, votes: &Votes) -> Roster {
        let recorded = self.known.lock().roster.clone();
        let founding = || {
            let own = self.own.get().filter(|_| votes.state().founded)?;
            Some(Roster { members: vec![Listed { is_voter: true, ..own.clone() }], ..Roster::default() })
        };
        recorded.or_else(founding).unwrap_or_default()
    }

    /// The address of the leader that this member knows.
    fn leader_address(&self) -> Option<Address> {
        match self.votes.as_ref()?.leadership() {
            Leadership::Follows { leader, .. } => self.address_of(leader),
            _ => None,
        }
    }

    fn address_of(&self, id: MemberId) -> Option<Address> {
        Some(self.known.lock().roster.as_ref()?.find(id)?.address())
    }
}
