//! Ends scripts that keep the applier of this replica from applying the log; [`Stall`] decides when.

use std::sync::Arc;

use engine::Scripts;
use replication::{PROMOTION_STALL_MS, STALL_MS, Stall};

use super::{Node, follower::Following};

/// Looks at the applier once a second.
#[derive(Default)]
pub(crate) struct StalledApplier {
    /// The state of following at the last look at which this server followed.
    following: Option<Arc<Following>>,
    stall: Stall,
}

impl StalledApplier {
    /// Checks the applier, and ends scripts if it is stalled. Called once a second.
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
        let patience_ms = if node.is_being_promoted() { PROMOTION_STALL_MS } else { STALL_MS };
        if !self.stall.look(now_ms, applied, following.applicable(log), patience_ms) {
            return;
        }
        let ended = scripts.end_for_replication(now_ms.saturating_sub(patience_ms) * 1000);
        if ended > 0 {
            tracing::warn!(
                target: "replication", scripts = ended, %applied,
                "scripts were ended: they kept this replica from applying the log for {patience_ms} ms"
            );
        }
    }
}
