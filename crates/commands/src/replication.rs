//! Commands about copies of the server: who leads, who follows, how far they are.
//!
//! What it is: a thin layer over [`Replication`](engine::replication::Replication), which the server answers.
//! What it is not: the protocol between servers; of that only the first command, REPLICATE, passes through
//! here.

mod follow;
mod rows;
mod wait;

pub(crate) use rows::ROWS;
