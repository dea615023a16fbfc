//! Ends scripts that keep the applier of this replica from applying the log; [`Stall`] says when.

use std::sync::Arc;

use engine::Scripts;
use replication::{STALL_MS, Stall};

use super::{Node, follower::Following};

/// Looks at the applier once a second.
#[derive(Default)]
pub(crate) struct StalledApplier {
    /// Kept, because a promotion takes it from the node before everything is applied.
    following: Option<Arc<Following>>,
    stall: Stall,
}

impl StalledApplier {
    /// To be called once a second.
    pub(crate) fn look(&mut self, node: &Node, scripts: &Scripts) {
        if !node.is_replica() {
            *self = StalledApplier::default();
            return;
        }
        if let Some(following) = node.following() {
            self.following = Some(following);
        }
        let (Some(following), Some(log)) = (&self.following, node.log()) else { return };
        let (now_ms, applied) = (node.now_ms(), following.applied());
        if !self.stall.look(now_ms, applied, following.applicable(log)) {
            return;
        }
        let ended = scripts.end_for_replication(now_ms.saturating_sub(STALL_MS) * 1000);
        if ended > 0 {
            let seconds = STALL_MS / 1000;
            tracing::warn!(
                target: "replication", scripts = ended, %applied,
                "scripts were ended: they kept this replica from applying the log for {seconds} seconds"
            );
        }
    }
}
