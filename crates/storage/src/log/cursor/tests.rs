//! Cursors on a simulated disk: every batch once and in order, from memory and from files, and never too
//! early.

#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc};

use env::{SimClock, SimDisk, SimEntropy};

use super::*;
use crate::{Durability, LogOptions, RecordKind, Recovery, log::segment};

fn log(options: LogOptions) -> Log {
    log_on(SimDisk::new(env::sim::SimDiskOptions { seed: 7, ..Default::default() }), options)
}

fn log_on(disk: Arc<SimDisk>, options: LogOptions) -> Log {
    let mut recovery = Recovery::open(disk, Path::new("/data"), options, &SimEntropy::new(1)).unwrap();
    assert!(recovery.next_batch().unwrap().is_none());
    recovery.finish(Arc::new(SimClock::new(0))).unwrap()
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        appenders_max: 4,
        unwritten_bytes_max: 16 << 10,
        ..LogOptions::default()
    }
}

/// Writes a batch with one payload for each of these sizes; returns the LSNs.
fn write(log: &Log, appender: &mut crate::Appender, payload_bytes: &[usize]) -> Vec<Lsn> {
    let write = |&bytes: &usize| {
        let payload = vec![b'x'; bytes];
        let pending = appender.reserve(&payload).unwrap();
        let lsn = pending.lsn();
        pending.publish();
        log.flush_all().unwrap();
        lsn
    };
    payload_bytes.iter().map(write).collect()
}

/// The LSNs of all records that the cursor reads.
fn drain(cursor: &mut LogCursor, bytes_max: usize) -> Vec<Lsn> {
    let mut lsns = Vec::new();
    while let CursorRead::Chunk(chunk) = cursor.read(bytes_max).unwrap() {
        assert_eq!(chunk.end.bytes_since(chunk.start), chunk.bytes.len() as u64);
        lsns.extend(chunk.records().map(|record| record.lsn));
        assert_eq!(cursor.position(), chunk.end);
    }
    lsns
}

#[test]
fn damage_of_a_batch_costs_none_before_it_and_none_of_the_next_segment() {
    // Parts of a large record other than the last do not count as ends of records.
    let ends = |chunk: &Chunk| -> Vec<Lsn> {
        chunk.records().filter(|it| it.kind != RecordKind::Part).map(|it| it.lsn).collect()
    };
    const SIZES: [usize; 8] = [100, 9000, 100, 100, 20_000, 100, 100, 100];
    let path = Path::new("/data").join(segment::file_name(Lsn::ZERO));
    let whole = || {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 7, ..Default::default() });
        let log = log_on(disk.clone(), options());
        let mut appender = log.appender();
        let mut written = write(&log, &mut appender, &SIZES);
        let first_of_next = written.len();
        while log.durable_lsn().get() <= 300 << 10 {
            written.extend(write(&log, &mut appender, &[9000]));
        }
        drop(appender);
        let is_in_next = |lsn: &Lsn| lsn.get() > options().segment_bytes + 3 * BLOCK_BYTES;
        let next = written.iter().copied().filter(is_in_next).collect::<Vec<_>>();
        written.truncate(first_of_next);
        (disk, log, written, next)
    };
    let (_, log, written, next) = whole();
    let batches: Vec<BatchInfo> =
        written.iter().map(|lsn| log.batch_at(*lsn).unwrap().expect("a batch")).collect();
    assert!(next.len() > 2);
    for (index, batch) in batches.iter().enumerate() {
        let at = segment::SEGMENT_HEADER_BYTES + batch.start.get();
        type Harm = fn(&SimDisk, &Path, u64);
        let harms: [(&str, Harm); 3] = [
            ("cut at its start", |disk, path, at| disk.truncate(path, at).unwrap()),
            ("cut within it", |disk, path, at| disk.truncate(path, at + 50).unwrap()),
            ("a flipped bit", |disk, path, at| disk.corrupt(path, at + 50, 1).unwrap()),
        ];
        for (what, harm) in harms {
            let (disk, log, written, next) = whole();
            harm(&disk, &path, at);
            for bytes_max in [1, 1 << 20] {
                let (mut cursor, mut read) = (log.cursor(Lsn::ZERO), Vec::new());
                let error = loop {
                    match cursor.read(bytes_max) {
                        Ok(CursorRead::Chunk(chunk)) => read.extend(ends(&chunk)),
                        Ok(_) => panic!("{what}: the damage was not noticed"),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::Inconsistent { .. }), "{what}: {error}");
                assert_eq!(read, written[..index], "{what}, batch {index}");
                assert_eq!(cursor.position(), batch.start, "{what}");
                let mut behind = log.cursor(log.readable_behind(cursor.position()));
                let rest = drain(&mut behind, bytes_max);
                assert!(rest.ends_with(&next), "{what}, batch {index}: the next segment is whole");
            }
        }
    }
}

