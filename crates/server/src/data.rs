//! The data of the server that executors share.

use std::sync::Arc;

use engine::{CommandStats, Executor, Interests};
use env::Entropy;
use keyspace::Keyspace;
use pubsub::Hub;

#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) interests: Arc<Interests>,
    /// The channels and their subscribers.
    pub(crate) hub: Arc<Hub>,
    /// The counters of threads, in this order: workers, threads of long units, the thread that applies a
    /// leader's log.
    pub(crate) stats: Arc<CommandStats>,
    pub(crate) entropy: Arc<dyn Entropy + Send + Sync>,
}

impl Data {
    /// An executor that counts as thread `thread` and sees the channels of worker `worker`.
    pub(crate) fn executor(&self, thread: usize, worker: usize) -> Executor {
        let (keyspace, interests) = (self.keyspace.clone(), self.interests.clone());
        let (stats, seed) = (self.stats.worker(thread), self.entropy.random_u64() as u32);
        let mut executor = Executor::new(commands::table(), keyspace, interests, stats, seed);
        executor.share_channels(self.hub.local(worker));
        executor
    }
}
