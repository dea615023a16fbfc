//! Pub/sub: who has subscribed to what, and how a message gets to all of them. Bytes in, bytes per subscriber out.
//!
//! ```text
//!  worker p                                  shared (Hub)                               worker t
//!  PUBLISH ch m                              index: ch -> Topic { workers, count }      SUBSCRIBE ch
//!    look up ch, match patterns  ----------> patterns: prefixes and suffixes  <-------- first subscriber: sets its bit
//!    write ONE frame per worker              mailbox p -> t: batches                    last one leaves: clears it
//!    that has subscribers; reply count                                                  Local: ch -> its subscribers
//!  end of round: hand batches over --------> [batch, batch] --- one wake-up ----------> end of tick: deliver
//!                                                                                       what a batch has for a channel =
//!                                                                                       one block for all who have only it
//! ```
//!
//! What it is: the presence index ([`Hub`]) that all workers read without locks, and the tables of each worker ([`Local`]).
//! What it is not: it owns no socket and no thread, knows no command and holds nothing back: what must not be shown before it
//! is durable is published when it is.
//!
//! Invariants
//! - A PUBLISH that begins after a SUBSCRIBE was confirmed reaches that subscriber: the worker's bit is set before the
//!   confirmation is written, and patterns are published ([`Local::hand_over`]) before it leaves.
//! - What one worker publishes arrives in its order at every subscriber. Messages of two workers have no order between them.
//! - A message is delivered to those who are subscribed when its worker delivers it; a worker delivers what has been handed
//!   over to it before it changes any subscription. So nobody gets what was published before the subscription began on the
//!   same worker, and whoever leaves has got what was confirmed to the publisher before.
//! - The same bit is set and cleared by one worker only.
//! - Nothing waits: publishers are told that most of their audience is behind, or a mailbox full ([`Local::take_backpressure`]), and
//!   decide themselves.

#![forbid(unsafe_code)]

mod audience;
mod backpressure;
mod batch;
mod delivery;
pub mod durable;
mod hub;
mod index;
mod local;
mod mailbox;
mod members;
mod memberships;
mod patterns;
mod presence;
mod sync;
mod topic;
mod waiting;

pub use backpressure::Backpressure;
pub use delivery::{Block, Delivery};
pub use hub::{Hub, Kind, WORKERS_MAX};
pub use local::{Local, SubscriberId};
