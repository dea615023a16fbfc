//! Server commands: the state of the server, its settings, and operations on all keys at once.
//!
//! What it is: the command table shown to clients (COMMAND), and a thin layer over [`Host`](engine::Host) for
//! the rest.
//! What it is not: the settings, the text of INFO, or stopping; those belong to the process.
//!
//! Invariants
//! - FLUSHDB, FLUSHALL and SWAPDB lock every slot, and change the keys in one effect.
//! - COMMAND shows the rows of the table. For facts that rows do not have, such as the tips, there are tables
//!   by name here.

mod arguments;
mod command;
mod command_docs;
mod commandlog;
mod config;
mod databases;
mod debug;
mod hotkeys;
mod key_specifications;
mod latency;
mod latency_text;
mod lolwut;
mod memory;
mod memory_text;
mod module;
mod monitor;
mod process;
mod rows;
mod slowlog;
mod syntax;
mod tips;

pub(super) use monitor::stop as stop_monitoring;

pub(crate) use rows::ROWS;
use rows::{ADMIN, ALWAYS, HELP, ROW};
