//! Durable channels: messages in the log, delivered from there to clients that have sent XSUBSCRIBE.
//!
//! ```text
//! PUBLISH -> record in the log -> durable -> one thread reads the log:
//!                                Followers::step
//!                                 |  tail: all that have caught up; one frame per worker
//!                                 |  behind: each from its own position, a piece of the log at a time
//!                                 '-> Feed per worker -> outboxes -> Flow: bytes sent
//! ```
//!
//! The module contains the step function of that thread, its output to the workers, and positions. It has no
//! thread and reads no files (see [`LogSource`]). XSUBSCRIBE clients are never served by the live path, so
//! the two paths need no merging.
//!
//! Invariants
//! - A follower gets every message of its channels behind its position once, in log order. Each follower has
//!   one position; all followers at the tail share the tail's.
//! - The bytes handed out to a follower and not yet sent are at most the window plus the content of one piece
//!   of the log. A slower follower is left behind at its position and resumes when half of the window is
//!   free. It is not disconnected, and no other follower waits for it.
//! - A worker receives the confirmations, messages and ends of subscriptions of one follower in order.

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

/// A message in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its position: the start of its record plus its number in the record. It is unique and lies within the
    /// record.
    pub position: Position,
    /// The channel that it was published to.
    pub channel: &'a [u8],
    /// The published bytes.
    pub payload: &'a [u8],
}

/// A worker's request to the thread. The result is a [`FollowerEvent`] to the worker.
#[derive(Debug)]
pub enum Request {
    /// XSUBSCRIBE.
    Subscribe {
        /// The client.
        follower: FollowerId,
        /// Its worker.
        worker: usize,
        /// The flow control of its messages.
        flow: std::sync::Arc<Flow>,
        /// The channel to follow.
        channel: Box<[u8]>,
        /// The position to begin at.
        from: From,
    },
    /// XUNSUBSCRIBE.
    Unsubscribe {
        /// The client.
        follower: FollowerId,
        /// Its worker.
        worker: usize,
        /// The channels to end, confirmed in this order.
        channels: Vec<Box<[u8]>>,
    },
    /// The client has disconnected or reset: all of its subscriptions end, without an event.
    Leave {
        /// The client.
        follower: FollowerId,
    },
}
