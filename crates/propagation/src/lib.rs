//! The data and its changes in the form in which Redis replicates them: an RDB file, then commands.
//!
//! ```text
//! keyspace -> dump: keys and functions of an RDB file
//! record of the log -> Renderer: commands, which have the effects of the record on a Redis or Valkey server
//! Feed: the commands with their offsets in the stream of one replica, from a checkpoint on
//! Sessions: the checkpoints of replicas that may return
//! Acks: the position in the log up to which a replica has the records
//! ```
//!
//! What it is not: a reader of the log or of snapshots, a socket, or a thread; those are the server's.
//!
//! Invariants
//! - The same records give the same bytes, whenever they are rendered, if the rendering begins in the same
//!   [`Renderer`] state. A position in the stream therefore needs no copy of the stream.
//! - A record is one transaction (MULTI ... EXEC) if it takes more than one command, SELECT aside.

#![forbid(unsafe_code)]

mod acks;
pub mod dump;
mod feed;
mod render;
mod sessions;

pub use acks::Acks;
pub use feed::{Checkpoint, Feed};
pub use render::Renderer;
pub use sessions::{SESSIONS_MAX, SessionId, Sessions, Ticket};
