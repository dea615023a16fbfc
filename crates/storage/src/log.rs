//! The log: one ring in memory, one stream of segments on disk, merged batches in between.
//!
//! ```text
//! appenders (workers)          flusher (log thread, or the only writer itself)         disk
//! reserve -> fill -> publish   close batch -> ONE write -> durable -> wake waiters     log-*.seg
//! ```
//!
//! Group commit without a timer: all records reserved while one batch is being written form the next batch;
//! when no write is in flight, a record is written at once. The log itself gathers records only while a flush
//! is in flight; the server's threads may gather them for longer if nobody waits for the disk. The log owns
//! no thread: the server runs [`Log::flush`] and [`Log::prepare_segment`] in loops.
//!
//! Positions, always in this order: `durable <= written <= published <= appended`, and `written <= prepared
//! end`. Admission keeps `appended` below the prepared end for ordinary records.
//!
//! Sources: LevelDB's writer queue, RavenDB's transaction merger (a commit in flight lets the next one grow),
//! Aether (VLDB 2010: flush pipelining, replies held back instead of locks).

pub(crate) mod appender;
mod chains;
pub(crate) mod check;
mod commit;
pub(crate) mod control;
mod copying;
mod cursor;
pub(crate) mod cut;
mod ending;
pub(crate) mod flush_times;
mod flusher;
pub(crate) mod footer;
mod frozen;
pub(crate) mod mirror;
pub(crate) mod options;
mod pins;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod recovery;
mod reopening;
pub(crate) mod retention;
pub(crate) mod salvage;
pub(crate) mod segment;
pub(crate) mod sequencer;
mod skip;
mod space;
pub(crate) mod waiters;
mod walk;

#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU32},
    },
};

use env::{Clock, Disk, RingMemory};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};

pub use appender::{Appender, Pending};
pub use chains::Chains;
pub use copying::{CopiedFile, CopyPlan};
pub use cursor::{BatchInfo, Chunk, CursorRead, LogCursor, batches_in};
pub use flush_times::FlushTime;
pub use flusher::Flush;
pub use mirror::{Mirror, MirrorError};
pub use options::{Durability, LogOptions};
pub use pins::Pin;
pub use space::Prepare;

use self::{
    cursor::Recent, ending::Ending, flush_times::FlushTimes, flusher::Flusher, pins::Pins, segment::Segment,
    sequencer::Sequencer, space::NoRoom, waiters::Waiters,
};
use crate::{
    Control, Error, LogStats,
    snapshot::{Compression, SnapshotMeta},
    sync::{AtomicBool, AtomicU64, Ordering},
};

/// A write or sync that takes longer than this is a stall of the disk: new writes fail while records wait for
/// it ([`Admission::Stalled`]).
pub const STALLED_US: u64 = 5_000_000;

/// Whether a write may be executed now. This is determined before the write is executed, so a refusal changes
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Execute the write.
    Go,
    /// Too many bytes are unwritten, or the next segment does not exist yet: check again after the next
    /// wake-up.
    Wait,
    /// The next segment cannot be created, usually because the disk is full. The server is read-only until
    /// the segment can be created, or is no longer needed.
    NoRoom,
    /// A forced recovery has left out damaged data: the log takes no writes until it is adopted and thawed.
    Frozen,
    /// Records are unwritten, and the write or sync in flight has taken more than 5 seconds.
    Stalled,
    /// The log is poisoned; the server is about to stop.
    Poisoned,
}

/// A handle to the log; clones share the log.
#[derive(Clone)]
pub struct Log {
    shared: Arc<LogState>,
}

/// Segments that are ready to be written, oldest first, and old ones waiting to be recycled.
#[derive(Default)]
struct SegmentQueue {
    ready: VecDeque<Segment>,
    recyclable: Vec<PathBuf>,
}

