//! Why a recovery fails, and what the operator can do about it.

use std::path::{Path, PathBuf};

use lsn::Lsn;
use storage::SnapshotDamage;

/// What to do about files of documents that cannot be used.
pub const DOCUMENTS_REMEDY: &str = "Restore documents/ from a backup, or have this server copy everything from a replica anew. \
     Or move documents/ out of the data directory and start again: what the log has of it is made anew, and if that is not all, the start \
     says so";

/// Why recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The log cannot be read or is damaged.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A record that is intact as bytes holds no effects this version knows.
    #[error(
        "the record at lsn {lsn} is intact but cannot be understood ({reason}): it was written by another version of sheaf"
    )]
    Effect {
        /// The record.
        lsn: Lsn,
        /// A description of the damage.
        reason: keyspace::EffectError,
    },
    /// What a record says of document databases does not fit what they are.
    #[error("the record at lsn {lsn}: {reason}")]
    Documents {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        reason: documents::StoreError,
    },
    /// Files of document databases cannot be read or are damaged.
    #[error("{0}. {way_out}", way_out = DOCUMENTS_REMEDY)]
    Store(#[from] documents::StoreError),
    /// Documents were saved in files, of which none is left.
    #[error(
        "the directory documents/ is missing or empty, and it alone had what the log said of documents before lsn {begin}. \
         Restore it from a backup, or have this server copy everything from a replica anew. Or start once with \
         --force-recovery: it goes on with what is left, and reports what is not"
    )]
    NoDocuments {
        /// Where the replay begins.
        begin: Lsn,
    },
    /// Files of document databases and log do not belong together.
    #[error(
        "documents are saved up to lsn {saved}, but the log that is read begins at {begin} and ends at {end}: they are not of the \
         same moment. Restore both from a backup or a replica"
    )]
    Apart {
        /// Up to where the files have everything.
        saved: Lsn,
        /// Where the replay begins.
        begin: Lsn,
        /// The position.
        end: Lsn,
    },
    /// A value was moved out of a slot that was captured without it, into one that was captured before.
    #[error(
        "the record at lsn {lsn} moves a value that the snapshot has in neither place: the snapshot is not one of this \
         log. Restore both from a backup or a replica"
    )]
    Moved {
        /// The record.
        lsn: Lsn,
    },
    /// The snapshot to start from is damaged.
    #[error("{damage}. {way_out}")]
    Snapshot {
        /// Where.
        damage: Box<SnapshotDamage>,
        /// What can be done besides.
        way_out: Remedy,
    },
    /// There is nothing that begins at the position of [`Mode::From`](super::Mode::From).
    #[error("cannot recover from lsn {from}: no snapshot begins there that the log reaches back to. {}", listed(.possible))]
    NoBase {
        /// The position that was asked for.
        from: Lsn,
        /// Those that are possible.
        possible: Vec<Lsn>,
    },
    /// What a forced recovery has left out cannot be told.
    #[error("cannot write the report of losses: {0}")]
    Report(std::io::Error),
    /// The OS refused a thread.
    #[error("cannot start a recovery thread: {0}")]
    Thread(std::io::Error),
}

impl RecoverError {
    /// What is left to try when nothing can be restored.
    pub fn last_resort(&self) -> &'static str {
        match self {
            RecoverError::Storage(storage::Error::Corrupt(_) | storage::Error::Inconsistent { .. }) => {
                ". If nothing can be restored, --force-recovery leaves out what is damaged, reports it, and is read-only until \
                 you confirm"
            }
            _ => "",
        }
    }
}

/// What else a server can start from whose newest snapshot is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    dir: PathBuf,
    /// Where the newest snapshot before it begins, or the log, if it holds everything.
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
