//! The replication figures of INFO and metrics.

use std::sync::atomic::Ordering::SeqCst;

use engine::replication::{Address, LinkState};
use lsn::Lsn;

use super::{Node, leader::ReplicaFigures};

/// The state of replication at one moment.
pub(crate) struct Figures {
    pub(crate) now_ms: u64,
    /// Whether clients see a leader, as in INFO and ROLE.
    pub(crate) is_leader: bool,
    pub(crate) epoch: u32,
    pub(crate) log_id: String,
    /// The end of the log that may be shipped.
    pub(crate) end: Lsn,
    /// The start of the log that is kept.
    pub(crate) start: Lsn,
    pub(crate) fenced_by: u32,
    pub(crate) failover_state: &'static str,
    pub(crate) replicas: Vec<ReplicaFigures>,
    /// The number of connected Redis replicas.
    pub(crate) redis_replicas: usize,
    /// The number of replicas heard from in time; `None` if no minimum is configured.
    pub(crate) good_replicas: Option<usize>,
    pub(crate) leader: Option<LeaderFigures>,
}

/// What a replica knows of its leader, and how far it has followed the leader's log.
pub(crate) struct LeaderFigures {
    pub(crate) address: Address,
    pub(crate) link: LinkState,
    pub(crate) silent_seconds: u64,
    pub(crate) down_seconds: Option<u64>,
    pub(crate) applied: Lsn,
    pub(crate) committed: Lsn,
    /// Bytes of committed log that are not applied; `None` while the link is down, or before the leader has
    /// told its commit position.
    pub(crate) lag_bytes: Option<u64>,
    /// The age of the moment at which everything committed was last applied; `None` if there was none.
    pub(crate) lag_ms: Option<u64>,
    /// The present or the last copy: bytes done and total.
    pub(crate) copied: (u64, u64),
}

impl Node {
    pub(crate) fn figures(&self) -> Figures {
        let now_ms = self.now_ms();
        let (replicas_min, lag_ms_max) = {
            let options = self.options.read();
            (options.replicas_min, options.lag_ms_max)
        };
        let (log, leader) = (self.log(), self.leader_address());
        let fenced_by = self.role().remembered().fenced_by;
        Figures {
            now_ms,
            is_leader: !self.is_shown_as_replica(),
            epoch: log.map_or(0, |log| log.epoch()),
            log_id: log.map_or(String::new(), |log| hex::encode(log.id())),
            end: log.map_or(Lsn::ZERO, |log| log.shippable_lsn()),
            start: log.map_or(Lsn::ZERO, |log| log.start_lsn()),
            fenced_by,
            failover_state: self.failover_state(),
            replicas: self.leader.replicas(),
            redis_replicas: self.redis.all().len(),
            good_replicas: (replicas_min > 0).then(|| self.leader.count_heard(now_ms, lag_ms_max)),
            leader: leader.map(|address| self.leader_figures(address, now_ms)),
        }
    }

    /// The state of a hand-over, as INFO names it. A member of a group has no entry in `handover`: it gives
    /// up its leadership, and then the next leader is elected.
    fn failover_state(&self) -> &'static str {
        match &*self.handover.lock() {
            Some(handover) => handover.state(),
            None if self.is_handing_over.load(SeqCst) => "failover-in-progress",
            None => "no-failover",
        }
    }

    /// The position up to which the replica at this address has reported the log as applied.
    pub(crate) fn applied_at(&self, address: &Address) -> Option<Lsn> {
        let replicas = self.leader.replicas();
        replicas.iter().find(|replica| replica.address == *address).map(|replica| replica.acked.applied)
    }

    /// The state of the link to the leader, as clients see it. A connection to a member of the group that is
    /// not known to lead any more does not count as a link to the leader.
    pub(super) fn shown_link(&self) -> LinkState {
        match self.following() {
            Some(following) if !self.lacks_leader() => following.link(),
            _ => LinkState::Connect,
        }
    }

    fn leader_figures(&self, address: Address, now_ms: u64) -> LeaderFigures {
        let following = self.following();
        let following = following.as_deref();
        let link = self.shown_link();
        let told = following.filter(|it| link == LinkState::Connected && it.committed() > Lsn::ZERO);
        LeaderFigures {
            address,
            link,
            lag_bytes: told.map(|it| it.committed().get().saturating_sub(it.applied().get())),
            silent_seconds: following.map_or(0, |it| it.silent_ms(now_ms) / 1000),
            down_seconds: following.and_then(|it| it.down_ms(now_ms)).map(|down_ms| down_ms / 1000),
            applied: following.map_or(Lsn::ZERO, |it| it.applied()),
            committed: following.map_or(Lsn::ZERO, |it| it.committed()),
            lag_ms: following.and_then(|it| it.caught_up_ms()).map(|at_ms| now_ms.saturating_sub(at_ms)),
            copied: (self.copied.0.load(SeqCst), self.copied.1.load(SeqCst)),
        }
    }
}
