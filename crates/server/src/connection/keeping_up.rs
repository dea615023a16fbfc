//! Decides whether a subscriber keeps up with its messages. If at least half of the subscribers of a message
//! are behind, publishers wait for them (see [`pubsub::Backpressure`]).
//!
//! - Behind: the subscriber's socket refuses bytes, more than [`BEHIND_BYTES_MIN`] are unsent, and the
//!   subscriber is worth waiting for.
//! - Caught up: its socket takes bytes again, no more than [`CAUGHT_UP_BYTES_MAX`] are unsent, or the
//!   subscriber is no longer worth waiting for.
//! - Worth waiting for: its peer acknowledges something. [`RATE_BYTES_PER_S_MIN`] acknowledged bytes earn a
//!   second of patience, and no more than [`PATIENCE_US_MAX`] is saved up. Acknowledgements count only after
//!   the socket has refused bytes: before that, the kernels buffer the bytes.
//! - On trial: its peer has acknowledged nothing yet after a refusal. Such a subscriber gets
//!   [`PATIENCE_US_MAX`] once, unless its worker has waited in vain for another new subscriber in the last
//!   [`DISTRUST_US`].
//!
//! The bytes that the socket takes are no measure of progress: a full socket takes nothing until a third of
//! its buffer is free, which takes seconds with a slow reader. Acknowledgements come in lumps, too, but in
//! smaller ones, a sixteenth of the peer's buffer: 93 KiB by default, 0.7 s apart at 128 KiB/s. Patience
//! outlasts two of these gaps, and [`RATE_BYTES_PER_S_MIN`] is half of 128 KiB/s. So a subscriber with
//! buffers of the default size that reads 128 KiB/s stays worth waiting for.
//!
//! A subscriber that never reads, or stops reading, thus delays publishers for two seconds at most. After a
//! wait in vain for a new subscriber, further new subscribers of its worker get no patience for
//! [`DISTRUST_US`].
//! The unsent bytes of a subscriber that is not waited for grow to the limits of [`backlog`](super::backlog),
//! where it is disconnected. Those limits are far above the ones here.

use super::Connection;

/// Unsent bytes above which a subscriber is behind.
const BEHIND_BYTES_MIN: u64 = 256 << 10;
/// Unsent bytes above which a subscriber that is behind has not yet caught up.
const CAUGHT_UP_BYTES_MAX: u64 = 64 << 10;
/// The receive rate at which a subscriber stays worth waiting for.
const RATE_BYTES_PER_S_MIN: u64 = 64 << 10;
/// The longest wait for a subscriber that receives nothing any more.
const PATIENCE_US_MAX: u64 = 2_000_000;
/// The shortest time between two calls that ask the kernel how much a peer has acknowledged.
const ASKING_PERIOD_US: u64 = 10_000;
/// The time after a useless wait in which new subscribers are not waited for.
pub(crate) const DISTRUST_US: u64 = 10_000_000;

/// The progress of a subscriber after its socket has refused bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum History {
    /// The subscriber has never been behind.
    #[default]
    New,
    /// The socket has refused bytes while more than [`BEHIND_BYTES_MIN`] were unsent, and the peer has
    /// acknowledged nothing since.
    OnTrial,
    /// The peer has acknowledged bytes after a refusal of the socket.
    Proven,
}

/// Back-pressure state of a subscriber.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeepingUp {
    history: History,
    is_behind: bool,
    /// Publishers wait for the subscriber until this time at most.
    patient_until_us: u64,
    /// Bytes that the peer had acknowledged when the kernel was last asked; `None` before the first refusal.
    acknowledged_bytes: Option<u64>,
    /// The kernel is asked for acknowledged bytes again at this time at the earliest.
    asks_at_us: u64,
}