/// The state shared by appenders, flusher and segment maker.
struct LogState {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    options: LogOptions,
    epoch: AtomicU32,
    /// The reign of the batches closed here; for a mirror, of the log's last batch. See `footer`.
    reign: AtomicU64,
    /// Whether this log is a mirror: whole batches come from another server.
    mirroring: AtomicBool,
    /// The highest position for which a footer of a mirrored batch vouches.
    mirror_vouched: AtomicU64,
    ring: RingMemory,
    sequencer: Sequencer,
    /// Everything before this position is written: handed to the OS, or durable. A batch boundary.
    written: AtomicU64,
    /// Everything before this position survives a power cut. A batch boundary.
    durable: AtomicU64,
    /// Nothing after this position is committed, whatever this disk has; `UNASKED` if there is no such limit.
    /// See `commit`.
    acked: AtomicU64,
    /// Segments exist up to this position.
    prepared_end: AtomicU64,
    /// Segments were requested up to this position, which may lie beyond the usual reserve; 0 if none were,
    /// or if one could not be made.
    wanted_end: AtomicU64,
    durability: AtomicU8,
    poisoned: AtomicBool,
    poison_reason: Mutex<Option<String>>,
    /// Whether the log replaces another one after a forced recovery, and is not thawed yet. `no_room` is then
    /// set as well, so that `admit` needs no extra check.
    frozen: AtomicBool,
    /// Whether the control file on disk is still that of the log that this one replaces after a forced
    /// recovery. Cleared while `control` is locked.
    unadopted: AtomicBool,
    no_room: AtomicBool,
    /// Why a segment could not be made, at the last failure.
    no_room_reason: Mutex<Option<NoRoom>>,
    /// Whether the last call of [`Log::look_for_stall`] found a stall, and no write has ended since.
    stalled: AtomicBool,
    /// Monotonic microseconds at which the write or sync in flight began; 0 without one.
    flush_started_us: AtomicU64,
    /// The indices for new appenders. A listening appender that is dropped does not give its index back.
    free_appenders: Mutex<Vec<usize>>,
    waiters: Waiters,
    /// Wakes the caller of [`Log::prepare_segment`].
    maker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    wake_flusher: OnceLock<Box<dyn Fn() + Send + Sync>>,
    segments: Mutex<SegmentQueue>,
    /// Held by `prepare_segment`, so that one thread at a time makes a segment.
    preparing: Mutex<()>,
    /// The pinned positions. A thread that locks both this and `control` locks this first.
    pins: Mutex<Pins>,
    /// The contents of the control file; of a frozen log, those that the file will get when the log is
    /// adopted. Stays locked while the file is written.
    control: Mutex<Control>,
    /// The id of the log, which never changes: a copy of the id in `control` that needs no lock.
    id: [u8; 16],
    /// A copy of `control.log_start` that needs no lock.
    start: AtomicU64,
    flusher: Mutex<Flusher>,
    ending: Ending,
    /// The latest batches, for cursors.
    recent: Recent,
    flush_times: FlushTimes,
    /// Notified after every write, and whenever cursors must check again. Cursors wait for it, and so do
    /// appenders when the ring is full. Appenders may hold locks (of slots, or of a document database), so
    /// admission keeps their waits rare.
    progress: (Mutex<()>, Condvar),
    stats: LogStats,
}

impl Log {
    /// A handle for one more appending thread. The index of a dropped handle is used again, unless the handle
    /// had a listener ([`Appender::listen`]).
    ///
    /// # Panics
    /// If all `appenders_max` handles are taken.
    pub fn appender(&self) -> Appender {
        let index = self.shared.free_appenders.lock().pop();
        let index = index.expect("more appenders than the log was opened for");
        Appender::new(self.shared.clone(), index)
    }

