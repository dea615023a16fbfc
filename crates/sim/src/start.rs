//! Starting a simulated server: its options, and recovery as in the binary.

use std::{path::Path, sync::Arc};

use documents::{Documents, Shelf};
use env::{Disk, SimClock, SimEntropy};
use keyspace::{Keyspace, PackedLimits};
use recovery::{
    offline::Place,
    progress::LoadProgress,
    recover::{Mode, RecoverError, Source},
};
use storage::{Durability, Log, LogOptions, Recovery};
use tree::{NodeCache, Written};

use crate::WorkloadOptions;

/// The data directory of the server.
pub(crate) const DIR: &str = "/data";
/// The number of workers, each with its own appender.
pub(crate) const WORKERS: usize = 2;

/// The capacity of the cache of tree nodes.
const CACHE_BYTES: u64 = 64 << 10;

/// Limits that collections soon exceed.
const NARROW: PackedLimits = PackedLimits {
    list_entries: 4,
    list_bytes: 200,
    set_integers: 3,
    set_entries: 5,
    set_value_bytes: 8,
    zset_entries: 4,
    zset_value_bytes: 8,
    hash_entries: 4,
    hash_value_bytes: 60,
};

/// A deliberate defect, which the oracle must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Replies are delivered before they are durable.
    EarlyReplies,
    /// The disk reports syncs that it has not done.
    LyingDisk,
    /// A worker whose replies wait for the log does not request a wake-up.
    NoWakeUp,
    /// Notices are published before they are durable.
    EarlyNotices,
    /// Commands that wait for room in the log are never resumed.
    NoResume,
    /// The log's thread is never woken.
    SleepingLogThread,
}

/// The options of a [`World`](crate::World), which is a simulated server with clients, and of the recovery of
/// such a server.
#[derive(Debug, Clone, Copy)]
pub struct WorldOptions {
    /// The seed of all random choices, which decides the whole run.
    pub seed: u64,
    /// The number of connections.
    pub clients: usize,
    /// The durability of the server.
    pub durability: Durability,
    /// The shape of the clients' commands.
    pub workload: WorkloadOptions,
    /// The size of a segment in bytes.
    pub segment_bytes: u64,
    /// The size of the ring in bytes.
    pub ring_bytes: u64,
    /// Whether writes share a flush; otherwise there is a flush after each command, or run of commands on
    /// one key.
    pub merges: bool,
    /// The number of threads that apply the log in recovery; 0 applies it on the caller's thread, the only
    /// mode that is reproducible step by step.
    pub appliers: usize,
    /// The probability, in thousandths, that a step starts a snapshot when none is running.
    pub snapshots_permille: u64,
    /// The deliberate defect, if any.
    pub sabotage: Option<Sabotage>,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions {
            seed: 0,
            clients: 4,
            durability: Durability::Strict,
            workload: WorkloadOptions::default(),
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            merges: true,
            appliers: 0,
            snapshots_permille: 0,
            sabotage: None,
        }
    }
}

/// A started server.
pub struct Recovered {
    /// The recovered keyspace.
    pub keyspace: Arc<Keyspace>,
    /// The log of the server.
    pub log: Log,
}

/// Starts a server on this disk, as the binary does.
///
/// # Errors
/// As `recovery::recover::recover`.
pub fn recover(
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
) -> Result<Recovered, RecoverError> {
    recover_by(Mode::Newest, disk, options, clock)
}

/// As [`recover`], with document databases.
///
/// # Errors
/// As [`recover`].
pub fn recover_documents(
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
) -> Result<(Recovered, Arc<Documents>), RecoverError> {
    recover_documents_by(Mode::Newest, disk, options, clock)
}

/// As [`recover_by`], with document databases.
///
/// # Errors
/// As [`recover`].
pub fn recover_documents_by(
    mode: Mode,
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
) -> Result<(Recovered, Arc<Documents>), RecoverError> {
    recover_documents_with(Arc::new(|_| {}), mode, disk, options, clock)
}

/// As [`recover_documents_by`], with a listener to changes of databases.
pub(crate) fn recover_documents_with(
    on_notice: documents::Listener,
    mode: Mode,
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
) -> Result<(Recovered, Arc<Documents>), RecoverError> {
    let shelf = Shelf {
        disk: disk.clone(),
        dir: documents::directory(Path::new(DIR)),
        entropy: Arc::new(SimEntropy::new(options.seed)),
        cache: NodeCache::new(CACHE_BYTES),
        written: Written::default(),
    };
    let documents = Arc::new(Documents::open(shelf, None, on_notice)?);
    let recovered = recover_with(mode, disk, options, clock, Some(&documents))?;
    Ok((recovered, documents))
}

/// As [`recover`], with this starting point.
///
/// # Errors
/// As [`recover`].
pub fn recover_by(
    mode: Mode,
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
) -> Result<Recovered, RecoverError> {
    recover_with(mode, disk, options, clock, None)
}

fn recover_with(
    mode: Mode,
    disk: Arc<dyn Disk>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
    documents: Option<&Documents>,
) -> Result<Recovered, RecoverError> {
    let keyspace = Arc::new(Keyspace::new(keyspace::Options { hash_seed: options.seed }));
    keyspace.set_packed_limits(some_limits(options.seed));
    let entropy = SimEntropy::new(options.seed);
    // Writes of documents over HTTP use an appender of their own.
    let appenders_max = WORKERS + usize::from(documents.is_some());
    let source = Source {
        disk,
        dir: Path::new(DIR),
        options: LogOptions { appenders_max, ..log_options(options) },
        clock: clock.clone(),
        entropy: &entropy,
        appliers: options.appliers,
        mode,
        documents,
    };
    let progress = LoadProgress::new(clock.clone());
    let log = recovery::recover::recover(source, &keyspace, &progress)?;
    Ok(Recovered { keyspace, log })
}

/// The place of a stopped simulated server, or another directory on the same disk, for offline tools.
pub fn place<'a>(
    disk: Arc<dyn Disk>,
    dir: Option<&'a Path>,
    options: &WorldOptions,
    clock: &Arc<SimClock>,
    entropy: &'a SimEntropy,
) -> Place<'a> {
    let (dir, appliers) = (dir.unwrap_or(Path::new(DIR)), options.appliers);
    Place { disk, clock: clock.clone(), entropy, dir, options: log_options(options), appliers }
}

/// The payloads of all records on a disk, in order.
///
/// # Errors
/// If the log cannot be read.
pub fn records(disk: Arc<dyn Disk>, options: &WorldOptions) -> Result<Vec<Vec<u8>>, storage::Error> {
    let entropy = SimEntropy::new(options.seed);
    let mut recovery = Recovery::open(disk, Path::new(DIR), log_options(options), &entropy)?;
    let mut records = Vec::new();
    let keep = |_, payload: &[u8]| {
        records.push(payload.to_vec());
        Ok(())
    };
    recovery.replay(keep, |_| {}).map(|()| records)
}

/// Either the default limits or narrow ones: no reply may depend on the form in which a value is stored.
pub(crate) fn some_limits(chosen: u64) -> PackedLimits {
    if chosen.is_multiple_of(2) { PackedLimits::DEFAULT } else { NARROW }
}

fn log_options(options: &WorldOptions) -> LogOptions {
    LogOptions {
        durability: options.durability,
        segment_bytes: options.segment_bytes,
        ring_bytes: options.ring_bytes,
        appenders_max: WORKERS,
        unwritten_bytes_max: options.ring_bytes / 4,
    }
}
