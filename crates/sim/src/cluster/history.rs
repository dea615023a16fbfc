//! The log of a server, adapted to the interfaces of `replication`.

use std::sync::Arc;

use lsn::Lsn;
use replication::{
    Chunk, Source,
    join::{Ending, History},
};
use storage::{Followed, Log, LogFollower};

use super::Treason;

/// The view of a log that a join needs.
pub(super) struct LogHistory<'l> {
    log: &'l Log,
    /// Sabotage: uses positions in place of chain values.
    by_position: bool,
}

impl<'l> LogHistory<'l> {
    pub(super) fn new(log: &'l Log, treason: Option<Treason>) -> LogHistory<'l> {
        LogHistory { log, by_position: treason == Some(Treason::JoinByPosition) }
    }

    fn chain(&self, end: Lsn, chain: u64) -> u64 {
        if self.by_position { end.get() } else { chain }
    }
}

impl History for LogHistory<'_> {
    type Error = storage::Error;

    fn start(&self) -> Lsn {
        self.log.start_lsn()
    }

    fn end(&self) -> Lsn {
        self.log.durable_lsn()
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, storage::Error> {
        match self.log.batch_ending_at(end)? {
            Some(batch) => Ok(Some(Ending { start: batch.start, chain: self.chain(end, batch.chain) })),
            None if end == self.start() => {
                let chain = self.log.chain_at(end)?;
                Ok(chain.map(|chain| Ending { start: end, chain: self.chain(end, chain) }))
            }
            None => Ok(None),
        }
    }
}

/// The source from which a relay reads a log.
pub(super) struct Tail(pub(super) LogFollower);

impl Source for Tail {
    type Bytes = Arc<[u8]>;
    type Error = String;

    fn read(&mut self, bytes_max: u64) -> Result<Option<Chunk<Arc<[u8]>>>, String> {
        match self.0.read(bytes_max as usize).map_err(|error| error.to_string())? {
            Followed::Chunk(storage::Chunk { start, end, bytes }) => Ok(Some(Chunk { start, end, bytes })),
            Followed::UpToDate => Ok(None),
            Followed::Forgotten(start) => Err(format!("the log is kept from lsn {start} on")),
        }
    }
}
