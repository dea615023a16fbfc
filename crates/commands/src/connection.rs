//! Connection commands: who a client is, which protocol and database it uses, and who else is connected.
//!
//! What it is: changes of the session and of the entry in the list of clients, which must agree. What it is
//! not: the sockets. Closing is asked for ([`Session::closing`](engine::Session), a killed client's signal)
//! and done by the server.
//!
//! Invariants
//! - None of these commands touches a key; none waits for the log.

mod attributes;
mod client;
mod greeting;
mod list;
mod rows;
mod tracking;

pub(crate) use rows::ROWS;
use rows::{ALWAYS, ROW, SESSION};
