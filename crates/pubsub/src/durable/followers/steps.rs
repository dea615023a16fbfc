//! What each step of the thread hands out: a piece of the log to those at the tail, one to the next of those who are behind.

use std::mem;

use lsn::Lsn;

use super::{Follower, FollowerId, Followers};
use crate::durable::{FollowerEvent, Message, Position};

/// What reading the log has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Up to here, a place between records.
    UpTo(Lsn),
    /// Nothing is there yet.
    Nothing,
    /// What should come next is not kept any more; this is the oldest position that is.
    Forgotten(Position),
}

/// Reads messages of the log.
pub trait LogSource {
    /// Calls `each` for the messages of a piece of the log that begins at `from`, in order. What it was called for before
    /// [`Read::Forgotten`] is told counts.
    fn read(&mut self, from: Lsn, each: &mut dyn FnMut(&Message<'_>)) -> Read;
}

impl Followers {
    /// Hands out a piece of the log to those at the tail, and one to the next of those who are behind. Returns whether there
    /// may be more to do; if not, the next call is due when the log has moved or a [`Flow`](crate::durable::Flow) has woken.
    pub fn step(&mut self, log: &mut impl LogSource) -> bool {
        let followed = self.tail.is_some_and(|tail| self.step_tail(tail, log));
        self.go_on();
        let read = self.turns.pop_front().is_some_and(|id| self.step_behind(id, log));
        followed || read || !self.turns.is_empty()
    }

    /// Those who have taken enough get their turns again.
    fn go_on(&mut self) {
        let window_bytes = self.window_bytes();
        let (followers, turns) = (&self.followers, &mut self.turns);
        self.waiting.retain(|id| {
            let waits = followers.get(id).is_some_and(|it| it.must_wait_still(window_bytes));
            if !waits {
                turns.push_back(*id);
            }
            waits
        });
    }

    fn step_tail(&mut self, tail: Lsn, log: &mut impl LogSource) -> bool {
        let (mut touched, window_bytes) = (Vec::new(), self.window_bytes());
        let Followers { followers, audiences, feeds, messages, .. } = self;
        let read = log.read(tail, &mut |message| {
            let Some(audience) = audiences.get_mut(message.channel) else { return };
            if audience.handed == 0 {
                touched.push(Box::<[u8]>::from(message.channel));
            }
            audience.hand_out(followers, feeds, message);
            *messages += audience.members.len() as u64;
        });
        let end = match read {
            Read::UpTo(end) => end,
            Read::Nothing => return false,
            Read::Forgotten(oldest) => {
                self.lose_tail(oldest);
                return true;
            }
        };
        self.tail = Some(end);
        let mut slow = Vec::new();
        for channel in touched {
            let Some(audience) = self.audiences.get_mut(&channel) else { continue };
            let handed = mem::take(&mut audience.handed);
            for id in &audience.members {
                let Some(follower) = self.followers.get_mut(id) else { continue };
                follower.handed += handed;
                if follower.unsent() > window_bytes {
                    slow.push(*id);
                }
            }
        }
        for id in slow {
            // It may be there more than once: for each of its channels.
            if self.followers.get(&id).is_some_and(|follower| follower.behind.is_none()) {
                self.leave_behind(id, end);
            }
        }
        true
    }

    /// One that is behind reads on. Returns whether it has done anything.
    fn step_behind(&mut self, id: FollowerId, log: &mut impl LogSource) -> bool {
        let window_bytes = self.window_bytes();
        let (tail, feeds) = (self.tail, &mut self.feeds);
        let Some(follower) = self.followers.get_mut(&id) else { return true };
        let Some(at) = follower.behind else { return true };
        if tail.is_some_and(|tail| at >= tail) {
            // The tail comes there, or takes it along.
            self.turns.push_back(id);
            self.join_if_there(id);
            return true;
        }
        let Follower { worker, channels, alone, .. } = &*follower;
        let (mut handed, mut messages) = (0, 0);
        let read = log.read(at, &mut |message| {
            let wants = channels.get(message.channel).is_some_and(|&after| message.position.lsn > after);
            if wants && tail.is_none_or(|tail| message.position.lsn <= tail) {
                handed += feeds[*worker].push(alone, message);
                messages += 1;
            }
        });
        follower.handed += handed;
        self.messages += messages;
        let end = match read {
            Read::UpTo(end) => end.min(tail.unwrap_or(end)),
            Read::Nothing => {
                // It has caught up, and is the first to.
                self.join(id);
                return true;
            }
            Read::Forgotten(oldest) => {
                self.lose(id, oldest);
                return true;
            }
        };
        follower.behind = Some(end);
        if follower.must_wait(window_bytes) {
            self.waiting.push(id);
        } else {
            self.turns.push_back(id);
            self.join_if_there(id);
        }
        true
    }

    // ---- what is not kept any more ---------------------------------------------------------------------------

    fn lose_tail(&mut self, oldest: Position) {
        let is_joined = |(_, follower): &(&FollowerId, &Follower)| follower.behind.is_none();
        let joined: Vec<FollowerId> = self.followers.iter().filter(is_joined).map(|(id, _)| *id).collect();
        let Some(tail) = self.tail else { return };
        for id in joined {
            let Some(follower) = self.followers.get_mut(&id) else { continue };
            follower.channels.values_mut().for_each(|after| *after = (*after).max(tail));
            self.leave_behind(id, tail);
            self.turns.retain(|other| *other != id);
            self.waiting.retain(|other| *other != id);
            self.lose(id, oldest);
        }
    }

    /// What comes next for one that is behind, and has no turn, is not kept: the subscriptions that want it end, the others go on
    /// at the oldest position.
    fn lose(&mut self, id: FollowerId, oldest: Position) {
        let Some(follower) = self.followers.get_mut(&id) else { return };
        let lost = follower.channels.iter().filter(|(_, after)| **after < oldest.lsn);
        let lost: Vec<Box<[u8]>> = lost.map(|(channel, _)| channel.clone()).collect();
        follower.behind = Some(oldest.lsn.max(follower.behind.unwrap_or(oldest.lsn)));
        let worker = follower.worker;
        self.turns.push_back(id);
        for channel in lost {
            self.end(id, &channel);
            self.feeds[worker].tell(FollowerEvent::Lost { follower: id, channel, oldest });
        }
    }
}
