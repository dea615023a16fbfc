//! Tests of databases from the point of view of clients, recovery and replicas.

mod attachments;
mod catalog;
mod check;
mod compaction;
mod edits;
mod feeds;
mod files;
mod history;
pub(crate) mod kit;
mod positions;
mod unsupported;
