//! The server: sockets, threads and files around the pure crates. The binary is `sheaf`.
//!
//! What it is: configuration, workers, connections, HTTP, metrics, recovery, the command line; the wiring.
//! What it is not: policy. What a command means is in `commands`, what is stored where in `keyspace` and `storage`.
//!
//! ```text
//! acceptor -> worker (one per core): connection -> conversation -> executor -> keyspace, log ring
//! log thread: one write and sync per batch -> wakes workers -> outbox releases replies -> socket
//! ```
//!
//! Invariants
//! - Only this crate owns threads, tasks and sockets.
//! - A reply is sent only after the position it depends on is durable (`outbox` asserts it).

#![forbid(unsafe_code)]

pub mod backup;
pub mod banner;
pub mod cli;
pub mod config;
mod connection;
pub mod conversation;
mod cross_protocol;
mod data_directory;
mod documents;
pub mod durable_channels;
mod event_queue;
pub mod export;
mod host;
mod http;
pub mod import;
mod info;
pub mod inspect;
mod inventory;
mod listen;
mod load;
mod log_threads;
mod logging;
mod long_units;
mod mailbox;
mod metrics;
pub mod migration;
pub mod offline;
pub mod outbox;
mod pace;
mod password;
pub mod progress;
mod progress_bar;
mod read_only;
mod reaper;
pub mod recover;
pub mod replay;
mod replication;
pub mod restore;
pub mod salvage;
mod scrub;
pub mod serve;
pub mod snapshots;
pub mod tail;
mod timeouts;
mod unfinished;
pub mod unix_time;
mod worker;
