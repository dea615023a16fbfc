//! Failed logins by address: how long the next attempt from an address has to wait.
//!
//! ```text
//! ask -> wait, and ask again | look at the password, attempt -> failed | succeeded
//! ```
//!
//! A bounded table in memory, which belongs to a server and not to the data. It has no clock. It locks no
//! user: after the wait the right password is accepted, however many guesses have failed.
//!
//! Invariants
//! - The attempts of an address that wait take turns in the order in which they came, see [`LoginQueue`].
//! - Once failures are counted, the wait of the next attempt is set when an attempt begins, before its
//!   password is looked at.
//! - A success forgets the count of its own user alone.
//! - At most [`ADDRESSES_MAX`] addresses are known; the one that has failed longest ago is forgotten first.
//! - A [`FailedLoginLine`] has neither a name nor a password: people type passwords in the place of names.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use crate::login_queue::{LoginQueue, Pacing, Turn, Waiter};

/// The maximum number of addresses.
pub const ADDRESSES_MAX: usize = 4096;

/// The maximum number of counts for each address: one for each of the first users that fail, and one for
/// all others together.
const USERS_MAX: usize = 4;

/// The maximum bytes of a user's name that are compared: users with the same first bytes share a count.
const NAME_BYTES_MAX: usize = 64;

/// How long after its last failure an address counts as one that has never failed.
pub const FORGOTTEN_AFTER_MS: u64 = 10 * 60_000;

/// The period in which at most [`LINES_MAX`] lines are logged, and one about an address that stays known.
const LINES_PERIOD_MS: u64 = 60_000;

/// The maximum number of lines in a period.
const LINES_MAX: u32 = 10;

/// How attempts slow down: `free` failures cost nothing, the next one `first_ms`, each further one twice as
/// much, and none more than `max_ms`.
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

#[derive(Debug, Default)]
struct Entry {
    /// The count of each user; the count without a name is that of all other users.
    failures: Vec<(Option<Box<[u8]>>, u32)>,
    failed_ms: u64,
    next_ms: u64,
    logged_ms: Option<u64>,
    waiting: LoginQueue,
}

impl Entry {
    fn total(&self) -> u32 {
        self.failures.iter().fold(0, |total, (_, count)| total.saturating_add(*count))
    }

    fn count(&mut self, user: &[u8]) {
        let name = name_of(user);
        let count_of =
            |wanted: Option<&[u8]>| self.failures.iter().position(|(it, _)| it.as_deref() == wanted);
        match count_of(Some(name)).or_else(|| count_of(None)) {
            Some(at) => self.failures[at].1 = self.failures[at].1.saturating_add(1),
            // No user's success removes the count of all others.
            None if self.failures.len() == USERS_MAX - 1 => self.failures.push((None, 1)),
            None => self.failures.push((Some(name.into()), 1)),
        }
    }
}

fn name_of(user: &[u8]) -> &[u8] {
    &user[..user.len().min(NAME_BYTES_MAX)]
}

/// The address under which failures are counted: all addresses of one IPv6 network (/64) share one, because a
/// machine can use as many of them as it likes.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// What a line of the log says about failed logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLoginLine {
    /// The failures of this address that are not forgotten.
    pub failures: u32,
    /// The number of earlier failures, of all addresses, that no line has told of.
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

impl FailedLogins {
    /// Asks for the turn of an attempt.
    pub fn ask(&mut self, address: IpAddr, waiter: Waiter, now_ms: u64) -> Turn {
        let Some(pacing) = self.pacing(address, now_ms) else { return Turn::Now };
        let entry = self.entries.get_mut(&network_of(address));
        entry.map_or(Turn::Now, |entry| entry.waiting.ask(waiter, pacing, now_ms))
    }

    /// Whether an attempt would not have to wait. It gets no place.
    pub fn is_turn(&self, address: IpAddr, waiter: Waiter, now_ms: u64) -> bool {
        let entry = self.entries.get(&network_of(address));
        let waits = entry.zip(self.pacing(address, now_ms));
        waits.is_none_or(|(entry, pacing)| entry.waiting.is_turn(waiter, pacing, now_ms))
    }

    /// Begins an attempt, unless it has to wait.
    pub fn attempt(&mut self, address: IpAddr, waiter: Waiter, now_ms: u64) -> Turn {
        let turn = self.ask(address, waiter, now_ms);
        if turn != Turn::Now {
            return turn;
        }
        let network = network_of(address);
        let Some(entry) = self.entries.get_mut(&network) else { return Turn::Now };
        if now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS {
            self.entries.remove(&network);
        } else {
            entry.waiting.leave(waiter);
            entry.next_ms = now_ms + Pace::of(network).wait_ms(entry.total());
        }
        Turn::Now
    }

