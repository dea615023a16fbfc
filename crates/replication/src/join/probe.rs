//! The search for the common position of two logs: the replica sends the ends of its last batches, newest
//! first, until the leader knows one of them.
//!
//! Linear rather than by bisection: the tail to be cut was written by a leader before anyone replicated it,
//! usually a few batches, and walking a log backwards finds batch ends one by one anyway.

use lsn::Lsn;

use super::{History, Mark};

/// The most batch ends in one question.
pub const MARKS_MAX: usize = 256;

/// The next step of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probed {
    /// Ask the leader about these.
    Ask(Vec<Mark>),
    /// The logs are equal up to here; cut the rest.
    Common(Lsn),
    /// The leader knows none of the batches kept here: a full sync is needed.
    Nothing,
}

/// The state of the search.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The end of the next batch to ask about; the batches after it are known to differ.
    next: Lsn,
    has_asked: bool,
    /// Earlier batches are not kept here.
    is_at_start: bool,
}

impl Probe {
    /// Starts the search in a log that ends at `end`.
    pub fn new(end: Lsn) -> Probe {
        Probe { next: end, has_asked: false, is_at_start: false }
    }

    /// The next step, given the leader's answer to the last question: the newest end that it knows, or
    /// `None`. The answer is `None` before the first question as well.
    ///
    /// # Errors
    /// If the log here cannot be read.
    pub fn next<H: History>(&mut self, answer: Option<Lsn>, history: &H) -> Result<Probed, H::Error> {
        if let Some(common) = answer.filter(|_| self.has_asked) {
            return Ok(Probed::Common(common));
        }
        let mut marks = Vec::new();
        while marks.len() < MARKS_MAX
            && !self.is_at_start
            && let Some(batch) = history.batch_ending_at(self.next)?
        {
            marks.push(Mark { end: self.next, chain: batch.chain });
            self.is_at_start = batch.start >= self.next;
            self.next = batch.start;
        }
        self.has_asked = true;
        Ok(if marks.is_empty() { Probed::Nothing } else { Probed::Ask(marks) })
    }
}
