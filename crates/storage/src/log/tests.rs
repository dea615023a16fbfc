//! The log as a whole, on a simulated disk: appended records are recovered, and damage is distinguished from
//! a torn tail.

#![allow(clippy::unwrap_used)]

mod behind_snapshot;
mod copying;
mod earlier_format;

use std::{ops::ControlFlow, path::Path, sync::Arc};

use env::{Disk, SimClock, SimDisk, SimEntropy};
use lsn::Lsn;

use super::{record::BLOCK_BYTES, segment::SEGMENT_HEADER_BYTES, *};
use crate::{Error, Recovery, check, check_behind};

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

pub(super) fn disk() -> Arc<SimDisk> {
    SimDisk::new(env::sim::SimDiskOptions { seed: 7, ..Default::default() })
}

/// Recovers; returns the payloads and the log.
pub(super) fn recover(disk: &Arc<SimDisk>) -> Result<(Vec<Vec<u8>>, Log), Error> {
    let mut payloads = Vec::new();
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1))?;
    recovery.replay::<Error>(
        |_, payload| {
            payloads.push(payload.to_vec());
            Ok(())
        },
        |_| {},
    )?;
    let log = recovery.finish(Arc::new(SimClock::new(0)))?;
    Ok((payloads, log))
}

pub(super) fn append(appender: &mut Appender, payload: &[u8]) -> Lsn {
    let pending = appender.reserve(payload).expect("the log is not poisoned");
    let lsn = pending.lsn();
    pending.publish();
    lsn
}

/// Appends and flushes each payload as a batch of its own; returns the ends of the batches.
fn write_batches(log: &Log, payloads: &[Vec<u8>]) -> Vec<Lsn> {
    let mut appender = log.appender();
    let write = |payload: &Vec<u8>| {
        append(&mut appender, payload);
        log.flush_all().unwrap();
        log.durable_lsn()
    };
    payloads.iter().map(write).collect()
}

fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("payload {number} {}", "x".repeat(number % 50)).into_bytes()).collect()
}

#[test]
fn appended_records_are_recovered_in_order() {
    let disk = disk();
    let (none, log) = recover(&disk).unwrap();
    assert!(none.is_empty());
    let payloads = numbered(200);
    let mut appender = log.appender();
    let lsns: Vec<Lsn> = payloads.iter().map(|payload| append(&mut appender, payload)).collect();
    assert!(lsns.is_sorted() && log.durable_lsn() < lsns[0]);
    log.flush_all().unwrap();
    assert!(log.durable_lsn() >= lsns[199]);
    assert_eq!(log.stats().syncs.load(Ordering::Relaxed), 1, "one sync for everything that was waiting");
    drop((appender, log));
    let (read, log) = recover(&disk).unwrap();
    assert_eq!(read, payloads);
    assert!(log.epoch() > 1);
}

#[test]
fn a_dropped_appender_gives_its_place_back() {
    let (_, log) = recover(&disk()).unwrap();
    let _others: Vec<_> = (1..options().appenders_max).map(|_| log.appender()).collect();
    for payload in numbered(100) {
        append(&mut log.appender(), &payload);
    }
    let listening = log.appender();
    listening.listen(|| {});
    drop(listening);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.appender())).is_err());
}

#[test]
fn the_log_crosses_segments_and_recycles_forgotten_ones() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads: Vec<Vec<u8>> = (0..400u32).map(|number| vec![number as u8; 4000]).collect();
    let ends = write_batches(&log, &payloads[..200]);
    log.truncate_before(ends[149]).unwrap();
    let mut appender = log.appender();
    for payload in &payloads[200..] {
        append(&mut appender, payload);
        log.flush_all().unwrap();
    }
    assert!(log.stats().segments_recycled.load(Ordering::Relaxed) > 0);
    drop((appender, log));
    let (read, log) = recover(&disk).unwrap();
    assert_eq!(read.len(), 250);
    assert_eq!(read, payloads[150..]);
    assert_eq!(log.start_lsn(), ends[149]);
}

