//! What can be wrong with a request on documents, and how CouchDB says so: status, error and reason.
//!
//! What it is: the one table of those texts. Clients compare them, so they are exact.
//! What it is not: errors of HTTP itself (methods, content types, authorization): the server has those.

use std::borrow::Cow;

/// Why a request on documents fails. The reason in the `Display` is what the client is told.
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
    /// The document is there, its attachment is not.
    #[error("Document is missing attachment")]
    NoAttachment,
    /// The edit is not based on a leaf of the document.
    #[error("Document update conflict.")]
    Conflict,
    /// An attachment is put to a revision that is not there.
    #[error("missing_rev")]
    MissingRev,
    /// The database that is to be created exists.
    #[error("The database could not be created, the file already exists.")]
    DatabaseExists,
    /// A name that no database can have.
    #[error(
        "Name: '{0}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    )]
    IllegalDatabaseName(String),
    /// A name that is too long for a database.
    #[error("At least one path segment of `{0}` is too long.")]
    DatabaseNameTooLong(String),
    /// An id that no document can have.
    #[error("{0}")]
    IllegalDocId(&'static str),
    /// A member that begins with an underscore and is none of the known ones, or has a wrong value.
    #[error("{0}")]
    DocValidation(Cow<'static, str>),
    /// Anything else that is malformed.
    #[error("{0}")]
    BadRequest(Cow<'static, str>),
    /// A parameter of the query string with a wrong value.
    #[error("{0}")]
    QueryParse(Cow<'static, str>),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// What is asked for would be stored, and not honoured.
    #[error("{0}")]
    NotImplemented(&'static str),
    /// A document says that it has an attachment already, which it has not.
    #[error("{0}")]
    MissingStub(String),
    /// The document with this id is larger than allowed.
    #[error("{0}")]
    DocumentTooLarge(String),
    /// The attachment with this name is larger than allowed.
    #[error("{0}")]
    AttachmentTooLarge(String),
    /// A query, or the definition of an index for queries.
    #[error(transparent)]
    Query(#[from] crate::mango::QueryError),
    /// A request that asks for more than a server does at once.
    #[error("the request entity is too large")]
    TooLarge,
    /// Reading or writing a file failed, or what it holds is damaged. The text names the file.
    #[error("{0}")]
    Storage(String),
}

impl DocError {
    /// The status of HTTP.
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

    /// A [`DocError::BadRequest`] with a text that is known.
    pub const fn bad_request(reason: &'static str) -> DocError {
        DocError::BadRequest(Cow::Borrowed(reason))
    }

    /// A [`DocError::DocValidation`] with a text that is known.
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
