//! Failed logins by address: decides how long the next attempt from an address has to wait.
//!
//! ```text
//! ask -> wait, and ask again | look at the password -> attempt -> wait, and ask again | accepted, or failed
//! ```
//!
//! The failures are in a bounded table in memory, which belongs to a server and not to the data. The table
//! has no clock. It never locks a user out: after the wait the right password is accepted, however many
//! guesses have failed.
//!
//! Attempts from an address pass through gates. After a number of failures that cost no wait, each wrong
//! password shuts its gate for a time. All users of the address share one gate. The exceptions are the last
//! `USERS_MAX` users that have logged in from the address since its first failure: each of them has a gate of
//! its own. So a program with the right password waits for one turn, and then no more, while other programs
//! at its address guess passwords of other users.
//!
//! Invariants
//! - The attempts that wait at a gate take turns in the order in which they came, see [`LoginQueue`].
//! - An attempt learns whether its password is right only while the gate is open, and after the first
//!   failures, a wrong password shuts the gate. So an address with many connections then guesses no faster
//!   than with one.
//! - A right password does not undo a failure. So the owner of one user cannot guess the password of another
//!   user without waiting, and logins of a user do not help those who guess its password.
//! - At most [`ADDRESSES_MAX`] addresses are known. For a further one, the address with the fewest failures
//!   is forgotten.
//! - No line of the log has a name or a password, because people type passwords in the place of names.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::login_queue::{LoginQueue, Pacing, Turn, Waiter};
use crate::password::PasswordHash;

/// The maximum number of addresses.
pub const ADDRESSES_MAX: usize = 4096;

/// The maximum number of users of one address that have gates of their own.
const USERS_MAX: usize = 8;

/// An address counts as one that has never failed when this time has passed since its last failure.
pub const FORGOTTEN_AFTER_MS: u64 = 10 * 60_000;

/// In this period, at most one line about an address is logged, and at most [`LINES_MAX`] lines about all
/// addresses.
const LINES_PERIOD_MS: u64 = 60_000;

/// The maximum number of log lines about failed logins in [`LINES_PERIOD_MS`].
const LINES_MAX: u32 = 10;

/// How attempts slow down. The first `free` failures cost no wait, the next one costs `first_ms`, and each
/// further one twice as much as the one before, up to `max_ms`.
#[derive(Debug, Clone, Copy)]
struct Pace {
    free: u32,
    first_ms: u64,
    max_ms: u64,
}

const ELSEWHERE: Pace = Pace { free: 5, first_ms: 100, max_ms: 10_000 };

/// The pace is mild, because everybody on this machine shares one address: people, programs, health checks.
const THIS_MACHINE: Pace = Pace { free: 20, first_ms: 25, max_ms: 100 };

impl Pace {
    fn of(address: IpAddr) -> Pace {
        if address.is_loopback() { THIS_MACHINE } else { ELSEWHERE }
    }

    fn wait_ms(self, failures: u32) -> u64 {
        match failures.checked_sub(self.free) {
            None | Some(0) => 0,
            Some(over) => (self.first_ms << (over - 1).min(20)).min(self.max_ms),
        }
    }
}

/// A gate, through which attempts of some users of an address pass one after another. A wrong password shuts
/// it for the time that its failures cost; see [`Pace`].
#[derive(Debug, Default)]
struct Gate {
    failures: u32,
    opens_ms: u64,
    waiting: LoginQueue,
}

impl Gate {
    fn shut(&mut self, pace: Pace, now_ms: u64) {
        self.opens_ms = now_ms + pace.wait_ms(self.failures);
    }

    /// The pace of the attempts at the gate; `None` if attempts need not wait.
    fn pacing(&self, pace: Pace, now_ms: u64) -> Option<Pacing> {
        let step_ms = pace.wait_ms(self.failures);
        // Even if the clock was set back, the wait is never longer than the wait for the failures.
        let next_in_ms = self.opens_ms.saturating_sub(now_ms).min(step_ms);
        (step_ms > 0).then_some(Pacing { next_in_ms, step_ms })
    }
}

