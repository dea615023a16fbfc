//! Databases as clients, recovery and replicas see them.

mod attachments;
mod catalog;
mod check;
mod compaction;
mod edits;
mod feeds;
mod files;
mod history;
pub(crate) mod kit;
mod unsupported;
