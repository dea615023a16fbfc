//! Takes one snapshot in steps: several threads, or one in turn, capture and write its parts; then it is
//! published.
//!
//! ```text
//! SnapshotTask::begin -> PartTask (one per thread): step*, finish -> SnapshotTask::publish
//! ```
//!
//! This module knows neither threads nor pace, nor the reason for a snapshot. A simulation runs the steps of
//! the parts in any order.
//!
//! Invariants
//! - There is one snapshot at a time, and no [`PartTask`] outlives its [`SnapshotTask`]: the keyspace records
//!   which slots are captured.
//! - Before the snapshot is published, the log is durable up to the last captured record.
//! - An abandoned snapshot leaves no files that could be taken for one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::Disk;
use keyspace::{Capture, Captured, Keyspace, SLOT_COUNT, SlotId};
use lsn::Lsn;
use storage::{
    Error, Log, retain_snapshots,
    snapshot::{
        self, CHUNK_RAW_BYTES_MAX, ChunkInfo, Compression, PartSummary, PartWriter, SnapshotInfo,
        SnapshotMeta, SnapshotWriter,
    },
};

/// Number of snapshots kept besides pinned ones: the newest, and its predecessor in case the newest is
/// damaged.
pub const GENERATIONS: usize = 2;

/// The source, destination and options of a snapshot.
#[derive(Clone, Copy)]
pub struct SnapshotPlan<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The data directory.
    pub dir: &'a Path,
    /// The log that the keyspace writes to, or follows.
    pub log: &'a Log,
    /// The batch boundary up to which the log is applied to memory; `None` for the end of the log.
    pub begin_lsn: Option<Lsn>,
    /// Number of parts, with about equal numbers of slots; at most 256.
    pub parts: u32,
    /// Approximate bytes captured per step.
    pub chunk_bytes_aim: usize,
    /// How chunks are compressed.
    pub compression: Compression,
}

/// A snapshot in progress.
pub struct SnapshotTask<'k> {
    keyspace: &'k Keyspace,
    log: Log,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    meta: SnapshotMeta,
    writer: Option<SnapshotWriter>,
}

/// What [`PartTask::capture`] has captured.
#[must_use]
pub struct CapturedChunk(Captured);

/// A part of a snapshot: a range of slots.
pub struct PartTask<'k> {
    capture: Capture<'k>,
    last_slot: SlotId,
    writer: PartWriter,
    chunk: Vec<u8>,
    chunk_bytes_aim: usize,
}

impl<'k> SnapshotTask<'k> {
    /// Begins a snapshot of `keyspace`. `None` if there is one that begins at the same position.
    ///
    /// # Errors
    /// If the log cannot be read; I/O errors, including a full disk.
    pub fn begin(
        plan: SnapshotPlan<'_>,
        keyspace: &'k Keyspace,
    ) -> Result<Option<(SnapshotTask<'k>, Vec<PartTask<'k>>)>, Error> {
        let SnapshotPlan { disk, dir, log, begin_lsn, parts, chunk_bytes_aim, compression } = plan;
        keyspace.forget_captured();
        let meta = match begin_lsn {
            Some(begin_lsn) => log.begin_snapshot_at(begin_lsn, compression)?,
            None => log.begin_snapshot(compression),
        };
        if snapshot::list_begins(&**disk, dir)?.contains(&meta.begin_lsn) {
            return Ok(None);
        }
        let (writer, part_writers) = SnapshotWriter::create(disk.clone(), dir, meta, parts)?;
        let part = |(number, writer): (usize, PartWriter)| {
            let slot = |part: usize| part * SLOT_COUNT / parts as usize;
            let nth = |slot: usize| SlotId::all().nth(slot).unwrap_or(SlotId::LAST);
            let (first_slot, last_slot) = (nth(slot(number)), nth(slot(number + 1) - 1));
            let capture = Capture::new(keyspace, first_slot, last_slot);
            PartTask { capture, last_slot, writer, chunk: Vec::new(), chunk_bytes_aim }
        };
        let parts = part_writers.into_iter().enumerate().map(part).collect();
        let (log, disk, dir) = (log.clone(), disk.clone(), dir.to_path_buf());
        Ok(Some((SnapshotTask { keyspace, log, disk, dir, meta, writer: Some(writer) }, parts)))
    }

    /// The identification of the snapshot.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Publishes the snapshot once the captured records are durable, and removes files that it replaces.
    /// Blocks.
    ///
    /// # Errors
    /// If the log cannot be made durable; I/O errors. No snapshot exists then, unless its files could not be
    /// removed.
    ///
    /// # Panics
    /// If `parts` is not exactly one summary of each part.
    pub fn publish(mut self, parts: Vec<PartSummary>) -> Result<SnapshotInfo, Error> {
        let highest_lsn = parts.iter().map(|part| part.highest_lsn).max();
        let end_lsn = self.meta.begin_lsn.max(highest_lsn.unwrap_or(self.meta.begin_lsn));
        self.log.make_durable(end_lsn)?;
        let info = self.writer.take().expect("published once").publish(parts, end_lsn)?;
        if let Err(error) = retain_snapshots(&*self.disk, &self.dir, &self.log, GENERATIONS) {
            tracing::warn!(
                target: "server", %error,
                "cannot remove an old snapshot and the log before it; the next snapshot tries again"
            );
        }
        Ok(info)
    }
}

impl Drop for SnapshotTask<'_> {
    fn drop(&mut self) {
        self.keyspace.forget_captured();
    }
}

impl PartTask<'_> {
    /// Captures and writes one chunk; returns its bytes in the file. `None` when the part is complete.
    ///
    /// # Errors
    /// I/O errors, including a full disk: the snapshot has failed.
    pub fn step(&mut self) -> Result<Option<u64>, Error> {
        self.capture().map(|chunk| self.write(chunk)).transpose()
    }

    /// Captures one chunk; `None` when the part is complete. Waits while others hold the locks of its slots.
    pub fn capture(&mut self) -> Option<CapturedChunk> {
        let captured = self.capture.fill(&mut self.chunk, self.chunk_bytes_aim, CHUNK_RAW_BYTES_MAX);
        captured.map(CapturedChunk)
    }

    /// Writes the chunk that was captured last; returns its bytes in the file.
    ///
    /// # Errors
    /// I/O errors, including a full disk: the snapshot has failed.
    pub fn write(&mut self, CapturedChunk(captured): CapturedChunk) -> Result<u64, Error> {
        let last_slot = self.capture.next_slot().map_or(self.last_slot.get(), |next| next.get() - 1);
        let info = ChunkInfo {
            first_slot: captured.first_slot.get(),
            last_slot: last_slot.max(captured.first_slot.get()),
            rows: captured.keys,
            lsn: captured.lsn,
            continues: captured.continues,
        };
        self.writer.append(info, &self.chunk)
    }

    /// Number of slots of the part not captured yet.
    pub fn slots_left(&self) -> usize {
        self.capture.next_slot().map_or(0, |next| self.last_slot.index() + 1 - next.index())
    }

    /// Bytes copied ahead of the walk since the last call: see [`Capture::take_copied_bytes`].
    pub fn take_copied_bytes(&mut self) -> u64 {
        self.capture.take_copied_bytes()
    }

    /// Completes the part and makes it durable. To be called after [`PartTask::step`] has returned `None`.
    ///
    /// # Errors
    /// As [`PartTask::step`].
    pub fn finish(self) -> Result<PartSummary, Error> {
        self.writer.finish()
    }
}
