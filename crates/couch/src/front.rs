//! The state that the threads of the HTTP port share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{body_memory::BodyMemory, session::Sessions};
use crate::Host;

/// See the module documentation.
pub struct Front {
    pub(super) host: Host,
    /// Who has logged in.
    pub(super) sessions: Sessions,
    /// What bodies of requests take.
    pub(super) bodies: Arc<BodyMemory>,
    connections: AtomicU64,
    requests: AtomicU64,
    /// What the numbers of requests begin with, so that those of different lives differ.
    request_salt: u32,
}

/// The place of one connection among those that are allowed.
pub struct Place(Arc<Front>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

impl Front {
    /// A front without connections.
    pub fn new(host: Host) -> Front {
        Front {
            sessions: Sessions::new(&host),
            bodies: Arc::default(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            request_salt: host.random_u64() as u32,
            host,
        }
    }

    /// A place, unless there are as many connections as `maxclients`, or the limit of open files, allows.
    pub fn place(self: &Arc<Self>) -> Option<Place> {
        // The place is given back when it is dropped, also if it was none.
        let before = self.connections.fetch_add(1, Relaxed);
        let place = Place(self.clone());
        (before < self.host.config.connections_max()).then_some(place)
    }

    /// What the next request is called in its reply.
    pub(super) fn request_id(&self) -> u64 {
        u64::from(self.request_salt) << 32 | self.requests.fetch_add(1, Relaxed) & 0xffff_ffff
    }
}