#[test]
fn nothing_is_read_beyond_the_given_position() {
    let log = log(options());
    let mut appender = log.appender();
    let mut ends = Vec::new();
    let mut live = log.cursor(Lsn::ZERO);
    for _ in 0..4 {
        write(&log, &mut appender, &[100]);
        ends.push(log.durable_lsn());
    }
    for cursor in [&mut live, &mut log.cursor(Lsn::ZERO)] {
        for until in [Lsn::ZERO, ends[0], ends[2].advance(1), ends[3]] {
            let reached = ends.iter().rev().find(|end| **end <= until).copied().unwrap_or(Lsn::ZERO);
            while let CursorRead::Chunk(chunk) = cursor.read_until(10 << 20, until).unwrap() {
                assert!(chunk.end <= until);
            }
            assert_eq!(cursor.position(), reached, "{until}");
        }
    }
    log.set_acked(ends[1]);
    assert_eq!(log.showable_lsn(), ends[1]);
    log.set_acked(Lsn::MAX);
    assert_eq!(log.showable_lsn(), ends[3]);
}

#[test]
fn cursors_read_the_same_from_files_and_memory() {
    let log = log(options());
    let mut appender = log.appender();
    let sizes: Vec<usize> = (0..300).map(|number| number * 37 % 9000).collect();
    let mut written = write(&log, &mut appender, &sizes[..100]);
    // There was no cursor so far, so the first 100 batches are only in files; they span several segments.
    let (mut early, mut late) = (log.cursor(Lsn::ZERO), log.cursor(log.shippable_lsn()));
    assert!(late.read(1).is_ok_and(|read| matches!(read, CursorRead::UpToDate)));
    let mut found = drain(&mut early, 1);
    assert_eq!(found, written);
    let rest = write(&log, &mut appender, &sizes[100..]);
    written.extend(&rest);
    found.extend(drain(&mut early, 100_000));
    assert_eq!(found, written);
    assert_eq!(drain(&mut late, 100_000), rest);
    for bytes_max in [1, 4096, 70_000, 10 << 20] {
        assert_eq!(drain(&mut log.cursor(Lsn::ZERO), bytes_max), written, "{bytes_max}");
    }
    assert!(written.last() <= Some(&log.shippable_lsn()));
}

#[test]
fn memory_is_bounded_and_given_back() {
    let log = log(LogOptions { segment_bytes: 4 << 20, ring_bytes: 1 << 20, ..options() });
    let mut appender = log.appender();
    let mut cursor = log.cursor(Lsn::ZERO);
    let written = write(&log, &mut appender, &[200_000; 60]);
    let kept = |log: &Log| log.shared.recent.batches.lock().1;
    assert!((RECENT_BYTES_MAX - 300_000..=RECENT_BYTES_MAX).contains(&kept(&log)), "{}", kept(&log));
    assert_eq!(drain(&mut cursor, 1 << 20), written);
    drop(cursor);
    assert_eq!(kept(&log), 0);
}

