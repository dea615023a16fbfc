//! `DirLock`: one server per data directory.
//!
//! What it is: an advisory `flock` on `sheaf.lock` inside the directory; the file says who holds it.
//! What it is not: a lock between threads, or across machines on network file systems that do not forward `flock`.
//!
//! Invariants
//! - The kernel releases the lock when the holder dies, however it dies; the file itself means nothing.
//! - The file is never removed: whoever removed it could lock a name that another process has just replaced.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;

/// An exclusive hold on a directory; released on drop.
#[derive(Debug)]
pub struct DirLock {
    /// Closing the descriptor releases the lock.
    _file: File,
}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is held by {}: a directory serves one server at a time", path.display(), holder(*pid))]
    Held {
        /// The process that wrote the lock file, if it could be read.
        pid: Option<u32>,
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file could not be opened, locked or written.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl DirLock {
    /// Name of the lock file.
    pub const NAME: &str = "sheaf.lock";

    /// Locks the existing directory `dir`, without waiting.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let path = dir.join(Self::NAME);
        let failed = |source| LockError::Io { path: path.clone(), source };
        // Not truncated at open: the pid in it belongs to the holder until the lock is ours.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { pid: read_pid(&mut file), path }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_pid(&mut file).map_err(failed)?;
        Ok(DirLock { _file: file })
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let temp = TempDir::new("lock");
        let lock = DirLock::acquire(temp.path()).unwrap();
        let error = DirLock::acquire(temp.path()).unwrap_err();
        assert!(matches!(&error, LockError::Held { pid, .. } if *pid == Some(process::id())), "{error}");
        assert!(error.to_string().contains(&format!("held by process {}", process::id())), "{error}");
        drop(lock);
        DirLock::acquire(temp.path()).unwrap();
    }

    #[test]
    fn a_leftover_file_is_no_lock() {
        let temp = TempDir::new("leftover");
        std::fs::write(temp.path().join(DirLock::NAME), "4294967295 and a longer line than ours\n").unwrap();
        let _lock = DirLock::acquire(temp.path()).unwrap();
        let text = std::fs::read_to_string(temp.path().join(DirLock::NAME)).unwrap();
        assert_eq!(text, format!("{}\n", process::id()));
    }

    #[test]
    fn a_missing_directory_is_an_io_error_that_names_the_file() {
        let temp = TempDir::new("missing");
        let error = DirLock::acquire(&temp.path().join("nowhere")).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }) && error.to_string().contains("nowhere/sheaf.lock"));
    }
}
