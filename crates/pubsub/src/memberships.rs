//! The subscriptions of one kind of one subscriber, with the subscriber's position in each topic's members,
//! so that unsubscribing takes constant time.

use hashbrown::HashTable;

use crate::{
    audience::PLACES_KEPT_MAX,
    topic::{Name, Topic},
};

#[derive(Debug)]
struct Membership {
    topic: Topic,
    /// The subscriber's position among the topic's [`Members`](crate::members::Members) on this worker.
    position: u32,
}

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

    /// Removes a membership; returns the topic and the subscriber's position among its members.
    pub(crate) fn remove(&mut self, name: &Name<'_>) -> Option<(Topic, u32)> {
        let found = self.table.find_entry(name.hash(), |it| it.topic.has_name(name)).ok()?;
        let (Membership { topic, position }, _) = found.remove();
        if self.table.capacity() > PLACES_KEPT_MAX && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |it| it.topic.hash());
        }
        Some((topic, position))
    }

    /// Updates the subscriber's position among the members of a topic.
    pub(crate) fn moved(&mut self, topic: &Topic, position: u32) {
        let Some(membership) = self.table.find_mut(topic.hash(), |it| it.topic.is(topic)) else {
            unreachable!("who is among the members knows it");
        };
        membership.position = position;
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.table.iter().map(|it| &it.topic)
    }

    /// Up to `count` of the topics.
    pub(crate) fn some(&self, count: usize) -> Vec<Topic> {
        self.table.iter().take(count).map(|it| it.topic.clone()).collect()
    }
}
