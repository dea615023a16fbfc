//! The followers of durable channels: who stands at the tail, who is behind and where; [`steps`] hands out.
//!
//! ```text
//!   log  ----m--m---------m----m---m----m--------|
//!            ^            ^             ^ tail: all that have caught up, by channel
//!            '- behind: a position each, a piece of the log at a time, in turn
//! ```
//!
//! Invariants
//! - The tail exists if and only if somebody stands there. Who is behind never reads past it: it joins. One that begins further on
//!   waits until the tail has come there.
//! - A follower that is behind gets nothing from the tail, one at the tail nothing else: no message comes twice.
//! - Of a channel whose subscription begins further on than its follower stands, what lies between is passed over.

mod audience;
mod steps;

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
};

use lsn::Lsn;

use self::audience::Audience;
pub use self::steps::{LogSource, Read};
use super::{Feed, Flow, FollowerEvent, Position};

/// What all followers together may leave unsent, each an equal share of it.
const WINDOWS_BYTES: u64 = 512 << 20;
/// The least that is handed out ahead of a follower, however many there are.
const WINDOW_BYTES_MIN: u64 = 128 << 10;

/// A client that follows durable channels. One that has ended all of it at once (RESET) and begins again is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FollowerId {
    /// The session of the client.
    pub client_id: u64,
    /// How often it has begun.
    pub generation: u32,
}

#[derive(Debug)]
struct Follower {
    worker: usize,
    flow: Arc<Flow>,
    /// Bytes handed out to it, and before to whoever had its flow.
    handed: u64,
    /// Its channels, each with the position behind which it wants to hear of it.
    channels: HashMap<Box<[u8]>, Lsn>,
    /// Where it stands if that is not the tail.
    behind: Option<Lsn>,
    /// Itself, as runs have it.
    alone: Arc<[FollowerId]>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Followers {
    followers: HashMap<FollowerId, Follower>,
    /// Channels of followers at the tail.
    audiences: HashMap<Box<[u8]>, Audience>,
    tail: Option<Lsn>,
    /// How many stand at the tail.
    joined: usize,
    /// Those who are behind, in the order of their turns.
    turns: VecDeque<FollowerId>,
    /// Those who are behind and have to take something first.
    waiting: Vec<FollowerId>,
    feeds: Vec<Feed>,
    messages: u64,
    window_bytes: u64,
}

impl Follower {
    fn unsent(&self) -> u64 {
        self.handed - self.flow.taken().min(self.handed)
    }

    /// Too much is handed out; asks to be woken when half of the window is free. `false`: it is by now.
    fn must_wait(&self, window_bytes: u64) -> bool {
        self.unsent() > window_bytes && self.flow.want(self.handed - window_bytes / 2)
    }

    /// As [`Follower::must_wait`], of one that waits: until half of the window is free.
    fn must_wait_still(&self, window_bytes: u64) -> bool {
        self.unsent() > window_bytes / 2 && self.flow.want(self.handed - window_bytes / 2)
    }

    /// Whether it wants to hear of all its channels from `lsn` on, at the latest.
    fn wants_all_behind(&self, lsn: Lsn) -> bool {
        self.channels.values().all(|after| *after <= lsn)
    }
}

impl Followers {
    /// Nobody follows yet. For so many workers; with so many bytes handed out to a follower and not taken above which it is
    /// left behind.
    pub fn new(workers: usize, window_bytes: u64) -> Followers {
        Followers {
            followers: HashMap::new(),
            audiences: HashMap::new(),
            tail: None,
            joined: 0,
            turns: VecDeque::new(),
            waiting: Vec::new(),
            feeds: (0..workers).map(|_| Feed::default()).collect(),
            messages: 0,
            window_bytes,
        }
    }

    /// Whether nobody follows.
    pub fn is_empty(&self) -> bool {
        self.followers.is_empty()
    }

    /// Where those stand who have caught up; `None`: nobody has.
    pub fn tail(&self) -> Option<Lsn> {
        self.tail
    }

    /// How many are behind.
    pub fn behind(&self) -> usize {
        self.turns.len() + self.waiting.len()
    }

    /// The number of connected clients.
    pub fn len(&self) -> usize {
        self.followers.len()
    }

    /// Bytes handed out to a follower and not taken above which it is left behind.
    fn window_bytes(&self) -> u64 {
        let share = WINDOWS_BYTES / self.followers.len().max(1) as u64;
        self.window_bytes.min(share.max(WINDOW_BYTES_MIN))
    }

    /// Frames handed out so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Takes what there is for each worker.
    pub fn take_feeds(&mut self, mut each: impl FnMut(usize, Feed)) {
        for (worker, feed) in self.feeds.iter_mut().enumerate().filter(|(_, feed)| !feed.is_empty()) {
            each(worker, mem::take(feed));
        }
    }

