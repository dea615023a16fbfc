//! How a replica finds where its log parts from the leader's: it names the ends of its last batches, newest first, until the
//! leader knows one of them.
//!
//! Batch after batch rather than by bisection: what has to be cut is what a leader wrote that nobody took over, a few batches
//! as a rule, and from behind they are found one by one anyway.

use lsn::Lsn;

use super::{History, Mark};

/// Ends that are named at once.
pub const MARKS_MAX: usize = 256;

/// The type of the next value, without consuming it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probed {
    /// The leader is to be asked about these.
    Ask(Vec<Mark>),
    /// The logs are the same up to here; the rest is to be cut.
    Common(Lsn),
    /// Nothing that is kept here is known there: everything must be copied.
    Nothing,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Everything that ends at or behind this is known to differ, or is the end of the log here.
    next: Lsn,
    has_asked: bool,
    /// What lies before is not kept here.
    is_at_start: bool,
}

impl Probe {
    /// Of a log that ends at `end`.
    pub fn new(end: Lsn) -> Probe {
        Probe { next: end, has_asked: false, is_at_start: false }
    }

    /// What to do after the leader has answered, with the newest end that it knows; `None` before the first question as well.
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
