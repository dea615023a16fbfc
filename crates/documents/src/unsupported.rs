//! Rejects some documents that CouchDB would act on and this server would not: design documents with
//! `validate_doc_update`, jobs of the replicator, and documents of users. Storing them would suggest that
//! they take effect.
//!
//! [`crate::Writer::edit`] calls this check, so it covers the edits of clients by every protocol. Edits of
//! users' documents ([`crate::Writer::edit_user`]) are the exception: the caller checks the users' rules.
//! Records in the log are not checked: a directory in which an earlier version stored such documents stays
//! readable.

use crate::DocError;
use crate::edit_request::EditRequest;
use crate::json::Reader;
use crate::names::{DESIGN_PREFIX, USERS_DATABASE};

const USERS: &str = "Users are documents of _users that are changed over HTTP alone, where their passwords are hashed: PUT /_users/org.couchdb.user:NAME.";
const REPLICATIONS: &str = "This server runs no replications of its own: use a client that does (PouchDB), or a replicator of CouchDB with this server as source or target.";
const VALIDATION: &str = "validate_doc_update is JavaScript and would not be run: check documents before they are sent, or in a proxy.";

/// Rejects an edit of a client in the database `database` if it is of one of these kinds.
pub(crate) fn refuse(database: &str, edit: &EditRequest) -> Result<(), DocError> {
    if edit.id.starts_with(DESIGN_PREFIX) {
        let refused = !edit.deleted && has_member(&edit.body, "validate_doc_update");
        return if refused { Err(DocError::NotImplemented(VALIDATION)) } else { Ok(()) };
    }
    // As in CouchDB, the last segment of the name decides.
    let reason = match database.rsplit('/').next() {
        Some("_users") => USERS,
        Some("_replicator") => REPLICATIONS,
        _ => return Ok(()),
    };
    // Documents that an earlier version stored can be removed. In `_users`, only `Writer::edit_user` does so.
    let is_removal =
        database != USERS_DATABASE && edit.deleted && &edit.body[..] == b"{}" && edit.attachments.is_empty();
    if is_removal { Ok(()) } else { Err(DocError::NotImplemented(reason)) }
}

/// Whether an object has a member of this name; also true if the object cannot be read.
fn has_member(body: &[u8], name: &str) -> bool {
    let mut found = false;
    let read = Reader::new(body).map_err(DocError::from).and_then(|mut reader| {
        reader.object::<DocError>(|reader, key| {
            found |= key == name;
            Ok(reader.raw().map(drop)?)
        })
    });
    // Unreadable text may have the member.
    found || read.is_err()
}
