//! One server of a simulated group: its disk, its clock, and its process while it is up.
//!
//! ```text
//! Down --start--> Following --elected--> Promoted --votes.open--> Leading
//!   ^                ^-------- deposed, and all that it has is committed ---------|
//!   |                '------- deposed, cut, copied: restarts within the process ---'
//!   '-- crash of the process or the machine
//! ```
//!
//! The parts are those of the product: storage, recovery, `membership` with `consensus`, and the machines of
//! `replication`. Only the disk, threads, sockets, time and randomness are simulated.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use consensus::{Ballot, Leadership, MemberId, Message};
use env::{Clock, Disk, Prng, SimClock, SimDisk, SimEntropy, sim::CrashMode, sim::SimDiskOptions};
use keyspace::{Keyspace, Options};
use lsn::Lsn;
use membership::{Known, Reports, Started, Votes, start};
use parking_lot::Mutex;
use recovery::{
    group_state::{GROUP_FILE, GroupState, Membership, Wanted},
    in_flight::InFlight,
    progress::LoadProgress,
    recover::{Mode, Source, load},
};
use storage::{Appender, Control, Cut, Durability, LogCursor, LogOptions, Mirror, cut_log};

use super::{
    ballots::Ballots, following::Following, leading::Leading, options::GroupFault, relays::Relays,
    standing::Standing,
};
use crate::cluster::{network::NodeId, node::Failure, truth::Witness};

/// The directory of `group.json` and `replication.json`. It is outside the data directory, which a full copy
/// replaces.
pub(super) const MEMBER_DIR: &str = "/member";
/// The name of the group.
const NAME: &str = "simulated";

/// The decisions of the votes that the world has not carried out yet.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) messages: Vec<Message>,
    pub(super) committed: Option<Lsn>,
    pub(super) leaderships: Vec<Leadership>,
}

/// The present activity of a server.
pub(super) enum Part {
    Following(Box<Following>),
    /// The server was elected in this term, and its epoch has begun; it takes no writes yet.
    Promoted(u64),
    Leading(Leading),
}

/// A server that is up.
pub(super) struct Running {
    pub(super) dir: PathBuf,
    pub(super) log: storage::Log,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) votes: Arc<Votes>,
    pub(super) known: Known,
    /// Whether the server is a member; otherwise it asks to join.
    pub(super) is_member: bool,
    pub(super) decided: Arc<Mutex<Decided>>,
    /// Reads the log, to tell the votes which batches are durable.
    pub(super) tail: LogCursor,
    pub(super) standing: Standing,
    pub(super) relays: Relays,
    pub(super) part: Part,
    /// The mirror, while the server is promoted or leads.
    pub(super) mirror: Option<Mirror>,
    /// The appenders with which the server has led, while it does not lead.
    pub(super) appenders: Option<[Appender; 2]>,
    pub(super) has_led: bool,
    /// Whether the server was deposed, and will restart once a leader is known, or after a while.
    pub(super) is_deposed: bool,
    pub(super) knows_leader: bool,
    /// Leaderships that the thread "group-role" has not seen yet.
    pub(super) leaderships: Vec<Leadership>,
    pub(super) witness: Witness,
    pub(super) is_flush_due: bool,
    pub(super) ticks: u64,
}

pub(super) struct Server {
    pub(super) number: NodeId,
    pub(super) disk: Arc<SimDisk>,
    pub(super) clock: Arc<SimClock>,
    /// The speed of its clock, in thousandths of real time.
    speed: u64,
    /// The real time up to which the clock has gone on.
    synced_us: u64,
    /// The number of starts so far.
    pub(super) incarnation: u64,
    pub(super) running: Option<Running>,
    pub(super) paused_until_us: u64,
    /// The time until which its disk is slow.
    pub(super) slow_until_us: u64,
    /// Whether a fault of its disk is injected: failures are then expected.
    pub(super) is_troubled: bool,
    /// The position at which the log is cut at the next start within the process.
    pub(super) diverged_at: Option<Lsn>,
    pub(super) copies_anew: bool,
    pub(super) is_removed: bool,
    /// Whether the server founds the group; the others join it.
    founds: bool,
    /// The id of the server, once other servers know it.
    pub(super) id: Option<MemberId>,
    /// Everything before this position is committed and was on this server's disk: the server knew that, or a
    /// leader has counted on it.
    pub(super) committed: Lsn,
    /// An earlier copy of its disk.
    pub(super) older_disk: Option<Arc<SimDisk>>,
    home: u64,
    pub(super) prng: Prng,
}

