//! Reads on for a client that sends commands and does not read the replies.
//!
//! Many clients send all commands of a pipeline before they read the first reply. If the server stopped at
//! the first mebibyte of replies, both sides would wait for each other for ever. So:
//!
//! - Above [`OUTBOX_BYTES_MAX`] unsent bytes, the client's commands wait until all bytes are sent. The limit
//!   stays the same for a client that reads meanwhile.
//! - If the peer acknowledges nothing for [`READ_ON_AFTER_MS`] while its commands wait, the limit of this
//!   client is multiplied by [`GROWTH`]. That is repeated up to the hard limit of its class
//!   (`client-output-buffer-limit normal`). Once all bytes are sent, the limit is the first one again.
//! - All clients together are allowed at most [`UNREAD_BYTES_MAX`] unsent beyond the first mebibyte of each.
//! - A client whose limit cannot be raised further, and whose peer acknowledges nothing for
//!   [`STALLED_MS_MAX`] while its commands wait, is disconnected.
//! - While clients are refused more bytes, a client whose commands wait, or whose limit is raised, is
//!   disconnected if its peer acknowledges nothing for [`STALLED_MS_MAX`].
//!
//! The limit of clients that are not logged in, and of subscribers, is never raised.
//!
//! A client that has sent nothing more may leave its replies unread, unless clients are refused more bytes.
//!
//! Invariants
//! - A connection in [`ConversationState::WaitForClient`] or with a raised limit is checked several times a
//!   second, until neither is the case.
//! - [`UnreadReplies`] counts the bytes that connections are allowed beyond [`OUTBOX_BYTES_MAX`]. When the
//!   allowance of a connection ends, the count is corrected at the next look at the connection.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::{
    clients::ClientKind,
    conversation::{ConversationState, OUTBOX_BYTES_MAX},
};

use super::{
    Connection,
    backlog::{STALLED_MS_MAX, TooSlow},
};

/// A client is allowed more bytes after its peer has been silent for this time.
const READ_ON_AFTER_MS: u64 = 100;
/// The factor by which a client's allowed bytes grow at each step.
const GROWTH: u64 = 4;
/// Limit of the unsent bytes of all clients together, beyond [`OUTBOX_BYTES_MAX`] of each.
const UNREAD_BYTES_MAX: u64 = 512 << 20;
/// The time after a refusal in which clients that have been silent for [`STALLED_MS_MAX`] are disconnected.
const SHORTAGE_MS: u64 = 1000;

/// The unsent bytes that the clients of the server are allowed beyond [`OUTBOX_BYTES_MAX`] of each.
#[derive(Debug, Default)]
pub(crate) struct UnreadReplies {
    bytes: AtomicU64,
    /// Monotonic time of the last refusal; 0 for never.
    refused_at_ms: AtomicU64,
}

impl UnreadReplies {
    /// Takes `bytes` from the common limit, if so many are left. Returns whether they were taken.
    fn take(&self, bytes: u64, now_ms: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= UNREAD_BYTES_MAX);
        let is_taken = self.bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        if !is_taken {
            self.refused_at_ms.store(now_ms.max(1), Relaxed);
        }
        is_taken
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Whether a client was refused more within the last [`SHORTAGE_MS`].
    fn is_short(&self, now_ms: u64) -> bool {
        let refused_at_ms = self.refused_at_ms.load(Relaxed);
        refused_at_ms > 0 && now_ms < refused_at_ms + SHORTAGE_MS
    }
}

/// State of one connection between looks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unread {
    /// Whether the worker checks the connection several times a second.
    is_watched: bool,
    /// Bytes taken from [`UnreadReplies`].
    taken_bytes: u64,
    /// The bytes that the peer had acknowledged at its last progress, and the time of that progress.
    progress: Option<(u64, u64)>,
    /// The time since which commands wait; `None` while no command waits.
    waits_since_ms: Option<u64>,
}

/// How long a client has not read, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Silence {
    /// The time for which the peer has acknowledged nothing.
    peer_ms: u64,
    /// The time for which commands have waited while the peer acknowledged nothing.
    commands_ms: u64,
}

impl Unread {
    /// Notes the bytes that the peer has acknowledged (`None`: all bytes that were sent to it, or unknown),
    /// and whether commands wait.
    fn look(&mut self, acknowledged_bytes: Option<u64>, commands_wait: bool, now_ms: u64) -> Silence {
        let bytes = acknowledged_bytes.unwrap_or(0);
        let seen = self.progress.filter(|(seen, _)| acknowledged_bytes == Some(*seen));
        let (_, since_ms) = *self.progress.insert(seen.unwrap_or((bytes, now_ms)));
        self.waits_since_ms = commands_wait.then(|| self.waits_since_ms.unwrap_or(now_ms));
        let peer_ms = now_ms.saturating_sub(since_ms);
        let commands_ms = self.waits_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        Silence { peer_ms, commands_ms: commands_ms.min(peer_ms) }
    }
}

impl Connection {
    /// Notes that the client must read before its next command. Returns whether the client was not watched
    /// before. If so, the worker calls [`Connection::look_at_unread`] several times a second until that call
    /// returns `false`.
    pub(crate) fn is_newly_unread(&self) -> bool {
        let unread = self.unread.get();
        self.unread.set(Unread { is_watched: true, ..unread });
        !unread.is_watched
    }

