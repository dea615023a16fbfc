//! The views of a server's log that joins ([`History`]) and relays ([`Source`]) need.
//!
//! The footer of the batch before a copied log may be in an earlier segment, which was not copied. Then only
//! the chain value of this batch is known. The chain value is enough for a replica whose log ends at the same
//! position to resume.

use std::sync::Arc;

use lsn::Lsn;
use storage::{CursorRead, Error, Log, LogCursor};

use crate::{
    Chunk, Source,
    join::{Ending, History},
};

/// A log as a [`History`], for both sides of a join.
pub struct LogHistory<'l>(pub &'l Log);

impl History for LogHistory<'_> {
    type Error = Error;

    fn start(&self) -> Lsn {
        self.0.start_lsn()
    }

    fn end(&self) -> Lsn {
        self.0.shippable_lsn()
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Error> {
        match self.0.batch_ending_at(end)? {
            Some(batch) => Ok(Some(Ending { start: batch.start, chain: batch.chain })),
            None if end == self.start() => {
                Ok(self.0.chain_at(end)?.map(|chain| Ending { start: end, chain }))
            }
            None => Ok(None),
        }
    }
}

/// A reader of the log as the [`Source`] of a relay.
pub struct Tail(pub LogCursor);

impl Source for Tail {
    type Bytes = Arc<[u8]>;
    type Error = String;

    fn read(&mut self, bytes_max: u64, until: Lsn) -> Result<Option<Chunk<Arc<[u8]>>>, String> {
        match self.0.read_until(bytes_max as usize, until) {
            Ok(CursorRead::Chunk(chunk)) => {
                Ok(Some(Chunk { start: chunk.start, end: chunk.end, bytes: chunk.bytes }))
            }
            Ok(CursorRead::UpToDate) => Ok(None),
            Ok(CursorRead::Forgotten(start)) => {
                Err(format!("the log before lsn {start} is no longer kept: the replica was too far behind"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{path::Path, sync::Arc};

    use env::{Disk, SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
    use storage::{
        CopyPlan, LogOptions, Recovery,
        snapshot::{self, Compression, SnapshotWriter},
    };

    use super::*;

    const DIR: &str = "/data";
    const SEGMENT_BYTES: u64 = 1 << 20;

    fn recover(disk: &Arc<SimDisk>) -> Log {
        let options = LogOptions { segment_bytes: SEGMENT_BYTES, ..LogOptions::default() }.fitting();
        let mut recovery =
            Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1)).unwrap();
        if let Some(info) = snapshot::list(&**disk, Path::new(DIR)).unwrap().first() {
            recovery.start_at(info).unwrap();
        }
        while recovery.next_batch().unwrap().is_some() {}
        recovery.finish(Arc::new(SimClock::new(0))).unwrap()
    }

    fn new_disk() -> Arc<SimDisk> {
        SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() })
    }

    #[test]
    fn the_chain_value_of_a_copy_is_known_although_its_last_batch_is_in_an_earlier_segment() {
        let (disk, dir) = (new_disk(), Path::new(DIR));
        let log = recover(&disk);
        let mut appender = log.appender();
        while log.durable_lsn() < Lsn::new(SEGMENT_BYTES) {
            log.prepare_segment().unwrap();
            appender.reserve(&[7; 2000]).unwrap().publish();
            log.flush_all().unwrap();
        }
        let end = log.durable_lsn();
        assert_eq!(end, Lsn::new(SEGMENT_BYTES), "each batch is a block");
        let chain = log.batch_ending_at(end).unwrap().unwrap().chain;
        assert_eq!(LogHistory(&log).end(), end);
        let mut tail = Tail(log.cursor(Lsn::ZERO));
        let first = tail.read(1, Lsn::MAX).unwrap().expect("a batch");
        assert_eq!((first.start, first.end, first.bytes.len()), (Lsn::ZERO, Lsn::new(4096), 4096));
        while let Some(chunk) = tail.read(1 << 20, Lsn::MAX).unwrap() {
            assert!(chunk.start >= first.end && chunk.end <= end);
        }
        let meta = log.begin_snapshot(Compression::None);
        let (writer, parts) = SnapshotWriter::create(disk.clone(), dir, meta, 1).unwrap();
        writer.publish(parts.into_iter().map(|part| part.finish().unwrap()).collect(), end).unwrap();

        let (plan, copied) = (log.plan_copy(end, false).unwrap().unwrap(), new_disk());
        copied.create_dir_all(&snapshot::directory(dir)).unwrap();
        for file in &plan.files {
            let path = dir.join(&file.name);
            let bytes = disk.read_file(&path).unwrap();
            copied.write_file(&path, &bytes[..file.bytes as usize]);
        }
        copied.write_file(&dir.join(CopyPlan::CONTROL_NAME), &plan.control);
        let log = recover(&copied);
        assert_eq!(log.start_lsn(), end);
        assert_eq!(log.batch_ending_at(end).unwrap(), None, "the footer is not here");
        assert_eq!(LogHistory(&log).batch_ending_at(end).unwrap(), Some(Ending { start: end, chain }));
    }
}
