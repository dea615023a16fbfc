//! `StoreError`: files or the log have unexpected contents, or cannot be read or written.

use std::path::PathBuf;
use std::sync::Arc;

use lsn::Lsn;
use tree::TreeError;

use crate::DocError;
use crate::change::ChangeError;
use crate::id::DbId;

/// An error of stored data. If a record cannot be applied, the server must stop. If a read by a client fails,
/// the client gets the text of the error as the reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A record has a malformed change of documents.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A record changes a database that does not exist.
    #[error("a change of document database {0}, which is not there")]
    UnknownDatabase(DbId),
    /// A record does not fit the current state.
    #[error("document database {db}: a change does not fit the stored revisions: {what}")]
    Misfit {
        /// The database.
        db: DbId,
        /// A description of the mismatch.
        what: &'static str,
    },
    /// An error of a tree file.
    #[error(transparent)]
    Tree(Arc<TreeError>),
    /// A file has invalid contents, or a directory with databases has no catalog.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// A description of the damage.
        what: &'static str,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: Arc<std::io::Error>,
    },
    /// The files lack a database that was deleted only after the end of the log, or of the part of it that is
    /// to be applied.
    #[error("document files hold changes up to lsn {files}, behind the end of the log at lsn {log}")]
    AheadOfLog {
        /// The position of the deletion.
        files: Lsn,
        /// The end of the log, or of that part.
        log: Lsn,
    },
    /// The log has not committed the changes to be saved: it has failed, the server stops, or the wait for
    /// the commit has ended.
    #[error("the log has not committed the changes to be stored")]
    NotCommitted,
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> StoreError {
        StoreError::Tree(Arc::new(error))
    }
}

impl StoreError {
    /// Adds the operation and the path to an I/O error; for `map_err`.
    pub(crate) fn io(
        operation: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { operation, path, source: Arc::new(source) }
    }
}

impl From<StoreError> for DocError {
    fn from(error: StoreError) -> DocError {
        DocError::Storage(error.to_string())
    }
}
