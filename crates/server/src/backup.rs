//! The server's side of a backup: sessions that pin a snapshot and the log behind it, and the routes that send their files.
//!
//! The crate `backup` says how a copy is made and what it holds.
//!
//! Invariants
//! - Whoever copies chooses the name of its session and keeps it: a session takes the place of an earlier one of the
//!   same name.
//! - What a session keeps from being removed is bounded, in time and in bytes; over it the session ends, not the
//!   server.

mod file_body;
pub(crate) mod routes;
pub(crate) mod session;
