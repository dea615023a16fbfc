//! Commands about replication: leader and replicas, and the positions that these have reached.
//!
//! What it is: a thin layer over the trait [`Replication`](engine::replication::Replication), implemented by
//! the server.
//! What it is not: the protocol between servers. Only the commands that begin the protocol are here:
//! REPLICATE, and the commands of replicas that are Redis servers.

mod follow;
mod psync;
mod rows;
mod wait;

pub(crate) use rows::ROWS;
