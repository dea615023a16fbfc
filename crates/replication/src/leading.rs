//! A leader's account of its replicas: how they join, what they have acknowledged, what is committed, and the
//! log that is kept for them.
//!
//! ```text
//! REPLICATE -> hear, pin the log -> decide -> a line, or join and ship (`Relay`)
//! ACK       -> note -> commit -> replies of clients
//! once a second: keep_from -> the pin of the log
//! ```
//!
//! What it is: one driver of [`Acks`], [`Retention`] and [`decide`] for the server and the simulation.
//! What it is not: sockets, threads, or the pin itself.
//!
//! Invariants
//! - The log on which a decision depends is kept before the decision is made.
//! - While a replica copies everything, the log that is written meanwhile is kept for it.
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

    /// The first batch of this leader's epoch ends at `floor`: nothing is committed before it. The
    /// connections of replicas end with the epoch before.
    pub fn begin_at(&mut self, floor: Lsn) {
        self.acks.begin_at(floor);
    }

    /// A replica has sent this claim. The caller pins the log ([`Leading::keep_from`]) before it decides.
    pub fn hear(&mut self, claim: &Claim) {
        self.retention.note(claim.replica, claim.mark.end);
    }

    /// Decides how the replica joins, and what is kept for it from now on.
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

    /// A replica has acknowledged.
    pub fn note(&mut self, session: Session, acked: Acked) {
        self.acks.note(session, acked);
    }

    /// A connection has ended.
    pub fn leave(&mut self, session: Session) {
        self.acks.leave(session);
    }

    /// A replica has left, whether it had joined or not: its log is kept for a while.
    pub fn left(&mut self, id: ReplicaId, now_ms: u64) {
        self.retention.leave(id, now_ms);
    }

    /// No more log is kept for a replica.
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

    /// The commit position if `count` replicas must have the log, of which this server has `own`.
    pub fn commit(&mut self, own: Lsn, count: usize) -> Lsn {
        self.acks.commit(own, count)
    }

    /// The acknowledgements of the connected replicas.
    pub fn acks(&self) -> &Acks {
        &self.acks
    }
}
