//! Frozen logs: new logs for directories of which a forced recovery has left out damaged data. A frozen log
//! takes writes only after the operator's confirmation.
//!
//! ```text
//! Recovery::salvage -> freeze -> [a snapshot of the memory is published, documents are saved]
//!     -> adopt -> thaw
//! ```
//!
//! A frozen log has an id of its own, begins after the whole old log, and does not exist on disk. Until it is
//! adopted, it refuses writes and removes nothing, and the directory still belongs to the old log: changes of
//! the control file stay in memory.
//!
//! Invariants
//! - The control file is replaced when all else of the new log is on disk. Before that, a start finds the old
//!   log; afterwards, it finds the new log and the snapshot at its beginning.
//! - The log id distinguishes the files of the two logs, even if a confirmation was interrupted and repeated.

use std::{collections::VecDeque, sync::Arc};

use env::{Clock, Entropy};
use lsn::Lsn;

use super::{
    Log, LogOptions,
    control::{Control, MIRRORING, Start},
    flusher::Flusher,
    footer::Predecessor,
    recovery::{self, Recovery},
    segment::Segment,
};
use crate::{Error, snapshot::SnapshotInfo, sync::Ordering};

impl Recovery {
    /// Opens a new log in place of this one. The new log has an id of its own, and begins after the end of
    /// the old log and after `reached`. It takes no writes until it is [adopted](Log::adopt) and
    /// [thawed](Log::thaw). Changes nothing on disk, where the old log remains.
    ///
    /// `reached` is the last position of the log that any other file of the directory includes. If the new
    /// log wrote a record at an earlier position, that file would be taken to include the record.
    ///
    /// # Errors
    /// If the memory for the ring cannot be mapped.
    ///
    /// # Panics
    /// If the log was not read to its end.
    pub fn freeze(self, reached: Lsn, clock: Arc<dyn Clock>, entropy: &dyn Entropy) -> Result<Log, Error> {
        let tail = self.tail.as_ref().expect("the log was read to its end");
        let old = self.reader.control();
        let end = tail.end.max(self.reader.vouched()).max(self.reader.segments_end()).max(reached);
        // The log id is new, so epochs can start again at 1 if none is left.
        let epoch = old.epoch.max(self.reader.before().epoch).saturating_add(1);
        let new = Control::new(&self.options, entropy);
        let control = Control {
            epoch: if epoch < MIRRORING { epoch } else { 1 },
            segment_bytes: old.segment_bytes,
            log_start: end.align_up(old.segment_bytes),
            needs_snapshot: true,
            start: Start { reign: self.reign(), ..new.start },
            has_settings: old.has_settings,
            // `has_documents` is set only when documents are saved, because none may be left.
            ..new
        };
        let end = control.log_start;
        let options = LogOptions { segment_bytes: control.segment_bytes, ..self.options }.fitting();
        let Start { reign, chain } = control.start;
        let closed_at_ms = self.reader.before().closed_at_ms;
        let before = Predecessor { reign, chain, closed_at_ms, ..Predecessor::default() };
        let flusher = Flusher::new(None, before, clock.monotonic_us());
        let reign = self.next_reign();
        let (disk, dir) = (self.reader.disk().clone(), self.reader.dir().to_path_buf());
        let log = recovery::open(
            (disk, clock, dir),
            options,
            (control, reign),
            flusher,
            (end, end),
            VecDeque::new(),
        )?;
        log.shared.frozen.store(true, Ordering::SeqCst);
        log.shared.unadopted.store(true, Ordering::SeqCst);
        log.shared.no_room.store(true, Ordering::SeqCst);
        Ok(log)
    }
}

impl Log {
    /// Whether the log replaces another one and takes no writes yet; see [`Recovery::freeze`].
    pub fn is_frozen(&self) -> bool {
        self.shared.frozen.load(Ordering::SeqCst)
    }

    /// Makes this frozen log the log of the directory, permanently: from now on a start finds this log, and
    /// `snapshot`, which is published and has the contents of the memory. The old log is forgotten. Takes
    /// writes after [`Log::thaw`].
    ///
    /// # Errors
    /// I/O errors. The directory then holds this log or the old one; the call can be repeated.
    ///
    /// # Panics
    /// If the snapshot belongs to another log, or does not begin at the start of this one.
    pub fn adopt(&self, snapshot: &SnapshotInfo) -> Result<(), Error> {
        let shared = &*self.shared;
        let control = shared.control.lock();
        let begins = (snapshot.log_id, snapshot.begin_lsn);
        assert_eq!(begins, (control.log_id, control.log_start), "the snapshot of this log");
        let mut segments = shared.segments.lock();
        if segments.ready.is_empty() {
            let segment = Segment::create(&*shared.disk, &shared.dir, &control, control.log_start, None)?;
            shared.prepared_end.store(segment.end.get(), Ordering::SeqCst);
            segments.ready.push_back(segment);
        }
        drop(segments);
        control.store(&*shared.disk, &shared.dir)?;
        shared.unadopted.store(false, Ordering::SeqCst);
        recovery::remove_forgotten(&*shared.disk, &shared.dir, &control)
    }

    /// Lets an adopted log take writes.
    pub fn thaw(&self) {
        self.shared.frozen.store(false, Ordering::SeqCst);
        // Writers that wait for room check again: the frozen log had no room.
        if self.shared.no_room.swap(false, Ordering::SeqCst) {
            self.shared.waiters.wake_all();
        }
        tracing::info!(target: "storage", "the log was confirmed and takes writes");
    }
}
