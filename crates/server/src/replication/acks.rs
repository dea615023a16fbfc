//! The acknowledgements of replicas: the commit position of a leader, and replies that wait for replicas.

use std::sync::atomic::Ordering::SeqCst;

use lsn::Lsn;
use storage::Log;

use super::Node;

impl Node {
    /// The position up to which replies have waited for replicas longer than allowed. Called once a second.
    pub(crate) fn overdue(&self) -> Option<Lsn> {
        let look = || {
            let (timeout_ms, log) = (self.ack_timeout_ms()?, self.log()?);
            // Log that is not on the disk here yet does not wait for replicas.
            self.overdue.lock().look(self.now_ms(), log.shippable_lsn(), log.committed_lsn(), timeout_ms)
        };
        let overdue = look();
        self.acks_overdue.store(overdue.is_some(), SeqCst);
        if overdue.is_none() {
            self.logs_ack_timeouts.store(true, SeqCst);
        }
        overdue
    }

    /// Counts replies that are errors because replicas have not acknowledged in time. Logs a line the first
    /// time, and again only if no reply was overdue in between.
    pub(crate) fn acks_timed_out(&self, replies: u64) {
        if replies == 0 {
            return;
        }
        self.ack_timeouts.fetch_add(replies, SeqCst);
        if self.logs_ack_timeouts.swap(false, SeqCst) {
            tracing::warn!(
                target: "replication",
                "too few replicas acknowledge: writes, and reads that saw them, are answered with NOREPLICAS. Start replicas, or lower ack-replicas"
            );
        }
    }

    /// The number of replies that were errors because replicas had not acknowledged in time, since this
    /// incarnation began.
    pub(crate) fn ack_timeouts(&self) -> u64 {
        self.ack_timeouts.load(SeqCst)
    }

    /// The time for which a reply waits for replicas. `None` if replies do not wait for replicas, or wait
    /// without a limit.
    pub(crate) fn ack_timeout_ms(&self) -> Option<u64> {
        // In a group no reply times out: a leader without a majority is deposed, or refuses writes; see
        // `note_majority_awaited`.
        let asks =
            self.votes.is_none() && self.following().is_none() && self.log().is_some_and(Log::awaits_acks);
        let timeout_ms = self.options.read().ack_timeout_ms;
        (asks && timeout_ms > 0).then_some(timeout_ms)
    }

    /// Notes how long the oldest uncommitted batch of this leader of a group has waited for a majority. After
    /// too long a wait ([`membership::refuses_writes`]), further writes are refused before they are executed.
    /// Members that answer but take no log do not depose a leader, and the leader's log must not grow without
    /// limit.
    ///
    /// A leader that has committed nothing in its term has no lease, so no reply that shows data leaves. Such
    /// a leader refuses reads as well ([`Node::answers_nothing`]), and closes the connections of its clients.
    pub(crate) fn note_majority_awaited(&self, awaited_us: u64, uncommitted_batches: u64) {
        let timeout_ms = self.options.read().ack_timeout_ms;
        let leads = self.following().is_none();
        let lacks = leads && membership::refuses_writes(awaited_us, uncommitted_batches, timeout_ms);
        match (self.lacks_commits.swap(lacks, SeqCst), lacks) {
            (false, true) => {
                let refused = if self.answers_nothing() { "writes and reads are" } else { "writes are" };
                tracing::error!(
                    target: "group", seconds = awaited_us / 1_000_000,
                    "no majority of the members takes the log: {refused} refused until one does. Look at lag-bytes in GROUP MEMBERS, and at the \
                     disks and connections of the followers"
                );
                if self.answers_nothing() {
                    self.hang_up();
                }
            }
            (true, false) => {
                tracing::info!(target: "group", "a majority takes the log again: writes are accepted")
            }
            _ => {}
        }
    }

    /// Whether no reply that shows data could leave: this server refuses writes because no majority takes its
    /// log, has no lease, and may not show old data.
    pub(super) fn answers_nothing(&self) -> bool {
        self.lacks_commits.load(SeqCst) && !self.may_answer()
    }

