//! Copies of a log that is still being written: pinned files are kept, and a copied plan is a complete
//! directory.

use env::{Access, sim::SimDiskOptions};

use super::*;
use crate::{
    Pin, Reached, retain_snapshots, set_aside_unpinned,
    snapshot::{self, ChunkInfo, Compression, SnapshotInfo, SnapshotWriter},
};

/// Publishes a snapshot with one dummy row, after everything appended so far.
fn publish(disk: &Arc<SimDisk>, log: &Log) -> SnapshotInfo {
    let meta = log.begin_snapshot(Compression::None);
    let (writer, parts) = SnapshotWriter::create(disk.clone(), Path::new(DIR), meta, 1).unwrap();
    let end = log.appended_lsn();
    let mut summaries = Vec::new();
    for mut part in parts {
        let info = ChunkInfo { first_slot: 0, last_slot: 0, rows: 1, lsn: end, continues: false };
        part.append(info, b"a row").unwrap();
        summaries.push(part.finish().unwrap());
    }
    log.make_durable(end).unwrap();
    let info = writer.publish(summaries, end).unwrap();
    retain_snapshots(&**disk, Path::new(DIR), log, 1).unwrap();
    info
}

fn large(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; 4000]).collect()
}

/// Copies the files of the plan to another disk.
fn copy(disk: &SimDisk, plan: &CopyPlan) -> Arc<SimDisk> {
    let copy = SimDisk::new(SimDiskOptions { seed: 8, ..Default::default() });
    copy.create_dir_all(&snapshot::directory(Path::new(DIR))).unwrap();
    for CopiedFile { name, bytes } in &plan.files {
        let mut content = vec![0; *bytes as usize];
        let path = Path::new(DIR).join(name);
        disk.open(&path, Access::Read).unwrap().read_exact_at(&mut content, 0).unwrap();
        copy.write_file(&path, &content);
    }
    copy.write_file(&Path::new(DIR).join(CopyPlan::CONTROL_NAME), &plan.control);
    copy
}

fn read_to(disk: &Arc<SimDisk>, info: &SnapshotInfo, until: Lsn) -> (Vec<Vec<u8>>, Reached) {
    let mut recovery = Recovery::open_to_read(disk.clone(), Path::new(DIR)).unwrap();
    recovery.read_until(until);
    recovery.start_at(info).unwrap();
    let mut payloads = Vec::new();
    let keep = |_, payload: &[u8]| {
        payloads.push(payload.to_vec());
        Ok::<(), Error>(())
    };
    recovery.replay(keep, |_| {}).unwrap();
    (payloads, recovery.reached())
}

#[test]
fn a_pin_within_a_batch_keeps_the_whole_batch() {
    for bytes_in in [1, 4096, 4097] {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        write_batches(&log, &large(3));
        let start = log.durable_lsn();
        {
            let mut appender = log.appender();
            large(3).iter().for_each(|payload| _ = append(&mut appender, payload));
            log.flush_all().unwrap();
        }
        let batch = log.batch_at(start.advance(1)).unwrap().unwrap();
        assert!(batch.start == start && batch.end > start.advance(bytes_in));
        let _pin = log.pin(start.advance(bytes_in)).unwrap();
        publish(&disk, &log);
        retain_snapshots(&*disk, Path::new(DIR), &log, 1).unwrap();
        assert_eq!(log.start_lsn(), start, "{bytes_in}");
        assert!(matches!(log.cursor(start).read(1 << 20).unwrap(), CursorRead::Chunk(_)));
    }
}

#[test]
fn pinned_files_are_kept_until_the_pin_is_dropped() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &large(100));
    let first = publish(&disk, &log);
    assert!(log.pin(Lsn::ZERO).is_none(), "forgotten already");
    let pins: Vec<Pin> = (0..2).map(|_| log.pin(first.begin_lsn).unwrap()).collect();
    write_batches(&log, &large(100));
    let second = publish(&disk, &log);
    let kept = || snapshot::list_begins(&*disk, Path::new(DIR)).unwrap();
    for pin in pins {
        retain_snapshots(&*disk, Path::new(DIR), &log, 1).unwrap();
        assert_eq!(kept(), [second.begin_lsn, first.begin_lsn]);
        assert_eq!(log.start_lsn(), first.begin_lsn);
        assert!(!log.truncate_before(second.begin_lsn).unwrap());
        assert_eq!(log.start_lsn(), first.begin_lsn);
        drop(pin);
    }
    retain_snapshots(&*disk, Path::new(DIR), &log, 1).unwrap();
    assert_eq!((kept(), log.start_lsn()), (vec![second.begin_lsn], second.begin_lsn));
    let end = log.durable_lsn();
    assert!(log.truncate_before(end).unwrap());
    assert_eq!(log.start_lsn(), end);
}

