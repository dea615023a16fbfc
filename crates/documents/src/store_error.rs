//! `StoreError`: files or the log do not hold what they should, or cannot be read or written.

use std::path::PathBuf;
use std::sync::Arc;

use lsn::Lsn;
use tree::TreeError;

use crate::DocError;
use crate::change::ChangeError;
use crate::id::DbId;

/// What a server cannot go on with: what is applied is not what was logged. A reader is told the text.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A record holds no change of documents.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A record changes a database that was never created.
    #[error("a change of document database {0}, which is not there")]
    UnknownDatabase(DbId),
    /// A record does not fit what is there.
    #[error("document database {db}: a change does not fit the stored revisions: {what}")]
    Misfit {
        /// The database.
        db: DbId,
        /// What does not fit.
        what: &'static str,
    },
    /// A tree file cannot be read or written.
    #[error(transparent)]
    Tree(Arc<TreeError>),
    /// A file holds something else than it should.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// The cause.
        source: Arc<std::io::Error>,
    },
    /// The files are of a later moment than the log.
    #[error("document files hold changes up to lsn {files}, behind the end of the log at lsn {log}")]
    AheadOfLog {
        /// The position that the files have reached.
        files: Lsn,
        /// The position that was the last to do.
        log: Lsn,
    },
    /// What was to be stored will not be committed: the log has failed, or the server stops.
    #[error("the log has not committed the changes to be stored")]
    NotCommitted,
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> StoreError {
        StoreError::Tree(Arc::new(error))
    }
}

impl StoreError {
    /// Attaches what was tried and where to an I/O error; for `map_err`.
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