/// The failures of one address, and its gates.
#[derive(Debug, Default)]
struct Entry {
    shared: Gate,
    /// The users that have logged in, by the digests of their names; the user with the latest login comes
    /// last.
    users: Vec<([u8; 32], Gate)>,
    failed_ms: u64,
    logged_ms: Option<u64>,
}

impl Entry {
    fn gate(&mut self, user: &[u8]) -> &mut Gate {
        let digest = digest_of(user);
        let own = self.users.iter_mut().find(|(known, _)| *known == digest);
        own.map_or(&mut self.shared, |(_, gate)| gate)
    }

    /// Gives the user a gate of its own. A new gate takes over the failures of the shared gate, because some
    /// of them may have been about this user.
    fn has_logged_in(&mut self, user: &[u8]) {
        let digest = digest_of(user);
        let at = self.users.iter().position(|(known, _)| *known == digest);
        let own = at.map(|at| self.users.remove(at));
        if self.users.len() == USERS_MAX {
            self.users.remove(0);
        }
        let new = || (digest, Gate { failures: self.shared.failures, ..Gate::default() });
        self.users.push(own.unwrap_or_else(new));
    }

    fn failures(&self) -> u32 {
        let of_users = self.users.iter().map(|(_, gate)| gate.failures);
        of_users.fold(self.shared.failures, u32::max)
    }
}

/// The digest of a name. Names may be long; a digest keeps entries small.
fn digest_of(user: &[u8]) -> [u8; 32] {
    *PasswordHash::of(user).bytes()
}

/// The address under which failures are counted. All loopback addresses count as one. All addresses of one
/// IPv6 network (/64) count as one, because a machine can use as many of them as it likes.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

/// The content of a log line about failed logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLoginLine {
    /// The failures of this address that are not forgotten, counted at the gate with the most.
    pub failures: u32,
    /// The number of earlier failures, of all addresses, that no line has reported yet.
    pub unlogged: u64,
}

/// The failed logins of a server.
#[derive(Debug, Default)]
pub struct FailedLogins {
    entries: HashMap<IpAddr, Entry>,
    period_ms: u64,
    lines: u32,
    unlogged: u64,
}

/// A login, with the facts on which its wait depends.
#[derive(Debug, Clone, Copy)]
pub struct LoginOf<'a> {
    /// The address of the client.
    pub address: IpAddr,
    /// The name of the user that the client gives.
    pub user: &'a [u8],
    /// Distinguishes this login from other logins that wait.
    pub waiter: Waiter,
}

impl FailedLogins {
    /// Asks whether an attempt may be made now. If not, the login gets a place in the queue, unless too many
    /// logins wait, and must ask again.
    pub fn ask(&mut self, login: LoginOf<'_>, now_ms: u64) -> Turn {
        self.at_gate(login, now_ms)
            .map_or(Turn::Now, |(gate, pacing)| gate.waiting.ask(login.waiter, pacing, now_ms))
    }

    /// Whether an attempt could be made now. The login gets no place in the queue.
    pub fn is_turn(&mut self, login: LoginOf<'_>, now_ms: u64) -> bool {
        self.at_gate(login, now_ms)
            .is_none_or(|(gate, pacing)| gate.waiting.is_turn(login.waiter, pacing, now_ms))
    }

    /// Makes an attempt, unless the login has to wait. `is_right` says whether the password is right. The
    /// caller must note a failure with [`FailedLogins::failed`].
    pub fn attempt(&mut self, login: LoginOf<'_>, is_right: bool, now_ms: u64) -> Turn {
        let turn = self.ask(login, now_ms);
        let network = network_of(login.address);
        if turn == Turn::Now
            && let Some(entry) = self.entries.get_mut(&network)
        {
            if now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS {
                self.entries.remove(&network);
                return turn;
            }
            let gate = entry.gate(login.user);
            gate.waiting.leave(login.waiter);
            if is_right {
                entry.has_logged_in(login.user);
            } else {
                gate.shut(Pace::of(network), now_ms);
            }
        }
        turn
    }

