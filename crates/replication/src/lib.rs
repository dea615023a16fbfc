//! Replication of one server's log to others, as state machines without sockets, threads, clocks or files.
//!
//! ```text
//! replica                                            leader
//! Claim: my log ends here, with this chain value --> decide: resume | probe | full | refuse
//! marks: ends of my last batches ------------------> newest_common   (probe; then cut the tail, join again)
//!                                                    Relay: batches of the log, unchanged
//! Receiver <--- LOG, HEARTBEAT, FENCED ------------- flush rule, heartbeats
//!   mirror -> own disk -> apply up to commit
//!   '---------- ACK (flushed, applied) ------------> Acks: commit, WAIT, lag     Retention: log kept on disk
//! ```
//!
//! The crate also contains the role of a server ([`Role`]), its [`Promotion`] and the [`Handover`] to a
//! replica. It neither decodes nor applies records: the bytes of the log are opaque here, with a position.
//! Sockets, threads and the log belong to `server` and `storage`.
//!
//! Invariants
//! - The leader's disk, the wire and the replica's disk hold the same bytes at the same positions.
//! - A leader ships only the part of the log that is durable on its own disk, and a replica acknowledges only
//!   such a part as flushed. A server whose durability does not sync every batch counts written batches as
//!   well (`Log::shippable_lsn`).
//! - A replica applies only records that are committed, and on its own disk in the same sense; at its
//!   promotion, it applies all that it has received.
//! - `commit` never goes back during the reign of a leader, unless the leader begins to wait for replicas
//!   ([`Acks::begin_at`]).
//! - A leader that meets a higher epoch leads no more, unless it is a member of a group, where votes decide
//!   that. A server that meets a lower epoch reports its own. Epochs are compared before positions. An epoch
//!   further ahead than [`epoch::EPOCH_JUMP_MAX`] is invalid: it ends the connection and nothing else.
//! - No input of a peer causes a panic, or takes memory beyond the limits of [`frame`]; each error has a
//!   reason for the log.

#![forbid(unsafe_code)]

mod acks;
mod backoff;
mod close;
mod digits;
pub mod epoch;
pub mod frame;
mod handover;
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
mod stall;
mod timing;

pub use acks::{Acked, Acks, Session};
pub use backoff::Backoff;
pub use close::Close;
pub use handover::{Ends, GaveUp, Handover, HandoverStep, Unanswered};
pub use id::{ProcessId, ReplicaId};
pub use inbox::Inbox;
pub use leading::Leading;
pub use log_view::{LogHistory, Tail};
pub use promotion::{Led, Promotion, promote};
pub use receiver::{Intake, LogBytes, Receiver, TakeError};
pub use relay::{Chunk, Moment, Outgoing, Relay, RelayError, RelayOptions, RelayTurn, Source};
pub use retention::Retention;
pub use role::{Confirmed, Follow, Remembered, Role};
pub use stall::{PROMOTION_STALL_MS, STALL_MS, Stall};
pub use timing::{ACK_BUSY_MS, ACK_IDLE_MS, HEARTBEAT_MS, SILENCE_MS};