    /// Runs further commands of a client that does not read, within the limits, or disconnects the client.
    /// Returns whether it is to be looked at again.
    pub(crate) fn look_at_unread(&self, now_ms: u64) -> bool {
        let allowed_bytes = self.conversation.borrow().outbox_bytes_allowed() as u64;
        let waits = self.state.get() == ConversationState::WaitForClient;
        if self.broken.get() || !waits && allowed_bytes == OUTBOX_BYTES_MAX as u64 {
            self.forget_unread();
            return false;
        }
        let of_all = &self.worker.parts.unread_replies;
        let mut unread = self.unread.get();
        // If the client is allowed less than it has taken from the common limit, all its bytes were sent
        // meanwhile.
        let taken_bytes = allowed_bytes - OUTBOX_BYTES_MAX as u64;
        of_all.give_back(unread.taken_bytes.saturating_sub(taken_bytes));
        unread.taken_bytes = unread.taken_bytes.min(taken_bytes);
        let commands_wait = waits && self.has_input();
        let acknowledged_bytes = self.acknowledged_bytes().filter(|_| self.refused.get());
        let silence = unread.look(acknowledged_bytes, commands_wait, now_ms);
        self.unread.set(unread);
        let is_allowed_more =
            silence.commands_ms >= READ_ON_AFTER_MS && self.allow_more(allowed_bytes, now_ms);
        if is_allowed_more {
            self.resume();
        } else if silence.commands_ms > STALLED_MS_MAX {
            self.cut_unread(TooSlow::Unread);
        } else if silence.peer_ms > STALLED_MS_MAX && of_all.is_short(now_ms) {
            self.cut_unread(TooSlow::Shortage);
        }
        true
    }

    /// Whether the client has sent commands that are not executed yet.
    fn has_input(&self) -> bool {
        let is_any = |bytes: std::io::Result<u64>| bytes.is_ok_and(|bytes| bytes > 0);
        self.conversation.borrow().pending_bytes() > 0 || is_any(env::socket::unread_bytes(&self.socket))
    }

    /// Raises the client's limit of unsent bytes, if the limits permit that. Returns whether it was raised.
    fn allow_more(&self, allowed_bytes: u64, now_ms: u64) -> bool {
        let kind = self.client().kind();
        let hard_bytes = self.worker.parts.config.hot().output_limit(kind).hard_bytes;
        let bytes_max = if hard_bytes == 0 { u64::MAX } else { hard_bytes };
        let bytes = allowed_bytes.saturating_mul(GROWTH).min(bytes_max);
        let is_authenticated = self.conversation.borrow().session.authenticated;
        if kind != ClientKind::Normal || !is_authenticated || bytes <= allowed_bytes {
            return false;
        }
        let more_bytes = bytes - allowed_bytes;
        if !self.worker.parts.unread_replies.take(more_bytes, now_ms) {
            return false;
        }
        let unread = self.unread.get();
        self.unread.set(Unread { taken_bytes: unread.taken_bytes + more_bytes, ..unread });
        self.conversation.borrow_mut().allow_unsent(bytes as usize);
        true
    }

    /// Gives the allowance of this client beyond the first limit back, and stops watching the client.
    pub(super) fn forget_unread(&self) {
        self.worker.parts.unread_replies.give_back(self.unread.take().taken_bytes);
    }

    /// Bytes that the peer has acknowledged since the connection began. `None` if the peer has acknowledged
    /// all sent bytes, or if the kernel does not tell.
    pub(super) fn acknowledged_bytes(&self) -> Option<u64> {
        let unacknowledged_bytes = env::socket::unacknowledged_bytes(&self.socket).ok()?;
        (unacknowledged_bytes > 0).then(|| self.sent_bytes().saturating_sub(unacknowledged_bytes))
    }

    /// The number of bytes that the socket has taken, as the kernel counts them. For an encrypted connection
    /// these are bytes of TLS records.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.socket.sent_bytes().unwrap_or_else(|| self.client().traffic_bytes().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn all_clients_together_are_allowed_no_more_than_the_limit() {
        let of_all = UnreadReplies::default();
        assert!(!of_all.is_short(5) && of_all.take(UNREAD_BYTES_MAX - MIB, 10) && !of_all.is_short(11));
        assert!(!of_all.take(2 * MIB, 2000) && of_all.is_short(2999) && !of_all.is_short(3000));
        assert!(of_all.take(MIB, 3000) && !of_all.take(1, 3000) && !of_all.take(u64::MAX, 3000));
        of_all.give_back(2 * MIB);
        assert!(of_all.take(2 * MIB, 5000) && !of_all.is_short(5000));
    }

    #[test]
    fn silence_is_counted_from_the_last_progress() {
        let mut unread = Unread::default();
        let mut look = |bytes, waits, ms| {
            let silence = unread.look(bytes, waits, ms);
            (silence.peer_ms, silence.commands_ms)
        };
        assert_eq!(look(Some(7), true, 1000), (0, 0));
        assert_eq!(look(Some(7), true, 1100), (100, 100));
        assert_eq!(look(Some(8), true, 1200), (0, 0), "it has read a byte");
        assert_eq!(look(Some(8), false, 9000), (7800, 0), "it may leave them unread");
        assert_eq!(look(Some(8), true, 9100), (7900, 0), "it sends again");
        assert_eq!(look(Some(8), true, 9200), (8000, 100));
        assert_eq!(look(None, true, 9300), (0, 0), "nothing is on the way to it");
        assert_eq!(look(None, true, 9900), (0, 0));
    }
}
