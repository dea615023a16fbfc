//! The index of the topics that have subscribers, by name. Publishers read the index without locks.
//!
//! The index is a concurrent map, with the protocol of entering and retiring (see
//! [`presence`](crate::presence)). Most subscriptions do not touch it: a worker enters a name with its first
//! subscriber of the name, and leaves it with its last.
//!
//! Changes are applied at once, unlike changes of patterns, which may wait until the end of a round. A change
//! copies nothing and wakes no worker.

use std::hash::{BuildHasher, Hash, Hasher};

use papaya::{Equivalent, HashMap};

use crate::topic::{Name, Topic};

#[derive(Debug, Default)]
pub(crate) struct Index {
    topics: HashMap<Topic, (), Hashed>,
}

impl Index {
    /// The result of `read` for the topic of this name; `None` if the index has no such topic.
    #[inline]
    pub(crate) fn read<R>(&self, name: &Name<'_>, read: impl FnOnce(&Topic) -> R) -> Option<R> {
        let topics = self.topics.pin();
        topics.get_key_value(name).map(|(topic, ())| read(topic))
    }

    /// Enters a worker that gets its first subscriber of the name.
    pub(crate) fn enter(&self, name: &Name<'_>, worker: usize) -> Topic {
        let topics = self.topics.pin();
        loop {
            if let Some((topic, ())) = topics.get_key_value(name) {
                if topic.presence().enter(worker) {
                    return topic.clone();
                }
                self.remove(topic);
            }
            let topic = Topic::new(*name);
            topic.presence().enter(worker);
            // The worker enters before the topic is inserted, because a topic that no worker has entered
            // would never be retired.
            if topics.try_insert(topic.clone(), ()).is_ok() {
                return topic;
            }
        }
    }

    /// Removes a worker whose last subscriber leaves; `true` if no worker has subscribers any more.
    pub(crate) fn leave(&self, topic: &Topic, worker: usize) -> bool {
        let retired = topic.presence().leave(worker);
        if retired {
            self.remove(topic);
        }
        retired
    }

    fn remove(&self, topic: &Topic) {
        let name = Name { bytes: topic.name(), hash: topic.half_hash() };
        // The condition keeps a newer topic of the same name.
        let _ = self.topics.pin().remove_if(&name, |known, ()| known.is(topic));
    }

    /// The number of topics.
    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Calls `each` for every name. Names that are entered or removed meanwhile may or may not be among them.
    pub(crate) fn for_each_name(&self, mut each: impl FnMut(&[u8])) {
        self.topics.pin().keys().for_each(|topic| each(topic.name()));
    }
}

/// A pass-through hasher: names carry their hash.
#[derive(Debug, Clone, Default)]
struct Hashed(u64);

impl BuildHasher for Hashed {
    type Hasher = Hashed;

    fn build_hasher(&self) -> Hashed {
        Hashed(0)
    }
}

impl Hasher for Hashed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("topics and names hash as one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hash for Topic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Topic::hash(self));
    }
}

/// Topics are compared by name, because the index has at most one topic of each name.
impl PartialEq for Topic {
    fn eq(&self, other: &Topic) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Topic {}

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Name::hash(self));
    }
}

impl Equivalent<Topic> for Name<'_> {
    fn equivalent(&self, topic: &Topic) -> bool {
        topic.has_name(self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name<'_> {
        // All names have the same hash, but must still be distinguished.
        Name { bytes, hash: 7 }
    }

    #[test]
    fn a_name_has_one_living_topic() {
        let index = Index::default();
        let (a, again) = (index.enter(&name(b"a"), 0), index.enter(&name(b"a"), 1));
        assert!(a.is(&again) && index.len() == 1);
        assert!(!index.leave(&a, 0), "somebody is left");
        assert_eq!(index.read(&name(b"a"), |topic| topic.presence().count()), Some(1));
        assert!(index.leave(&again, 1));
        assert_eq!(index.read(&name(b"a"), |_| ()), None);
        let other = index.enter(&name(b"a"), 0);
        assert!(!other.is(&a), "a retired one is not used again");
    }

    #[test]
    fn names_are_listed() {
        let index = Index::default();
        let b = index.enter(&name(b"b"), 0);
        index.enter(&name(b""), 0);
        index.enter(&name(b"a"), 0);
        index.leave(&b, 0);
        let mut names = Vec::new();
        index.for_each_name(|name| names.push(name.to_vec()));
        names.sort();
        assert_eq!(names, [b"".to_vec(), b"a".to_vec()]);
    }

    #[test]
    fn threads_come_and_go_and_nothing_is_left() {
        let index = Index::default();
        std::thread::scope(|threads| {
            for worker in 0..4 {
                let index = &index;
                threads.spawn(move || {
                    for round in 0..20_000u32 {
                        let bytes = [(round % 3) as u8];
                        let topic = index.enter(&name(&bytes), worker);
                        let seen = index.read(&name(&bytes), |topic| {
                            topic.presence().workers().iter().any(|it| it == worker)
                        });
                        assert_eq!(seen, Some(true));
                        index.leave(&topic, worker);
                    }
                });
            }
        });
        assert_eq!(index.len(), 0);
    }
}
