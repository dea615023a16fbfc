//! CLIENT PAUSE: for some time, the commands of clients wait.
//!
//! A worker reads the pause at the start of a round: one atomic load while there is no pause. A pause ends at
//! a monotonic time: setting the clock of the machine neither lengthens nor ends it. A client whose command
//! is held is noted here: CLIENT UNPAUSE has such clients go on, in the order in which they were held. When
//! the time of a pause is over, the workers of the held clients notice it; if the pause has become longer
//! meanwhile, they hold the clients again.
//!
//! Invariants
//! - A client is noted at most once, and no longer than it is connected.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use env::Clock;
use parking_lot::Mutex;

use super::Client;
use crate::{Flags, Row};

/// The commands that wait during a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// Commands that may change data or publish messages wait, except the commands that do not wait with
    /// [`Paused::All`] either.
    Writes,
    /// All commands wait, except the command that ends a pause, and commands between servers, AUTH among
    /// them. A command that begins a pause waits, too, so that it neither lengthens this pause nor makes the
    /// new one stricter.
    All,
}

/// A pause in force at the time of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The commands that wait during this pause.
    pub paused: Paused,
    /// Milliseconds until the pause ends.
    pub left_ms: u64,
}

impl Pause {
    /// Whether a command waits. `writes_queued` says that the command is an EXEC with a queued command that
    /// may change data or publish messages.
    pub(crate) fn holds(self, row: &Row, writes_queued: bool) -> bool {
        if row.flags.has(Flags::BETWEEN_SERVERS) || row.treatment.is_never_paused {
            return false;
        }
        match self.paused {
            Paused::All => true,
            Paused::Writes => writes_queued || may_change(row),
        }
    }
}

/// Whether a command may change data or publish messages.
pub(crate) fn may_change(row: &Row) -> bool {
    let flags = row.flags;
    let runs_any = flags.has(Flags::RUNS_SCRIPTS) && !flags.has(Flags::READONLY);
    flags.has(Flags::WRITE) || flags.has(Flags::PUBLISHES) || runs_any
}

/// The pause of a server: whether there is one, its end, and the held clients.
#[derive(Debug, Default)]
pub struct PauseSwitch {
    /// The end of the pause, in monotonic milliseconds; it may be in the past. 0: there is no pause.
    ends_ms: AtomicU64,
    holds_all: AtomicBool,
    held: Mutex<HeldClients>,
}

/// The clients whose commands are held. The lock is also held while the pause changes.
#[derive(Debug, Default)]
struct HeldClients {
    /// The last ticket that was given; 0 before the first one.
    tickets: u64,
    by_ticket: BTreeMap<u64, Arc<Client>>,
}

impl PauseSwitch {
    /// Begins a pause of `timeout_ms`, or extends the pause in force: that pause then ends at the later time,
    /// and holds the commands that either of them holds.
    pub fn begin(&self, paused: Paused, timeout_ms: u64, clock: &(impl Clock + ?Sized)) {
        let _changing = self.held.lock();
        let old = self.at(clock);
        let holds_all = paused == Paused::All || old.is_some_and(|old| old.paused == Paused::All);
        self.holds_all.store(holds_all, Relaxed);
        let left_ms = timeout_ms.max(old.map_or(0, |old| old.left_ms));
        self.ends_ms.store(monotonic_ms(clock).saturating_add(left_ms), Release);
    }

    /// Ends the pause: the held clients go on.
    pub fn end(&self) {
        let mut held = self.held.lock();
        self.ends_ms.store(0, Release);
        for client in std::mem::take(&mut held.by_ticket).into_values() {
            client.pause_ticket.store(0, Relaxed);
            client.go_on();
        }
    }

    /// Notes that a command of the client is held. Returns the milliseconds until the pause ends; `None` if
    /// the pause has ended and the command may run.
    pub(crate) fn hold(&self, client: &Arc<Client>, clock: &(impl Clock + ?Sized)) -> Option<u64> {
        let mut held = self.held.lock();
        let left_ms = self.at(clock)?.left_ms;
        if client.pause_ticket.load(Relaxed) == 0 {
            held.tickets += 1;
            client.pause_ticket.store(held.tickets, Relaxed);
            let ticket = held.tickets;
            held.by_ticket.insert(ticket, client.clone());
        }
        Some(left_ms)
    }

