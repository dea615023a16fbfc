//! The state that the threads of the HTTP port share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::Semaphore;

use super::{
    body_memory::BodyMemory,
    cookie::Sessions,
    cors::Refusals,
    redis_limits::{FOLLOWS_MAX, RUNS_MAX},
    users,
};
use crate::Host;

/// The state of the front; one for all threads.
pub struct Front {
    pub(super) host: Host,
    pub(super) sessions: Sessions,
    /// The memory of request bodies.
    pub(super) bodies: Arc<BodyMemory>,
    /// Permits of requests that run commands of the Redis protocol.
    pub(super) redis_runs: Semaphore,
    /// Permits of requests that wait for messages of durable channels.
    pub(super) redis_follows: Semaphore,
    /// Permits of requests that derive a password.
    pub(super) password_derivations: Semaphore,
    /// The refusals by CORS that were logged.
    pub(super) refusals: Refusals,
    requests: AtomicU64,
    /// The upper half of the ids of requests, so that ids of different incarnations differ.
    request_salt: u32,
}

/// The permit of one connection. Dropping it makes room for another connection.
pub struct ConnectionPermit(Arc<Front>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.host.traffic.connections.fetch_sub(1, Relaxed);
    }
}

impl Front {
    /// A front without connections.
    pub fn new(host: Host) -> Front {
        Front {
            sessions: Sessions::new(&host),
            bodies: Arc::default(),
            redis_runs: Semaphore::new(RUNS_MAX),
            redis_follows: Semaphore::new(FOLLOWS_MAX),
            password_derivations: Semaphore::new(users::DERIVATIONS_MAX),
            refusals: Refusals::default(),
            requests: AtomicU64::new(0),
            request_salt: host.random_u64() as u32,
            host,
        }
    }

    /// A permit; `None` if there are as many connections as `maxclients`, or the limit of open files, allows.
    pub fn permit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        // The connection is counted before the check. Dropping the permit subtracts it again, also if there
        // were too many.
        let before = self.host.traffic.connections.fetch_add(1, Relaxed);
        let permit = ConnectionPermit(self.clone());
        (before < self.host.config.connections_max()).then_some(permit)
    }

    /// The id of the next request, for its reply.
    pub(super) fn request_id(&self) -> u64 {
        u64::from(self.request_salt) << 32 | self.requests.fetch_add(1, Relaxed) & 0xffff_ffff
    }
}
