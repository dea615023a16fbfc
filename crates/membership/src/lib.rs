//! A member of a group: its votes with their file and their clock, the roster, and how it starts.
//!
//! ```text
//! start: group.json, the roster in the data, the last batches of the log -> a Member
//! Votes: an input -> the machine of `consensus` -> the ballot is saved -> messages, committed, leadership
//! Known: a new roster in the data -> committed -> saved -> in force
//! ```
//!
//! What it is: the part of a member that the server and the simulation share.
//! What it is not: threads, connections, or a writer of the log. Its caller reports time, messages and
//! durable batches, and carries out the decisions of the votes.
//!
//! Invariants: those of the modules.

#![forbid(unsafe_code)]

mod known;
mod roster;
mod start;
mod votes;

pub use known::{Known, Seen, changed_roster};
pub use roster::{Listed, MEMBERS_MAX, OF_GROUP, ROSTER, Roster};
pub use start::{Started, references, refuses_writes, start};
pub use votes::{Reports, Votes};
