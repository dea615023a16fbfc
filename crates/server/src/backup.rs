//! The server's side of a backup: sessions that pin a snapshot and the log after it, and the routes that send
//! their files.
//!
//! The crate `backup` describes how a copy is made and its contents.
//!
//! Invariants
//! - The copying client chooses the name of its session and keeps it: a session replaces an earlier one of
//!   the same name.
//! - The files that a session pins are bounded, in time and in bytes; above these bounds the session ends,
//!   not the server.

mod file_body;
pub(crate) mod routes;
pub(crate) mod session;
