//! The server: sockets, threads and files around the pure crates.
//!
//! This crate contains workers, connections, HTTP, metrics, background jobs, and connects the other crates.
//! Commands are implemented in `commands`, data structures and files in `keyspace` and `storage`.
//!
//! ```text
//! acceptor -> worker (one per core): connection -> conversation -> executor -> keyspace, log ring
//! log thread: one write and sync per batch -> wakes workers -> outbox releases replies -> socket
//! ```
//!
//! Invariants
//! - Only this crate listens, and only it starts threads that live as long as the server.
//! - A reply is sent only after the position on which it depends is committed, as `engine::outbox` asserts.

#![forbid(unsafe_code)]

mod access;
mod attached_log;
pub mod backup;
pub mod banner;
mod config;
mod connection;
mod cross_protocol;
mod data;
mod dead_log;
mod documents;
pub mod durable_channels;
mod encryption;
mod group;
mod handshakes;
mod http;
mod info;
mod inventory;
mod listen;
mod log_threads;
pub mod logging;
mod long_units;
mod mailbox;
mod metrics;
mod pace;
mod parts;
mod process;
mod rates;
mod read_only;
mod reaper;
mod redis_feed;
mod repeated;
mod replication;
mod scrub;
pub mod serve;
pub mod snapshots;
mod spawn;
mod startup_info;
mod stop;
mod supervisor;
mod timeouts;
mod traces;
mod tunnels;
mod unix_door;
mod worker;
