//! Failed logins by address: how long the next attempt from an address has to wait.
//!
//! ```text
//! attempt -> wait, and attempt again | look at the password -> failed | succeeded
//! ```
//!
//! A bounded table in memory, which belongs to a server and not to the data. It has no clock. It locks no
//! user: after the wait the right password is accepted, however many guesses have failed.
//!
//! Invariants
//! - The wait of the next attempt is set before an attempt learns whether its password is right. So an
//!   address with many connections guesses no faster than with one.
//! - A success forgets the failures of its own user alone. So the owner of one user cannot guess the password
//!   of another one without waiting.
//! - At most [`ADDRESSES_MAX`] addresses are known; the one that has failed longest ago is forgotten first.
//! - No name and no password is in a line of the log: people type passwords in the place of names.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

/// The maximum number of addresses.
pub const ADDRESSES_MAX: usize = 4096;

/// The maximum number of counts for each address: one for each of the first users that fail, and one for
/// all others together.
const USERS_MAX: usize = 4;

/// The maximum bytes of a user's name that are compared: users with the same first bytes share a count.
const NAME_BYTES_MAX: usize = 64;

/// How long after its last failure an address counts as one that has never failed.
pub const FORGOTTEN_AFTER_MS: u64 = 10 * 60_000;

/// The period in which at most one line about an address is logged, and at most [`LINES_MAX`] about all.
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
    /// Begins an attempt, unless it has to wait.
    ///
    /// # Errors
    /// Milliseconds to wait before the next try.
    pub fn attempt(&mut self, address: IpAddr, now_ms: u64) -> Result<(), u64> {
        match self.wait_ms(address, now_ms) {
            0 => {}
            wait_ms => return Err(wait_ms),
        }
        let network = network_of(address);
        let Some(entry) = self.entries.get_mut(&network) else { return Ok(()) };
        if now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS {
            self.entries.remove(&network);
        } else {
            entry.next_ms = now_ms + Pace::of(network).wait_ms(entry.total());
        }
        Ok(())
    }

    /// Milliseconds that an attempt from this address would have to wait now.
    pub fn wait_ms(&self, address: IpAddr, now_ms: u64) -> u64 {
        let network = network_of(address);
        let Some(entry) = self.entries.get(&network) else { return 0 };
        if now_ms.saturating_sub(entry.failed_ms) >= FORGOTTEN_AFTER_MS {
            return 0;
        }
        // Even after a step back of the clock, nobody waits longer than the wait for its failures.
        entry.next_ms.saturating_sub(now_ms).min(Pace::of(network).wait_ms(entry.total()))
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

    const FAR: &str = "192.0.2.1";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Waits of so many attempts that fail, each made as soon as it may be.
    fn waits(from: &str, count: usize) -> Vec<u64> {
        let (mut logins, mut now_ms) = (FailedLogins::default(), 1_000);
        let mut waits = Vec::new();
        for _ in 0..count {
            let wait_ms = logins.attempt(address(from), now_ms).err().unwrap_or(0);
            now_ms += wait_ms;
            if wait_ms > 0 {
                assert_eq!(logins.attempt(address(from), now_ms), Ok(()), "after the wait");
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
        assert_eq!(logins.attempt(address(FAR), 0), Err(10_000));
        assert_eq!(logins.attempt(address(FAR), 10_000), Ok(()));
        assert_eq!(logins.attempt(address(FAR), 10_000), Err(10_000), "though nobody has failed since");
        assert_eq!(logins.attempt(address("192.0.2.2"), 10_000), Ok(()));
    }

    #[test]
    fn a_success_forgets_the_failures_of_its_user_alone() {
        let mut logins = FailedLogins::default();
        for _ in 0..10 {
            logins.failed(address(FAR), b"default", 0);
            logins.failed(address(FAR), b"own", 0);
            logins.succeeded(address(FAR), b"own");
        }
        assert_eq!(logins.attempt(address(FAR), 0), Err(1600));
        logins.succeeded(address(FAR), b"default");
        assert!(logins.is_empty());
        for user in 0..100_u8 {
            logins.failed(address(FAR), &[user + 1], 0);
            logins.succeeded(address(FAR), b"");
        }
        (1..=100).for_each(|user| logins.succeeded(address(FAR), &[user]));
        assert!(logins.attempt(address(FAR), 0).is_err(), "names beyond the first few are not told apart");
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
        assert!(logins.attempt(address(FAR), 10_000).is_err());
        assert_eq!(logins.attempt(address(FAR), 10_000 + FORGOTTEN_AFTER_MS), Ok(()));
        assert_eq!(logins.len(), ADDRESSES_MAX - 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut logins = FailedLogins::default();
        for host in 0..30 {
            logins.failed(address(&format!("2001:db8::{host}")), b"a", 0);
        }
        assert_eq!((logins.len(), logins.attempt(address("2001:db8::ffff"), 0)), (1, Err(10_000)));
        assert_eq!(logins.attempt(address("2001:db8:0:1::1"), 0), Ok(()));
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
