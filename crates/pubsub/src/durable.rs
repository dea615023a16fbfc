//! Durable channels: messages that are in the log, and how those who have XSUBSCRIBEd get them from there.
//!
//! ```text
//! PUBLISH -> record in the log -> durable -> one thread reads the log: Followers::step
//!                                             |  tail: all that have caught up, one frame for all of a worker
//!                                             |  behind: each from a position of its own, a piece of the log at a time
//!                                             '-> Feed per worker -> outboxes -> Flow: what was taken
//! ```
//!
//! What it is: the step machine of that thread, what it hands to workers, and positions. What it is not: a thread or a reader of
//! files ([`LogSource`] is), nor the live path: that never serves those who have XSUBSCRIBEd, so there is nothing to put together.
//!
//! Invariants
//! - A follower gets every message of its channels behind its position once, in the order of the log. Where it stands is one
//!   position; whoever stands at the tail's gets what the tail gets.
//! - What was handed out to a follower and not taken is at most the window and what one piece of the log holds. Who does not take
//!   it is left behind at its position, and goes on when it has taken half: nobody is disconnected, nobody else waits.
//! - What a worker is handed is in order: confirmations, messages and ends of subscriptions of one follower.

mod feed;
mod flow;
mod followers;
mod position;
#[cfg(all(test, not(loom)))]
mod tests;

pub use feed::{Encoded, Feed, FollowerEvent, Part, Run};
pub use flow::Flow;
pub use followers::{FollowerId, Followers, LogSource, Read};
pub use position::{From, Position};

/// A message as it stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Where: behind the start of its record by its number there, so each has another and all lie within the record.
    pub position: Position,
    /// The channel it was published to.
    pub channel: &'a [u8],
    /// What was published.
    pub payload: &'a [u8],
}

/// What a worker asks of the thread. What comes of it is [`FollowerEvent`] to the worker.
#[derive(Debug)]
pub enum Request {
    /// XSUBSCRIBE.
    Subscribe {
        /// Who.
        follower: FollowerId,
        /// Its worker.
        worker: usize,
        /// The flow control of its messages.
        flow: std::sync::Arc<Flow>,
        /// What it wants to follow.
        channel: Box<[u8]>,
        /// From where on.
        from: From,
    },
    /// XUNSUBSCRIBE.
    Unsubscribe {
        /// Who.
        follower: FollowerId,
        /// Its worker.
        worker: usize,
        /// What it follows no more; told in this order.
        channels: Vec<Box<[u8]>>,
    },
    /// It has gone: nothing is told.
    Leave {
        /// Who.
        follower: FollowerId,
    },
}
