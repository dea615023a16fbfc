//! Whether a subscriber gets what it must: every message once, in the order of its publisher.
//!
//! What it is: for one subscription the next number of each publisher. What it is not: part of any protocol: it knows numbers
//! only, which count the messages of one publisher to one channel from 0.
//!
//! Invariants
//! - What was published after the subscription was confirmed, and confirmed to its publisher before the subscription ends, is
//!   owed. What comes before or after that may come, but without a hole.

use std::{fmt, ops::Range};

/// Set while nothing of a publisher has come; the other bits are the first number that is owed.
const UNSEEN: u64 = 1 << 63;
/// Holes that are remembered, to tell a message that comes late from one that comes twice.
const HOLES_MAX: usize = 10_000;

/// What went wrong, in messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// They never came.
    pub lost: u64,
    /// They came again.
    pub duplicated: u64,
    /// They came behind a later one.
    pub reordered: u64,
    /// They came to somebody who had not subscribed, or are none that were sent.
    pub stray: u64,
}

impl Faults {
    /// Whether nothing went wrong.
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

/// See the module documentation.
#[derive(Debug)]
pub struct Subscription {
    /// By publisher: what comes next.
    next: Vec<u64>,
    holes: Vec<(usize, Range<u64>)>,
}

impl Subscription {
    /// A subscription that has just been confirmed: `sent` says how many messages each publisher has sent to the channel.
    pub fn confirmed(sent: &[u64]) -> Subscription {
        Subscription { next: sent.iter().map(|sent| sent | UNSEEN).collect(), holes: Vec::new() }
    }

    /// A message has come.
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

    /// A message that has come late is no longer in a hole; returns whether it was.
    fn fill(&mut self, publisher: usize, number: u64) -> bool {
        let is_in = |(of, hole): &(usize, Range<u64>)| *of == publisher && hole.contains(&number);
        let Some(position) = self.holes.iter().position(is_in) else { return false };
        let (_, hole) = self.holes.swap_remove(position);
        let parts = [hole.start..number, number + 1..hole.end];
        self.holes.extend(parts.into_iter().filter(|part| !part.is_empty()).map(|part| (publisher, part)));
        true
    }

    /// Whether everything up to `owed` (by publisher) has come, or something later.
    pub fn has_all(&self, owed: &[u64]) -> bool {
        self.next.iter().zip(owed).all(|(next, owed)| next & !UNSEEN >= *owed)
    }

    /// The subscription has ended: `owed` is how many messages of each publisher were confirmed to it before that was asked for.
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

    /// The faults of one publisher's messages, of which `sent` were sent before the confirmation and `owed` before the end.
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
    fn what_is_missing_is_lost() {
        assert_eq!(judge(0, &[1, 2], 3), Faults { lost: 1, ..NONE }, "at the beginning");
        assert_eq!(judge(0, &[0, 3, 4], 5), Faults { lost: 2, ..NONE }, "in the middle");
        assert_eq!(judge(0, &[0, 1], 4), Faults { lost: 2, ..NONE }, "at the end");
        assert_eq!(judge(0, &[], 4), Faults { lost: 4, ..NONE }, "all");
    }

    #[test]
    fn what_comes_again_is_duplicated() {
        assert_eq!(judge(0, &[0, 0, 1], 2), Faults { duplicated: 1, ..NONE });
        assert_eq!(judge(0, &[0, 1, 2, 1, 2], 3), Faults { duplicated: 2, ..NONE });
    }

    #[test]
    fn what_comes_late_is_reordered_and_then_not_lost() {
        assert_eq!(judge(0, &[0, 2, 1, 3], 4), Faults { reordered: 1, ..NONE });
        assert_eq!(judge(0, &[3, 1, 0, 2], 4), Faults { reordered: 3, ..NONE });
        assert_eq!(judge(0, &[2, 1, 1], 3), Faults { lost: 1, duplicated: 1, reordered: 1, ..NONE });
    }

    #[test]
    fn what_was_sent_before_the_confirmation_may_come_but_without_a_hole() {
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
