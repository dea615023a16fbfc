//! A planned hand-over: writes have ended at this leader, and one replica is to lead without any loss.
//!
//! ```text
//! writes end, the log is closed -> Wait until the replica has it -> Promote -> told to lead -> follow it
//!        '------ GiveUp: timeout, abort or fencing; writes resume, unless fenced ---------'
//! ```
//!
//! What it is: the decision when the replica may be promoted.
//! What it is not: the end of writes, or the connection to the replica.
//!
//! Invariants
//! - The replica is promoted only when it has the whole log, unless the loss of the rest is allowed
//!   ([`Handover::new`], `force`). A copy of the data that begins meanwhile may append an empty batch, so the
//!   end of the log is looked at in each step.
//! - Without `force`, the replica is promoted only when it has applied everything committed, so that nothing
//!   delays it once it is told to lead. A script on the replica may hold up its applier, and after the
//!   promotion command this server cannot give up any more.
//! - Once the replica may have been told to lead, this server resumes writes by itself only if the replica
//!   certainly has not led, and will not lead because of that command. Two leaders are worse than none.

use lsn::Lsn;

use crate::{
    Acked, ProcessId, ReplicaId,
    join::{Claim, Decision},
};

/// The next action of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverStep {
    /// The replica is not connected, lacks a part of the log, or has not applied everything committed.
    Wait,
    /// The replica may be told to lead.
    Promote,
    /// The hand-over has ended: this server goes on leading, unless it was fenced.
    GiveUp(GaveUp),
}

/// Why a hand-over has ended before the replica was told to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// The operator has aborted it.
    #[error("it was aborted")]
    Aborted,
    /// Another server leads in a higher epoch: writes do not resume.
    #[error("another server leads already")]
    Fenced,
    /// The time is over, and the replica lacks a part of the log, or is not connected.
    #[error("the replica did not have everything in time")]
    TimedOut,
    /// The time is over, and the replica has everything on disk, but not in memory.
    #[error("the replica has everything, but did not apply it in time: a script there may hold it up")]
    NotApplied,
}

/// The ends of the log of the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The end of everything appended.
    pub appended: Lsn,
    /// The end of everything committed.
    pub committed: Lsn,
}

/// The rules of one hand-over.
#[derive(Debug, Clone, Copy)]
pub struct Handover {
    until_ms: Option<u64>,
    force: bool,
}

impl Handover {
    /// A hand-over that ends at `until_ms` (`None`: never): it is given up then or, with `force`, the replica
    /// is promoted as it is.
    pub fn new(until_ms: Option<u64>, force: bool) -> Handover {
        Handover { until_ms, force }
    }

    /// Decides the next step, for a log with these ends and a replica with these acknowledgements. `replica`
    /// is `None` if it is not connected. `gave_up`: why the hand-over has ended, if it has.
    pub fn step(
        &self,
        now_ms: u64,
        log: Ends,
        replica: Option<Acked>,
        gave_up: Option<GaveUp>,
    ) -> HandoverStep {
        if let Some(reason) = gave_up {
            return HandoverStep::GiveUp(reason);
        }
        let has_all = replica.is_some_and(|replica| replica.flushed >= log.appended);
        // This is not `log.appended`: a replica applies only committed log, and the end of the log may stay
        // uncommitted, because a hand-over waits for no other replica.
        let wanted = log.committed.min(log.appended);
        if has_all && replica.is_some_and(|replica| replica.applied >= wanted) {
            return HandoverStep::Promote;
        }
        match self.until_ms {
            Some(until_ms) if now_ms >= until_ms && self.force => HandoverStep::Promote,
            Some(until_ms) if now_ms >= until_ms && has_all => HandoverStep::GiveUp(GaveUp::NotApplied),
            Some(until_ms) if now_ms >= until_ms => HandoverStep::GiveUp(GaveUp::TimedOut),
            _ => HandoverStep::Wait,
        }
    }
}

