//! Limits lines of the server's log that would repeat as long as their cause lasts. Each line is logged once.
//! While it is remembered, it is logged again at most once in [`PERIOD_MS`], with the number of lines that
//! were left out.
//!
//! Invariants
//! - At most [`KEPT_MAX`] messages are remembered, however many reasons a peer invents.

/// The shortest time between two equal lines, as long as the message is remembered.
const PERIOD_MS: u64 = 60_000;
/// The maximum number of remembered messages; for a further one, the oldest is forgotten.
const KEPT_MAX: usize = 16;

/// The messages logged lately.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    /// The remembered messages, in the order in which they were last logged.
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    text: String,
    logged_ms: u64,
    unlogged: u64,
}

impl Repeated {
    /// Notes that a message has occurred. If the message must be logged now, returns how often it was
    /// suppressed since it was last logged.
    pub(crate) fn note(&mut self, text: &str, now_ms: u64) -> Option<u64> {
        let mut unlogged = 0;
        if let Some(index) = self.kept.iter().position(|kept| kept.text == text) {
            let kept = &mut self.kept[index];
            if now_ms < kept.logged_ms + PERIOD_MS {
                kept.unlogged += 1;
                return None;
            }
            unlogged = self.kept.remove(index).unlogged;
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(Kept { text: text.into(), logged_ms: now_ms, unlogged: 0 });
        Some(unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_repeats_is_logged_once_in_a_period_with_a_count() {
        let mut repeated = Repeated::default();
        assert_eq!(repeated.note("a", 5), Some(0));
        assert_eq!((repeated.note("a", 6), repeated.note("b", 6)), (None, Some(0)));
        assert_eq!(repeated.note("a", 4 + PERIOD_MS), None, "alternating messages are no news either");
        assert_eq!(repeated.note("a", 5 + PERIOD_MS), Some(2));
        assert_eq!(repeated.note("a", 5 + 2 * PERIOD_MS), Some(0));
    }

    #[test]
    fn at_most_kept_max_messages_are_remembered() {
        let mut repeated = Repeated::default();
        for number in 0..10 * KEPT_MAX {
            assert_eq!(repeated.note(&number.to_string(), 1), Some(0));
        }
        assert_eq!(repeated.kept.len(), KEPT_MAX);
    }
}
