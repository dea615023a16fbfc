//! `DirLock`: one server per data directory.
//!
//! The locks are advisory `flock`s on the directory itself and on `sheaf.lock` inside it, which contains the
//! holder's process id. They exclude a second `DirLock`, also one of the same process. They exclude neither
//! code that uses the directory without a `DirLock`, nor other machines on a network file system that does
//! not forward `flock`.
//!
//! The lock on the directory holds even if the lock file in it is deleted. The lock file excludes earlier
//! versions of Sheaf, which lock only the file, and is the only lock on file systems that cannot lock
//! directories (NFS).
//!
//! Invariants
//! - The kernel releases the locks when the holder dies, in whatever way. The lock file may exist without a
//!   holder.
//! - Only [`DirLock::discard_directory`] removes the file. While the lock is held, the path leads to the
//!   locked directory and file, or [`DirLock::verify`] fails, unless it cannot tell. A directory that was
//!   moved, removed or replaced, or whose lock file was removed, is no longer protected from another server.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

/// How long the lock is tried again while another holder has it.
const PATIENCE: Duration = Duration::from_millis(200);
/// The pause between two tries.
const RETRY_PERIOD: Duration = Duration::from_millis(2);

/// An exclusive lock on a directory; released on drop.
#[derive(Debug)]
pub struct DirLock {
    path: PathBuf,
    /// Closing the descriptors releases the locks.
    file: File,
    _directory: File,
    locks_directory: bool,
}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock is held already, usually by another process.
    #[error(
        "{} is held by {}: a directory serves one server at a time",
        path.display(), holder(*pid)
    )]
    Held {
        /// The process that wrote the lock file, if it could be read.
        pid: Option<u32>,
        /// The path of the lock file.
        path: PathBuf,
    },
    /// The directory or the lock file could not be opened, or the lock file could not be locked or written.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The path of the lock file.
        path: PathBuf,
        /// The error of the OS.
        source: io::Error,
    },
}

impl LockError {
    /// The text of the error, followed by `remedy` if the lock is held already. The caller gives the remedy,
    /// because the server and the tools have different ones.
    pub fn with_remedy(&self, remedy: &str) -> String {
        match self {
            LockError::Held { .. } => format!("{self}. {remedy}"),
            LockError::Io { .. } => self.to_string(),
        }
    }
}

/// The path of the lock file no longer leads to the locked file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not the file any more that this process has locked ({what}): the data directory was moved, replaced or removed, or its \
     lock file was, so that another server may use it", path.display()
)]
pub struct LockLost {
    path: PathBuf,
    what: &'static str,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl DirLock {
    /// Name of the lock file.
    pub const NAME: &str = "sheaf.lock";

    /// Locks the existing directory `dir`. Waits for [`PATIENCE`] at most for each of the two locks: a tool
    /// that asks whether the directory is locked ([`DirLock::is_held`]) locks it for a moment itself.
    ///
    /// # Errors
    /// [`LockError::Held`] if the directory or the lock file is locked already; [`LockError::Io`] if one of
    /// them cannot be opened, or the lock file cannot be locked or written.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let path = dir.join(Self::NAME);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let directory = File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
        let directory = directory.map_err(failed)?;
        let locks_directory = match try_lock(&directory) {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Err(held(path)),
            // NFS refuses this: it locks only files that are open for writing.
            Err(TryLockError::Error(_)) => false,
        };
        // The file is not truncated when it is opened: until the lock is acquired, the file has the pid of
        // the current holder.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(path)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_pid(&mut file).map_err(failed)?;
        Ok(DirLock { path, file, _directory: directory, locks_directory })
    }

    /// Whether a process holds the lock on `dir` now, for tools that only inspect. False if this cannot be
    /// determined.
    pub fn is_held(dir: &Path) -> bool {
        let is_locked = |path: &Path| {
            File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
        };
        is_locked(dir) || is_locked(&dir.join(Self::NAME))
    }

    /// Whether the directory itself is locked, not only the lock file.
    pub fn locks_directory(&self) -> bool {
        self.locks_directory
    }

    /// Removes the directory, for a holder that has created it and does not need it. A directory that has
    /// anything but the lock file in it is left as it is.
    pub fn discard_directory(self) {
        let Some(dir) = self.path.parent() else { return };
        let is_lock = |entry: fs::DirEntry| entry.file_name() == Self::NAME;
        let is_unused =
            fs::read_dir(dir).is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(&is_lock)));
        if is_unused {
            // If the removal fails, the rest stays, as after a kill.
            let _ = fs::remove_file(&self.path).and_then(|()| fs::remove_dir(dir));
        }
    }

    /// Checks that the path still leads to the locked file. If that cannot be determined, the check succeeds.
    ///
    /// # Errors
    /// [`LockLost`] if the file is missing or was replaced.
    pub fn verify(&self) -> Result<(), LockLost> {
        let lost = |what| Err(LockLost { path: self.path.clone(), what });
        let is_gone = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        let (named, locked) = match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Err(error), _) if is_gone(&error) => return lost("there is none"),
            (Ok(named), Ok(locked)) => (named, locked),
            _ => return Ok(()),
        };
        if (named.dev(), named.ino()) != (locked.dev(), locked.ino()) {
            return lost("there is another");
        }
        Ok(())
    }
}

