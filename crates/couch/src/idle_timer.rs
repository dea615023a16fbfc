//! Timeouts of HTTP clients.
//!
//! Every connection records its phase and when the phase began, in whole seconds of its thread's clock; the
//! thread checks all connections once a second. So a request needs no timer of its own. A client is
//! disconnected if it is idle for too long, sends a head or a body too slowly, or acknowledges no byte of a
//! reply for too long.
//!
//! Invariants
//! - The rate of a body is measured anew in each window of time, because a body holds memory until it is
//!   complete: a client cannot send slowly after a fast start.
//! - Time in which the server does not read is not counted against the client.
//! - A client that takes a reply slowly stays connected as long as it acknowledges bytes. Writes to the
//!   socket do not show acknowledgements: a full socket takes bytes again only when a third of its buffer is
//!   free, for which a slow client may need minutes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::Notify;

use super::body_memory::Claim;

/// The limit in seconds for clients that must log in first. It applies to the idle time, to the time for the
/// head of a request, and to the time without a byte of the body.
pub(super) const LOGIN_S_MAX: u32 = 10;
/// Seconds that a connection may be idle between requests.
const IDLE_S_MAX: u32 = 120;
/// Seconds that the head of a request may take.
const HEAD_S_MAX: u32 = 30;
/// Seconds that may pass without a byte of the body.
const BODY_STALL_S_MAX: u32 = 30;
/// Seconds over which the rate of a body is measured.
const BODY_WINDOW_S: u32 = 30;
/// The bytes per second that a body must have in every window of [`BODY_WINDOW_S`].
const BODY_RATE_BYTES_MIN: u64 = 4 << 10;
/// The maximum number of seconds in which no byte of a reply is acknowledged.
const TAKE_STALL_S_MAX: u32 = 60;

#[derive(Clone, Copy)]
enum Phase {
    /// No byte has arrived since the connection was made.
    New,
    /// Between requests.
    Idle,
    /// Bytes of a request's head have arrived.
    Head,
    /// Waiting for the body (`came_s` is None), or processing a piece that arrived at `came_s`. `bytes` have
    /// arrived since `window_s`.
    Body { window_s: u32, bytes: u64, came_s: Option<u32> },
    /// The server works on the request.
    Busy,
}

/// A socket that refuses bytes of a reply.
struct Stall {
    /// Since when the client acknowledges nothing.
    since_s: u32,
    unacknowledged_bytes: u64,
    /// Returns how many bytes the client has not acknowledged; 0 if that cannot be known.
    ask: Box<dyn Fn() -> u64>,
}

impl Stall {
    /// For how many seconds the client has acknowledged nothing.
    fn seconds(&mut self, now_s: u32) -> u32 {
        let unacknowledged_bytes = (self.ask)();
        if unacknowledged_bytes < self.unacknowledged_bytes {
            (self.unacknowledged_bytes, self.since_s) = (unacknowledged_bytes, now_s);
        }
        now_s.saturating_sub(self.since_s)
    }
}

/// The timeouts of one connection.
pub(super) struct IdleTimer {
    /// The thread's clock: whole seconds since the thread began.
    now_s: Rc<Cell<u32>>,
    phase: Cell<Phase>,
    since_s: Cell<u32>,
    /// Whether the client must log in first.
    is_stranger: Cell<bool>,
    stall: RefCell<Option<Stall>>,
    /// The memory claim of the request's body, until it is answered.
    held: RefCell<Option<Claim>>,
    /// Notified when the connection must end.
    pub(super) ended: Notify,
}

impl IdleTimer {
    pub(super) fn new(now_s: Rc<Cell<u32>>) -> IdleTimer {
        let since_s = Cell::new(now_s.get());
        let (phase, is_stranger) = (Cell::new(Phase::New), Cell::new(false));
        let (stall, held) = (RefCell::default(), RefCell::default());
        IdleTimer { now_s, phase, since_s, is_stranger, stall, held, ended: Notify::new() }
    }

    /// Says whether the client must log in first.
    pub(super) fn set_stranger(&self, is_stranger: bool) {
        self.is_stranger.set(is_stranger);
    }

    /// Whether the client must log in first.
    pub(super) fn is_stranger(&self) -> bool {
        self.is_stranger.get()
    }

    /// Whether the client has to log in, and its connection is new or within the head of a request.
    pub(super) fn awaits_login(&self) -> bool {
        self.is_stranger.get() && matches!(self.phase.get(), Phase::New | Phase::Head)
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since_s.set(self.now_s.get());
    }

    /// Bytes were read from the socket.
    pub(super) fn read(&self) {
        if self.is_idle() {
            self.enter(Phase::Head);
        }
    }

    /// The socket took bytes.
    pub(super) fn wrote(&self) {
        if self.is_idle() {
            // A finished reply that is still being sent counts as activity.
            self.since_s.set(self.now_s.get());
        }
        self.stall.take();
    }