    /// The position up to which the log survives a power cut.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.shared.durable.load(Ordering::SeqCst))
    }

    /// The position up to which everything is handed to the OS; a batch boundary.
    pub fn written_lsn(&self) -> Lsn {
        Lsn::new(self.shared.written.load(Ordering::SeqCst))
    }

    /// The position after everything reserved in the log: the end of the last record, or of its batch if that
    /// batch is closed.
    pub fn appended_lsn(&self) -> Lsn {
        Lsn::new(self.shared.sequencer.tail())
    }

    /// The random id of the log.
    pub fn id(&self) -> [u8; 16] {
        self.shared.id
    }

    /// The epoch of the batches that are closed here; for a mirror, the highest epoch of its batches, or that
    /// of the control file at its opening if that is higher.
    pub fn epoch(&self) -> u32 {
        self.shared.epoch.load(Ordering::SeqCst)
    }

    /// The reign of this run as a leader; for a mirror, the reign of the last batch. See the module `footer`.
    pub fn reign(&self) -> u64 {
        self.shared.reign.load(Ordering::SeqCst)
    }

    /// The lease token of a position in this reign: a number that is greater than the tokens of all earlier
    /// positions, and differs from the token of the same position in another reign.
    pub fn token(&self, position: Lsn) -> u64 {
        position.get().saturating_add(self.reign())
    }

    /// The oldest position that is still kept. Does not wait for a control file that is being written.
    pub fn start_lsn(&self) -> Lsn {
        Lsn::new(self.shared.start.load(Ordering::SeqCst))
    }

    /// The durability in force.
    #[inline]
    pub fn durability(&self) -> Durability {
        Durability::from_byte(self.shared.durability.load(Ordering::Relaxed))
    }

    /// Changes the durability, from the next batch on.
    pub fn set_durability(&self, durability: Durability) {
        self.shared.durability.store(durability as u8, Ordering::Relaxed);
    }

    /// Whether a write whose record has about `bytes` may be executed now.
    #[inline]
    pub fn admit(&self, bytes: u64) -> Admission {
        self.shared.admit(bytes)
    }

    /// Notes whether the disk has stalled, for [`Log::admit`], which reads no clock. To be called about once
    /// a second.
    pub fn look_for_stall(&self) {
        self.shared.stalled.store(self.flight_us() > STALLED_US, Ordering::Relaxed);
    }

    /// The time since the write or sync in flight began, in microseconds; 0 if none is in flight.
    pub fn flight_us(&self) -> u64 {
        self.shared.flight_us()
    }

    /// The reason of the last failure to create a segment, as text for the operator; empty without one.
    pub fn no_room_reason(&self) -> String {
        let reason = self.shared.no_room_reason.lock();
        reason.as_ref().map_or_else(String::new, |no_room| no_room.text.clone())
    }

    /// The first failure, if the log is poisoned.
    pub fn poison_reason(&self) -> Option<String> {
        self.shared
            .poisoned
            .load(Ordering::SeqCst)
            .then(|| self.shared.poison_reason.lock().clone())
            .flatten()
    }

    /// Writes one batch, or does other work that is due. Blocks while another thread flushes.
    ///
    /// # Errors
    /// The failed write or sync, which poisons the log; [`Error::Poisoned`] from then on.
    pub fn flush(&self) -> Result<Flush, Error> {
        let mut flusher = self.shared.flusher.lock();
        self.shared.flush(&mut flusher)
    }

    /// Like [`Log::flush`], but `None` if another thread is flushing.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub fn try_flush(&self) -> Option<Result<Flush, Error>> {
        let mut flusher = self.shared.flusher.try_lock()?;
        Some(self.shared.flush(&mut flusher))
    }

    /// Flushes until everything appended is durable (or, if the durability does not sync every batch,
    /// written).
    ///
    /// # Errors
    /// As [`Log::flush`]; also if a needed segment cannot be created.
    pub fn flush_all(&self) -> Result<(), Error> {
        loop {
            match self.flush()? {
                Flush::Idle { .. } => return Ok(()),
                Flush::Wrote => {}
                Flush::NeedSegment => self.make_needed_segment()?,
            }
        }
    }

    /// Bytes of log that a segment holds.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.options.segment_bytes
    }

    /// Size of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.shared.options.ring_bytes
    }

    /// Whether [`Log::flush`] must be called: true after an append while no thread is flushing.
    #[inline]
    pub fn needs_flusher(&self) -> bool {
        self.shared.needs_flusher()
    }

    /// Whether [`Log::prepare_segment`] has work to do, unless the log is poisoned or frozen.
    pub fn needs_segment(&self) -> bool {
        self.shared.needs_segment()
    }

    /// Sets the function that wakes the thread which calls [`Log::flush`], for records that were appended
    /// while another thread flushed, and for [`Log::request_end`]. The function must not block.
    ///
    /// # Panics
    /// If called twice.
    pub fn on_flush_wanted(&self, wake: impl Fn() + Send + Sync + 'static) {
        assert!(self.shared.wake_flusher.set(Box::new(wake)).is_ok(), "a log has one flushing thread");
    }

    /// Sets the function that wakes the thread which calls [`Log::prepare_segment`], for commands that wait
    /// for a segment while nothing is appended. The function must not block.
    ///
    /// # Panics
    /// If called twice.
    pub fn on_segment_wanted(&self, wake: impl Fn() + Send + Sync + 'static) {
        assert!(self.shared.maker.set(Box::new(wake)).is_ok(), "a log has one maker of segments");
    }

    /// Makes segments, on this thread, until a record of `bytes` fits. Returns false if one cannot be made,
    /// usually because the disk is full, or because the log takes no records.
    pub fn make_room_for(&self, bytes: u64) -> bool {
        // Room for one more ring is made, as in `admit`, because other appenders may append as much
        // meanwhile.
        let end = self.shared.sequencer.tail() + self.shared.options.ring_bytes + bytes;
        self.shared.make_segments_to(end)
    }

    /// Creates the next segment if the prepared space ahead is at most one segment long, or a write has
    /// requested more. Does nothing if the log is poisoned or frozen. Slow; call it on a thread of its own.
    ///
    /// # Errors
    /// None at present: a segment that cannot be created is reported as [`Prepare::NoRoom`]. The log is then
    /// read-only until a later call succeeds.
    pub fn prepare_segment(&self) -> Result<Prepare, Error> {
        self.shared.prepare_segment()
    }

    /// Forgets the log before `boundary`; whole segments before it are recycled or removed. The caller
    /// guarantees that a record after `boundary` makes all earlier state void, so that recovery needs no
    /// snapshot. Returns `false` if nothing was forgotten, because an earlier position is pinned.
    ///
    /// # Panics
    /// If `boundary` is not durable or not a multiple of the block size.
    ///
    /// # Errors
    /// I/O errors, or if the log before that position cannot be read; no needed data is lost then.
    pub fn truncate_before(&self, boundary: Lsn) -> Result<bool, Error> {
        let pins = self.pins();
        if pins.lowest().is_some_and(|pinned| pinned < boundary) {
            return Ok(false);
        }
        self.shared.truncate_before(boundary, false).map(|()| true)
    }

    /// Forgets the log before `begin_lsn`, usually the beginning of the oldest snapshot that is kept. Does
    /// nothing if the log starts there or later. Else the recovery of data needs a snapshot from now on, one
    /// that begins at the new start of the log or later. The log after the lowest pinned position is kept.
    ///
    /// # Panics
    /// As [`Log::truncate_before`].
    ///
    /// # Errors
    /// I/O errors, or if the log before that position cannot be read; no needed data is lost then.
    pub fn forget_before(&self, begin_lsn: Lsn) -> Result<(), Error> {
        self.forget_before_unpinned(begin_lsn, &self.pins())
    }

    /// As [`Log::forget_before`], for a caller that has locked the pins.
    pub(crate) fn forget_before_unpinned(&self, begin_lsn: Lsn, pins: &Pins) -> Result<(), Error> {
        let kept_from = match pins.lowest().filter(|pinned| *pinned < begin_lsn) {
            // A replica may have named a position within a batch, but a log starts with a whole batch.
            Some(pinned) => self.boundary_before(pinned)?,
            None => begin_lsn,
        };
        self.shared.truncate_before(kept_from, true)
    }

    /// The last batch boundary at or before `position`; the start of the log if [`Log::batch_at`] finds no
    /// batch there.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn boundary_before(&self, position: Lsn) -> Result<Lsn, Error> {
        Ok(match self.batch_at(position)? {
            Some(batch) if batch.end == position => position,
            Some(batch) => batch.start,
            None => self.start_lsn(),
        })
    }

    /// The identification of a snapshot that begins now. Slots must be captured only after this call.
    pub fn begin_snapshot(&self, compression: Compression) -> SnapshotMeta {
        let (begin_lsn, created_unix_ms) = (self.written_lsn(), self.shared.clock.unix_ms());
        SnapshotMeta { log_id: self.id(), epoch: self.epoch(), begin_lsn, created_unix_ms, compression }
    }

    /// The identification of a snapshot that begins at `begin_lsn`, a batch boundary up to which the log has
    /// been applied to memory.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn begin_snapshot_at(&self, begin_lsn: Lsn, compression: Compression) -> Result<SnapshotMeta, Error> {
        let epoch = self.batch_ending_at(begin_lsn)?.map_or(0, |batch| batch.epoch);
        Ok(SnapshotMeta { begin_lsn, epoch, ..self.begin_snapshot(compression) })
    }

    /// Makes everything up to `lsn` durable, independent of the configured durability. Blocks.
    ///
    /// # Errors
    /// As [`Log::flush`]; also if a needed segment cannot be created.
    ///
    /// # Panics
    /// If `lsn` lies after the last record.
    pub fn make_durable(&self, lsn: Lsn) -> Result<(), Error> {
        assert!(lsn <= self.appended_lsn(), "lsn {lsn} was never appended");
        while self.durable_lsn() < lsn {
            let mut flusher = self.shared.flusher.lock();
            if self.written_lsn() >= lsn {
                self.shared.sync_written(&mut flusher)?;
            } else if self.shared.flush(&mut flusher)? == Flush::NeedSegment {
                drop(flusher);
                self.make_needed_segment()?;
            }
        }
        // Threads that appended during these flushes have not woken the flusher, because they relied on this
        // thread.
        if self.needs_flusher()
            && let Some(wake) = self.shared.wake_flusher.get()
        {
            wake();
        }
        Ok(())
    }

    /// Notes in the control file that documents are saved in files of their own: from now on a directory
    /// without those files is incomplete. Blocks, unless that is noted already. A frozen log writes the note
    /// when it is [adopted](Log::adopt).
    ///
    /// # Errors
    /// I/O errors; the next call tries again.
    pub fn note_documents(&self) -> Result<(), Error> {
        let mut control = self.shared.control.lock();
        if control.has_documents {
            return Ok(());
        }
        let noted = Control { has_documents: true, ..*control };
        self.shared.replace_control(&mut control, noted)
    }

    /// Notes in the control file that the directory has a file with settings set by clients: from now on, a
    /// directory without that file is incomplete. Blocks, unless that is noted already. A frozen log writes
    /// the note when it is [adopted](Log::adopt).
    ///
    /// # Errors
    /// I/O errors; the next call tries again.
    pub fn note_settings(&self) -> Result<(), Error> {
        let mut control = self.shared.control.lock();
        if control.has_settings {
            return Ok(());
        }
        let noted = Control { has_settings: true, ..*control };
        self.shared.replace_control(&mut control, noted)
    }

    /// Writes a batch durably, even if it is empty; returns its end. The last batch of the log then has the
    /// current epoch. Blocks.
    ///
    /// # Errors
    /// As [`Log::make_durable`].
    ///
    /// # Panics
    /// If the log is a mirror: only its source closes batches.
    pub fn mark_epoch(&self) -> Result<Lsn, Error> {
        assert!(!self.is_mirror(), "a mirror has no epoch of its own");
        let end = self.shared.close_now(&mut self.shared.flusher.lock())?;
        self.make_durable(end)?;
        Ok(end)
    }

    /// Makes everything durable and ends the log as [`Log::close`] does, but records no clean end. If nothing
    /// is appended from now on, a server that has the log up to the returned end has all of it. Does nothing
    /// to a frozen log. Blocks.
    ///
    /// # Errors
    /// As [`Log::flush_all`].
    pub fn end_for_handover(&self) -> Result<Lsn, Error> {
        if self.is_frozen() {
            return Ok(self.appended_lsn());
        }
        self.flush_all()?;
        self.shared.seal(&mut self.shared.flusher.lock())
    }

    /// Creates the segment into which a closed batch is to be written.
    fn make_needed_segment(&self) -> Result<(), Error> {
        if self.prepare_segment()? == Prepare::NoRoom { Err(self.no_segment()) } else { Ok(()) }
    }

    /// Why there is no segment: the log is poisoned, or the error of the last attempt to make one.
    fn no_segment(&self) -> Error {
        if let Some(reason) = self.poison_reason() {
            return Error::Poisoned { reason };
        }
        let source = match &*self.shared.no_room_reason.lock() {
            Some(NoRoom { kind, text }) => std::io::Error::new(*kind, text.clone()),
            None => std::io::ErrorKind::StorageFull.into(),
        };
        Error::io("make the next segment of the log in", &self.shared.dir)(source)
    }

    /// Makes everything durable and records the clean end of the log. Nothing may append afterwards. Does
    /// nothing to a frozen log.
    ///
    /// # Errors
    /// As [`Log::flush_all`], and I/O errors of the control file. The next start may then recover as after a
    /// crash.
    pub fn close(&self) -> Result<(), Error> {
        if self.is_frozen() {
            return Ok(());
        }
        self.flush_all()?;
        let end = self.shared.seal(&mut self.shared.flusher.lock())?;
        let mut control = self.shared.control.lock();
        let ended = Control { clean_end: Some(end), ..*control };
        self.shared.replace_control(&mut control, ended)
    }

    /// Replaces the control file after it was found damaged. Does nothing to a frozen log that is not
    /// [adopted](Log::adopt) yet.
    ///
    /// # Errors
    /// I/O errors.
    pub fn restore_control(&self) -> Result<(), Error> {
        let mut control = self.shared.control.lock();
        let same = *control;
        self.shared.replace_control(&mut control, same)
    }

    /// The counters of the log since it was opened.
    pub fn stats(&self) -> &LogStats {
        &self.shared.stats
    }

    /// Bytes appended and not yet written.
    pub fn unwritten_bytes(&self) -> u64 {
        self.shared.sequencer.used()
    }
}