    /// The number of servers in the chain of leaders above this server, as last heard: 0 if it follows none.
    pub(super) fn distance(&self) -> u8 {
        self.following().map_or(0, |following| following.distance())
    }

    /// The commit position that this server sends to its replicas.
    pub(super) fn commit_lsn(&self) -> Lsn {
        let Some(log) = self.log() else { return Lsn::ZERO };
        match self.following() {
            Some(following) => following.committed().min(log.shippable_lsn()),
            None => match &self.votes {
                Some(votes) => votes.committed().min(log.shippable_lsn()),
                None => self.leader.commit(log.shippable_lsn(), self.options.read().ack_replicas),
            },
        }
    }

    /// Re-evaluates commit and waits after replicas have connected, disconnected or acknowledged. On a
    /// replica, the commit position comes from its leader, or from the votes of the group.
    pub(crate) fn acked(&self) {
        let acking = self.acking.lock();
        if let Some(log) = self.log()
            && self.following().is_none()
            && log.awaits_acks()
        {
            log.set_acked(self.commit_lsn());
        }
        drop(acking);
        self.look_for_replicas();
        self.settle_waits();
    }

    /// Makes replies of a leader wait for `ack-replicas` replicas, according to the present setting. Log that
    /// was committed without replicas stays committed.
    pub(super) fn count_acks(&self, log: &Log) {
        let _acking = self.acking.lock();
        if self.votes.is_some() {
            return;
        }
        let count = self.options.read().ack_replicas;
        if count == 0 {
            return log.set_acked(Lsn::MAX);
        }
        if !log.awaits_acks() {
            self.begin_at_epoch(log, log.begin_to_await_acks());
        }
        log.set_acked(self.leader.commit(log.shippable_lsn(), count));
    }

    /// As [`Node::count_acks`], for a leader that begins. With `ack-replicas` it writes a batch, and nothing
    /// is committed until replicas have that batch.
    pub(super) fn begin_to_count_acks(&self, log: &Log) {
        let acking = self.acking.lock();
        if self.votes.is_none() && self.options.read().ack_replicas > 0 {
            log.set_acked(Lsn::ZERO);
            self.begin_at_epoch(log, Lsn::ZERO);
        }
        drop(acking);
        self.count_acks(log);
    }

    /// Writes a batch, and counts acknowledgements from the end of this batch on. Until enough replicas have
    /// the batch, the log is committed up to `committed`.
    fn begin_at_epoch(&self, log: &Log, committed: Lsn) {
        match log.mark_epoch() {
            Ok(floor) => self.leader.begin_at(floor, committed),
            // The log is poisoned; the server stops.
            Err(error) => tracing::error!(target: "replication", %error, "cannot begin an epoch"),
        }
    }

    /// Logs a line if this server has just left its group and the data has `ack-replicas`, for which the
    /// group had no use.
    pub(crate) fn report_acks_without_group(&self) {
        let ack_replicas = self.options.read().ack_replicas;
        if self.has_left_group && ack_replicas > 0 {
            tracing::warn!(
                target: "replication", ack_replicas,
                "ack-replicas, which had no effect in the group, takes effect now: without so many replicas nothing is acknowledged. To \
                 serve alone: CONFIG SET ack-replicas 0"
            );
        }
    }

    pub(super) fn look_for_replicas(&self) {
        let (min, lag_ms_max, acks) = {
            let options = self.options.read();
            (options.replicas_min, options.lag_ms_max, options.ack_replicas)
        };
        let lacks = min > 0 && self.leader.count_heard(self.now_ms(), lag_ms_max) < min;
        self.lacks_replicas.store(lacks, SeqCst);
        let asks = self.votes.is_none() && self.following().is_none();
        let lacks_acks = asks && acks > 0 && self.leader.replicas().len() < acks;
        self.lacks_acks.store(lacks_acks, SeqCst);
    }
}
