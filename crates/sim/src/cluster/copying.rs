//! A full copy: a replica fetches a snapshot of its leader, and the log after it, into a new directory.
//!
//! Invariants
//! - The replica's present directory stays valid until the new one is complete: its control file is written
//!   last.
//! - The leader keeps the files while they are fetched; if the leader fails, the copy starts again.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, SimDisk};
use storage::CopyPlan;

use super::{network::NodeId, node::Failure};

/// The maximum number of bytes fetched per step.
const PIECE_BYTES: usize = 96 << 10;
/// A copy without progress for this time is abandoned.
const SILENCE_MS: u64 = 10_000;

/// A full copy in progress.
pub(crate) struct Copying {
    /// The leader, and the number of its incarnation, which keeps the files.
    pub(crate) leader: (NodeId, u64),
    plan: CopyPlan,
    from: (Arc<SimDisk>, PathBuf),
    into: PathBuf,
    file: usize,
    offset: u64,
    heard_ms: u64,
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    Piece,
    Whole,
    GivenUp,
}

impl Copying {
    pub(crate) fn new(
        leader: (NodeId, u64),
        plan: CopyPlan,
        from: (Arc<SimDisk>, PathBuf),
        into: PathBuf,
        now_ms: u64,
    ) -> Copying {
        Copying { leader, plan, from, into, file: 0, offset: 0, heard_ms: now_ms }
    }

    /// Fetches a piece if the leader is reachable.
    pub(crate) fn step(&mut self, disk: &dyn Disk, is_reached: bool, now_ms: u64) -> Result<Copied, Failure> {
        if !is_reached {
            let is_silent = now_ms >= self.heard_ms + SILENCE_MS;
            return Ok(if is_silent { Copied::GivenUp } else { Copied::Piece });
        }
        self.heard_ms = now_ms;
        let Some(file) = self.plan.files.get(self.file) else {
            let path = self.into.join(CopyPlan::CONTROL_NAME);
            let written = env::crashsafe::write_atomically(disk, &path, &self.plan.control);
            return written.map(|()| Copied::Whole).map_err(|error| failed(&path, &error));
        };
        let path = self.into.join(&file.name);
        let parent = path.parent().unwrap_or(Path::new("/"));
        let mut piece = vec![0; PIECE_BYTES.min((file.bytes - self.offset) as usize)];
        let (from_disk, from_dir) = &self.from;
        let from = from_dir.join(&file.name);
        let read =
            from_disk.open(&from, Access::Read).and_then(|it| it.read_exact_at(&mut piece, self.offset));
        if read.is_err() {
            // The files cannot be read: the leader's machine is about to stop.
            return Ok(Copied::GivenUp);
        }
        self.write(disk, &path, parent, &piece).map_err(|error| failed(&path, &error))?;
        self.offset += piece.len() as u64;
        if self.offset == file.bytes {
            (self.file, self.offset) = (self.file + 1, 0);
        }
        Ok(Copied::Piece)
    }

    /// Writes a piece; the last piece of a file makes the file durable.
    fn write(&self, disk: &dyn Disk, path: &Path, parent: &Path, piece: &[u8]) -> io::Result<()> {
        let into = if self.offset == 0 {
            disk.create_dir_all(parent)?;
            disk.create_new(path)?
        } else {
            disk.open(path, Access::ReadWrite)?
        };
        into.write_all_at(piece, self.offset)?;
        if self.offset + piece.len() as u64 == self.plan.files[self.file].bytes {
            into.sync_all()?;
            for dir in parent.ancestors() {
                disk.sync_dir(dir)?;
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Disk(format!("cannot copy to {}: {error}", path.display()))
}
