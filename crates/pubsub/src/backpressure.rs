//! What holds back those who publish: an audience most of which is behind, or a worker that does not fetch its messages.
//!
//! ```text
//! connection takes too little -> Local::set_behind -> Presence of each of its topics: behind + 1
//! PUBLISH: behind of all topics of the message * 2 >= their subscribers -> Backpressure -> the publisher's next command waits
//! connection has caught up    -> Local::set_behind -> behind - 1 -> wake the workers that wait (see `waiting`)
//! ```
//!
//! What it is: the reason, and whether it still holds. What it is not: who waits, and for how long, which the server decides.
//!
//! Invariants
//! - A minority that is behind holds nobody back: half of those who get a message must be. Half is enough, as one of two workers may have
//!   less of the processor than the other: then all of its subscribers are behind and none of the other's.
//! - One subscriber holds nobody back, unless it is the only one.
//! - Asking costs a publisher one more word of a topic that it has read anyway.

use smallvec::SmallVec;

use crate::{hub::Hub, presence::WorkerSet, topic::Topic};

/// The topics that a message is for: its channel, if anybody has subscribed to it, and patterns.
pub(crate) type Topics = SmallVec<[Topic; 2]>;

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Backpressure {
    topics: Topics,
    /// Workers whose mailbox was full, and who has filled it.
    full: WorkerSet,
    sender: usize,
}

impl Backpressure {
    /// Of a message from this worker to these, if it is to be followed by a pause.
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

    /// Whether it is only for the sake of subscribers, who can be left behind: nobody waits for those for ever.
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
