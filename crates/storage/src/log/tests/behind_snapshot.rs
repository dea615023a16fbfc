//! A log and the snapshots that replace its beginning: the forgotten range, the start of replay, refusals.

use env::{
    Access,
    sim::{CrashMode, FaultPlan},
};
use prng::sweep::outcomes;

use super::*;
use crate::{
    LogReader, retain_snapshots,
    snapshot::{self, ChunkInfo, Compression, ReadBuffers, SnapshotInfo, SnapshotReader, SnapshotWriter},
};

fn open(disk: &Arc<SimDisk>) -> Result<Recovery, Error> {
    Recovery::open(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1))
}

/// Replays the remaining records of `recovery`.
fn replayed(recovery: &mut Recovery) -> Result<Vec<Vec<u8>>, Error> {
    let mut payloads = Vec::new();
    let keep = |_, payload: &[u8]| {
        payloads.push(payload.to_vec());
        Ok::<(), Error>(())
    };
    recovery.replay(keep, |_| {}).map(|()| payloads)
}

/// Publishes a snapshot of these rows, one chunk each, that begins at the current written position.
fn publish(disk: &Arc<SimDisk>, log: &Log, rows: &[Vec<u8>]) -> Result<SnapshotInfo, Error> {
    let meta = log.begin_snapshot(Compression::Lz4);
    publish_at(disk, log, meta, rows)
}

fn publish_at(
    disk: &Arc<SimDisk>,
    log: &Log,
    meta: snapshot::SnapshotMeta,
    rows: &[Vec<u8>],
) -> Result<SnapshotInfo, Error> {
    let (writer, parts) = SnapshotWriter::create(disk.clone(), Path::new(DIR), meta, 1)?;
    let end = log.appended_lsn();
    let mut summaries = Vec::new();
    for mut part in parts {
        for row in rows {
            let info = ChunkInfo { first_slot: 0, last_slot: 0, rows: 1, lsn: end, continues: false };
            part.append(info, row)?;
        }
        summaries.push(part.finish()?);
    }
    log.make_durable(end)?;
    writer.publish(summaries, end)
}

/// The payloads of all chunks of a snapshot, in order.
fn rows(disk: &SimDisk, info: &SnapshotInfo) -> Vec<Vec<u8>> {
    let reader = SnapshotReader::open(disk, Path::new(DIR), info).unwrap();
    let mut buffers = ReadBuffers::default();
    let chunks = 0..info.chunks() as usize;
    chunks.map(|chunk| reader.read(chunk, &mut buffers).unwrap().to_vec()).collect()
}

fn refusal(recovery: &mut Recovery, info: &SnapshotInfo) -> String {
    let Err(Error::Inconsistent { path, reason }) = recovery.start_at(info) else { panic!("accepted") };
    assert_eq!(path, snapshot::directory(Path::new(DIR)));
    reason
}

#[test]
fn replay_starts_behind_the_snapshot_in_the_middle_of_the_log() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(40);
    write_batches(&log, &payloads[..25]);
    let info = publish(&disk, &log, &payloads[..25]).unwrap();
    write_batches(&log, &payloads[25..]);
    drop(log);
    let mut recovery = open(&disk).unwrap();
    assert!(!recovery.needs_snapshot());
    recovery.start_at(&info).unwrap();
    assert_eq!(replayed(&mut recovery).unwrap(), payloads[25..]);
    let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
    write_batches(&log, &numbered(1));
    drop(log);
    assert_eq!(recover(&disk).unwrap().0.len(), 41, "the whole log is still there and goes on as before");
}

/// Changes a byte of the footer of the batch that ends at `end`.
fn damage_footer(disk: &SimDisk, end: Lsn) {
    let start = end.align_down(options().segment_bytes);
    let path = Path::new(DIR).join(segment::file_name(start));
    let offset = segment::SEGMENT_HEADER_BYTES + end.bytes_since(start) - 20;
    let mut bytes = disk.read_file(&path).unwrap();
    bytes[offset as usize] ^= 1;
    disk.write_file(&path, &bytes);
}

