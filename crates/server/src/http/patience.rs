//! How long a client may do nothing.
//!
//! Every connection notes what it waits for, in whole seconds of its thread's clock; the thread looks at all of them once a
//! second. So a request costs no timer, and whoever sends a head, a body or takes a reply too slowly is disconnected.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

/// Seconds for which a connection may be idle between requests.
const IDLE_S_MAX: u32 = 120;
/// Seconds that the head of a request may take.
const HEAD_S_MAX: u32 = 30;
/// Seconds that a body may stand still.
const BODY_STALL_S_MAX: u32 = 30;
/// Bytes a second that a body must come with, after the time above.
const BODY_RATE_BYTES_MIN: u64 = 1 << 10;
/// Seconds for which a client may take nothing of a reply.
const TAKE_STALL_S_MAX: u32 = 60;

#[derive(Clone, Copy)]
enum Phase {
    /// Between requests.
    Idle,
    /// Bytes of a request's head have come.
    Head,
    /// Bytes of its body are awaited.
    Body { begun_s: u32, bytes: u64 },
    /// The server is at work.
    Busy,
}

/// What one connection waits for.
pub(super) struct Patience {
    /// The thread's clock.
    now_s: Rc<Cell<u32>>,
    phase: Cell<Phase>,
    since_s: Cell<u32>,
    /// Since when the socket takes no more.
    stalled_since_s: Cell<Option<u32>>,
    /// The connection is to end.
    pub(super) ended: Notify,
}

impl Patience {
    pub(super) fn new(now_s: Rc<Cell<u32>>) -> Patience {
        let since_s = Cell::new(now_s.get());
        let phase = Cell::new(Phase::Idle);
        Patience { now_s, phase, since_s, stalled_since_s: Cell::new(None), ended: Notify::new() }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since_s.set(self.now_s.get());
    }

    /// Bytes have come from the socket.
    pub(super) fn read(&self) {
        if matches!(self.phase.get(), Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    /// The socket took bytes, or it did not.
    pub(super) fn wrote(&self, took: bool) {
        if took && self.is_idle() {
            // A reply that is handed over and still taken is no silence.
            self.since_s.set(self.now_s.get());
        }
        let stalled = (!took).then(|| self.stalled_since_s.get().unwrap_or(self.now_s.get()));
        self.stalled_since_s.set(stalled);
    }

    /// A request's head is complete.
    pub(super) fn begin(&self) {
        self.enter(Phase::Busy);
    }

    /// More of a request's body is awaited.
    pub(super) fn await_body(&self) {
        if !matches!(self.phase.get(), Phase::Body { .. }) {
            self.enter(Phase::Body { begun_s: self.now_s.get(), bytes: 0 });
        }
    }

    /// So much of it has come.
    pub(super) fn body_came(&self, more: usize) {
        if let Phase::Body { begun_s, bytes } = self.phase.get() {
            self.enter(Phase::Body { begun_s, bytes: bytes + more as u64 });
        }
    }

    /// Whether no byte of the next request has come.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle)
    }

    /// Whether more of a request's body was awaited, and did not come to its end.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.phase.get(), Phase::Body { .. })
    }

    /// The reply was handed to the connection.
    pub(super) fn end(&self) {
        self.enter(Phase::Idle);
    }

    /// Whether the client has had its time.
    pub(super) fn is_over(&self) -> bool {
        let now_s = self.now_s.get();
        let waited_s = now_s.saturating_sub(self.since_s.get());
        let takes_nothing = |since_s: u32| now_s.saturating_sub(since_s) > TAKE_STALL_S_MAX;
        if self.stalled_since_s.get().is_some_and(takes_nothing) {
            return true;
        }
        match self.phase.get() {
            Phase::Idle => waited_s > IDLE_S_MAX,
            Phase::Head => waited_s > HEAD_S_MAX,
            Phase::Body { begun_s, bytes } => {
                let granted_s = u64::from(BODY_STALL_S_MAX) + bytes / BODY_RATE_BYTES_MIN;
                waited_s > BODY_STALL_S_MAX || u64::from(now_s.saturating_sub(begun_s)) > granted_s
            }
            Phase::Busy => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock, and a connection that goes by it.
    fn connection() -> (Rc<Cell<u32>>, Patience) {
        let clock = Rc::new(Cell::new(1000));
        (clock.clone(), Patience::new(clock))
    }

    fn pass(clock: &Cell<u32>, seconds: u32) {
        clock.set(clock.get() + seconds);
    }

    #[test]
    fn a_head_that_does_not_end_ends_the_connection_however_many_bytes_come() {
        let (clock, patience) = connection();
        patience.read();
        for _ in 0..HEAD_S_MAX {
            pass(&clock, 1);
            patience.read();
            assert!(!patience.is_over());
        }
        pass(&clock, 1);
        assert!(patience.is_over());
    }

    #[test]
    fn a_request_that_is_answered_begins_the_idle_time_anew() {
        let (clock, patience) = connection();
        pass(&clock, IDLE_S_MAX);
        patience.read();
        patience.begin();
        pass(&clock, 100_000);
        assert!(!patience.is_over(), "the server may take its time");
        patience.end();
        pass(&clock, IDLE_S_MAX);
        assert!(!patience.is_over());
        pass(&clock, 1);
        assert!(patience.is_over());
    }

    #[test]
    fn a_body_must_keep_coming_and_not_drop_by_drop() {
        let (clock, patience) = connection();
        patience.begin();
        patience.await_body();
        for _ in 0..1000 {
            pass(&clock, BODY_STALL_S_MAX);
            patience.body_came(BODY_STALL_S_MAX as usize * BODY_RATE_BYTES_MIN as usize);
            assert!(!patience.is_over());
        }
        pass(&clock, BODY_STALL_S_MAX + 1);
        assert!(patience.is_over(), "it stands still");

        let (clock, patience) = connection();
        patience.await_body();
        for _ in 0..=BODY_STALL_S_MAX {
            pass(&clock, 1);
            patience.body_came(1);
        }
        assert!(patience.is_over(), "a byte a second");
    }

    #[test]
    fn who_takes_nothing_is_disconnected_also_in_the_midst_of_a_feed() {
        let (clock, patience) = connection();
        patience.begin();
        patience.wrote(false);
        pass(&clock, TAKE_STALL_S_MAX);
        patience.wrote(false);
        assert!(!patience.is_over());
        pass(&clock, 1);
        assert!(patience.is_over());
        patience.wrote(true);
        assert!(!patience.is_over());
    }
}