#[test]
fn a_segment_whose_recycling_fails_is_recycled_later() {
    use env::sim::{FaultKind, FaultPlan};
    // Lets each I/O of the recycling fail in turn.
    for offset in 0.. {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        let payloads: Vec<Vec<u8>> = (0..150u32).map(|number| vec![number as u8; 4000]).collect();
        let ends = write_batches(&log, &payloads);
        log.truncate_before(ends[149]).unwrap();
        log.shared.wanted_end.store(log.shared.prepared_end.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        let fail_io = Some((disk.io_count() + offset, FaultKind::Eio));
        disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
        if log.prepare_segment().unwrap() == Prepare::Made {
            assert!(offset >= 3, "the rename, the header and its sync were to fail");
            return;
        }
        disk.set_space_limit(Some(0));
        log.shared.wanted_end.store(log.shared.prepared_end.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        assert_eq!(log.prepare_segment().unwrap(), Prepare::Made, "after the failure of I/O {offset}");
        assert_eq!(log.stats().segments_recycled.load(Ordering::Relaxed), 1);
    }
}

/// An appender without a segment creates one itself, concurrently with the segment thread.
#[test]
fn segments_of_concurrent_makers_are_contiguous() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let wanted_end = 100 * options().segment_bytes;
    log.shared.wanted_end.store(wanted_end, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while log.prepare_segment().unwrap() == Prepare::Made {});
        }
    });
    let segments = log.shared.segments.lock();
    let ends: Vec<Lsn> = segments.ready.iter().map(|segment| segment.end).collect();
    let starts: Vec<Lsn> = segments.ready.iter().map(|segment| segment.start).collect();
    assert_eq!(starts[1..], ends[..ends.len() - 1]);
    assert_eq!(ends.last(), Some(&Lsn::new(wanted_end)));
}

#[test]
fn a_write_that_waits_for_segments_wakes_their_maker() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let wakes = woken.clone();
    log.on_segment_wanted(move || _ = wakes.fetch_add(1, Ordering::SeqCst));
    let (appender, bytes) = (log.appender(), 5 * options().segment_bytes);
    assert_eq!(appender.admit(1), Admission::Go);
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    assert_eq!(appender.admit(bytes), Admission::Wait);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    while log.prepare_segment().unwrap() == Prepare::Made {}
    assert_eq!(appender.admit(bytes), Admission::Go);
}

#[test]
fn records_appended_while_a_caller_flushes_wake_the_flusher() {
    let (_, log) = recover(&disk()).unwrap();
    let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let wakes = woken.clone();
    log.on_flush_wanted(move || _ = wakes.fetch_add(1, Ordering::SeqCst));
    let (mut first, second) = (log.appender(), parking_lot::Mutex::new(log.appender()));
    let flushed = log.clone();
    // The listener runs in the middle of the flush.
    first.listen(move || {
        append(&mut second.lock(), b"meanwhile");
        assert!(!flushed.needs_flusher(), "its appender relies on this flush");
    });
    let lsn = append(&mut first, b"first");
    assert!(first.wait_for(lsn));
    log.make_durable(lsn).unwrap();
    assert!(log.durable_lsn() < log.appended_lsn() && log.needs_flusher());
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    log.make_durable(log.appended_lsn()).unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), 1, "nothing was left behind");
}

#[test]
fn room_is_made_for_a_record_as_far_as_the_disk_has_any() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let segment_bytes = options().segment_bytes;
    assert!(log.make_room_for(3 * segment_bytes));
    assert_eq!(log.appender().admit(3 * segment_bytes), Admission::Go);
    disk.set_space_limit(Some(0));
    assert!(log.make_room_for(segment_bytes), "there is room already");
    assert!(!log.make_room_for(9 * segment_bytes));
    assert_eq!(log.appender().admit(0), Admission::NoRoom);
    disk.set_space_limit(None);
    assert!(log.make_room_for(9 * segment_bytes));
    assert_eq!(log.appender().admit(0), Admission::Go);
}

#[test]
fn forgotten_segments_are_removed_at_the_next_start() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads: Vec<Vec<u8>> = (0..100u32).map(|number| vec![number as u8; 4000]).collect();
    let ends = write_batches(&log, &payloads);
    log.truncate_before(ends[98]).unwrap();
    drop(log);
    let first = ends[98].align_down(options().segment_bytes);
    let forgotten = || {
        let starts = segment::list(&*disk, Path::new(DIR)).unwrap();
        starts.into_iter().filter(|start| *start < first).count()
    };
    assert_eq!(forgotten(), 1, "one was kept to be recycled");
    assert_eq!(recover(&disk).unwrap().0, payloads[99..]);
    assert_eq!(forgotten(), 0);
}

