//! The log as a tick sees it. The simulation can replace this view by a broken one.

use lsn::Lsn;
use storage::{Appender, Durability};

use crate::Executor;

/// The log, as a tick sees it.
pub trait LogView {
    /// The position up to which replies and notices may leave.
    fn committed_lsn(&self) -> Lsn;

    /// Requests one wake-up of the worker when the log is committed up to `gate`; replaces the last request.
    /// Returns `false` if the log is already committed up to `gate`: then the owner must not count on a
    /// wake-up.
    fn wait_for(&self, gate: Lsn) -> bool;

    /// Requests one wake-up at the next progress of the log. Returns `false` if there is nothing to wait for:
    /// the log has room by now, or will have none.
    fn wait_for_room(&self) -> bool;

    /// Whether replies to writes have to wait for the disk, and the log has records that no thread is about
    /// to write.
    fn needs_flush(&self) -> bool;
}

/// An executor without a log (the server is loading) has nothing that waits.
impl LogView for Executor {
    #[inline]
    fn committed_lsn(&self) -> Lsn {
        Executor::committed_lsn(self)
    }

    fn wait_for(&self, gate: Lsn) -> bool {
        self.appender().is_none_or(|appender| appender.wait_for(gate))
    }

    fn wait_for_room(&self) -> bool {
        self.appender().is_some_and(Appender::wait_for_room)
    }

    #[inline]
    fn needs_flush(&self) -> bool {
        self.appender().is_some_and(|it| it.durability() >= Durability::Commit && it.needs_flusher())
    }
}
