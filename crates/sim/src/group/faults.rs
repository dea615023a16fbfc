//! The faults of a simulated group.

use consensus::{ELECTION_US, MemberId, Members};
use env::sim::{CrashMode, FaultKind, FaultPlan};
use membership::Roster;

use super::{Event, GroupFault, GroupWorld, SERVERS, server::Part};
use crate::cluster::network::NodeId;

/// The shortest time from the copy of a disk to its loss, and the time after which a loss that was not
/// allowed is tried again, in microseconds.
const AGAIN_US: u64 = 50_000;

impl GroupWorld {
    /// A plan for one of the next `ios` I/Os, chosen at random: the machine stops in that I/O, or the I/O
    /// fails.
    pub(super) fn plan_for_next(&mut self, id: NodeId, ios: u64) -> FaultPlan {
        let io = self.servers[id].disk.io_count() + self.prng.below(ios);
        match self.prng.below(10) {
            0..6 => FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() },
            kind => {
                let kind = [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite][kind as usize % 3];
                FaultPlan { fail_io: Some((io, kind)), ..FaultPlan::default() }
            }
        }
    }

    /// A fault of a server, of the network, or of a disk; or the end of such faults.
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        let mut one = self.prng.index(SERVERS);
        let leads = |id: &NodeId| {
            self.servers[*id].running.as_ref().is_some_and(|it| matches!(it.part, Part::Leading(_)))
        };
        let leader = (0..SERVERS).find(leads);
        if let Some(leader) = leader
            && self.prng.chance(40)
        {
            one = leader;
        }
        let other = self.prng.index(SERVERS);
        match self.prng.below(23) {
            0..2 => self.crash(one, CrashMode::KeepAll),
            2..5 => self.crash(one, CrashMode::Random),
            5..7 => {
                let pause_us = [200_000, 1_000_000, 3_000_000][self.prng.index(3)];
                self.servers[one].paused_until_us = self.now_us + self.prng.below(pause_us);
            }
            7 => self.servers[one].slow_until_us = self.now_us + self.prng.below(2_000_000),
            8 => {
                // One of the next I/Os, of the log or of the ballot, fails, or the machine stops in it.
                let plan = self.plan_for_next(one, 8);
                self.servers[one].disk.set_fault_plan(plan);
                self.servers[one].is_troubled = true;
            }
            9 => {
                let is_full = self.prng.chance(50);
                self.servers[one].disk.set_space_limit(is_full.then_some(0));
                self.servers[one].is_troubled |= is_full;
            }
            10 => {
                for other in 0..SERVERS {
                    self.network.block(one, other);
                    self.network.block(other, one);
                }
            }
            11 => {
                let hears = self.prng.chance(50);
                for other in 0..SERVERS {
                    if hears { self.network.block(one, other) } else { self.network.block(other, one) }
                }
            }
            12 => self.network.block(one, other),
            13 => {
                self.network.block(one, other);
                self.network.block(other, one);
            }
            14 => self.network.disturb(),
            15 => self.begin_to_forget(),
            16 => {
                // A server that is no member any more loses its disk, and joins anew.
                if self.servers[one].is_removed {
                    self.servers[one].lose_disk();
                    self.at(50_000, Event::Start(one));
                }
            }
            17 if self.prng.chance(50) => self.fail_power(),
            18..20 => self.begin_to_lose(one),
            _ => self.network.heal(),
        }
        Ok(())
    }

    /// The power of the whole site fails: any server may lose its unsynced data.
    pub(super) fn fail_power(&mut self) {
        self.figures.power_failures += 1;
        for id in 0..SERVERS {
            if self.servers[id].running.is_some() {
                self.crash(id, CrashMode::Random);
            }
        }
    }

    /// A copy of a member's disk is made, and later the disk itself is lost.
    fn begin_to_lose(&mut self, id: NodeId) {
        let server = &mut self.servers[id];
        if server.running.as_ref().is_some_and(|running| running.is_member) {
            server.older_disk = Some(server.disk.clone_state());
            let delay_us = AGAIN_US + self.prng.below(1_000_000);
            self.at(delay_us, Event::LoseDisk(id));
        }
    }

    /// The disk of a member is lost: now, or later if the group would not survive the loss now. The copy of
    /// the disk lacks the votes and acknowledgements that the member has sent since, so only
    /// [`GroupFault::GoesBackToAnOlderDisk`] uses it. Otherwise the server joins anew as another member, and
    /// the operator removes the lost member.
    pub(super) fn lose_disk(&mut self, id: NodeId) {
        if !self.may_lose(id) {
            return self.at(AGAIN_US, Event::LoseDisk(id));
        }
        let Some(older) = self.servers[id].older_disk.take() else { return };
        let now_ms = self.now_ms();
        self.network.crash(id, now_ms);
        self.figures.lost_members += 1;
        if self.has(GroupFault::GoesBackToAnOlderDisk) {
            self.servers[id].go_back_to(older);
        } else {
            self.lost.extend(self.servers[id].id);
            self.servers[id].lose_disk();
        }
        self.at(50_000, Event::Start(id));
    }

    /// Whether a member may be lost for ever: the other voters must be a majority, and all voters must know
    /// the present members. So no other member is lost already, and no change of members is in progress.
    fn may_lose(&self, id: NodeId) -> bool {
        let Some(leader) = self.leader().and_then(|leader| self.servers[leader].running.as_ref()) else {
            return false;
        };
        let members = &leader.known.in_force;
        let recorded = Roster::of(&leader.keyspace.data_settings());
        let knows = |voter: &MemberId| {
            let running = self.ids.get(voter).and_then(|&node| self.servers[node].running.as_ref());
            running.is_some_and(|it| it.votes.id() == *voter && it.known.in_force == *members)
        };
        self.servers[id].running.is_some()
            && leader.log.epoch() == self.truth.epoch()
            && recorded.is_some_and(|roster| roster.members() == *members)
            && members.voters.len() > 2
            && members.voters.iter().all(knows)
            && self.lost_of(members).is_none()
    }

    /// One of these members whose disk was lost.
    pub(super) fn lost_of(&self, members: &Members) -> Option<MemberId> {
        members.voters.iter().chain(&members.learners).find(|id| self.lost.contains(id)).copied()
    }

    /// Begins the schedule of TiKV issue 15035. A candidate does not hear of the leader for an election
    /// timeout, and is about to campaign. At that moment another voter, which has granted the leader its
    /// lease, restarts and is cut off from the leader.
    fn begin_to_forget(&mut self) {
        let leads = |id: &NodeId| {
            self.servers[*id].running.as_ref().is_some_and(|it| matches!(it.part, Part::Leading(_)))
        };
        let Some(leader) = (0..SERVERS).find(leads) else { return };
        let Some(running) = &self.servers[leader].running else { return };
        let nodes = running.known.in_force.voters.iter().filter_map(|voter| self.ids.get(voter).copied());
        let others: Vec<NodeId> = nodes.filter(|&node| node != leader).collect();
        if others.len() < 2 {
            return;
        }
        let first = self.prng.index(others.len());
        let (candidate, voter) = (others[first], others[(first + 1) % others.len()]);
        self.network.heal();
        self.network.block(leader, candidate);
        self.network.block(candidate, leader);
        // Without writes, the log of the candidate is not behind, so the other voters can still elect the
        // candidate.
        self.quiet_until_us = self.now_us + 5 * ELECTION_US;
        let delay_us = ELECTION_US + self.prng.below(2 * ELECTION_US);
        self.at(delay_us, Event::Forget { voter, leader, candidate });
    }

    pub(super) fn forget(&mut self, voter: NodeId, leader: NodeId) -> Result<(), String> {
        self.network.block(leader, voter);
        self.network.block(voter, leader);
        if self.servers[voter].running.is_some() {
            self.crash(voter, CrashMode::Random);
            self.at(0, Event::Start(voter));
        }
        Ok(())
    }
}
