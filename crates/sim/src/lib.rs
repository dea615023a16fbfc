//! Whole-server simulation: the real server from request bytes to disk blocks, on one thread, decided by one
//! seed.
//!
//! ```text
//! Workload -> SimClient (pipelines) -> server::Conversation -> commands::Executor -> keyspace
//!                ^ replies                                      | records
//!                '-- outbox, released up to durable_lsn - storage::Log - env::SimDisk (crashes, faults, rot)
//!
//! Oracle: a model that executes the same commands; it knows the state after every record, and the
//!         acknowledged position
//! ```
//!
//! Other simulations: a [`QueueWorld`] of clients that wait for list elements, with a [`Ledger`] of the
//! possible places of each element; a [`ChannelWorld`] of publishers and followers of durable channels; a
//! [`DocumentWorld`] of document databases that are edited, saved and compacted; and a [`Cluster`] of
//! replicating servers.
//!
//! A [`World`] runs one life of a server step by step; the [`Oracle`] judges the content of the disk
//! afterwards. The crate also has wrapper disks and faults for tests. It is only for tests, and is no model
//! of the server: conversation, executor, keyspace, log and recovery are the product's own code; only
//! sockets, threads and time are simulated. Threads are not interleaved within a command (the loom tests do
//! that).
//!
//! Invariants
//! - The same seed gives the same run, I/O by I/O, so a failure is reproduced with `SHEAF_SIM_SEED=<seed>`.
//! - A reply counts as acknowledged when its last byte is delivered, not before.
//! - The oracle never asks the server for the expected result: the model executes the commands itself.

#![forbid(unsafe_code)]

mod channels;
mod client;
mod cluster;
mod command;
mod documents;
mod host;
mod ledger;
mod lone;
mod lying;
mod model;
mod operation;
mod oracle;
mod queues;
mod seed;
mod snapshotting;
mod start;
mod workload;
mod world;

pub use channels::ChannelWorld;
pub use client::SimClient;
pub use cluster::{Cluster, ClusterOptions, ClusterSummary, Treason};
pub use command::Command;
pub use documents::{DocumentContent, DocumentWorld, Held, documents_of};
pub use host::SimHost;
pub use ledger::Ledger;
pub use lone::LoneServer;
pub use lying::LyingDisk;
pub use model::{Content, Entry, Field, Key, Model, ModelSession, Stored, content_of};
pub use operation::{HashOperation, ListOperation, Operation, SetOperation, ZsetOperation};
pub use oracle::{Oracle, Survival, Violation};
pub use queues::{QueueWorld, lists};
pub use seed::{scale, seed_or};
pub use snapshotting::confirm;
pub use start::{Recovered, Sabotage, WorldOptions, place, records, recover, recover_by, recover_documents};
pub use workload::{Workload, WorkloadOptions};
pub use world::World;
