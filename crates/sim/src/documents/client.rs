//! One connection that edits documents: what it has sent, and what its replies tell when they are taken.

use std::collections::VecDeque;

use engine::conversation::{Conversation, ConversationState};
use wire::{DecodeLimits, Value, decode};

use super::model::Edit;
use crate::Violation;

/// See the module documentation.
pub(super) struct Client {
    pub(super) conversation: Conversation,
    pub(super) turn: ConversationState,
    /// What was sent and not executed, as a whole: nothing, one edit, or a transaction.
    pub(super) sent: Vec<Edit>,
    pub(super) is_transaction: bool,
    /// What was replied to it.
    pub(super) replies: Vec<Value>,
    /// Bytes of replies so far, and of those how many were taken.
    pub(super) replied_bytes: u64,
    pub(super) taken_bytes: u64,
    /// Where replies end, and the state that they tell of.
    pub(super) due: VecDeque<(u64, usize)>,
}

impl Client {
    pub(super) fn new(conversation: Conversation) -> Client {
        Client {
            conversation,
            turn: ConversationState::Idle,
            sent: Vec::new(),
            is_transaction: false,
            replies: Vec::new(),
            replied_bytes: 0,
            taken_bytes: 0,
            due: VecDeque::new(),
        }
    }

    /// Takes the replies that the server has made since the last call.
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
