//! The subscribers of one topic on one worker. One subscriber, the common case, takes 8 bytes; several are in
//! a separate list.
//!
//! Invariants
//! - Positions have no gaps: when a member is removed, the last member is moved to its position and returned.
//! - A list belongs to one topic and holds at least two members.

use crate::subscriber_id::SubscriberId;

/// A list with more capacity than this is shrunk when it is mostly empty.
const CAPACITY_KEPT_MAX: usize = 64;

#[derive(Debug)]
pub(crate) enum Members {
    One(SubscriberId),
    /// The index of a list in [`Lists`].
    Many(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: Vec<Vec<SubscriberId>>,
    free: Vec<u32>,
}

impl Lists {
    /// Adds a member; returns its position.
    pub(crate) fn push(&mut self, members: &mut Members, subscriber: SubscriberId) -> u32 {
        match *members {
            Members::One(first) => {
                *members = Members::Many(self.insert(vec![first, subscriber]));
                1
            }
            Members::Many(list) => {
                let list = &mut self.lists[list as usize];
                list.push(subscriber);
                list.len() as u32 - 1
            }
        }
    }

    /// Removes the member at `position`; there are at least two members. Returns the member that is now at
    /// that position; `None` if `position` was the last position.
    pub(crate) fn swap_remove(&mut self, members: &mut Members, position: u32) -> Option<SubscriberId> {
        let Members::Many(index) = *members else { unreachable!("the last one leaves with the topic") };
        let list = &mut self.lists[index as usize];
        list.swap_remove(position as usize);
        let moved = list.get(position as usize).copied();
        if let [last] = list[..] {
            *members = Members::One(last);
            self.remove(index);
        } else if list.capacity() > CAPACITY_KEPT_MAX && list.len() < list.capacity() / 4 {
            list.shrink_to(list.len() * 2);
        }
        moved
    }

    pub(crate) fn as_slice<'m>(&'m self, members: &'m Members) -> &'m [SubscriberId] {
        match members {
            Members::One(one) => std::slice::from_ref(one),
            Members::Many(list) => &self.lists[*list as usize],
        }
    }

    fn insert(&mut self, list: Vec<SubscriberId>) -> u32 {
        if let Some(index) = self.free.pop() {
            self.lists[index as usize] = list;
            return index;
        }
        self.lists.push(list);
        self.lists.len() as u32 - 1
    }

    fn remove(&mut self, index: u32) {
        self.lists[index as usize] = Vec::new();
        self.free.push(index);
        if self.free.len() == self.lists.len() {
            *self = Lists::default();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_topic_costs_one_word_and_a_place_for_its_members() {
        assert_eq!(size_of::<Members>(), 8);
        assert_eq!(size_of::<crate::audience::Audience>(), 16);
    }

    proptest! {
        #[test]
        fn members_are_where_they_were_told(steps in prop::collection::vec((0..3usize, 0..6u32, any::<bool>()), 0..200)) {
            let mut lists = Lists::default();
            // The members of three topics, by position.
            let mut topics: [(Option<Members>, Vec<u32>); 3] = Default::default();
            for (topic, pick, comes) in steps {
                let (members, model) = &mut topics[topic];
                match members {
                    None => {
                        *members = Some(Members::One(SubscriberId::numbered(pick)));
                        model.push(pick);
                    }
                    Some(members) if comes => {
                        prop_assert_eq!(lists.push(members, SubscriberId::numbered(pick)) as usize, model.len());
                        model.push(pick);
                    }
                    Some(known) if model.len() > 1 => {
                        let position = pick as usize % model.len();
                        model.swap_remove(position);
                        let moved = lists.swap_remove(known, position as u32);
                        prop_assert_eq!(moved, model.get(position).map(|id| SubscriberId::numbered(*id)));
                    }
                    Some(_) => {
                        *members = None;
                        model.clear();
                    }
                }
                for (members, model) in &topics {
                    let expected: Vec<_> = model.iter().map(|id| SubscriberId::numbered(*id)).collect();
                    prop_assert_eq!(members.as_ref().map_or(&[][..], |it| lists.as_slice(it)), &expected[..]);
                }
            }
            let several = topics.iter().filter(|(_, model)| model.len() > 1).count();
            prop_assert_eq!(lists.lists.len() - lists.free.len(), several, "no list is left over");
        }
    }
}
