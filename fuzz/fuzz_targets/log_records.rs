//! Arbitrary bytes in a segment file: reading the log neither panics nor invents records. It returns a prefix
//! of the appended records, or an error.
#![no_main]

use std::{path::Path, sync::Arc};

use env::{Access, Disk, SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
use libfuzzer_sys::fuzz_target;
use lsn::Lsn;
use storage::{Durability, Error, LogOptions, LogReader, Recovery};

const DIR: &str = "/data";
const HEADER_BYTES: u64 = 4096;

fn log_with_records(disk: &Arc<SimDisk>) {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        unwritten_bytes_max: 16 << 10,
        durability: Durability::Strict,
        appenders_max: 1,
    };
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1)).expect("a new log");
    recovery.replay::<Error>(|_, _| Ok(()), |_| {}).expect("nothing to replay");
    let log = recovery.finish(Arc::new(SimClock::new(0))).expect("the disk works");
    let mut appender = log.appender();
    for number in 0..6u8 {
        appender.reserve(&[number; 40]).expect("not poisoned").publish();
        if number % 2 == 1 {
            log.flush_all().expect("the disk works");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    // The payload of a record, as decoded by recovery.
    let mut rest = input;
    while let Ok(Some(_)) = keyspace::Effect::decode_next(&mut rest) {}

    let Some((place, bytes)) = input.split_first_chunk::<2>() else { return };
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
    log_with_records(&disk);
    let segment = Path::new(DIR).join("log-0000000000000000.seg");
    let file = disk.open(&segment, Access::ReadWrite).expect("the segment exists");
    let offset = HEADER_BYTES + u64::from(u16::from_le_bytes(*place)) % (4 * 4096);
    file.write_all_at(bytes, offset).expect("the disk works");

    let mut reader = LogReader::open(disk, Path::new(DIR), Access::Read).expect("headers are intact");
    let mut read = 0u8;
    while let Ok(Ok(batch)) = reader.next_batch() {
        for record in batch.records() {
            assert!(record.lsn > Lsn::ZERO);
            assert_eq!(record.payload, [read; 40], "a record that was never appended");
            read += 1;
        }
    }
    assert!(read <= 6);
});
