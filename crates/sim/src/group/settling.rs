//! The end of a run: all faults are healed, and all members must get the same log and the same data.

use consensus::Member;
use env::sim::CrashMode;

use super::{
    Event, GroupWorld, SERVERS,
    server::{Part, Server},
};

/// The time within which a group without faults must come to rest.
const REST_US: u64 = 60_000_000;
/// The time between two checks whether the group has come to rest.
const LOOK_US: u64 = 100_000;

impl GroupWorld {
    /// Heals all faults, lets clients write until `until_us`, or longer if no write was acknowledged, and
    /// waits until all members are equal.
    ///
    /// # Errors
    /// A broken invariant, or if the group does not come to rest.
    pub(super) fn settle_down(&mut self, until_us: u64) -> Result<(), String> {
        self.is_calm = true;
        self.network.heal();
        for id in 0..SERVERS {
            self.servers[id].disk.set_space_limit(None);
            self.servers[id].paused_until_us = 0;
            if self.servers[id].is_troubled {
                self.crash(id, CrashMode::KeepAll);
            }
            if self.servers[id].incarnation > 0 {
                self.at(50_000, Event::Start(id));
            }
        }
        let before = self.truth.acknowledged();
        self.run_until(until_us)?;
        let mut end_us = until_us;
        while !(self.truth.acknowledged() > before && self.has_settled()) {
            end_us += LOOK_US;
            if end_us > until_us + REST_US {
                return Err(format!("has not come to rest: {}", self.described()));
            }
            if self.truth.acknowledged() > before {
                self.quiet_until_us = u64::MAX;
            }
            self.run_until(end_us)?;
        }
        self.compare()
    }

    /// The leader that has committed in its term, and so knows the committed position; `None` if there is
    /// none, or more than one.
    fn only_leader(&self) -> Option<&Server> {
        let leads = |it: &&Server| {
            it.running.as_ref().is_some_and(|running| {
                matches!(running.part, Part::Leading(_))
                    && running.votes.look(Member::has_committed) == Some(true)
            })
        };
        let mut leaders = self.servers.iter().filter(leads);
        leaders.next().filter(|_| leaders.next().is_none())
    }

    /// Whether a leader has committed its whole log, and all members have it, apply it and show it.
    fn has_settled(&self) -> bool {
        let Some(leader) = self.only_leader() else { return false };
        let Some(running) = &leader.running else { return false };
        let end = running.log.appended_lsn();
        let members = &running.known.in_force;
        // A shippable batch is durable, except at a voter that does not sync. There `shippable_lsn` may run
        // ahead of the disk, and the losses of the voter are to reveal this deliberate defect.
        let has_all = |id| {
            let Some(running) = self.ids.get(id).and_then(|&node| self.servers[node].running.as_ref()) else {
                return false;
            };
            let shows = matches!(running.part, Part::Leading(_)) || running.shows_as_follower();
            running.votes.id() == *id
                && running.log.shippable_lsn() == end
                && running.applied() == end
                && shows
        };
        running.known.is_in_force()
            && running.votes.committed() == end
            && running.votes.may_answer()
            && members.voters.iter().chain(&members.learners).all(has_all)
    }

    /// Checks that all members are equal, in their logs and in memory.
    fn compare(&self) -> Result<(), String> {
        let leader = self.only_leader().and_then(|leader| leader.running.as_ref());
        let members = leader.map(|leader| leader.known.in_force.clone()).unwrap_or_default();
        let mut of_all = None;
        for id in members.voters.iter().chain(&members.learners) {
            let Some(running) = self.ids.get(id).and_then(|&node| self.servers[node].running.as_ref()) else {
                return Err(format!("the member {id} is down"));
            };
            let chain =
                running.log.chain_at(running.log.shippable_lsn()).map_err(|error| error.to_string())?;
            let own = (running.keyspace.digest(), chain);
            if of_all.as_ref().is_some_and(|others| *others != own) {
                return Err(format!("the member {id} holds something else in its log or in memory"));
            }
            of_all = Some(own);
        }
        Ok(())
    }

    /// Describes the state of the group, for debugging.
    pub(super) fn described(&self) -> String {
        let mut text = format!("committed {}", self.truth.end());
        for server in &self.servers {
            let id = server.id.map_or("none".into(), |id| id.to_string());
            let state = server.running.as_ref().map_or("down".into(), |running| {
                let part = match &running.part {
                    Part::Following(following) => format!("follows {:?}", following.named),
                    Part::Promoted(term) => format!("promoted in {term}"),
                    Part::Leading(leading) => format!("leads {}", leading.term),
                };
                let known = running.votes.look(|member| {
                    format!("{:?}, {} voters", member.leadership(), member.members().voters.len())
                });
                let (in_force, roster) = (&running.known.in_force, running.known.roster.as_ref());
                let group = running.votes.state().group_id.clone();
                format!(
                    "{part}, {in_force:?} {roster:?} of {group}, log {}..{}, applied {}, committed {}, unsaved {}, {known:?}",
                    running.log.start_lsn(),
                    running.log.appended_lsn(),
                    running.applied(),
                    running.votes.committed(),
                    running.votes.is_unsaved(),
                )
            });
            let removed = server.is_removed;
            text += &format!(
                "\n{} ({id}, {} starts, removed {removed}): {state}",
                server.number, server.incarnation
            );
        }
        text
    }
}
