//! Replication: how the log of one server becomes that of others, as machines without sockets, threads, clocks or files.
//!
//! ```text
//! replica                                            leader
//! Claim: my log ends here, with this hash ---------> decide: resume | probe | full | refuse
//! marks: ends of my last batches ------------------> newest_common        (probe; then the tail is cut, and again)
//!                                                    Relay: batches of the log, unchanged
//! Receiver <--- LOG, HEARTBEAT, FENCED ------------- flush rule, heartbeats
//!   mirror -> own disk -> apply up to commit
//!   '---------- ACK (flushed, applied) ------------> Acks: commit, WAIT, lag       Retention: what the disk keeps
//! ```
//!
//! What it is: the frames between a leader and a replica, what each side does at which moment, what the acks of all replicas
//! amount to, and how a replica joins.
//! What it is not: it decodes no record and applies nothing, it moves bytes of the log that are opaque here; a position is
//! all it knows of them. Sockets, threads and the log belong to `server` and `storage`.
//!
//! Invariants
//! - Disk, wire and the replica's disk hold the same bytes at the same positions.
//! - A leader ships what is durable on its own disk and nothing else, so a replica is never ahead of it.
//! - A replica acknowledges as flushed what is durable on its own disk, and applies what is committed and durable here.
//! - `commit` never goes back while a leader lives.
//! - Who meets a higher epoch stops; who meets a lower one says so. Epochs are compared before positions are. One that is further
//!   ahead than [`epoch::EPOCH_JUMP_MAX`] is nobody's: it ends the connection and nothing else.
//! - Whatever a peer sends: no panic, no memory beyond the limits of [`frame`], and a reason that can be logged.

#![forbid(unsafe_code)]

mod acks;
mod backoff;
mod close;
pub mod epoch;
pub mod frame;
mod handover;
mod hex;
mod id;
mod inbox;
pub mod join;
mod leading;
mod log_view;
mod promotion;
mod receiver;
mod relay;
mod retention;
mod role;
mod timing;

pub use acks::{Acked, Acks, Session};
pub use backoff::Backoff;
pub use close::Close;
pub use handover::{GaveUp, Handover, HandoverStep};
pub use id::ReplicaId;
pub use inbox::Inbox;
pub use leading::Leading;
pub use log_view::{LogHistory, Tail};
pub use promotion::{Led, Promotion, promote};
pub use receiver::{Intake, LogBytes, Receiver, TakeError};
pub use relay::{Chunk, Moment, Outgoing, Relay, RelayError, RelayOptions, Source, Turn};
pub use retention::Retention;
pub use role::{Confirmed, Follow, Remembered, Role};
pub use timing::{ACK_BUSY_MS, ACK_IDLE_MS, HEARTBEAT_MS, SILENCE_MS};
