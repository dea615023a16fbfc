//! One step of the durable channel thread: passes a piece of the log to the readers at the tail, and other
//! pieces to readers that have not caught up.

use std::mem;

use lsn::Lsn;

use super::{Reader, ReaderId, Readers};
use crate::durable::{DurableMessage, Position, ReaderEvent};

/// The result of reading a piece of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The log was read up to here, a batch boundary.
    UpTo(Lsn),
    /// There is nothing to read at the position yet.
    Nothing,
    /// The log no longer has the requested position; this is the oldest position that it has.
    Forgotten(Position),
}

/// Reads messages of the log for the readers of durable channels.
pub trait LogSource {
    /// Calls `each` for the messages of a piece of the log that begins at `from`, in order. Messages passed
    /// to `each` before [`Read::Forgotten`] is returned count as read.
    fn read(&mut self, from: Lsn, each: &mut dyn FnMut(&DurableMessage<'_>)) -> Read;
}

impl Readers {
    /// Passes one piece of the log to the readers at the tail. Then passes one piece to each reader that
    /// waits for the tail or the log to move, and one to the reader whose turn it is. Returns whether there
    /// may be more to do. If not, the next call is due when the log has grown or a
    /// [`Flow`](crate::durable::Flow) has woken the thread.
    pub fn step(&mut self, log: &mut impl LogSource) -> bool {
        let mut moved = self.tail.is_some_and(|tail| self.step_tail(tail, log));
        for id in mem::take(&mut self.early) {
            moved |= self.step_behind(id, log);
        }
        self.go_on();
        if let Some(id) = self.turns.pop_front() {
            moved |= self.step_behind(id, log);
        }
        moved || !self.turns.is_empty()
    }

    /// Adds waiting readers to `turns` again if half of their window is free.
    fn go_on(&mut self) {
        let window_bytes = self.window_bytes();
        let (readers, turns) = (&self.readers, &mut self.turns);
        self.waiting.retain(|id| {
            let waits = readers.get(id).is_some_and(|it| it.must_wait_still(window_bytes));
            if !waits {
                turns.push_back(*id);
            }
            waits
        });
    }

    fn step_tail(&mut self, tail: Lsn, log: &mut impl LogSource) -> bool {
        let (mut touched, window_bytes) = (Vec::new(), self.window_bytes());
        let Readers { readers, audiences, feeds, messages, .. } = self;
        let read = log.read(tail, &mut |message| {
            let Some(audience) = audiences.get_mut(message.channel) else { return };
            if audience.handed == 0 {
                touched.push(Box::<[u8]>::from(message.channel));
            }
            audience.hand_out(readers, feeds, message);
            *messages += audience.members.len() as u64;
        });
        // These messages are handed out, even if the read has ended because the log forgot the next ones.
        let mut slow = Vec::new();
        for channel in touched {
            let Some(audience) = self.audiences.get_mut(&channel) else { continue };
            let handed = mem::take(&mut audience.handed);
            for id in &audience.members {
                let Some(reader) = self.readers.get_mut(id) else { continue };
                reader.handed += handed;
                if reader.unsent() > window_bytes {
                    slow.push(*id);
                }
            }
        }
        let end = match read {
            Read::UpTo(end) => end,
            Read::Nothing => return false,
            Read::Forgotten(oldest) => {
                self.lose_tail(oldest);
                return true;
            }
        };
        self.tail = Some(end);
        for id in slow {
            // A reader may be listed once for each of its channels.
            if self.readers.get(&id).is_some_and(|reader| reader.behind.is_none()) {
                self.leave_behind(id, end);
            }
        }
        true
    }

    /// Passes a piece of the log to a reader that is behind and in none of the lists. Returns `false` if the
    /// reader waits for the log or the tail to move.
    fn step_behind(&mut self, id: ReaderId, log: &mut impl LogSource) -> bool {
        let (tail, feeds) = (self.tail, &mut self.feeds);
        let Some(reader) = self.readers.get_mut(&id) else { return true };
        let Some(at) = reader.behind else { return true };
        if tail.is_some_and(|tail| at >= tail) {
            return self.join_or_wait(id, tail);
        }
        let Reader { worker, channels, alone, .. } = &*reader;
        let (mut handed, mut messages) = (0, 0);
        let read = log.read(at, &mut |message| {
            let wants = channels.get(message.channel).is_some_and(|&after| message.position.lsn > after);
            if wants && tail.is_none_or(|tail| message.position.lsn <= tail) {
                handed += feeds[*worker].push(alone, message);
                messages += 1;
            }
        });
        reader.handed += handed;
        self.messages += messages;
        let end = match read {
            Read::UpTo(end) => end.min(tail.unwrap_or(end)),
            // If there is no tail, the reader starts one at its position. A tail that exists lies beyond the
            // readable log here; the reader joins it once it can read up to there.
            Read::Nothing => return self.join_or_wait(id, tail.or(Some(at))),
            Read::Forgotten(oldest) => {
                self.lose(id, oldest);
                return true;
            }
        };
        reader.behind = Some(end);
        if self.line_up(id) {
            self.join_if_there(id);
        }
        true
    }

    /// Lets a reader join at `tail` if it is there and wants all messages after it. Otherwise puts it in
    /// `early`, where it waits until the log or the tail moves. Returns whether the reader joins.
    ///
    /// `tail` is the position of the tail, or, if there is no tail, the reader's own position, which then
    /// becomes the tail. The caller makes sure that the reader has nothing to read before the tail.
    fn join_or_wait(&mut self, id: ReaderId, tail: Option<Lsn>) -> bool {
        let joins = self.may_join(id, tail);
        if joins {
            self.join(id);
        } else {
            self.early.push(id);
        }
        joins
    }

    // ---- messages that the log no longer holds ------------------------------------------------------------

    fn lose_tail(&mut self, oldest: Position) {
        let is_joined = |(_, reader): &(&ReaderId, &Reader)| reader.behind.is_none();
        let joined: Vec<ReaderId> = self.readers.iter().filter(is_joined).map(|(id, _)| *id).collect();
        let Some(tail) = self.tail else { return };
        for id in joined {
            let Some(reader) = self.readers.get_mut(&id) else { continue };
            reader.channels.values_mut().for_each(|after| *after = (*after).max(tail));
            self.leave_behind(id, tail);
            self.turns.retain(|other| *other != id);
            self.waiting.retain(|other| *other != id);
            self.lose(id, oldest);
        }
    }

    /// Handles messages that the log no longer has, for a reader that is behind and in none of the lists. The
    /// subscriptions that miss messages end; the others continue at the oldest position.
    fn lose(&mut self, id: ReaderId, oldest: Position) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        let lost = reader.channels.iter().filter(|(_, after)| **after < oldest.lsn);
        let lost: Vec<Box<[u8]>> = lost.map(|(channel, _)| channel.clone()).collect();
        reader.behind = Some(oldest.lsn.max(reader.behind.unwrap_or(oldest.lsn)));
        let worker = reader.worker;
        // The bytes that were handed out before may have filled the window.
        self.line_up(id);
        for channel in lost {
            self.end(id, &channel);
            self.feeds[worker].tell(ReaderEvent::Lost { reader: id, channel, oldest });
        }
    }
}
