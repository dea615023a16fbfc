//! The role of a server: leader, replica or fenced; and the part of its data that may be shown.
//!
//! ```text
//!             follow                      confirm: the leader has committed the whole log here
//! leads -----------------> follows, shows nothing ------------------------> follows, shows committed data
//!   |  ^                         |                                                |
//!   |  '------- lead, open ------+------------------------------------------------'
//!   |--step_down (a member: all of its memory is committed)--> follows, shows committed data
//!   '--fence--> takes no writes, shows nothing --lead--> leads after a restart, in a higher epoch
//! ```
//!
//! This module has the rules. The file that persists a role, and the order of a promotion
//! ([`crate::promote`]), are elsewhere.
//!
//! Invariants
//! - A replica, a fenced leader, and a leader during a hand-over take no writes. A hand-over that is given up
//!   changes nothing else: a leader that was fenced meanwhile stays fenced.
//! - A log that may hold more than any leader has committed is not shown. This is the log of a leader that
//!   begins to follow ([`Role::follow`]), is fenced or is deposed, of a starting member of a group, and of a
//!   starting replica whose settings make a leader wait for acknowledgements.
//! - The epochs that a server saw as a leader, or with another log, say nothing about the leaders that it
//!   follows later.
//! - The caller must persist [`Role::remembered`], where a change of the role says so, before it acts on the
//!   change.

use lsn::Lsn;

/// A position that no log reaches. As [`Role::unconfirmed`], it lets nothing be shown.
const EVERYTHING: Lsn = Lsn::MAX;

/// The persistent part of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered<A> {
    /// The leader to follow; `None` if this server leads, is fenced, or is a member of a group and knows no
    /// leader.
    pub leader: Option<A>,
    /// The highest epoch of the leaders followed.
    pub seen_epoch: u32,
    /// The epoch of another server that keeps this one from taking writes; 0 for none. The epoch has begun,
    /// or may have begun because this server was about to tell a replica to lead.
    pub fenced_by: u32,
    /// The log may hold more than any leader has committed.
    pub is_unconfirmed: bool,
}

impl<A> Default for Remembered<A> {
    fn default() -> Self {
        Remembered { leader: None, seen_epoch: 0, fenced_by: 0, is_unconfirmed: false }
    }
}

impl<A> Remembered<A> {
    /// Changes the leader to follow; `None` if this server leads, or its group has no leader that it knows.
    /// Ends a fencing. A server that followed nobody forgets the epochs that it has seen; if it now follows a
    /// leader, its log is unconfirmed.
    pub fn set_leader(&mut self, leader: Option<A>) {
        if self.leader.is_none() {
            self.seen_epoch = 0;
            self.is_unconfirmed = true;
        }
        // A server that follows nobody has no leader that could confirm its log.
        self.is_unconfirmed &= leader.is_some();
        self.leader = leader;
        self.fenced_by = 0;
    }
}

/// The outcome of [`Role::follow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// The server follows this leader already.
    Already,
    /// The server was a replica, of another leader or of nobody: reconnect.
    Reconnect,
    /// The server led, or was fenced: restart with an empty memory.
    Restart,
}

/// The outcome of [`Role::confirm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// The leader has not yet committed all of the log here.
    NotYet,
    /// All of the log could be shown before.
    Known,
    /// All of the log may be shown now, and could not before.
    Now,
}

/// The current role of a server.
#[derive(Debug, Clone)]
pub struct Role<A> {
    remembered: Remembered<A>,
    /// The server leads, and its data is complete: see [`Role::open`].
    is_open: bool,
    /// Writes have ended for a hand-over, which may still be given up.
    is_handing_over: bool,
    /// Votes decide who leads: this server starts as a replica of nobody, and no epoch fences it.
    is_member: bool,
    /// The position up to which the leader must have committed the log before anything is shown.
    unconfirmed: Lsn,
    /// The epoch that this server outbids: it leads in a higher one after a restart; 0 for none.
    outbid: u32,
}

impl<A: PartialEq> Role<A> {
    /// The role of a starting server that is no member of a group. `awaits_acks`: by the settings, a leader's
    /// replies wait for acknowledgements of replicas, so its log may hold more than was ever acknowledged.
    pub fn start(remembered: Remembered<A>, awaits_acks: bool) -> Role<A> {
        let follows = remembered.leader.is_some();
        let is_open = !follows && remembered.fenced_by == 0;
        let is_unconfirmed = remembered.is_unconfirmed || follows && awaits_acks;
        let unconfirmed = if is_unconfirmed { EVERYTHING } else { Lsn::ZERO };
        Role { remembered, is_open, is_handing_over: false, is_member: false, unconfirmed, outbid: 0 }
    }

