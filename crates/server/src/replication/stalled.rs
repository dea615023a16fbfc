//! An applier that makes no progress, because scripts of clients hold the slots that it needs.
//!
//! Scripts that only read run on replicas, and may be endless. Whatever waits for the applier (followers of
//! its data, a promotion, a hand-over) would wait for ever, so such scripts are ended after [`PATIENCE_S`].

use std::sync::Arc;

use engine::Scripts;
use lsn::Lsn;

use super::{Node, follower::Following};

/// Seconds without progress after which scripts are ended.
const PATIENCE_S: u32 = 5;

/// Looks at the applier once a second.
#[derive(Default)]
pub(crate) struct StalledApplier {
    /// Kept, because a promotion takes it from the node before everything is applied.
    following: Option<Arc<Following>>,
    applied: Lsn,
    seconds: u32,
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
        let applied = following.applied();
        if applied != self.applied || !following.is_behind(log) {
            (self.applied, self.seconds) = (applied, 0);
            return;
        }
        self.seconds += 1;
        if self.seconds < PATIENCE_S {
            return;
        }
        let before_us = (node.now_ms() * 1000).saturating_sub(u64::from(PATIENCE_S) * 1_000_000);
        let ended = scripts.end_for_replication(before_us);
        if ended > 0 {
            tracing::warn!(
                target: "replication", scripts = ended, %applied,
                "scripts were ended: they kept this replica from applying the log for {PATIENCE_S} seconds"
            );
        }
    }
}
