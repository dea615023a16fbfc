//! `check`: reads every byte of every snapshot as loading does and reports the result. Changes nothing.

use std::{ops::ControlFlow, path::Path};

use env::Disk;
use lsn::Lsn;

use super::{ReadBuffers, SnapshotInfo, SnapshotReader, list_begins, load};
use crate::Error;

/// The result of checking one snapshot.
#[derive(Debug)]
pub struct SnapshotCheck {
    /// The LSN at which the snapshot begins, which names it.
    pub begin_lsn: Lsn,
    /// The verified contents of the manifest, or the first error.
    pub outcome: Result<SnapshotInfo, Error>,
}

/// Verifies every byte of the snapshots of the data directory `dir`, newest first. `progress` is called with
/// (bytes done, bytes in all) after every run of chunks, and may end the check of a snapshot, whose outcome
/// is then [`Error::Ended`].
///
/// # Errors
/// If the directory cannot be listed. Damage of a snapshot is in its [`SnapshotCheck`].
pub fn check(
    disk: &dyn Disk,
    dir: &Path,
    mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<SnapshotCheck>, Error> {
    let begins = list_begins(disk, dir)?;
    let loaded: Vec<_> =
        begins.into_iter().map(|begin_lsn| (begin_lsn, load(disk, dir, begin_lsn))).collect();
    let sizes = loaded.iter().filter_map(|(_, info)| Some(info.as_ref().ok()?.file_bytes()));
    let total = sizes.fold(0, u64::saturating_add);
    let mut done = 0;
    let mut check_one = |(begin_lsn, info): (Lsn, Result<SnapshotInfo, Error>)| {
        let done_before = done;
        let outcome = info.and_then(|info| {
            let verified = verify(disk, dir, &info, |bytes| {
                done += bytes;
                progress(done, total)
            });
            done = done_before + info.file_bytes();
            verified.map(|()| info)
        });
        SnapshotCheck { begin_lsn, outcome }
    };
    Ok(loaded.into_iter().map(&mut check_one).collect())
}

/// Reads the whole snapshot; `progress` is called with the bytes of each run.
fn verify(
    disk: &dyn Disk,
    dir: &Path,
    info: &SnapshotInfo,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    let reader = SnapshotReader::open(disk, dir, info)?;
    let mut buffers = ReadBuffers::default();
    for run in reader.runs() {
        for chunk in run.chunks.clone() {
            reader.read(chunk, &mut buffers)?;
        }
        if progress(run.file_bytes).is_break() {
            return Err(Error::Ended);
        }
    }
    Ok(())
}
