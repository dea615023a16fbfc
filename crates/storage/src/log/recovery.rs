//! Recovery: opens a directory, finds the log, replays its records, then continues writing at its end.
//!
//! ```text
//! Recovery::open -> [start_at a snapshot] -> next_batch* (the caller applies) -> finish -> Log
//! Recovery::salvage -> the same, past damage -> with losses: freeze -> Log without writes yet; else finish
//! ```
//!
//! Logs that are only read are opened with [`Recovery::open_to_read`] and can be read up to any record
//! ([`Recovery::read_until`]). A log that continues the state of another log is created with
//! [`Recovery::create_behind`].
//!
//! An existing log does not change on disk before [`Recovery::finish`], so a server that fails to start does
//! no harm. The steps of `finish` have this order, and each of the first three is durable before the next, so
//! that recovery gives the same result after a crash anywhere:
//! 1. the torn tail, if any, is copied to `torn-<lsn>.bin` and overwritten with zeros, up to
//!    [`TORN_BYTES_MAX`];
//! 2. segments that a file system has truncated are extended to their full length;
//! 3. the control file is replaced: a higher epoch, no clean end;
//! 4. forgotten segments that a crash has kept from being removed, and the files of unfinished snapshots, are
//!    removed;
//! 5. a segment is created if none is left to write to.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use env::{Access, Clock, Disk, Entropy, RingMemory};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};

use super::{
    Log, LogOptions, LogState, SegmentQueue,
    chains::Chains,
    commit::UNASKED,
    control::{Control, ControlState, Start},
    cursor::Recent,
    ending::Ending,
    flush_times::FlushTimes,
    flusher::Flusher,
    footer::REIGN_STEP_MAX,
    mirror::{promoted_epoch, require_left},
    reader::{Batch, LogReader, Tail, refuse_lost_control},
    record::{BLOCK_BYTES, RecordKind},
    salvage::Hole,
    segment::{self, Segment},
    sequencer::Sequencer,
    waiters::Waiters,
};
use crate::{
    Damage, Error, LogStats,
    snapshot::{self, SnapshotInfo},
    sync::{AtomicBool, AtomicU64},
};

/// The maximum bytes of a torn tail that are copied and overwritten. This is more than the largest batch of
/// an ordinary ring.
const TORN_BYTES_MAX: u64 = 64 << 20;

/// A log being recovered.
pub struct Recovery {
    pub(super) reader: LogReader,
    pub(super) options: LogOptions,
    pub(super) tail: Option<Tail>,
    chains: Chains,
    end_estimate: Lsn,
    has_snapshot: bool,
    /// The difference between the next reign and the last one; 0 for a log that is only read.
    pub(super) reign_step: u64,
    /// Records after this position are not replayed.
    until: Lsn,
    reached: Reached,
}

/// The last record of a replay, not counting records up to the end of the snapshot at which it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The LSN of the last record; if there is none, where the log starts, or the end of the snapshot from
    /// which the replay starts.
    pub lsn: Lsn,
    /// When the batch of that record was closed, in milliseconds since 1970; `None` if there is no such
    /// record.
    pub closed_at_ms: Option<u64>,
}

