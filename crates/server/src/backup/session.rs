//! Backup sessions: the files that a running server keeps for a backup, and the limits on keeping them.
//!
//! Invariants
//! - No bytes that were read after the end of a session are sent, not even from an open file, because the
//!   file's bytes may have been reused for another file. A reader therefore checks *after* each read whether
//!   the session has ended.
//! - There are at most [`SESSIONS_MAX`] sessions. Each ends at the latest after [`IDLE_US`] without a request
//!   or a piece sent, when the log after it has grown by `backup-retention-bytes`, or when the disk has no
//!   room for the log.
//! - A session from which nothing was copied does not block others: after [`GIVE_WAY_US`] it gives way to
//!   another one. It also keeps little log: it ends when the log has grown by a [share](UNUSED_LOG_SHARE) of
//!   `backup-retention-bytes`.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use engine::DocumentsCell;
use env::{Clock, File, RealDisk};
use lsn::Lsn;
use parking_lot::Mutex;
use recovery::snapshot_task::GENERATIONS;
use storage::{Admission, CopyPlan, Error, Log, Pin, retain_snapshots, snapshot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    documents::{CopiedTree, DocumentsCopy},
    pace::Pace,
    traces::{Job, Traces},
};
use backup::{Offer, OfferedFile, chain_digits};

/// The maximum number of sessions: each keeps an old snapshot and its log.
pub(crate) const SESSIONS_MAX: usize = 4;
/// The maximum number of concurrent transfers of a session. Each holds a few pieces of a file in memory.
pub(crate) const TRANSFERS_MAX: usize = 4;
/// A session ends after this time without a request or a piece sent.
const IDLE_US: u64 = 60_000_000;
/// An unused session keeps its place for this time when others need one.
const GIVE_WAY_US: u64 = 10_000_000;
/// Divisor of `backup-retention-bytes` for unused sessions.
const UNUSED_LOG_SHARE: u64 = 16;
/// The maximum number of attempts to pin the newest snapshot, which may be removed after it was found and
/// before it is pinned.
const PIN_TRIES: usize = 3;

/// The open sessions of a server.
pub(crate) struct Sessions {
    /// The limit of the CPU time that all transfers together use.
    pub(super) pace: Pace,
    open: Mutex<Vec<Arc<Session>>>,
    /// Where each session leaves a span; `None`: no spans are made.
    traces: Option<Arc<Traces>>,
    places: Arc<Semaphore>,
}

/// One open backup: the offered files, and the pins that keep them.
pub(crate) struct Session {
    id: String,
    dir: PathBuf,
    files: Vec<OfferedFile>,
    control: Vec<u8>,
    trees: Vec<CopiedTree>,
    catalog: Option<(String, Vec<u8>)>,
    end_lsn: Lsn,
    /// `None` once the session has ended.
    hold: Mutex<Option<Hold>>,
    begun_us: u64,
    last_asked_us: AtomicU64,
    transfers: Arc<Semaphore>,
}

/// The contents of a copy.
pub(crate) struct Plan {
    /// Snapshot and log.
    pub(crate) log: CopyPlan,
    /// Files of document databases.
    pub(crate) documents: DocumentsCopy,
}

/// Why no copy can be planned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Log(#[from] Error),
    #[error(transparent)]
    Documents(#[from] documents::StoreError),
}

/// The resources of an open session.
struct Hold {
    _pin: Pin,
    _place: OwnedSemaphorePermit,
    job: Option<Job>,
}

/// The source of the bytes of an offered file.
pub(crate) enum Content<'s> {
    /// The beginning of a file in the data directory.
    File { path: PathBuf, bytes: u64 },
    /// The beginning of an open file, which may have been removed from the directory.
    Open { file: Arc<dyn File>, bytes: u64 },
    /// The control file of the copy, or its catalog of documents.
    Bytes(&'s [u8]),
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions {
            pace: Pace::default(),
            open: Mutex::default(),
            traces: None,
            places: Arc::new(Semaphore::new(SESSIONS_MAX)),
        }
    }
}

