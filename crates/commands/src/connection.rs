//! Connection commands: the identity, protocol and database of a client, and the list of all clients.
//!
//! What it is: changes of the session and of the entry in the list of clients, which must agree.
//! What it is not: the sockets. The commands request that a connection is closed
//! ([`Session::closing`](engine::Session), a killed client's signal); the server closes it.
//!
//! Invariants
//! - None of these commands touches a key.

mod attributes;
mod client;
mod greeting;
mod list;
mod rows;
mod tracking;

pub(crate) use greeting::check_queued_passwords;
pub(crate) use rows::ROWS;
use rows::{ALWAYS, ROW, SESSION};
