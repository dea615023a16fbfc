//! Databases as clients, recovery and replicas see them.

mod attachments;
mod catalog;
mod edits;
mod feeds;
pub(crate) mod kit;
