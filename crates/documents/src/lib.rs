//! Documents: databases of JSON documents with revision trees, as in CouchDB, stored in `tree` files.
//!
//! The crate defines documents, revisions and conflicts; it validates and applies edits, reads documents, and
//! answers queries. It has no log, sockets, threads, clocks or HTTP. Times and randomness are arguments;
//! changes are returned to the caller as bytes for the log, and are applied when the caller reports their
//! position.
//!
//! Invariants
//! - Input from a client, a file or a replica is decoded with bounds: no panic, and no more memory than the
//!   size of the input justifies.
//! - The same edit makes the same revision on every node: see [`edit_hash`].

#![forbid(unsafe_code)]

mod attachment;
mod blob;
mod by_id;
mod catalog;
pub mod change;
mod check;
mod checkpoint;
pub mod codec;
mod compaction;
mod database;
mod database_file;
mod digest;
mod doc_info;
mod document;
mod documents;
mod edit_request;
mod error;
mod expected;
mod files;
mod found;
mod id;
pub mod json;
mod layer;
mod limits;
mod list;
pub mod mango;
mod metadata;
mod names;
mod query_error;
mod rev_path;
mod rev_tree;
mod revision;
mod rows;
mod scan;
mod snapshot;
mod state;
mod store;
mod store_error;
mod unnamed;
mod unsupported;
mod view;
mod writer;

pub use attachment::{
    ATTACHMENTS_MAX, AttachmentView, ContentView, DEFAULT_CONTENT_TYPE, NewAttachment, NewContent,
};
pub use catalog::CATALOG_NAME;
pub use change::ChangeError;
pub use check::{CheckReport, check, check_behind};
pub use checkpoint::{DIRTY_AGE_MS_MAX, DIRTY_BYTES_MAX, Due, LOG_BYTES_MAX};
pub use compaction::{COMPACTION_FILE_BYTES_MIN, Compaction, Step};
pub use database::{Database, Listener, Notice};
pub use database_file::Shelf;
pub use digest::Digest;
pub use doc_info::{ATTACHMENT_BYTES_MAX, Attachment, CHUNK_BYTES, ChangeRow, DocInfo, DocLeaf, DocSums};
pub use document::{BodyHash, DocRev, NewDocument, RefusedDocument, edit_hash};
pub use documents::{CatalogWriter, DATABASES_MAX, Documents, Gates};
pub use edit_request::{AttachmentRequest, AttachmentSource, EditRequest, History, Uploaded};
pub use error::DocError;
pub use files::{CopyFile, CopyPlan};
pub use found::Found;
pub use id::{DbId, DbIdError, DocId, UploadId};
pub use layer::LocalDoc;
pub use limits::Limits;
pub use names::{
    ATTACHMENT_NAME_BYTES_MAX, DATABASE_NAME_BYTES_MAX, DESIGN_PREFIX, ID_BYTES_MAX, LOCAL_PREFIX,
    USERS_DATABASE, check_attachment_name, check_database_name, check_id,
};
pub use rev_path::RevPath;
pub use rev_tree::{Leaf, Merged, RevTree};
pub use revision::{REV_TEXT_BYTES, Rev, RevError};
pub use scan::{AllDocs, Changes, Direction, IdRange};
pub use snapshot::{AttachmentReader, DatabaseInfo, Pick, RevsDiff, Snapshot};
pub use state::REVS_LIMIT;
pub use store::directory;
pub use store_error::StoreError;
pub use view::{DocumentView, RevStatus};
pub use writer::{
    REVS_LIMIT_MAX, SECURITY_BYTES_MAX, UPLOADS_MAX, WRITE_BATCH_BYTES_MAX, WRITE_BATCH_DOCUMENTS_MAX, Writer,
};

#[cfg(test)]
mod tests;