    /// The gate at which a login may have to wait, with its pace; `None` if the login need not wait.
    fn at_gate(&mut self, login: LoginOf<'_>, now_ms: u64) -> Option<(&mut Gate, Pacing)> {
        let network = network_of(login.address);
        let entry = self.entries.get_mut(&network)?;
        let is_forgotten = now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS;
        let gate = entry.gate(login.user);
        let pacing = gate.pacing(Pace::of(network), now_ms).filter(|_| !is_forgotten)?;
        Some((gate, pacing))
    }

    /// Notes that an attempt has failed. Returns the content of a log line if one is due.
    pub fn failed(&mut self, address: IpAddr, user: &[u8], now_ms: u64) -> Option<FailedLoginLine> {
        let network = network_of(address);
        if self.entries.len() >= ADDRESSES_MAX && !self.entries.contains_key(&network) {
            let least = self.entries.iter().min_by_key(|(_, entry)| (entry.failures(), entry.failed_ms));
            if let Some(least) = least.map(|(address, _)| *address) {
                self.entries.remove(&least);
            }
        }
        let entry = self.entries.entry(network).or_default();
        entry.failed_ms = now_ms;
        let gate = entry.gate(user);
        gate.failures = gate.failures.saturating_add(1);
        gate.shut(Pace::of(network), now_ms);
        if now_ms.abs_diff(self.period_ms) >= LINES_PERIOD_MS {
            (self.period_ms, self.lines) = (now_ms, 0);
        }
        let is_due = entry.logged_ms.is_none_or(|logged| now_ms.abs_diff(logged) >= LINES_PERIOD_MS);
        if !is_due || self.lines == LINES_MAX {
            self.unlogged += 1;
            return None;
        }
        entry.logged_ms = Some(now_ms);
        self.lines += 1;
        Some(FailedLoginLine { failures: entry.failures(), unlogged: std::mem::take(&mut self.unlogged) })
    }

    /// The number of known addresses.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no address is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login_queue::WAITING_MAX;

