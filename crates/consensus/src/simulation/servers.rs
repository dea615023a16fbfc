//! A server of the simulation: its start, its votes, its disk, its role, and its end.

use super::*;

impl World {
    pub(super) fn start(&mut self, number: u64) {
        if self.servers[&number].running.is_some() {
            return;
        }
        let (now_us, seed, is_witness) =
            (self.local_us(number), self.prng.next_u64(), self.is_witness(number));
        let raises = self.is_broken(Break::BeginsAnEpochAtItsStart);
        let fault = self.broken.and_then(|it| if let Break::Member(fault) = it { Some(fault) } else { None });
        let server = self.servers.get_mut(&number).expect("known");
        server.incarnation += 1;
        server.paused_until_us = 0;
        server.delivered.clear();
        let disk = &mut server.disk;
        disk.log.truncate(disk.durable);
        disk.committed = disk.committed.min(disk.log.len());
        let in_log = members_of(&disk.log);
        // The newest change is perhaps not committed yet. The change before it is committed, because
        // otherwise the newest change would not have been made.
        let changes = disk.log.iter().enumerate().filter(|(_, stored)| stored.members.is_some());
        let before_newest = changes.map(|(at, _)| at + 1).rev().nth(1).unwrap_or(0);
        let in_force_at = disk.in_force.as_ref().map_or(0, |(at, _)| *at).min(disk.log.len());
        disk.committed = disk.committed.max(before_newest).max(in_force_at);
        let is_committed = disk.in_force.as_ref().is_none_or(|(_, members)| *members == in_log);
        let (known, members) = match is_committed {
            true => (disk.log.len(), in_log),
            false => (disk.committed, members_before(&disk.log)),
        };
        let all = batches(&disk.log, 0);
        let mut ballot = disk.ballot;
        if raises {
            ballot = Ballot { term: ballot.term + 1, voted_for: Some(id(number)) };
        }
        let mut member = Member::start(Start {
            id: id(number),
            is_witness,
            members,
            configured_up_to: end_of(known),
            ballot,
            committed: disk.committed.checked_sub(1).map(|at| all[at]),
            batches: &all[disk.committed..],
            now_us,
            seed,
        });
        member.fault = fault;
        let (applied, committed) = (disk.log.len(), disk.committed);
        server.running = Some(Running {
            member,
            was_elected: false,
            opened: None,
            link: None,
            applied,
            committed,
            pending_change: None,
        });
        let incarnation = server.incarnation;
        let delay_us = self.prng.below(TICK_US);
        self.at(delay_us, Event::Tick { server: number, incarnation });
        self.at(delay_us, Event::Flush { server: number, incarnation });
        if raises {
            self.promote(number, ballot.term);
        }
    }

    /// Gives the member an input, and carries out the actions that follow.
    pub(super) fn with(&mut self, number: u64, input: impl FnOnce(&mut Member)) {
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        input(&mut running.member);
        let actions = running.member.take_actions();
        if let Some(ballot) = actions.ballot {
            self.figures.ballots += 1;
            self.servers.get_mut(&number).expect("known").disk.ballot = ballot;
            // The server crashes after it has saved the ballot and before it sends the messages.
            if !self.is_calm && self.prng.below(200) == 0 {
                return self.crash(number);
            }
        }
        for message in actions.messages {
            self.send(message);
        }
        if let Some(end) = actions.committed {
            self.commit(number, (end.get() / 4096) as usize);
        }
        if let Some(leadership) = actions.leadership {
            self.lead_or_follow(number, leadership);
        }
    }

    pub(super) fn commit(&mut self, number: u64, position: usize) {
        let server = &self.servers[&number];
        let log: Vec<Stored> = server.disk.log.get(..position).unwrap_or(&server.disk.log).to_vec();
        if log.len() < position {
            return self.violation(format!("{number} commits {position} of {}", log.len()));
        }
        let common = position.min(self.committed.len());
        if log[..common] != self.committed[..common] {
            return self.violation(format!("{number} commits another log, in the first {common} batches"));
        }
        if position > self.committed.len() {
            self.figures.acknowledged += position - self.committed.len();
            self.committed = log;
        }
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        running.committed = running.committed.max(position);
        running.applied = running.applied.max(position);
        if running.pending_change.is_some_and(|at| at < position) {
            running.pending_change = None;
        }
        // A change of members comes into force here when it is committed; the members are saved before that.
        let is_leader = running.opened.is_some();
        let members = members_of(&self.servers[&number].disk.log[..position]);
        if self.is_broken(Break::Member(Fault::CampaignsWithOldMembers)) && !is_leader {
            return;
        }
        if !self.is_broken(Break::ForgetsItsMembers) {
            let disk = &mut self.servers.get_mut(&number).expect("known").disk;
            if disk.in_force.as_ref().is_some_and(|(known, _)| *known > position) {
                // After a start, the commit position that the member knows may be lower than before.
                return self.with(number, |member| {
                    let members = member.members().clone();
                    member.configure(&members, end_of(position));
                });
            }
            disk.in_force = Some((position, members.clone()));
        }
        self.with(number, |member| member.configure(&members, end_of(position)));
        let server = self.servers.get_mut(&number).expect("known");
        if self.prng.chance(5) && server.disk.durable >= position {
            server.disk.committed = server.disk.committed.max(position);
        }
    }