impl Server {
    pub(super) fn new(number: NodeId, prng: &mut Prng) -> Server {
        let mut prng = prng.fork();
        Server {
            number,
            disk: SimDisk::new(SimDiskOptions { seed: prng.next_u64(), ..SimDiskOptions::default() }),
            clock: new_clock(&mut prng),
            speed: 960 + prng.below(81),
            synced_us: 0,
            incarnation: 0,
            running: None,
            paused_until_us: 0,
            slow_until_us: 0,
            is_troubled: false,
            diverged_at: None,
            copies_anew: false,
            is_removed: false,
            founds: number == 0,
            id: None,
            committed: Lsn::ZERO,
            older_disk: None,
            home: 0,
            prng,
        }
    }

    /// Lets its clock go on until this real time.
    pub(super) fn sync_clock(&mut self, now_us: u64) {
        self.clock.advance_us((now_us - self.synced_us) * self.speed / 1000);
        self.synced_us = now_us;
    }

    pub(super) fn now_us(&self) -> u64 {
        self.clock.boot_us()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.monotonic_us() / 1000
    }

    /// The real microseconds in which its clock goes on by `own_us`.
    pub(super) fn real_us(&self, own_us: u64) -> u64 {
        own_us * 1000 / self.speed
    }

    fn dir(home: u64) -> PathBuf {
        format!("/data-{home}").into()
    }

    /// A directory that was never used.
    pub(super) fn new_home(&mut self) -> PathBuf {
        self.home += 1;
        Server::dir(self.home)
    }

    /// The newest complete directory; the first one if none is complete.
    fn home(&self) -> PathBuf {
        let is_whole = |home: &u64| matches!(Control::load(&*self.disk, &Server::dir(*home)), Ok(Some(_)));
        Server::dir((0..=self.home).rev().find(is_whole).unwrap_or(0))
    }

