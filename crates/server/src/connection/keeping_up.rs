//! Decides whether a subscriber keeps up with its messages. If most subscribers of an audience are behind,
//! publishers wait for them (see [`pubsub::Backpressure`]).
//!
//! - Behind: its socket refuses bytes, more than [`BEHIND_BYTES_MIN`] are unsent, and it is worth waiting
//!   for.
//! - Caught up: no more than [`CAUGHT_UP_BYTES_MAX`] are unsent, or it is no longer worth waiting for.
//! - Worth waiting for: it receives something. [`RATE_BYTES_PER_S_MIN`] received bytes earn a second of
//!   patience, and no more than [`PATIENCE_US_MAX`] is saved up. Only bytes accepted after a refusal count:
//!   before, the kernel buffers them.
//! - A subscriber that has not yet received anything after a refusal gets [`PATIENCE_US_MAX`] once, unless
//!   such a wait of its worker was useless in the last [`DISTRUST_US`].
//!
//! A subscriber that never reads, or stops reading, thus delays others for a second at most, and many of them
//! no more often than one. Its unsent bytes grow to the limits of [`backlog`](super::backlog), far above
//! those here, where it is disconnected.

use super::Connection;

/// Unsent bytes above which a subscriber is behind.
const BEHIND_BYTES_MIN: u64 = 256 << 10;
/// Unsent bytes above which a subscriber that is behind has not yet caught up.
const CAUGHT_UP_BYTES_MAX: u64 = 64 << 10;
/// Receive rate that keeps a subscriber worth waiting for permanently.
const RATE_BYTES_PER_S_MIN: u64 = 128 << 10;
/// The longest wait for a subscriber that receives nothing any more.
const PATIENCE_US_MAX: u64 = 1_000_000;
/// Time without waits for new subscribers after a useless one.
pub(crate) const DISTRUST_US: u64 = 10_000_000;

/// How a subscriber has received after refusals of its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum History {
    /// It has never been behind.
    #[default]
    New,
    /// It has been behind, and has received nothing since.
    OnTrial,
    /// It has received bytes after a refusal.
    Proven,
}

/// Back-pressure state of a subscriber.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeepingUp {
    history: History,
    is_behind: bool,
    /// Publishers wait for it until then at most.
    patient_until_us: u64,
}

impl KeepingUp {
    /// Updates the state after a send. `taken_bytes` were accepted since the last call, after the socket had
    /// refused some; `unsent_bytes` are left; `refused`: the socket refuses them now. `trusts`: new
    /// subscribers are waited for. Returns whether a wait for a new subscriber has proven useless.
    fn look(
        &mut self,
        taken_bytes: u64,
        unsent_bytes: u64,
        refused: bool,
        trusts: bool,
        now_us: u64,
    ) -> bool {
        if taken_bytes > 0 {
            self.history = History::Proven;
        } else if self.history == History::New && refused && unsent_bytes > BEHIND_BYTES_MIN {
            self.history = History::OnTrial;
            if trusts {
                self.patient_until_us = now_us + PATIENCE_US_MAX;
            }
        }
        let earned_us = (taken_bytes * 1_000_000 / RATE_BYTES_PER_S_MIN).min(PATIENCE_US_MAX);
        let until_us = self.patient_until_us.max(now_us) + earned_us;
        self.patient_until_us = until_us.min(now_us + PATIENCE_US_MAX);
        let bytes_min = if self.is_behind { CAUGHT_UP_BYTES_MAX } else { BEHIND_BYTES_MIN };
        let was_behind = self.is_behind;
        self.is_behind = refused && unsent_bytes > bytes_min && now_us < self.patient_until_us;
        was_behind && !self.is_behind && self.history == History::OnTrial
    }
}

impl Connection {
    /// Called after a send: `taken_bytes` were accepted by a socket that had refused some before; `refused`:
    /// it refuses more now.
    #[inline]
    pub(super) fn note_taken(&self, taken_bytes: usize, refused: bool) {
        if refused || taken_bytes > 0 || self.keeping_up.get().is_behind {
            self.check_pace(taken_bytes as u64, refused);
        }
    }

    /// Whether publishers may wait for this subscriber.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.keeping_up.get().is_behind
    }

    /// Ends the wait for it when its patience is used up. Called from time to time while it is waited for.
    pub(crate) fn end_overlong_waits(&self) {
        self.check_pace(0, self.refused.get());
    }

    /// The connection has ended: publishers no longer wait for it.
    pub(super) fn end_waiting_for_it(&self) {
        self.check_pace(0, false);
    }

    #[cold]
    fn check_pace(&self, taken_bytes: u64, refused: bool) {
        let Some(id) = self.conversation.borrow().session.subscriber else { return };
        let mut keeping_up = self.keeping_up.get();
        let was_behind = keeping_up.is_behind;
        let now_us = self.worker.now_us();
        let (trusts, refused) = (self.worker.trusts_newcomers(now_us), refused && !self.broken.get());
        if keeping_up.look(taken_bytes, self.limited_bytes(), refused, trusts, now_us) {
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

    /// Looks at a subscriber at each of (milliseconds, KiB taken, KiB unsent); returns whether it is behind
    /// after each.
    fn looks(looks: &[(u64, u64, u64)]) -> Vec<bool> {
        let mut keeping_up = KeepingUp::default();
        let look = |&(ms, taken, unsent): &(u64, u64, u64)| {
            keeping_up.look(taken * KIB, unsent * KIB, unsent > 0, false, 1_000_000 + ms * MS);
            keeping_up.is_behind
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_newcomer_is_waited_for_once_where_others_did_not_waste_it() {
        let mut newcomer = KeepingUp::default();
        assert!(!newcomer.look(0, 300 * KIB, true, true, 0) && newcomer.is_behind);
        assert!(newcomer.look(0, 400 * KIB, true, true, PATIENCE_US_MAX), "in vain");
        assert!(!newcomer.is_behind);
        assert!(!newcomer.look(0, 500 * KIB, true, true, 5 * PATIENCE_US_MAX) && !newcomer.is_behind);
        assert!(!newcomer.look(64 * KIB, 500 * KIB, true, false, 5 * PATIENCE_US_MAX) && newcomer.is_behind);
        assert!(!newcomer.look(0, 500 * KIB, true, false, 9 * PATIENCE_US_MAX), "it takes something");
        let mut another = KeepingUp::default();
        assert!(!another.look(0, 300 * KIB, true, false, 0) && !another.is_behind);
    }

    #[test]
    fn who_takes_something_is_waited_for_until_little_is_left() {
        let seen = looks(&[(0, 64, 200), (1, 64, 257), (2, 64, 65), (3, 10, 64), (4, 10, 200), (5, 1, 0)]);
        assert_eq!(seen, [false, true, true, false, false, false]);
    }

    #[test]
    fn who_never_takes_anything_is_never_waited_for() {
        assert_eq!(looks(&[(0, 0, 300), (1, 0, 10_000), (2000, 0, 20_000)]), [false; 3]);
    }

    #[test]
    fn who_stops_taking_is_waited_for_no_longer_than_patience_lasts() {
        let seen = looks(&[(0, 10_000, 300), (999, 0, 300), (1000, 0, 300), (5000, 0, 300), (5001, 1, 300)]);
        assert_eq!(seen, [true, true, false, false, true]);
    }

    #[test]
    fn who_takes_little_earns_little() {
        // 1 KiB earns about 8 ms of patience.
        let seen = looks(&[(0, 1, 300), (7, 0, 300), (8, 0, 300), (1000, 1, 300), (1100, 0, 300)]);
        assert_eq!(seen, [true, true, false, true, false]);
    }
}
