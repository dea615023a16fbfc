//! A data directory and its way into memory: no server runs on it, or none yet.
//!
//! ```text
//! load (newest snapshot, in parallel) -> replay (the log after it, by slot) -> a keyspace, and the document databases
//! salvage: the same around damage       snapshot_task: from memory into the next snapshot
//! ```
//!
//! What it is not: a server. It owns no socket, and no thread outlives a call. When a snapshot is taken is decided in `server`.
//!
//! Invariants
//! - Damage is reported and refused, never skipped; only `salvage` goes on around it, and reports every loss.
//! - A directory with a marker of unfinished work is never used as if it were complete (`unfinished`).
//! - Live execution, recovery and replicas apply the same effects with the same function.

#![forbid(unsafe_code)]

pub mod data_directory;
mod load;
pub mod offline;
pub mod opening;
pub mod progress;
pub mod progress_bar;
pub mod recover;
pub mod replay;
pub mod replication_state;
pub mod salvage;
pub mod snapshot_task;
pub mod unfinished;
pub mod unix_time;
