//! Which copies of its data a member gives away (`/_backup`).
//!
//! Invariants
//! - A backup holds only changes that a majority has. A backup of the leader holds all changes that were
//!   acknowledged before it began. A backup of a follower, like a read from it, may lack acknowledged changes
//!   that have not reached the follower yet.
//! - A leader that has committed nothing yet refuses backups. As long as a majority answers it, it does not
//!   refuse a server that copies everything to become its follower: without that follower there might be no
//!   majority to commit anything.

use std::time::Duration;

use engine::replication::{Availability, NO_LEADER};
use lsn::Lsn;
use tokio::time::{Instant, sleep};

use super::Group;
use crate::replication::handle::ReplicationHandle;

/// The longest time for which a backup waits until a majority has the log that it copies.
const COMMIT_PATIENCE: Duration = Duration::from_secs(5);
/// The period at which a waiting backup checks whether a majority has the log.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

impl Group {
    /// The reason not to begin a copy now, if there is one.
    pub(crate) fn refuses_copy(&self, is_for_follower: bool) -> Option<&'static str> {
        let replication = ReplicationHandle(self.node.clone());
        let refusal = match is_for_follower {
            true => self.votes.as_ref().is_some_and(|votes| !votes.may_be_copied()).then_some(NO_LEADER),
            false => replication.refuses_reads().or((!replication.may_answer()).then_some(NO_LEADER)),
        };
        // The first word is the code of an error in the Redis protocol.
        refusal.map(|text| text.split_once(' ').map_or(text, |(_, reason)| reason))
    }

    /// Whether the log is committed up to `end`, and this server is still allowed to answer. Always true
    /// without a group. Waits for [`COMMIT_PATIENCE`] at most, because the newest records are about to reach
    /// a majority.
    pub(crate) async fn has_committed(&self, end: Lsn) -> bool {
        let Some(votes) = &self.votes else { return true };
        let gives_up_at = Instant::now() + COMMIT_PATIENCE;
        while votes.committed() < end {
            // A deposed leader may restart; the client must get its error before the restart.
            if Instant::now() >= gives_up_at || self.refuses_copy(false).is_some() {
                return false;
            }
            sleep(LOOK_PERIOD).await;
        }
        self.refuses_copy(false).is_none()
    }
}
