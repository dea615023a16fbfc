//! The network between servers: pieces of the log, and messages, which can be lost, late, repeated or out of
//! order.

use super::*;

impl World {
    pub(super) fn send(&mut self, message: Message) {
        let (from, to) = (message.from.get(), message.to.get());
        if self.cut_off.contains(&(from, to)) || !self.is_calm && self.prng.chance(3) {
            return;
        }
        let copies = if self.prng.chance(3) { 2 } else { 1 };
        for _ in 0..copies {
            let delay_us = match self.prng.below(100) {
                0..3 if !self.is_calm => self.prng.below(3_000_000),
                3..20 => self.prng.below(60_000),
                _ => self.prng.below(5_000),
            };
            self.messages.push(Some(message));
            self.at(delay_us, Event::Deliver { number: self.messages.len() - 1 });
        }
    }

    pub(super) fn deliver(&mut self, message: Message) {
        let to = message.to.get();
        let server = self.servers.get_mut(&to).expect("known");
        if server.running.is_none() {
            return;
        }
        if server.paused_until_us > self.now_us {
            server.delivered.push(message);
            return;
        }
        let now_us = self.local_us(to);
        self.with(to, |member| member.receive(&message, now_us));
    }

    /// Lets a follower without a connection join the leader that it knows.
    pub(super) fn choose_link(&mut self, number: u64) {
        let Some(running) = self.servers[&number].running.as_ref() else { return };
        if running.link.is_some() || running.opened.is_some() || !self.prng.chance(60) {
            return;
        }
        let target = match running.member.leadership() {
            Leadership::Follows { term, leader } => Some((term, leader.get())),
            // A server that is no member yet follows the server that the operator names.
            Leadership::Unknown { term } if running.member.members().voters == [id(1)] && number != 1 => {
                Some((term, 1))
            }
            _ => None,
        };
        let old = |world: &World| {
            let open = |(&other, server): (&u64, &Server)| Some((server.running.as_ref()?.opened?, other));
            world.servers.iter().filter_map(open).find(|(_, other)| *other != number)
        };
        let target = if self.is_broken(Break::JoinsAnyLeader) { old(self).or(target) } else { target };
        let Some((term, leader)) = target else { return };
        let is_open = self.servers[&leader].running.as_ref().is_some_and(|running| {
            running.opened == Some(term)
                || running.opened.is_some()
                    && !matches!(
                        self.servers[&number].running.as_ref().map(|it| it.member.leadership()),
                        Some(Leadership::Follows { .. })
                    )
        });
        if !is_open || self.cut_off.contains(&(leader, number)) || self.cut_off.contains(&(number, leader)) {
            return;
        }
        let (own, theirs) = (&self.servers[&number].disk, &self.servers[&leader].disk);
        if own.log.len() < theirs.start {
            let is_voter = |it: &Running| it.member.members().voters.contains(&id(number));
            if self.servers[&leader].running.as_ref().is_some_and(is_voter) {
                self.violation(format!("{leader} has forgotten log that the voter {number} lacks"));
            }
            return;
        }
        // Logs are compared only when they are durable on both sides.
        if own.durable < own.log.len() {
            return;
        }
        let same = own.log.iter().zip(&theirs.log[..theirs.durable]).take_while(|(a, b)| a == b).count();
        if same < own.log.len() {
            self.figures.cuts += 1;
            let committed = self.servers[&number].running.as_ref().map_or(0, |running| running.committed);
            let same = if self.is_broken(Break::CutsCommitted) { same / 2 } else { same };
            if same < committed && !self.is_broken(Break::CutsCommitted) {
                return self
                    .violation(format!("{number} would cut at {same} what is committed up to {committed}"));
            }
            let server = self.servers.get_mut(&number).expect("known");
            server.disk.log.truncate(same);
            (server.disk.durable, server.disk.committed) = (same, server.disk.committed.min(same));
            return self.restart(number);
        }
        let position = own.log.len();
        let incarnation = self.servers[&number].incarnation;
        if let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) {
            running.link = Some((Link { leader: id(leader), term }, position));
        }
        // The logs are equal. The member is told so at once, because nothing may be written for a while.
        let (link, now_us) = (Link { leader: id(leader), term }, self.local_us(number));
        self.with(number, |member| _ = member.accept(link, &[], Lsn::ZERO, now_us));
        self.at(1_000, Event::Pull { server: number, incarnation });
    }

    /// The next piece of the leader's log arrives.
    pub(super) fn pull(&mut self, number: u64) {
        let Some((link, position)) = self.servers[&number].running.as_ref().and_then(|running| running.link)
        else {
            return;
        };
        let leader = link.leader.get();
        let incarnation = self.servers[&number].incarnation;
        let is_cut_off = self.cut_off.contains(&(leader, number));
        let serves = self.servers[&leader].running.as_ref().is_some_and(|running| {
            running.opened == Some(link.term)
                || !matches!(
                    self.servers[&number].running.as_ref().map(|it| it.member.leadership()),
                    Some(Leadership::Follows { .. })
                )
        });
        let paused = self.servers[&number].paused_until_us > self.now_us;
        let delay_us = if self.prng.chance(5) && !self.is_calm { 200_000 } else { 8_000 };
        let delay_us = 500 + self.prng.below(delay_us);
        if is_cut_off || !serves || self.prng.below(300) == 0 {
            if let Some(running) = self.servers.get_mut(&number).and_then(|server| server.running.as_mut()) {
                running.link = None;
            }
            return;
        }
        self.at(delay_us, Event::Pull { server: number, incarnation });
        if paused {
            return;
        }
        let most = position + 1 + self.prng.below(20) as usize;
        let source = &self.servers[&leader];
        let until = source.disk.durable.min(most);
        if until <= position || source.disk.log.len() < until {
            return;
        }
        let commit = end_of(source.running.as_ref().map_or(0, |running| running.committed));
        let piece = source.disk.log[position..until].to_vec();
        let mut offered = batches(&source.disk.log[..until], position);
        let now_us = self.local_us(number);
        let is_member = {
            let running = self.servers[&number].running.as_ref().expect("it runs");
            matches!(running.member.leadership(), Leadership::Follows { .. })
        };
        let mut accepted = true;
        if is_member || !self.servers[&number].disk.log.is_empty() && self.knows_itself(number) {
            self.with(number, |member| accepted = member.accept(link, &offered, commit, now_us).is_ok());
        } else {
            // A server that copies everything is a replica meanwhile. It becomes a member when it starts with
            // the copy.
            let server = self.servers.get_mut(&number).expect("known");
            server.disk.log.extend(piece);
            server.disk.durable = server.disk.log.len();
            return self.restart(number);
        }
        offered.clear();
        let Some(server) = self.servers.get_mut(&number).filter(|server| server.running.is_some()) else {
            return;
        };
        if accepted && server.incarnation == incarnation {
            server.disk.log.extend(piece);
        }
        if let Some(running) = &mut server.running {
            running.link = accepted.then_some((link, server.disk.log.len()));
        }
    }

    pub(super) fn knows_itself(&self, number: u64) -> bool {
        let members = members_of(&self.servers[&number].disk.log);
        members.voters.contains(&id(number)) || members.learners.contains(&id(number))
    }
}