#[test]
fn a_salvage_loses_no_batch_behind_the_snapshot_to_damage_before_it() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(8);
    write_batches(&log, &payloads[..5]);
    let info = publish(&disk, &log, &payloads[..5]).unwrap();
    write_batches(&log, &payloads[5..]);
    log.close().unwrap();
    drop(log);
    damage_footer(&disk, info.begin_lsn);
    let mut recovery =
        Recovery::salvage(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
    recovery.start_at(&info).unwrap();
    assert_eq!(replayed(&mut recovery).unwrap(), payloads[5..]);
    assert!(recovery.holes().is_empty(), "{:?}", recovery.holes());
}

/// If the beginning of a log was forgotten, the number of its first remaining batch is unknown.
#[test]
fn lost_batches_are_counted_only_from_a_known_number() {
    for is_forgotten in [false, true] {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        let ends = write_batches(&log, &numbered(8));
        let start = if is_forgotten { ends[3] } else { Lsn::ZERO };
        if is_forgotten {
            log.truncate_before(start).unwrap();
        }
        log.close().unwrap();
        drop(log);
        damage_footer(&disk, start.advance(BLOCK_BYTES));
        let mut recovery =
            Recovery::salvage(disk.clone(), Path::new(DIR), options(), &SimEntropy::new(1)).unwrap();
        replayed(&mut recovery).unwrap();
        let [hole] = recovery.holes() else { panic!("{:?}", recovery.holes()) };
        assert_eq!(hole.batches, (!is_forgotten).then_some(1), "{hole:?}");
    }
}

#[test]
fn a_log_without_its_beginning_is_replayed_with_a_snapshot_only() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads: Vec<Vec<u8>> = (0..250u32).map(|number| vec![number as u8; 4000]).collect();
    write_batches(&log, &payloads[..200]);
    let info = publish(&disk, &log, &payloads[..200]).unwrap();
    log.forget_before(info.begin_lsn).unwrap();
    assert_eq!(log.start_lsn(), info.begin_lsn);
    write_batches(&log, &payloads[200..]);
    drop(log);
    // One forgotten segment is kept to be recycled.
    let second = Lsn::new(options().segment_bytes);
    assert!(!segment::list(&*disk, Path::new(DIR)).unwrap().contains(&second), "segments were removed");
    assert!(check(disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap().needs_snapshot);

    let mut recovery = open(&disk).unwrap();
    let Err(Error::Inconsistent { reason, .. }) = replayed(&mut recovery) else { panic!("replayed alone") };
    assert!(reason.contains("there is none to start from"), "{reason}");
    recovery.start_at(&info).unwrap();
    assert_eq!(rows(&disk, &info), payloads[..200]);
    assert_eq!(replayed(&mut recovery).unwrap(), payloads[200..]);

    // The log after a record that voids everything before it needs no snapshot.
    let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
    log.truncate_before(log.durable_lsn()).unwrap();
    drop(log);
    assert!(recover(&disk).unwrap().0.is_empty());
}

#[test]
fn a_log_that_is_kept_alone_is_read_from_where_it_was_forgotten_to() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads: Vec<Vec<u8>> = (0..250u32).map(|number| vec![number as u8; 4000]).collect();
    let ends = write_batches(&log, &payloads);
    let chain = log.chain_at(ends[249]).unwrap();
    log.forget_before(ends[199]).unwrap();
    drop(log);
    let mut recovery = open(&disk).unwrap();
    assert!(recovery.needs_snapshot(), "nobody takes it for the data");
    recovery.without_state();
    assert_eq!(replayed(&mut recovery).unwrap(), payloads[200..]);
    let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
    assert_eq!((log.start_lsn(), log.chain_at(ends[249]).unwrap()), (ends[199], chain));
    log.forget_before(ends[249]).unwrap();
    write_batches(&log, &numbered(2));
    drop(log);
    let mut recovery = open(&disk).unwrap();
    recovery.without_state();
    assert_eq!(replayed(&mut recovery).unwrap(), numbered(2));
}

#[test]
fn a_log_forgotten_for_a_snapshot_needs_it_after_an_older_truncation() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let ends = write_batches(&log, &numbered(3));
    let info = publish(&disk, &log, &numbered(3)).unwrap();
    log.forget_before(info.begin_lsn).unwrap();
    log.truncate_before(ends[0]).unwrap();
    assert_eq!(log.start_lsn(), info.begin_lsn);
    drop(log);
    assert!(open(&disk).unwrap().needs_snapshot());
}