impl Sessions {
    /// Sessions of which each leaves a span.
    pub(crate) fn traced(traces: Arc<Traces>) -> Sessions {
        Sessions { traces: Some(traces), ..Sessions::default() }
    }

    /// A permit for one more session, if one of the [`SESSIONS_MAX`] permits is free.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Plans a copy that starts with the snapshot at `resume`, or with the newest one. `None` if no snapshot
    /// can be used. Blocks.
    pub(crate) fn plan(
        dir: &Path,
        documents: &DocumentsCell,
        log: &Log,
        resume: Option<Lsn>,
    ) -> Result<Option<Plan>, PlanError> {
        let plan_from = |begin_lsn: Lsn| -> Result<Option<Plan>, PlanError> {
            // The log is planned last, so that it covers the document files.
            let documents = DocumentsCopy::plan(documents)?;
            let planned = log
                .plan_copy(begin_lsn, documents.catalog.is_some())?
                .filter(|_| documents.goes_with_log_from(begin_lsn));
            Ok(planned.map(|log| Plan { log, documents }))
        };
        if let Some(begin_lsn) = resume
            && let Some(plan) = plan_from(begin_lsn)?
        {
            return Ok(Some(plan));
        }
        for _ in 0..PIN_TRIES {
            let begins = snapshot::list_begins(&RealDisk, dir)?;
            let Some(newest) = begins.into_iter().find(|&begin| begin >= log.start_lsn()) else { break };
            if let Some(plan) = plan_from(newest)? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// Plans a copy of the log alone. Blocks.
    pub(crate) fn plan_log(log: &Log) -> Result<Plan, PlanError> {
        Ok(Plan { log: log.plan_copy_of_log()?, documents: DocumentsCopy::default() })
    }

    /// Opens a session of this name for a plan, in place of an earlier session of the same name.
    pub(crate) fn open(
        &self,
        (dir, clock): (&Path, &dyn Clock),
        log: &Log,
        id: String,
        plan: Plan,
        place: OwnedSemaphorePermit,
    ) -> Offer {
        let (begin_lsn, end_lsn) = (plan.log.begin_lsn, plan.log.end_lsn);
        tracing::info!(target: "server", session = id, begin_lsn = begin_lsn.get(), end_lsn = end_lsn.get(), "a copy of the files begins, for a backup or a replica");
        let job = self.traces.as_ref().map(|traces| traces.job("backup"));
        let session = self.add(Session::new(id, dir, plan, (place, job), clock.monotonic_us()));
        Offer {
            session: session.id.clone(),
            log_id: hex::encode(log.id()),
            begin_lsn: begin_lsn.get(),
            end_lsn: end_lsn.get(),
            end_chain: log.chain_at(end_lsn).ok().flatten().map(chain_digits),
            end_unix_ms: clock.unix_ms(),
            files: session.files.clone(),
        }
    }

    fn add(&self, session: Session) -> Arc<Session> {
        let session = Arc::new(session);
        let mut open = self.open.lock();
        Sessions::end_among(&mut open, |earlier| {
            (earlier.id == session.id).then_some("another of its name takes its place")
        });
        open.push(session.clone());
        session
    }

    /// The open session with this id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.open.lock().iter().find(|session| session.id == id).cloned()
    }

    /// Ends a session. `false` if no session has this name.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = self.end_those(|session| (session.id == id).then_some("it was asked to"));
        ended > 0
    }

    /// Ends the oldest unused session that is older than [`GIVE_WAY_US`]. `false` if none is.
    pub(crate) fn end_unused(&self, now_us: u64) -> bool {
        let mut open = self.open.lock();
        let mut unused: Vec<&Arc<Session>> = open.iter().filter(|session| session.is_unused()).collect();
        unused.retain(|session| now_us.saturating_sub(session.begun_us) > GIVE_WAY_US);
        let Some(oldest) = unused.into_iter().min_by_key(|session| session.begun_us).cloned() else {
            return false;
        };
        let reason = "it was not used, and another one needs its place";
        Sessions::end_among(&mut open, |session| (session.id == oldest.id).then_some(reason)) > 0
    }

