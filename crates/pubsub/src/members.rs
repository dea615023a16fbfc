//! The subscribers that one worker has of one topic: 16 bytes while there is one, which is the common case.
//!
//! Invariants
//! - Positions are dense: removing one moves the last one to its place, and says so.

use crate::local::SubscriberId;

/// A list above this many places gives memory back when it is mostly empty.
const CAPACITY_KEPT_MAX: usize = 64;

#[derive(Debug)]
pub(crate) enum Members {
    One(SubscriberId),
    // Boxed twice, so that the common case stays small.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<SubscriberId>>),
}

impl Members {
    /// Adds one; returns its position.
    pub(crate) fn push(&mut self, subscriber: SubscriberId) -> u32 {
        match self {
            Members::One(first) => {
                *self = Members::Many(Box::new(vec![*first, subscriber]));
                1
            }
            Members::Many(members) => {
                members.push(subscriber);
                members.len() as u32 - 1
            }
        }
    }

    /// Removes the one at `position`, of several; returns who is there now.
    pub(crate) fn swap_remove(&mut self, position: u32) -> Option<SubscriberId> {
        let Members::Many(members) = self else { unreachable!("the last one leaves with the topic") };
        members.swap_remove(position as usize);
        let moved = members.get(position as usize).copied();
        if let [last] = members[..] {
            *self = Members::One(last);
        } else if members.capacity() > CAPACITY_KEPT_MAX && members.len() < members.capacity() / 4 {
            members.shrink_to(members.len() * 2);
        }
        moved
    }

    pub(crate) fn as_slice(&self) -> &[SubscriberId] {
        match self {
            Members::One(one) => std::slice::from_ref(one),
            Members::Many(members) => members,
        }
    }
}
