//! `StoreError`: files or the log do not hold what they should, or cannot be read or written.

use crate::DocError;
use crate::change::ChangeError;
use crate::id::DbId;

/// What a server cannot go on with: what is applied is not what was logged. A reader is told the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A record holds no change of documents.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A record changes a database that was never created.
    #[error("a change of document database {0}, which is not there")]
    UnknownDatabase(DbId),
    /// A record does not fit what is there.
    #[error("document database {db}: a change does not fit what is there: {what}")]
    Misfit {
        /// The database.
        db: DbId,
        /// What does not fit.
        what: &'static str,
    },
}

impl From<StoreError> for DocError {
    fn from(error: StoreError) -> DocError {
        DocError::Storage(error.to_string())
    }
}