    /// Ends the sessions that exceed a limit. `true` if there were any. Call once a second.
    pub(crate) fn end_due(&self, now_us: u64, retained_bytes_max: u64, log: &Log) -> bool {
        if self.open.lock().is_empty() {
            return false;
        }
        let is_full = log.admit(0) == Admission::NoRoom;
        let appended = log.appended_lsn();
        let reason = |session: &Session| {
            if now_us.saturating_sub(session.last_asked_us.load(Relaxed)) > IDLE_US {
                Some("no request for a minute")
            } else if appended.bytes_since(session.end_lsn) > retained_bytes_max {
                Some("the log has grown by more than backup-retention-bytes since it began")
            } else if session.is_unused()
                && appended.bytes_since(session.end_lsn) > retained_bytes_max / UNUSED_LOG_SHARE
            {
                Some("it was not used, and the log has grown since it began")
            } else if is_full {
                Some("the disk has no room for the log")
            } else {
                None
            }
        };
        self.end_those(reason) > 0
    }

    /// Ends the sessions for which `reason` returns a reason. Returns how many.
    fn end_those(&self, reason: impl Fn(&Session) -> Option<&'static str>) -> usize {
        Sessions::end_among(&mut self.open.lock(), reason)
    }

    fn end_among(open: &mut Vec<Arc<Session>>, reason: impl Fn(&Session) -> Option<&'static str>) -> usize {
        let before = open.len();
        open.retain(|session| match reason(session) {
            Some(reason) => {
                tracing::info!(target: "server", session = session.id, reason, "a copy of the files has ended");
                session.end(reason);
                false
            }
            None => true,
        });
        before - open.len()
    }
}

impl Session {
    fn new(
        id: String,
        dir: &Path,
        plan: Plan,
        (place, job): (OwnedSemaphorePermit, Option<Job>),
        now_us: u64,
    ) -> Session {
        let Plan { log: CopyPlan { end_lsn, files, control, pin, .. }, documents } = plan;
        let DocumentsCopy { trees, catalog, .. } = documents;
        let mut files: Vec<OfferedFile> =
            files.into_iter().map(|file| OfferedFile { name: file.name, bytes: file.bytes }).collect();
        files.extend(trees.iter().map(|tree| OfferedFile { name: tree.name.clone(), bytes: tree.bytes }));
        let catalog_file =
            |(name, bytes): &(String, Vec<u8>)| OfferedFile { name: name.clone(), bytes: bytes.len() as u64 };
        files.extend(catalog.as_ref().map(catalog_file));
        files.push(OfferedFile { name: CopyPlan::CONTROL_NAME.into(), bytes: control.len() as u64 });
        Session {
            id,
            dir: dir.to_path_buf(),
            files,
            control,
            trees,
            catalog,
            end_lsn,
            hold: Mutex::new(Some(Hold { _pin: pin, _place: place, job })),
            begun_us: now_us,
            last_asked_us: now_us.into(),
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
        }
    }

    /// The contents of an offered file.
    pub(crate) fn content(&self, name: &str) -> Option<Content<'_>> {
        if let Some((_, bytes)) = self.catalog.as_ref().filter(|(catalog, _)| catalog == name) {
            return Some(Content::Bytes(bytes));
        }
        if let Some(tree) = self.trees.iter().find(|tree| tree.name == name) {
            return Some(Content::Open { file: tree.file.clone(), bytes: tree.bytes });
        }
        let file = self.files.iter().find(|file| file.name == name)?;
        Some(match name {
            CopyPlan::CONTROL_NAME => Content::Bytes(&self.control),
            _ => Content::File { path: self.dir.join(&file.name), bytes: file.bytes },
        })
    }

    /// The permit to send one more file, unless [`TRANSFERS_MAX`] are being sent.
    pub(crate) fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        self.transfers.clone().try_acquire_owned().ok()
    }

    /// Notes a request, or that a piece of a file was sent.
    pub(crate) fn touch(&self, now_us: u64) {
        self.last_asked_us.fetch_max(now_us, Relaxed);
    }

    /// Whether no request has come since the session began.
    fn is_unused(&self) -> bool {
        self.last_asked_us.load(Relaxed) <= self.begun_us
    }

    /// Whether the session is over. If it is, its files may have been replaced, and bytes read from them
    /// before this call are not to be trusted.
    pub(crate) fn has_ended(&self) -> bool {
        self.hold.lock().is_none()
    }

    /// Marks the session as ended; only then are the pins dropped.
    fn end(&self, reason: &'static str) {
        let hold = self.hold.lock().take();
        if let Some(job) = hold.and_then(|hold| hold.job) {
            let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
            job.end(vec![("sheaf.backup.bytes", bytes.into()), ("sheaf.backup.end", reason.into())], None);
        }
    }
}

