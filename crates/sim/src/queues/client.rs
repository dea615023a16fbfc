//! One client of queues: its connection, and what it waits for.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use super::request::{Fact, Request};

/// See the module documentation.
pub(super) struct Client {
    /// The server's side.
    pub(super) conversation: Conversation,
    /// The worker that serves it.
    pub(super) worker: usize,
    /// Why the server stopped reading.
    pub(super) turn: ConversationState,
    /// Requests without a reply.
    pub(super) open: VecDeque<Request>,
    /// Its place among those who wait; `None` if it does not wait, or has been answered, or is about to be closed.
    pub(super) ticket: Option<u64>,
    /// When its wait ends.
    pub(super) deadline_ms: Option<u64>,
    replied_bytes: u64,
    pub(super) delivered_bytes: u64,
    /// What replies say that were not delivered in full, and where each ends.
    pub(super) undelivered: VecDeque<(u64, Fact)>,
    /// The next reply came as a signal.
    pub(super) is_answered: bool,
}

impl Client {
    /// A client that has just connected.
    pub(super) fn new(conversation: Conversation, worker: usize) -> Client {
        Client {
            conversation,
            worker,
            turn: ConversationState::Idle,
            open: VecDeque::new(),
            ticket: None,
            deadline_ms: None,
            replied_bytes: 0,
            delivered_bytes: 0,
            undelivered: VecDeque::new(),
            is_answered: false,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.conversation.session.client.id()
    }

    /// The replies that were made since the last call, with where each ends.
    pub(super) fn take_new_replies(&mut self) -> Vec<(u64, Value)> {
        let end = self.conversation.outbox.mark();
        let bytes = self.conversation.outbox.bytes_mut();
        let mut rest = &bytes[bytes.len() - (end - self.replied_bytes) as usize..];
        let mut replies = Vec::new();
        while let Some((value, length)) =
            decode(rest, &DecodeLimits::DEFAULT).expect("replies are well formed")
        {
            rest = &rest[length..];
            self.replied_bytes += length as u64;
            replies.push((self.replied_bytes, value));
        }
        replies
    }
}
