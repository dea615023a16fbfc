//! This server as a member of a group: votes give it its role, in place of an operator.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use consensus::{Leadership, Link};
use engine::replication::Address;
use lsn::Lsn;
use membership::{Votes, references};
use storage::{Log, batches_in};

use super::{Node, failover::end_log};

/// The longest time for which a member of a group may lag behind its group and still show its data. With
/// `stale-reads`, older data is shown, too.
const SHOWN_AGE_MS_MAX: u64 = 5_000;

impl Node {
    /// The votes of this server; `None` if it belongs to no group.
    pub(crate) fn votes(&self) -> Option<&Arc<Votes>> {
        self.votes.as_ref()
    }

    /// Whether this server keeps the log of its group and no data.
    pub(crate) fn is_witness(&self) -> bool {
        self.votes.as_ref().is_some_and(|votes| votes.is_witness())
    }

    /// Whether the group has removed this server.
    pub(crate) fn is_removed(&self) -> bool {
        self.votes.as_ref().is_some_and(|votes| votes.is_removed())
    }

    /// Whether a reply that shows data may leave now: no other member can have been elected (see
    /// [`Node::has_lease`]), or old data may be shown. In both cases the reply has waited until its data is
    /// committed.
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        self.has_lease() || self.shows_old_data()
    }

    /// Whether no other member can have been elected. Also true without a group, for a member that has not
    /// led, and for a member that has stepped down since it led. See [`Votes::may_answer`].
    #[inline]
    pub(crate) fn has_lease(&self) -> bool {
        self.votes.as_ref().is_none_or(|votes| votes.may_answer())
    }

    /// Whether this server is a member of a group, and knows no leader, does not hear its leader, or leads
    /// and [may be replaced](Node::may_be_replaced).
    #[inline]
    pub(super) fn lacks_leader(&self) -> bool {
        let knows_leader = |votes: &Votes| self.knows_leader.load(SeqCst) && votes.hears_leader();
        self.votes.as_ref().is_some_and(|votes| !knows_leader(votes) || votes.may_be_replaced())
    }

    /// Whether this server asks to join a group, and no group has accepted it yet.
    pub(crate) fn is_joining(&self) -> bool {
        self.votes.as_ref().is_some_and(|votes| !votes.state().has_joined())
    }

    /// Whether this server leads its group, and another member may have been elected because the disk here
    /// does not answer. It can step down only once the disk answers.
    #[inline]
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.votes.as_ref().is_some_and(|votes| votes.may_be_replaced())
    }

    /// Whether the data of this member of a group is old: for more than [`SHOWN_AGE_MS_MAX`], it has not
    /// applied all that the group has committed. Its disk may be full, or it has no connection to the leader.
    pub(super) fn lags_far_behind(&self) -> bool {
        let is_behind = || self.following().is_some_and(|it| it.behind_ms(self.now_ms()) > SHOWN_AGE_MS_MAX);
        self.votes.is_some() && is_behind()
    }

    /// Whether a member without a majority shows committed data that may be old (`stale-reads`).
    #[inline]
    pub(super) fn shows_old_data(&self) -> bool {
        self.stale_reads.load(SeqCst)
    }

    /// Notes another leadership, of which the votes have learnt.
    pub(crate) fn note_leadership(&self, leadership: Leadership) {
        let is_known = !matches!(leadership, Leadership::Unknown { .. });
        self.knows_leader.store(is_known, SeqCst);
    }

    /// Lets the log be applied up to this position, which the votes know to be committed. The connection to
    /// the leader may report the position later. The early report matters because a member must not campaign
    /// before it has applied every committed change of the roster that it knows of.
    pub(crate) fn note_committed(&self, committed: Lsn) {
        if let Some(following) = self.following() {
            following.note_committed(committed);
        }
        self.acked();
    }

    /// Whether this server has led its group and not stepped down since.
    pub(crate) fn has_led(&self) -> bool {
        self.has_led.load(SeqCst)
    }

    /// Deposes this server as leader of its group: it takes no writes and shows nothing, until it has stepped
    /// down or restarted within the process.
    pub(crate) fn depose(&self) {
        self.change_role_here(|role| role.depose());
    }

    /// Whether replies that have not left are dropped: this server has led, and restarts. The new leader
    /// decides whether the changes behind these replies last.
    pub(crate) fn drops_replies(&self) -> bool {
        self.has_led() && self.is_restarting()
    }

    /// Ends this server's part in votes while a requested restart has to wait. Until the restart, it sends
    /// nothing to its group, and counts as a member that hears no leader.
    pub(crate) fn begin_to_wait_for_restart(&self) {
        if let Some(votes) = &self.votes {
            votes.stop();
            self.note_leadership(Leadership::Unknown { term: 0 });
        }
    }

    /// Follows the leader of the group, which the votes know by `link`. `link` is `None` if this server is no
    /// member yet.
    pub(crate) fn follow_in_group(&self, link: Option<Link>, leader: Address) {
        *self.named.lock() = Some((link, leader.clone()));
        // The new leader is not persisted, because a full disk would prevent that. After a start the votes
        // name the leader again, and its epoch is persisted before anything in that epoch is acknowledged.
        self.change_role_here(|role| role.follow(leader));
        // A connection belongs to one term, so a new one is made even if the leader is the same.
        if let Some(following) = self.following() {
            following.reconnect(self.now_ms());
        }
    }

    /// Follows nobody from now on: the group has removed this server.
    pub(crate) fn follow_nobody(&self) {
        self.change_role_here(|role| role.follow_nobody());
    }

    /// The leader to follow, and its link as the votes have it; `None` if there is no leader at the moment.
    /// In a group, the address must belong to the leader that the votes know. Otherwise batches of another
    /// leader would be taken for batches of this one.
    pub(super) fn to_follow(&self) -> Option<(Address, Option<Link>)> {
        let leader = self.leader_address()?;
        let Some(votes) = &self.votes else { return Some((leader, None)) };
        let known = votes.link().ok()?;
        let (link, address) = self.named.lock().clone()?;
        (link == known && address == leader).then_some((address, link))
    }

    /// Reports to the votes that the log here is the beginning of the leader's log, as the leader has found.
    pub(super) fn found_equal(&self, link: Option<Link>) -> Result<(), String> {
        self.votes.as_ref().map_or(Ok(()), |votes| votes.accept(link, &[], Lsn::ZERO))
    }

    /// Asks the votes whether batches may be appended.
    pub(super) fn accept(
        &self,
        link: Option<Link>,
        start: Lsn,
        bytes: &[u8],
        commit: Lsn,
    ) -> Result<(), String> {
        let Some(votes) = &self.votes else { return Ok(()) };
        let batches = batches_in(start, bytes);
        if batches.is_empty() {
            return Err("the bytes are not whole batches".into());
        }
        votes.accept(link, &references(&batches), commit)?;
        self.clocks.look(&batches, commit, self.clock.unix_ms(), self.now_ms());
        Ok(())
    }

    /// Compares the clock here with the time of the last batch in the log. Done at a start, because it may
    /// take long until the next batch is written.
    pub(crate) fn look_at_clock(&self, log: &Log) {
        let end = log.shippable_lsn();
        let newest = log.last_batches(end, 1).unwrap_or_default();
        self.clocks.look(&newest, end, self.clock.unix_ms(), self.now_ms());
    }

    /// Ends writes for a transfer of the leadership: waits for the writers in progress, and makes everything
    /// durable, until `gives_up` returns true.
    pub(crate) fn end_writes_for_transfer(&self, gives_up: &dyn Fn() -> bool) -> Result<(), String> {
        let log = self.log().ok_or("LOADING this server is starting")?;
        if !self.change_role_here(|role| role.begin_hand_over()) {
            return Err("ERR this server takes no writes, or hands over already".into());
        }
        let ended = match self.wait_for_rounds(gives_up) {
            true => end_log(log, gives_up).map_err(|reason| format!("ERR {reason}")),
            false => Err(
                "ERR a script or a command that takes long did not end in time (SCRIPT KILL, FUNCTION KILL)"
                    .into(),
            ),
        };
        if ended.is_err() {
            self.resume_writes();
        }
        ended
    }

    /// Takes writes again after a transfer that failed before another member was elected.
    pub(crate) fn resume_writes(&self) {
        self.change_role_here(|role| role.give_up_hand_over());
    }
}
