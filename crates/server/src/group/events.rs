//! Publishes the changes of the group to the subscribers of this server, as Redis Sentinel does.
//!
//! Every member, followers included, publishes the changes that it sees itself. The messages are in no log.

use std::sync::Arc;

use commands::SentinelEvents;
use engine::group::Group as _;

use super::{Group, handle::GroupHandle};
use crate::mailbox::WorkerOrder;

/// The state of the group that was published last.
#[derive(Default)]
pub(super) struct Announced(SentinelEvents);

impl Group {
    /// Publishes the changes since the last call.
    pub(super) fn announce(self: &Arc<Self>, announced: &mut Announced) {
        let (Some(publisher), Some(group)) = (self.publisher.get(), GroupHandle(self.clone()).view()) else {
            return;
        };
        let leads = group.leader().is_some_and(|leader| leader.is_self);
        if leads && self.node.refuses_changes() {
            // This server was elected, and does not take writes yet.
            return;
        }
        let events = announced.0.look(&group);
        if !events.is_empty() {
            publisher.send(WorkerOrder::Publish(events));
        }
    }
}
