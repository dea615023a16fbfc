//! The lease of a leader: the time before which no other leader can have been elected.
//!
//! Every message carries the time of its sender, and answers repeat that time. Assume that a voter answers a
//! heartbeat that was sent at time t of the leader's clock. For one election timeout after it received the
//! heartbeat, which was not before t, the voter votes for nobody; only the leader can release the voter
//! ([`Lease::release`]). The clocks of two servers need not agree, but their speeds must not differ by more
//! than a tenth.

use std::collections::BTreeMap;

use crate::{ELECTION_TICKS, MemberId, TICK_US};

/// How long an answered heartbeat protects the leader: the election timeout, minus one tick, because the
/// timeout is counted in ticks. Of the rest, nine tenths count, because the clocks differ in speed.
pub(crate) const LEASE_US: u64 = (ELECTION_TICKS as u64 - 1) * TICK_US * 9 / 10;
/// How long the release of a voter from the lease lasts. It counts from the sending time of a message of the
/// voter, which the release repeats.
pub(crate) const RELEASE_US: u64 = 1_000_000;

/// The lease of this leader in its term, computed from the answers to its heartbeats.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// For each member, when the newest heartbeat that it has answered was sent.
    answered: BTreeMap<MemberId, u64>,
    /// The time until which a released voter may elect the candidate of a transfer, so that there is no
    /// lease.
    void_until_us: u64,
}

impl Lease {
    /// Notes that a member has answered a heartbeat that was sent at `sent_us`.
    pub(crate) fn note(&mut self, member: MemberId, sent_us: u64) {
        let newest = self.answered.entry(member).or_default();
        *newest = (*newest).max(sent_us);
    }

    /// Ends the lease, because the voters are released from it for a transfer.
    pub(crate) fn release(&mut self, now_us: u64) {
        self.void_until_us = now_us + RELEASE_US / 9 * 10;
    }

    /// The time up to which the lease of the member `own` holds among these voters: `u64::MAX` if it is the
    /// only voter, 0 if there is no lease.
    pub(crate) fn until_us(&self, own: MemberId, voters: &[MemberId], now_us: u64) -> u64 {
        if now_us < self.void_until_us || !voters.contains(&own) {
            return 0;
        }
        if voters.len() == 1 {
            return u64::MAX;
        }
        let of = |voter: &MemberId| match *voter == own {
            true => now_us,
            // An answer to a message from before `void_until_us` does not count, because the voter was
            // released from its promise.
            false => {
                self.answered.get(voter).copied().filter(|&at_us| at_us >= self.void_until_us).unwrap_or(0)
            }
        };
        let mut times: Vec<u64> = voters.iter().map(of).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        match times[voters.len() / 2] {
            0 => 0,
            sent_us => sent_us + LEASE_US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> MemberId {
        MemberId::new(number).expect("not 0")
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_the_heartbeat_that_a_majority_has_answered() {
        let (mut lease, three) = (Lease::default(), [id(1), id(2), id(3)]);
        assert_eq!(lease.until_us(id(1), &three, 50), 0, "nobody has answered");
        lease.note(id(2), 10);
        lease.note(id(2), 7);
        assert_eq!(lease.until_us(id(1), &three, 50), 10 + LEASE_US);
        lease.note(id(3), 30);
        assert_eq!(lease.until_us(id(1), &three, 50), 30 + LEASE_US);
        let five = [id(1), id(2), id(3), id(4), id(5)];
        assert_eq!(lease.until_us(id(1), &five, 50), 10 + LEASE_US);
        assert_eq!(lease.until_us(id(1), &[id(1), id(4), id(5)], 50), 0);
        assert_eq!(lease.until_us(id(9), &three, 50), 0, "not a voter");
        assert_eq!(lease.until_us(id(1), &[id(1)], 50), u64::MAX);
    }

    #[test]
    fn a_transfer_voids_the_lease_until_every_release_is_void() {
        let (mut lease, two) = (Lease::default(), [id(1), id(2)]);
        lease.release(100);
        lease.note(id(2), 200);
        let void_until_us = 100 + RELEASE_US / 9 * 10;
        assert_eq!(lease.until_us(id(1), &two, void_until_us - 1), 0);
        assert_eq!(lease.until_us(id(1), &two, void_until_us), 0, "it was released from its answer");
        lease.note(id(2), void_until_us);
        assert_eq!(lease.until_us(id(1), &two, void_until_us), void_until_us + LEASE_US);
    }

    #[test]
    fn two_of_two_are_a_majority() {
        let mut lease = Lease::default();
        assert_eq!(lease.until_us(id(1), &[id(1), id(2)], 5), 0);
        lease.note(id(2), 3);
        assert_eq!(lease.until_us(id(1), &[id(1), id(2)], 5), 3 + LEASE_US);
    }
}
