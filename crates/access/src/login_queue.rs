//! The logins that wait for their turn at one gate of an address, in the order in which they came.
//!
//! ```text
//! ask -> its turn | after a pause, and ask again | too many wait
//! ```
//!
//! The queue has no clock, and is not told of clients that disconnect. Each waiting login asks again after a
//! short pause. A login that asks late is passed by those behind it, and one that does not ask any more loses
//! its place.
//!
//! Invariants
//! - At most [`WAITING_MAX`] logins of each protocol wait, so clients of one protocol cannot take the places
//!   of the other.
//! - While the clock is not set back, no login passes another one that asks in time.

use std::mem;

/// The maximum number of logins that wait at one gate, for each protocol.
pub const WAITING_MAX: usize = 16;

/// The longest pause after which a login asks again.
const PAUSE_MS_MAX: u64 = 1_000;

/// A login that has not asked again this long after it should have may be passed by other logins.
const LATE_MS: u64 = 100;

/// A login that has not asked again this long after it should have loses its place.
const LOST_MS: u64 = 2_000;

/// The identity of a login that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiter {
    /// The login of the client with this number, by the Redis protocol.
    Client(u64),
    /// The login with this number over HTTP.
    Http(u64),
}

/// The answer to a login that asks whether it may make an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The attempt may be made.
    Now,
    /// The login has a place in the queue, and must ask again after this time.
    Later {
        /// The time in milliseconds.
        pause_ms: u64,
    },
    /// The login gets no place, because too many logins wait already.
    TooMany,
}

/// How fast turns follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pacing {
    /// Milliseconds until the next turn.
    pub next_in_ms: u64,
    /// Milliseconds from one turn to the following one.
    pub step_ms: u64,
}

#[derive(Debug)]
struct Place {
    waiter: Waiter,
    asks_at_ms: u64,
}

/// The places of the logins that wait, in the order in which the logins came.
#[derive(Debug, Default)]
pub(crate) struct LoginQueue(Vec<Place>);

impl LoginQueue {
    /// Asks whether the attempt may be made now. If not, the login gets a place, unless too many logins wait.
    pub(crate) fn ask(&mut self, waiter: Waiter, pacing: Pacing, now_ms: u64) -> Turn {
        // A place from before the clock was set back is lost, too.
        self.0.retain(|it| now_ms < it.asks_at_ms + LOST_MS && it.asks_at_ms <= now_ms + PAUSE_MS_MAX);
        if self.is_turn(waiter, pacing, now_ms) {
            // The login keeps its place until `leave`.
            if let Some(place) = self.0.iter_mut().find(|it| it.waiter == waiter) {
                place.asks_at_ms = now_ms;
            }
            return Turn::Now;
        }
        let ahead = match self.0.iter().position(|it| it.waiter == waiter) {
            Some(ahead) => ahead,
            None if self.as_many_as(waiter) >= WAITING_MAX => return Turn::TooMany,
            None => {
                self.0.push(Place { waiter, asks_at_ms: now_ms });
                self.0.len() - 1
            }
        };
        let turn_in_ms = pacing.next_in_ms.saturating_add(pacing.step_ms.saturating_mul(ahead as u64));
        let pause_ms = turn_in_ms.clamp(1, PAUSE_MS_MAX);
        self.0[ahead].asks_at_ms = now_ms + pause_ms;
        Turn::Later { pause_ms }
    }

    /// Whether it is the turn of this login: a turn is due, and all logins before this one are late.
    pub(crate) fn is_turn(&self, waiter: Waiter, pacing: Pacing, now_ms: u64) -> bool {
        let mut ahead = self.0.iter().take_while(|it| it.waiter != waiter);
        pacing.next_in_ms == 0 && ahead.all(|it| now_ms >= it.asks_at_ms + LATE_MS)
    }

    /// Removes a login that has had its turn.
    pub(crate) fn leave(&mut self, waiter: Waiter) {
        self.0.retain(|it| it.waiter != waiter);
    }

    /// The number of waiting logins of the same protocol.
    fn as_many_as(&self, waiter: Waiter) -> usize {
        let is_like = |it: &&Place| mem::discriminant(&it.waiter) == mem::discriminant(&waiter);
        self.0.iter().filter(is_like).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Pacing = Pacing { next_in_ms: 0, step_ms: 10_000 };
    const IN_300_MS: Pacing = Pacing { next_in_ms: 300, step_ms: 400 };

    fn later(pause_ms: u64) -> Turn {
        Turn::Later { pause_ms }
    }

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let mut queue = LoginQueue::default();
        let pauses: Vec<_> = (0..4).map(|id| queue.ask(Waiter::Client(id), IN_300_MS, 0)).collect();
        assert_eq!(pauses, [later(300), later(700), later(1000), later(1000)]);
        assert_eq!(queue.ask(Waiter::Client(1), DUE, 300), later(1000), "the first one is not late yet");
        assert_eq!(queue.ask(Waiter::Client(9), DUE, 300), later(1000));
        assert_eq!(queue.ask(Waiter::Client(0), DUE, 301), Turn::Now);
        queue.leave(Waiter::Client(0));
        assert_eq!(queue.ask(Waiter::Client(1), DUE, 302), Turn::Now);
    }

    #[test]
    fn a_late_login_is_passed_and_then_forgotten() {
        let mut queue = LoginQueue::default();
        assert_eq!(queue.ask(Waiter::Client(0), IN_300_MS, 0), later(300));
        assert_eq!(queue.ask(Waiter::Client(1), IN_300_MS, 0), later(700));
        assert_eq!(queue.ask(Waiter::Client(1), DUE, 300 + LATE_MS), Turn::Now);
        queue.leave(Waiter::Client(1));
        assert_eq!(
            queue.ask(Waiter::Client(1), IN_300_MS, 400),
            later(700),
            "the first one still has its place"
        );
        assert_eq!(queue.ask(Waiter::Client(1), IN_300_MS, 300 + LOST_MS - 1000), later(700));
        assert_eq!(queue.ask(Waiter::Client(1), IN_300_MS, 300 + LOST_MS), later(300), "it has none now");
    }

    #[test]
    fn places_are_few_and_come_back() {
        let mut queue = LoginQueue::default();
        let clients = WAITING_MAX as u64;
        assert!((0..clients).all(|id| queue.ask(Waiter::Client(id), IN_300_MS, 0) != Turn::TooMany));
        assert_eq!(queue.ask(Waiter::Client(clients), IN_300_MS, 0), Turn::TooMany);
        assert!((0..clients).all(|number| queue.ask(Waiter::Http(number), IN_300_MS, 0) == later(1000)));
        assert_eq!(queue.ask(Waiter::Http(clients), IN_300_MS, 0), Turn::TooMany);
        assert_eq!(queue.ask(Waiter::Client(3), IN_300_MS, 0), later(1000), "a client with a place keeps it");
        let gone_ms = PAUSE_MS_MAX + LOST_MS;
        assert_eq!(queue.ask(Waiter::Client(clients), IN_300_MS, gone_ms), later(300));
        assert_eq!(queue.0.len(), 1);
    }

    #[test]
    fn a_step_back_of_the_clock_blocks_nobody() {
        let mut queue = LoginQueue::default();
        assert_eq!(queue.ask(Waiter::Client(0), IN_300_MS, 1_000_000), later(300));
        assert_eq!(queue.ask(Waiter::Client(1), DUE, 5), Turn::Now);
    }
}
