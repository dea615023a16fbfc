//! Arbitrary bytes in a segment file: reading the log neither panics nor invents records. It returns a prefix
//! of the appended records, or an error.
//!
//! Input: the place (u16), then the bytes to write there. The whole input is also the payload of a record.

use std::path::Path;
use std::sync::Arc;

use env::sim::SimDiskOptions;
use env::{Access, Disk, SimClock, SimDisk, SimEntropy};
use keyspace::{DbId, Effect, KeyOp, Value};
use lsn::Lsn;
use storage::{Durability, Error, LogOptions, LogReader, Recovery};

use crate::{Outcome, Seed, content};

const DIR: &str = "/data";
const SEGMENT: &str = "/data/log-0000000000000000.seg";
const HEADER_BYTES: u64 = 4096;
/// The size of the range behind the header in which the bytes of the input begin: the offset is taken modulo
/// this size.
const BATCHES_BYTES: u64 = 4 * 4096;
const RECORDS: u8 = 6;

fn log_with_records(disk: &Arc<SimDisk>) {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        unwritten_bytes_max: 16 << 10,
        durability: Durability::Strict,
        appenders_max: 1,
    };
    let recovery = Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1));
    let mut recovery = recovery.expect("a new log");
    recovery.replay::<Error>(|_, _| Ok(()), |_| {}).expect("nothing to replay");
    let log = recovery.finish(Arc::new(SimClock::new(0))).expect("the disk works");
    let mut appender = log.appender();
    for number in 0..RECORDS {
        appender.reserve(&[number; 40]).expect("not poisoned").publish();
        if number % 2 == 1 {
            log.flush_all().expect("the disk works");
        }
    }
}

fn new_disk() -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
    log_with_records(&disk);
    disk
}

/// Reads a damaged log, and a payload of a record. Accepts a payload of effects alone, and a log of which all
/// records are read.
///
/// # Panics
/// If a record is read that was never appended.
pub fn log_records(input: &[u8]) -> Outcome {
    // The input as the payload of a record. Messages and changes of documents in it are skipped.
    let (mut rest, mut effects) = (input, 0);
    while let Ok(Some(_)) = Effect::decode_next(&mut rest) {
        effects += 1;
    }
    let are_effects = rest.is_empty() && effects > 0;

    let Some((place, bytes)) = input.split_first_chunk::<2>() else {
        return Outcome::accepted_if(are_effects);
    };
    let disk = new_disk();
    let file = disk.open(Path::new(SEGMENT), Access::ReadWrite).expect("the segment exists");
    let offset = HEADER_BYTES + u64::from(u16::from_le_bytes(*place)) % BATCHES_BYTES;
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
    assert!(read <= RECORDS);
    Outcome::accepted_if(are_effects || (read == RECORDS && !bytes.is_empty()))
}

pub(crate) fn seeds() -> Vec<Seed> {
    let segment = content(&new_disk(), Path::new(SEGMENT));
    // An input that overwrites these bytes with themselves, so that the log stays intact.
    let same = |place: u16, bytes: usize| {
        let begin = HEADER_BYTES as usize + usize::from(place);
        [&place.to_le_bytes()[..], &segment[begin..begin + bytes]].concat()
    };
    let mut effects = Vec::new();
    for number in 0..4u8 {
        let value = Value::String(&[number; 40]);
        KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"key").encode_into(&mut effects);
        KeyOp::Delete.on(DbId::ZERO, &[number]).encode_into(&mut effects);
    }
    let swapped = [&4096u16.to_le_bytes()[..], &segment[4096..8192]].concat();
    vec![
        ("first-batch", same(0, 4096)),
        ("first-record", same(0, 64)),
        ("second-batch", same(4096, 4096)),
        ("last-footer", same(3 * 4096 - 64, 64)),
        ("footers-of-two-batches", same(4096 - 64, 4096 + 64)),
        ("payload", effects),
        ("refused-batch-at-another-place", swapped),
        ("refused-zeros", vec![0; 128]),
    ]
}
