//! Marker files that exist in a directory from the first byte written by an import or a restore until
//! everything is durable.
//!
//! Because of its marker, a directory with a part of the data is never served as if it were complete. A
//! marker is not a journal: interrupted work starts over.

use std::{
    io,
    path::{Path, PathBuf},
};

use env::{Access, Disk};

/// A command that writes a directory without a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `sheaf import`.
    Import,
    /// `sheaf restore`.
    Restore,
}

impl Work {
    /// The marker file of the work.
    pub fn file(self, dir: &Path) -> PathBuf {
        dir.join(match self {
            Work::Import => "import-unfinished",
            Work::Restore => "restore-unfinished",
        })
    }
}

/// An import or a restore into the directory was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// An import.
    #[error(
        "an import into {} did not finish, so the directory holds only a part of it: run the same `sheaf import` again, or \
         remove {} to use what is there", dir.display(), file.display()
    )]
    Import {
        /// The directory.
        dir: PathBuf,
        /// The marker file.
        file: PathBuf,
    },
    /// A restore.
    #[error(
        "a restore into {} did not finish, so nothing in the directory may be used: remove the directory and run the same \
         `sheaf restore` again", dir.display()
    )]
    Restore {
        /// The directory.
        dir: PathBuf,
    },
}

/// Refuses a directory with interrupted work.
///
/// # Errors
/// If there is a marker file.
pub fn refuse_unfinished(disk: &dyn Disk, dir: &Path) -> Result<(), Unfinished> {
    refuse(disk, dir, Work::Import)?;
    refuse(disk, dir, Work::Restore)
}

/// As [`refuse_unfinished`], for one kind of work.
pub fn refuse(disk: &dyn Disk, dir: &Path, work: Work) -> Result<(), Unfinished> {
    let (dir, file) = (dir.to_path_buf(), work.file(dir));
    match (disk.open(&file, Access::Read), work) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A marker that cannot be opened counts as existing.
        (_, Work::Import) => Err(Unfinished::Import { dir, file }),
        (_, Work::Restore) => Err(Unfinished::Restore { dir }),
    }
}

/// The text of a marker file, up to `bytes_max`; `None` if there is no marker.
pub fn find(disk: &dyn Disk, dir: &Path, work: Work, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(&work.file(dir), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; bytes_max];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(text))
}

/// Creates the marker durably, with this text.
pub fn begin(disk: &dyn Disk, dir: &Path, work: Work, text: &str) -> io::Result<()> {
    env::crashsafe::write_atomically(disk, &work.file(dir), text.as_bytes())
}

/// Removes the marker durably.
pub fn end(disk: &dyn Disk, dir: &Path, work: Work) -> io::Result<()> {
    env::crashsafe::remove_durably(disk, &work.file(dir))
}