#[test]
fn large_payloads_travel_in_parts_between_others() {
    let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 7, ..Default::default() });
    let options = LogOptions { segment_bytes: 16 << 20, ring_bytes: 4 << 20, ..options() };
    let open = || {
        let mut recovery =
            Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1)).unwrap();
        let mut payloads = Vec::new();
        let keep = |_, payload: &[u8]| {
            payloads.push(payload.to_vec());
            Ok(())
        };
        recovery.replay::<Error>(keep, |_| {}).unwrap();
        (payloads, recovery.finish(Arc::new(SimClock::new(0))).unwrap())
    };
    let (_, log) = open();
    let large: Vec<u8> = (0..20_000_000u32).map(|byte| ((byte * 31) >> 3) as u8).collect();
    let mut appender = log.appender();
    append(&mut appender, b"before");
    append(&mut appender, &large);
    append(&mut appender, b"after");
    log.flush_all().unwrap();
    drop((appender, log));
    assert_eq!(open().0, [b"before".to_vec(), large, b"after".to_vec()]);
}

#[test]
fn a_clean_end_is_remembered_and_its_loss_is_damage() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &numbered(3));
    log.close().unwrap();
    let report = check(disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap();
    assert!(report.closed_cleanly);
    assert_eq!(report.records, 3);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    disk.corrupt(&path, SEGMENT_HEADER_BYTES + 2 * BLOCK_BYTES + 30, 1).unwrap();
    assert!(matches!(recover(&disk), Err(Error::Corrupt(_))));
}

#[test]
fn every_flipped_bit_before_the_last_batch_is_refused_with_its_place() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let ends = write_batches(&log, &numbered(4));
    drop(log);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    // Damages each of the first 200 and the last 200 bytes of the first three batches.
    let last = ends[2].get();
    for at in (0..200).chain(last - 200..last) {
        let state = disk.clone_state();
        state.corrupt(&path, SEGMENT_HEADER_BYTES + at, 0x10).unwrap();
        let Err(Error::Corrupt(damage)) = recover(&state).map(|_| ()) else {
            panic!("byte {at}: damage to a durable batch was not reported");
        };
        assert_eq!(damage.path, path);
        assert!(damage.intact_end.get() <= at && damage.batches_after > 0, "{damage:?}");
        assert_eq!(damage.durable_lsn, ends[2]);
    }
}

#[test]
fn every_truncation_of_the_last_two_batches_recovers_or_refuses() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(5);
    let ends = write_batches(&log, &payloads);
    drop(log);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    for end in (ends[2].get()..=ends[4].get()).rev().step_by(7) {
        let state = disk.clone_state();
        // The file is as if the file system had lost its tail.
        state.truncate(&path, SEGMENT_HEADER_BYTES + end).unwrap();
        let complete = ends.iter().filter(|it| it.get() <= end).count();
        let (read, _) = recover(&state).unwrap();
        assert_eq!(read, payloads[..complete], "cut at {end}");
    }
}

#[test]
fn a_torn_last_batch_is_cut_kept_aside_and_not_found_again() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(3);
    let ends = write_batches(&log, &payloads);
    drop(log);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    disk.corrupt(&path, SEGMENT_HEADER_BYTES + ends[1].get() + 40, 0xFF).unwrap();
    let (read, log) = recover(&disk).unwrap();
    assert_eq!(read, payloads[..2]);
    assert_eq!(log.durable_lsn(), ends[1]);
    let torn = format!("torn-{:016x}.bin", ends[1].get());
    assert!(disk.list(Path::new(DIR)).unwrap().contains(&torn));
    drop(log);
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    while recovery.next_batch().unwrap().is_some() {}
    assert_eq!(recovery.tail().unwrap().torn_end, None);
}

