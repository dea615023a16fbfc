//! The log as both sides of a join look at it.

use lsn::Lsn;
use replication::join::{Ending, History};
use storage::{Error, Log};

/// See the module documentation.
pub(super) struct LogHistory<'l>(pub(super) &'l Log);

impl History for LogHistory<'_> {
    type Error = Error;

    fn start(&self) -> Lsn {
        self.0.start_lsn()
    }

    fn end(&self) -> Lsn {
        self.0.shippable_lsn()
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Error> {
        let batch = self.0.batch_ending_at(end)?;
        Ok(batch.map(|batch| Ending { start: batch.start, hash: batch.hash }))
    }
}
