//! All errors of the storage layer, in one enum.

use std::{io, path::PathBuf};

use lsn::Lsn;

/// A storage error. A failed write or sync of the log's batches poisons the log; in all other cases, only the
/// operation that returns the error has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a file or directory failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Bytes that were durable cannot be read back. Boxed, so that the results of frequent calls stay small.
    #[error("{0}")]
    Corrupt(Box<Damage>),
    /// A published snapshot cannot be read back. Boxed, like [`Error::Corrupt`].
    #[error("{0}")]
    SnapshotCorrupt(Box<SnapshotDamage>),
    /// A required file is missing, damaged, of another log or of another version; or the state of the
    /// directory does not permit the operation.
    #[error("{}: {reason}", path.display())]
    Inconsistent {
        /// The file or directory.
        path: PathBuf,
        /// The problem, and the remedy where there is one.
        reason: String,
    },
    /// A record of the log is longer than any that Sheaf writes.
    #[error(
        "the record at lsn {lsn} is longer than any that is written: it is not of this log. Restore it from a backup or a replica"
    )]
    TooLong {
        /// The LSN of the record, or of the part with which it becomes too long.
        lsn: Lsn,
    },
    /// The progress callback ended a check early.
    #[error("the check was ended early")]
    Ended,
    /// An earlier write or sync of the log failed; the contents of the disk after `durable_lsn` are unknown.
    #[error("log poisoned: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
}

/// The place of damage in the log, and the state of the bytes around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment file; if the log's files end before `lsn`, the file that would hold it.
    pub path: PathBuf,
    /// Byte offset of the damaged record in that file; of the first log byte if the file is missing.
    pub offset: u64,
    /// Position in the log of the record that is damaged or missing.
    pub lsn: Lsn,
    /// End of the last intact batch.
    pub intact_end: Lsn,
    /// The reason why the bytes there are not a valid record.
    pub reason: String,
    /// Number of batches after the damage, counted by their intact footers.
    pub batches_after: u64,
    /// A position after `intact_end` up to which the log was durable, as a later footer, the control file or
    /// a snapshot proves.
    pub durable_lsn: Lsn,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "log is damaged: {} at offset {} (lsn {}): {}. The log is intact up to lsn {}, but had been durable up to \
             lsn {} ({}), so this is not an interrupted last write. Nothing was changed. Restore the file from \
             another copy: a backup or a replica",
            self.path.display(),
            self.offset,
            self.lsn,
            self.reason,
            self.intact_end,
            self.durable_lsn,
            match self.batches_after {
                0 => "the control file or a snapshot says so".to_owned(),
                batches => format!("{batches} intact batches follow the damage"),
            },
        )
    }
}

/// The place of damage in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotDamage {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in that file.
    pub offset: u64,
    /// The LSN at which the snapshot begins, which names it.
    pub begin_lsn: Lsn,
    /// The first and the last slot whose rows are lost; `None` if the whole file is unusable.
    pub slots: Option<(u16, u16)>,
    /// The reason why the bytes are invalid.
    pub reason: String,
}

impl std::fmt::Display for SnapshotDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SnapshotDamage { path, offset, begin_lsn, slots, reason } = self;
        write!(
            f,
            "the snapshot of lsn {begin_lsn} is damaged: {} at offset {offset}: {reason}. ",
            path.display()
        )?;
        match slots {
            Some((first, last)) if first == last => write!(f, "The keys of slot {first} cannot be loaded. ")?,
            Some((first, last)) => write!(f, "The keys of slots {first} to {last} cannot be loaded. ")?,
            None => f.write_str("It cannot be loaded. ")?,
        }
        f.write_str("Nothing was changed. Restore the file from another copy: a backup or a replica")
    }
}

impl Error {
    /// Whether the error means that the disk is full, or that the quota of this user is used up.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// Attaches the operation and the path to an I/O error; for `map_err`.
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { operation, path, source }
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Error::Corrupt(Box::new(damage))
    }
}

impl From<SnapshotDamage> for Error {
    fn from(damage: SnapshotDamage) -> Self {
        Error::SnapshotCorrupt(Box::new(damage))
    }
}
