//! Documents to which CouchDB gives a meaning that nothing here honours. They are refused: stored, they would look like a promise
//! that is kept.
//!
//! What it is: asked by the one function through which all edits of clients come, by whatever protocol. What it is not: asked
//! about what is in the log already; a directory in which an earlier version has stored such documents is read as it is.

use crate::DocError;
use crate::edit_request::EditRequest;
use crate::json::Reader;
use crate::names::DESIGN_PREFIX;

const USERS: &str = "Users are not kept in _users yet, and their passwords would not be hashed: set admin-user and admin-password, or requirepass.";
const REPLICATIONS: &str = "This server runs no replications of its own: use a client that does (PouchDB), or a replicator of CouchDB with this server as source or target.";
const VALIDATION: &str = "validate_doc_update is JavaScript and would not be run: check documents before they are sent, or in a proxy.";

/// Refuses an edit in the database `database` that would be stored and not honoured.
pub(crate) fn refuse(database: &str, edit: &EditRequest) -> Result<(), DocError> {
    if edit.id.starts_with(DESIGN_PREFIX) {
        let refused = !edit.deleted && has_member(&edit.body, "validate_doc_update");
        return if refused { Err(DocError::NotImplemented(VALIDATION)) } else { Ok(()) };
    }
    // As in CouchDB, the last part of a name tells.
    let reason = match database.rsplit('/').next() {
        Some("_users") => USERS,
        Some("_replicator") => REPLICATIONS,
        _ => return Ok(()),
    };
    // What was stored by an earlier version can be removed.
    let is_removal = edit.deleted && &edit.body[..] == b"{}" && edit.attachments.is_empty();
    if is_removal { Ok(()) } else { Err(DocError::NotImplemented(reason)) }
}

/// Whether an object has a member of this name.
fn has_member(body: &[u8], name: &str) -> bool {
    let mut found = false;
    let read = Reader::new(body).map_err(DocError::from).and_then(|mut reader| {
        reader.object::<DocError>(|reader, key| {
            found |= key == name;
            Ok(reader.raw().map(drop)?)
        })
    });
    // What cannot be read is not known to be without it.
    found || read.is_err()
}
