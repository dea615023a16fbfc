//! Cuts on a simulated disk: exactly the batches before the cut remain, also after interruptions.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use env::{
    Prng, SimClock, SimDisk, SimEntropy,
    sim::{CrashMode, FaultPlan},
};

use super::*;
use crate::{LogOptions, Recovery};

const DIR: &str = "/data";

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        appenders_max: 4,
        unwritten_bytes_max: 16 << 10,
        ..LogOptions::default()
    }
}

fn recover(disk: &Arc<SimDisk>) -> (Recovery, usize) {
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    let mut records = 0;
    recovery
        .replay::<Error>(
            |_, _| {
                records += 1;
                Ok(())
            },
            |_| {},
        )
        .unwrap();
    (recovery, records)
}

/// A disk with a log of `count` batches, and the ends of the batches.
fn written(count: usize, in_order: bool) -> (Arc<SimDisk>, Vec<Lsn>) {
    let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 3, ..Default::default() });
    let log = recover(&disk).0.finish(Arc::new(SimClock::new(0))).unwrap();
    let mut appender = log.appender();
    let mut ends = Vec::new();
    for number in 0..count {
        appender.reserve(&vec![7; number * 211 % 9000]).unwrap().publish();
        log.flush_all().unwrap();
        ends.push(log.durable_lsn());
    }
    if in_order {
        log.close().unwrap();
    }
    (disk, ends)
}

#[test]
fn exactly_the_log_behind_the_cut_is_removed_and_kept_aside() {
    for (in_order, number) in [(true, 0), (false, 60), (true, 118), (false, 119)] {
        let (disk, ends) = written(120, in_order);
        let Cut::Done(path) = cut_log(&*disk, Path::new(DIR), ends[number]).unwrap() else {
            panic!("a base")
        };
        let (recovery, records) = recover(&disk);
        assert_eq!(records, number + 1);
        assert_eq!(recovery.tail().unwrap().end, ends[number]);
        assert_eq!(recovery.tail().unwrap().torn_end, None);
        assert_eq!(disk.read_file(&path).unwrap().is_empty(), number == 119 && !in_order);
        let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
        log.appender().reserve(b"goes on").unwrap().publish();
        log.close().unwrap();
        assert_eq!(recover(&disk).1, number + 2);
    }
}

#[test]
fn a_cut_may_stop_anywhere_and_be_finished() {
    let (whole, ends) = written(120, true);
    let mut prng = Prng::new(1);
    for io in 0..40 {
        let (disk, at) = (whole.clone_state(), ends[prng.below(119) as usize]);
        disk.reseed(io);
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(disk.io_count() + io), ..FaultPlan::default() });
        let first = cut_log(&*disk, Path::new(DIR), at);
        disk.crash(CrashMode::Random);
        disk.set_fault_plan(FaultPlan::default());
        let (recovery, _) = recover(&disk);
        assert!(recovery.tail().unwrap().end >= at);
        drop(recovery);
        cut_log(&*disk, Path::new(DIR), at).unwrap();
        assert_eq!(recover(&disk).0.tail().unwrap().end, at, "io {io}: {first:?}");
    }
}

#[test]
fn a_forgotten_position_is_not_cut() {
    let (disk, ends) = written(120, false);
    let log = recover(&disk).0.finish(Arc::new(SimClock::new(0))).unwrap();
    log.truncate_before(ends[60]).unwrap();
    drop(log);
    assert_eq!(cut_log(&*disk, Path::new(DIR), ends[20]).unwrap(), Cut::NoBase);
    assert_eq!(recover(&disk).1, 59);
}

#[test]
fn a_log_without_its_beginning_is_cut_alone_as_long_as_something_remains() {
    let (disk, ends) = written(120, true);
    let log = recover(&disk).0.finish(Arc::new(SimClock::new(0))).unwrap();
    log.forget_before(ends[60]).unwrap();
    drop(log);
    assert_eq!(cut_log(&*disk, Path::new(DIR), ends[80]).unwrap(), Cut::NoBase, "it needs a snapshot");
    for at in [20, 60] {
        assert_eq!(cut_log_alone(&*disk, Path::new(DIR), ends[at]).unwrap(), Cut::NoBase);
    }
    assert!(matches!(cut_log_alone(&*disk, Path::new(DIR), ends[80]).unwrap(), Cut::Done(_)));
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    recovery.without_state();
    while recovery.next_batch().unwrap().is_some() {}
    assert_eq!((recovery.start(), recovery.tail().unwrap().end), (ends[60], ends[80]));
}

#[test]
fn every_tail_that_is_cut_at_one_position_is_kept() {
    let (disk, ends) = written(20, false);
    let mut kept = Vec::new();
    for tail in [b"first tail", b"other tail", b"third tail"] {
        let log = recover(&disk).0.finish(Arc::new(SimClock::new(0))).unwrap();
        log.appender().reserve(tail).unwrap().publish();
        log.flush_all().unwrap();
        drop(log);
        let Cut::Done(path) = cut_log(&*disk, Path::new(DIR), ends[10]).unwrap() else { panic!("a base") };
        let bytes = disk.read_file(&path).unwrap();
        assert!(bytes.windows(tail.len()).any(|found| found == tail), "{}", path.display());
        kept.push(path);
    }
    let names = kept.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
    let position = format!("diverged-{:016x}", ends[10].get());
    assert!(names.eq(["", "-2", "-3"].map(|number| format!("{position}{number}.bin"))));
}
