//! The replica's side: one thread receives the leader's log, another applies it.
//!
//! ```text
//! "replica-link":  connect -> claim -> RESUME -> frames -> Receiver -> Mirror -> ring -> (log thread) disk
//!                                 |---> PROBE  -> find the common position -> restart in-process, cut log
//!                                 '---> FULL   -> copy everything beside the data -> restart with the copy
//! "replica-apply": durable here and committed by the leader -> Replayer -> keyspace; acks
//! ```
//!
//! `link` has the first thread, `apply` the second, `following` the state that both share. They connect
//! [`replication::Receiver`], [`Mirror`] and [`Replayer`] with sockets and threads. Steps that need an empty
//! memory are only requested here; the next incarnation carries them out (see `serve`).
//!
//! Invariants
//! - Applied records are durable here (by this server's durability) and, until `drain`, committed.
//! - Nothing for which the disk has no room is taken from the leader: a full disk ends the connection, and
//!   the next one is made when there is room.
//! - An epoch is on disk before anything in it is acknowledged.
//! - After `stop` nothing more is received; after `drain` everything received is applied.

mod apply;
mod following;
mod link;

use std::{io, sync::Arc, thread::JoinHandle};

use documents::Documents;
use engine::{Executor, Host};
use keyspace::Keyspace;
use recovery::replay::Replayer;
use storage::{Chains, Log, Mirror};

use self::{apply::ApplyParts, link::LinkParts};
pub(crate) use self::{following::Following, link::holds_data};
use super::Node;
use crate::{log_threads::LogThreads, reaper::Reaper};

/// Makes an executor on the thread that will use it.
pub(crate) type NewExecutor = Box<dyn Fn() -> Executor + Send + Sync>;

/// The parts that the threads need, each time that this server begins to follow.
pub(crate) struct FollowingParts {
    pub(crate) host: Host,
    pub(crate) log: Log,
    pub(crate) threads: LogThreads,
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) reaper: Reaper,
    /// Makes the executor that serves waiting clients, on the thread that uses it.
    pub(crate) new_executor: NewExecutor,
}

impl FollowingParts {
    /// Begins to follow at the end of the log. All of the log must have been applied to memory, except for
    /// the incomplete payloads in `chains`.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub(super) fn begin(
        self: &Arc<Self>,
        node: &Arc<Node>,
        mirror: Mirror,
        chains: Chains,
    ) -> io::Result<(Arc<Following>, Option<Threads>)> {
        let (keyspace, applied) = (self.keyspace.clone(), mirror.position());
        let replayer = match node.is_witness() {
            true => Replayer::of_witness(keyspace, applied),
            false => Replayer::new(keyspace, chains, applied).with_documents(self.documents.clone()),
        };
        let following = Arc::new(Following::new(applied, node.now_ms()));
        let link = LinkParts::new(node.clone(), following.clone(), self, mirror);
        let apply =
            ApplyParts { node: node.clone(), parts: self.clone(), following: following.clone(), replayer };
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let apply = named("replica-apply").spawn(move || apply.run())?;
        match named("replica-link").spawn(move || link.run()) {
            Ok(link) => Ok((following, Some(Threads { link, apply }))),
            Err(error) => {
                // Without the link there is nothing to apply.
                following.stop();
                self.log.wake_cursors();
                let _ = apply.join();
                Err(error)
            }
        }
    }
}

/// The threads of following, which a promotion or a stop joins.
pub(super) struct Threads {
    pub(super) link: JoinHandle<Mirror>,
    /// Returns the incomplete payloads at the end of the applied log; `None` if the thread has failed.
    pub(super) apply: JoinHandle<Option<Chains>>,
}