    pub(super) fn start(&mut self, fault: Option<GroupFault>, ballots: &Ballots) -> Result<(), Failure> {
        self.incarnation += 1;
        let seed = self.prng.next_u64();
        let entropy = SimEntropy::new(seed);
        let failed = |error: std::io::Error| Failure::Disk(error.to_string());
        let member_dir = Path::new(MEMBER_DIR);
        self.disk.create_dir_all(member_dir).map_err(failed)?;
        let mut standing = Standing::start(&self.disk, member_dir, &entropy)?;
        let join = if self.founds { "" } else { "server-0:6379" };
        let wanted = Wanted { group: NAME, join, is_witness: false, durability: "strict" };
        let loaded = GroupState::load(&*self.disk, member_dir, wanted, &entropy).map_err(failed)?;
        let Membership::Of(mut state) = loaded else {
            return Err(Failure::Breach("its directory belongs to no group".into()));
        };
        if fault == Some(GroupFault::IgnoresItsBallot) {
            (state.term, state.voted_for) = (0, String::new());
        }
        if state.is_removed {
            self.is_removed = true;
            return Ok(());
        }
        let writes = Arc::new(InFlight::new(self.clock.clone()));
        let votes =
            Votes::new(*state, member_dir.to_path_buf(), self.disk.clone(), self.clock.clone(), writes);
        let votes = Arc::new(votes);
        if let Some(id) = self.id
            && votes.id() != id
        {
            return Err(Failure::Breach(format!("its id was {id}, and is {}", votes.id())));
        }
        if let Some(at) = self.diverged_at.take() {
            match cut_log(&*self.disk, &self.home(), at)? {
                Cut::Done(kept) if self.disk.read_file(&kept).is_ok() => {}
                Cut::Done(kept) => {
                    return Err(Failure::Breach(format!("{} was not kept", kept.display())));
                }
                Cut::NoBase => self.copies_anew = true,
            }
        }
        let dir = self.home();
        let keyspace = Arc::new(Keyspace::new(Options { hash_seed: seed }));
        let source = Source {
            disk: self.disk.clone(),
            dir: &dir,
            options: log_options(fault),
            clock: self.clock.clone(),
            entropy: &entropy,
            appliers: 0,
            mode: Mode::Newest,
            documents: None,
        };
        let mut recovery = load(source, &keyspace, &LoadProgress::new(self.clock.clone()))?;
        let chains = recovery.take_chains();
        let (log, mirror) = recovery.finish_as_mirror(self.clock.clone())?;
        if log.durable_lsn() < self.committed {
            let (end, committed) = (log.durable_lsn(), self.committed);
            return Err(Failure::Breach(format!(
                "its log ends at {end}, but it had all before {committed}, which is committed"
            )));
        }
        let end = if fault == Some(GroupFault::ShowsLeftovers) { Lsn::ZERO } else { log.appended_lsn() };
        standing.change(member_dir, |role| (role.recovered(end, true), false))?;
        let Some(mut known) = Known::start(&votes, keyspace.data_settings(), log.appended_lsn()) else {
            votes.note_removal().map_err(failed)?;
            self.is_removed = true;
            return Ok(());
        };
        if let Some(id) = self.id
            && fault != Some(GroupFault::IgnoresItsBallot)
        {
            ballots.check_start(id, votes.ballot(), log.epoch().into()).map_err(Failure::Breach)?;
        }
        let tail = log.cursor(log.shippable_lsn());
        let member = match start(&votes, &mut known, &log, self.prng.next_u64())? {
            Started::Member(member) => Some(*member),
            Started::Joins => None,
            Started::CopiesAnew => {
                self.copies_anew = true;
                None
            }
        };
        let decided = Arc::new(Mutex::new(Decided::default()));
        let is_member = member.is_some();
        if let Some(member) = member {
            votes.begin(member, self.reports(&decided));
        }
        let copies_anew = std::mem::take(&mut self.copies_anew);
        let following =
            Following::new((&log, mirror), (keyspace.clone(), chains), self.now_ms(), copies_anew);
        self.running = Some(Running {
            dir,
            witness: Witness::new(&log),
            keyspace,
            known,
            is_member,
            decided,
            tail,
            standing,
            relays: Relays::new(fault == Some(GroupFault::JoinsByPosition)),
            part: Part::Following(following.into()),
            mirror: None,
            appenders: None,
            has_led: false,
            is_deposed: false,
            knows_leader: false,
            leaderships: Vec::new(),
            is_flush_due: false,
            ticks: 0,
            votes,
            log,
        });
        Ok(())
    }

