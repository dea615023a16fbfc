//! Disconnects clients that receive too slowly.
//!
//! All rules but one are about unsent bytes. The waits of publishers are in
//! [`keeping_up`](super::keeping_up).
//!
//! Messages of durable channels from the log do not count: a slow reader falls behind instead (see
//! [`pubsub::durable`]).
//!
//! - Above the hard limit of the client's class: at once. A normal client is not disconnected for this: its
//!   commands stop at that limit while it does not read (see [`unread`](super::unread)), and a single reply
//!   may be longer.
//! - Above the soft limit for longer than the class allows.
//! - A subscriber with more than [`STALLED_BYTES_MIN`] unsent bytes whose peer has acknowledged nothing for
//!   [`STALLED_MS_MAX`]. Such a subscriber is taken for dead before it reaches the other limits.
//! - A client with more input behind a blocked command than the server keeps, for [`STALLED_MS_MAX`]. The
//!   server does not read the client's socket meanwhile, so the client would be stuck in its send. Nor would
//!   the server notice when the client ends.
//! - Subscribers of one worker with more than [`UNSENT_BYTES_MAX`] unsent bytes together: the furthest behind
//!   is disconnected first. A block sent to several subscribers counts once, as it is in memory once.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use engine::{
    clients::{Client, ClientKind},
    conversation::ConversationState,
    outbox::Outbox,
};
use settings::OutputLimit;

use super::Connection;

/// A subscriber with no more unsent bytes than this never counts as stalled.
const STALLED_BYTES_MIN: u64 = 1 << 20;
/// The time after which a client without progress is disconnected. The documentation of this module and of
/// `unread` says what counts as a lack of progress.
pub(super) const STALLED_MS_MAX: u64 = 10_000;
/// Limit of the unsent bytes of all subscribers of a worker together.
pub(crate) const UNSENT_BYTES_MAX: usize = 256 << 20;

/// The rule by which a client is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooSlow {
    Hard,
    Soft,
    Stalled,
    Together,
    Unread,
    Shortage,
    BehindBlocked,
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TooSlow::Hard => "hard limit",
            TooSlow::Soft => "soft limit for too long",
            TooSlow::Stalled => "no progress",
            TooSlow::Together => "furthest behind of too many",
            TooSlow::Unread => "sends commands and reads no replies",
            TooSlow::Shortage => "reads no replies while others are refused memory for theirs",
            TooSlow::BehindBlocked => "too many commands behind one that blocks",
        })
    }
}

/// State of one connection between checks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backlog {
    /// Since when the unsent bytes exceed the soft limit.
    above_soft_since_ms: Option<u64>,
    /// The bytes that the peer had acknowledged at its last progress, and the time of that progress.
    progress: Option<(u64, u64)>,
}

impl Backlog {
    /// Checks a connection by its unsent bytes, the bytes that its peer has acknowledged, and the monotonic
    /// time. Called about once a second; the hard limit is also checked whenever the socket refuses bytes.
    fn look(
        &mut self,
        kind: ClientKind,
        limit: OutputLimit,
        unsent_bytes: u64,
        acknowledged_bytes: impl FnOnce() -> u64,
        now_ms: u64,
    ) -> Option<TooSlow> {
        if is_above_hard(kind, limit, unsent_bytes) {
            return Some(TooSlow::Hard);
        }
        let is_above_soft = limit.soft_bytes > 0 && unsent_bytes > limit.soft_bytes;
        let above_since_ms = is_above_soft.then(|| self.above_soft_since_ms.unwrap_or(now_ms));
        self.above_soft_since_ms = above_since_ms;
        if above_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > limit.soft_seconds * 1000)
        {
            return Some(TooSlow::Soft);
        }
        if kind != ClientKind::PubSub || unsent_bytes <= STALLED_BYTES_MIN {
            self.progress = None;
            return None;
        }
        let acknowledged_bytes = acknowledged_bytes();
        let seen = self.progress.filter(|(seen, _)| *seen == acknowledged_bytes);
        let (_, since_ms) = *self.progress.insert(seen.unwrap_or((acknowledged_bytes, now_ms)));
        (now_ms.saturating_sub(since_ms) > STALLED_MS_MAX).then_some(TooSlow::Stalled)
    }
}

/// Whether a client exceeds a hard limit for which it is disconnected at once. A normal client never does.
fn is_above_hard(kind: ClientKind, limit: OutputLimit, unsent_bytes: u64) -> bool {
    kind != ClientKind::Normal && limit.hard_bytes > 0 && unsent_bytes > limit.hard_bytes
}

impl Connection {
    /// Called after bytes were sent or pushed: counts the unsent bytes, and disconnects a client above the
    /// hard limit of its class.
    pub(super) fn note_unsent(&self, refused: bool) {
        let client = self.client().clone();
        let unsent_bytes = self.limited_bytes();
        let kind = client.kind();
        let counts = refused && kind == ClientKind::PubSub;
        self.count_unsent(if counts { self.conversation.borrow().limited_memory_bytes() } else { 0 });
        if refused && is_above_hard(kind, self.worker.parts.config.hot().output_limit(kind), unsent_bytes) {
            self.cut(&client, unsent_bytes, TooSlow::Hard);
        }
    }

    /// Sets this connection's share in the worker's unsent bytes, without bytes in blocks that subscribers
    /// share.
    pub(super) fn count_unsent(&self, bytes: usize) {
        let before = self.counted_bytes.replace(bytes);
        self.worker.unsent_bytes.set(self.worker.unsent_bytes.get() - before + bytes);
    }