    /// The role of a starting member of a group: a replica of nobody, until the votes say more.
    pub fn start_member(remembered: Remembered<A>) -> Role<A> {
        let unconfirmed = EVERYTHING;
        Role { remembered, is_open: false, is_handing_over: false, is_member: true, unconfirmed, outbid: 0 }
    }

    /// Whether it is a replica, perhaps of nobody.
    pub fn is_replica(&self) -> bool {
        self.leader().is_some() || self.is_member && !self.is_open
    }

    /// This server no longer leads its group: it takes no writes, and shows nothing, until it steps down or
    /// restarts.
    pub fn depose(&mut self) {
        (self.is_open, self.is_handing_over) = (false, false);
        self.unconfirmed = EVERYTHING;
    }

    /// This server no longer leads its group, which has committed all that is in memory here: it is a replica
    /// of nobody that shows its data, until the votes say more. Need not be persisted.
    pub fn step_down(&mut self) {
        self.depose();
        self.unconfirmed = Lsn::ZERO;
        self.remembered.set_leader(None);
    }

    /// Notes that the log of a replica is recovered and ends at `end`. Data is shown at the latest when the
    /// leader has committed the log up to `end`. With `awaits_acks` (see [`Role::start`]), data is not shown
    /// earlier.
    pub fn recovered(&mut self, end: Lsn, awaits_acks: bool) {
        if awaits_acks {
            self.unconfirmed = EVERYTHING;
        }
        self.unconfirmed = self.unconfirmed.min(end);
    }

    /// The part of the role that has to be persisted.
    pub fn remembered(&self) -> &Remembered<A> {
        &self.remembered
    }

    /// The leader to follow, if any.
    pub fn leader(&self) -> Option<&A> {
        self.remembered.leader.as_ref()
    }

    /// Whether clients are refused writes.
    pub fn is_read_only(&self) -> bool {
        !self.is_open || self.is_handing_over
    }

    /// Whether it leads; it may have stopped writes for a hand-over.
    pub fn leads(&self) -> bool {
        self.is_open
    }

    /// Whether writes have ended for a hand-over, which may still be given up.
    pub fn is_handing_over(&self) -> bool {
        self.is_handing_over
    }

    /// Whether this server is fenced: another server leads in a higher epoch, or may lead because this server
    /// has yielded to it.
    pub fn is_fenced(&self) -> bool {
        self.remembered.fenced_by > 0
    }

    /// Whether clients see a replica, perhaps of nobody: also between [`Role::lead`] and [`Role::open`],
    /// while it does not take writes yet.
    pub fn is_shown_as_replica(&self) -> bool {
        let is_about_to_lead = !self.is_open && !self.is_fenced() && self.leader().is_none();
        self.is_replica() || is_about_to_lead
    }

    /// The position up to which the leader must have committed the log before any of it is shown; zero if all
    /// may be shown.
    pub fn unconfirmed(&self) -> Lsn {
        self.unconfirmed
    }

    /// Follows `leader`. Must be persisted, unless the result is [`Follow::Already`].
    pub fn follow(&mut self, leader: A) -> Follow {
        if self.leader() == Some(&leader) {
            return Follow::Already;
        }
        let followed = self.is_replica();
        self.remembered.set_leader(Some(leader));
        if followed {
            return Follow::Reconnect;
        }
        (self.is_open, self.is_handing_over) = (false, false);
        self.unconfirmed = EVERYTHING;
        Follow::Restart
    }

    /// Notes that the leader has committed the log here up to `committed`. The second returned value is
    /// whether the change must be persisted.
    pub fn confirm(&mut self, committed: Lsn) -> (Confirmed, bool) {
        if committed < self.unconfirmed {
            return (Confirmed::NotYet, false);
        }
        let is_news = self.remembered.is_unconfirmed && committed > Lsn::ZERO;
        self.remembered.is_unconfirmed &= !is_news;
        let confirmed = if self.unconfirmed > Lsn::ZERO { Confirmed::Now } else { Confirmed::Known };
        self.unconfirmed = Lsn::ZERO;
        (confirmed, is_news)
    }

    /// Notes the epoch of a leader. Returns whether the epoch is higher than all before: then it must be
    /// persisted before anything in it is acknowledged.
    pub fn saw_epoch(&mut self, epoch: u32) -> bool {
        let is_news = self.remembered.seen_epoch < epoch;
        self.remembered.seen_epoch = self.remembered.seen_epoch.max(epoch);
        is_news
    }

