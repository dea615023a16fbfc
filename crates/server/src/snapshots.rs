//! Snapshots of a running server: their triggers, threads, pace and figures.
//!
//! ```text
//! "snapshots" thread: waits for a trigger -> SnapshotTask -> snapshot-0..n capture, write, paced -> publish
//! ```
//!
//! The triggers are growth of the log, time, a clean stop, and requests. Requests come from SAVE and BGSAVE,
//! a backup, a Redis replica, the scrubber, and the confirmation of a forced recovery.
//! [`recovery::snapshot_task`] takes the snapshot. Acknowledged writes are in the log, and never depend on a
//! snapshot.
//!
//! Invariants
//! - A witness, whose memory has no data, takes no snapshot.
//! - At most one snapshot is taken at a time. A failure is logged, and the server goes on. While growth of
//!   the log or time calls for a snapshot, the server tries again later.
//! - Whoever waits for the result of a request gets an answer, even if a script holds keys for ever: an error
//!   after [`STANDSTILL_US`]. The snapshot itself waits on. So does a backup, which waits for its files.
//! - A request that comes during a snapshot is either refused, or served by one more snapshot afterwards. The
//!   snapshot in progress would not do: it may lack records written meanwhile.

mod persistence;

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use engine::{CancelAnswer, CommandStats, Responder, SAVE_IN_PROGRESS, SaveAnswer};
use env::{Clock, Disk, RealDisk};
use keyspace::Keyspace;
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use recovery::{
    in_flight::InFlight,
    progress::LoadProgress,
    salvage,
    snapshot_task::{PartTask, SnapshotPlan, SnapshotTask},
};
use settings::Key;
use storage::{
    Log,
    snapshot::{self, CHUNK_RAW_BYTES_AIM, Compression, PartSummary, SnapshotInfo},
};

pub(crate) use self::persistence::Persistence;
use crate::{
    attached_log::AttachedLog, config::Config, documents::Saver, pace::Pace, replication::Node,
    startup_info::StartupInfo, stop::AtStop,
};

/// The maximum number of writer threads of a snapshot.
const WRITERS_MAX: usize = 8;
/// The error for clients that wait for a snapshot that was given up.
const CANCELLED: &str = "ERR the snapshot was cancelled";
/// If a key that a snapshot needs was held by others for this long, clients that wait for the snapshot get an
/// error.
const STANDSTILL_US: u64 = 10_000_000;
/// The error for clients that wait for a snapshot which waits for held keys.
const HELD: &str = "ERR the snapshot cannot go on: a script or another command has held keys that it needs for 10 seconds. It is \
                    taken once they are free, which LASTSAVE shows; SCRIPT KILL ends a script, BGSAVE CANCEL gives the snapshot up";
/// Period of the check of triggers.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// After a failure or a cancellation, automatic snapshots pause for this time. Requested snapshots do not.
const RETRY_MS: u64 = 60_000;
/// By default, a clean stop takes a snapshot if the next start would otherwise replay more log than this.
/// Replaying this much log takes about a second.
const STOP_REPLAY_BYTES_MAX: u64 = 128 << 20;

/// Why no snapshot was taken.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("a snapshot exists at this position")]
    InTheWay,
    #[error("documents cannot be saved: {0}")]
    Documents(#[from] documents::StoreError),
    #[error(transparent)]
    Confirmation(#[from] salvage::ConfirmError),
    #[error("documents could not be saved up to where it begins")]
    Unsaved,
    #[error("this server is a witness of its group: it has a log and no data")]
    Witness,
    #[error("the server is stopping")]
    Stopping,
}

/// Figures for INFO and metrics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Whether a snapshot is requested or in progress.
    pub(crate) in_progress: bool,
    /// The start time of the snapshot in progress, in Unix milliseconds.
    pub(crate) running_since_ms: Option<u64>,
    /// Start time of the newest snapshot, or of a later attempt that found nothing new in the log. Without
    /// either, the start of this incarnation.
    pub(crate) last_unix_ms: u64,
    /// Bytes of the newest snapshot's files; 0 without one.
    pub(crate) last_file_bytes: u64,
    /// The duration of the last attempt, in seconds.
    pub(crate) last_seconds: Option<u64>,
    pub(crate) last_failed: bool,
    /// Whether a client has cancelled the last attempt.
    pub(crate) last_cancelled: bool,
    pub(crate) taken: u64,
    pub(crate) failures: u64,
    /// Value of [`Sources::changes`] from which [`Snapshots::changes`] counts.
    changes_at_last: u64,
    /// Position at which the newest snapshot begins.
    begin_lsn: Option<Lsn>,
    /// Time of the last failure or cancellation.
    failed_at_ms: u64,
}