    /// Unsent bytes, as the limits count them.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.conversation.borrow().limited_bytes()
    }

    /// Whether the client is a subscriber with unsent bytes that its socket refuses.
    pub(crate) fn is_behind(&self) -> bool {
        let is_subscriber = !self.broken.get() && self.client().kind() == ClientKind::PubSub;
        self.refused.get() && is_subscriber && self.limited_bytes() > 0
    }

    /// Disconnects a subscriber because the subscribers of its worker together have too many unsent bytes.
    pub(crate) fn cut_for_others(&self) {
        let client = self.client().clone();
        self.cut(&client, self.limited_bytes(), TooSlow::Together);
    }

    /// Disconnects the client if it receives too slowly, or sends too much behind a blocked command. Called
    /// about once a second.
    pub(crate) fn enforce_limits(&self, now_ms: u64) {
        let unsent_bytes = self.limited_bytes();
        let mut backlog = self.backlog.take();
        if unsent_bytes > 0 {
            let client = self.client().clone();
            let kind = client.kind();
            let acknowledged_bytes = || self.acknowledged_bytes().unwrap_or_else(|| self.sent_bytes());
            let limit = self.worker.parts.config.hot().output_limit(kind);
            if let Some(reason) = backlog.look(kind, limit, unsent_bytes, acknowledged_bytes, now_ms) {
                self.cut(&client, unsent_bytes, reason);
            }
            self.backlog.set(backlog);
        }
        let is_full =
            self.state.get() == ConversationState::Blocked && !self.conversation.borrow().keeps_more();
        let since_ms = self.full_since_ms.get().filter(|_| is_full);
        self.full_since_ms.set(is_full.then(|| since_ms.unwrap_or(now_ms)));
        if since_ms.is_some_and(|since_ms| now_ms > since_ms + STALLED_MS_MAX) {
            let client = self.client().clone();
            self.cut(&client, unsent_bytes, TooSlow::BehindBlocked);
        }
    }

    /// Disconnects a client that does not read its replies.
    pub(super) fn cut_unread(&self, reason: TooSlow) {
        let client = self.client().clone();
        self.cut(&client, self.limited_bytes(), reason);
    }

    fn cut(&self, client: &Client, unsent_bytes: u64, reason: TooSlow) {
        if self.broken.replace(true) {
            return;
        }
        {
            // The memory of the conversation is freed now, not when the task has ended.
            let mut conversation = self.conversation.borrow_mut();
            conversation.close();
            conversation.outbox = Outbox::default();
        }
        self.count_unsent(0);
        self.forget_unread();
        self.worker.parts.counters.slow_clients_cut.fetch_add(1, Relaxed);
        let (id, peer, labels) = (client.id(), client.peer(), client.labels());
        let name = labels.name.as_str();
        if reason == TooSlow::BehindBlocked {
            tracing::warn!(target: "server", id, peer, name, %reason, "disconnected a client that sends too much");
        } else {
            tracing::warn!(
                target: "server", id, peer, name, unsent_bytes, %reason,
                "disconnected a client that reads its output too slowly (client-output-buffer-limit)"
            );
        }
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: OutputLimit = OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_seconds: 60 };
    const MIB: u64 = 1 << 20;

    /// Checks a subscriber at each triple of seconds, unsent MiB and acknowledged bytes. Returns the result
    /// of each check.
    fn looks(looks: &[(u64, u64, u64)]) -> Vec<Option<TooSlow>> {
        let mut backlog = Backlog::default();
        let look = |&(s, mib, sent): &(u64, u64, u64)| {
            backlog.look(ClientKind::PubSub, LIMIT, mib * MIB, || sent, s * 1000)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn the_hard_limit_holds_at_once() {
        assert_eq!(looks(&[(0, 32, 0), (1, 33, 1)]), [None, Some(TooSlow::Hard)]);
    }

    #[test]
    fn a_reply_may_be_longer_than_the_hard_limit() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.look(ClientKind::Normal, LIMIT, 33 * MIB, || 0, 0), None);
    }

    #[test]
    fn the_soft_limit_holds_after_its_time() {
        assert_eq!(looks(&[(0, 9, 0), (60, 9, 1), (61, 9, 2)]), [None, None, Some(TooSlow::Soft)]);
        assert_eq!(
            looks(&[(0, 9, 0), (60, 8, 1), (61, 9, 2), (121, 9, 3)]),
            [None; 4],
            "it was below meanwhile"
        );
    }

    #[test]
    fn a_subscriber_that_takes_nothing_is_given_up() {
        assert_eq!(looks(&[(0, 2, 5), (10, 2, 5), (11, 2, 5)]), [None, None, Some(TooSlow::Stalled)]);
        assert_eq!(looks(&[(0, 2, 5), (9, 2, 6), (18, 2, 7), (28, 2, 7)]), [None; 4], "slow is not stalled");
        assert_eq!(looks(&[(0, 2, 5), (9, 1, 5), (18, 2, 5)]), [None; 3], "little can wait");
    }

    #[test]
    fn classes_without_limits_have_none() {
        let mut backlog = Backlog::default();
        for s in [0, 100, 200] {
            let look = backlog.look(ClientKind::Normal, OutputLimit::default(), u64::MAX, || 0, s * 1000);
            assert_eq!(look, None);
        }
    }
}
