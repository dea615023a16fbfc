//! The work of an operator and of the leader on the members of the group: founding the group, adding,
//! promoting and removing members, and handing over the lead.

use consensus::{Member, MemberId, Members, TICK_US};
use lsn::Lsn;
use membership::{Listed, MEMBERS_MAX, Roster, changed_roster};

use super::{
    Event, GroupWorld, SERVERS,
    leading::HandingOver,
    server::{Part, Running},
};
use crate::cluster::{network::NodeId, node::Failure};

/// A learner that lacks at most this much of the log becomes a voter.
const CAUGHT_UP_BYTES: u64 = 64 << 10;
/// How long a hand-over may wait for the other member to have the whole log.
const TRANSFER_TIMEOUT_US: u64 = 1_500_000;

fn listed(id: MemberId, node: NodeId) -> Listed {
    Listed {
        id: id.to_string(),
        host: format!("server-{node}"),
        port: 6379,
        http_port: 80,
        is_voter: false,
        is_witness: false,
    }
}

impl GroupWorld {
    /// The first server, by number, that is not paused, leads and has committed in its term.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let leads = |id: &NodeId| {
            let server = &self.servers[*id];
            server.paused_until_us <= self.now_us
                && server.running.as_ref().is_some_and(|running| {
                    matches!(running.part, Part::Leading(_))
                        && running.votes.look(Member::has_committed) == Some(true)
                })
        };
        (0..SERVERS).find(leads)
    }

    /// The first leader of a group records itself as its member.
    pub(super) fn found(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(running) = &self.servers[id].running else { return Ok(()) };
        if running.known.roster.is_some() {
            return Ok(());
        }
        let own = Listed { is_voter: true, ..listed(running.votes.id(), id) };
        self.change_roster(id, |roster| match roster.members.is_empty() {
            true => {
                roster.members = vec![own];
                Ok(())
            }
            false => Err("the group has members".into()),
        })
        .map(drop)
    }

    /// Records a changed roster, if this server leads and no other change is in progress.
    fn change_roster(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Roster) -> Result<(), String>,
    ) -> Result<Option<Lsn>, Failure> {
        let Some(running) = &mut self.servers[id].running else { return Ok(None) };
        if !running.takes_writes() {
            return Ok(None);
        }
        let Ok(roster) = changed_roster(&running.votes, &running.keyspace.data_settings(), change) else {
            return Ok(None);
        };
        let Part::Leading(leading) = &mut running.part else { return Ok(None) };
        self.figures.changes += 1;
        leading.record(&running.keyspace, &roster).map(Some)
    }

    /// Makes a voter of a learner that has caught up. A leader without a roster founds the group instead.
    pub(super) fn promote_learner(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(running) = &self.servers[id].running else { return Ok(()) };
        if !running.takes_writes() {
            return Ok(());
        }
        let Some(roster) = &running.known.roster else { return self.found(id) };
        if roster.members.iter().all(|it| it.is_voter) {
            return Ok(());
        }
        let progress = running.votes.look(Member::progress).unwrap_or_default();
        let end = running.log.shippable_lsn();
        let has_caught_up = |listed: &&Listed| {
            let durable =
                progress.iter().find(|it| Some(it.id) == listed.member_id()).and_then(|it| it.durable);
            durable.is_some_and(|durable| durable.advance(CAUGHT_UP_BYTES) >= end)
        };
        let learner = roster.members.iter().filter(|it| !it.is_voter).find(has_caught_up);
        let Some(learner) = learner.map(|it| it.id.clone()) else { return Ok(()) };
        let changed = self.change_roster(id, |roster| {
            let learner = roster.members.iter_mut().find(|it| it.id == learner && !it.is_voter);
            learner.map(|learner| learner.is_voter = true).ok_or(String::new())
        });
        changed.map(drop)
    }

    /// A server that is no member asks the leader to add it to the group. Once the leader counts it as a
    /// member, it follows that leader.
    pub(super) fn join(&mut self, id: NodeId) -> Result<(), Failure> {
        let Some(leader) = self.leader().filter(|leader| self.network.reaches(id, *leader)) else {
            return Ok(());
        };
        let Some(running) = &self.servers[id].running else { return Ok(()) };
        let Part::Following(following) = &running.part else { return Ok(()) };
        if following.copies_from().is_some() || following.named.is_some_and(|(_, named)| named == leader) {
            return Ok(());
        }
        let own = running.votes.id();
        if running.votes.store().is_err() {
            return Ok(());
        }
        let Some(of_leader) = &self.servers[leader].running else { return Ok(()) };
        let in_force = |members: &Members| members.voters.contains(&own) || members.learners.contains(&own);
        if of_leader.votes.look(|member| in_force(member.members())) == Some(true) {
            let group_id = of_leader.votes.state().group_id.clone();
            if running.votes.joined(&group_id).is_err() {
                return Ok(());
            }
            self.servers[id].id = Some(own);
            return self.follow(id, None, leader);
        }
        self.ids.insert(own, id);
        let joiner = listed(own, id);
        self.wish(leader, move |roster| {
            let is_new = roster.find(own).is_none() && roster.members.len() < MEMBERS_MAX;
            if is_new {
                roster.members.push(joiner);
                return Ok(());
            }
            Err("it is a member".into())
        });
        Ok(())
    }

    /// Has a leader change its roster for a server that joins.
    fn wish(&mut self, leader: NodeId, change: impl FnOnce(&mut Roster) -> Result<(), String>) {
        // A failed disk shows at the leader's next act.
        let now_us = self.now_us;
        self.servers[leader].sync_clock(now_us);
        let _ = self.change_roster(leader, change);
    }

    /// An operator hands the lead over, removes a member, or has a server join that is new or was removed.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let members = |running: &Running| running.known.in_force.clone();
        let members = self.servers[leader].running.as_ref().map(members).unwrap_or_default();
        if let Some(gone) = self.lost_of(&members) {
            // This comes before any other change: if one more voter goes, there may be no majority.
            return self.remove(leader, gone);
        }
        let voters = members.voters;
        match self.prng.below(10) {
            0..4 if !voters.is_empty() => {
                let to = voters[self.prng.index(voters.len())];
                let cuts_off = !self.is_calm && self.prng.chance(25);
                self.act(leader, |world, id| world.begin_hand_over(id, to))?;
                if cuts_off {
                    // The leader may have begun the election by then, but hears nothing of it.
                    let delay_us = self.prng.below(4 * TICK_US);
                    self.at(delay_us, Event::CutOff(leader));
                }
                Ok(())
            }
            4..6 if voters.len() > 2 => {
                let gone = voters[self.prng.index(voters.len())];
                let own = self.servers[leader].id;
                if own == Some(gone) {
                    return Ok(());
                }
                self.remove(leader, gone)
            }
            _ => {
                // A server that was removed begins anew; a server that was never up starts.
                let spare = (0..SERVERS).find(|&id| self.servers[id].is_removed);
                let spare = spare.or_else(|| (0..SERVERS).find(|&id| self.servers[id].incarnation == 0));
                if let Some(id) = spare.filter(|_| self.prng.chance(50)) {
                    self.figures.lost_disks += u64::from(self.servers[id].incarnation > 0);
                    self.servers[id].lose_disk();
                    self.at(1_000, Event::Start(id));
                }
                Ok(())
            }
        }
    }

    fn remove(&mut self, leader: NodeId, gone: MemberId) -> Result<(), String> {
        self.act(leader, |world, id| {
            world
                .change_roster(id, |roster| {
                    roster.members.retain(|member| member.member_id() != Some(gone));
                    Ok(())
                })
                .map(drop)
        })
    }

    /// Ends writes, so that another voter can be elected once it has the whole log.
    fn begin_hand_over(&mut self, id: NodeId, to: MemberId) -> Result<(), Failure> {
        let server = &mut self.servers[id];
        let until_us = server.now_us() + TRANSFER_TIMEOUT_US;
        let Some(running) = &mut server.running else { return Ok(()) };
        let Part::Leading(leading) = &mut running.part else { return Ok(()) };
        if running.votes.id() == to || leading.handing_over.is_some() {
            return Ok(());
        }
        let dir = std::path::Path::new(super::server::MEMBER_DIR);
        if !running.standing.change(dir, |role| (role.begin_hand_over(), false))? {
            return Ok(());
        }
        running.log.end_for_handover()?;
        leading.handing_over = Some(HandingOver { to, until_us, has_begun: false });
        self.figures.transfers += 1;
        Ok(())
    }

    /// Continues a hand-over: the election begins when the other member has the whole log. Writes resume if
    /// that member does not have it in time, if the election cannot begin, or if this server still leads
    /// after the election.
    pub(super) fn step_hand_over(&mut self, id: NodeId) -> Result<(), Failure> {
        let server = &mut self.servers[id];
        let now_us = server.now_us();
        let Some(running) = &mut server.running else { return Ok(()) };
        let Part::Leading(leading) = &mut running.part else { return Ok(()) };
        let Some(handing_over) = &mut leading.handing_over else { return Ok(()) };
        let (to, end) = (handing_over.to, running.log.appended_lsn());
        let has_everything = |member: &Member| {
            let durable = member.progress().into_iter().find(|it| it.id == to).and_then(|it| it.durable);
            durable.is_some_and(|durable| durable >= end)
        };
        let has_failed = if handing_over.has_begun {
            let state = running.votes.look(|member| (member.leads(), member.is_transferring()));
            state == Some((true, false))
        } else if running.votes.look(has_everything) == Some(true) {
            handing_over.has_begun = true;
            let begun = running.votes.input(|member, now_us| member.transfer(to, now_us));
            begun.is_none_or(|begun| begun.is_err())
        } else {
            now_us >= handing_over.until_us
        };
        if has_failed {
            leading.handing_over = None;
            let dir = std::path::Path::new(super::server::MEMBER_DIR);
            running.standing.change(dir, |role| (role.give_up_hand_over(), false))?;
        }
        Ok(())
    }
}
