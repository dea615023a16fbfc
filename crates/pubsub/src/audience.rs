//! The topics of one kind that have subscribers on one worker.
//!
//! Invariants
//! - An audience is never empty: it is created with its first member and removed with its last.

use hashbrown::HashTable;

use crate::{
    members::{Lists, Members},
    subscriber_id::SubscriberId,
    topic::{Name, Topic},
};

/// A table with at most this many places is never shrunk.
pub(crate) const PLACES_KEPT_MAX: usize = 64;

/// One topic and its subscribers.
#[derive(Debug)]
pub(crate) struct Audience {
    pub(crate) topic: Topic,
    pub(crate) members: Members,
}

#[derive(Debug, Default)]
pub(crate) struct Audiences {
    table: HashTable<Audience>,
    lists: Lists,
}

impl Audiences {
    #[inline]
    pub(crate) fn members(&self, topic: &Topic) -> &[SubscriberId] {
        let audience = self.table.find(topic.hash(), |it| it.topic.is(topic));
        audience.map_or(&[], |it| self.lists.as_slice(&it.members))
    }

    /// Adds a subscriber to a topic that has subscribers on this worker. Returns the topic and the
    /// subscriber's position among its members; `None` if this worker has no subscriber of the topic yet.
    pub(crate) fn add(&mut self, name: &Name<'_>, subscriber: SubscriberId) -> Option<(Topic, u32)> {
        let audience = self.table.find_mut(name.hash(), |it| it.topic.has_name(name))?;
        Some((audience.topic.clone(), self.lists.push(&mut audience.members, subscriber)))
    }

    /// Adds a topic with its first subscriber.
    pub(crate) fn insert(&mut self, topic: Topic, first: SubscriberId) {
        let audience = Audience { topic, members: Members::One(first) };
        self.table.insert_unique(audience.topic.hash(), audience, |it| it.topic.hash());
    }

    /// Removes a member. Returns whether the audience was removed too, because this was its last member, and
    /// the member that was moved to the position of the removed one.
    pub(crate) fn remove(&mut self, topic: &Topic, position: u32) -> (bool, Option<SubscriberId>) {
        let Ok(mut found) = self.table.find_entry(topic.hash(), |it| it.topic.is(topic)) else {
            unreachable!("who is a member of it has an audience");
        };
        let members = &mut found.get_mut().members;
        if matches!(members, Members::Many(_)) {
            return (false, self.lists.swap_remove(members, position));
        }
        found.remove();
        if self.table.capacity() > PLACES_KEPT_MAX && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |it| it.topic.hash());
        }
        (true, None)
    }
}
