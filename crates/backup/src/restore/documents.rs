//! The documents of a restore.
//!
//! ```text
//! copy the files -> open them at their last checkpoints up to the target
//! -> apply the log up to the target -> save
//! ```
//!
//! Invariants
//! - The source is only read.
//! - The new directory then holds the saved state at the target; its log begins after that state.

use std::{io, path::Path, sync::Arc};

use documents::{Due, Listener, StoreError};
use env::{Access, Disk, RealEntropy};
use keyspace::Item;
use lsn::Lsn;
use recovery::{offline::Place, opening as files, recover::RecoverError, replay::decode};
use storage::{Recovery, snapshot};

use super::RestoreError;

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Restores the documents of `source` at `until` into `dir`, whose log will begin at `log_start`.
pub(super) fn restore(
    source: &Place<'_>,
    dir: &Path,
    until: Lsn,
    log_start: Lsn,
) -> Result<(), RestoreError> {
    let disk = &source.disk;
    copy(&**disk, &documents::directory(source.dir), &documents::directory(dir))?;
    let nobody: Listener = Arc::new(|_| {});
    let documents = files::open(disk.clone(), dir, Arc::new(RealEntropy), Some(until), nobody);
    let documents = documents.map_err(|error| match error {
        StoreError::AheadOfLog { files, .. } => RestoreError::DocumentsLater(files),
        error => RecoverError::from(error).into(),
    })?;
    let mut recovery = Recovery::open_to_read(disk.clone(), source.dir)?;
    recovery.read_until(until);
    start(&mut recovery, source, documents.replay_from())?;
    let apply = |lsn, payload: &[u8]| -> Result<(), RecoverError> {
        let mut rest = payload;
        while let Some(item) = decode(&mut rest, lsn)? {
            if let Item::Documents(change) = item {
                documents.apply(change, lsn).map_err(|reason| RecoverError::Documents { lsn, reason })?;
            }
        }
        Ok(())
    };
    recovery.replay(apply, |_| {})?;
    let due = Due { now_ms: 0, upto: log_start, everything: true };
    documents.checkpoint(&due, &mut |_| true).map_err(RecoverError::from)?;
    Ok(())
}

/// Starts the replay where the document files need it.
fn start(recovery: &mut Recovery, source: &Place<'_>, from: Option<Lsn>) -> Result<(), RestoreError> {
    // Without a catalog, no database existed at any snapshot, so any snapshot will do.
    let from = from.unwrap_or(recovery.until());
    if !recovery.needs_snapshot() && from >= recovery.start() {
        return Ok(());
    }
    let begins = snapshot::list_begins(&*source.disk, source.dir)?;
    let begin = begins.into_iter().filter(|&begin| begin >= recovery.start() && begin <= from).max();
    let Some(begin) = begin else {
        let begin = recovery.start();
        return Err(RecoverError::Apart { saved: from, begin, end: recovery.until() }.into());
    };
    recovery.start_at(&snapshot::load(&*source.disk, source.dir, begin)?)?;
    Ok(())
}

/// Copies all files of a directory durably, if it exists.
fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), RestoreError> {
    let names = match disk.list(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(RestoreError::os("list", from))?,
    };
    disk.create_dir_all(to).map_err(RestoreError::os("create", to))?;
    for name in names {
        copy_file(disk, &from.join(&name), &to.join(&name))
            .map_err(RestoreError::os("copy", &from.join(&name)))?;
    }
    disk.sync_dir(to).map_err(RestoreError::os("sync", to))
}

fn copy_file(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (disk.open(from, Access::Read)?, disk.create_new(to)?);
    let (mut piece, mut offset) = (vec![0; PIECE_BYTES], 0);
    loop {
        let read = from.read_at(&mut piece, offset)?;
        if read == 0 {
            return to.sync_all();
        }
        to.write_all_at(&piece[..read], offset)?;
        offset += read as u64;
    }
}
