//! `sheaf backup`: copies a running server's data into a directory, goes on where it was interrupted, verifies, publishes; and
//! brings a backup up to date that is there.
//!
//! Invariants
//! - What is in the directory of an unfinished backup is a prefix of each file of the session it is of. The mark that says so
//!   is there before the first file, and before the server is asked for a session, whose name is in it.
//! - What was copied and turns out to be damaged is removed, so that the next run copies it again.

mod copying;
mod remote;

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
pub use self::remote::{Breaker, Remote};
use super::{Manifest, ManifestError, Offer};

/// Why there is no backup; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The directory holds a backup.
    #[error("{} holds a backup already, of {}: choose another directory", dir.display(), made_at)]
    Complete {
        /// The directory.
        dir: PathBuf,
        /// When it was made.
        made_at: String,
    },
    /// The directory holds a backup of something else.
    #[error(
        "{} holds a backup of another server, of {made_at}: choose another directory. (A directory that was restored, or copied anew \
         from a leader, is another server.)", dir.display()
    )]
    OtherServer {
        /// The directory.
        dir: PathBuf,
        /// When the backup was made.
        made_at: String,
    },
    /// The server has less than the backup.
    #[error(
        "{} holds a later state, up to lsn {backup}, than the server, which ends at lsn {server}: ask the leader, or wait until this \
         replica has followed; if the server was set back, choose another directory", dir.display()
    )]
    Behind {
        /// The directory.
        dir: PathBuf,
        /// Where the log of the server ends.
        server: u64,
        /// Where that of the backup ends.
        backup: u64,
    },
    /// Both have gone on from the same state in different ways.
    #[error(
        "{} holds a backup of {made_at}, and the log of the server has parted from it before that: it was set back, or another \
         server leads since. Choose another directory", dir.display()
    )]
    Parted {
        /// The directory.
        dir: PathBuf,
        /// When the backup was made.
        made_at: String,
    },
    /// The directory holds something else.
    #[error("{} is not empty and holds no backup that was begun: choose another directory", .0.display())]
    NotEmpty(PathBuf),
    /// Another backup is being made there, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] env::LockError),
    /// A manifest cannot be read or written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The server refuses.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The copy broke off.
    #[error("the copy was interrupted: {0}. Run the same command again to resume it")]
    Interrupted(String),
    /// What was copied is not what the server has written.
    #[error(
        "what was copied is damaged: {error}. {} was removed; run the same command again to copy it again, and `sheaf check` \
         on the server's directory, when it is stopped, if that does not help", path.display()
    )]
    Damaged {
        /// What is wrong, and where.
        error: storage::Error,
        /// The RDB file.
        path: PathBuf,
    },
    /// What was copied cannot be verified.
    #[error("cannot verify the copy: {0}")]
    Unverified(String),
    /// The OS refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The RDB file.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
}

impl BackupError {
    fn interrupted(error: RemoteError) -> BackupError {
        BackupError::Interrupted(error.to_string())
    }
}

/// An error of the OS, as this command tells it.
pub fn os(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Os { doing, path, source }
}

/// Who asks if nobody else is named: the user of `requirepass`.
pub const DEFAULT_USER: &str = "default";

/// Is shown how far it is: the stage, bytes that are done, bytes in all. Its error ends the copy, which can be gone on with.
pub type Show<'s> = &'s dyn Fn(Stage, u64, u64) -> Result<(), BackupError>;

/// What the directory may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// Nothing, or what is left of a copy that was interrupted.
    Nothing,
    /// A complete backup as well: it is brought up to date.
    Backup,
}

/// What is worth knowing while it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'n> {
    /// What an interrupted copy had is of no use.
    StartsOver,
    /// A file of the backup that is brought up to date is damaged.
    CopiedAgain(&'n str),
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
        }
    }
}

/// Whoever offers a copy: a server.
pub trait Origin {
    /// Begins a session of this name, in the place of an earlier one, if it can be with the snapshot that begins at `resume`.
    fn begin(&self, session: &str, resume: Option<u64>) -> Result<Offer, RemoteError>;

    /// Bytes of a file.
    fn read(&self, offer: &Offer, name: &str, range: Range<u64>) -> Result<Box<dyn Read>, RemoteError>;

    /// Ends the session; if that fails, it ends by itself.
    fn end(&self, offer: &Offer);
}

/// What was copied.
pub struct Copied {
    /// The manifest of the complete backup.
    pub manifest: Manifest,
    /// Bytes that were there already.
    pub reused_bytes: u64,
    /// Bytes that were fetched.
    pub copied_bytes: u64,
}

/// Copies what a server holds into `dir`, going on where an earlier call was interrupted, and verifies it.
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
