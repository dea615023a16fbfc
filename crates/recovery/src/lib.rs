//! A data directory and its recovery into memory, before or without a server.
//!
//! ```text
//! load (newest snapshot, in parallel) -> replay (the log after it, by slot) -> keyspace, document databases
//! salvage: the same, skipping damage      snapshot_task: writes the next snapshot from memory
//! ```
//!
//! This crate is not a server: it owns no socket, and no thread outlives a call, except the one that redraws
//! a progress bar. `server` decides when a snapshot is taken.
//!
//! Invariants
//! - Damage in what is recovered is refused; only `salvage` leaves it out, and reports every loss. An older
//!   snapshot that cannot be opened is reported.
//! - A directory with a marker of unfinished work is never used as if it were complete (`unfinished`).
//! - Live execution, recovery and replicas apply the same effects with the same function.

#![forbid(unsafe_code)]

pub mod data_directory;
mod error;
pub mod group_state;
pub mod in_flight;
mod load;
pub mod offline;
pub mod opening;
pub mod progress;
pub mod progress_bar;
pub mod recover;
pub mod replay;
pub mod replication_state;
pub mod salvage;
mod sealed_json;
pub mod snapshot_task;
mod source;
pub mod unfinished;
pub mod unix_time;

pub use load::{Loaded, visit_runs};
