//! Documents: databases of JSON documents with revision trees, as CouchDB has them, over `tree` files.
//!
//! What it is: what a document, a revision and a conflict are; how edits are validated, applied and read; queries.
//! What it is not: it knows no log, no socket, no thread, no clock and no HTTP. Times and randomness are arguments; what is to
//! be durable is handed to the caller as bytes and applied when the caller says so.
//!
//! Invariants
//! - What comes from a client, a file or a replica is decoded with bounds: no panic, and no more memory than the bytes that
//!   are there justify.
//! - The same edits lead to the same revisions, whatever their order, on every node.

#![forbid(unsafe_code)]

pub mod codec;
mod error;
mod rev_path;
mod rev_tree;
mod revision;

pub use error::DocError;
pub use rev_path::RevPath;
pub use rev_tree::{Leaf, Merged, RevTree};
pub use revision::{REV_TEXT_BYTES, Rev, RevError};
