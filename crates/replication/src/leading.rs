//! A leader's account of its replicas: how they join, the positions that they have acknowledged, the commit
//! position, and the log that is kept for them.
//!
//! ```text
//! REPLICATE -> hear, pin the log -> decide -> a line, or join and ship (`Relay`)
//! ACK       -> note -> commit -> replies of clients
//! regularly: keep_from -> the pin of the log
//! ```
//!
//! What it is: one driver of [`Acks`], [`Retention`] and [`decide`] for the server and the simulation.
//! What it is not: sockets, threads, or the pin itself.
//!
//! Invariants
//! - Within the limits, the log on which a decision depends is kept before the decision is made.
//! - While a replica copies everything, the log that is written meanwhile is kept for it, within the limits.
//! - No log is kept for a replica that was refused.

use lsn::Lsn;
use storage::Log;

use crate::{
    Acked, Acks, ReplicaId, Retention, Session,
    join::{Claim, Decision, History, decide},
};

/// A leader's account of its replicas.
#[derive(Debug)]
pub struct Leading {
    acks: Acks,
    retention: Retention,
}

impl Leading {
    /// Keeps at most `bytes_max` of log for each replica, and for at most `away_ms_max` after it has left.
    pub fn new(bytes_max: u64, away_ms_max: u64) -> Leading {
        Leading { acks: Acks::default(), retention: Retention::new(bytes_max, away_ms_max) }
    }

    /// Changes the limits of the log that is kept.
    pub fn set_limits(&mut self, bytes_max: u64, away_ms_max: u64) {
        self.retention.set_limits(bytes_max, away_ms_max);
    }

    /// Begins to wait for replicas: the commit position stays at `committed` until it can rise to `floor`,
    /// the end of a batch of this leader's epoch. Acknowledgements on earlier connections no longer count.
    pub fn begin_at(&mut self, floor: Lsn, committed: Lsn) {
        self.acks.begin_at(floor, committed);
    }

    /// Notes that a replica has sent this claim. The caller pins the log ([`Leading::keep_from`]) before it
    /// decides.
    pub fn hear(&mut self, claim: &Claim) {
        self.retention.note(claim.replica, claim.mark.end);
    }