/// State of the snapshots of a server.
pub(crate) struct Snapshots {
    pub(crate) sources: Sources,
    state: Mutex<State>,
    wake: Condvar,
    /// Bytes written to files of snapshots since this incarnation began.
    written_bytes: AtomicU64,
    /// Bytes that the last snapshot, or the snapshot in progress, has copied early because they were about to
    /// change.
    copied_bytes: AtomicU64,
    cancelled: AtomicBool,
    /// The captures of chunks in progress. A capture waits for the locks of its keys.
    captures: InFlight,
}

/// The parts of the server from which a snapshot is made, or on which it depends.
pub(crate) struct Sources {
    pub(crate) startup: Arc<StartupInfo>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<Config>,
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) node: Arc<Node>,
    pub(crate) saver: Arc<Saver>,
    pub(crate) progress: Arc<LoadProgress>,
    pub(crate) log: Arc<AttachedLog>,
    pub(crate) stats: Arc<CommandStats>,
}

impl Sources {
    /// The number of changes replayed at the start and written since. Counts records, and also pops of
    /// waiting clients, because such a pop is in the record of a push.
    fn changes(&self) -> u64 {
        let written = self.log.get().map_or(0, |log| log.stats().records.load(Relaxed));
        self.progress.records() + written + self.stats.served()
    }

    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }
}

/// Called with the result of a snapshot.
type OnTaken = Box<dyn FnOnce(Result<(), String>) + Send>;

struct State {
    figures: Figures,
    wanted: bool,
    /// Called after the wanted snapshot.
    waiting: Vec<OnTaken>,
    /// Called after the snapshot in progress.
    serving: Vec<OnTaken>,
    /// The answer channel of the command that confirms a forced recovery.
    confirming: Option<Responder>,
    stop: Option<AtStop>,
}

impl State {
    fn is_busy(&self) -> bool {
        self.wanted || self.figures.running_since_ms.is_some()
    }
}

impl Snapshots {
    /// The snapshots of a server that has taken none yet. Until one is found or taken, LASTSAVE gets the time
    /// of this call.
    pub(crate) fn new(sources: Sources) -> Snapshots {
        let figures = Figures { last_unix_ms: sources.unix_ms(), ..Figures::default() };
        let captures = InFlight::new(sources.clock.clone());
        Snapshots {
            sources,
            captures,
            state: Mutex::new(State {
                figures,
                wanted: false,
                waiting: Vec::new(),
                serving: Vec::new(),
                confirming: None,
                stop: None,
            }),
            wake: Condvar::new(),
            written_bytes: 0.into(),
            copied_bytes: 0.into(),
            cancelled: false.into(),
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures { in_progress: state.is_busy(), ..state.figures }
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }

    /// Bytes that the last snapshot, or the snapshot in progress, has copied early because they were about to
    /// change.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    /// The number of changes since the newest snapshot began. After a forced recovery: the number of changes
    /// since its confirmation.
    pub(crate) fn changes(&self) -> u64 {
        self.sources.changes().saturating_sub(self.figures().changes_at_last)
    }

    /// Requests a snapshot. While one is wanted or in progress, only a `scheduled` request is accepted, and
    /// is served by a snapshot that begins later.
    pub(crate) fn ask(&self, scheduled: bool) -> SaveAnswer {
        let mut state = self.state.lock();
        let is_busy = state.is_busy();
        if is_busy && !scheduled {
            return SaveAnswer::InProgress;
        }
        state.wanted = true;
        self.wake.notify_one();
        if is_busy { SaveAnswer::Scheduled } else { SaveAnswer::Started }
    }

    /// Gives up the snapshot in progress. If none is in progress, gives up the snapshot that is wanted.
    pub(crate) fn cancel(&self) -> CancelAnswer {
        let mut state = self.state.lock();
        if state.stop.is_some() || state.confirming.is_some() {
            return CancelAnswer::Nothing;
        }
        if state.figures.running_since_ms.is_some() {
            self.cancelled.store(true, Relaxed);
            return CancelAnswer::Running;
        }
        if !std::mem::take(&mut state.wanted) {
            return CancelAnswer::Nothing;
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|then| then(Err(CANCELLED.into())));
        CancelAnswer::Scheduled
    }

    /// Requests a snapshot, unless one is wanted or in progress. The responder gets the result.
    pub(crate) fn ask_and_tell(&self, responder: Responder) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if state.is_busy() {
            return Err(SAVE_IN_PROGRESS);
        }
        state.wanted = true;
        state.waiting.push(Box::new(move |taken| responder.keep(taken)));
        self.wake.notify_one();
        Ok(())
    }