    /// Forgets the epochs seen, because the log here is replaced by another log, which has other leaders.
    /// Returns whether the change must be persisted, before the log is replaced.
    pub fn forget_epochs(&mut self) -> bool {
        std::mem::take(&mut self.remembered.seen_epoch) > 0
    }

    /// Notes that another server leads in a higher epoch. Returns true if this fences the server; then the
    /// change must be persisted. Returns false, and changes nothing, for a replica or a member of a group,
    /// and if the server already knew of this epoch or outbids it.
    pub fn fence(&mut self, epoch: u32) -> bool {
        let known = self.remembered.fenced_by.max(self.outbid);
        if self.is_member || self.leader().is_some() || known >= epoch {
            return false;
        }
        (self.is_open, self.is_handing_over) = (false, false);
        self.unconfirmed = EVERYTHING;
        (self.remembered.fenced_by, self.remembered.is_unconfirmed) = (epoch, true);
        true
    }

    /// Stops writes for a hand-over. Returns false, and changes nothing, if this server takes no writes
    /// anyway.
    pub fn begin_hand_over(&mut self) -> bool {
        let begins = !self.is_read_only();
        self.is_handing_over |= begins;
        begins
    }

    /// Gives the hand-over up, before any replica was told to lead: writes resume, unless this server was
    /// fenced meanwhile.
    pub fn give_up_hand_over(&mut self) {
        self.is_handing_over = false;
    }

    /// A replica is about to be told to lead, in an epoch above `epoch`. From now on this server takes no
    /// writes, not even after a restart: the change must be persisted before the replica is told. Returns
    /// false, and changes nothing, if this server is not handing over any more, for instance because another
    /// server has fenced it.
    pub fn yield_to_replica(&mut self, epoch: u32) -> bool {
        self.is_handing_over && self.fence(epoch.saturating_add(1))
    }

    /// The replica has refused to lead, or has certainly not led: this server leads on, unless another server
    /// has fenced it meanwhile. The change must be persisted. `epoch` is the epoch that was given to
    /// [`Role::yield_to_replica`].
    pub fn resume(&mut self, epoch: u32) {
        if self.remembered.fenced_by == epoch.saturating_add(1) {
            (self.remembered.fenced_by, self.remembered.is_unconfirmed) = (0, false);
            self.open();
        }
    }

    /// Follows the replica that was promoted in this server's place. Must be persisted.
    pub fn hand_over(&mut self, to: A) {
        self.remembered.set_leader(Some(to));
        self.unconfirmed = EVERYTHING;
    }

    /// Follows the replica that was told to lead, gave no answer, and has shown since then that it leads in
    /// `epoch`. Must be persisted. Returns false, and changes nothing, if this server is not fenced any more,
    /// or was fenced by a later epoch.
    pub fn follow_successor(&mut self, to: A, epoch: u32) -> bool {
        let succeeds = self.is_fenced() && self.leader().is_none() && epoch >= self.remembered.fenced_by;
        if succeeds {
            self.hand_over(to);
        }
        succeeds
    }

    /// Follows nobody until the votes say more: for members of a group. Need not be persisted.
    pub fn follow_nobody(&mut self) {
        self.remembered.set_leader(None);
    }

    /// Stops following, which must be persisted. Returns the epoch that fenced this server, or 0. The caller
    /// outbids that epoch and restarts. Until the restart, the epoch does not fence this server again, even
    /// if a replica reports it once more, and a second call returns it again. This server takes writes only
    /// after [`Role::open`].
    pub fn lead(&mut self) -> u32 {
        self.outbid = self.outbid.max(self.remembered.fenced_by);
        self.remembered.set_leader(None);
        self.outbid
    }

    /// Accepts writes and shows all data.
    pub fn open(&mut self) {
        (self.is_open, self.is_handing_over) = (true, false);
        self.unconfirmed = Lsn::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> Lsn {
        Lsn::new(position)
    }

    fn follower(awaits_acks: bool) -> Role<&'static str> {
        let remembered = Remembered { leader: Some("a"), ..Remembered::default() };
        Role::start(remembered, awaits_acks)
    }

