//! Frozen logs: what a server writes to, later, that has left out damaged data at its start.
//!
//! ```text
//! Recovery::salvage -> freeze -> [a snapshot of what is in memory is published] -> adopt -> thaw
//! ```
//!
//! What it is: a log that begins behind all of the damaged one, with an id of its own, and that is nowhere on disk. Till it is
//! adopted it takes nothing and removes nothing, and the directory is that of the damaged log.
//!
//! Invariants
//! - The control file is replaced last: before, a start finds the damaged log and refuses; afterwards it finds this one, and the
//!   snapshot that it begins with.
//! - The id keeps apart what belongs to which log, also where a confirmation was interrupted and begun again.

use std::{collections::VecDeque, sync::Arc};

use env::{Clock, Entropy};

use super::{
    Log, LogOptions,
    flusher::Flusher,
    footer::Predecessor,
    recovery::{self, Recovery},
    segment::Segment,
};
use crate::{Control, Error, Start, control::MIRRORING, snapshot::SnapshotInfo, sync::Ordering};

impl Recovery {
    /// Opens a log that takes nothing until it is [adopted](Log::adopt), in place of one with holes: behind all of it, with an
    /// id of its own. Changes nothing on disk, where the log with the holes stays what it was.
    ///
    /// # Errors
    /// If there is no memory for the ring.
    ///
    /// # Panics
    /// If the log was not read to its end.
    pub fn freeze(self, clock: Arc<dyn Clock>, entropy: &dyn Entropy) -> Result<Log, Error> {
        let tail = self.tail.as_ref().expect("the log was read to its end");
        let old = self.reader.control();
        let end = tail.end.max(self.reader.vouched()).max(self.reader.segments_end());
        // Of a log with an id of its own: where none is left, its epochs begin anew.
        let epoch = old.epoch.max(self.reader.before().epoch).saturating_add(1);
        let new = Control::new(&self.options, entropy);
        let control = Control {
            epoch: if epoch < MIRRORING { epoch } else { 1 },
            segment_bytes: old.segment_bytes,
            log_start: end.align_up(old.segment_bytes),
            needs_snapshot: true,
            start: Start { reign: self.reign(), ..new.start },
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
        log.shared.no_room.store(true, Ordering::SeqCst);
        Ok(log)
    }
}

impl Log {
    /// Whether the log stands for one with holes and takes nothing yet; see [`Recovery::freeze`].
    pub fn is_frozen(&self) -> bool {
        self.shared.frozen.load(Ordering::SeqCst)
    }

    /// Makes this frozen log that of the directory, for good: from now on a start finds it, and in `snapshot`, which is
    /// published, what is in memory. What was before is forgotten. [`Log::thaw`] has it take writes.
    ///
    /// # Errors
    /// I/O errors. The directory then holds this log or the old one; to be called again.
    ///
    /// # Panics
    /// If the snapshot is not of this log, or does not begin where the log does.
    pub fn adopt(&self, snapshot: &SnapshotInfo) -> Result<(), Error> {
        let shared = &*self.shared;
        let control = *shared.control.lock();
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
        recovery::remove_forgotten(&*shared.disk, &shared.dir, &control)
    }

    /// Has a frozen log that was adopted take writes.
    pub fn thaw(&self) {
        self.shared.frozen.store(false, Ordering::SeqCst);
        self.shared.has_room_again();
    }
}
