//! A client that edits documents: its sent edits, and the states that its replies show.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use super::model::Edit;
use crate::Violation;

/// A simulated client that edits documents.
pub(super) struct Client {
    pub(super) conversation: Conversation,
    pub(super) state: ConversationState,
    /// The edits that were sent but not executed: none, one edit, or those of a transaction.
    pub(super) sent: Vec<Edit>,
    pub(super) is_transaction: bool,
    /// The replies to `sent` so far.
    pub(super) replies: Vec<Value>,
    /// The number of reply bytes written so far.
    pub(super) replied_bytes: u64,
    pub(super) taken_bytes: u64,
    /// The end of each undelivered reply, and the index of the state that it shows.
    pub(super) due: VecDeque<(u64, usize)>,
}

impl Client {
    pub(super) fn new(conversation: Conversation) -> Client {
        Client {
            conversation,
            state: ConversationState::Idle,
            sent: Vec::new(),
            is_transaction: false,
            replies: Vec::new(),
            replied_bytes: 0,
            taken_bytes: 0,
            due: VecDeque::new(),
        }
    }

    /// Takes the replies of the server since the last call.
    pub(super) fn take_new_replies(&mut self) -> Result<(), Violation> {
        let end = self.conversation.outbox.mark();
        let bytes = self.conversation.outbox.bytes_mut();
        let mut rest = &bytes[bytes.len() - (end - self.replied_bytes) as usize..];
        self.replied_bytes = end;
        while !rest.is_empty() {
            let decoded = decode(rest, &DecodeLimits::DEFAULT);
            let Ok(Some((value, length))) = decoded else {
                return Err(Violation::Protocol(format!("a malformed reply: {decoded:?}")));
            };
            rest = &rest[length..];
            self.replies.push(value);
        }
        Ok(())
    }
}