    pub(super) fn lead_or_follow(&mut self, number: u64, leadership: Leadership) {
        let was_elected = self.servers[&number].running.as_ref().is_some_and(|running| running.was_elected);
        match leadership {
            Leadership::Leads { term } => {
                self.figures.elections += 1;
                self.figures.witness_elections += usize::from(self.is_witness(number));
                let incarnation = self.servers[&number].incarnation;
                if let Some(running) =
                    self.servers.get_mut(&number).and_then(|server| server.running.as_mut())
                {
                    (running.link, running.was_elected) = (None, true);
                }
                let delay_us = self.prng.below(50_000);
                self.at(delay_us, Event::Promote { server: number, incarnation, term });
            }
            // Unless all its batches are committed, a deposed leader must start again with an empty memory,
            // and with an engine that has only the batches on disk.
            _ if was_elected && !self.keeps_memory(number) => self.restart(number),
            _ => {
                if let Some(running) =
                    self.servers.get_mut(&number).and_then(|server| server.running.as_mut())
                {
                    running.link = None;
                }
            }
        }
    }

    /// Whether a deposed leader keeps its memory.
    pub(super) fn keeps_memory(&mut self, number: u64) -> bool {
        let server = self.servers.get_mut(&number).expect("known");
        let (end, Some(running)) = (server.disk.log.len(), &mut server.running) else { return false };
        let keeps = running.member.has_committed_all(end_of(end));
        if keeps {
            (running.was_elected, running.opened) = (false, None);
            self.figures.kept_memories += 1;
        }
        keeps
    }

    /// Begins the epoch of a leader, after everything that it has received is durable and applied.
    pub(super) fn promote(&mut self, number: u64, term: u64) {
        let raises = self.is_broken(Break::BeginsAnEpochAtItsStart);
        let length = self.servers[&number].disk.log.len();
        let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) else {
            return;
        };
        if running.member.leadership() != (Leadership::Leads { term }) && !raises {
            return;
        }
        running.opened = Some(term);
        running.applied = running.applied.max(length);
        if let Some(other) = self.leaders.insert(term, number)
            && other != number
        {
            self.violation(format!("{number} and {other} lead in term {term}"));
        }
        let log = &self.servers[&number].disk.log;
        let has_all = log.len() >= self.committed.len() && log[..self.committed.len()] == self.committed[..];
        // A later leader may have committed more.
        let is_newest = self.leaders.keys().all(|other| *other <= term);
        if !has_all && is_newest {
            self.violation(format!("{number} leads in term {term} without everything that is committed"));
        }
        self.append(number, None);
    }

    pub(super) fn append(&mut self, number: u64, members: Option<Members>) {
        let value = self.next_value;
        self.next_value += 1;
        let early = self.is_broken(Break::ProposesWhatIsNotDurable);
        let server = self.servers.get_mut(&number).expect("known");
        let Some(term) = server.running.as_ref().and_then(|running| running.opened) else { return };
        server.disk.log.push(Stored { epoch: term as u32, value, members });
        if let Some(running) = &mut server.running {
            running.applied = server.disk.log.len();
        }
        if early {
            let (now_us, last) = (self.local_us(number), self.servers[&number].disk.log.len() - 1);
            let batch = batches(&self.servers[&number].disk.log, last);
            self.with(number, |member| member.durable(&batch, now_us));
        }
    }

    /// Makes all bytes written so far durable.
    pub(super) fn flush(&mut self, number: u64) {
        let incarnation = self.servers[&number].incarnation;
        let delay_us = match self.prng.below(50) {
            0 => 300_000,
            1..10 => 30_000,
            _ => 3_000,
        };
        let delay_us = self.prng.below(delay_us).max(500);
        self.at(delay_us, Event::Flush { server: number, incarnation });
        let server = self.servers.get_mut(&number).expect("known");
        if server.paused_until_us > self.now_us || server.disk.durable == server.disk.log.len() {
            return;
        }
        let from = server.disk.durable;
        server.disk.durable = server.disk.log.len();
        let written = batches(&server.disk.log, from);
        let now_us = self.local_us(number);
        if !self.is_broken(Break::ProposesWhatIsNotDurable)
            || self.servers[&number].running.as_ref().is_some_and(|it| it.opened.is_none())
        {
            self.with(number, |member| member.durable(&written, now_us));
        }
    }

    pub(super) fn crash(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        if server.running.take().is_none() {
            return;
        }
        self.figures.crashes += 1;
        if self.prng.chance(30) {
            // The machine was started again, and its clock begins anew.
            server.clock.0 = self.prng.below(1 << 40);
        }
        // Some of the unsynced batches may have reached the disk.
        let written = server.disk.log.len() - server.disk.durable;
        let kept = self.prng.below(written as u64 + 1) as usize;
        server.disk.durable += kept;
        let delay_us = match self.prng.below(3) {
            0 => self.prng.below(20_000),
            _ => self.prng.below(2_000_000),
        };
        self.at(delay_us, Event::Start { server: number });
    }

    /// Restarts a server within the process. All that it has written becomes durable before.
    pub(super) fn restart(&mut self, number: u64) {
        let server = self.servers.get_mut(&number).expect("known");
        server.running = None;
        server.disk.durable = server.disk.log.len();
        let delay_us = self.prng.below(30_000);
        self.at(delay_us, Event::Start { server: number });
    }
}