    /// Notes that the socket refuses bytes. `ask` returns a function that asks the kernel how many bytes the
    /// client has not acknowledged.
    pub(super) fn was_refused(&self, ask: impl FnOnce() -> Box<dyn Fn() -> u64>) {
        self.stall.borrow_mut().get_or_insert_with(|| {
            let ask = ask();
            Stall { since_s: self.now_s.get(), unacknowledged_bytes: ask(), ask }
        });
    }

    /// The head of a request, or its body, is complete.
    pub(super) fn begin(&self) {
        self.enter(Phase::Busy);
    }

    /// The server waits for more of the body.
    pub(super) fn await_body(&self) {
        let now_s = self.now_s.get();
        match self.phase.get() {
            Phase::Body { window_s, bytes, came_s: Some(came_s) } => {
                // The time for processing the last piece is not counted.
                let window_s = window_s + now_s.saturating_sub(came_s);
                self.enter(Phase::Body { window_s, bytes, came_s: None });
            }
            Phase::Body { came_s: None, .. } => {}
            _ => self.enter(Phase::Body { window_s: now_s, bytes: 0, came_s: None }),
        }
    }

    /// A piece of the body with `more` bytes has arrived.
    pub(super) fn body_came(&self, more: usize) {
        if let Phase::Body { window_s, bytes, .. } = self.phase.get() {
            let now_s = self.now_s.get();
            let (bytes, elapsed_s) = (bytes + more as u64, now_s.saturating_sub(window_s));
            let is_passed = elapsed_s >= BODY_WINDOW_S && !is_too_slow(bytes, elapsed_s);
            let (window_s, bytes) = if is_passed { (now_s, 0) } else { (window_s, bytes) };
            self.enter(Phase::Body { window_s, bytes, came_s: Some(now_s) });
        }
    }

    /// Keeps the memory of a body until its request is answered.
    pub(super) fn hold(&self, claim: Claim) {
        *self.held.borrow_mut() = Some(claim);
    }

    /// Whether no byte of the next request has arrived.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase.get(), Phase::New | Phase::Idle)
    }

    /// Whether the server has begun to read the body, and has not reached its end.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.phase.get(), Phase::Body { .. })
    }

    /// The reply is complete.
    pub(super) fn end(&self) {
        self.held.take();
        self.enter(Phase::Idle);
    }

    /// Whether a timeout has expired.
    pub(super) fn is_over(&self) -> bool {
        let now_s = self.now_s.get();
        let waited_s = now_s.saturating_sub(self.since_s.get());
        let stalled_s = self.stall.borrow_mut().as_mut().map(|stall| stall.seconds(now_s));
        match stalled_s {
            Some(stalled_s) if stalled_s > TAKE_STALL_S_MAX => return true,
            // A finished reply is on its way to a client that acknowledges bytes.
            Some(_) if self.is_idle() => return false,
            _ => {}
        }
        match self.phase.get() {
            Phase::New | Phase::Idle | Phase::Head if self.is_stranger.get() => waited_s > LOGIN_S_MAX,
            Phase::New | Phase::Idle => waited_s > IDLE_S_MAX,
            Phase::Head => waited_s > HEAD_S_MAX,
            Phase::Body { window_s, bytes, came_s: None } => {
                let elapsed_s = now_s.saturating_sub(window_s);
                let stall_s_max = if self.is_stranger.get() { LOGIN_S_MAX } else { BODY_STALL_S_MAX };
                waited_s > stall_s_max || elapsed_s > BODY_WINDOW_S && is_too_slow(bytes, elapsed_s)
            }
            Phase::Body { came_s: Some(_), .. } => false,
            Phase::Busy => false,
        }
    }
}

