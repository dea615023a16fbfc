//! `DocError`: the errors of document requests with CouchDB's status, `error` and `reason`.
//!
//! Clients compare these texts, so they are exact. Errors of queries are in `query_error`, errors of HTTP
//! itself (methods, content types, authorization) in `couch`.

use std::borrow::Cow;

/// An error of a document request. Its `Display` is the `reason` of the reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// No such document, or no such revision of it.
    #[error("missing")]
    Missing,
    /// The document is deleted.
    #[error("deleted")]
    Deleted,
    /// No such database.
    #[error("Database does not exist.")]
    NoDatabase,
    /// The document exists, but not its attachment.
    #[error("Document is missing attachment")]
    NoAttachment,
    /// The edit is not based on a leaf of the document.
    #[error("Document update conflict.")]
    Conflict,
    /// An attachment is put to or deleted from a given revision, and the document does not exist.
    #[error("missing_rev")]
    MissingRev,
    /// A database with this name already exists.
    #[error("The database could not be created, the file already exists.")]
    DatabaseExists,
    /// An illegal name of a database.
    #[error(
        "Name: '{0}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    )]
    IllegalDatabaseName(String),
    /// A name of a database that is too long.
    #[error("At least one path segment of `{0}` is too long.")]
    DatabaseNameTooLong(String),
    /// An illegal id of a document.
    #[error("{0}")]
    IllegalDocId(&'static str),
    /// A special member of a document is unknown or has a wrong value, a member comes twice, or a replicated
    /// document has neither `_rev` nor `_revisions`.
    #[error("{0}")]
    DocValidation(Cow<'static, str>),
    /// Any other malformed request.
    #[error("{0}")]
    BadRequest(Cow<'static, str>),
    /// A parameter of the query string with a wrong value.
    #[error("{0}")]
    QueryParse(Cow<'static, str>),
    /// A rule for documents of users, or the limit on users, forbids the edit.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// The document would be stored without the effect that it has in CouchDB.
    #[error("{0}")]
    NotImplemented(&'static str),
    /// A document has a stub of an attachment that no leaf among its ancestors has.
    #[error("{0}")]
    MissingStub(String),
    /// The document, or its row with all leaves and revisions, is larger than allowed, or the document has
    /// too many attachments. The text is its id, if known, or the limit.
    #[error("{0}")]
    DocumentTooLarge(String),
    /// The attachment with this name is larger than allowed.
    #[error("{0}")]
    AttachmentTooLarge(String),
    /// An invalid query, or an invalid definition of an index for queries.
    #[error(transparent)]
    Query(#[from] crate::query_error::QueryError),
    /// The request exceeds a limit of the server.
    #[error("the request entity is too large")]
    TooLarge,
    /// Reading or writing a file failed, or stored data is damaged.
    #[error("{0}")]
    Storage(String),
}

impl DocError {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.row().0
    }

    /// The short name, `error` in the body of the reply.
    pub fn error(&self) -> &'static str {
        self.row().1
    }

    /// The text, `reason` in the body of the reply.
    pub fn reason(&self) -> String {
        self.to_string()
    }

    /// A [`DocError::BadRequest`] with a static text.
    pub const fn bad_request(reason: &'static str) -> DocError {
        DocError::BadRequest(Cow::Borrowed(reason))
    }

    /// A [`DocError::DocValidation`] with a static text.
    pub const fn doc_validation(reason: &'static str) -> DocError {
        DocError::DocValidation(Cow::Borrowed(reason))
    }

    fn row(&self) -> (u16, &'static str) {
        match self {
            DocError::Missing | DocError::Deleted | DocError::NoDatabase | DocError::NoAttachment => {
                (404, "not_found")
            }
            DocError::Conflict => (409, "conflict"),
            DocError::MissingRev => (409, "not_found"),
            DocError::DatabaseExists => (412, "file_exists"),
            DocError::IllegalDatabaseName(_) => (400, "illegal_database_name"),
            DocError::DatabaseNameTooLong(_) => (400, "database_name_too_long"),
            DocError::IllegalDocId(_) => (400, "illegal_docid"),
            DocError::DocValidation(_) => (400, "doc_validation"),
            DocError::BadRequest(_) => (400, "bad_request"),
            DocError::QueryParse(_) => (400, "query_parse_error"),
            DocError::Forbidden(_) => (403, "forbidden"),
            DocError::NotImplemented(_) => (501, "not_implemented"),
            DocError::MissingStub(_) => (412, "missing_stub"),
            DocError::DocumentTooLarge(_) => (413, "document_too_large"),
            DocError::AttachmentTooLarge(_) => (413, "attachment_too_large"),
            DocError::Query(error) => error.row(),
            DocError::TooLarge => (413, "too_large"),
            DocError::Storage(_) => (500, "internal_server_error"),
        }
    }
}

impl From<crate::RevError> for DocError {
    fn from(error: crate::RevError) -> DocError {
        DocError::BadRequest(error.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_couchdb() {
        let told = |error: DocError| (error.status(), error.error(), error.reason());
        assert_eq!(told(DocError::Conflict), (409, "conflict", "Document update conflict.".into()));
        assert_eq!(told(crate::RevError.into()), (400, "bad_request", "Invalid rev format".into()));
        assert_eq!(told(DocError::Deleted), (404, "not_found", "deleted".into()));
        assert_eq!(
            told(DocError::IllegalDatabaseName("_X".into())).2,
            "Name: '_X'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / \
             are allowed. Must begin with a letter."
        );
    }
}