    #[test]
    fn a_leader_that_follows_shows_nothing_until_all_it_has_is_committed() {
        let mut role = Role::start(Remembered::default(), false);
        assert!(!role.is_read_only() && role.unconfirmed() == Lsn::ZERO);
        assert_eq!(role.follow("a"), Follow::Restart);
        assert!(role.is_read_only() && role.remembered().is_unconfirmed);
        let mut role = Role::start(role.remembered().clone(), false);
        role.recovered(at(8192), false);
        assert_eq!(role.confirm(at(4096)), (Confirmed::NotYet, false));
        assert_eq!(role.confirm(at(8192)), (Confirmed::Now, true));
        assert_eq!(role.confirm(at(8192)), (Confirmed::Known, false));
        assert_eq!(role.follow("a"), Follow::Already);
        assert_eq!(role.follow("b"), Follow::Reconnect);
        assert!(!role.remembered().is_unconfirmed, "it showed what was committed before");
    }

    #[test]
    fn a_replica_that_starts_shows_nothing_where_acknowledgements_are_waited_for() {
        for (awaits_acks, unconfirmed) in [(false, Lsn::ZERO), (true, at(4096))] {
            let mut role = follower(awaits_acks);
            role.recovered(at(4096), awaits_acks);
            assert_eq!(role.unconfirmed(), unconfirmed);
        }
        let mut empty = follower(true);
        empty.recovered(Lsn::ZERO, true);
        assert_eq!(empty.confirm(Lsn::ZERO), (Confirmed::Known, false), "there is nothing to confirm");
    }

    #[test]
    fn only_a_replica_whose_group_waits_starts_unconfirmed() {
        assert_eq!(follower(true).unconfirmed(), EVERYTHING);
        assert_eq!(follower(false).unconfirmed(), Lsn::ZERO);
        let leader: Role<&str> = Role::start(Remembered::default(), true);
        assert!(!leader.is_read_only() && leader.unconfirmed() == Lsn::ZERO);
    }

    #[test]
    fn a_leader_that_begins_to_follow_stays_unconfirmed_until_something_is_committed() {
        let remembered = Remembered { leader: Some("a"), is_unconfirmed: true, ..Remembered::default() };
        let mut role = Role::start(remembered, false);
        role.recovered(Lsn::ZERO, false);
        assert_eq!(role.confirm(Lsn::ZERO), (Confirmed::Known, false));
        assert!(role.remembered().is_unconfirmed);
        assert_eq!(role.confirm(at(4096)), (Confirmed::Known, true));
        assert!(!role.remembered().is_unconfirmed);
    }

    #[test]
    fn a_member_that_steps_down_shows_its_data_and_takes_no_writes_until_it_leads_again() {
        let mut role: Role<&str> = Role::start_member(Remembered::default());
        assert_eq!(role.lead(), 0);
        role.open();
        assert!(!role.is_replica() && role.begin_hand_over());
        role.step_down();
        assert!(role.is_replica() && role.is_read_only() && role.unconfirmed() == Lsn::ZERO);
        role.give_up_hand_over();
        assert!(role.is_read_only());
        assert_eq!(role.follow("b"), Follow::Reconnect);
        assert_eq!((role.leader(), role.unconfirmed()), (Some(&"b"), Lsn::ZERO));
    }

    #[test]
    fn a_hand_over_stops_writes_and_then_follows_the_new_leader() {
        let mut role = Role::start(Remembered::default(), false);
        assert!(role.begin_hand_over() && role.is_read_only() && role.leader().is_none());
        assert!(!role.begin_hand_over(), "one at a time");
        role.give_up_hand_over();
        assert!(!role.is_read_only());
        assert!(role.begin_hand_over() && role.yield_to_replica(7));
        role.hand_over("b");
        assert_eq!(role.leader(), Some(&"b"));
        assert!(role.unconfirmed() == EVERYTHING && role.remembered().is_unconfirmed);
        assert_eq!(role.follow("b"), Follow::Already);
    }

    #[test]
    fn a_leader_follows_its_successor_only_while_nothing_else_was_decided() {
        let yielded = || {
            let mut role: Role<&str> = Role::start(Remembered::default(), false);
            assert!(role.begin_hand_over() && role.yield_to_replica(7));
            role
        };
        let mut role = yielded();
        assert!(!role.follow_successor("b", 7) && role.is_fenced(), "that is its own epoch");
        assert!(role.follow_successor("b", 8) && role.leader() == Some(&"b") && !role.is_fenced());
        let mut role = yielded();
        assert!(role.fence(100) && !role.follow_successor("b", 99), "a third server leads");
        let mut role = yielded();
        role.resume(7);
        assert!(!role.follow_successor("b", 8) && role.leader().is_none(), "this server leads on");
        let mut role = yielded();
        role.follow("c");
        assert!(
            !role.follow_successor("b", 8) && role.leader() == Some(&"c"),
            "it was told to follow another one"
        );
    }

