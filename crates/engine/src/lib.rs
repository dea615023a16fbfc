//! The engine: executes commands as units of effects, and keeps the state of their clients.
//!
//! ```text
//! args -> row (table) -> checks -> lock the slots of the keys
//!      -> handler: validate, apply effects, write the reply -> reserve the log record -> unlock -> publish
//!      -> Outcome { gate }: the reply may leave once `gate` is committed
//! ```
//!
//! The crate has the executor, units, sessions, interests of clients, long units, and the shape of the table
//! of commands. It does not have the commands themselves: `commands` hands a [`CommandTable`] to the engine.
//! The crate owns no socket, thread, clock or file. The requests of a command to the process around it go
//! through [`Host`].
//!
//! Invariants
//! - A handler that returns an error has changed nothing, except with [`CommandError::Replied`].
//! - The slots of the keys that a command names are locked from before the command runs until its log
//!   position is taken. So the order in memory is the order in the log. Slots are locked in ascending order;
//!   only a script may add others later ([`Unit::try_lock`]).
//! - Commands change keys, libraries and the settings of the data through [`Unit::apply`] only. All that a
//!   unit has changed when it ends, except for access stamps, is in its one log record, documents included.
//! - Every reply carries a gate. With durability `strict` the gate is the newest position of anything that
//!   the reply could show; see [`execute::gate`].

#![forbid(unsafe_code)]

pub mod admission;
pub mod audit;
pub mod blocking;
pub mod callbacks;
pub mod channel_reader;
mod client_tracking;
pub mod clients;
pub mod context;
pub mod conversation;
pub mod deferred_reply;
pub mod demand;
pub mod error;
pub mod event;
mod event_queue;
pub mod eviction;
pub mod execute;
pub mod expire;
pub mod group;
pub mod host;
pub mod interest;
pub mod judgement;
mod lease_release;
pub mod leases;
pub mod log_messages;
pub mod long_units;
pub mod observe;
pub mod observing;
mod offload;
pub mod outbox;
pub mod queueing;
mod redirect;
pub mod replay_observers;
pub mod replication;
pub mod responder;
pub mod row;
pub mod rules;
pub mod script_machine;
pub mod scripts;
pub mod session;
pub mod shown_args;
pub mod stats;
pub mod stream_reply;
pub mod tick;
pub mod tracking;
pub mod transaction;
pub mod unit;
pub mod users;
mod wait;
mod watches;

pub use blocking::PendingServes;
pub use callbacks::Handler;
pub use client_tracking::ClientTracking;
pub use context::Context;
pub use error::{CommandError, UNCONFIRMED};
pub use event::{Event, EventClass, Message, Notice};
pub use execute::{Call, Executor, Merged, Outcome, Resolved};
pub use host::{
    CancelAnswer, DebugAccess, DocumentsCell, DurableChannels, Host, Loading, MemoryFigures, MemoryLimits,
    Persistence, Process, SAVE_IN_PROGRESS, SaveAnswer, SettingsInForce, ShutdownMode,
};
pub use interest::Interests;
pub use offload::{LongReply, LongUnit};
pub use replay_observers::ReplayObservers;
pub use responder::Responder;
pub use row::{
    Callee, CommandTable, Family, FindKeys, Flags, KeyUsage, Keys, Needs, Row, Treatment, counted_keys,
};
pub use script_machine::{LibraryReader, require_few_libraries};
pub use scripting::{ClockUs, LogLevel};
pub use scripts::{ScriptKind, ScriptSettings, Scripts};
pub use session::{ChannelReader, PeerClaim, Place, ReplyMode, Session};
pub use stats::{CommandStats, Histogram, RowTotals, Totals, WorkerStats};
pub use tracking::{Tracking, TrackingTotals};
pub use transaction::{QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX, Transaction};
pub use unit::Unit;
pub use wait::Wait;
pub use watches::Watches;
