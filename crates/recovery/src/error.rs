//! Why a recovery fails, and the remedies for the operator.

use std::path::{Path, PathBuf};

use lsn::Lsn;
use storage::SnapshotDamage;

/// The remedy if document files cannot be used.
pub const DOCUMENTS_REMEDY: &str = "Restore documents/ from a backup, or have this server copy everything from a replica anew. \
     Or move documents/ out of the data directory and start again: what the log has of it is made anew, and if that is not all, the start \
     says so";

/// Why recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The log or a snapshot cannot be read or written, or the log is damaged.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// This version cannot decode an intact record.
    #[error(
        "the record at lsn {lsn} is intact but cannot be understood ({reason}): it was written by another version of sheaf"
    )]
    Effect {
        /// The LSN of the record.
        lsn: Lsn,
        /// Why the record cannot be decoded.
        reason: keyspace::EffectError,
    },
    /// The changes that a record makes to document databases cannot be applied.
    #[error("the record at lsn {lsn}: {reason}")]
    Documents {
        /// The LSN of the record.
        lsn: Lsn,
        /// Why a change cannot be applied.
        reason: documents::StoreError,
    },
    /// Document files cannot be read or are damaged.
    #[error("{0}. {remedy}", remedy = DOCUMENTS_REMEDY)]
    Store(#[from] documents::StoreError),
    /// All document files are missing, and the log does not hold all documents.
    #[error(
        "the directory documents/ is missing or empty, and the log no longer has the documents from before lsn {begin}. \
         Restore it from a backup, or have this server copy everything from a replica anew. Or start once with \
         --force-recovery: it goes on with what is left, and reports what is not"
    )]
    NoDocuments {
        /// Where the replay begins.
        begin: Lsn,
    },
    /// Document files and log do not belong together.
    #[error(
        "documents are saved up to lsn {saved}, but the log that is read begins at {begin} and ends at {end}: they are not of the \
         same moment. Restore both from a backup or a replica"
    )]
    Apart {
        /// The position up to which the files are complete.
        saved: Lsn,
        /// Where the replay begins.
        begin: Lsn,
        /// Where the replay ends.
        end: Lsn,
    },
    /// A value was moved to a slot captured before the move, from a slot captured after it: the snapshot has
    /// the value in neither slot.
    #[error(
        "the record at lsn {lsn} moves a value that the snapshot has in neither place: the snapshot is not one of this \
         log. Restore both from a backup or a replica"
    )]
    Moved {
        /// The LSN of the record.
        lsn: Lsn,
    },
    /// A record changes a key that holds a value of another type.
    #[error(
        "the record at lsn {lsn} is intact but changes a key that holds a value of another type: it is not of this log. \
         Restore from a backup or a replica"
    )]
    WrongType {
        /// The LSN of the record.
        lsn: Lsn,
    },
    /// The snapshot to start from is damaged.
    #[error("{damage}. {remedy}")]
    Snapshot {
        /// The damage.
        damage: Box<SnapshotDamage>,
        /// The alternatives.
        remedy: Remedy,
    },
    /// Neither a snapshot from which the log can be replayed, nor a log that holds everything, begins at the
    /// position of [`Mode::From`](crate::recover::Mode::From).
    #[error("cannot recover from lsn {from}: no snapshot begins there that the log reaches back to. {}", listed(.possible))]
    NoBase {
        /// The requested position.
        from: Lsn,
        /// The possible positions.
        possible: Vec<Lsn>,
    },
    /// The report of losses of a forced recovery cannot be written.
    #[error("cannot write the report of losses: {0}")]
    Report(std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a recovery thread: {0}")]
    Thread(std::io::Error),
}

impl RecoverError {
    /// A sentence about `--force-recovery` for some errors that this option may get past and whose text does
    /// not name it; empty for all others.
    pub fn last_resort(&self) -> &'static str {
        match self {
            RecoverError::Storage(storage::Error::Corrupt(_) | storage::Error::Inconsistent { .. })
            | RecoverError::Apart { .. }
            | RecoverError::Moved { .. }
            | RecoverError::WrongType { .. } => {
                ". If nothing can be restored, --force-recovery leaves out what is damaged, reports it, and is read-only until \
                 you confirm"
            }
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_forced_recovery_gets_past_say_so() {
        let (lsn, io) = (Lsn::new(4096), || std::io::Error::other("no"));
        let apart = RecoverError::Apart { saved: lsn, begin: lsn, end: lsn };
        for (error, is_told) in [
            (apart, true),
            (RecoverError::Moved { lsn }, true),
            (RecoverError::WrongType { lsn }, true),
            (RecoverError::NoDocuments { begin: lsn }, false),
            (RecoverError::Report(io()), false),
            (RecoverError::Thread(io()), false),
        ] {
            assert_eq!(error.last_resort().contains("--force-recovery"), is_told, "{error}");
        }
    }
}

/// The alternatives if the snapshot to start from is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    dir: PathBuf,
    /// The beginning of the next older usable snapshot, or of the log if the log holds everything.
    base: Option<Lsn>,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dir = self.dir.display();
        match self.base {
            Some(base) => write!(
                f,
                "Or run `sheaf --dir {dir} --recover-from {base}` once: it starts from what is older and replays all of the \
                 log behind it, so nothing is lost; the damaged snapshot is kept aside"
            ),
            None => write!(
                f,
                "There is no older snapshot that the log reaches back to. If nothing can be restored, `sheaf --dir {dir} \
                 --force-recovery` leaves out what is damaged, reports it, and is read-only until you confirm"
            ),
        }
    }
}

impl Remedy {
    pub(crate) fn new(dir: &Path, base: Option<Lsn>) -> Remedy {
        Remedy { dir: dir.to_path_buf(), base }
    }
}

fn listed(possible: &[Lsn]) -> String {
    let possible: Vec<String> = possible.iter().map(Lsn::to_string).collect();
    match possible.as_slice() {
        [] => "Nothing does".into(),
        possible => format!("Possible: {}", possible.join(", ")),
    }
}