    #[test]
    fn a_fenced_leader_leads_only_after_it_was_told_to() {
        let mut role: Role<&str> = Role::start(Remembered::default(), false);
        assert!(role.fence(7));
        assert!(!role.fence(7) && role.fence(8), "only a higher epoch is news");
        let mut role = Role::start(role.remembered().clone(), false);
        assert!(role.is_read_only() && !role.is_shown_as_replica() && role.unconfirmed() == EVERYTHING);
        assert_eq!(role.lead(), 8);
        assert!(role.is_read_only() && role.is_shown_as_replica(), "not before it is opened");
        role.open();
        assert!(
            !role.is_read_only()
                && !role.is_shown_as_replica()
                && *role.remembered() == Remembered::default()
        );
        let mut replica = follower(false);
        assert!(!replica.fence(9), "it takes no writes anyway");
    }

    #[test]
    fn an_epoch_that_is_outbid_fences_no_more() {
        let mut role: Role<&str> = Role::start(Remembered::default(), false);
        assert!(role.fence(8));
        assert_eq!(role.lead(), 8);
        assert!(!role.fence(8) && !role.is_fenced(), "a replica tells of it again before the restart");
        assert_eq!(role.lead(), 8, "a second order outbids it, too");
        assert!(role.fence(9) && role.is_fenced());
        assert_eq!(role.lead(), 9);
    }

    #[test]
    fn a_leader_fenced_during_a_hand_over_stays_fenced() {
        let mut role: Role<&str> = Role::start(Remembered::default(), false);
        assert!(role.begin_hand_over() && role.is_handing_over() && role.fence(9));
        role.give_up_hand_over();
        assert!(role.is_read_only() && role.is_fenced() && !role.is_handing_over());
        assert!(!role.yield_to_replica(7), "there is nothing to hand over");
        assert!(!role.begin_hand_over(), "a fenced leader takes no writes");
        assert_eq!(role.remembered().fenced_by, 9);
        assert!(!follower(false).begin_hand_over());
    }

    #[test]
    fn a_leader_that_is_told_to_follow_during_a_hand_over_takes_no_writes_when_that_is_given_up() {
        let mut role = Role::start(Remembered::default(), false);
        assert!(role.begin_hand_over());
        assert_eq!(role.follow("b"), Follow::Restart);
        role.give_up_hand_over();
        assert!(role.is_read_only());
    }

    #[test]
    fn epochs_seen_as_leader_do_not_count_for_a_followed_server() {
        let mut role = follower(false);
        assert!(role.saw_epoch(5) && !role.saw_epoch(5) && !role.saw_epoch(4));
        assert_eq!(role.lead(), 0);
        assert_eq!(role.remembered().seen_epoch, 5);
        assert_eq!(role.follow("b"), Follow::Restart);
        assert_eq!(role.remembered().seen_epoch, 0);
        assert!(role.saw_epoch(6));
        assert_eq!(role.follow("c"), Follow::Reconnect);
        assert_eq!(role.remembered().seen_epoch, 6, "one leader after another");
        assert!(role.forget_epochs() && role.remembered().seen_epoch == 0);
        assert!(!role.forget_epochs(), "nothing is news");
        assert_eq!(role.leader(), Some(&"c"));
    }

    #[test]
    fn a_leader_that_has_told_a_replica_to_lead_takes_no_writes_even_after_a_restart() {
        let mut role: Role<&str> = Role::start(Remembered::default(), false);
        assert!(role.begin_hand_over() && role.yield_to_replica(7));
        let restarted = Role::start(role.remembered().clone(), false);
        assert!(restarted.is_read_only() && restarted.is_fenced() && restarted.unconfirmed() == EVERYTHING);
        role.fence(9);
        role.resume(7);
        assert!(role.is_fenced(), "another server leads");
        let mut role = Role::start(Remembered::default(), false);
        assert!(role.begin_hand_over() && role.yield_to_replica(7));
        role.resume(7);
        assert!(!role.is_read_only() && role.unconfirmed() == Lsn::ZERO);
        assert_eq!(*role.remembered(), Remembered::default(), "as if it had never begun");
        assert!(role.begin_hand_over() && role.yield_to_replica(7));
        role.hand_over("b");
        assert!(role.leader() == Some(&"b") && !role.is_fenced() && role.remembered().is_unconfirmed);
    }
}
