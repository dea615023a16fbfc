//! A log is closed and recovered on a disk that has exactly the required room.

#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc};

use env::{
    SimDisk,
    sim::{FaultKind, FaultPlan},
};

use crate::{
    Error, Log,
    log::tests::{append, disk, recover},
};

/// The first limit of the disk, which is far more than a test needs.
const LIMIT_BYTES: u64 = 16 << 20;
const STEP_BYTES: u64 = 4 << 10;

#[test]
fn a_log_with_the_required_room_is_closed_and_recovered() {
    for more in [0, 64 << 10] {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        append(&mut log.appender(), b"kept");
        log.flush_all().unwrap();
        // Finds the smallest limit with which there is enough room.
        let mut limit_bytes = (0..LIMIT_BYTES).step_by(STEP_BYTES as usize);
        let enough = limit_bytes.find(|&bytes| {
            disk.set_space_limit(Some(bytes));
            match log.require_room_to_reopen(more) {
                Ok(()) => true,
                Err(error) if error.is_disk_full() => false,
                Err(error) => panic!("{error}"),
            }
        });
        let enough = enough.unwrap();
        assert!(enough > 0, "a full disk was refused");
        if more > 0 {
            disk.write_file(Path::new("/data/more"), &vec![1; more as usize]);
        }
        log.close().unwrap();
        drop(log);
        assert_eq!(recover(&disk).unwrap().0, [b"kept"], "with {more} bytes more");
    }
}

/// In this test, the batch that closes the log fills the segment to its end, so recovery makes another one.
#[test]
fn the_required_room_includes_the_segment_that_closing_makes_necessary() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut appender = log.appender();
    let left = |log: &crate::Log| {
        log.shared.prepared_end.load(crate::sync::Ordering::SeqCst) - log.shared.sequencer.tail()
    };
    while left(&log) > 4096 {
        append(&mut appender, &[7; 1000]);
        log.flush_all().unwrap();
    }
    let mut limit_bytes = (0..LIMIT_BYTES).step_by(STEP_BYTES as usize);
    let enough = limit_bytes.find(|&bytes| {
        disk.set_space_limit(Some(bytes));
        log.require_room_to_reopen(0).is_ok()
    });
    assert!(enough.is_some() && left(&log) > 8192);
    log.close().unwrap();
    drop((appender, log));
    recover(&disk).unwrap();
}

/// A log that needs another segment before it can be closed.
fn full_log(disk: &Arc<SimDisk>) -> Log {
    let (_, log) = recover(disk).unwrap();
    let mut appender = log.appender();
    while log.shared.sequencer.tail() < log.shared.prepared_end.load(crate::sync::Ordering::SeqCst) {
        append(&mut appender, &[7; 1000]);
        log.flush_all().unwrap();
    }
    drop(appender);
    log
}

/// If a failing disk were reported as full, the server would wait for room for ever.
#[test]
fn a_failing_disk_is_not_taken_for_a_full_one() {
    let disk = disk();
    let log = full_log(&disk);
    let fail_io = Some((disk.io_count(), FaultKind::Eio));
    disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
    let error = log.require_room_to_reopen(0).unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && !error.is_disk_full(), "{error}");
    assert!(error.to_string().contains("log-"), "{error}");
    log.require_room_to_reopen(0).unwrap();
}

#[test]
fn a_poisoned_log_does_not_wait_for_room() {
    let disk = disk();
    let log = full_log(&disk);
    log.shared.poison(&Error::Poisoned { reason: "for this test".into() });
    let error = log.require_room_to_reopen(0).unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
}

#[test]
fn a_log_that_fills_its_last_segment_is_recovered_without_more_room() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut appender = log.appender();
    let mut count = 0;
    while log.shared.sequencer.tail() < log.shared.prepared_end.load(crate::sync::Ordering::SeqCst) {
        append(&mut appender, &[7; 1000]);
        log.flush_all().unwrap();
        count += 1;
    }
    disk.set_space_limit(Some(0));
    assert!(log.require_room_to_reopen(0).unwrap_err().is_disk_full());
    disk.set_space_limit(None);
    log.require_room_to_reopen(0).unwrap();
    assert!(log.shared.sequencer.tail() < log.shared.prepared_end.load(crate::sync::Ordering::SeqCst));
    log.close().unwrap();
    drop((appender, log));
    assert_eq!(recover(&disk).unwrap().0.len(), count);
}
