//! What one subscriber has subscribed to, of one kind, and where it stands among the others: so leaving takes constant time.

use hashbrown::HashTable;

use crate::{
    audience::PLACES_KEPT_MAX,
    topic::{Name, Topic},
};

#[derive(Debug)]
struct Membership {
    topic: Topic,
    /// Among the members of the worker's audience.
    position: u32,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    table: HashTable<Membership>,
}

impl Memberships {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn has(&self, name: &Name<'_>) -> bool {
        self.table.find(name.hash(), |it| it.topic.has_name(name)).is_some()
    }

    pub(crate) fn has_topic(&self, topic: &Topic) -> bool {
        self.table.find(topic.hash(), |it| it.topic.is(topic)).is_some()
    }

    pub(crate) fn insert(&mut self, topic: Topic, position: u32) {
        self.table.insert_unique(topic.hash(), Membership { topic, position }, |it| it.topic.hash());
    }

    /// Removes a membership; returns the topic and the position in it.
    pub(crate) fn remove(&mut self, name: &Name<'_>) -> Option<(Topic, u32)> {
        let found = self.table.find_entry(name.hash(), |it| it.topic.has_name(name)).ok()?;
        let (Membership { topic, position }, _) = found.remove();
        if self.table.capacity() > PLACES_KEPT_MAX && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |it| it.topic.hash());
        }
        Some((topic, position))
    }

    /// The subscriber stands somewhere else in a topic.
    pub(crate) fn moved(&mut self, topic: &Topic, position: u32) {
        let Some(membership) = self.table.find_mut(topic.hash(), |it| it.topic.is(topic)) else {
            unreachable!("who is among the members knows it");
        };
        membership.position = position;
    }

    /// All topics.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.table.iter().map(|it| &it.topic)
    }

    /// Up to so many of the topics.
    pub(crate) fn some(&self, count: usize) -> Vec<Topic> {
        self.table.iter().take(count).map(|it| it.topic.clone()).collect()
    }
}