#[test]
fn snapshots_that_do_not_fit_the_log_are_refused_with_the_reason() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &numbered(3));
    let old = publish(&disk, &log, &[]).unwrap();
    let ends = write_batches(&log, &numbered(3));
    let info = publish(&disk, &log, &[]).unwrap();
    log.truncate_before(ends[0]).unwrap();
    drop(log);
    let mut recovery = open(&disk).unwrap();
    let segments_end = Lsn::new(options().segment_bytes * 2);
    let cases = [
        (SnapshotInfo { log_id: [1; 16], ..info.clone() }, "another log"),
        (old, "cannot be used"),
        (SnapshotInfo { end_lsn: segments_end.advance(1), ..info.clone() }, "files end at lsn"),
        (
            SnapshotInfo { begin_lsn: info.begin_lsn.advance(BLOCK_BYTES), ..info.clone() },
            "no batch of the log ends",
        ),
        (
            SnapshotInfo { begin_lsn: Lsn::new(info.begin_lsn.get() - 8), ..info.clone() },
            "no batch of the log ends",
        ),
    ];
    for (unfit, expected) in cases {
        let reason = refusal(&mut recovery, &unfit);
        assert!(reason.contains(expected), "{reason}");
    }
    recovery.start_at(&info).unwrap();
}

#[test]
fn snapshots_without_a_log_are_not_taken_for_an_empty_directory() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    publish(&disk, &log, &numbered(1)).unwrap();
    drop(log);
    for name in disk.list(Path::new(DIR)).unwrap() {
        disk.remove(&Path::new(DIR).join(name)).unwrap();
    }
    let Err(Error::Inconsistent { path, .. }) = open(&disk).map(|_| ()) else { panic!("a new log was made") };
    assert_eq!(path, Path::new(DIR).join("control"));
    assert!(disk.list(Path::new(DIR)).unwrap().is_empty(), "nothing was changed");
}

#[test]
fn a_snapshot_vouches_for_the_log_up_to_its_end() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(5);
    write_batches(&log, &payloads[..3]);
    let meta = log.begin_snapshot(Compression::None);
    let end = *write_batches(&log, &payloads[3..]).last().unwrap();
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    let last_batch = SEGMENT_HEADER_BYTES + end.get() - BLOCK_BYTES;

    let torn = disk.clone_state();
    torn.corrupt(&path, last_batch + 40, 1).unwrap();
    assert_eq!(recover(&torn).unwrap().0, payloads[..4], "nobody knows of the last batch");

    publish_at(&disk, &log, meta, &payloads).unwrap();
    disk.corrupt(&path, last_batch + 40, 1).unwrap();
    let Err(Error::Corrupt(damage)) = recover(&disk).map(|_| ()) else { panic!("a durable batch was cut") };
    assert!(damage.lsn < end && damage.durable_lsn > damage.lsn, "{damage}");
    assert!(damage.to_string().contains("a snapshot says so"), "{damage}");
    assert!(matches!(check(disk, Path::new(DIR), |_, _| ControlFlow::Continue(())), Err(Error::Corrupt(_))));
}

#[test]
fn leftovers_of_an_older_epoch_are_no_log_behind_a_snapshot() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let ends = write_batches(&log, &numbered(3));
    drop(log);
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    let old_run = disk.read_file(&path).unwrap();
    // The second and third batch never reached the disk; the next run writes another second batch.
    disk.truncate(&path, SEGMENT_HEADER_BYTES + ends[0].get()).unwrap();
    let (_, log) = recover(&disk).unwrap();
    assert_eq!(write_batches(&log, &numbered(1)), [ends[1]]);
    let info = publish(&disk, &log, &[]).unwrap();
    drop(log);
    let third_at = (SEGMENT_HEADER_BYTES + ends[1].get()) as usize;
    let mut bytes = disk.read_file(&path).unwrap();
    bytes[third_at..third_at + BLOCK_BYTES as usize]
        .copy_from_slice(&old_run[third_at..third_at + BLOCK_BYTES as usize]);
    disk.write_file(&path, &bytes);
    let mut recovery = open(&disk).unwrap();
    recovery.start_at(&info).unwrap();
    assert!(replayed(&mut recovery).unwrap().is_empty());
}

