//! The events of a group: writes and reads, changes of members, transfers, and faults.

use super::*;

impl World {
    /// Lets a witness forget log that all members have, and hand the lead on.
    pub(super) fn act_as_witness(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        let Some(running) = &server.running else { return };
        if let Some(held) = running.member.held_by_all() {
            let kept_from = ((held.get() / 4096) as usize).saturating_sub(CAUGHT_UP);
            self.figures.forgotten += kept_from.saturating_sub(server.disk.start);
            server.disk.start = server.disk.start.max(kept_from);
        }
        if running.opened.is_none() || !running.member.has_committed() || running.member.is_transferring() {
            return;
        }
        let end = end_of(server.disk.log.len());
        let voters = &running.member.members().voters;
        let has_all = |it: &Progress| voters.contains(&it.id) && it.durable >= Some(end);
        if let Some(to) = running.member.progress().into_iter().find(has_all) {
            let now_us = self.local_us(number);
            self.with(number, |member| _ = member.transfer(to.id, now_us));
        }
    }

    pub(super) fn client(&mut self) {
        let open: Vec<u64> = self
            .servers
            .iter()
            .filter(|(number, server)| {
                !self.is_witness(**number)
                    && server.paused_until_us <= self.now_us
                    && server.running.as_ref().is_some_and(|running| running.opened.is_some())
            })
            .map(|(&number, _)| number)
            .collect();
        for number in open {
            let now_us = self.local_us(number);
            let running = self.servers[&number].running.as_ref().expect("it runs");
            if running.member.lease_until_us() > now_us {
                self.figures.reads += 1;
                let log = &self.servers[&number].disk.log;
                if log.len() < self.committed.len() || log[..self.committed.len()] != self.committed[..] {
                    let text = format!("a read on {number} misses acknowledged writes, within its lease");
                    self.violation(text);
                    return;
                }
            }
            // There are no writes during a transfer; the member decides whether reads are still answered.
            let is_writable = !running.member.is_transferring();
            if is_writable && self.prng.chance(70) && self.now_us >= self.quiet_until_us {
                self.append(number, None);
            }
        }
    }

    /// Lets an operator change the members, or transfer the lead.
    pub(super) fn operate(&mut self) {
        let leads = |running: &Running| running.opened.is_some() && running.member.has_committed();
        let leader = self
            .servers
            .iter()
            .find(|(_, server)| server.running.as_ref().is_some_and(leads))
            .map(|(&number, _)| number);
        let Some(number) = leader.filter(|&number| !self.is_witness(number)) else { return };
        let now_us = self.local_us(number);
        if self.prng.chance(60) && !self.is_calm {
            let to = id(1 + self.prng.below(SERVERS));
            if self.is_witness(to.get()) {
                return;
            }
            self.figures.transfers += 1;
            self.with(number, |member| _ = member.transfer(to, now_us));
            if self.prng.chance(30) {
                // Messages that were sent before this still arrive, but the leader gets no message of the
                // election.
                for other in 1..=SERVERS {
                    self.cut_off.extend([(number, other), (other, number)]);
                }
            }
            return;
        }
        let running = self.servers[&number].running.as_ref().expect("it runs");
        if running.pending_change.is_some() || running.member.is_transferring() {
            return;
        }
        // Only one change is made at a time: the previous one must be committed and in force.
        let mut members = members_of(&self.servers[&number].disk.log);
        if members != *running.member.members() {
            return;
        }
        let progress = running.member.progress();
        let caught_up = |one: &MemberId| {
            let durable = progress.iter().find(|it| it.id == *one).and_then(|it| it.durable);
            durable.is_some_and(|durable| {
                durable.get() + CAUGHT_UP as u64 * 4096 > self.servers[&number].disk.log.len() as u64 * 4096
            })
        };
        if let Some(at) = members.learners.iter().position(caught_up) {
            let learner = members.learners.remove(at);
            members.voters.push(learner);
        } else {
            let one = id(1 + self.prng.below(SERVERS));
            if members.voters.contains(&one)
                && members.voters.len() > 1
                && one != id(number)
                && self.prng.chance(40)
            {
                members.voters.retain(|it| *it != one);
            } else if !members.voters.contains(&one) && !members.learners.contains(&one) {
                members.learners.push(one);
            } else {
                return;
            }
        }
        self.figures.changes += 1;
        let at = self.servers[&number].disk.log.len();
        self.servers.get_mut(&number).expect("known").running.as_mut().expect("it runs").pending_change =
            Some(at);
        self.append(number, Some(members));
    }

    pub(super) fn trouble(&mut self) {
        let one = 1 + self.prng.below(SERVERS);
        let leader = self
            .servers
            .iter()
            .find(|(_, server)| server.running.as_ref().is_some_and(|it| it.opened.is_some()));
        let one = leader.map(|(&number, _)| number).filter(|_| self.prng.chance(40)).unwrap_or(one);
        match self.prng.below(9) {
            0 | 1 => self.crash(one),
            // One voter has got no message of the leader for an election timeout when another voter restarts.
            7 => {
                let Some((one, candidate, voter)) = self.leader_and_voters() else { return };
                self.cut_off.clear();
                self.cut_off.extend([(one, candidate), (candidate, one)]);
                // Without writes, the voter that gets no messages can still be elected.
                self.quiet_until_us = self.now_us + 5 * ELECTION_US;
                let delay_us = ELECTION_US + self.prng.below(3 * ELECTION_US);
                self.at(delay_us, Event::Lease { voter, leader: one, candidate });
            }
            2 => {
                let pause_us = self.prng.below(3_000_000);
                self.servers.get_mut(&one).expect("known").paused_until_us = self.now_us + pause_us;
            }
            3 => {
                for other in 1..=SERVERS {
                    self.cut_off.extend([(one, other), (other, one)]);
                }
            }
            4 => {
                for other in 1..=SERVERS {
                    self.cut_off.insert(if self.prng.chance(50) { (one, other) } else { (other, one) });
                }
            }
            5 => {
                let other = 1 + self.prng.below(SERVERS);
                self.cut_off.insert((one, other));
            }
            _ => self.cut_off.clear(),
        }
    }

    /// A leader, and two other voters of its group.
    pub(super) fn leader_and_voters(&mut self) -> Option<(u64, u64, u64)> {
        let open = |(&number, server): (&u64, &Server)| {
            let running = server.running.as_ref().filter(|running| running.opened.is_some())?;
            let voters = running.member.members().voters.iter().map(|id| id.get());
            Some((number, voters.filter(|&voter| voter != number).collect::<Vec<u64>>()))
        };
        let (leader, voters) = self.servers.iter().find_map(open).filter(|(_, voters)| voters.len() > 1)?;
        let first = self.prng.index(voters.len());
        Some((leader, voters[first], voters[(first + 1) % voters.len()]))
    }
}
