//! A leader whose disk does not answer falls silent, so that another member is elected. Once the disk
//! answers, it sends messages again, like a member that was paused.
//!
//! A follower whose disk does not answer is not silenced. It acknowledges no log, but the leader's lease may
//! need its answers to heartbeats.

use membership::Votes;
use storage::Log;

use super::Group;

/// A write or sync of the log that takes longer than this silences a leader. The limit is above one second,
/// because disks pause for a second at times.
const SILENT_AFTER_US: u64 = 2_000_000;

impl Group {
    /// Tells the votes whether the disk here answers.
    pub(super) fn note_stall(&self, votes: &Votes) {
        let has_stalled = self.log.get().map_or(0, Log::flight_us) > SILENT_AFTER_US;
        if has_stalled && !votes.note_stall(true) {
            tracing::warn!(
                target: "group",
                "the disk here does not answer: if this member leads, it is silent until the disk does, and another one is elected"
            );
        } else if !has_stalled {
            votes.note_stall(false);
        }
    }
}