/// Removes files that only sessions have kept. Blocks.
pub(crate) fn remove_unpinned(dir: &Path, log: &Log) {
    if let Err(error) = retain_snapshots(&RealDisk, dir, log, GENERATIONS) {
        tracing::warn!(
            target: "server", %error,
            "cannot remove files that a backup has kept; the next snapshot tries again"
        );
    }
}

#[cfg(test)]
mod tests {
    use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
    use storage::{
        Appender, LogOptions, Prepare, Recovery,
        snapshot::{Compression, SnapshotWriter},
    };

    use super::*;

    const RETAINED_BYTES_MAX: u64 = 100_000;

    /// A log with an empty snapshot at its start.
    fn log_with_snapshot() -> Log {
        log_on(&SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() }))
    }

    fn log_on(disk: &Arc<SimDisk>) -> Log {
        let dir = Path::new("/data");
        let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
        let mut recovery = Recovery::open(disk.clone(), dir, options, &SimEntropy::new(1)).unwrap();
        assert!(recovery.next_batch().unwrap().is_none());
        let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
        let meta = log.begin_snapshot(Compression::None);
        let (writer, parts) = SnapshotWriter::create(disk.clone(), dir, meta, 1).unwrap();
        let summaries = parts.into_iter().map(|part| part.finish().unwrap()).collect();
        writer.publish(summaries, meta.begin_lsn).unwrap();
        log
    }

    fn open(sessions: &Sessions, log: &Log, id: &str, now_us: u64) -> Option<Arc<Session>> {
        let place = sessions.place()?;
        let log = log.plan_copy(Lsn::ZERO, false).unwrap().expect("the snapshot is there");
        let plan = Plan { log, documents: DocumentsCopy::default() };
        Some(sessions.add(Session::new(id.into(), Path::new("/data"), plan, (place, None), now_us)))
    }

    fn write(appender: &mut Appender, bytes: usize) {
        appender.reserve(&vec![7; bytes]).unwrap().publish();
        appender.log().flush_all().unwrap();
    }

    #[test]
    fn sessions_end_when_nobody_asks_or_too_much_is_kept() {
        let (sessions, log) = (Sessions::default(), log_with_snapshot());
        let (idle, used) =
            (open(&sessions, &log, "idle", 0).unwrap(), open(&sessions, &log, "used", 0).unwrap());
        assert!(!sessions.end_due(IDLE_US, RETAINED_BYTES_MAX, &log));
        used.touch(IDLE_US);
        assert!(sessions.end_due(IDLE_US + 1, RETAINED_BYTES_MAX, &log));
        assert!(idle.has_ended() && !used.has_ended());
        assert!(sessions.find("idle").is_none() && sessions.find("used").is_some());

        let mut appender = log.appender();
        write(&mut appender, RETAINED_BYTES_MAX as usize / 2);
        assert!(!sessions.end_due(IDLE_US + 1, RETAINED_BYTES_MAX, &log));
        let unused = open(&sessions, &log, "unused", IDLE_US).unwrap();
        write(&mut appender, (RETAINED_BYTES_MAX / UNUSED_LOG_SHARE) as usize + 1);
        assert!(sessions.end_due(IDLE_US + 1, RETAINED_BYTES_MAX, &log));
        assert!(unused.has_ended() && !used.has_ended(), "a session of no use keeps little");
        assert!(!log.truncate_before(log.durable_lsn()).unwrap(), "it is still pinned");
        let later = open(&sessions, &log, "later", IDLE_US).unwrap();
        later.touch(IDLE_US + 1);
        write(&mut appender, RETAINED_BYTES_MAX as usize / 2);
        assert!(sessions.end_due(IDLE_US + 1, RETAINED_BYTES_MAX, &log));
        assert!(used.has_ended() && !later.has_ended(), "the offered file is longer");
        assert!(sessions.end("later") && later.has_ended() && !sessions.end("later"));
        assert!(log.truncate_before(log.durable_lsn()).unwrap());
    }

    #[test]
    fn sessions_end_when_the_disk_has_no_room_for_the_log() {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        let (sessions, log) = (Sessions::default(), log_on(&disk));
        let session = open(&sessions, &log, "s", 0).unwrap();
        while log.prepare_segment().unwrap() == Prepare::Made {}
        assert!(!sessions.end_due(0, u64::MAX, &log) && !session.has_ended());
        disk.set_space_limit(Some(0));
        let mut appender = log.appender();
        while log.prepare_segment().unwrap() != Prepare::NoRoom {
            write(&mut appender, 100_000);
        }
        assert!(sessions.end_due(0, u64::MAX, &log) && session.has_ended());
    }

    #[test]
    fn a_session_takes_the_place_of_an_earlier_one_of_its_name() {
        let (sessions, log) = (Sessions::default(), log_with_snapshot());
        let other = open(&sessions, &log, "other", 0).unwrap();
        let mut earlier = open(&sessions, &log, "name", 0).unwrap();
        // A client that is killed again and again, here more often than there are places, takes up one place.
        for _ in 0..2 * SESSIONS_MAX {
            let later = open(&sessions, &log, "name", 0).expect("a place");
            assert!(earlier.has_ended() && !later.has_ended() && !other.has_ended());
            assert!(sessions.find("name").is_some_and(|found| Arc::ptr_eq(&found, &later)));
            earlier = later;
        }
    }

    #[test]
    fn there_are_only_so_many_sessions_and_transfers() {
        let (sessions, log) = (Sessions::default(), log_with_snapshot());
        let open_one = |id| open(&sessions, &log, id, 0);
        let opened: Vec<_> =
            ["a", "b", "c", "d"].into_iter().map(|id| open_one(id).expect("a place")).collect();
        assert_eq!(opened.len(), SESSIONS_MAX);
        assert!(open_one("e").is_none());
        let transfers: Vec<_> =
            (0..TRANSFERS_MAX).map(|_| opened[0].transfer().expect("a transfer")).collect();
        assert!(opened[0].transfer().is_none() && opened[1].transfer().is_some());
        drop(transfers);
        assert!(opened[0].transfer().is_some());
        opened[0].touch(1);
        assert!(!sessions.end_unused(GIVE_WAY_US), "all are young");
        assert!(sessions.end_unused(GIVE_WAY_US + 1));
        assert!(!opened[0].has_ended() && opened[1].has_ended(), "one that was used does not give way");
        assert!(open_one("b").is_some());
        // The place of an ended session is free even while a reference to the session exists.
        assert!(sessions.end("a"));
        assert!(open_one("e").is_some());
    }

    #[test]
    fn only_offered_files_are_sent() {
        let (sessions, log) = (Sessions::default(), log_with_snapshot());
        let session = open(&sessions, &log, "s", 0).unwrap();
        for name in ["", "sheaf.lock", "../control", "/data/control", "snapshots", "log-0000000000100000.seg"]
        {
            assert!(session.content(name).is_none(), "{name}");
        }
        assert!(matches!(session.content("control"), Some(Content::Bytes(bytes)) if bytes.len() == 88));
        let Some(Content::File { path, bytes }) = session.content("log-0000000000000000.seg") else {
            panic!("a file")
        };
        assert_eq!((path, bytes), (PathBuf::from("/data/log-0000000000000000.seg"), 2 * 4096));
    }
}
