//! The rules for ids of documents and names of databases and attachments.
//!
//! An id of a document is any text of 1 to [`ID_BYTES_MAX`] bytes; only ids with [`DESIGN_PREFIX`] or
//! [`LOCAL_PREFIX`] may begin with an underscore.

use crate::DocError;

/// The maximum bytes of a document's id, which is limited because it is a key of the trees.
pub const ID_BYTES_MAX: usize = 2048;
/// The longest name of a database, in bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 238;
/// The longest name of an attachment, in bytes.
pub const ATTACHMENT_NAME_BYTES_MAX: usize = 4096;

/// The prefix of ids of documents that are neither listed nor replicated.
pub const LOCAL_PREFIX: &str = "_local/";
/// The prefix of ids of design documents.
pub const DESIGN_PREFIX: &str = "_design/";

/// The database of users.
pub const USERS_DATABASE: &str = "_users";

/// Checks the id of a document.
pub fn check_id(id: &str) -> Result<(), DocError> {
    let illegal = |reason| Err(DocError::IllegalDocId(reason));
    match id {
        "" => illegal("Document id must not be empty"),
        DESIGN_PREFIX => illegal("Illegal document id `_design/`"),
        LOCAL_PREFIX => illegal("Illegal document id `_local/`"),
        _ if id.len() > ID_BYTES_MAX => illegal("Document id is too long"),
        _ if !id.starts_with('_') || id.starts_with(DESIGN_PREFIX) || id.starts_with(LOCAL_PREFIX) => Ok(()),
        _ => illegal("Only reserved document ids may start with underscore."),
    }
}

/// Checks the name of a database.
pub fn check_database_name(name: &str) -> Result<(), DocError> {
    let reserved = matches!(name, "_users" | "_replicator" | "_global_changes");
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_$()+-/".contains(&byte);
    if !(reserved || name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(legal)) {
        return Err(DocError::IllegalDatabaseName(name.to_owned()));
    }
    if name.len() > DATABASE_NAME_BYTES_MAX {
        return Err(DocError::DatabaseNameTooLong(name.to_owned()));
    }
    Ok(())
}

/// Checks the name of an attachment.
pub fn check_attachment_name(name: &str) -> Result<(), DocError> {
    if name.is_empty() {
        return Err(DocError::bad_request("Attachment name must not be empty"));
    }
    if name.starts_with('_') {
        let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
        return Err(DocError::BadRequest(reason.into()));
    }
    if name.len() > ATTACHMENT_NAME_BYTES_MAX {
        return Err(DocError::bad_request("Attachment name is too long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_begin_with_an_underscore_are_reserved() {
        for id in ["a", "é", "a/b", "_design/a", "_local/a", "_local/_a", " "] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        let reason = |id: &str| check_id(id).expect_err("illegal").reason();
        assert_eq!(reason(""), "Document id must not be empty");
        assert_eq!(reason("_a"), "Only reserved document ids may start with underscore.");
        assert_eq!(reason("_design"), "Only reserved document ids may start with underscore.");
        assert_eq!(reason("_design/"), "Illegal document id `_design/`");
        assert_eq!(reason("_local/"), "Illegal document id `_local/`");
        assert_eq!(reason(&"a".repeat(ID_BYTES_MAX + 1)), "Document id is too long");
    }

    #[test]
    fn databases_have_names_in_small_letters() {
        for name in ["a", "a0_$()+-/", "_users"] {
            assert_eq!(check_database_name(name), Ok(()), "{name}");
        }
        for name in ["", "A", "1a", "_a", "aB", "a.b", "é"] {
            assert_eq!(check_database_name(name), Err(DocError::IllegalDatabaseName(name.into())));
        }
        let long = "a".repeat(DATABASE_NAME_BYTES_MAX + 1);
        assert_eq!(check_database_name(&long), Err(DocError::DatabaseNameTooLong(long.clone())));
    }

    #[test]
    fn attachments_have_names_without_underscore_before_them() {
        assert_eq!(check_attachment_name("a/_b.txt"), Ok(()));
        let reason = check_attachment_name("_b").expect_err("illegal").reason();
        assert_eq!(reason, "Attachment name '_b' starts with prohibited character '_'");
        assert!(check_attachment_name("").is_err());
    }
}
