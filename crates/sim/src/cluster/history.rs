//! The log of a server as joins see it: by its chain values, or, as a sabotage, by positions alone.

use lsn::Lsn;
use replication::{
    LogHistory,
    join::{Ending, History},
};
use storage::Log;

use super::FaultInjection;

/// The view of a log that a join needs.
pub(crate) struct JudgedHistory<'l> {
    log: LogHistory<'l>,
    /// Whether positions are used instead of chain values, as a sabotage.
    by_position: bool,
}

impl<'l> JudgedHistory<'l> {
    pub(crate) fn new(log: &'l Log, fault: Option<FaultInjection>) -> JudgedHistory<'l> {
        JudgedHistory::of(log, fault == Some(FaultInjection::JoinByPosition))
    }

    /// The view of this log. With `by_position`, logs of the same length count as equal.
    pub(crate) fn of(log: &'l Log, by_position: bool) -> JudgedHistory<'l> {
        JudgedHistory { log: LogHistory(log), by_position }
    }
}

impl History for JudgedHistory<'_> {
    type Error = storage::Error;

    fn start(&self) -> Lsn {
        self.log.start()
    }

    fn end(&self) -> Lsn {
        self.log.end()
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, storage::Error> {
        let ending = self.log.batch_ending_at(end)?;
        let by_position = |ending: Ending| Ending { chain: end.get(), ..ending };
        Ok(if self.by_position { ending.map(by_position) } else { ending })
    }
}