impl Recovery {
    /// Opens the log in `dir`, or creates a new one.
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if files are missing, of another log or of another version, or the
    /// control file or the header of a segment is damaged.
    ///
    /// # Panics
    /// If the options are out of range.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        entropy: &dyn Entropy,
    ) -> Result<Recovery, Error> {
        options.assert_valid();
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        env::crashsafe::remove_leftovers(&*disk, dir).map_err(Error::io("clean", dir))?;
        if Control::load(&*disk, dir)?.is_none() {
            create(&*disk, dir, &Control::new(&options, entropy))?;
        }
        Self::over(LogReader::open(disk, dir, Access::ReadWrite)?, options, reign_step(entropy))
    }

    /// Opens the log of a directory that is not in use, only for reading: nothing is changed there, and
    /// `finish` must not be called.
    ///
    /// # Errors
    /// As [`Recovery::open`], and if there is no log.
    pub fn open_to_read(disk: Arc<dyn Disk>, dir: &Path) -> Result<Recovery, Error> {
        Self::over(LogReader::open(disk, dir, Access::Read)?, LogOptions::default(), 0)
    }

    /// Creates a log in the empty directory `dir` whose first position is `start`, a batch boundary, and
    /// opens it. The state before `start` is in a snapshot that begins there and is still to be written:
    /// without it, recovery refuses the directory. `reign` is the last reign of the log from which the state
    /// comes.
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if the directory has a log already.
    ///
    /// # Panics
    /// If `start` is not a multiple of the block size or the options are out of range.
    pub fn create_behind(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        entropy: &dyn Entropy,
        clock: Arc<dyn Clock>,
        (start, reign): (Lsn, u64),
    ) -> Result<Log, Error> {
        options.assert_valid();
        assert!(start.is_aligned(BLOCK_BYTES), "lsn {start} is no batch boundary");
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        if Control::load(&*disk, dir)?.is_some() {
            let reason = "there is a log already".into();
            return Err(Error::Inconsistent { path: dir.to_path_buf(), reason });
        }
        let new = Control::new(&options, entropy);
        let begin = Start { reign, ..new.start };
        let new = Control { log_start: start, needs_snapshot: true, start: begin, ..new };
        create(&*disk, dir, &new)?;
        let reader = LogReader::open(disk, dir, Access::ReadWrite)?;
        let mut recovery = Self::over(reader, options, reign_step(entropy))?;
        recovery.has_snapshot = true;
        let batch = recovery.next_batch()?;
        assert!(batch.is_none(), "nothing was written yet");
        recovery.finish(clock)
    }

    fn over(reader: LogReader, options: LogOptions, reign_step: u64) -> Result<Recovery, Error> {
        if reader.segments().is_empty() {
            let path = reader
                .dir()
                .join(segment::file_name(reader.position().align_down(reader.control().segment_bytes)));
            let reason =
                "the log's segment files are missing; restore them from a backup or a replica".into();
            return Err(Error::Inconsistent { path, reason });
        }
        let end_estimate = estimate_end(&reader)?;
        Ok(Self::reading(reader, options, (end_estimate, reign_step)))
    }

    fn reading(reader: LogReader, options: LogOptions, (end_estimate, reign_step): (Lsn, u64)) -> Recovery {
        let (chains, reached) =
            (Chains::from(reader.position()), Reached { lsn: reader.position(), closed_at_ms: None });
        let (tail, has_snapshot, until) = (None, false, Lsn::MAX);
        Recovery { reader, options, tail, chains, end_estimate, has_snapshot, reign_step, until, reached }
    }

    /// Opens the damaged log in `dir` to read its intact parts. Damage is not an error: see
    /// [`Recovery::holes`].
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if the log cannot be identified or is of another version.
    ///
    /// # Panics
    /// If the options are out of range.
    pub fn salvage(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        entropy: &dyn Entropy,
    ) -> Result<Recovery, Error> {
        options.assert_valid();
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        env::crashsafe::remove_leftovers(&*disk, dir).map_err(Error::io("clean", dir))?;
        if matches!(Control::inspect(&*disk, dir)?, ControlState::Damaged(_))
            && Control::load(&*disk, dir).is_ok_and(|control| control.is_none())
        {
            match create(&*disk, dir, &Control::new(&options, entropy)) {
                // The directory is not empty: the reader below reports its state.
                Err(Error::Inconsistent { .. }) => {}
                other => other?,
            }
        }
        let reader = LogReader::salvage(disk, dir)?;
        let end_estimate = reader.segments_end();
        Ok(Self::reading(reader, options, (end_estimate, reign_step(entropy))))
    }

    /// The damaged places that a salvage has found so far.
    pub fn holes(&self) -> &[Hole] {
        self.reader.salvage.as_ref().map_or(&[], |salvage| &salvage.holes)
    }

    /// The reign of the last batch read, or the reign before the log's first batch.
    pub fn reign(&self) -> u64 {
        self.reader.before().reign
    }

    /// The random id of the log.
    pub fn log_id(&self) -> [u8; 16] {
        self.reader.control().log_id
    }

    /// Starts the replay at the beginning of a snapshot. The caller loads the snapshot, before or after this
    /// call, and applies a record to a slot only if the record is newer than the slot's state in the
    /// snapshot. Must be called before the first batch is read.
    ///
    /// A split record whose first part lies before the beginning of the snapshot is skipped. Its writer held
    /// the locks of its slots while it wrote all parts, so the capture of each slot includes the record.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if the snapshot belongs to another log or begins before the log does. Without
    /// salvage, also if the log's files end before the end of the snapshot, or if no batch of the log ends at
    /// the beginning of the snapshot. Damage of the log in between is detected only when it is read.
    pub fn start_at(&mut self, snapshot: &SnapshotInfo) -> Result<(), Error> {
        let SnapshotInfo { begin_lsn, end_lsn, .. } = *snapshot;
        let (log_start, segments_end) = (self.start(), self.reader.segments_end());
        let before = self.reader.footer_before(begin_lsn)?;
        let refused = if snapshot.log_id != self.reader.control().log_id {
            Some("belongs to another log; remove it".to_owned())
        } else if begin_lsn < log_start {
            Some(format!("needs the log from there on, which starts at lsn {log_start}; it cannot be used"))
        } else if self.reader.salvage.is_some() {
            // A salvage reports missing parts of the log as holes.
            None
        } else if end_lsn > segments_end {
            Some(format!(
                "needs the log up to lsn {end_lsn}, whose files end at lsn {segments_end}; restore those that are \
                 missing from a backup or a replica"
            ))
        } else if begin_lsn > log_start && before.is_none() {
            Some(
                "begins where no batch of the log ends: the log is damaged there or older than the snapshot; restore \
                 it from a backup or a replica"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(refused) = refused {
            let path = snapshot::directory(self.reader.dir());
            let reason = format!("the snapshot of lsn {begin_lsn} {refused}");
            return Err(Error::Inconsistent { path, reason });
        }
        self.reader.start_at(snapshot, before);
        self.chains = Chains::from(begin_lsn);
        self.has_snapshot = true;
        self.reached.lsn = end_lsn;
        Ok(())
    }

    /// Reads the log from its start, even if it needs a snapshot: for a server that keeps the log and no
    /// state. Must be called before the first batch is read. The state before the log is unknown, so its
    /// records alone do not give the data.
    pub fn without_state(&mut self) {
        self.has_snapshot = true;
    }

    /// Ends the replay with the last record at or before `lsn`. If the replay starts at a snapshot, `lsn`
    /// must not lie before the end of the snapshot.
    pub fn read_until(&mut self, lsn: Lsn) {
        self.until = lsn;
    }

    /// The last position that the replay may reach.
    pub fn until(&self) -> Lsn {
        self.until
    }

    /// The last record of the replay.
    pub fn reached(&self) -> Reached {
        self.reached
    }

    /// Whether the log needs a snapshot: if so, it is read only after [`Recovery::start_at`] or
    /// [`Recovery::without_state`], or by a salvage.
    pub fn needs_snapshot(&self) -> bool {
        self.reader.control().needs_snapshot
    }

    /// The next batch; `None` at the end of the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if durable bytes are damaged; I/O errors; [`Error::Inconsistent`] if the log needs
    /// a snapshot and none was given.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.needs_snapshot() && !self.has_snapshot && self.reader.salvage.is_none() {
            return Err(snapshot::missing(self.reader.dir(), self.start()));
        }
        match self.reader.next_batch()? {
            Ok(batch) => Ok(Some(batch)),
            Err(tail) => {
                self.tail = Some(tail);
                Ok(None)
            }
        }
    }

    /// Calls `apply(lsn, payload)` for every payload of the log, in order, with split payloads reassembled.
    /// `progress` is called with the end of every batch that was replayed whole.
    ///
    /// # Errors
    /// As [`Recovery::next_batch`], and the errors of `apply`.
    pub fn replay<E: From<Error>>(
        &mut self,
        mut apply: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
        mut progress: impl FnMut(Lsn),
    ) -> Result<(), E> {
        let mut chains = std::mem::replace(&mut self.chains, Chains::from(Lsn::MAX));
        let (until, mut reached) = (self.until, self.reached);
        let (mut expected, mut cut_chains) = (self.reader.position(), Vec::new());
        let mut after_hole = false;
        'replay: while let Some(batch) = self.next_batch()? {
            if batch.start != expected {
                chains.cut(batch.start);
                after_hole = true;
            }
            expected = batch.end;
            for record in batch.records() {
                if record.lsn > until {
                    break 'replay;
                }
                match chains.payload(&record).map_err(E::from)? {
                    Some(payload) => apply(record.lsn, &payload)?,
                    None if record.kind == RecordKind::Last => {
                        if after_hole && let Some(begin) = chains.cut_begin(record.payload) {
                            cut_chains.push((begin, record.lsn));
                        }
                    }
                    None => continue,
                }
                // Records up to the end of the snapshot are replayed, too, but do not count.
                if record.lsn > reached.lsn {
                    reached = Reached { lsn: record.lsn, closed_at_ms: Some(batch.closed_at_ms) };
                }
            }
            progress(batch.end);
        }
        (self.reached, self.chains) = (reached, chains);
        cut_chains.into_iter().for_each(|(begin, lsn)| self.reader.note_cut_chain(begin, lsn));
        Ok(())
    }

    /// The incomplete payloads of the replay, for a caller that continues with records written later.
    pub fn take_chains(&mut self) -> Chains {
        std::mem::replace(&mut self.chains, Chains::from(Lsn::MAX))
    }

    /// Bytes of log that a segment holds.
    pub fn segment_bytes(&self) -> u64 {
        self.reader.control().segment_bytes
    }

    /// The position at which the log starts.
    pub fn start(&self) -> Lsn {
        self.reader.control().log_start
    }

    /// Whether documents were saved in files of their own.
    pub fn has_documents(&self) -> bool {
        self.reader.control().has_documents
    }

    /// The approximate end of the log, for progress reports; too high in a salvage, and if segments were
    /// recycled.
    pub fn end_estimate(&self) -> Lsn {
        self.end_estimate
    }

    /// The end of the log; `None` until [`Recovery::next_batch`] has returned `None`.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Removes the torn tail and opens the log for writing after its last complete batch.
    ///
    /// # Errors
    /// I/O errors, for example a full disk; [`Error::Inconsistent`] if no epoch is left. A later recovery
    /// finds the same records.
    ///
    /// # Panics
    /// If the log was not read to its end.
    pub fn finish(self, clock: Arc<dyn Clock>) -> Result<Log, Error> {
        let old = self.reader.control();
        // Batches that were copied from another server have lower epochs than batches written from now on.
        let mirrored_epoch = if old.is_mirror() { self.reader.before().epoch } else { old.mirrored_epoch };
        let seen = old.epoch.max(self.reader.before().epoch);
        let epoch = if old.is_mirror() { promoted_epoch(seen) } else { seen.saturating_add(1) };
        require_left(epoch, seen, self.reader.dir())?;
        let control = Control { epoch, mirrored_epoch, clean_end: None, ..*old };
        let reign = self.next_reign();
        self.open_behind_end(control, reign, clock)
    }

    /// The reign of a leader that begins at the end of the log.
    pub(super) fn next_reign(&self) -> u64 {
        self.reign().saturating_add(self.reign_step)
    }

    /// Opens the log after its last batch, with `control` as the new control file.
    pub(super) fn open_behind_end(
        self,
        control: Control,
        reign: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Log, Error> {
        let tail = self.tail.as_ref().expect("the log was read to its end");
        let end = tail.end;
        if let Some(torn_end) = tail.torn_end {
            self.cut_torn_tail(tail, torn_end)?;
        }
        let disk = self.reader.disk().clone();
        let dir = self.reader.dir().to_path_buf();
        for segment in self.reader.segments().iter().filter(|segment| segment.end > end) {
            segment.restore_length()?;
        }
        control.store(&*disk, &dir)?;
        remove_forgotten(&*disk, &dir, &control)?;
        if let Err(error) = snapshot::remove_leftovers(&*disk, &dir) {
            tracing::warn!(target: "storage", %error, "cannot remove the files of an unfinished snapshot");
        }

        let before = self.reader.before();
        let options = LogOptions { segment_bytes: control.segment_bytes, ..self.options }.fitting();
        let mut segments: VecDeque<Segment> =
            self.reader.into_segments().into_iter().filter(|segment| segment.end > end).collect();
        if segments.is_empty() {
            let start = end.align_down(control.segment_bytes);
            segments.push_back(Segment::create(&*disk, &dir, &control, start, None)?);
        }
        let prepared_end = segments.back().expect("at least one segment").end;
        let active = segments.pop_front().expect("at least one segment");
        let flusher = Flusher::new(Some(active), before, clock.monotonic_us());
        open((disk, clock, dir), options, (control, reign), flusher, (end, prepared_end), segments)
    }

    /// Copies the torn tail, at most [`TORN_BYTES_MAX`] of it, to a file for inspection, and overwrites it
    /// with zeros.
    fn cut_torn_tail(&self, tail: &Tail, torn_end: Lsn) -> Result<(), Error> {
        let torn_end = torn_end.min(tail.end.advance(TORN_BYTES_MAX)).min(self.reader.segments_end());
        let mut torn = Vec::new();
        for segment in self.reader.segments().iter().filter(|it| it.end > tail.end && it.start < torn_end) {
            let (from, to) = (segment.start.max(tail.end), segment.end.min(torn_end));
            let old = torn.len();
            torn.resize(old + to.bytes_since(from) as usize, 0);
            let read = segment.file.read_at(&mut torn[old..], segment.offset(from));
            torn.truncate(old + read.map_err(Error::io("read", &segment.path))?);
        }
        let path = self.reader.dir().join(format!("torn-{:016x}.bin", tail.end.get()));
        env::crashsafe::write_atomically(&**self.reader.disk(), &path, &torn)
            .map_err(Error::io("write", &path))?;
        tracing::warn!(
            target: "storage", lsn = tail.end.get(), bytes = torn.len(), reason = %tail.reason, kept = %path.display(),
            "the last write was interrupted and had not been acknowledged; it was cut off"
        );
        for segment in self.reader.segments().iter().filter(|it| it.end > tail.end && it.start < torn_end) {
            let (from, to) = (segment.start.max(tail.end), segment.end.min(torn_end));
            let zeros = vec![0; to.bytes_since(from) as usize];
            let zeroed = segment
                .file
                .write_all_at(&zeros, segment.offset(from))
                .and_then(|()| segment.file.sync_data());
            zeroed.map_err(Error::io("write", &segment.path))?;
        }
        Ok(())
    }
}

