//! Durable channels: messages in the log, delivered from there to clients that have sent XSUBSCRIBE.
//!
//! ```text
//! PUBLISH -> record in the log -> durable -> one thread reads the log:
//!                                Readers::step
//!                                 |  tail: all that have caught up; one frame per worker
//!                                 |  behind: each from its own position, a piece of the log at a time
//!                                 '-> Feed per worker -> outboxes -> Flow: bytes sent
//! ```
//!
//! The module contains the step function of that thread, its output to the workers, and positions of
//! messages. The module has no thread and reads no files (see [`LogSource`]). XSUBSCRIBE clients get all
//! messages from the log, and none through the hub, so messages of the two paths need not be merged.
//!
//! Invariants
//! - A reader gets every message of its channels after its position once, in log order, or learns that the
//!   log has lost some ([`ReaderEvent::Lost`]). Each reader has one position; all readers at the tail share
//!   the position of the tail.
//! - The bytes handed out to a reader and not yet sent are at most the window plus the content of one piece
//!   of the log. A reader with more unsent bytes than the window stops at its position, and resumes when half
//!   of the window is free. Such a reader is not disconnected, and no other reader waits for it.
//! - A worker receives the confirmations, messages and ends of subscriptions of one reader in order.

mod feed;
mod flow;
mod position;
mod readers;
#[cfg(all(test, not(loom)))]
mod tests;

pub use feed::{Encoded, Feed, Part, ReaderEvent, Run};
pub use flow::Flow;
pub use position::{From, Position};
pub use readers::{LogSource, Read, ReaderId, Readers};

/// A message in the log, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableMessage<'a> {
    /// The position of the message: the start of its record, or of the last piece of a split record, plus the
    /// number of the message in the record, from 1. The position is unique and lies within the record.
    pub position: Position,
    /// The channel to which the message was published.
    pub channel: &'a [u8],
    /// The bytes that were published.
    pub payload: &'a [u8],
}

/// A worker's request to the thread. The result is a [`ReaderEvent`] to the worker, except for
/// [`Request::Leave`].
#[derive(Debug)]
pub enum Request {
    /// A client subscribes to a channel (XSUBSCRIBE).
    Subscribe {
        /// The client that subscribes.
        reader: ReaderId,
        /// The index of the client's worker.
        worker: usize,
        /// The flow control of the client's messages.
        flow: std::sync::Arc<Flow>,
        /// The name of the channel to read.
        channel: Box<[u8]>,
        /// The position at which the subscription begins.
        from: From,
    },
    /// A client ends subscriptions (XUNSUBSCRIBE).
    Unsubscribe {
        /// The client that ends subscriptions.
        reader: ReaderId,
        /// The index of the client's worker.
        worker: usize,
        /// The channels to end, confirmed in this order.
        channels: Vec<Box<[u8]>>,
    },
    /// The client has disconnected or sent RESET: all of its subscriptions end, without an event.
    Leave {
        /// The client that has left.
        reader: ReaderId,
    },
}