impl KeepingUp {
    /// Updates the state after a send or during a wait. Returns whether a wait for a new subscriber has
    /// proven useless.
    ///
    /// - `received_bytes`: acknowledged by the peer since the last call, once the socket had refused bytes;
    /// - `unsent_bytes`: not yet taken by the socket; `refused`: the socket refuses them now;
    /// - `trusts`: whether new subscribers are waited for.
    fn look(
        &mut self,
        received_bytes: u64,
        unsent_bytes: u64,
        refused: bool,
        trusts: bool,
        now_us: u64,
    ) -> bool {
        if received_bytes > 0 {
            self.history = History::Proven;
        } else if self.history == History::New && refused && unsent_bytes > BEHIND_BYTES_MIN {
            self.history = History::OnTrial;
            if trusts {
                self.patient_until_us = now_us + PATIENCE_US_MAX;
            }
        }
        let earned_us = (received_bytes * 1_000_000 / RATE_BYTES_PER_S_MIN).min(PATIENCE_US_MAX);
        let until_us = self.patient_until_us.max(now_us) + earned_us;
        self.patient_until_us = until_us.min(now_us + PATIENCE_US_MAX);
        let bytes_min = if self.is_behind { CAUGHT_UP_BYTES_MAX } else { BEHIND_BYTES_MIN };
        let was_behind = self.is_behind;
        self.is_behind = refused && unsent_bytes > bytes_min && now_us < self.patient_until_us;
        was_behind && !self.is_behind && self.history == History::OnTrial
    }

    /// The number of bytes that the peer has acknowledged since `ask` was last called; 0 if `ask` is not due.
    /// `ask` returns the number of bytes that the peer has acknowledged in all. It is called only after the
    /// socket has refused bytes, and at most once in [`ASKING_PERIOD_US`].
    fn received_bytes(&mut self, refused: bool, ask: impl FnOnce() -> u64, now_us: u64) -> u64 {
        let has_refused = refused || self.acknowledged_bytes.is_some();
        if !has_refused || now_us < self.asks_at_us {
            return 0;
        }
        self.asks_at_us = now_us + ASKING_PERIOD_US;
        let now_bytes = ask();
        let before_bytes = self.acknowledged_bytes.replace(now_bytes).unwrap_or(now_bytes);
        now_bytes.saturating_sub(before_bytes)
    }
}

impl Connection {
    /// Updates the state of keeping up after a send. `refused` says whether the socket refuses bytes now,
    /// `had_refused` whether it did before.
    #[inline]
    pub(super) fn note_pace(&self, had_refused: bool, refused: bool) {
        if refused || had_refused || self.keeping_up.get().is_behind {
            self.check_pace(refused);
        }
    }

