//! Whole-server simulation: the real server from request bytes to disk blocks, on one thread, decided by one
//! seed.
//!
//! ```text
//! Workload -> SimClient (pipelines) -> engine::conversation::Conversation -> engine::Executor -> keyspace
//!                ^ replies                                            | records
//!                '-- outbox, released up to committed_lsn - storage::Log --- env::SimDisk (crash, faults)
//!
//! Oracle: a model of the commands, which knows the state after every record and the acknowledged position
//! ```
//!
//! There are also worlds of one server for its other clients:
//! - an [`HttpWorld`] of clients that speak HTTP to the CouchDB front;
//! - a [`QueueWorld`] of clients that wait for elements of lists, with a [`Ledger`] of the places where each
//!   element may be;
//! - a [`ChannelWorld`] of publishers and readers of durable channels;
//! - a [`DocumentWorld`] of databases that are written, saved and compacted.
//!
//! Two worlds have several servers: in a [`Cluster`] an operator chooses the leader, in a [`GroupWorld`] the
//! members elect it.
//!
//! What it is: a [`World`] that runs one incarnation of a server step by step, the [`Oracle`] that judges the
//! content of its disk afterwards, and the wrapper disks and faults that tests need. Only for tests.
//! What it is not: a model of the server. Conversation, executor, keyspace, log and recovery are the
//! product's own code; only the disk, sockets, threads and time are simulated. It does not interleave threads
//! within a command (the loom tests do).
//!
//! Invariants
//! - One seed decides all random choices of a run, so a failure is repeated with `SHEAF_SIM_SEED=<seed>`.
//! - A reply counts as acknowledged when its last byte was delivered, not before.
//! - The oracle does not take the expected state from the server: the model executes the commands itself. It
//!   takes only random choices and unspecified orders from the server, and which of the expired keys and
//!   fields were removed.

#![forbid(unsafe_code)]

mod channels;
mod client;
mod cluster;
mod command;
mod documents;
mod group;
mod host;
mod http;
mod ledger;
mod lone;
mod lying;
mod model;
mod operation;
mod oracle;
mod queues;
mod snapshotting;
mod start;
mod worker;
mod workload;
mod world;

pub use channels::ChannelWorld;
pub use client::SimClient;
pub use cluster::{Cluster, ClusterOptions, ClusterSummary, FaultInjection};
pub use command::Command;
pub use documents::{DocumentContent, DocumentWorld, Held, documents_of};
pub use group::{GroupFault, GroupFigures, GroupOptions, GroupWorld};
pub use host::{DeadLog, sim_host};
pub use http::HttpWorld;
pub use ledger::Ledger;
pub use lone::SingleServer;
pub use lying::LyingDisk;
pub use model::{Content, Entry, Field, Key, Model, ModelSession, Stored, content_of};
pub use operation::{HashOperation, ListOperation, Operation, SetOperation, ZsetOperation};
pub use oracle::{Oracle, Survival, Violation};
pub use prng::sweep::{rounds, rounds_at_least, scale, seed_or, spread, spread_at_least};
pub use queues::{QueueWorld, lists};
pub use snapshotting::confirm;
pub use start::{
    Recovered, Sabotage, WorldOptions, place, records, recover, recover_by, recover_documents,
    recover_documents_by,
};
pub use workload::{Workload, WorkloadOptions};
pub use world::World;
