//! Room on the disk for closing the log and recovering it again, within the same process.
//!
//! Closing and recovering replace small files, and so do other parts of the server at its start. A running
//! server can wait for room; one that has begun to close its log cannot.

use super::{Log, record::BLOCK_BYTES, segment, sequencer::batch_end};
use crate::Error;

/// The room required for the small files that are replaced when a server ends and when it starts again. The
/// files need less.
const SMALL_FILES_BYTES: u64 = 256 << 10;

impl Log {
    /// Checks that the disk has room for [`Log::close`] and a recovery of this log, and for `more` bytes. May
    /// block while a segment is made.
    ///
    /// # Errors
    /// An error with [`Error::is_disk_full`] if the disk has no room; another one if the log is poisoned, or
    /// a segment is missing and cannot be made for another reason.
    pub fn require_room_to_reopen(&self, more: u64) -> Result<(), Error> {
        let shared = &*self.shared;
        // Closing writes the open batch and then an empty one. A recovery makes a segment if the log has
        // filled all existing ones.
        let closed_end = batch_end(shared.sequencer.tail()) + BLOCK_BYTES;
        if !self.is_frozen() && !shared.make_segments_to(closed_end + 1) {
            return Err(self.no_segment());
        }
        segment::require_room(&*shared.disk, &shared.dir, SMALL_FILES_BYTES + more)
            .map_err(Error::io("replace files in", &shared.dir))
    }

    /// Whether the disk has room for small files beside the log, such as the vote of a member of a group.
    /// Does not block.
    pub fn has_room_for_small_files(&self) -> bool {
        segment::require_room(&*self.shared.disk, &self.shared.dir, SMALL_FILES_BYTES).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
