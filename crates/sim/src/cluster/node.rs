//! One server of a cluster: its disk, its clock, its order and its role.
//!
//! ```text
//! Down    --start--> Leader; or Replica, if `replication.json` or the order names a server to follow
//! Leader  --another order--> starts again
//! Replica --its log is cut--> starts again
//!         --full copy--> Copying --> starts again
//!         --promotion--> Leader, without a start
//! any     --crash, failed disk--> Down
//! ```
//! The order and, unless the disk is lost, `replication.json` survive a crash.
//!
//! This is a small single-threaded version of the server's wiring, built from the state machines of
//! `replication`, the log of `storage`, and `recovery`.

use std::{path::PathBuf, sync::Arc};

use env::{Clock, Prng, SimClock, SimDisk, SimEntropy, sim::CrashMode, sim::SimDiskOptions};
use keyspace::{Keyspace, Options};
use lsn::Lsn;
use recovery::{
    progress::LoadProgress,
    recover::{Mode, RecoverError, Source, load},
};
use replication::ReplicaId;
use storage::{Control, Durability, Flush, Log, LogOptions, MirrorError, Prepare, snapshot};

use super::{
    FaultInjection, copying::Copying, following::Following, leading::Leading, member::Member, network::NodeId,
};

/// The reason why a step of a server failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The disk failed or has bad content: the process ends.
    Disk(String),
    /// An invariant is broken.
    Breach(String),
}

impl From<storage::Error> for Failure {
    fn from(error: storage::Error) -> Failure {
        Failure::Disk(error.to_string())
    }
}

impl From<RecoverError> for Failure {
    fn from(error: RecoverError) -> Failure {
        Failure::Disk(error.to_string())
    }
}

impl From<MirrorError> for Failure {
    fn from(error: MirrorError) -> Failure {
        match error {
            MirrorError::Log(error) => error.into(),
            other => Failure::Breach(other.to_string()),
        }
    }
}

/// The role that the operator has ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Lead the cluster.
    Lead,
    /// Follow this server.
    Follow(NodeId),
    /// Follow no server for now.
    Hold,
}

/// The actual role of a server.
pub(super) enum Role {
    Down,
    Leader(Box<Leading>),
    Replica(Box<Following>),
    Copying(Box<Copying>),
}

/// A simulated server. Its order, its clock and, unless lost, its disk survive a crash.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) disk: Arc<SimDisk>,
    pub(super) clock: Arc<SimClock>,
    pub(super) order: Order,
    pub(super) role: Role,
    /// The role of the server among others, by the product's own rules; `None` while the server is down.
    pub(super) member: Option<Member>,
    /// The number of starts so far.
    pub(super) incarnation: u64,
    /// Whether a disk fault is injected: failures are then expected.
    pub(super) is_troubled: bool,
    /// Whether the operator may count on the server to have all data that it has acknowledged. This is false
    /// from the loss of its disk until it has caught up.
    pub(super) is_witness: bool,
    /// The number of the newest data directory; each full copy makes one.
    home: u64,
    durability: Durability,
    /// The number of replicas that must have a write before it is acknowledged.
    acks: usize,
    /// Whether a starting replica shows nothing before its leader has committed all that the replica has.
    awaits_acks: bool,
    pub(super) prng: Prng,
}

impl Node {
    pub(super) fn new(
        id: NodeId,
        order: Order,
        durability: Durability,
        (acks, awaits_acks): (usize, bool),
        prng: &mut Prng,
    ) -> Node {
        let mut prng = prng.fork();
        // Clocks differ by up to a minute.
        let clock = Arc::new(SimClock::new(1_700_000_000_000 + prng.below(60_000)));
        Node {
            id,
            disk: SimDisk::new(SimDiskOptions { seed: prng.next_u64(), ..SimDiskOptions::default() }),
            clock,
            order,
            role: Role::Down,
            member: None,
            incarnation: 0,
            is_troubled: false,
            is_witness: true,
            home: 0,
            durability,
            acks,
            awaits_acks,
            prng,
        }
    }

    pub(super) fn replica_id(&self) -> ReplicaId {
        ReplicaId::new([self.id as u8; 16])
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.monotonic_us() / 1000
    }

