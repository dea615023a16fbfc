//! The followers of one channel that are at the tail, by worker.

use std::{collections::HashMap, sync::Arc};

use super::{Follower, FollowerId};
use crate::durable::{Feed, Message};

#[derive(Debug, Default)]
pub(super) struct Audience {
    pub(super) members: Vec<FollowerId>,
    /// `members` by worker; empty if out of date.
    by_worker: Vec<(usize, Arc<[FollowerId]>)>,
    /// Bytes handed out to each member in this step.
    pub(super) handed: u64,
}

impl Audience {
    pub(super) fn add(&mut self, id: FollowerId) {
        self.members.push(id);
        self.by_worker.clear();
    }

    /// Returns whether the audience is now empty.
    pub(super) fn remove(&mut self, id: FollowerId) -> bool {
        self.members.retain(|member| *member != id);
        self.by_worker.clear();
        self.members.is_empty()
    }

    pub(super) fn hand_out(
        &mut self,
        followers: &HashMap<FollowerId, Follower>,
        feeds: &mut [Feed],
        message: &Message<'_>,
    ) {
        if self.by_worker.is_empty() {
            let mut by_worker: HashMap<usize, Vec<FollowerId>> = HashMap::new();
            for id in &self.members {
                if let Some(follower) = followers.get(id) {
                    by_worker.entry(follower.worker).or_default().push(*id);
                }
            }
            self.by_worker = by_worker.into_iter().map(|(worker, ids)| (worker, ids.into())).collect();
        }
        let mut frame_bytes = 0;
        for (worker, to) in &self.by_worker {
            frame_bytes = feeds[*worker].push(to, message);
        }
        self.handed += frame_bytes;
    }
}
