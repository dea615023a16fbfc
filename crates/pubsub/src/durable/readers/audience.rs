//! The readers of one channel that are at the tail, by worker.

use std::{collections::HashMap, sync::Arc};

use super::{Reader, ReaderId};
use crate::durable::{DurableMessage, Feed};

#[derive(Debug, Default)]
pub(super) struct Audience {
    pub(super) members: Vec<ReaderId>,
    /// `members` by worker; empty if out of date.
    by_worker: Vec<(usize, Arc<[ReaderId]>)>,
    /// Bytes passed to each member in this step.
    pub(super) handed: u64,
}

impl Audience {
    pub(super) fn add(&mut self, id: ReaderId) {
        self.members.push(id);
        self.by_worker.clear();
    }

    /// Removes a member. Returns whether the audience is now empty.
    pub(super) fn remove(&mut self, id: ReaderId) -> bool {
        self.members.retain(|member| *member != id);
        self.by_worker.clear();
        self.members.is_empty()
    }

    pub(super) fn hand_out(
        &mut self,
        readers: &HashMap<ReaderId, Reader>,
        feeds: &mut [Feed],
        message: &DurableMessage<'_>,
    ) {
        if self.by_worker.is_empty() {
            let mut by_worker: HashMap<usize, Vec<ReaderId>> = HashMap::new();
            for id in &self.members {
                if let Some(reader) = readers.get(id) {
                    by_worker.entry(reader.worker).or_default().push(*id);
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