    /// Whether publishers may wait for this subscriber.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.keeping_up.get().is_behind
    }

    /// Ends the wait of publishers for this subscriber when the patience with this subscriber is used up.
    /// Called from time to time during such a wait.
    pub(crate) fn end_overlong_waits(&self) {
        self.check_pace(self.refused.get());
    }

    /// Ends the wait of publishers for a subscriber whose connection has ended.
    pub(super) fn end_waiting_for_it(&self) {
        self.check_pace(false);
    }

    #[cold]
    fn check_pace(&self, refused: bool) {
        let Some(id) = self.conversation.borrow().session.subscriber else { return };
        let mut keeping_up = self.keeping_up.get();
        let was_behind = keeping_up.is_behind;
        let now_us = self.worker.now_us();
        let (trusts, refused) = (self.worker.trusts_newcomers(now_us), refused && !self.broken.get());
        let ask = || self.acknowledged_bytes().unwrap_or_else(|| self.sent_bytes());
        let received_bytes = keeping_up.received_bytes(refused, ask, now_us);
        if keeping_up.look(received_bytes, self.limited_bytes(), refused, trusts, now_us) {
            self.worker.distrust_newcomers(now_us);
        }
        self.keeping_up.set(keeping_up);
        if keeping_up.is_behind != was_behind {
            self.worker.note_behind(id, keeping_up.is_behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;
    const KIB: u64 = 1 << 10;

    /// Looks at a subscriber at each triple of milliseconds, received KiB and unsent KiB. Returns whether the
    /// subscriber is behind after each look.
    fn looks(looks: &[(u64, u64, u64)]) -> Vec<bool> {
        let mut keeping_up = KeepingUp::default();
        let look = |&(ms, received, unsent): &(u64, u64, u64)| {
            keeping_up.look(received * KIB, unsent * KIB, unsent > 0, false, 1_000_000 + ms * MS);
            keeping_up.is_behind
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_new_subscriber_is_awaited_once_unless_such_a_wait_was_useless_lately() {
        let mut newcomer = KeepingUp::default();
        assert!(!newcomer.look(0, 300 * KIB, true, true, 0) && newcomer.is_behind);
        assert!(newcomer.look(0, 400 * KIB, true, true, PATIENCE_US_MAX), "in vain");
        assert!(!newcomer.is_behind);
        assert!(!newcomer.look(0, 500 * KIB, true, true, 5 * PATIENCE_US_MAX) && !newcomer.is_behind);
        assert!(!newcomer.look(64 * KIB, 500 * KIB, true, false, 5 * PATIENCE_US_MAX) && newcomer.is_behind);
        assert!(!newcomer.look(0, 500 * KIB, true, false, 9 * PATIENCE_US_MAX), "it receives something");
        let mut another = KeepingUp::default();
        assert!(!another.look(0, 300 * KIB, true, false, 0) && !another.is_behind);
    }

    #[test]
    fn a_receiving_client_is_awaited_until_little_is_left() {
        let seen = looks(&[(0, 64, 200), (1, 64, 257), (2, 64, 65), (3, 10, 64), (4, 10, 200), (5, 1, 0)]);
        assert_eq!(seen, [false, true, true, false, false, false]);
    }

    #[test]
    fn a_client_that_never_receives_is_never_awaited() {
        assert_eq!(looks(&[(0, 0, 300), (1, 0, 10_000), (2000, 0, 20_000)]), [false; 3]);
    }

    #[test]
    fn a_client_that_stops_receiving_is_awaited_while_patience_lasts() {
        let seen = looks(&[(0, 10_000, 300), (1999, 0, 300), (2000, 0, 300), (5000, 0, 300), (5001, 1, 300)]);
        assert_eq!(seen, [true, true, false, false, true]);
    }

    #[test]
    fn few_received_bytes_earn_little_patience() {
        // 1 KiB earns about 16 ms of patience.
        let seen = looks(&[(0, 1, 300), (15, 0, 300), (16, 0, 300), (1000, 1, 300), (1100, 0, 300)]);
        assert_eq!(seen, [true, true, false, true, false]);
    }
    #[test]
    fn a_steady_reader_is_waited_for_though_its_bytes_come_in_lumps() {
        // The lumps are as measured at 128 KiB/s: the first after a second, then one every 0.73 s. The socket
        // refuses bytes all the time.
        let mut keeping_up = KeepingUp::default();
        let waits = |it: &mut KeepingUp, received_kib, ms| {
            it.look(received_kib * KIB, 1000 * KIB, true, true, ms * MS);
            it.is_behind
        };
        assert!(waits(&mut keeping_up, 0, 0) && waits(&mut keeping_up, 0, 989));
        for lump in 0..100 {
            let ms = 990 + lump * 730;
            assert!(waits(&mut keeping_up, 93, ms) && waits(&mut keeping_up, 0, ms + 729), "lump {lump}");
        }
    }

    #[test]
    fn bytes_acknowledged_before_the_first_refusal_do_not_count() {
        let mut keeping_up = KeepingUp::default();
        let unasked = || panic!("a socket that refuses nothing is not asked");
        assert_eq!(keeping_up.received_bytes(false, unasked, 0), 0);
        assert_eq!(keeping_up.received_bytes(true, || 500, 1), 0);
        assert_eq!(keeping_up.received_bytes(true, || panic!("too often"), ASKING_PERIOD_US), 0);
        assert_eq!(keeping_up.received_bytes(true, || 700, 1 + ASKING_PERIOD_US), 200);
        assert_eq!(keeping_up.received_bytes(false, || 900, 1 + 2 * ASKING_PERIOD_US), 200);
        assert_eq!(keeping_up.received_bytes(true, || 900, 1 + 3 * ASKING_PERIOD_US), 0);
    }
}
