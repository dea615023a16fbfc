//! A snapshot taken between the other steps of a world: the server's own task, its parts in random order.

use std::{path::Path, sync::Arc};

use documents::Documents;
use env::{Disk, Prng};
use keyspace::Keyspace;
use recovery::{
    salvage::{self, ConfirmError},
    snapshot_task::{PartTask, SnapshotPlan, SnapshotTask},
};
use storage::{
    Error, Log,
    snapshot::{Compression, PartSummary, SnapshotInfo},
};

use crate::{Recovered, start::DIR};

/// The maximum number of parts.
const PARTS_MAX: u64 = 3;
/// A small limit, so that commands of clients run between the chunks of one snapshot.
const CHUNK_BYTES_MAX: u64 = 4 << 10;

/// A snapshot in progress. The order of the fields matters: the parts must be dropped before the task.
pub(crate) struct Snapshotting<'k> {
    parts: Vec<PartTask<'k>>,
    summaries: Vec<PartSummary>,
    task: SnapshotTask<'k>,
}

impl<'k> Snapshotting<'k> {
    pub(crate) fn begin(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        log: &Log,
        keyspace: &'k Keyspace,
        prng: &mut Prng,
    ) -> Result<Option<Self>, Error> {
        let plan = SnapshotPlan {
            begin_lsn: None,
            disk,
            dir,
            log,
            parts: 1 + prng.below(PARTS_MAX) as u32,
            chunk_bytes_aim: 1 + prng.below(CHUNK_BYTES_MAX) as usize,
            compression: if prng.chance(50) { Compression::Lz4 } else { Compression::None },
        };
        let begun = SnapshotTask::begin(plan, keyspace)?;
        Ok(begun.map(|(task, parts)| Snapshotting { parts, summaries: Vec::new(), task }))
    }

    /// Runs a step of some part, or publishes the snapshot when all parts are done: then returns `None`.
    pub(crate) fn step(mut self, prng: &mut Prng) -> Result<Option<Self>, Error> {
        if self.parts.is_empty() {
            self.task.publish(self.summaries)?;
            return Ok(None);
        }
        let part = prng.below(self.parts.len() as u64) as usize;
        if self.parts[part].step()?.is_none() {
            self.summaries.push(self.parts.swap_remove(part).finish()?);
        }
        Ok(Some(self))
    }
}

/// Accepts the losses of a forced recovery, as the binary does: the server then takes writes.
///
/// # Errors
/// Those of `recovery::salvage::confirm` and of the snapshot that it needs. After an error this may be called
/// again.
pub fn confirm(
    disk: &Arc<dyn Disk>,
    recovered: &Recovered,
    documents: Option<&Documents>,
) -> Result<(), ConfirmError> {
    let Recovered { keyspace, log } = recovered;
    let dir = Path::new(DIR);
    let info = match salvage::confirmed_before(&**disk, dir, log)? {
        Some(info) => info,
        None => take(disk, log, keyspace)?,
    };
    salvage::confirm(disk, dir, log, documents, &info)
}

/// Takes a whole snapshot at once.
///
/// # Panics
/// If a snapshot that begins at this position exists already.
pub(crate) fn take(disk: &Arc<dyn Disk>, log: &Log, keyspace: &Keyspace) -> Result<SnapshotInfo, Error> {
    let (parts, chunk_bytes_aim, compression) = (2, 4 << 10, Compression::Lz4);
    let plan =
        SnapshotPlan { disk, dir: Path::new(DIR), log, begin_lsn: None, parts, chunk_bytes_aim, compression };
    let (task, parts) = SnapshotTask::begin(plan, keyspace)?.expect("nothing stands in its way");
    let write = |mut part: PartTask<'_>| {
        while part.step()?.is_some() {}
        part.finish()
    };
    task.publish(parts.into_iter().map(write).collect::<Result<_, _>>()?)
}
