//! A simulated client: its commands until they are executed, and their replies until they are delivered.
//!
//! A [`SimClient`] has both ends of one connection; the server's end is the server's own [`Conversation`].
//! The module `oracle` judges the replies.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use crate::{Command, Violation, model::ModelSession};

/// A simulated client and its connection.
pub struct SimClient {
    /// The server's side of the connection.
    pub conversation: Conversation,
    /// The index of the worker that serves the client.
    pub worker: usize,
    /// The state of the conversation after its last round.
    pub state: ConversationState,
    /// The model's session after the commands executed so far.
    pub session: ModelSession,
    /// Sent commands that have not been executed yet.
    pub unexecuted: VecDeque<Command>,
    /// Request bytes in transit.
    on_the_way: Vec<u8>,
    /// Undelivered replies: the end of each in the stream, and the position that it acknowledges.
    undelivered: VecDeque<(u64, usize)>,
    /// The number of reply bytes written by the server.
    replied_bytes: u64,
    delivered_bytes: u64,
}

impl SimClient {
    /// A client that has sent nothing, on a new conversation.
    pub fn new(conversation: Conversation, worker: usize) -> SimClient {
        SimClient {
            conversation,
            worker,
            state: ConversationState::Idle,
            session: ModelSession::default(),
            unexecuted: VecDeque::new(),
            on_the_way: Vec::new(),
            undelivered: VecDeque::new(),
            replied_bytes: 0,
            delivered_bytes: 0,
        }
    }

    /// Sends commands, which are then in transit.
    pub fn send(&mut self, commands: Vec<Command>) {
        commands.iter().for_each(|command| command.encode(&mut self.on_the_way));
        self.unexecuted.extend(commands);
    }

    /// Takes up to `bytes` request bytes, as they arrive at the server.
    pub fn arrive(&mut self, bytes: usize) -> Vec<u8> {
        self.on_the_way.drain(..bytes.min(self.on_the_way.len())).collect()
    }

    /// The number of request bytes in transit.
    pub fn on_the_way_bytes(&self) -> usize {
        self.on_the_way.len()
    }

    /// The number of replies that are not completely delivered.
    pub fn undelivered(&self) -> usize {
        self.undelivered.len()
    }

    /// Whether every command is executed and every reply delivered.
    pub fn is_done(&self) -> bool {
        self.unexecuted.is_empty() && self.undelivered.is_empty()
    }

    /// The replies of the server since the last call, each with its end in the stream.
    ///
    /// # Errors
    /// If a reply is malformed.
    pub fn take_new_replies(&mut self) -> Result<Vec<(u64, Value)>, Violation> {
        let end = self.conversation.outbox.mark();
        let bytes = self.conversation.outbox.bytes_mut();
        let mut rest = &bytes[bytes.len() - (end - self.replied_bytes) as usize..];
        let mut replies = Vec::new();
        while !rest.is_empty() {
            let decoded = decode(rest, &DecodeLimits::DEFAULT);
            let Ok(Some((value, length))) = decoded else {
                return Err(Violation::Protocol(format!("a malformed reply: {decoded:?}")));
            };
            rest = &rest[length..];
            self.replied_bytes += length as u64;
            replies.push((self.replied_bytes, value));
        }
        Ok(replies)
    }

    /// Notes that the reply that ends at `end` acknowledges `position`.
    pub fn owes(&mut self, end: u64, position: usize) {
        self.undelivered.push_back((end, position));
    }

    /// Delivers `bytes` more bytes; returns the positions acknowledged by the replies that are now complete.
    pub fn reads(&mut self, bytes: usize) -> Vec<usize> {
        self.delivered_bytes += bytes as u64;
        let mut positions = Vec::new();
        while let Some(&(end, position)) = self.undelivered.front()
            && end <= self.delivered_bytes
        {
            positions.push(position);
            self.undelivered.pop_front();
        }
        positions
    }
}