    /// Collects the decisions of the votes. After the machine has stopped, nothing is collected.
    fn reports(&self, decided: &Arc<Mutex<Decided>>) -> Reports {
        let on = |act: fn(&mut Decided, Said<'_>)| {
            let (disk, decided) = (self.disk.clone(), decided.clone());
            move |said: Said<'_>| {
                if !disk.has_stopped() {
                    act(&mut decided.lock(), said);
                }
            }
        };
        let (send, committed, leadership) = (on(note), on(note), on(note));
        Reports {
            send: Box::new(move |messages| send(Said::Messages(messages))),
            committed: Box::new(move |position| committed(Said::Committed(position))),
            leadership: Box::new(move |known| leadership(Said::Leadership(known))),
            lease: Box::new(|| {}),
            awaits_members: Box::new(|| {}),
        }
    }

    /// The process or the whole machine stops; the mode decides the fate of unsynced data.
    pub(super) fn crash(&mut self, mode: CrashMode) {
        self.running = None;
        self.disk.set_space_limit(None);
        self.disk.crash(mode);
        (self.is_troubled, self.diverged_at, self.copies_anew) = (false, None, false);
        (self.paused_until_us, self.slow_until_us) = (0, 0);
        if self.prng.chance(30) {
            // The machine was started again, and its clock begins anew.
            self.clock = new_clock(&mut self.prng);
        }
    }

    /// The ballot of the server, while the server is up.
    pub(super) fn ballot(&self) -> Option<Ballot> {
        self.running.as_ref().map(|running| running.votes.ballot())
    }

    /// The bytes of `group.json`.
    pub(super) fn ballot_file(&self) -> Option<Vec<u8>> {
        self.disk.read_file(&Path::new(MEMBER_DIR).join(GROUP_FILE)).ok()
    }

    /// Puts an older `group.json` in place.
    pub(super) fn restore_ballot_file(&self, bytes: Option<Vec<u8>>) {
        if let Some(bytes) = bytes {
            self.disk.write_file(&Path::new(MEMBER_DIR).join(GROUP_FILE), &bytes);
        }
    }

    /// The server loses all data on its disk, and has to join anew.
    pub(super) fn lose_disk(&mut self) {
        self.running = None;
        self.disk = SimDisk::new(SimDiskOptions { seed: self.prng.next_u64(), ..SimDiskOptions::default() });
        (self.home, self.is_troubled, self.is_removed, self.founds) = (0, false, false, false);
        (self.id, self.committed, self.older_disk) = (None, Lsn::ZERO, None);
        (self.diverged_at, self.copies_anew) = (None, false);
    }

    /// The server crashes, and will start with an older copy of its disk.
    pub(super) fn go_back_to(&mut self, older: Arc<SimDisk>) {
        self.disk = older;
        self.crash(CrashMode::KeepAll);
    }
}

enum Said<'m> {
    Messages(&'m [Message]),
    Committed(Lsn),
    Leadership(Leadership),
}

fn note(decided: &mut Decided, said: Said<'_>) {
    match said {
        Said::Messages(messages) => decided.messages.extend_from_slice(messages),
        Said::Committed(position) => decided.committed = decided.committed.max(Some(position)),
        Said::Leadership(leadership) => decided.leaderships.push(leadership),
    }
}

fn new_clock(prng: &mut Prng) -> Arc<SimClock> {
    let clock = SimClock::new(1_700_000_000_000 + prng.below(60_000));
    clock.advance_us(prng.below(1 << 30));
    Arc::new(clock)
}

fn log_options(fault: Option<GroupFault>) -> LogOptions {
    let is_careless = fault == Some(GroupFault::AcknowledgesWithoutSync);
    LogOptions {
        durability: if is_careless { Durability::None } else { Durability::Strict },
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        // The mirror, the writes of clients, and the records of the roster.
        appenders_max: 3,
        unwritten_bytes_max: 16 << 10,
    }
}

impl Running {
    /// The position up to which the log is in memory.
    pub(super) fn applied(&self) -> Lsn {
        match &self.part {
            Part::Following(following) => following.applied(),
            Part::Promoted(_) | Part::Leading(_) => self.log.appended_lsn(),
        }
    }

    /// The commit position that this server sends to its followers.
    pub(super) fn commit(&self) -> Lsn {
        let known = match &self.part {
            Part::Following(following) => following.committed(),
            Part::Promoted(_) | Part::Leading(_) => self.votes.committed(),
        };
        known.min(self.log.shippable_lsn())
    }

    /// The votes know this position to be committed.
    pub(super) fn note_committed(&mut self, committed: Lsn) {
        if let Part::Following(following) = &mut self.part {
            following.note_committed(committed);
        } else if self.log.awaits_acks() {
            self.log.set_acked(self.votes.committed().min(self.log.shippable_lsn()));
        }
    }

    /// Whether clients may write.
    pub(super) fn takes_writes(&self) -> bool {
        matches!(self.part, Part::Leading(_)) && !self.standing.role().is_read_only()
    }

    /// Whether clients see the data that this server has applied as a follower.
    pub(super) fn shows_as_follower(&self) -> bool {
        matches!(self.part, Part::Following(_))
            && self.is_member
            && self.knows_leader
            && self.standing.role().unconfirmed() == Lsn::ZERO
    }
}