#[test]
fn a_record_whose_first_part_lies_before_the_snapshot_is_left_out() {
    // The record is larger than the ring, so its first parts are written before its last part can be
    // reserved. The length determines how many parts are written after the snapshot begins.
    for large_bytes in (100_000..200_000).step_by(7_000) {
        let disk = disk();
        let (_, log) = recover(&disk).unwrap();
        let mut appender = log.appender();
        append(&mut appender, b"before");
        let large = vec![5; large_bytes];
        let pending = appender.reserve(&large).unwrap();
        let meta = log.begin_snapshot(Compression::None);
        pending.publish();
        append(&mut appender, b"after");
        log.flush_all().unwrap();
        drop(appender);
        let info = publish_at(&disk, &log, meta, &[]).unwrap();
        assert!(info.begin_lsn > Lsn::ZERO && info.begin_lsn < info.end_lsn);
        drop(log);
        assert!(recover(&disk).unwrap().0 == [&b"before"[..], &large, b"after"]);
        let mut recovery = open(&disk).unwrap();
        recovery.start_at(&info).unwrap();
        assert!(replayed(&mut recovery).unwrap() == [b"after"], "of {large_bytes} bytes");
    }
}

#[test]
fn a_requested_position_is_made_durable_with_any_durability() {
    for (_, durability) in Durability::NAMES {
        let disk = disk();
        let mut recovery = open(&disk).unwrap();
        while recovery.next_batch().unwrap().is_some() {}
        let log = recovery.finish(Arc::new(SimClock::new(0))).unwrap();
        log.set_durability(durability);
        let mut appender = log.appender();
        let payloads: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number; 9000]).collect();
        for payload in &payloads {
            let lsn = append(&mut appender, payload);
            if payload[0] == 70 {
                log.make_durable(lsn).unwrap();
                assert!(log.durable_lsn() >= lsn);
            }
        }
        drop((appender, log));
        disk.crash(CrashMode::LoseAll);
        let read = recover(&disk).unwrap().0;
        assert!(read.len() >= 71 && read == payloads[..read.len()], "{durability:?}: {} read", read.len());
    }
}

#[test]
fn nothing_is_made_durable_where_there_is_no_room_and_that_is_said() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut appender = log.appender();
    disk.set_space_limit(Some(300 << 10));
    while log.prepare_segment().unwrap() == Prepare::Made {}
    // Append past the prepared segments, without asking for admission.
    for _ in 0..4 {
        append(&mut appender, &[1; 50_000]);
        log.flush().unwrap();
    }
    let lsn = append(&mut appender, &[1; 50_000]);
    let Err(Error::Io { source, .. }) = log.make_durable(lsn) else { panic!("durable without room") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    disk.set_space_limit(None);
    log.make_durable(lsn).unwrap();
}

#[test]
fn the_newest_generations_are_kept_and_the_log_behind_the_oldest_of_them() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut begins = Vec::new();
    let mut publish_and_retain = || {
        begins.push(*write_batches(&log, &numbered(3)).last().unwrap());
        publish(&disk, &log, &[]).unwrap();
        retain_snapshots(&*disk, Path::new(DIR), &log, 2).unwrap();
        let listed = snapshot::list_begins(&*disk, Path::new(DIR)).unwrap();
        assert!(listed.iter().eq(begins.iter().rev().take(2)), "{listed:?}");
        (begins.clone(), log.start_lsn())
    };
    assert_eq!(publish_and_retain().1, Lsn::ZERO, "the log is the older generation");
    for _ in 0..2 {
        let (begins, log_start) = publish_and_retain();
        assert_eq!(log_start, begins[begins.len() - 2]);
    }
    let (begins, _) = publish_and_retain();
    // After a record that voids everything before it, the older snapshots are useless.
    log.truncate_before(begins[3]).unwrap();
    retain_snapshots(&*disk, Path::new(DIR), &log, 2).unwrap();
    assert_eq!(snapshot::list_begins(&*disk, Path::new(DIR)).unwrap(), [begins[3]]);
    assert_eq!(log.start_lsn(), begins[3]);
    let path = snapshot::directory(Path::new(DIR)).join(format!("snap-{:016x}.manifest", begins[3].get()));
    disk.corrupt(&path, 50, 1).unwrap();
    let damaged = retain_snapshots(&*disk, Path::new(DIR), &log, 1);
    assert!(matches!(damaged, Err(Error::SnapshotCorrupt(_))) && disk.read_file(&path).is_ok());
}

