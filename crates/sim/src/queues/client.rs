//! A client of queues: its connection and its wait.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use super::request::{Fact, Request};

pub(super) struct Client {
    /// The server's side of the connection.
    pub(super) conversation: Conversation,
    /// The index of the worker that serves the client.
    pub(super) worker: usize,
    /// The state of the conversation after its last round.
    pub(super) state: ConversationState,
    /// Requests that have no reply yet, the oldest first.
    pub(super) open: VecDeque<Request>,
    /// The client's place in the order of waiting clients; `None` if the client does not wait, has been
    /// answered, or is about to be closed.
    pub(super) ticket: Option<u64>,
    /// The end of the client's wait in unix milliseconds, if the wait has a timeout.
    pub(super) deadline_ms: Option<u64>,
    replied_bytes: u64,
    pub(super) delivered_bytes: u64,
    /// The facts of replies that are not completely delivered, each with the end of its reply.
    pub(super) undelivered: VecDeque<(u64, Fact)>,
    /// Whether the next reply came as a signal.
    pub(super) is_answered: bool,
}

impl Client {
    /// A client without requests, on a new conversation.
    pub(super) fn new(conversation: Conversation, worker: usize) -> Client {
        Client {
            conversation,
            worker,
            state: ConversationState::Idle,
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

    /// The replies since the last call, each with its end in the stream.
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