#[test]
fn a_snapshot_is_not_set_aside_while_it_is_copied() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &large(3));
    let info = publish(&disk, &log);
    let set_aside = || set_aside_unpinned(&*disk, Path::new(DIR), &log, info.begin_lsn).unwrap();
    let kept = || snapshot::list_begins(&*disk, Path::new(DIR)).unwrap();
    let pin = log.pin(info.begin_lsn).unwrap();
    assert_eq!((set_aside(), kept()), (None, vec![info.begin_lsn]));
    drop(pin);
    assert!(set_aside().is_some() && kept().is_empty());
}

#[test]
fn the_chain_value_of_the_beginning_is_unknown_once_it_is_forgotten() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    assert!(log.chain_at(Lsn::ZERO).unwrap().is_some(), "the log begins there");
    write_batches(&log, &large(100));
    publish(&disk, &log);
    assert!(log.start_lsn() > Lsn::ZERO);
    for position in [0, 8, 79] {
        assert_eq!(log.chain_at(Lsn::new(position)).unwrap(), None, "no batch ends at {position}");
    }
}

#[test]
fn a_copy_ends_with_a_batch_that_identifies_it() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &large(3));
    let info = publish(&disk, &log);
    assert_eq!(log.durable_lsn(), info.begin_lsn, "nothing is behind the snapshot");
    let plan = log.plan_copy(info.begin_lsn, false).unwrap().expect("the snapshot is there");
    let last = log.batch_ending_at(plan.end_lsn).unwrap().expect("the copy ends with a batch");
    assert_eq!((last.start, last.epoch), (plan.begin_lsn, log.epoch()));
    assert_eq!(read_to(&copy(&disk, &plan), &info, Lsn::MAX).0, Vec::<Vec<u8>>::new());
    let again = log.plan_copy(info.begin_lsn, false).unwrap().expect("the snapshot is there");
    assert_eq!(again.end_lsn, plan.end_lsn, "one is enough");
}

#[test]
fn a_copy_holds_all_records_appended_before_its_plan() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &large(70));
    let info = publish(&disk, &log);
    // The payloads fill more than one segment, and the last records are not flushed.
    let payloads = large(130);
    let ends = write_batches(&log, &payloads[..120]);
    let mut appender = log.appender();
    let lsns: Vec<Lsn> = payloads[120..].iter().map(|payload| append(&mut appender, payload)).collect();
    let plan = log.plan_copy(info.begin_lsn, false).unwrap().expect("the snapshot is there");
    assert!(plan.begin_lsn == info.begin_lsn && plan.end_lsn >= lsns[9]);
    assert!(log.plan_copy(ends[0], false).unwrap().is_none(), "no snapshot begins there");
    write_batches(&log, &large(200));

    let copied = copy(&disk, &plan);
    let report = check(copied.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.start, report.tail.end), (plan.begin_lsn, plan.end_lsn));
    assert!(report.closed_cleanly && report.needs_snapshot);
    assert_eq!(read_to(&copied, &info, Lsn::MAX).0, payloads);
    for count in [0, 1, 57, 120] {
        let last = if count == 0 { info.end_lsn } else { lsn_of(&ends, count) };
        let (read, reached) = read_to(&copied, &info, Lsn::new(last.get() + 8));
        assert_eq!((read.as_slice(), reached.lsn), (&payloads[..count], last), "{count} records");
        assert_eq!(reached.closed_at_ms, (count > 0).then_some(0), "the clock stands still");
    }

    // A loss at the end of the copy is detected.
    let last = Path::new(DIR).join(&plan.files.last().unwrap().name);
    let file = copied.open(&last, Access::ReadWrite).unwrap();
    file.set_len(file.len().unwrap() - BLOCK_BYTES).unwrap();
    assert!(matches!(
        check(copied, Path::new(DIR), |_, _| ControlFlow::Continue(())),
        Err(Error::Corrupt(_))
    ));
}

