//! Documents in the server: where their changes go to the log, who is told of them, when they are saved.
//!
//! ```text
//! threads "http-n":  Rounds -> Change -> log -> memory           recovery, replicas: log -> Documents::apply -> memory
//! thread "documents": what is dirty enough -> log durable up to there -> tree file -> the log before is not needed any more
//! ```
//!
//! What it is: the wiring between the crate `documents`, the log and the threads. What it is not: what a document is, nor HTTP.

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

/// What the threads that serve documents need, once the server has recovered.
pub(crate) struct Served {
    /// All databases.
    pub(crate) documents: Arc<Documents>,
    /// Where changes go.
    pub(crate) threads: LogThreads,
    /// What finds documents by their values.
    pub(crate) indexes: Arc<Indexes>,
}
