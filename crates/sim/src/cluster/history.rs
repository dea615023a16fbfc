//! The log of a server as the machines of `replication` want to read it.

use std::sync::Arc;

use lsn::Lsn;
use replication::{
    Chunk, Source,
    join::{Ending, History},
};
use storage::{Followed, Log, LogFollower};

/// What a join asks of a log.
pub(super) struct LogHistory<'l>(pub(super) &'l Log);

impl History for LogHistory<'_> {
    type Error = storage::Error;

    fn start(&self) -> Lsn {
        self.0.start_lsn()
    }

    fn end(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, storage::Error> {
        Ok(self.0.batch_ending_at(end)?.map(|batch| Ending { start: batch.start, hash: batch.hash }))
    }
}

/// Where a relay reads a log.
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