/// A random step from one reign to the next, from 1 to [`REIGN_STEP_MAX`].
fn reign_step(entropy: &dyn Entropy) -> u64 {
    1 + entropy.random_u64() % REIGN_STEP_MAX
}

/// A log whose positions are all at `end`, with segments up to `prepared_end`.
pub(super) fn open(
    (disk, clock, dir): (Arc<dyn Disk>, Arc<dyn Clock>, PathBuf),
    options: LogOptions,
    (control, reign): (Control, u64),
    flusher: Flusher,
    (end, prepared_end): (Lsn, Lsn),
    segments: VecDeque<Segment>,
) -> Result<Log, Error> {
    let ring =
        RingMemory::new(options.ring_bytes as usize).map_err(Error::io("map the log ring for", &dir))?;
    Ok(Log {
        shared: Arc::new(LogState {
            sequencer: Sequencer::new(end.get(), options.ring_bytes, options.appenders_max),
            written: AtomicU64::new(end.get()),
            durable: AtomicU64::new(end.get()),
            acked: AtomicU64::new(UNASKED),
            prepared_end: AtomicU64::new(prepared_end.get()),
            wanted_end: AtomicU64::new(0),
            maker: OnceLock::new(),
            wake_flusher: OnceLock::new(),
            durability: (options.durability as u8).into(),
            poisoned: AtomicBool::new(false),
            poison_reason: Mutex::new(None),
            frozen: AtomicBool::new(false),
            unadopted: AtomicBool::new(false),
            no_room: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            no_room_reason: Mutex::new(None),
            flush_started_us: AtomicU64::new(0),
            free_appenders: Mutex::new((0..options.appenders_max).rev().collect()),
            waiters: Waiters::new(options.appenders_max),
            pins: Mutex::default(),
            recent: Recent::default(),
            ending: Ending::default(),
            flush_times: FlushTimes::default(),
            preparing: Mutex::new(()),
            segments: Mutex::new(SegmentQueue { ready: segments, recyclable: Vec::new() }),
            epoch: control.epoch.into(),
            reign: AtomicU64::new(reign),
            mirroring: AtomicBool::new(control.is_mirror()),
            mirror_vouched: AtomicU64::new(0),
            id: control.log_id,
            start: control.log_start.get().into(),
            control: Mutex::new(control),
            flusher: Mutex::new(flusher),
            progress: (Mutex::new(()), Condvar::new()),
            stats: LogStats::default(),
            disk,
            clock,
            dir,
            options,
            ring,
        }),
    })
}

