//! A simulated client: what it has sent, what was executed, and how many bytes of the replies it has.
//!
//! What it is: the two ends of one connection, with the server's own [`Conversation`] in between.
//! What it is not: a judge of replies; see `oracle`.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use crate::{Command, Violation, model::ModelSession};

/// See the module documentation.
pub struct SimClient {
    /// The server's side.
    pub conversation: Conversation,
    /// The worker that serves it.
    pub worker: usize,
    /// Why the server stopped reading.
    pub turn: ConversationState,
    /// What the commands executed so far have made of it.
    pub session: ModelSession,
    /// Commands that were not executed yet.
    pub unexecuted: VecDeque<Command>,
    /// Request bytes on their way.
    on_the_way: Vec<u8>,
    /// Replies not delivered yet: where each ends in the stream, and the position it needs.
    undelivered: VecDeque<(u64, usize)>,
    /// Reply bytes written by the server.
    replied_bytes: u64,
    delivered_bytes: u64,
}

impl SimClient {
    /// A client that has just connected.
    pub fn new(conversation: Conversation, worker: usize) -> SimClient {
        SimClient {
            conversation,
            worker,
            turn: ConversationState::Idle,
            session: ModelSession::default(),
            unexecuted: VecDeque::new(),
            on_the_way: Vec::new(),
            undelivered: VecDeque::new(),
            replied_bytes: 0,
            delivered_bytes: 0,
        }
    }

    /// Sends commands.
    pub fn send(&mut self, commands: Vec<Command>) {
        commands.iter().for_each(|command| command.encode(&mut self.on_the_way));
        self.unexecuted.extend(commands);
    }

    /// The next `bytes` request bytes, as they arrive at the server.
    pub fn arrive(&mut self, bytes: usize) -> Vec<u8> {
        self.on_the_way.drain(..bytes.min(self.on_the_way.len())).collect()
    }

    /// Request bytes on their way.
    pub fn on_the_way_bytes(&self) -> usize {
        self.on_the_way.len()
    }

    /// Replies that were made and not delivered in full.
    pub fn undelivered(&self) -> usize {
        self.undelivered.len()
    }

    /// Whether every command was executed and every reply delivered.
    pub fn is_done(&self) -> bool {
        self.unexecuted.is_empty() && self.undelivered.is_empty()
    }

    /// The replies that the server has made since the last call, with where each ends.
    ///
    /// # Errors
    /// If they are not well formed.
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

    /// A reply that ends there needs this position.
    pub fn owes(&mut self, end: u64, position: usize) {
        self.undelivered.push_back((end, position));
    }

    /// The client has read so many more bytes; returns the positions that the replies now complete need.
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
