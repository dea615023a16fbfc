//! The replica's search for the last position at which its log equals the leader's: it names the ends of its
//! last batches, newest first, until the leader has one of them.
//!
//! The search goes batch by batch instead of bisecting. The tail to cut is usually a few batches of an old
//! leader that the new leader has not received, and batches are found only one by one from the end anyway.

use lsn::Lsn;

use super::{History, Mark};

/// The maximum number of marks per request.
pub const MARKS_MAX: usize = 256;

/// The next step of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probed {
    /// Ask the leader about these marks.
    Ask(Vec<Mark>),
    /// The logs are equal up to this position; cut the rest.
    Common(Lsn),
    /// The leader has none of the kept batches: everything must be copied.
    Nothing,
}

/// A search in progress.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The end of the next batch to name; all later ends have been named.
    next: Lsn,
    has_asked: bool,
    /// Earlier batches are not kept here.
    is_at_start: bool,
}

impl Probe {
    /// A search in a log that ends at `end`.
    pub fn new(end: Lsn) -> Probe {
        Probe { next: end, has_asked: false, is_at_start: false }
    }

    /// The next step. `answer`: the newest mark of the last request that the leader has; `None` if it has
    /// none of them, or before the first request.
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