fn is_too_slow(bytes: u64, elapsed_s: u32) -> bool {
    bytes < u64::from(elapsed_s) * BODY_RATE_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock, and a connection that uses it.
    fn connection() -> (Rc<Cell<u32>>, IdleTimer) {
        let clock = Rc::new(Cell::new(1000));
        (clock.clone(), IdleTimer::new(clock))
    }

    fn pass(clock: &Cell<u32>, seconds: u32) {
        clock.set(clock.get() + seconds);
    }

    #[test]
    fn a_head_that_does_not_end_ends_the_connection_however_many_bytes_come() {
        let (clock, idle_timer) = connection();
        idle_timer.read();
        for _ in 0..HEAD_S_MAX {
            pass(&clock, 1);
            idle_timer.read();
            assert!(!idle_timer.is_over());
        }
        pass(&clock, 1);
        assert!(idle_timer.is_over());
    }

    #[test]
    fn a_client_that_has_to_log_in_has_less_time() {
        let (clock, idle_timer) = connection();
        idle_timer.set_stranger(true);
        pass(&clock, LOGIN_S_MAX);
        assert!(idle_timer.awaits_login() && !idle_timer.is_over());
        pass(&clock, 1);
        assert!(idle_timer.is_over(), "it says nothing");
        idle_timer.read();
        pass(&clock, LOGIN_S_MAX + 1);
        assert!(idle_timer.awaits_login() && idle_timer.is_over(), "its head does not end");
        idle_timer.begin();
        pass(&clock, 100_000);
        assert!(!idle_timer.is_over(), "the server may take its time");
        idle_timer.set_stranger(false);
        idle_timer.end();
        pass(&clock, LOGIN_S_MAX + 1);
        assert!(!idle_timer.is_over(), "it has logged in");
        idle_timer.set_stranger(true);
        assert!(idle_timer.is_over() && !idle_timer.awaits_login(), "another one uses the connection now");
    }

    #[test]
    fn a_request_that_is_answered_begins_the_idle_time_anew() {
        let (clock, idle_timer) = connection();
        pass(&clock, IDLE_S_MAX);
        idle_timer.read();
        idle_timer.begin();
        pass(&clock, 100_000);
        assert!(!idle_timer.is_over(), "the server may take its time");
        idle_timer.end();
        pass(&clock, IDLE_S_MAX);
        assert!(!idle_timer.is_over());
        pass(&clock, 1);
        assert!(idle_timer.is_over());
    }

    #[test]
    fn a_body_must_keep_coming_and_not_drop_by_drop() {
        let (clock, idle_timer) = connection();
        idle_timer.begin();
        idle_timer.await_body();
        let come = |seconds, bytes| {
            pass(&clock, seconds);
            let is_over = idle_timer.is_over();
            idle_timer.body_came(bytes);
            idle_timer.await_body();
            is_over
        };
        for _ in 0..1000 {
            assert!(!come(BODY_STALL_S_MAX, BODY_STALL_S_MAX as usize * BODY_RATE_BYTES_MIN as usize));
        }
        assert!(come(BODY_STALL_S_MAX + 1, 1), "it stood still");

        let (clock, idle_timer) = connection();
        idle_timer.await_body();
        let drop_by_drop = |clock: &Cell<u32>, idle_timer: &IdleTimer| {
            (0..=2 * BODY_WINDOW_S).any(|_| {
                pass(clock, 1);
                idle_timer.body_came(1);
                idle_timer.await_body();
                idle_timer.is_over()
            })
        };
        assert!(drop_by_drop(&clock, &idle_timer), "a byte a second");

        let (clock, idle_timer) = connection();
        idle_timer.await_body();
        idle_timer.body_came(1 << 30);
        idle_timer.await_body();
        assert!(drop_by_drop(&clock, &idle_timer), "however much came at first");
    }

    #[test]
    fn time_in_which_the_server_does_not_read_is_not_the_clients() {
        let (clock, idle_timer) = connection();
        idle_timer.await_body();
        for _ in 0..BODY_WINDOW_S {
            pass(&clock, 1);
            idle_timer.body_came(BODY_RATE_BYTES_MIN as usize);
            pass(&clock, 1000);
            assert!(!idle_timer.is_over(), "it is the server's turn");
            idle_timer.await_body();
            assert!(!idle_timer.is_over());
        }
    }

    #[test]
    fn a_client_that_takes_nothing_is_disconnected_even_during_a_feed() {
        let (clock, idle_timer) = connection();
        idle_timer.begin();
        let nothing: fn() -> Box<dyn Fn() -> u64> = || Box::new(|| 1000);
        idle_timer.was_refused(nothing);
        pass(&clock, TAKE_STALL_S_MAX);
        idle_timer.was_refused(nothing);
        assert!(!idle_timer.is_over());
        pass(&clock, 1);
        assert!(idle_timer.is_over());
        idle_timer.wrote();
        assert!(!idle_timer.is_over());
    }

    #[test]
    fn a_client_that_acknowledges_bytes_may_receive_slowly() {
        let (clock, idle_timer) = connection();
        idle_timer.begin();
        let unacknowledged_bytes = Rc::new(Cell::new(1000));
        let asked = unacknowledged_bytes.clone();
        idle_timer.was_refused(|| Box::new(move || asked.get()));
        for left in (0..1000).rev() {
            pass(&clock, TAKE_STALL_S_MAX);
            unacknowledged_bytes.set(left);
            assert!(!idle_timer.is_over());
        }
        pass(&clock, TAKE_STALL_S_MAX + 1);
        assert!(idle_timer.is_over());
    }

    #[test]
    fn a_reply_that_is_made_may_take_long_to_arrive() {
        let (clock, idle_timer) = connection();
        idle_timer.set_stranger(true);
        idle_timer.begin();
        let unacknowledged_bytes = Rc::new(Cell::new(1000));
        let asked = unacknowledged_bytes.clone();
        idle_timer.was_refused(|| Box::new(move || asked.get()));
        idle_timer.end();
        for left in (500..1000).rev() {
            pass(&clock, TAKE_STALL_S_MAX);
            unacknowledged_bytes.set(left);
            assert!(!idle_timer.is_over(), "it acknowledges bytes");
        }
        idle_timer.wrote();
        pass(&clock, LOGIN_S_MAX + 1);
        assert!(idle_timer.is_over(), "all has been taken");
    }
}
