//! The log and its threads, from the end of recovery on.

use std::sync::OnceLock;

use recovery::progress::LoadProgress;
use storage::Log;

use crate::log_threads::LogThreads;

/// The log with its threads; empty while the server recovers.
#[derive(Default)]
pub(crate) struct AttachedLog(OnceLock<LogThreads>);

impl AttachedLog {
    /// Passes the recovered log in, once.
    pub(crate) fn attach(&self, threads: LogThreads) {
        assert!(self.0.set(threads).is_ok(), "a log is attached once");
    }

    /// The log; `None` while the server recovers.
    pub(crate) fn get(&self) -> Option<&Log> {
        self.0.get().map(LogThreads::log)
    }

    /// The log; `None` while the server recovers, and while commands are answered with LOADING.
    pub(crate) fn serving(&self, progress: &LoadProgress) -> Option<&Log> {
        self.get().filter(|_| progress.loading().is_none())
    }

    /// The threads of the log; `None` while the server recovers.
    pub(crate) fn threads(&self) -> Option<&LogThreads> {
        self.0.get()
    }
}
