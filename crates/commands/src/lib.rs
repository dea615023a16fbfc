//! Commands: the meaning of Redis commands, as functions from (keyspace, arguments, time) to (effects,
//! reply).
//!
//! ```text
//! args -> row (table) -> checks -> lock the slots of the keys -> handler: validate, apply effects, reply
//!      -> reserve the log record -> unlock -> publish
//!      -> Outcome { gate }: the reply may leave once `gate` is durable
//! ```
//!
//! This crate has one table row per command, one module per family, and one place that executes them.
//! It owns no socket, thread, clock or file. Commands use the process around them through [`Host`].
//!
//! Invariants
//! - A handler that returns an error has changed nothing; the other commands of a batch are not affected.
//! - All keys of a command are locked before it runs, in ascending slot order, and until its log position is
//!   taken: the order in memory is the order in the log.
//! - Data changes through [`Unit::apply`] only, and everything applied is in the command's one log record.
//! - Every reply carries a gate: the newest position of anything it could have seen.

#![forbid(unsafe_code)]

mod admission;
mod blocking;
pub mod clients;
mod context;
mod error;
mod event;
mod eviction;
mod execute;
mod expire;
pub mod families;
mod host;
mod interest;
mod leases;
mod long_units;
pub mod observe;
mod observing;
mod onlookers;
mod postponed;
mod promise;
mod queueing;
pub mod replication;
mod row;
mod scripts;
mod session;
mod stats;
#[cfg(test)]
mod testing;
mod tracking;
mod transaction;
mod unit;

pub use blocking::Wait;
pub use context::Context;
pub use error::CommandError;
pub use event::{Event, EventClass, Message, Notice};
pub use execute::{Call, Executor, Merged, Outcome, Resolved};
pub use host::{
    DebugAccess, Host, Loading, MemoryFigures, MemoryLimits, SAVE_IN_PROGRESS, SaveAnswer, ShutdownMode,
};
pub use interest::{Interests, Watches};
pub use long_units::{LongReply, LongUnit};
pub use onlookers::Onlookers;
pub use promise::Promise;
pub use row::{Family, FindKeys, Flags, Handler, Keys, Row, counted_keys, resolve, rows};
pub use scripting::{ClockUs, LogLevel};
pub use scripts::{LibraryReader, ScriptSettings, Scripts, require_few_libraries};
pub use session::{Follower, ReplyMode, Session};
pub use stats::{CommandStats, Histogram, RowTotals, Totals, WorkerStats};
pub use tracking::{ClientTracking, Tracking, TrackingTotals};
pub use transaction::{QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX, Transaction};
pub use unit::Unit;