    /// The epoch of the last batch of the log. A log that was just copied has no batch yet: it has the epoch
    /// of its snapshot. An empty log without a snapshot has epoch 0.
    pub(super) fn last_epoch(&self, log: &Log) -> Result<u32, storage::Error> {
        let end = log.durable_lsn();
        if let Some(batch) = log.batch_ending_at(end)? {
            return Ok(batch.epoch);
        }
        let (disk, dir) = (&*self.disk, self.home());
        let begins = snapshot::list_begins(disk, &dir)?;
        match begins.contains(&end) {
            true => Ok(snapshot::load(disk, &dir, end)?.epoch),
            false => Ok(0),
        }
    }

    /// The data directory with this number.
    pub(super) fn dir(home: u64) -> PathBuf {
        format!("/data-{home}").into()
    }

    /// A directory that was never used.
    pub(super) fn new_home(&mut self) -> PathBuf {
        self.home += 1;
        Node::dir(self.home)
    }

    /// The newest complete directory; the first one if none is complete.
    pub(super) fn home(&self) -> PathBuf {
        let is_whole = |home: &u64| matches!(Control::load(&*self.disk, &Node::dir(*home)), Ok(Some(_)));
        Node::dir((0..=self.home).rev().find(is_whole).unwrap_or(0))
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            durability: self.durability,
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            // One appender for the mirror, and one for the leader that the replica may become.
            appenders_max: 2,
            unwritten_bytes_max: 16 << 10,
        }
    }

    /// Starts the process, in the role that its file says, unless its order is to follow or to be held.
    pub(super) fn start(&mut self, fault: Option<FaultInjection>) -> Result<(), Failure> {
        self.incarnation += 1;
        let seed = self.prng.next_u64();
        let keyspace = Arc::new(Keyspace::new(Options { hash_seed: seed }));
        let (dir, entropy) = (self.home(), SimEntropy::new(seed));
        let mut member = Member::start(&self.disk, self.order, self.awaits_acks, &entropy)?;
        let source = Source {
            disk: self.disk.clone(),
            dir: &dir,
            options: self.log_options(),
            clock: self.clock.clone(),
            entropy: &entropy,
            appliers: 0,
            mode: Mode::Newest,
            documents: None,
        };
        let mut recovery = load(source, &keyspace, &LoadProgress::new(self.clock.clone()))?;
        let chains = recovery.take_chains();
        self.role = if member.role().leader().is_none() {
            let log = recovery.finish(self.clock.clone())?;
            Role::Leader(Leading::new(log, keyspace, dir, self.acks, fault)?.into())
        } else {
            let (log, mirror) = recovery.finish_as_mirror(self.clock.clone())?;
            let (end, awaits_acks) = match fault {
                Some(FaultInjection::ShowLeftovers) => (Lsn::ZERO, false),
                _ => (log.durable_lsn(), self.awaits_acks),
            };
            member.change(|role| (role.recovered(end, awaits_acks), false))?;
            Role::Replica(Following::new(log, mirror, keyspace, chains, self.now_ms()).into())
        };
        self.member = Some(member);
        Ok(())
    }

    /// Whether the server leads and takes writes: it is not fenced, and does not hand over.
    pub(super) fn takes_writes(&self) -> bool {
        let is_open = self.member.as_ref().is_some_and(|member| !member.role().is_read_only());
        is_open && matches!(self.role, Role::Leader(_))
    }

    /// Whether clients see the applied data of this server.
    pub(super) fn shows(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.role().unconfirmed() == Lsn::ZERO)
    }

    /// The process or the whole machine stops; the mode decides the fate of unsynced data.
    pub(super) fn crash(&mut self, mode: CrashMode) {
        (self.role, self.member) = (Role::Down, None);
        self.disk.set_space_limit(None);
        self.disk.crash(mode);
        self.is_troubled = false;
    }

    /// Loses all data on its disk.
    pub(super) fn lose_disk(&mut self) {
        (self.role, self.member) = (Role::Down, None);
        self.disk = SimDisk::new(SimDiskOptions { seed: self.prng.next_u64(), ..SimDiskOptions::default() });
        (self.home, self.is_troubled, self.is_witness) = (0, false, false);
    }

    /// One step of the log thread.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let log = match &self.role {
            Role::Leader(leading) => &leading.log,
            Role::Replica(following) => &following.log,
            Role::Down | Role::Copying(_) => return Ok(()),
        };
        flush(log)
    }
}

/// One step of the log thread, and of the segment thread if needed. A full disk is no failure.
pub(crate) fn flush(log: &storage::Log) -> Result<(), Failure> {
    if log.flush()? == Flush::NeedSegment && log.prepare_segment()? != Prepare::NoRoom {
        log.flush()?;
    }
    if log.needs_segment() {
        log.prepare_segment()?;
    }
    Ok(())
}
