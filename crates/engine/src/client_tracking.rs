//! The tracking of one client (CLIENT TRACKING), as its session sees it. The registry of all clients is in
//! `tracking`.

use std::sync::Arc;

use keyspace::SlotId;

use crate::{
    clients::Client,
    interest::Interests,
    tracking::{Invalidations, Mode, Tracker},
};

/// A client's own side of its tracking. Dropping this value ends the tracking.
#[derive(Debug)]
pub struct ClientTracking {
    interests: Arc<Interests>,
    /// The client as other workers see it.
    pub tracker: Arc<Tracker>,
    /// The rule by which keys are tracked, such as all that the client reads.
    pub mode: Mode,
    /// The prefixes of [`Mode::Broadcast`], which has at least one: the empty prefix if the client gave none.
    pub prefixes: Vec<Box<[u8]>>,
    /// Whether CLIENT CACHING was called before the present command or transaction.
    pub caching: bool,
}

impl ClientTracking {
    /// Begins to track. If the client already tracks, the new tracking replaces the old one, which must be
    /// dropped afterwards.
    pub fn begin(
        interests: &Arc<Interests>,
        client: &Arc<Client>,
        mode: Mode,
        redirect: Option<u64>,
        noloop: bool,
        prefixes: Vec<Box<[u8]>>,
    ) -> ClientTracking {
        let tracker = Arc::new(Tracker::new(client.clone(), mode, redirect, noloop));
        interests.tracking().enter(&tracker, &prefixes);
        client.set_tracking(Some((redirect, mode == Mode::Broadcast)));
        interests.tracking_begins();
        ClientTracking { interests: interests.clone(), tracker, mode, prefixes, caching: false }
    }

    /// Whether the reads of the present command are to be remembered.
    pub(crate) fn remembers(&self) -> bool {
        match self.mode {
            Mode::Reads => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }

    /// Remembers that the client has read a key of this slot, which is locked.
    pub(crate) fn read(&self, slot: SlotId, key: &[u8], invalidations: &mut Invalidations) {
        self.interests.tracking().remember(slot, key, &self.tracker, invalidations);
    }

    /// Whether the invalidations are redirected to a client that was found to have disconnected.
    pub fn is_redirect_broken(&self) -> bool {
        self.tracker.is_redirect_broken()
    }
}

impl Drop for ClientTracking {
    fn drop(&mut self) {
        self.interests.tracking().leave(&self.tracker, &self.prefixes);
        self.interests.tracking_ends();
    }
}
