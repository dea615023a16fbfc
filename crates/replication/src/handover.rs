//! A planned hand-over: writes have ended at this leader, and one replica is to lead without any loss.
//!
//! ```text
//! writes end, the log is closed -> Wait until the replica has it -> Promote -> told to lead -> follow it
//!        '---------------- GiveUp: timeout or abort; writes resume ----------------------'
//! ```
//!
//! What it is: when the replica may be promoted.
//! What it is not: the end of writes, or the connection to the replica.
//!
//! Invariants
//! - The replica is promoted only when it has the whole log, unless the loss of the rest is allowed
//!   ([`Handover::new`], `force`). A snapshot may append an empty batch meanwhile: the end is looked at in
//!   each step.
//! - Once the replica may have been told to lead, this server never resumes writes by itself: two leaders are
//!   worse than none.

use lsn::Lsn;

/// The next action of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverStep {
    /// The replica lacks a part of the log.
    Wait,
    /// The replica may be told to lead.
    Promote,
    /// This server goes on leading.
    GiveUp(GaveUp),
}

/// Why a hand-over has ended before the replica was told to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// The operator has aborted it.
    #[error("it was aborted")]
    Aborted,
    /// The time is over.
    #[error("the replica did not have everything in time")]
    TimedOut,
}

/// The rules of one hand-over.
#[derive(Debug, Clone, Copy)]
pub struct Handover {
    until_ms: Option<u64>,
    force: bool,
}

impl Handover {
    /// At `until_ms` (`None`: never) it gives up or, with `force`, promotes the replica as it is.
    pub fn new(until_ms: Option<u64>, force: bool) -> Handover {
        Handover { until_ms, force }
    }

    /// Decides, for a log that ends at `end` and a replica whose log is durable up to `flushed`; `None`: it
    /// is not connected.
    pub fn step(&self, now_ms: u64, end: Lsn, flushed: Option<Lsn>, is_aborted: bool) -> HandoverStep {
        if is_aborted {
            return HandoverStep::GiveUp(GaveUp::Aborted);
        }
        if flushed.is_some_and(|flushed| flushed >= end) {
            return HandoverStep::Promote;
        }
        match self.until_ms {
            Some(until_ms) if now_ms >= until_ms && self.force => HandoverStep::Promote,
            Some(until_ms) if now_ms >= until_ms => HandoverStep::GiveUp(GaveUp::TimedOut),
            _ => HandoverStep::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Lsn = Lsn::new(4096);

    #[test]
    fn a_replica_leads_when_it_has_everything_and_by_force_when_the_time_is_over() {
        let step = |force, now_ms, flushed: Option<u64>| {
            Handover::new(Some(100), force).step(now_ms, END, flushed.map(Lsn::new), false)
        };
        for force in [false, true] {
            assert_eq!(step(force, 99, Some(4095)), HandoverStep::Wait);
            assert_eq!(step(force, 99, None), HandoverStep::Wait);
            assert_eq!(step(force, 99, Some(4096)), HandoverStep::Promote);
            assert_eq!(step(force, 100, Some(4096)), HandoverStep::Promote, "it has everything after all");
        }
        assert_eq!(step(false, 100, Some(4095)), HandoverStep::GiveUp(GaveUp::TimedOut));
        assert_eq!(step(true, 100, None), HandoverStep::Promote);
        let endless = Handover::new(None, true);
        assert_eq!(endless.step(u64::MAX, END, None, false), HandoverStep::Wait);
        let aborted = HandoverStep::GiveUp(GaveUp::Aborted);
        assert_eq!(endless.step(0, END, Some(Lsn::MAX), true), aborted, "an abort comes first");
    }
}