/// Restarts a server. Its state is read from the newest snapshot that fits the log, then from the log.
fn restart(disk: &Arc<SimDisk>) -> (Vec<Vec<u8>>, Log) {
    let mut recovery = open(disk).unwrap();
    let listed = snapshot::list(&**disk, Path::new(DIR)).unwrap();
    let mut state = Vec::new();
    if let Some(info) = listed.into_iter().find(|info| info.begin_lsn >= recovery.start()) {
        recovery.start_at(&info).unwrap();
        state = rows(disk, &info);
    }
    state.extend(replayed(&mut recovery).unwrap());
    (state, recovery.finish(Arc::new(SimClock::new(0))).unwrap())
}

#[test]
fn snapshots_and_the_forgetting_of_the_log_may_stop_anywhere() {
    const ROUNDS: usize = 3;
    let payloads: Vec<Vec<u8>> = (0..ROUNDS as u32 * 30).map(|number| vec![number as u8; 9000]).collect();
    // Returns the number of acknowledged payloads.
    let run = |disk: &Arc<SimDisk>, log: &Log| -> usize {
        let mut acknowledged = 0;
        let mut appender = log.appender();
        for round in payloads.chunks(payloads.len() / ROUNDS) {
            for payload in round {
                append(&mut appender, payload);
                if log.flush_all().is_err() || log.prepare_segment().is_err() {
                    return acknowledged;
                }
                acknowledged += 1;
            }
            if publish(disk, log, &payloads[..acknowledged]).is_ok() {
                let _ = retain_snapshots(&**disk, Path::new(DIR), log, 2);
            }
        }
        acknowledged
    };
    let mut finished = false;
    let mut io = 0;
    while !finished {
        let disk = disk();
        let (_, log) = restart(&disk);
        let crash_at_io = Some(disk.io_count() + io);
        disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
        let acknowledged = run(&disk, &log);
        drop(log);
        finished = !disk.has_stopped();
        for seed in 0..outcomes(3) {
            let copy = disk.clone_state();
            copy.reseed(seed);
            copy.crash(CrashMode::Random);
            let (state, log) = restart(&copy);
            assert!(state.len() >= acknowledged && state == payloads[..state.len()], "stopped at {io}");
            drop(log);
            assert_eq!(restart(&copy).0, state, "and it stays so");
        }
        io += 1;
    }
    assert!(io > 100, "{io} boundaries");
}

#[test]
fn numbers_and_times_of_batches_rise_with_any_clock_and_start_of_replay() {
    const TIMES_MS: [u64; 6] = [1000, 5000, 2000, 7000, 100, 200];
    let disk = disk();
    let mut info = None;
    for (run, time_ms) in TIMES_MS.into_iter().enumerate() {
        let mut recovery = open(&disk).unwrap();
        if let Some(info) = &info {
            recovery.start_at(info).unwrap();
        }
        replayed(&mut recovery).unwrap();
        let log = recovery.finish(Arc::new(SimClock::new(time_ms))).unwrap();
        // Each run ends where its snapshot begins, so that the next finds no batch after the snapshot.
        write_batches(&log, &numbered(usize::from(run > 0)));
        info = Some(publish(&disk, &log, &numbered(1)).unwrap());
    }
    let mut reader = LogReader::open(disk, Path::new(DIR), Access::Read).unwrap();
    let mut times_ms = Vec::new();
    while let Ok(batch) = reader.next_batch().unwrap() {
        assert_eq!(batch.number, times_ms.len() as u64);
        times_ms.push(batch.closed_at_ms);
    }
    assert_eq!(times_ms, [5000, 5000, 7000, 7000, 7000]);
}