    /// Notes that the client goes on, or has disconnected.
    pub fn let_go(&self, client: &Client) {
        // Only the client's own thread gives it a ticket, so a 0 that is read here stays.
        if client.pause_ticket.load(Relaxed) > 0 {
            let mut held = self.held.lock();
            held.by_ticket.remove(&client.pause_ticket.swap(0, Relaxed));
        }
    }

    /// The pause in force now.
    #[inline]
    pub fn at(&self, clock: &(impl Clock + ?Sized)) -> Option<Pause> {
        match self.ends_ms.load(Acquire) {
            0 => None,
            ends_ms => self.with_end(ends_ms, monotonic_ms(clock)),
        }
    }

    #[cold]
    fn with_end(&self, ends_ms: u64, now_ms: u64) -> Option<Pause> {
        let left_ms = ends_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?;
        let paused = if self.holds_all.load(Relaxed) { Paused::All } else { Paused::Writes };
        Some(Pause { paused, left_ms })
    }
}

fn monotonic_ms(clock: &(impl Clock + ?Sized)) -> u64 {
    clock.monotonic_us() / 1000
}

#[cfg(test)]
mod tests {
    use env::SimClock;

    use super::*;
    use crate::{
        clients::{Clients, Connected, Signal, tests::connected},
        row::samples,
    };

    #[test]
    fn held_clients_go_on_in_their_order_when_the_pause_is_ended() {
        let (clients, gone_on) = (Clients::new(), Arc::new(Mutex::new(Vec::new())));
        let connect = || {
            let seen = gone_on.clone();
            let signaller = Box::new(move |id, signal| {
                assert!(matches!(signal, Signal::GoOn));
                seen.lock().push(id);
            });
            clients.register(Connected { signaller, ..connected("a:1") })
        };
        let [first, second, third, fourth] = [connect(), connect(), connect(), connect()];
        let (pause, clock) = (clients.pause(), SimClock::new(0));
        assert_eq!(pause.hold(&first, &clock), None, "there is no pause");
        pause.begin(Paused::Writes, 100, &clock);
        clock.advance_ms(50);
        for client in [&third, &first, &second, &fourth, &third] {
            assert_eq!(pause.hold(client, &clock), Some(50));
        }
        assert_eq!(clients.blocked(), 4, "as in Redis");
        pause.let_go(&first);
        clients.remove(fourth.id());
        pause.end();
        assert_eq!(*gone_on.lock(), [third.id(), second.id()]);
        assert_eq!(clients.blocked(), 0);
        assert_eq!(pause.hold(&first, &clock), None, "the pause has ended meanwhile");
        pause.end();
        assert_eq!(gone_on.lock().len(), 2);
    }

    #[test]
    fn a_pause_ends_and_another_one_extends_it() {
        let (switch, clock) = (PauseSwitch::default(), SimClock::new(1_000));
        assert_eq!(switch.at(&clock), None);
        switch.begin(Paused::Writes, 100, &clock);
        clock.advance_ms(50);
        assert_eq!(switch.at(&clock), Some(Pause { paused: Paused::Writes, left_ms: 50 }));
        for unix_ms in [0, 1_000_000] {
            clock.set_unix_ms(unix_ms);
            assert_eq!(switch.at(&clock).map(|pause| pause.left_ms), Some(50), "at {unix_ms}");
        }
        switch.begin(Paused::All, 150, &clock);
        switch.begin(Paused::Writes, 100, &clock);
        assert_eq!(
            switch.at(&clock),
            Some(Pause { paused: Paused::All, left_ms: 150 }),
            "the stricter, the later"
        );
        clock.advance_ms(150);
        assert_eq!(switch.at(&clock), None);
        switch.begin(Paused::Writes, 100, &clock);
        assert_eq!(switch.at(&clock), Some(Pause { paused: Paused::Writes, left_ms: 100 }));
        switch.end();
        assert_eq!(switch.at(&clock), None);
    }

    #[test]
    fn commands_are_held_by_what_they_may_do() {
        let row = |name: &str| samples::table().resolve(name.as_bytes()).expect("a row");
        let (writes, all) = (Paused::Writes, Paused::All);
        let holds = |paused, name: &str| Pause { paused, left_ms: 5 }.holds(row(name), false);
        assert!(!holds(writes, "get") && holds(all, "get"));
        assert!(Pause { paused: writes, left_ms: 5 }.holds(row("get"), true));
    }
}