    /// Decides how the replica joins, and which log is kept for it from now on.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn decide<H: History>(
        &mut self,
        claim: &Claim,
        log: &Log,
        history: &H,
    ) -> Result<Decision, H::Error> {
        let decision = decide(claim, log.id(), log.epoch(), history)?;
        match decision {
            Decision::Resume(_) | Decision::Probe => {}
            Decision::Full(_) => self.retention.note(claim.replica, log.shippable_lsn()),
            Decision::Refuse(_) | Decision::Fenced { .. } => self.retention.forget(claim.replica),
        }
        Ok(decision)
    }

    /// A replica is connected; an older connection of the same replica no longer counts.
    pub fn join(&mut self, id: ReplicaId, acked: Acked) -> Session {
        self.acks.join(id, acked)
    }

    /// Notes an acknowledgement of a replica.
    pub fn note(&mut self, session: Session, acked: Acked) {
        self.acks.note(session, acked);
    }

    /// A connection has ended.
    pub fn leave(&mut self, session: Session) {
        self.acks.leave(session);
    }

    /// Notes that a replica has left, whether it had joined or not: the log is kept for it for a while.
    pub fn left(&mut self, id: ReplicaId, now_ms: u64) {
        self.retention.leave(id, now_ms);
    }

    /// Keeps the log from `position` on for a replica that does not take the log itself: a Redis server,
    /// which is sent commands.
    pub fn hold(&mut self, id: ReplicaId, position: Lsn) {
        self.retention.note(id, position);
    }

    /// Keeps no log for a replica any more, until [`Leading::hear`], [`Leading::hold`] or a connection of the
    /// replica requires it again.
    pub fn forget(&mut self, id: ReplicaId) {
        self.retention.forget(id);
    }

    /// The first position to keep of a log that ends at `end`; `None` if no replica needs any of it.
    pub fn keep_from(&mut self, end: Lsn, now_ms: u64) -> Option<Lsn> {
        for (id, acked) in self.acks.replicas() {
            self.retention.note(id, acked.flushed);
        }
        self.retention.keep_from(end, now_ms)
    }

    /// The commit position if `count` replicas besides this server must have the log on disk; this server
    /// has it up to `own`.
    pub fn commit(&mut self, own: Lsn, count: usize) -> Lsn {
        self.acks.commit(own, count)
    }

    /// The acknowledgements of the connected replicas.
    pub fn acks(&self) -> &Acks {
        &self.acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Mark, PROTOCOL_VERSION};

    fn claim(id: u8, end: u64) -> Claim {
        Claim {
            version: PROTOCOL_VERSION,
            log_id: [1; 16],
            epoch: 1,
            mark: Mark { end: Lsn::new(end), chain: 7 },
            port: 6379,
            replica: ReplicaId::new([id; 16]),
            process: None,
        }
    }

    fn acked(flushed: u64) -> Acked {
        Acked { flushed: Lsn::new(flushed), applied: Lsn::ZERO, as_of_ms: 0, heard_ms: 0 }
    }

    #[test]
    fn the_log_is_kept_from_the_claim_on_then_from_the_acknowledgement_and_for_a_while_afterwards() {
        let mut leading = Leading::new(1 << 20, 1_000);
        let (end, replica) = (Lsn::new(65_536), claim(1, 0).replica);
        let kept = |leading: &mut Leading, now_ms| leading.keep_from(end, now_ms).map(Lsn::get);
        assert_eq!(kept(&mut leading, 0), None);
        leading.hear(&claim(1, 4096));
        assert_eq!(kept(&mut leading, 0), Some(4096), "before anything is decided");
        let session = leading.join(replica, acked(8192));
        assert_eq!(kept(&mut leading, 0), Some(8192));
        leading.note(session, acked(16_384));
        assert_eq!(
            (kept(&mut leading, 0), leading.acks().count_flushed(Lsn::new(16_384))),
            (Some(16_384), 1)
        );
        leading.leave(session);
        leading.left(replica, 500);
        assert_eq!((kept(&mut leading, 1_500), leading.acks().count_flushed(Lsn::ZERO)), (Some(16_384), 0));
        assert_eq!(kept(&mut leading, 1_501), None, "it has been away for too long");
    }

    #[test]
    fn nothing_is_kept_for_a_replica_that_was_refused_or_lags_too_far() {
        let mut leading = Leading::new(4096, 1_000);
        leading.hear(&claim(1, 61_440));
        leading.hear(&claim(2, 61_439));
        assert_eq!(leading.keep_from(Lsn::new(65_536), 0), Some(Lsn::new(61_440)), "the other one lags");
        leading.forget(claim(1, 0).replica);
        assert_eq!(leading.keep_from(Lsn::new(65_536), 0), None);
        leading.set_limits(4097, 1_000);
        leading.hear(&claim(2, 61_439));
        assert_eq!(leading.keep_from(Lsn::new(65_536), 0), Some(Lsn::new(61_439)));
    }

    #[test]
    fn a_new_epoch_commits_nothing_before_its_first_batch_and_ends_the_sessions() {
        let mut leading = Leading::new(1 << 20, 1_000);
        let old = leading.join(claim(1, 0).replica, acked(4096));
        leading.begin_at(Lsn::new(8192), Lsn::ZERO);
        leading.note(old, acked(8192));
        assert_eq!(leading.commit(Lsn::new(8192), 1), Lsn::ZERO, "its connection has ended");
        let session = leading.join(claim(1, 0).replica, acked(4096));
        assert_eq!(leading.commit(Lsn::new(8192), 1), Lsn::ZERO);
        leading.note(session, acked(8192));
        assert_eq!(leading.commit(Lsn::new(8192), 1), Lsn::new(8192));
    }
}
