//! `sheaf backup`: copies a running server's data into a directory, resumes an interrupted copy, verifies and
//! publishes it, and brings an existing backup up to date.
//!
//! Invariants
//! - Each file that an unfinished backup has copied is a prefix of the file that its session offers. The
//!   marker file, which holds the name of the session, is written before the server is asked for the session,
//!   and so before the first file is copied.
//! - Copied data that turns out to be damaged is removed, so that the next run copies it again.

mod copying;
mod remote;
mod tls_config;

use std::{
    fmt,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{DirLock, Disk, RealDisk};
use recovery::offline::Stage;

use self::copying::Copying;
pub use self::remote::RemoteError;
pub use self::{
    remote::{Breaker, Remote},
    tls_config::tls_config,
};
use super::{Manifest, ManifestError, Offer};

/// Why the backup failed; the message says how to proceed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The certificates for the connection cannot be used.
    #[error(transparent)]
    Certificates(#[from] tls::LoadError),
    /// The directory holds a complete backup.
    #[error("{} holds a backup already, of {}: choose another directory", dir.display(), made_at)]
    Complete {
        /// The directory.
        dir: PathBuf,
        /// The time of that backup.
        made_at: String,
    },
    /// The directory holds a backup of another server.
    #[error(
        "{} holds a backup of another server, of {made_at}: choose another directory. (A directory that was restored, or copied anew \
         from a leader, is another server.)", dir.display()
    )]
    OtherServer {
        /// The directory.
        dir: PathBuf,
        /// The time of that backup.
        made_at: String,
    },
    /// The server's log ends before the backup's.
    #[error(
        "{} holds a later state, up to lsn {backup}, than the server, which ends at lsn {server}: ask the leader, or wait until this \
         replica has followed; if the server was set back, choose another directory", dir.display()
    )]
    Behind {
        /// The directory.
        dir: PathBuf,
        /// The end of the server's log.
        server: u64,
        /// The end of the backup's log.
        backup: u64,
    },
    /// The logs of backup and server have diverged.
    #[error(
        "{} holds a backup of {made_at}, and the log of the server has diverged from it before that: it was set back, or another \
         server leads since. Choose another directory", dir.display()
    )]
    Diverged {
        /// The directory.
        dir: PathBuf,
        /// The time of the backup.
        made_at: String,
    },
    /// The directory holds other files.
    #[error("{} is not empty and holds no backup: choose another directory", .0.display())]
    NotEmpty(PathBuf),
    /// Another process uses the directory, or it cannot be locked.
    #[error("{}", .0.with_remedy("A backup has a directory of its own: name another one"))]
    Lock(#[from] env::LockError),
    /// The manifest or the marker of an unfinished backup is invalid, or cannot be read, written or removed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The server refuses or cannot be reached.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The copy was interrupted.
    #[error("the copy was interrupted: {}. Run the same command again to resume it", .0.trim_end_matches('.'))]
    Interrupted(String),
    /// The copied data is damaged.
    #[error(
        "what was copied is damaged: {0}. Run the same command again to copy the damaged part again, and `sheaf check` on \
         the server's directory, when it is stopped, if that does not help"
    )]
    Damaged(storage::Error),
    /// The copied data cannot be verified.
    #[error("cannot verify the copy: {0}")]
    Unverified(String),
    /// An operation of the operating system failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl BackupError {
    fn interrupted(error: RemoteError) -> BackupError {
        BackupError::Interrupted(error.to_string())
    }
}

/// Wraps an error of the operating system.
pub fn os(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Os { doing, path, source }
}

/// The user name if none is given. The setting `requirepass` is the password of this user.
pub const DEFAULT_USER: &str = "default";

/// Shows progress: the stage, bytes done and bytes in total. An error ends the copy, which can be resumed
/// later.
pub type Show<'s> = &'s dyn Fn(Stage, u64, u64) -> Result<(), BackupError>;

/// The permitted content of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// Nothing, or an interrupted copy.
    Nothing,
    /// Nothing, an interrupted copy, or a complete backup, which is brought up to date.
    Backup,
}

/// An event during the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'n> {
    /// The data of an interrupted copy is of no use any more.
    StartsOver,
    /// A file of the backup being brought up to date is damaged or cannot be read. It is copied again if the
    /// server still offers it.
    CopiedAgain(&'n str),
    /// The server does not answer yet; perhaps it has to take a snapshot first.
    AwaitsSnapshot,
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::StartsOver => {
                f.write_str("starts over  the server no longer has the snapshot that the copy began with")
            }
            Notice::CopiedAgain(name) => {
                write!(f, "DAMAGED      {name} has changed since it was copied: it is copied again")
            }
            Notice::AwaitsSnapshot => f.write_str(
                "waits        the server has to take a snapshot first, which a script or a slow disk there may delay (see its log)",
            ),
        }
    }
}

/// A source of copies: a server.
pub trait Origin {
    /// Begins a session, which replaces an earlier session of the same name. The offer has the snapshot that
    /// begins at `resume`, if the server still has that snapshot. Calls `is_silent` whenever the server has
    /// said nothing for long.
    fn begin(&self, session: &str, resume: Option<u64>, is_silent: &dyn Fn()) -> Result<Offer, RemoteError>;

    /// Reads a range of a file of the offer.
    fn read(&self, offer: &Offer, name: &str, range: Range<u64>) -> Result<Box<dyn Read>, RemoteError>;

    /// Ends the session. If this fails, the session times out.
    fn end(&self, offer: &Offer);
}

/// The result of a copy.
pub struct Copied {
    /// The manifest of the complete backup.
    pub manifest: Manifest,
    /// Bytes that existed already.
    pub reused_bytes: u64,
    /// Bytes transferred.
    pub copied_bytes: u64,
}

/// Copies the server's data into `dir`, resuming an interrupted copy or, with [`Onto::Backup`], bringing a
/// backup up to date, and verifies it.
pub fn copy_server(
    remote: &Remote,
    dir: &Path,
    onto: Onto,
    tell: &dyn Fn(Notice<'_>),
    show: Show<'_>,
) -> Result<Copied, BackupError> {
    RealDisk.create_dir_all(dir).map_err(os("create", dir))?;
    let _lock = DirLock::acquire(dir)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Copying { disk: &disk, dir, origin: remote, tell, show }.run(onto)
}
