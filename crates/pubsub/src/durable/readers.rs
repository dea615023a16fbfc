//! The readers of durable channels: readers at the tail, and readers behind the tail, which have not caught
//! up, each with a position of its own. The module [`steps`] passes messages to them.
//!
//! ```text
//!   log  ----m--m---------m----m---m----m--------|
//!            ^            ^             ^ tail: all that have caught up, by channel
//!            '- behind: a position each, a piece of the log at a time, in turn
//! ```
//!
//! Invariants
//! - The tail exists if and only if a reader is at it. A reader behind the tail never reads past it. A reader
//!   that begins beyond the tail waits until the tail has reached its position.
//! - A reader behind the tail gets no messages from the tail, and a reader at the tail gets all its messages
//!   from there. So no message is delivered twice.
//! - If a subscription begins beyond its reader's position, the channel's messages in between are skipped.
//!   Until the reader has passed them, it does not join the tail, where it would get them.

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
use super::{Feed, Flow, Position, ReaderEvent};

/// The bytes that all windows together should not exceed: each reader has an equal share, but at least
/// [`WINDOW_BYTES_MIN`].
const WINDOWS_BYTES: u64 = 512 << 20;
/// The smallest window of a reader, however many readers there are.
const WINDOW_BYTES_MIN: u64 = 128 << 10;

/// A client that reads durable channels. A client that becomes a reader anew, as after RESET, has a new
/// generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaderId {
    /// The id of the client in the list of clients.
    pub client_id: u64,
    /// How often the client has become a reader.
    pub generation: u32,
}

#[derive(Debug)]
struct Reader {
    worker: usize,
    flow: Arc<Flow>,
    /// The bytes that were sent to earlier readers with the same flow, and all bytes passed to this reader.
    handed: u64,
    /// The channels of the reader, each with the position after which its subscription begins.
    channels: HashMap<Box<[u8]>, Lsn>,
    /// The position of the reader; `None` if it is at the tail.
    behind: Option<Lsn>,
    /// A list of only this reader, for runs that no other reader receives.
    alone: Arc<[ReaderId]>,
}

/// All readers of durable channels, with their output for each worker.
#[derive(Debug)]
pub struct Readers {
    readers: HashMap<ReaderId, Reader>,
    /// The channels of readers at the tail.
    audiences: HashMap<Box<[u8]>, Audience>,
    tail: Option<Lsn>,
    /// The number of readers at the tail.
    joined: usize,
    /// Readers behind the tail that can be served, in the order of their turns.
    turns: VecDeque<ReaderId>,
    /// Readers behind the tail that wait until half of their window is free.
    waiting: Vec<ReaderId>,
    /// Readers that have nothing to read and cannot join the tail, until the tail or the log moves.
    early: Vec<ReaderId>,
    feeds: Vec<Feed>,
    messages: u64,
    window_bytes: u64,
}

impl Reader {
    fn unsent(&self) -> u64 {
        self.handed - self.flow.taken().min(self.handed)
    }

    /// Whether the reader must wait because its window is exceeded; if so, requests a wake-up when half of
    /// the window is free. Returns `false` if half of the window has become free meanwhile.
    fn must_wait(&self, window_bytes: u64) -> bool {
        self.unsent() > window_bytes && self.flow.want(self.handed - window_bytes / 2)
    }

    /// Does the same as [`Reader::must_wait`], for a reader that waits already. Such a reader must wait until
    /// half of the window is free.
    fn must_wait_still(&self, window_bytes: u64) -> bool {
        self.unsent() > window_bytes / 2 && self.flow.want(self.handed - window_bytes / 2)
    }

    /// Whether the subscriptions of all channels of the reader begin at or before `lsn`.
    fn wants_all_behind(&self, lsn: Lsn) -> bool {
        self.channels.values().all(|after| *after <= lsn)
    }
}

impl Readers {
    /// A set without readers. A reader with more than `window_bytes` unsent bytes gets no more messages until
    /// half of this window is free.
    pub fn new(workers: usize, window_bytes: u64) -> Readers {
        Readers {
            readers: HashMap::new(),
            audiences: HashMap::new(),
            tail: None,
            joined: 0,
            turns: VecDeque::new(),
            waiting: Vec::new(),
            early: Vec::new(),
            feeds: (0..workers).map(|_| Feed::default()).collect(),
            messages: 0,
            window_bytes,
        }
    }

    /// Whether there are no readers.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// The position of the readers that have caught up; `None` if there are none.
    pub fn tail(&self) -> Option<Lsn> {
        self.tail
    }

    /// The lowest position at which a reader waits for the log to grow; `None` if no reader waits.
    pub fn waits_at(&self) -> Option<Lsn> {
        let early = self.early.iter().filter_map(|id| self.readers.get(id)?.behind);
        early.chain(self.tail).min()
    }

    /// The number of readers that are not at the tail.
    pub fn behind(&self) -> usize {
        self.turns.len() + self.waiting.len() + self.early.len()
    }

    /// The number of readers, those at the tail included.
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// Unsent bytes above which a reader must wait: the configured window, or less if many share
    /// [`WINDOWS_BYTES`].
    fn window_bytes(&self) -> u64 {
        let share = WINDOWS_BYTES / self.readers.len().max(1) as u64;
        self.window_bytes.min(share.max(WINDOW_BYTES_MIN))
    }

    /// The number of messages passed to readers so far, counted once per reader.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Calls `each` with the feed of each worker that has one, and empties the feeds.
    pub fn take_feeds(&mut self, mut each: impl FnMut(usize, Feed)) {
        for (worker, feed) in self.feeds.iter_mut().enumerate().filter(|(_, feed)| !feed.is_empty()) {
            each(worker, mem::take(feed));
        }
    }