fn try_lock(file: &File) -> Result<(), TryLockError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => thread::sleep(RETRY_PERIOD),
            locked => return locked,
        }
    }
}

fn held(path: PathBuf) -> LockError {
    let pid = File::open(&path).ok().and_then(|mut file| read_pid(&mut file));
    LockError::Held { pid, path }
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
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_refused_holder_learns_the_process_id_of_the_first() {
        let temp = TempDir::new("lock");
        assert!(!DirLock::is_held(temp.path()));
        let lock = DirLock::acquire(temp.path()).unwrap();
        assert!(DirLock::is_held(temp.path()));
        let error = DirLock::acquire(temp.path()).unwrap_err();
        assert!(matches!(&error, LockError::Held { pid, .. } if *pid == Some(process::id())), "{error}");
        assert!(error.to_string().contains(&format!("held by process {}", process::id())), "{error}");
        drop(lock);
        DirLock::acquire(temp.path()).unwrap();
    }

    #[test]
    fn a_tool_that_asks_for_the_lock_keeps_no_server_from_it() {
        let temp = TempDir::new("lock-asked");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    DirLock::is_held(temp.path());
                }
            });
            let refused = (0..2000).find_map(|_| DirLock::acquire(temp.path()).err());
            is_over.store(true, Relaxed);
            assert!(refused.is_none(), "{refused:?}");
        });
    }

    #[test]
    fn a_directory_is_discarded_only_if_nothing_is_in_it() {
        let temp = TempDir::new("discard");
        let (unused, used) = (temp.path().join("unused"), temp.path().join("used"));
        for dir in [&unused, &used] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(used.join("data"), "x").unwrap();
        for dir in [&unused, &used] {
            DirLock::acquire(dir).unwrap().discard_directory();
        }
        assert!(!unused.exists() && used.join("data").exists() && used.join(DirLock::NAME).exists());
    }

    #[test]
    fn without_its_file_the_directory_is_locked_all_the_same() {
        let temp = TempDir::new("lock-file-removed");
        let lock = DirLock::acquire(temp.path()).unwrap();
        assert!(lock.locks_directory());
        fs::remove_file(temp.path().join(DirLock::NAME)).unwrap();
        let error = DirLock::acquire(temp.path()).unwrap_err();
        assert!(matches!(&error, LockError::Held { pid: None, .. }), "{error}");
    }

    #[test]
    fn an_earlier_version_that_locks_only_the_file_keeps_others_out() {
        let temp = TempDir::new("lock-of-file");
        let file = File::create(temp.path().join(DirLock::NAME)).unwrap();
        file.try_lock().unwrap();
        assert!(matches!(DirLock::acquire(temp.path()), Err(LockError::Held { .. })));
        drop(file);
        DirLock::acquire(temp.path()).unwrap();
    }

    #[test]
    fn a_holder_notices_that_file_or_directory_are_gone_or_others() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 5] = [
            ("there is none", |dir| fs::remove_file(dir.join(DirLock::NAME)).unwrap()),
            ("there is none", |dir| fs::rename(dir, dir.with_extension("moved")).unwrap()),
            ("there is none", |dir| fs::remove_dir_all(dir).unwrap()),
            ("there is another", |dir| {
                fs::write(dir.join("new"), "").unwrap();
                fs::rename(dir.join("new"), dir.join(DirLock::NAME)).unwrap();
            }),
            ("there is another", |dir| {
                fs::rename(dir, dir.with_extension("replaced")).unwrap();
                fs::create_dir(dir).unwrap();
                fs::write(dir.join(DirLock::NAME), "").unwrap();
            }),
        ];
        for (number, (what, change)) in changes.into_iter().enumerate() {
            let temp = TempDir::new(&format!("lock-lost-{number}"));
            let dir = temp.path().join("data");
            fs::create_dir(&dir).unwrap();
            let lock = DirLock::acquire(&dir).unwrap();
            assert_eq!(lock.verify(), Ok(()));
            change(&dir);
            assert_eq!(lock.verify().unwrap_err().what, what, "change {number}");
        }
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