#[test]
fn a_full_disk_makes_the_log_read_only_until_there_is_room() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    disk.set_space_limit(Some(300 << 10));
    let mut appender = log.appender();
    let mut writes = 0;
    while log.admit(1000) == Admission::Go {
        append(&mut appender, &[1; 1000]);
        log.flush_all().unwrap();
        log.prepare_segment().unwrap();
        writes += 1;
    }
    assert_eq!(log.admit(1000), Admission::NoRoom);
    assert!(writes > 0 && !log.no_room_reason().is_empty());
    assert_eq!(log.durable_lsn(), log.appended_lsn(), "everything admitted could be flushed");
    disk.set_space_limit(None);
    assert_eq!(log.prepare_segment().unwrap(), Prepare::Made);
    assert_eq!(log.admit(1000), Admission::Go);
}

#[test]
fn a_failed_write_poisons_the_log_for_good() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut appender = log.appender();
    let lsn = append(&mut appender, b"never durable");
    let fail_io = Some((disk.io_count(), env::sim::FaultKind::Eio));
    disk.set_fault_plan(env::sim::FaultPlan { fail_io, ..Default::default() });
    assert!(log.flush().is_err());
    assert!(log.flush().is_err(), "no second try");
    assert!(log.durable_lsn() < lsn);
    assert_eq!(log.admit(1), Admission::Poisoned);
    assert!(log.poison_reason().is_some());
}

#[test]
fn weaker_durabilities_sync_late_or_never_and_closing_syncs() {
    for (durability, syncs_while_running) in [(Durability::None, false), (Durability::Interval, true)] {
        let disk = disk();
        let clock = Arc::new(SimClock::new(0));
        let options = LogOptions { durability, ..options() };
        let mut recovery =
            Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1)).unwrap();
        while recovery.next_batch().unwrap().is_some() {}
        let log = recovery.finish(clock.clone()).unwrap();
        let mut appender = log.appender();
        let lsn = append(&mut appender, b"lazy");
        assert_eq!(log.flush().unwrap(), Flush::Wrote);
        assert!(log.written_lsn() >= lsn && log.durable_lsn() < lsn);
        clock.advance_ms(1001);
        log.flush().unwrap();
        assert_eq!(log.durable_lsn() >= lsn, syncs_while_running, "{durability:?}");
        log.close().unwrap();
        assert!(log.durable_lsn() >= lsn);
        drop((appender, log));
        disk.crash(env::sim::CrashMode::LoseAll);
        assert_eq!(recover(&disk).unwrap().0, [b"lazy"]);
    }
}

#[test]
fn an_idle_log_vouches_for_its_last_batch() {
    let disk = disk();
    let clock = Arc::new(SimClock::new(0));
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    while recovery.next_batch().unwrap().is_some() {}
    let log = recovery.finish(clock.clone()).unwrap();
    write_batches(&log, &numbered(1));
    let Flush::Idle { due_us: Some(due_us) } = log.flush().unwrap() else { panic!("a seal is due") };
    clock.advance_us(due_us);
    assert_eq!(log.flush().unwrap(), Flush::Wrote);
    assert_eq!(log.flush().unwrap(), Flush::Idle { due_us: None });
    drop(log);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    disk.corrupt(&path, SEGMENT_HEADER_BYTES + 30, 1).unwrap();
    assert!(matches!(recover(&disk), Err(Error::Corrupt(_))));
}

#[test]
fn a_record_larger_than_the_segments_ahead_waits_for_as_many_as_it_needs() {
    const LARGE_BYTES: u64 = 3 << 20;
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut appender = log.appender();
    while log.prepare_segment().unwrap() == Prepare::Made {}
    assert_eq!(log.admit(LARGE_BYTES), Admission::Wait);
    assert!(log.needs_segment() && appender.wait_for_room());
    while log.prepare_segment().unwrap() == Prepare::Made {}
    assert_eq!(log.admit(LARGE_BYTES), Admission::Go);
    let large = vec![7; LARGE_BYTES as usize];
    append(&mut appender, &large);
    log.flush_all().unwrap();
    drop((appender, log));
    assert_eq!(recover(&disk).unwrap().0, [large]);
}