    /// Sends an event that changes no state here, such as a refusal.
    pub fn tell(&mut self, worker: usize, told: ReaderEvent) {
        self.feeds[worker].tell(told);
    }

    // ---- subscriptions ------------------------------------------------------------------------------------

    /// Subscribes to the messages of a channel after `position`. Reading begins at `at`, a batch boundary at
    /// or before `position`.
    pub fn subscribe(
        &mut self,
        (id, worker, flow): (ReaderId, usize, Arc<Flow>),
        channel: Box<[u8]>,
        position: Position,
        at: Lsn,
    ) {
        self.feeds[worker].tell(ReaderEvent::Subscribed { reader: id, channel: channel.clone(), position });
        let Some(reader) = self.readers.get_mut(&id) else {
            let channels = HashMap::from([(channel, position.lsn)]);
            let reader = Reader {
                worker,
                handed: flow.taken(),
                flow,
                channels,
                behind: Some(at),
                alone: Arc::new([id]),
            };
            self.readers.insert(id, reader);
            self.turns.push_back(id);
            return self.join_if_there(id);
        };
        let stands_at = reader.behind.or(self.tail).unwrap_or(at);
        if at == stands_at && position.lsn <= stands_at && reader.behind.is_none() {
            if reader.channels.insert(channel.clone(), position.lsn).is_none() {
                self.audiences.entry(channel).or_default().add(id);
            }
            return;
        }
        // The reader goes back to the start of the new subscription, if that lies before the reader's
        // position. The reader has received all messages of its other channels up to its present position, so
        // the subscriptions to these channels now begin there or later.
        reader.channels.values_mut().for_each(|after| *after = (*after).max(stands_at));
        reader.channels.insert(channel, position.lsn);
        if reader.behind.is_none() {
            self.leave_behind(id, at.min(stands_at));
        } else {
            reader.behind = Some(at.min(stands_at));
        }
    }

    /// Ends subscriptions and confirms them.
    pub fn unsubscribe(&mut self, id: ReaderId, worker: usize, channels: Vec<Box<[u8]>>) {
        channels.iter().for_each(|channel| self.end(id, channel));
        self.feeds[worker].tell(ReaderEvent::Unsubscribed { reader: id, channels });
    }

    /// Removes a reader, without an event.
    pub fn leave(&mut self, id: ReaderId) {
        let Some(reader) = self.readers.get(&id) else { return };
        let channels: Vec<Box<[u8]>> = reader.channels.keys().cloned().collect();
        channels.iter().for_each(|channel| self.end(id, channel));
    }

    /// Ends one subscription; with the last one, removes the reader.
    fn end(&mut self, id: ReaderId, channel: &[u8]) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        if reader.channels.remove(channel).is_none() {
            return;
        }
        let is_last = reader.channels.is_empty();
        if reader.behind.is_none() {
            self.remove_from_audience(id, channel);
            if is_last {
                self.depart();
            }
        } else if is_last {
            for places in [&mut self.waiting, &mut self.early] {
                places.retain(|other| *other != id);
            }
            self.turns.retain(|other| *other != id);
        }
        if is_last {
            self.readers.remove(&id);
        }
    }

    fn remove_from_audience(&mut self, id: ReaderId, channel: &[u8]) {
        if let Some(audience) = self.audiences.get_mut(channel)
            && audience.remove(id)
        {
            self.audiences.remove(channel);
        }
    }

    /// Uncounts a reader that has left the tail. When the last one leaves, the tail ends.
    fn depart(&mut self) {
        self.joined -= 1;
        if self.joined == 0 {
            self.tail = None;
        }
    }

    /// Moves a reader from the tail to a position of its own.
    fn leave_behind(&mut self, id: ReaderId, at: Lsn) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        reader.behind = Some(at);
        let channels: Vec<Box<[u8]>> = reader.channels.keys().cloned().collect();
        self.line_up(id);
        channels.iter().for_each(|channel| self.remove_from_audience(id, channel));
        self.depart();
    }

    /// Adds a reader that is behind to `turns`, or to `waiting` if its window is full. Returns whether the
    /// reader has a turn.
    fn line_up(&mut self, id: ReaderId) -> bool {
        let window_bytes = self.window_bytes();
        let has_turn = self.readers.get(&id).is_some_and(|reader| !reader.must_wait(window_bytes));
        if has_turn {
            self.turns.push_back(id);
        } else {
            self.waiting.push(id);
        }
        has_turn
    }

    /// Moves a reader to the tail if it has reached the tail's position. The reader must be the last in
    /// `turns`.
    fn join_if_there(&mut self, id: ReaderId) {
        if self.may_join(id, self.tail) {
            self.turns.pop_back();
            self.join(id);
        }
    }

    /// Whether a reader is at the position `tail`, and wants all messages of its channels after it.
    fn may_join(&self, id: ReaderId, tail: Option<Lsn>) -> bool {
        let Some(reader) = self.readers.get(&id) else { return false };
        reader.behind.is_some_and(|at| Some(at) == tail && reader.wants_all_behind(at))
    }

    fn join(&mut self, id: ReaderId) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        self.tail = reader.behind.take();
        self.joined += 1;
        for channel in reader.channels.keys() {
            self.audiences.entry(channel.clone()).or_default().add(id);
        }
    }
}

#[cfg(test)]
impl Readers {
    pub(super) fn is_behind(&self, id: ReaderId) -> bool {
        self.readers.get(&id).is_some_and(|reader| reader.behind.is_some())
    }
}
