//! Back-pressure on publishers: the reasons to delay a publisher's next command. A reason is an audience of
//! which at least half is behind, or a worker whose mailbox is full.
//!
//! ```text
//! connection falls behind    -> Local::set_behind -> Presence of each of its topics: behind + 1
//! PUBLISH: sum of behind over the message's topics * 2 >= sum of subscribers
//!                            -> Backpressure -> the publisher's next command waits
//! connection has caught up   -> Local::set_behind -> behind - 1 -> wake the waiting workers (see `waiting`)
//! ```
//!
//! This module determines whether there is a reason and whether it still holds. The server decides which
//! publishers wait, and for how long.
//!
//! Invariants
//! - A minority that is behind delays no publisher: at least half of a message's subscribers must be behind.
//!   Half is enough, because one of two workers may get less processor time than the other: then all
//!   subscribers of that worker are behind, and none of the other worker.
//! - A single subscriber that is behind delays no publisher, unless it is the only one.
//! - For the check, a publisher reads one more word of a topic that it reads anyway.

use smallvec::SmallVec;

use crate::{hub::Hub, presence::WorkerSet, topic::Topic};

/// The topics of a message: its channel, if it has subscribers, and the matching patterns.
pub(crate) type Topics = SmallVec<[Topic; 2]>;

/// Why the publisher of a message should wait before its next command.
#[derive(Debug, Clone)]
pub struct Backpressure {
    topics: Topics,
    /// Workers whose mailbox from `sender` was full.
    full: WorkerSet,
    sender: usize,
}

impl Backpressure {
    /// The reason to pause after a message from the worker `sender` to `receivers`; `None` if there is none.
    #[inline]
    pub(crate) fn of<'t>(
        hub: &Hub,
        sender: usize,
        receivers: WorkerSet,
        topics: impl Iterator<Item = &'t Topic> + Clone,
    ) -> Option<Backpressure> {
        let mut full = WorkerSet::default();
        for worker in receivers.iter().filter(|worker| hub.inboxes[*worker].is_full(sender)) {
            full = full.or(WorkerSet::one(worker));
        }
        let is_behind = is_mostly_behind(topics.clone());
        (is_behind || full != WorkerSet::default()).then(|| {
            let topics = if is_behind { topics.cloned().collect() } else { Topics::new() };
            Backpressure { topics, full, sender }
        })
    }

    /// Whether slow subscribers are the only reason to wait. A wait for subscribers may be bounded in time:
    /// the publisher then goes on although they are still behind. A publisher may not go on while a mailbox
    /// is full.
    pub fn is_of_subscribers(&self) -> bool {
        self.full == WorkerSet::default()
    }

    /// Whether there is still a reason to wait.
    pub fn holds(&self, hub: &Hub) -> bool {
        is_mostly_behind(self.topics.iter())
            || self.full.iter().any(|worker| hub.inboxes[worker].is_full(self.sender))
    }
}

fn is_mostly_behind<'t>(topics: impl Iterator<Item = &'t Topic>) -> bool {
    let (mut behind, mut all) = (0, 0);
    for topic in topics {
        behind += topic.presence().behind();
        all += topic.presence().count();
    }
    if behind == 1 { all == 1 } else { behind > 0 && behind * 2 >= all }
}