/// A replica that was told to lead, and gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unanswered {
    /// The replica that was told to lead.
    pub replica: ReplicaId,
    /// The process that was told.
    pub process: ProcessId,
    /// The epoch of this server.
    pub epoch: u32,
}

impl Unanswered {
    /// Whether the replica has led, judged by its claim and the decision on that claim; `None` if the claim
    /// proves nothing.
    ///
    /// A promotion is on disk before the replica takes writes. So a new process of the replica has not led if
    /// it knows no higher epoch, and its log is a prefix of the log here. Otherwise it counts as having led.
    /// A claim proves nothing if it is of another replica, names no process, or is of the process that was
    /// told to lead, which may still obey.
    pub fn has_led(&self, claim: &Claim, decision: &Decision) -> Option<bool> {
        let is_new = claim.replica == self.replica && claim.process.is_some_and(|it| it != self.process);
        is_new.then_some(claim.epoch > self.epoch || !matches!(decision, Decision::Resume(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Mark, PROTOCOL_VERSION};

    #[test]
    fn only_a_new_process_of_the_replica_proves_that_it_has_not_led() {
        let (replica, process) = (ReplicaId::new([1; 16]), ProcessId::new(5));
        let told = Unanswered { replica, process, epoch: 7 };
        let mark = Mark { end: END, chain: 1 };
        let again = Some(ProcessId::new(6));
        let claim = |replica, process, epoch| Claim {
            version: PROTOCOL_VERSION,
            log_id: [0; 16],
            epoch,
            mark,
            port: 1,
            replica,
            process,
        };
        let resume = Decision::Resume(END);
        assert_eq!(told.has_led(&claim(replica, again, 7), &resume), Some(false));
        assert_eq!(told.has_led(&claim(replica, again, 8), &resume), Some(true));
        assert_eq!(told.has_led(&claim(replica, again, 7), &Decision::Probe), Some(true), "it wrote");
        for process in [None, Some(process)] {
            assert_eq!(told.has_led(&claim(replica, process, 7), &resume), None, "it may still obey");
        }
        assert_eq!(told.has_led(&claim(ReplicaId::new([2; 16]), again, 7), &resume), None);
    }

    const END: Lsn = Lsn::new(4096);

    fn acked(flushed: u64, applied: u64) -> Option<Acked> {
        let (flushed, applied) = (Lsn::new(flushed), Lsn::new(applied));
        Some(Acked { flushed, applied, as_of_ms: 0, heard_ms: 0 })
    }

    #[test]
    fn a_replica_leads_when_it_has_everything_and_by_force_when_the_time_is_over() {
        let log = Ends { appended: END, committed: Lsn::new(4000) };
        let step = |force, now_ms, replica| Handover::new(Some(100), force).step(now_ms, log, replica, None);
        for force in [false, true] {
            assert_eq!(step(force, 99, acked(4095, 4000)), HandoverStep::Wait);
            assert_eq!(step(force, 99, acked(4096, 3999)), HandoverStep::Wait, "it lacks what is committed");
            assert_eq!(step(force, 99, None), HandoverStep::Wait);
            assert_eq!(step(force, 99, acked(4096, 4000)), HandoverStep::Promote);
            assert_eq!(step(force, 100, acked(4096, 4000)), HandoverStep::Promote, "it is ready after all");
        }
        assert_eq!(step(false, 100, acked(4095, 4000)), HandoverStep::GiveUp(GaveUp::TimedOut));
        assert_eq!(step(false, 100, acked(4096, 3999)), HandoverStep::GiveUp(GaveUp::NotApplied));
        assert_eq!(step(true, 100, None), HandoverStep::Promote);
        let endless = Handover::new(None, true);
        assert_eq!(endless.step(u64::MAX, log, None, None), HandoverStep::Wait);
        for reason in [GaveUp::Aborted, GaveUp::Fenced] {
            let given_up = HandoverStep::GiveUp(reason);
            assert_eq!(endless.step(0, log, acked(5000, 5000), Some(reason)), given_up, "that comes first");
        }
    }
}