impl LogState {
    #[inline]
    fn needs_flusher(&self) -> bool {
        self.sequencer.used() > 0 && self.sequencer.needs_wake()
    }

    /// Replaces the control file, durably, and `control`, which is locked. A frozen log replaces the file
    /// when it is [adopted](Log::adopt): until then the file on disk is that of the log that it replaces.
    ///
    /// # Errors
    /// I/O errors: `control` is then unchanged, and the file has its old or its new contents.
    fn replace_control(&self, control: &mut Control, next: Control) -> Result<(), Error> {
        if !self.unadopted.load(Ordering::SeqCst) {
            next.store(&*self.disk, &self.dir)?;
        }
        *control = next;
        self.start.store(next.log_start.get(), Ordering::SeqCst);
        Ok(())
    }

    fn admit(&self, bytes: u64) -> Admission {
        if self.poisoned.load(Ordering::Relaxed) {
            return Admission::Poisoned;
        }
        if self.no_room.load(Ordering::Relaxed) {
            return if self.frozen.load(Ordering::Relaxed) { Admission::Frozen } else { Admission::NoRoom };
        }
        // Everything that other appenders may execute meanwhile fits the ring, so room for one more ring is
        // enough.
        let end = self.sequencer.tail() + self.options.ring_bytes + bytes;
        if end > self.prepared_end.load(Ordering::Acquire) {
            self.want_segments(end);
            return Admission::Wait;
        }
        match self.sequencer.used() {
            0 => Admission::Go,
            _ if self.stalled.load(Ordering::Relaxed) => Admission::Stalled,
            unwritten if unwritten > self.options.unwritten_bytes_max => {
                if self.flight_us() > STALLED_US {
                    Admission::Stalled
                } else {
                    Admission::Wait
                }
            }
            _ => Admission::Go,
        }
    }

    /// Requests segments up to `end`, even if nothing is appended.
    #[cold]
    fn want_segments(&self, end: u64) {
        self.wanted_end.fetch_max(end, Ordering::SeqCst);
        if let Some(wake) = self.maker.get() {
            wake();
        }
    }

    fn flight_us(&self) -> u64 {
        match self.flush_started_us.load(Ordering::Relaxed) {
            0 => 0,
            started => self.clock.monotonic_us().saturating_sub(started),
        }
    }

    fn poison(&self, error: &Error) {
        let mut reason = self.poison_reason.lock();
        if reason.is_none() {
            tracing::error!(target: "storage", %error, "the log failed, nothing more is written or acknowledged");
            *reason = Some(error.to_string());
        }
        drop(reason);
        self.poisoned.store(true, Ordering::SeqCst);
        self.waiters.wake_all();
        self.notify_progress();
    }

    fn notify_progress(&self) {
        drop(self.progress.0.lock());
        self.progress.1.notify_all();
    }
}
