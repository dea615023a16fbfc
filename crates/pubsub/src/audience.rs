//! The topics of one kind that one worker has subscribers of.
//!
//! Invariants
//! - An audience is never empty: it comes with its first member and goes with its last.

use hashbrown::HashTable;

use crate::{
    local::SubscriberId,
    members::Members,
    topic::{Name, Topic},
};

/// A table with fewer places than this is not worth giving memory back.
pub(crate) const PLACES_KEPT_MAX: usize = 64;

/// One topic and its subscribers.
#[derive(Debug)]
pub(crate) struct Audience {
    pub(crate) topic: Topic,
    pub(crate) members: Members,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Audiences {
    table: HashTable<Audience>,
}

impl Audiences {
    /// The subscribers of a topic.
    #[inline]
    pub(crate) fn members(&self, topic: &Topic) -> &[SubscriberId] {
        self.table.find(topic.hash(), |it| it.topic.is(topic)).map_or(&[], |it| it.members.as_slice())
    }

    pub(crate) fn find_mut(&mut self, name: &Name<'_>) -> Option<&mut Audience> {
        self.table.find_mut(name.hash(), |it| it.topic.has_name(name))
    }

    /// Adds a topic with its first subscriber.
    pub(crate) fn insert(&mut self, topic: Topic, first: SubscriberId) {
        let audience = Audience { topic, members: Members::One(first) };
        self.table.insert_unique(audience.topic.hash(), audience, |it| it.topic.hash());
    }

    /// Removes a member; returns whether the audience has gone with it, and who has taken its position.
    pub(crate) fn remove(&mut self, topic: &Topic, position: u32) -> (bool, Option<SubscriberId>) {
        let Ok(mut found) = self.table.find_entry(topic.hash(), |it| it.topic.is(topic)) else {
            unreachable!("who is a member of it has an audience");
        };
        if found.get().members.as_slice().len() > 1 {
            return (false, found.get_mut().members.swap_remove(position));
        }
        found.remove();
        if self.table.capacity() > PLACES_KEPT_MAX && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |it| it.topic.hash());
        }
        (true, None)
    }
}