#[test]
fn a_copy_of_the_log_alone_is_read_without_a_snapshot() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    for (before, behind) in [(0, 3), (150, 130)] {
        write_batches(&log, &large(before));
        if before > 0 {
            publish(&disk, &log);
        }
        let payloads = large(behind);
        write_batches(&log, &payloads);
        let plan = log.plan_copy_of_log().unwrap();
        assert_eq!((plan.begin_lsn, plan.end_lsn), (log.start_lsn(), log.durable_lsn()));
        publish(&disk, &log);
        assert_eq!(log.start_lsn(), plan.begin_lsn, "it is pinned");
        let copied = copy(&disk, &plan);
        let mut recovery = Recovery::open(copied, Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
        assert_eq!(recovery.needs_snapshot(), before > 0, "as in the original");
        recovery.without_state();
        let mut read = Vec::new();
        let keep = |_, payload: &[u8]| {
            read.push(payload.to_vec());
            Ok::<(), Error>(())
        };
        recovery.replay(keep, |_| {}).unwrap();
        assert_eq!(read, payloads);
        let (copied, _mirror) = recovery.finish_as_mirror(Arc::new(SimClock::new(0))).unwrap();
        assert_eq!(copied.chain_at(plan.end_lsn).unwrap(), log.chain_at(plan.end_lsn).unwrap());
        drop(plan);
        retain_snapshots(&*disk, Path::new(DIR), &log, 1).unwrap();
    }
}

/// The end of the only record of batch `number`, counted from 1. A batch has two blocks, and its record takes
/// the first 4024 bytes.
fn lsn_of(ends: &[Lsn], number: usize) -> Lsn {
    Lsn::new(ends[number - 1].get() - 2 * BLOCK_BYTES + 4024)
}

#[test]
fn a_log_behind_another_state_is_refused_until_the_snapshot_is_there() {
    let disk = disk();
    let start = Lsn::new(3 * options().segment_bytes + 5 * BLOCK_BYTES);
    let create = || {
        let clock = Arc::new(SimClock::new(0));
        Recovery::create_behind(
            disk.clone(),
            Path::new(DIR),
            options(),
            &SimEntropy::new(2),
            clock,
            (start, 5),
        )
    };
    let log = create().unwrap();
    assert_eq!((log.start_lsn(), log.durable_lsn()), (start, start));
    assert!(create().is_err(), "there is a log already");
    let refused = recover(&disk).map(drop).unwrap_err().to_string();
    assert!(refused.contains("there is none to start from"), "{refused}");
    let info = publish(&disk, &log);
    assert_eq!((info.begin_lsn, info.end_lsn), (start, start));
    let payloads = numbered(3);
    write_batches(&log, &payloads);
    log.close().unwrap();
    drop(log);
    let mut recovery = Recovery::open(disk, Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    recovery.start_at(&info).unwrap();
    let mut read = Vec::new();
    let keep = |_, payload: &[u8]| {
        read.push(payload.to_vec());
        Ok::<(), Error>(())
    };
    recovery.replay(keep, |_| {}).unwrap();
    assert_eq!(read, payloads);
}

#[test]
fn the_mark_of_settings_lasts_and_is_not_copied() {
    let marked = |disk: &SimDisk| Control::load(disk, Path::new(DIR)).unwrap().unwrap().has_settings;
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    assert!(!marked(&disk));
    log.note_settings().unwrap();
    assert!(marked(&disk));
    log.close().unwrap();
    drop(log);
    let (_, log) = recover(&disk).unwrap();
    assert!(marked(&disk));
    write_batches(&log, &large(1));
    let info = publish(&disk, &log);
    let plan = log.plan_copy(info.begin_lsn, false).unwrap().unwrap();
    assert!(!marked(&copy(&disk, &plan)), "the settings stay here");
    assert!(!marked(&copy(&disk, &log.plan_copy_of_log().unwrap())));
}