    const FAR: &str = "192.0.2.1";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn login<'a>(from: &str, user: &'a [u8], number: u64) -> LoginOf<'a> {
        LoginOf { address: address(from), user, waiter: Waiter::Client(number) }
    }

    /// Makes one wrong guess. Returns the milliseconds until the attempt may be made, for a lone client; 0 if
    /// it was made and has failed.
    fn guess(logins: &mut FailedLogins, from: &str, user: &[u8], now_ms: u64) -> u64 {
        if logins.attempt(login(from, user, 1), false, now_ms) == Turn::Now {
            logins.failed(address(from), user, now_ms);
            return 0;
        }
        logins.at_gate(login(from, user, 1), now_ms).map_or(0, |(_, pacing)| pacing.next_in_ms)
    }

    fn logs_in(logins: &mut FailedLogins, from: &str, user: &[u8], now_ms: u64) -> bool {
        logins.attempt(login(from, user, 2), true, now_ms) == Turn::Now
    }

    /// The waits of `count` wrong guesses, each made as soon as it may be.
    fn waits(from: &str, count: usize) -> Vec<u64> {
        let (mut logins, mut now_ms) = (FailedLogins::default(), 1_000);
        let mut waits = Vec::new();
        for _ in 0..count {
            let wait_ms = guess(&mut logins, from, b"default", now_ms);
            if wait_ms > 0 {
                now_ms += wait_ms;
                assert_eq!(guess(&mut logins, from, b"default", now_ms), 0, "after the wait");
            }
            waits.push(wait_ms);
        }
        waits
    }

    #[test]
    fn failures_cost_more_and_more_time_up_to_a_limit() {
        assert_eq!(waits(FAR, 15), [0, 0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000],);
        assert!(waits(FAR, 200).iter().all(|wait_ms| *wait_ms <= 10_000));
    }

    #[test]
    fn this_machine_is_slowed_down_gently() {
        for near in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"] {
            let waits = waits(near, 200);
            assert!(waits[..20].iter().all(|wait_ms| *wait_ms == 0));
            assert_eq!((waits[21], waits[199]), (25, 100), "{near}");
        }
        let mut logins = FailedLogins::default();
        for number in 0..=20 {
            assert_eq!(guess(&mut logins, &format!("127.0.{number}.1"), b"a", 0), 0);
        }
        assert!(guess(&mut logins, "::1", b"a", 0) > 0, "its addresses are one");
    }

    /// Failed logins of an address from which `count` guesses have failed, at 0 ms.
    fn guessed(from: &str, user: &[u8], count: u32) -> FailedLogins {
        let mut logins = FailedLogins::default();
        (0..count).for_each(|_| _ = logins.failed(address(from), user, 0));
        logins
    }

    #[test]
    fn many_connections_guess_no_faster_than_one() {
        let mut logins = guessed(FAR, b"default", 20);
        assert_eq!(guess(&mut logins, FAR, b"default", 0), 10_000);
        assert_eq!(guess(&mut logins, FAR, b"default", 10_000), 0);
        assert_eq!(guess(&mut logins, FAR, b"default", 10_000), 10_000);
        assert_eq!(guess(&mut logins, FAR, b"other", 10_000), 10_000, "whatever the user");
        assert_eq!(guess(&mut logins, "192.0.2.2", b"default", 10_000), 0);
    }

    #[test]
    fn the_right_password_waits_for_one_turn_and_not_again() {
        let mut logins = guessed(FAR, b"default", 12);
        assert!(!logs_in(&mut logins, FAR, b"app", 6_399));
        assert!((0..1_000).all(|_| logs_in(&mut logins, FAR, b"app", 6_400)), "the attacker is gone");
        // The attacker goes on to guess, also the password of the user that has logged in.
        assert_eq!(guess(&mut logins, FAR, b"default", 6_400), 0);
        assert!(!logs_in(&mut logins, FAR, b"other", 6_400));
        assert!((0..1_000).all(|_| logs_in(&mut logins, FAR, b"app", 6_400)));
        assert_eq!(guess(&mut logins, FAR, b"app", 6_400), 0);
        assert_eq!(guess(&mut logins, FAR, b"app", 6_400), 10_000, "at the pace so far");
        assert!(!logs_in(&mut logins, FAR, b"app", 6_401) && logs_in(&mut logins, FAR, b"app", 16_401));
    }

    #[test]
    fn logins_do_not_speed_guesses_up() {
        let mut logins = guessed(FAR, b"default", 20);
        let mut guesses = 0;
        for now_ms in (0..100_000).step_by(10) {
            for user in (0..100_u8).map(|number| [number]) {
                logs_in(&mut logins, FAR, &user, now_ms);
            }
            logs_in(&mut logins, FAR, b"default", now_ms);
            guesses += u32::from(guess(&mut logins, FAR, b"default", now_ms) == 0);
        }
        assert!(guesses <= 10, "{guesses}");
    }

    /// A client that tries to log in, with the time of its next attempt.
    struct Login {
        waiter: Waiter,
        asks_at_ms: u64,
    }

    #[test]
    fn the_owner_gets_a_turn_though_many_strangers_of_the_address_came_first() {
        let mut logins = guessed(FAR, b"x", 20);
        let mut waiting = Vec::new();
        for id in 1..=230 {
            match logins.ask(login(FAR, b"x", id), 0) {
                Turn::Later { pause_ms } => {
                    waiting.push(Login { waiter: Waiter::Client(id), asks_at_ms: pause_ms })
                }
                turn => assert_eq!(turn, Turn::TooMany),
            }
        }
        assert_eq!(waiting.len(), WAITING_MAX);
        // Every second stranger has disconnected; the queue does not learn of that.
        let mut waiting: Vec<Login> = waiting.into_iter().step_by(2).collect();
        let (owner, mut turns) = (Waiter::Client(1_000), Vec::new());
        // The owner is turned away, and tries again every second, each time as a client without a place.
        waiting.push(Login { waiter: owner, asks_at_ms: 1 });
        while turns.iter().all(|(waiter, _)| *waiter != owner) {
            let next = (0..waiting.len()).min_by_key(|at| waiting[*at].asks_at_ms).expect("the owner waits");
            let Login { waiter, asks_at_ms: now_ms } = waiting[next];
            let login = LoginOf { address: address(FAR), user: b"x", waiter };
            match logins.attempt(login, waiter == owner, now_ms) {
                Turn::Now => {
                    turns.push((waiter, now_ms));
                    waiting.remove(next);
                    if waiter != owner {
                        logins.failed(address(FAR), b"x", now_ms);
                    }
                }
                Turn::Later { pause_ms } => waiting[next].asks_at_ms = now_ms + pause_ms,
                Turn::TooMany => waiting[next].asks_at_ms = now_ms + 1_000,
            }
        }
        assert!(turns.len() <= WAITING_MAX, "{turns:?}");
        assert!(
            turns.windows(2).all(|two| two[1].1 - two[0].1 >= 10_000),
            "no faster than before: {turns:?}"
        );
    }

    #[test]
    fn a_login_over_http_has_a_turn_among_clients_that_wait() {
        let mut logins = guessed(FAR, b"x", 20);
        let client = |number| login(FAR, b"x", number);
        let http = LoginOf { waiter: Waiter::Http(1), ..client(1) };
        assert_ne!(logins.ask(client(1), 9_500), Turn::Now);
        assert_ne!(logins.ask(http, 9_500), Turn::Now);
        assert_ne!(logins.ask(client(2), 9_500), Turn::Now);
        assert!(logins.is_turn(client(1), 10_000) && !logins.is_turn(http, 10_000));
        assert_eq!(logins.attempt(client(1), false, 10_000), Turn::Now);
        for now_ms in (10_500..20_000).step_by(500) {
            assert_ne!(logins.ask(http, now_ms), Turn::Now);
            assert_ne!(logins.ask(client(2), now_ms), Turn::Now);
        }
        assert_ne!(logins.attempt(client(2), false, 20_000), Turn::Now);
        assert_eq!(logins.attempt(http, false, 20_000), Turn::Now);
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let mut logins = FailedLogins::default();
        (0..20).for_each(|_| _ = logins.failed(address(FAR), b"a", 0));
        for number in 0..ADDRESSES_MAX as u32 + 100 {
            logins.failed(IpAddr::from(number.to_be_bytes()), b"a", u64::from(number));
        }
        assert_eq!(logins.len(), ADDRESSES_MAX);
        assert!(guess(&mut logins, FAR, b"a", 9_000) > 0, "addresses that failed once make no room of it");
        assert_eq!(guess(&mut logins, FAR, b"a", FORGOTTEN_AFTER_MS), 0);
        assert!(logs_in(&mut logins, FAR, b"a", 2 * FORGOTTEN_AFTER_MS));
        assert_eq!(logins.len(), ADDRESSES_MAX - 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut logins = FailedLogins::default();
        for host in 0..30 {
            logins.failed(address(&format!("2001:db8::{host}")), b"a", 0);
        }
        assert_eq!((logins.len(), guess(&mut logins, "2001:db8::ffff", b"a", 0)), (1, 10_000));
        assert_eq!(guess(&mut logins, "2001:db8:0:1::1", b"a", 0), 0);
    }

    #[test]
    fn lines_of_the_log_are_few() {
        let mut logins = FailedLogins::default();
        let line = |failures, unlogged| Some(FailedLoginLine { failures, unlogged });
        assert_eq!(logins.failed(address(FAR), b"a", 100_000), line(1, 0));
        assert_eq!(logins.failed(address(FAR), b"a", 100_000), None);
        assert_eq!(logins.failed(address("192.0.2.2"), b"a", 100_001), line(1, 1));
        let lines =
            (0..100).filter(|host| logins.failed(IpAddr::from([10, 0, 0, *host]), b"a", 100_002).is_some());
        assert_eq!(lines.count(), LINES_MAX as usize - 2);
        assert_eq!(logins.failed(address(FAR), b"a", 160_000), line(3, 92));
    }
}
