//! The files that stand in a directory from the first byte an import or a restore writes until everything is durable.
//!
//! What it is: the reason why a directory that holds a part is never served as if it held all of it.
//! What it is not: a journal; what was interrupted starts over.

use std::{
    io,
    path::{Path, PathBuf},
};

use env::{Access, Disk};

/// What writes a directory without a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `sheaf import`.
    Import,
    /// `sheaf restore`.
    Restore,
}

impl Work {
    fn file(self, dir: &Path) -> PathBuf {
        dir.join(match self {
            Work::Import => "import-unfinished",
            Work::Restore => "restore-unfinished",
        })
    }
}

/// Something into the directory was interrupted.
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
        /// The file that says so.
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

/// Refuses a directory with something that was interrupted.
///
/// # Errors
/// If there is such a thing.
pub fn refuse_unfinished(disk: &dyn Disk, dir: &Path) -> Result<(), Unfinished> {
    refuse(disk, dir, Work::Import)?;
    refuse(disk, dir, Work::Restore)
}

/// As [`refuse_unfinished`], for one kind of work.
pub fn refuse(disk: &dyn Disk, dir: &Path, work: Work) -> Result<(), Unfinished> {
    let (dir, file) = (dir.to_path_buf(), work.file(dir));
    match (disk.open(&file, Access::Read), work) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Also one that cannot be opened is there.
        (_, Work::Import) => Err(Unfinished::Import { dir, file }),
        (_, Work::Restore) => Err(Unfinished::Restore { dir }),
    }
}

/// What the file of work that was interrupted says, up to `bytes_max`; `None` if there is none.
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

/// Says, durably, that the work begins.
pub fn begin(disk: &dyn Disk, dir: &Path, work: Work, text: &str) -> io::Result<()> {
    env::crashsafe::write_atomically(disk, &work.file(dir), text.as_bytes())
}

/// Says, durably, that it is complete.
pub fn end(disk: &dyn Disk, dir: &Path, work: Work) -> io::Result<()> {
    env::crashsafe::remove_durably(disk, &work.file(dir))
}