#[test]
fn a_record_too_large_for_the_disk_is_refused_and_smaller_ones_go_on() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    while log.prepare_segment().unwrap() == Prepare::Made {}
    disk.set_space_limit(Some(600 << 10));
    assert_eq!(log.admit(3 << 20), Admission::Wait);
    assert_eq!(log.prepare_segment().unwrap(), Prepare::NoRoom);
    assert_eq!(log.admit(3 << 20), Admission::NoRoom);
    assert_eq!(log.prepare_segment().unwrap(), Prepare::Enough);
    assert_eq!(log.admit(1000), Admission::Go);
}

#[test]
fn a_lazy_log_is_durable_up_to_batch_boundaries_only() {
    let disk = disk();
    let options = LogOptions { durability: Durability::None, ..options() };
    let mut recovery = Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1)).unwrap();
    while recovery.next_batch().unwrap().is_some() {}
    let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
    let mut appender = log.appender();
    let mut boundaries = vec![Lsn::ZERO];
    // Batches of 12 KiB, which do not divide a segment; the oldest of more than four unsynced files is
    // synced.
    for _ in 0..200 {
        append(&mut appender, &[5; 9000]);
        log.flush_all().unwrap();
        boundaries.push(log.written_lsn());
        assert!(boundaries.contains(&log.durable_lsn()), "{} is within a batch", log.durable_lsn());
    }
    assert!(log.durable_lsn() > Lsn::ZERO);
}

#[test]
fn a_check_from_a_batch_on_reads_nothing_before_it() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let ends = write_batches(&log, &(0..60).map(|number| vec![number; 5000]).collect::<Vec<_>>());
    log.close().unwrap();
    let (end, go_on) = (log.durable_lsn(), |_, _| ControlFlow::Continue(()));
    let from = ends[24];
    let check_from = |disk: &Arc<SimDisk>, from| check_behind(disk.clone(), Path::new(DIR), from, go_on);
    let whole = check(disk.clone(), Path::new(DIR), go_on).unwrap();
    let report = check_from(&disk, from).unwrap();
    assert_eq!((report.start, report.tail.end, report.records), (from, end, 35));
    assert_eq!(report.closed_at_ms, whole.closed_at_ms);
    assert_eq!(check_from(&disk, end).unwrap().batches, 0);
    let inside = ends[25].get() - BLOCK_BYTES;
    assert!(
        matches!(check_from(&disk, Lsn::new(inside)), Err(Error::Inconsistent { .. })),
        "no batch ends there"
    );
    let segment = Path::new(DIR).join("log-0000000000000000.seg");
    for (at, is_found) in [(ends[10], false), (ends[23], false), (from, true), (ends[25], true)] {
        let damaged = disk.clone_state();
        damaged.corrupt(&segment, SEGMENT_HEADER_BYTES + at.get() + 30, 1).unwrap();
        assert_eq!(check_from(&damaged, from).is_err(), is_found, "{at}");
    }
}

#[test]
fn a_log_that_was_ended_for_a_hand_over_stays_as_it_is() {
    for (durability, payloads) in
        [(Durability::Strict, 0), (Durability::Strict, 3), (Durability::Interval, 3)]
    {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        log.set_durability(durability);
        write_batches(&log, &numbered(payloads));
        let end = log.end_for_handover().unwrap();
        assert_eq!(log.durability(), durability);
        assert_eq!((log.durable_lsn(), log.appended_lsn()), (end, end));
        // The log does not grow when it is idle, ended again or closed: a server that has it up to `end` has
        // all of it.
        assert_eq!(log.flush().unwrap(), Flush::Idle { due_us: None });
        assert_eq!(log.end_for_handover().unwrap(), end);
        log.close().unwrap();
        assert_eq!(log.appended_lsn(), end);
        let report = check(disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap();
        assert!(report.closed_cleanly && report.tail.end == end);
    }
}

#[test]
fn batches_without_records_are_no_data() {
    let disk = disk();
    for _ in 0..3 {
        let (_, log) = recover(&disk).unwrap();
        log.mark_epoch().unwrap();
        assert!(!log.holds_records(|_| true).unwrap());
        log.close().unwrap();
    }
    let (_, log) = recover(&disk).unwrap();
    assert!(!log.holds_records(|_| true).unwrap());
    write_batches(&log, &numbered(1));
    assert!(log.holds_records(|_| true).unwrap() && !log.holds_records(|_| false).unwrap());
}