    /// How attempts of this address follow each other; `None`: none has to wait.
    fn pacing(&self, address: IpAddr, now_ms: u64) -> Option<Pacing> {
        let network = network_of(address);
        let entry = self.entries.get(&network)?;
        let step_ms = Pace::of(network).wait_ms(entry.total());
        let is_forgotten = now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS;
        // Even after a step back of the clock, a turn takes no longer than the wait for the failures.
        let next_in_ms = entry.next_ms.saturating_sub(now_ms).min(step_ms);
        (step_ms > 0 && !is_forgotten).then_some(Pacing { next_in_ms, step_ms })
    }

    /// An attempt has failed. Returns what is to be logged, if anything is.
    pub fn failed(&mut self, address: IpAddr, user: &[u8], now_ms: u64) -> Option<FailedLoginLine> {
        let network = network_of(address);
        if self.entries.len() >= ADDRESSES_MAX && !self.entries.contains_key(&network) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.failed_ms);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.entries.remove(&oldest);
            }
        }
        let entry = self.entries.entry(network).or_default();
        entry.count(user);
        entry.failed_ms = now_ms;
        entry.next_ms = now_ms + Pace::of(network).wait_ms(entry.total());
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
        Some(FailedLoginLine { failures: entry.total(), unlogged: std::mem::take(&mut self.unlogged) })
    }

    /// An attempt has succeeded.
    pub fn succeeded(&mut self, address: IpAddr, user: &[u8]) {
        let network = network_of(address);
        let Some(entry) = self.entries.get_mut(&network) else { return };
        entry.failures.retain(|(known, _)| known.as_deref() != Some(name_of(user)));
        if entry.failures.is_empty() {
            self.entries.remove(&network);
        }
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

    /// Milliseconds until the attempt of a lone client may be made; 0: it has begun.
    fn attempt(logins: &mut FailedLogins, from: &str, now_ms: u64) -> u64 {
        let (from, waiter) = (address(from), Waiter::Client(1));
        let begun = logins.attempt(from, waiter, now_ms);
        match begun {
            Turn::Now => 0,
            _ => logins.pacing(from, now_ms).map_or(0, |pacing| pacing.next_in_ms),
        }
    }

    /// Waits of so many attempts that fail, each made as soon as it may be.
    fn waits(from: &str, count: usize) -> Vec<u64> {
        let (mut logins, mut now_ms) = (FailedLogins::default(), 1_000);
        let mut waits = Vec::new();
        for _ in 0..count {
            let wait_ms = attempt(&mut logins, from, now_ms);
            now_ms += wait_ms;
            if wait_ms > 0 {
                assert_eq!(attempt(&mut logins, from, now_ms), 0, "after the wait");
            }
            logins.failed(address(from), b"default", now_ms);
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
        for near in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let waits = waits(near, 200);
            assert!(waits[..20].iter().all(|wait_ms| *wait_ms == 0));
            assert_eq!((waits[21], waits[199]), (25, 100), "{near}");
        }
    }

    #[test]
    fn many_connections_guess_no_faster_than_one() {
        let mut logins = FailedLogins::default();
        for _ in 0..20 {
            logins.failed(address(FAR), b"default", 0);
        }
        assert_eq!(attempt(&mut logins, FAR, 0), 10_000);
        assert_eq!(attempt(&mut logins, FAR, 10_000), 0);
        assert_eq!(attempt(&mut logins, FAR, 10_000), 10_000, "though nobody has failed since");
        assert_eq!(attempt(&mut logins, "192.0.2.2", 10_000), 0);
    }

    /// A client that logs in, as it looks from outside.
    struct Login {
        waiter: Waiter,
        asks_at_ms: u64,
    }

    #[test]
    fn the_owner_gets_a_turn_though_many_strangers_of_the_address_came_first() {
        let mut logins = FailedLogins::default();
        (0..20).for_each(|_| _ = logins.failed(address(FAR), b"x", 0));
        let mut waiting = Vec::new();
        for id in 1..=230 {
            let waiter = Waiter::Client(id);
            match logins.ask(address(FAR), waiter, 0) {
                Turn::Later { pause_ms } => waiting.push(Login { waiter, asks_at_ms: pause_ms }),
                turn => assert_eq!(turn, Turn::TooMany),
            }
        }
        assert_eq!(waiting.len(), WAITING_MAX);
        // Every second stranger is gone, and leaves no trace.
        let mut waiting: Vec<Login> = waiting.into_iter().step_by(2).collect();
        let (owner, mut turns) = (Waiter::Client(1_000), Vec::new());
        // The owner is turned away, and tries again every second, each time as another client would.
        waiting.push(Login { waiter: owner, asks_at_ms: 1 });
        while turns.iter().all(|(waiter, _)| *waiter != owner) {
            let next = (0..waiting.len()).min_by_key(|at| waiting[*at].asks_at_ms).expect("the owner waits");
            let Login { waiter, asks_at_ms: now_ms } = waiting[next];
            match logins.attempt(address(FAR), waiter, now_ms) {
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
        let mut logins = FailedLogins::default();
        (0..20).for_each(|_| _ = logins.failed(address(FAR), b"x", 0));
        let far = address(FAR);
        assert_ne!(logins.ask(far, Waiter::Client(1), 9_500), Turn::Now);
        assert_ne!(logins.ask(far, Waiter::Http(1), 9_500), Turn::Now);
        assert_ne!(logins.ask(far, Waiter::Client(2), 9_500), Turn::Now);
        assert!(
            logins.is_turn(far, Waiter::Client(1), 10_000) && !logins.is_turn(far, Waiter::Http(1), 10_000)
        );
        assert_eq!(logins.attempt(far, Waiter::Client(1), 10_000), Turn::Now);
        for now_ms in (10_500..20_000).step_by(500) {
            assert_ne!(logins.ask(far, Waiter::Http(1), now_ms), Turn::Now);
            assert_ne!(logins.ask(far, Waiter::Client(2), now_ms), Turn::Now);
        }
        assert_ne!(logins.attempt(far, Waiter::Client(2), 20_000), Turn::Now);
        assert_eq!(logins.attempt(far, Waiter::Http(1), 20_000), Turn::Now);
    }

    #[test]
    fn a_success_forgets_the_failures_of_its_user_alone() {
        let mut logins = FailedLogins::default();
        for _ in 0..10 {
            logins.failed(address(FAR), b"default", 0);
            logins.failed(address(FAR), b"own", 0);
            logins.succeeded(address(FAR), b"own");
        }
        assert_eq!(attempt(&mut logins, FAR, 0), 1600);
        logins.succeeded(address(FAR), b"default");
        assert!(logins.is_empty());
        for user in 0..100_u8 {
            logins.failed(address(FAR), &[user + 1], 0);
            logins.succeeded(address(FAR), b"");
        }
        (1..=100).for_each(|user| logins.succeeded(address(FAR), &[user]));
        assert!(attempt(&mut logins, FAR, 0) > 0, "names beyond the first few are not told apart");
    }

    #[test]
    fn after_a_success_the_other_users_still_share_one_count() {
        let mut entry = Entry::default();
        [b"a", b"b", b"c", b"d"].iter().for_each(|user| entry.count(*user));
        entry.failures.retain(|(user, _)| user.as_deref() != Some(b"b"));
        [b"d", b"e", b"a"].iter().for_each(|user| entry.count(*user));
        let named = |name: &[u8], count| (Some(name.into()), count);
        assert_eq!(entry.failures, [named(b"a", 2), named(b"c", 1), (None, 3)]);
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let mut logins = FailedLogins::default();
        for number in 0..ADDRESSES_MAX as u32 + 100 {
            logins.failed(IpAddr::from(number.to_be_bytes()), b"a", u64::from(number));
        }
        assert_eq!(logins.len(), ADDRESSES_MAX);
        (0..20).for_each(|_| _ = logins.failed(address(FAR), b"a", 10_000));
        assert!(attempt(&mut logins, FAR, 10_000) > 0);
        assert_eq!(attempt(&mut logins, FAR, 10_000 + FORGOTTEN_AFTER_MS), 0);
        assert_eq!(logins.len(), ADDRESSES_MAX - 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut logins = FailedLogins::default();
        for host in 0..30 {
            logins.failed(address(&format!("2001:db8::{host}")), b"a", 0);
        }
        assert_eq!((logins.len(), attempt(&mut logins, "2001:db8::ffff", 0)), (1, 10_000));
        assert_eq!(attempt(&mut logins, "2001:db8:0:1::1", 0), 0);
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
