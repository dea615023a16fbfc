//! Reserves room on the disk ([`env::reserve`]) for the small files that are written when another server
//! begins to lead, or when this one does. Without the reserve, a leader whose disk is full could not hand
//! over.
//!
//! Every member of a group keeps a reserve once its disk has room, and so does every server that follows a
//! Sheaf server or is followed by one. A server on its own makes none.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use env::{RealDisk, reserve};
use storage::{Admission, Log};

use super::Node;

/// The pause after a failed attempt to make the reserve.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

impl Node {
    /// Whether the disk here has room for the log, and for small files.
    pub(crate) fn has_room(&self) -> bool {
        self.log().is_none_or(|log| log.admit(0) != Admission::NoRoom && log.has_room_for_small_files())
    }

    /// Whether this server can write the small files of a follower.
    pub(crate) fn may_follow(&self) -> bool {
        self.log().is_none_or(Log::has_room_for_small_files) || reserve::is_kept(&RealDisk, self.dir())
    }

    /// Makes the reserve of a server without a group that follows or is followed. Called once a second.
    pub(super) fn keep_reserve_of_pair(self: &Arc<Self>) {
        let is_alone = !self.is_replica() && self.leader.is_alone();
        if self.votes().is_none() && !is_alone && self.has_room() {
            self.keep_reserve();
        }
    }

    /// Makes the reserve, if there is none. Because the disk may be slow, a thread of its own does this, one
    /// at a time.
    pub(crate) fn keep_reserve(self: &Arc<Self>) {
        if !reserve::is_wanted(&RealDisk, self.dir()) || self.is_reserving.swap(true, SeqCst) {
            return;
        }
        let node = self.clone();
        let keep = move || {
            if let Err(error) = reserve::keep(&RealDisk, node.dir()) {
                tracing::warn!(
                    target: "replication", %error,
                    "cannot keep room on the disk for what is written when another server leads; trying again"
                );
                thread::sleep(RETRY_PERIOD);
            }
            node.is_reserving.store(false, SeqCst);
        };
        if thread::Builder::new().name("reserve".into()).spawn(keep).is_err() {
            self.is_reserving.store(false, SeqCst);
        }
    }
}