    /// Tells a worker what has become of a request that changes nothing here.
    pub fn tell(&mut self, worker: usize, told: FollowerEvent) {
        self.feeds[worker].tell(told);
    }

    // ---- subscriptions ---------------------------------------------------------------------------------------

    /// A follower wants to hear of a channel, of all messages behind `position`. `at` is the place between batches at or before
    /// it to read from.
    pub fn subscribe(
        &mut self,
        (id, worker, flow): (FollowerId, usize, Arc<Flow>),
        channel: Box<[u8]>,
        position: Position,
        at: Lsn,
    ) {
        self.feeds[worker].tell(FollowerEvent::Subscribed {
            follower: id,
            channel: channel.clone(),
            position,
        });
        let Some(follower) = self.followers.get_mut(&id) else {
            let channels = HashMap::from([(channel, position.lsn)]);
            let follower = Follower {
                worker,
                handed: flow.taken(),
                flow,
                channels,
                behind: Some(at),
                alone: Arc::new([id]),
            };
            self.followers.insert(id, follower);
            self.turns.push_back(id);
            return self.join_if_there(id);
        };
        let stands_at = follower.behind.or(self.tail).unwrap_or(at);
        if at == stands_at && position.lsn <= stands_at && follower.behind.is_none() {
            if follower.channels.insert(channel.clone(), position.lsn).is_none() {
                self.audiences.entry(channel).or_default().add(id);
            }
            return;
        }
        // It goes back to where the channel begins; of the others it has heard up to where it stands.
        follower.channels.values_mut().for_each(|after| *after = (*after).max(stands_at));
        follower.channels.insert(channel, position.lsn);
        if follower.behind.is_none() {
            self.leave_behind(id, at.min(stands_at));
        } else {
            follower.behind = Some(at.min(stands_at));
        }
    }

    /// It wants to hear no more of these channels.
    pub fn unsubscribe(&mut self, id: FollowerId, worker: usize, channels: Vec<Box<[u8]>>) {
        channels.iter().for_each(|channel| self.end(id, channel));
        self.feeds[worker].tell(FollowerEvent::Unsubscribed { follower: id, channels });
    }

    /// It was removed.
    pub fn leave(&mut self, id: FollowerId) {
        let Some(follower) = self.followers.get(&id) else { return };
        let channels: Vec<Box<[u8]>> = follower.channels.keys().cloned().collect();
        channels.iter().for_each(|channel| self.end(id, channel));
    }

    /// Ends one subscription; with the last one the follower.
    fn end(&mut self, id: FollowerId, channel: &[u8]) {
        let Some(follower) = self.followers.get_mut(&id) else { return };
        if follower.channels.remove(channel).is_none() {
            return;
        }
        let is_last = follower.channels.is_empty();
        if follower.behind.is_none() {
            self.remove_from_audience(id, channel);
            if is_last {
                self.depart();
            }
        } else if is_last {
            self.turns.retain(|other| *other != id);
            self.waiting.retain(|other| *other != id);
        }
        if is_last {
            self.followers.remove(&id);
        }
    }

    fn remove_from_audience(&mut self, id: FollowerId, channel: &[u8]) {
        if let Some(audience) = self.audiences.get_mut(channel)
            && audience.remove(id)
        {
            self.audiences.remove(channel);
        }
    }

    /// One stands at the tail no more.
    fn depart(&mut self) {
        self.joined -= 1;
        if self.joined == 0 {
            self.tail = None;
        }
    }

    /// It stands at the tail and goes on at `at` by itself.
    fn leave_behind(&mut self, id: FollowerId, at: Lsn) {
        let window_bytes = self.window_bytes();
        let Some(follower) = self.followers.get_mut(&id) else { return };
        follower.behind = Some(at);
        if follower.must_wait(window_bytes) {
            self.waiting.push(id);
        } else {
            self.turns.push_back(id);
        }
        let channels: Vec<Box<[u8]>> = follower.channels.keys().cloned().collect();
        channels.iter().for_each(|channel| self.remove_from_audience(id, channel));
        self.depart();
    }

    /// If it has come to where the tail is, it joins those who stand there. It has its turn, the last one.
    fn join_if_there(&mut self, id: FollowerId) {
        let Some(follower) = self.followers.get(&id) else { return };
        if let Some(at) = follower.behind.filter(|_| follower.behind == self.tail)
            && follower.wants_all_behind(at)
        {
            self.turns.pop_back();
            self.join(id);
        }
    }

    fn join(&mut self, id: FollowerId) {
        let Some(follower) = self.followers.get_mut(&id) else { return };
        self.tail = follower.behind.take();
        self.joined += 1;
        for channel in follower.channels.keys() {
            self.audiences.entry(channel.clone()).or_default().add(id);
        }
    }
}

#[cfg(test)]
impl Followers {
    pub(super) fn is_behind(&self, id: FollowerId) -> bool {
        self.followers.get(&id).is_some_and(|follower| follower.behind.is_some())
    }
}