/// Creates a new log in a directory that has none: the first segment, then the control file that names it.
/// Replaces the segment of an interrupted first start.
fn create(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<(), Error> {
    refuse_lost_control(disk, dir)?;
    if !segment::list(disk, dir)?.is_empty() {
        let path = dir.join(segment::file_name(Lsn::ZERO));
        disk.remove(&path).map_err(Error::io("remove", &path))?;
    }
    Segment::create(disk, dir, control, control.log_start.align_down(control.segment_bytes), None)?;
    control.store(disk, dir)
}

/// Removes segments before the start of the log. A segment that cannot be removed only costs space, so this
/// is only logged.
pub(super) fn remove_forgotten(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<(), Error> {
    let first = control.log_start.align_down(control.segment_bytes);
    for start in segment::list(disk, dir)?.into_iter().filter(|&start| start < first) {
        let path = dir.join(segment::file_name(start));
        if let Err(error) = disk.remove(&path) {
            tracing::warn!(target: "storage", %error, path = %path.display(), "cannot remove a segment that is not needed");
        }
    }
    Ok(())
}

/// Finds the approximate end of the log by bisecting for the first blank block: segments are filled from the
/// front.
fn estimate_end(reader: &LogReader) -> Result<Lsn, Error> {
    let blocks = |lsn: Lsn| lsn.get() / BLOCK_BYTES;
    let mut block = vec![0; BLOCK_BYTES as usize];
    let (mut used, mut blank) = (blocks(reader.position()), blocks(reader.segments_end()));
    while used < blank {
        let middle = used + (blank - used) / 2;
        let position = Lsn::new(middle * BLOCK_BYTES);
        let segment = reader.segments().iter().find(|it| it.start <= position && position < it.end);
        let segment = segment.expect("segments are contiguous");
        let read = segment.file.read_at(&mut block, segment.offset(position));
        let read = read.map_err(Error::io("read", &segment.path))?;
        if block[..read].iter().any(|&byte| byte != 0) { used = middle + 1 } else { blank = middle }
    }
    Ok(Lsn::new(used * BLOCK_BYTES))
}

impl Damage {
    /// The file name without its directory.
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
