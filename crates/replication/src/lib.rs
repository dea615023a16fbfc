//! Replication: ships the log of one server to others. State machines without sockets, threads, clocks or
//! files.
//!
//! ```text
//! replica                                            leader
//! Claim: my log ends here, with this hash ---------> decide: resume | probe | full | refuse
//! marks: ends of my last batches ------------------> newest_common  (probe; then the tail is cut, and again)
//!                                                    Relay: batches of the log, unchanged
//! Receiver <--- LOG, HEARTBEAT, FENCED ------------- flush rule, heartbeats
//!   mirror -> own disk -> apply up to commit
//!   '---------- ACK (flushed, applied) ------------> Acks: commit, WAIT, lag   Retention: log kept on disk
//! ```
//!
//! This crate has the frames between a leader and a replica, the rules when each side sends them, the
//! evaluation of all acknowledgements, and the join of a replica. It decodes and applies no records: log
//! bytes are opaque here and known only by their position. Sockets, threads and the log belong to `server`
//! and `storage`.
//!
//! Invariants
//! - The leader's disk, the wire and the replica's disk hold the same bytes at the same positions.
//! - A leader ships only bytes that are durable on its own disk, so a replica is never ahead of it.
//! - A replica acknowledges only bytes that are durable on its own disk, and applies only bytes that are
//!   committed and durable there.
//! - `commit` never goes back while a leader lives.
//! - A peer that meets a higher epoch stops; a peer that meets a lower one replies with its own. Epochs are
//!   compared before positions. An epoch further ahead than [`epoch::EPOCH_JUMP_MAX`] is implausible: it
//!   closes the connection and has no other effect.
//! - No input of a peer causes a panic or memory use beyond the limits of [`frame`]; every failure has a
//!   reason that can be logged.

#![forbid(unsafe_code)]

mod acks;
mod backoff;
mod close;
pub mod epoch;
pub mod frame;
mod hex;
mod id;
mod inbox;
pub mod join;
mod receiver;
mod relay;
mod retention;
mod timing;

pub use acks::{Acked, Acks, Session};
pub use backoff::Backoff;
pub use close::Close;
pub use id::ReplicaId;
pub use inbox::Inbox;
pub use receiver::{LogBytes, Receiver};
pub use relay::{Chunk, Moment, Outgoing, Relay, RelayError, RelayOptions, Source, Turn};
pub use retention::Retention;
pub use timing::{ACK_BUSY_MS, ACK_IDLE_MS, HEARTBEAT_MS, SILENCE_MS};
