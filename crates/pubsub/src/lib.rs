//! Pub/sub: the subscriptions, and the delivery of messages to subscribers. Bytes in, bytes per subscriber
//! out.
//!
//! ```text
//!  worker p                            shared (Hub)                            worker t
//!  PUBLISH ch m                        index: ch -> Topic { workers, count }   SUBSCRIBE ch
//!    look up ch, match patterns -----> patterns: prefixes and suffixes <----- first subscriber: sets its bit
//!    write ONE frame per worker        mailbox p -> t: batches                 last one leaves: clears it
//!    that has subscribers; reply count                                         Local: ch -> its subscribers
//!  end of round: hand batches over --> [batch, batch] --- one wake-up -------> end of tick: deliver
//!                                                                a batch's frames of a channel = one block
//!                                                                for all subscribers of only that channel
//! ```
//!
//! The crate has the presence index ([`Hub`]), which all workers read without locks, and the tables of each
//! worker ([`Local`]). The crate owns no socket and no thread, knows no commands and delays no message. If a
//! message must be durable before its delivery, the caller publishes it only once it is durable.
//!
//! Invariants
//! - A PUBLISH that begins after a SUBSCRIBE was confirmed reaches that subscriber: the worker's bit is set
//!   before the confirmation is written, and patterns are published ([`Local::flush_mailboxes`]) before the
//!   confirmation is sent.
//! - The messages of one worker reach every subscriber in their order. Messages of two workers have no order.
//! - A message is delivered to the subscribers that a worker has when it delivers the message. A worker
//!   delivers all messages that were handed over to it before it adds or ends a subscription of a connected
//!   client. So no subscriber gets a message that was published on its own worker before it subscribed. And a
//!   client that unsubscribes has got every message whose publisher had its reply before the client
//!   unsubscribed.
//! - A presence bit is set and cleared by one worker only.
//! - No call waits for a subscriber or for another worker's delivery: the caller learns that at least half of
//!   an audience is behind, or that a mailbox is full ([`Local::take_backpressure`]), and decides whether the
//!   publisher waits.

#![forbid(unsafe_code)]

mod audience;
mod backpressure;
mod batch;
mod delivery;
pub mod durable;
mod hub;
mod index;
mod kind;
mod local;
mod mailbox;
mod members;
mod memberships;
mod patterns;
mod presence;
mod subscriber_id;
mod sync;
mod topic;
mod waiting;

pub use backpressure::Backpressure;
pub use delivery::{Block, Delivery};
pub use hub::{Hub, WORKERS_MAX};
pub use kind::Kind;
pub use local::Local;
pub use subscriber_id::SubscriberId;
