//! `TreeError`: the errors of a tree file, in one enum. All but `TooLarge` name the file; `Damaged` names the
//! offset too.

use std::{
    io,
    path::{Path, PathBuf},
};

use lsn::Lsn;

/// An error of an operation on a tree file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// An operation on the file failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The bytes are no tree file, differ from the bytes that were written, or are a tree file with another
    /// number of trees than wanted.
    #[error("{} is damaged at offset {offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damaged node, blob or header, or where a checkpoint should end.
        offset: u64,
        /// A description of the damage.
        reason: &'static str,
    },
    /// No checkpoint lies within the wanted range of LSNs. If a checkpoint was skipped because it is damaged
    /// or incomplete, like one that was being written during a crash, the error names it.
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
        /// The first and last acceptable LSN.
        wanted: (Lsn, Lsn),
        /// The newest intact checkpoint that is not too new.
        newest: Option<Lsn>,
        /// A newer checkpoint that was skipped because it is damaged or incomplete.
        passed_over: Option<PassedOver>,
    },
    /// The file was written by another version.
    #[error("{} has format version {version}, this server reads version {}", path.display(), crate::format::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// The format version of the file.
        version: u32,
    },
    /// An earlier write, cut, sync or change of a tree failed; the file takes checkpoints only after it is
    /// opened again.
    #[error("{} takes no more checkpoints since an earlier one failed: {reason}", path.display())]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// A key, value, blob or metadata exceeds its size limit.
    #[error("{what} of {bytes} bytes: at most {max} are possible")]
    TooLarge {
        /// The kind of data, with an article, e.g. "a key".
        what: &'static str,
        /// The size of the data.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// A checkpoint that was skipped because its bytes are damaged or incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassedOver {
    /// The offset of the checkpoint's header.
    pub offset: u64,
    /// The applied LSN in the checkpoint's header; [`Lsn::ZERO`] if the header itself is damaged.
    pub applied_lsn: Lsn,
    /// A description of the damage.
    pub reason: &'static str,
}

impl TreeError {
    /// Adds the operation and the path to an I/O error; for `map_err`.
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