#[test]
fn only_committed_batches_are_read() {
    let log = log(options());
    let mut appender = log.appender();
    let mut cursor = log.cursor(Lsn::ZERO);
    let payload = [1; 10];
    appender.reserve(&payload).unwrap().publish();
    assert!(drain(&mut cursor, 1 << 20).is_empty(), "appended is not written");
    assert!(!cursor.wait(Duration::ZERO));
    log.flush_all().unwrap();
    assert!(cursor.wait(Duration::ZERO));
    assert_eq!(drain(&mut cursor, 1 << 20).len(), 1);
    log.set_durability(Durability::None);
    appender.reserve(&payload).unwrap().publish();
    log.flush().unwrap();
    assert!(log.durable_lsn() < log.written_lsn());
    assert_eq!(drain(&mut cursor, 1 << 20).len(), 1, "without syncs, what is written may leave");
}

#[test]
fn an_overtaken_reader_learns_the_start_of_the_log() {
    let log = log(options());
    let mut appender = log.appender();
    write(&log, &mut appender, &[9000; 100]);
    let mut cursor = log.cursor(Lsn::ZERO);
    let CursorRead::Chunk(_) = cursor.read(1).unwrap() else { panic!("a batch") };
    let boundary = log.durable_lsn();
    assert!(log.truncate_before(boundary).unwrap());
    assert!(matches!(cursor.read(1).unwrap(), CursorRead::Forgotten(start) if start == boundary));
    let lsns = write(&log, &mut appender, &[100; 3]);
    assert_eq!(drain(&mut log.cursor(boundary), 1 << 20), lsns);
}

#[test]
fn a_batch_is_found_by_a_position_inside() {
    let log = log(options());
    let mut appender = log.appender();
    let lsns = write(&log, &mut appender, &[10, 9000, 20, 30_000, 50_000, 50_000, 50_000, 50_000, 50_000]);
    let mut cursor = log.cursor(Lsn::ZERO);
    let mut batches = Vec::new();
    while let CursorRead::Chunk(chunk) = cursor.read(1).unwrap() {
        batches.push((chunk.start, chunk.end));
    }
    for (number, (&lsn, &(start, end))) in lsns.iter().zip(&batches).enumerate() {
        let batch = log.batch_at(lsn).unwrap().unwrap();
        assert_eq!((batch.start, batch.end, batch.number), (start, end, number as u64));
        assert_eq!((batch.epoch, log.batch_ending_at(end).unwrap()), (log.epoch(), Some(batch)));
        assert_eq!(log.batch_at(start.advance(1)).unwrap(), Some(batch));
        assert_eq!(log.batch_ending_at(lsn).unwrap(), None, "a record ends within its batch");
    }
    assert_eq!(log.batch_at(Lsn::ZERO).unwrap(), None);
    assert_eq!(log.batch_at(log.appended_lsn().advance(1)).unwrap(), None);
    let chains: std::collections::HashSet<u64> =
        batches.iter().map(|&(_, end)| log.batch_ending_at(end).unwrap().unwrap().chain).collect();
    assert_eq!(chains.len(), batches.len());
    let last = |from, count_max| {
        let found = log.last_batches(from, count_max).unwrap();
        found.iter().map(|batch| (batch.start, batch.end)).collect::<Vec<_>>()
    };
    assert_eq!(last(Lsn::ZERO, 100), batches);
    assert_eq!(last(Lsn::ZERO, 2), batches[7..]);
    assert_eq!(last(batches[5].1, 100), batches[5..], "the one that ends there is the first");
    assert_eq!(last(batches[5].1.advance(1), 100), batches[5..], "or the one that ends before it");
    assert_eq!(last(Lsn::MAX, 100), batches[8..]);
}

#[test]
fn batches_larger_than_one_read_are_read_across_segments() {
    let log = log(LogOptions {
        segment_bytes: 16 << 20,
        ring_bytes: 4 << 20,
        unwritten_bytes_max: 2 << 20,
        ..options()
    });
    let mut appender = log.appender();
    let mut written = Vec::new();
    for _ in 0..20 {
        for bytes in [900_000, 1_000_000, 1_000_000] {
            let payload = vec![b'x'; bytes];
            let pending = appender.reserve(&payload).unwrap();
            written.push(pending.lsn());
            pending.publish();
        }
        log.flush_all().unwrap();
    }
    for bytes_max in [1, 1 << 20, 64 << 20] {
        assert_eq!(drain(&mut log.cursor(Lsn::ZERO), bytes_max), written, "{bytes_max}");
    }
}
