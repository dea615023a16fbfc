//! What can go wrong with a tree file, as one closed enum. Each names the file; damage names the offset too.

use std::{
    io,
    path::{Path, PathBuf},
};

use lsn::Lsn;

/// Why something could not be done with a tree file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The operating system refused an operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Bytes are not what was written.
    #[error("{} is damaged at offset {offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the node, blob or header begins that cannot be read.
        offset: u64,
        /// What was found.
        reason: &'static str,
    },
    /// No checkpoint is as new, or as old, as it must be. What had to be passed over for being damaged is named: after a crash that
    /// is the checkpoint that was being written.
    #[error(
        "{} has no checkpoint {}: {}{}",
        path.display(),
        match *wanted { (first, Lsn::MAX) => format!("of lsn {first} or later"), (first, last) => format!("between lsn {first} and lsn {last}") },
        match newest { Some(lsn) => format!("the newest one up to there is of lsn {lsn}"), None => "it has none up to there".into() },
        match passed_over { Some(at) => format!(", and at offset {} {}", at.offset, at.reason), None => String::new() },
    )]
    NoCheckpoint {
        /// The file.
        path: PathBuf,
        /// The first and last LSN that would do.
        wanted: (Lsn, Lsn),
        /// The newest checkpoint that is not too new.
        newest: Option<Lsn>,
        /// A newer one that is damaged.
        passed_over: Option<PassedOver>,
    },
    /// The file was written by another version.
    #[error("{} has format version {version}, this server reads version {}", path.display(), crate::format::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// An earlier write or sync failed, and what is on disk is unknown until the file is opened again.
    #[error("{} takes no more checkpoints since it could not be written: {reason}", path.display())]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// More bytes than a file can hold in one place.
    #[error("{what} of {bytes} bytes: at most {max} are possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// A checkpoint that was not used because its bytes are not all there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassedOver {
    /// Where its header begins.
    pub offset: u64,
    /// The position that it had applied, as its header says.
    pub applied_lsn: Lsn,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl TreeError {
    /// Attaches what was tried and where to an I/O error; for `map_err`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeError {
        let path = path.to_owned();
        move |source| TreeError::Io { operation, path, source }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, reason: &'static str) -> TreeError {
        TreeError::Damaged { path: path.to_owned(), offset, reason }
    }

    /// An error if `bytes` is more than `max`.
    pub(crate) fn require_fits(what: &'static str, bytes: usize, max: usize) -> Result<(), TreeError> {
        if bytes <= max { Ok(()) } else { Err(TreeError::TooLarge { what, bytes, max }) }
    }
}