    /// Requests a snapshot that begins after the one in progress, if there is one. `then` gets the result.
    pub(crate) fn ask_then(&self, then: OnTaken) {
        let mut state = self.state.lock();
        state.wanted = true;
        state.waiting.push(then);
        self.wake.notify_one();
    }

    /// Confirms a forced recovery: a snapshot of the memory replaces the damaged files. The responder gets
    /// the result.
    pub(crate) fn confirm(&self, responder: Responder) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if state.confirming.is_some() || state.is_busy() {
            return Err("ERR the forced recovery is being confirmed already");
        }
        state.confirming = Some(responder);
        self.wake.notify_one();
        Ok(())
    }

    /// Asks the thread to give up its snapshot, to take a last one if `at_stop` says so, and to end.
    pub(crate) fn stop(&self, at_stop: AtStop) {
        let mut state = self.state.lock();
        state.stop = Some(at_stop);
        // The flag is set under the lock, so that a snapshot that is given up finds the reason in `stop`.
        self.cancelled.store(true, Relaxed);
        drop(state);
        self.wake.notify_one();
    }

    /// Reads the figures of the newest snapshot and starts the thread.
    pub(crate) fn start(self: &Arc<Self>, log: &Log) -> Result<JoinHandle<()>, std::io::Error> {
        let dir = &self.sources.startup.dir;
        let newest = snapshot::list_begins(&RealDisk, dir)
            .ok()
            .and_then(|begins| begins.into_iter().find(|&begin| begin >= log.start_lsn()))
            .and_then(|begin| snapshot::load(&RealDisk, dir, begin).ok())
            .filter(|info| info.log_id == log.id());
        if let Some(info) = newest {
            self.state.lock().figures.newest_is(&info);
        }
        let (snapshots, log) = (self.clone(), log.clone());
        thread::Builder::new().name("snapshots".into()).spawn(move || snapshots.run(&log))
    }

    fn run(&self, log: &Log) {
        loop {
            let mut state = self.state.lock();
            if !state.wanted && state.confirming.is_none() && state.stop.is_none() {
                self.wake.wait_for(&mut state, LOOK_PERIOD);
            }
            let figures = state.figures;
            if let Some(at_stop) = state.stop {
                drop(state);
                self.cancelled.store(false, Relaxed);
                let replay_bytes =
                    log.appended_lsn().bytes_since(figures.begin_lsn.unwrap_or(log.start_lsn()));
                let is_worth_it = self.changes() > 0 && replay_bytes > STOP_REPLAY_BYTES_MAX;
                let is_wanted = at_stop == AtStop::Take || (at_stop == AtStop::IfWorthIt && is_worth_it);
                if is_wanted && !log.is_frozen() && !self.sources.node.is_witness() {
                    // The result is logged; no client waits for it.
                    let _ = self.take_and_tell(log);
                }
                return;
            }
            if let Some(responder) = state.confirming.take() {
                state.figures.running_since_ms = Some(self.sources.unix_ms());
                state.serving.push(Box::new(move |outcome| responder.keep(outcome)));
                drop(state);
                let outcome = self.take_confirmed(log);
                self.state.lock().figures.running_since_ms = None;
                let outcome = outcome.map_err(|failure| {
                    tracing::error!(target: "server", error = %failure, "the forced recovery is not confirmed");
                    format!("ERR the forced recovery is not confirmed, try again: {failure}")
                });
                self.tell(&outcome);
                continue;
            }
            let wanted = std::mem::take(&mut state.wanted);
            state.serving = std::mem::take(&mut state.waiting);
            state.figures.running_since_ms = wanted.then(|| self.sources.unix_ms());
            // The lock is released first, because the checks of triggers read the figures.
            drop(state);
            if wanted || self.is_due(log, &figures) {
                let outcome = self.take_and_tell(log);
                if self.state.lock().stop.is_none() {
                    self.cancelled.store(false, Relaxed);
                }
                self.tell(&outcome);
            }
        }
    }

    /// Passes the outcome to the callers that wait for the snapshot in progress.
    fn tell(&self, outcome: &Result<(), String>) {
        let serving = std::mem::take(&mut self.state.lock().serving);
        serving.into_iter().for_each(|then| then(outcome.clone()));
    }

    /// Checks whether keys that the snapshot in progress needs were held for too long. If so, all callers
    /// that wait for a snapshot get an error; the snapshot waits on. Called once a second.
    pub(crate) fn look_for_standstill(&self) {
        if self.captures.oldest_us() < STANDSTILL_US {
            return;
        }
        let told = {
            let mut state = self.state.lock();
            let mut told = std::mem::take(&mut state.serving);
            told.append(&mut state.waiting);
            told
        };
        if told.is_empty() {
            return;
        }
        tracing::warn!(
            target: "server", clients = told.len(),
            "a snapshot cannot go on: a script or another command has held keys that it needs for 10 seconds"
        );
        told.into_iter().for_each(|then| then(Err(HELD.into())));
    }

    /// Replaces the files left by a forced recovery by a snapshot of the memory. From then on, writes are
    /// accepted.
    fn take_confirmed(&self, log: &Log) -> Result<(), Failure> {
        let (disk, dir): (Arc<dyn Disk>, _) =
            (Arc::new(self.sources.startup.disk.clone()), &self.sources.startup.dir);
        let info = match salvage::confirmed_before(&*disk, dir, log)? {
            Some(info) => info,
            None => self.take(log)?.ok_or(Failure::InTheWay)?,
        };
        salvage::confirm(&disk, dir, log, self.sources.saver.documents(), &info)?;
        tracing::warn!(
            target: "server", begin_lsn = info.begin_lsn.get(), rows = info.rows(),
            "the forced recovery is confirmed; writes are accepted"
        );
        if let Some(lost_before) = salvage::messages_lost_before(&self.sources.keyspace.data_settings()) {
            tracing::warn!(
                target: "server", %lost_before,
                "all earlier messages of durable channels are lost with the damaged log; their readers are told (LOST, xlost)"
            );
        }
        let figures = &mut self.state.lock().figures;
        figures.newest_is(&info);
        figures.changes_at_last = self.sources.changes();
        Ok(())
    }

    /// Whether an automatic snapshot is due: something was written since the last one, no attempt has failed
    /// or was cancelled lately, and the log has grown enough or enough time has passed.
    fn is_due(&self, log: &Log, figures: &Figures) -> bool {
        let (growth_bytes, period_s) = {
            let settings = self.sources.config.current();
            (settings.integer(Key::SnapshotLogBytes), settings.integer(Key::SnapshotIntervalSeconds))
        };
        let now_ms = self.sources.unix_ms();
        let failed_lately = (figures.last_failed || figures.last_cancelled)
            && now_ms.saturating_sub(figures.failed_at_ms) < RETRY_MS;
        let node = &self.sources.node;
        // A snapshot is of no use while the tail of the log may still be cut.
        let has_nothing_to_keep = log.is_frozen() || node.is_witness() || node.is_stale();
        if failed_lately || has_nothing_to_keep || self.changes() == 0 {
            return false;
        }
        let grown_bytes = log.appended_lsn().bytes_since(figures.begin_lsn.unwrap_or(log.start_lsn()));
        let has_grown = growth_bytes > 0 && grown_bytes >= growth_bytes.max(figures.last_file_bytes);
        let age_ms = now_ms.saturating_sub(figures.last_unix_ms);
        has_grown || (period_s > 0 && age_ms >= period_s * 1000)
    }

    /// Takes a snapshot, logs its outcome and records it in the figures. The error is the reply to clients
    /// that wait for the snapshot.
    fn take_and_tell(&self, log: &Log) -> Result<(), String> {
        let (begun_ms, changes_before) = (self.sources.unix_ms(), self.sources.changes());
        self.state.lock().figures.running_since_ms = Some(begun_ms);
        let job = self.sources.node.traces.job("snapshot");
        let taken = self.take(log);
        let ended_ms = self.sources.unix_ms();
        if let Ok(Some(info)) = &taken {
            let figures = vec![
                ("sheaf.snapshot.rows", info.rows().into()),
                ("sheaf.snapshot.bytes", info.file_bytes().into()),
                ("sheaf.log.lsn", info.begin_lsn.get().into()),
            ];
            job.end(figures, None);
        } else if let Err(failure) = &taken {
            job.end(Vec::new(), Some(failure.to_string()));
        }
        let seconds = ended_ms.saturating_sub(begun_ms) / 1000;
        let is_cancelled = matches!(taken, Err(Failure::Stopping)) && self.state.lock().stop.is_none();
        match &taken {
            Ok(Some(info)) => tracing::info!(
                target: "server", begin_lsn = info.begin_lsn.get(), rows = info.rows(), bytes = info.file_bytes(),
                milliseconds = ended_ms.saturating_sub(begun_ms), "took a snapshot"
            ),
            Ok(None) => tracing::info!(target: "server", "nothing was written since the last snapshot"),
            Err(_) if is_cancelled => {
                tracing::info!(target: "server", "gave up a snapshot: BGSAVE CANCEL");
            }
            Err(Failure::Stopping) => {
                tracing::info!(target: "server", "gave up a snapshot: the server is stopping")
            }
            Err(failure) => tracing::error!(
                target: "server", error = %failure,
                "the snapshot failed; the data is safe in the log, but the next start takes longer"
            ),
        }
        let outcome = match &taken {
            Ok(_) => Ok(()),
            Err(_) if is_cancelled => Err(CANCELLED.into()),
            Err(failure) => Err(format!("ERR the snapshot failed: {failure}")),
        };
        let figures = &mut self.state.lock().figures;
        figures.running_since_ms = None;
        figures.last_seconds = Some(seconds);
        figures.last_failed = taken.is_err() && !is_cancelled;
        figures.last_cancelled = is_cancelled;
        match taken {
            Ok(info) => {
                figures.taken += 1;
                if let Some(info) = info {
                    figures.newest_is(&info);
                }
                figures.last_unix_ms = begun_ms;
                figures.changes_at_last = changes_before;
            }
            Err(_) => {
                figures.failures += u64::from(!is_cancelled);
                figures.failed_at_ms = ended_ms;
            }
        }
        outcome
    }

    fn take(&self, log: &Log) -> Result<Option<SnapshotInfo>, Failure> {
        let Sources { startup, node, keyspace, .. } = &self.sources;
        if node.is_witness() {
            return Err(Failure::Witness);
        }
        let disk: Arc<dyn Disk> = Arc::new(startup.disk.clone());
        let plan = SnapshotPlan {
            disk: &disk,
            dir: &startup.dir,
            log,
            begin_lsn: self.begin_lsn(log)?,
            parts: env::process::cores_available().clamp(1, WRITERS_MAX) as u32,
            chunk_bytes_aim: CHUNK_RAW_BYTES_AIM,
            compression: Compression::Lz4,
        };
        let Some((task, parts)) = SnapshotTask::begin(plan, keyspace)? else { return Ok(None) };
        let paces = Paces::default();
        self.copied_bytes.store(0, Relaxed);
        let summaries: Result<Vec<PartSummary>, Failure> = thread::scope(|scope| {
            let start = |(index, part)| {
                let write = || self.write_part(part, &paces);
                let name = format!("snapshot-{index}");
                thread::Builder::new().name(name).spawn_scoped(scope, write).map_err(Failure::Thread)
            };
            let started: Vec<_> = parts.into_iter().enumerate().map(start).collect();
            let ended = started.into_iter().map(|it| it?.join().unwrap_or_else(|panic| resume_unwind(panic)));
            // All threads are joined, even if one has failed.
            ended.collect::<Vec<_>>().into_iter().collect()
        });
        let summaries = summaries?;
        // Publishing removes the log before the snapshot, so documents must not need that log. If the log is
        // frozen, nothing of it is removed.
        let saver = &self.sources.saver;
        let is_needed = |saved: Option<Lsn>| saved.is_some_and(|saved_lsn| saved_lsn < task.meta().begin_lsn);
        if !log.is_frozen() && is_needed(saver.saved_lsn()) && is_needed(saver.save_all(log)?) {
            return Err(Failure::Unsaved);
        }
        Ok(Some(task.publish(summaries)?))
    }

    /// The position at which a snapshot begins, for keys and documents alike. `None` means the end of the
    /// log.
    ///
    /// Documents are saved first, as far as they are committed. If some documents wait for a replica, the
    /// snapshot begins at the last position up to which documents are saved. It cannot wait for them, because
    /// the replica may itself wait for a snapshot to copy.
    fn begin_lsn(&self, log: &Log) -> Result<Option<Lsn>, Failure> {
        let Sources { node, saver, .. } = &self.sources;
        let begin_lsn = node.snapshot_begin()?;
        // Documents of a frozen log are saved after the snapshot of the memory: see `salvage`.
        if log.is_frozen() || saver.save_committed(log)? {
            return Ok(begin_lsn);
        }
        let Some(saved_lsn) = saver.saved_lsn() else { return Ok(begin_lsn) };
        let saved_lsn = log.boundary_before(saved_lsn)?;
        Ok(Some(begin_lsn.map_or(saved_lsn, |begin_lsn| begin_lsn.min(saved_lsn))))
    }

    fn write_part(&self, mut part: PartTask<'_>, paces: &Paces) -> Result<PartSummary, Failure> {
        // Commands have priority. If the nice value cannot be set, the snapshot still works.
        let _ = env::thread::set_nice(15);
        let mut cpu_us = env::thread::cpu_time_us();
        while let Some(chunk) = self.captures.during(|| part.capture()) {
            let bytes = part.write(chunk)?;
            self.written_bytes.fetch_add(bytes, Relaxed);
            self.copied_bytes.fetch_add(part.take_copied_bytes(), Relaxed);
            let used_cpu_us = env::thread::cpu_time_us() - cpu_us;
            let pause_us = paces.pause_us(&self.sources, bytes, used_cpu_us);
            if self.cancelled.load(Relaxed) {
                return Err(Failure::Stopping);
            }
            if pause_us > 0 && self.state.lock().stop.is_none() {
                thread::sleep(Duration::from_micros(pause_us));
            }
            cpu_us += used_cpu_us;
        }
        Ok(part.finish()?)
    }
}

/// The pace of one snapshot, shared by its writers.
#[derive(Default)]
struct Paces {
    disk: Pace,
    cpu: Pace,
}

impl Paces {
    /// The pause of a writer after it has written `bytes` with `cpu_us` of CPU time.
    fn pause_us(&self, sources: &Sources, bytes: u64, cpu_us: u64) -> u64 {
        let (bytes_per_second, cpu_percent) = {
            let settings = sources.config.current();
            (settings.integer(Key::SnapshotRateBytes), settings.integer(Key::SnapshotCpuPercent))
        };
        let now_us = sources.clock.monotonic_us();
        let cpu_us_per_second = cpu_percent * 10_000 * env::process::cores_available() as u64;
        let disk_us = self.disk.pause_us(bytes, bytes_per_second, now_us);
        disk_us.max(self.cpu.pause_us(cpu_us, cpu_us_per_second, now_us))
    }
}

impl Figures {
    fn newest_is(&mut self, info: &SnapshotInfo) {
        self.last_unix_ms = info.created_unix_ms;
        self.last_file_bytes = info.file_bytes();
        self.begin_lsn = Some(info.begin_lsn);
    }
}
