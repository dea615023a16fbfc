//! Checks the messages of a subscriber: each one exactly once, in the order of its publisher.
//!
//! For one subscription it tracks the next number of each publisher. It knows no protocol, only numbers,
//! which count the messages of one publisher to one channel from 0.
//!
//! Invariants
//! - Messages published after the subscription was confirmed, and confirmed to their publisher before its end
//!   was requested, are owed. Earlier and later ones may arrive, but without a gap.

use std::{fmt, ops::Range};

/// Set until the first message of a publisher arrives; the other bits are the first number that is owed.
const UNSEEN: u64 = 1 << 63;
/// Maximum number of gaps remembered, to tell late messages from duplicates.
const HOLES_MAX: usize = 10_000;

/// Numbers of faulty messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Never received.
    pub lost: u64,
    /// Received more than once.
    pub duplicated: u64,
    /// Received after a later one.
    pub reordered: u64,
    /// Received without a subscription, or never sent.
    pub stray: u64,
}

impl Faults {
    /// Whether there are no faults.
    pub fn is_none(&self) -> bool {
        *self == Faults::default()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { lost, duplicated, reordered, stray } = self;
        write!(f, "{lost} lost, {duplicated} duplicated, {reordered} out of order, {stray} stray")
    }
}

/// The state of one subscription.
#[derive(Debug)]
pub struct Subscription {
    /// By publisher: the next number, with [`UNSEEN`].
    next: Vec<u64>,
    holes: Vec<(usize, Range<u64>)>,
}

impl Subscription {
    /// A newly confirmed subscription; `sent` are the numbers of messages that each publisher has sent to the
    /// channel.
    pub fn confirmed(sent: &[u64]) -> Subscription {
        Subscription { next: sent.iter().map(|sent| sent | UNSEEN).collect(), holes: Vec::new() }
    }

    /// Checks a received message.
    #[inline]
    pub fn receive(&mut self, publisher: usize, number: u64, faults: &mut Faults) {
        match self.next.get_mut(publisher) {
            Some(next) if *next == number => *next += 1,
            Some(_) => self.receive_unexpected(publisher, number, faults),
            None => faults.stray += 1,
        }
    }

    #[cold]
    fn receive_unexpected(&mut self, publisher: usize, number: u64, faults: &mut Faults) {
        let (is_first, next) = (self.next[publisher] & UNSEEN != 0, self.next[publisher] & !UNSEEN);
        if is_first && number <= next {
            self.next[publisher] = number + 1;
        } else if number >= next {
            faults.lost += number - next;
            self.next[publisher] = number + 1;
            if self.holes.len() < HOLES_MAX {
                self.holes.push((publisher, next..number));
            }
        } else if self.fill(publisher, number) {
            faults.lost -= 1;
            faults.reordered += 1;
        } else {
            faults.duplicated += 1;
        }
    }

    /// Removes a late message from its gap; returns whether it was in one.
    fn fill(&mut self, publisher: usize, number: u64) -> bool {
        let is_in = |(of, hole): &(usize, Range<u64>)| *of == publisher && hole.contains(&number);
        let Some(position) = self.holes.iter().position(is_in) else { return false };
        let (_, hole) = self.holes.swap_remove(position);
        let parts = [hole.start..number, number + 1..hole.end];
        self.holes.extend(parts.into_iter().filter(|part| !part.is_empty()).map(|part| (publisher, part)));
        true
    }

    /// Whether all messages up to `owed` (by publisher), or later ones, were received.
    pub fn has_all(&self, owed: &[u64]) -> bool {
        self.next.iter().zip(owed).all(|(next, owed)| next & !UNSEEN >= *owed)
    }

    /// Ends the subscription; `owed` are the numbers of messages that were confirmed to each publisher before
    /// the end was requested.
    pub fn end(&self, owed: &[u64], faults: &mut Faults) {
        for (next, owed) in self.next.iter().zip(owed) {
            faults.lost += owed.saturating_sub(next & !UNSEEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Faults = Faults { lost: 0, duplicated: 0, reordered: 0, stray: 0 };

    /// The faults of one publisher's messages: `sent` were sent before the confirmation, `owed` before the
    /// end.
    fn judge(sent: u64, received: &[u64], owed: u64) -> Faults {
        let mut faults = Faults::default();
        let mut subscription = Subscription::confirmed(&[sent]);
        received.iter().for_each(|number| subscription.receive(0, *number, &mut faults));
        subscription.end(&[owed], &mut faults);
        faults
    }

    #[test]
    fn all_in_order_is_no_fault() {
        assert_eq!(judge(0, &[0, 1, 2], 3), NONE);
        assert_eq!(judge(0, &[], 0), NONE);
        assert_eq!(judge(0, &[0, 1, 2], 1), NONE, "more than is owed may come");
    }

    #[test]
    fn a_gap_counts_as_lost_messages() {
        assert_eq!(judge(0, &[1, 2], 3), Faults { lost: 1, ..NONE }, "at the beginning");
        assert_eq!(judge(0, &[0, 3, 4], 5), Faults { lost: 2, ..NONE }, "in the middle");
        assert_eq!(judge(0, &[0, 1], 4), Faults { lost: 2, ..NONE }, "at the end");
        assert_eq!(judge(0, &[], 4), Faults { lost: 4, ..NONE }, "all");
    }

    #[test]
    fn a_repeated_message_counts_as_duplicated() {
        assert_eq!(judge(0, &[0, 0, 1], 2), Faults { duplicated: 1, ..NONE });
        assert_eq!(judge(0, &[0, 1, 2, 1, 2], 3), Faults { duplicated: 2, ..NONE });
    }

    #[test]
    fn a_late_message_counts_as_reordered_not_as_lost() {
        assert_eq!(judge(0, &[0, 2, 1, 3], 4), Faults { reordered: 1, ..NONE });
        assert_eq!(judge(0, &[3, 1, 0, 2], 4), Faults { reordered: 3, ..NONE });
        assert_eq!(judge(0, &[2, 1, 1], 3), Faults { lost: 1, duplicated: 1, reordered: 1, ..NONE });
    }

    #[test]
    fn messages_before_the_confirmation_may_arrive_without_gaps() {
        assert_eq!(judge(5, &[5, 6], 7), NONE);
        assert_eq!(judge(5, &[3, 4, 5], 6), NONE);
        assert_eq!(judge(5, &[3, 5], 6), Faults { lost: 1, ..NONE });
        assert_eq!(judge(5, &[6], 7), Faults { lost: 1, ..NONE }, "what is published after it is owed");
        assert_eq!(judge(5, &[], 5), NONE, "nothing was owed");
        assert_eq!(judge(5, &[], 6), Faults { lost: 1, ..NONE });
    }

    #[test]
    fn publishers_are_told_apart() {
        let mut faults = Faults::default();
        let mut subscription = Subscription::confirmed(&[0, 0]);
        for (publisher, number) in [(0, 0), (1, 0), (1, 1), (0, 1), (1, 3)] {
            subscription.receive(publisher, number, &mut faults);
        }
        assert_eq!(faults, Faults { lost: 1, ..NONE });
        subscription.receive(0, 2, &mut faults);
        assert!(subscription.has_all(&[3, 4]) && !subscription.has_all(&[4, 4]));
        subscription.receive(2, 0, &mut faults);
        assert_eq!(faults, Faults { lost: 1, stray: 1, ..NONE }, "there is no such publisher");
    }
}
