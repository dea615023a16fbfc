//! Documents in the server: how their changes reach the log, feeds and files.
//!
//! ```text
//! threads "http-n": Rounds -> Change -> log -> memory  recovery, replicas: log -> Documents::apply -> memory
//! thread "documents": databases to save -> log durable up to there -> tree file -> drop the older log
//! ```
//!
//! This module connects the crate `documents`, the log and the threads. Documents themselves are defined in
//! that crate; HTTP is in `http`.

mod compacting;
mod copying;
mod feeds;
mod gate;
mod refusal;
mod rounds;
mod saving;

use std::sync::Arc;

use documents::{Documents, mango::Indexes};

use crate::log_threads::LogThreads;

pub(crate) use self::{
    compacting::Compactor,
    copying::{CopiedTree, DocumentsCopy},
    feeds::Feeds,
    gate::LogFailed,
    refusal::Refusal,
    rounds::{Rounds, Settled},
    saving::Saver,
};

/// The state that the threads serving documents need, available once the server has recovered.
pub(crate) struct Served {
    /// The document databases.
    pub(crate) documents: Arc<Documents>,
    /// The threads of the log that takes the changes.
    pub(crate) threads: LogThreads,
    /// The Mango indexes, which find documents by their values.
    pub(crate) indexes: Arc<Indexes>,
}
