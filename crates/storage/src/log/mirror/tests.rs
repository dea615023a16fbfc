//! Mirrors on simulated disks: the same bytes in pieces of any size, also after crashes.

#![allow(clippy::unwrap_used)]

use std::{ops::ControlFlow, path::Path, sync::Arc};

use env::{
    Disk, Prng, SimClock, SimDisk, SimEntropy,
    sim::{CrashMode, FaultPlan},
};
use prng::sweep::rounds;

use super::*;
use crate::{
    CursorRead, Durability, LogOptions, RecordKind, check,
    log::{
        footer::{self, Footer, Link},
        record,
    },
};

const DIR: &str = "/data";

fn options(durability: Durability) -> LogOptions {
    LogOptions {
        durability,
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        appenders_max: 4,
        unwritten_bytes_max: 16 << 10,
    }
}

fn disk(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(env::sim::SimDiskOptions { seed, ..Default::default() })
}

fn recovery(disk: &Arc<SimDisk>, durability: Durability) -> (Recovery, Vec<Vec<u8>>) {
    let mut payloads = Vec::new();
    let mut recovery =
        Recovery::open(disk.clone(), Path::new(DIR), options(durability), &SimEntropy::new(1)).unwrap();
    let keep = |_, payload: &[u8]| {
        payloads.push(payload.to_vec());
        Ok::<(), Error>(())
    };
    recovery.replay(keep, |_| {}).unwrap();
    (recovery, payloads)
}

fn leader(disk: &Arc<SimDisk>) -> Log {
    recovery(disk, Durability::Strict).0.finish(Arc::new(SimClock::new(0))).unwrap()
}

fn mirror(disk: &Arc<SimDisk>, durability: Durability) -> (Log, Mirror) {
    recovery(disk, durability).0.finish_as_mirror(Arc::new(SimClock::new(0))).unwrap()
}

/// A disk with the empty log of the leader, as after a full sync.
fn copy_of_empty(leader: &Arc<SimDisk>, seed: u64) -> Arc<SimDisk> {
    let copy = disk(seed);
    copy.create_dir_all(Path::new(DIR)).unwrap();
    for name in leader.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        let from = leader.open(&path, env::Access::Read).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_exact_at(&mut bytes, 0).unwrap();
        env::crashsafe::write_atomically(&*copy, &path, &bytes).unwrap();
    }
    copy
}

fn append(log: &Log, appender: &mut Appender, payload: &[u8]) {
    appender.reserve(payload).unwrap().publish();
    log.flush_all().unwrap();
}

/// The log of the leader after the mirror's position.
fn behind(leader: &Log, mirror: &Mirror) -> Vec<u8> {
    let mut cursor = leader.cursor(mirror.position());
    let mut bytes = Vec::new();
    while let CursorRead::Chunk(chunk) = cursor.read(1 << 20).unwrap() {
        bytes.extend_from_slice(&chunk.bytes);
    }
    bytes
}

/// Brings the mirror up to the leader.
fn catch_up(leader: &Log, log: &Log, mirror: &mut Mirror) {
    let bytes = behind(leader, mirror);
    append_all(log, mirror, &bytes);
}

fn append_all(log: &Log, mirror: &mut Mirror, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = mirror.append(bytes, u32::MAX).unwrap();
        bytes = &bytes[taken..];
        log.flush_all().unwrap();
    }
}

/// The bytes of this log from `from` on.
fn bytes_behind(log: &Log, from: Lsn) -> Vec<u8> {
    let (mut cursor, mut bytes) = (log.cursor(from), Vec::new());
    while let CursorRead::Chunk(chunk) = cursor.read(1 << 20).unwrap() {
        bytes.extend_from_slice(&chunk.bytes);
    }
    bytes
}

/// Two mirrors of one source are promoted at the same time and write records of equal lengths.
#[test]
fn two_promotions_at_the_same_time_are_two_logs_from_the_first_batch_on() {
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let mut promoted = Vec::new();
    append(&source, &mut source.appender(), b"before");
    for seed in [2, 3] {
        let copy = copy_of_empty(&source_disk, seed);
        let entropy = SimEntropy::new(seed);
        let mut recovery =
            Recovery::open(copy.clone(), Path::new(DIR), options(Durability::Strict), &entropy).unwrap();
        while recovery.next_batch().unwrap().is_some() {}
        let (log, mut mirror) = recovery.finish_as_mirror(Arc::new(SimClock::new(0))).unwrap();
        catch_up(&source, &log, &mut mirror);
        let diverged_at = mirror.position();
        let epoch = mirror.promote().unwrap();
        let mut appender = log.appender();
        // The first batches of the two logs differ only in their reigns, the second batches also in their
        // contents.
        append(&log, &mut appender, b"same");
        append(&log, &mut appender, &[seed as u8; 4]);
        append(&log, &mut appender, b"same again");
        promoted.push((log, copy, epoch, diverged_at));
    }
    let [(a, a_disk, a_epoch, diverged_at), (b, _, b_epoch, _)] = &promoted[..] else { unreachable!() };
    assert_eq!((a_epoch, a.durable_lsn()), (b_epoch, b.durable_lsn()), "nothing else tells them apart");
    assert_eq!(a.batch_ending_at(*diverged_at).unwrap(), b.batch_ending_at(*diverged_at).unwrap());
    let mut end = a.durable_lsn();
    while end > *diverged_at {
        let (ours, theirs) =
            (a.batch_ending_at(end).unwrap().unwrap(), b.batch_ending_at(end).unwrap().unwrap());
        assert_eq!(
            (ours.start, ours.number, ours.closed_at_ms),
            (theirs.start, theirs.number, theirs.closed_at_ms)
        );
        assert_ne!(ours.chain, theirs.chain);
        end = ours.start;
    }
    assert_ne!(a.token(end), b.token(end));
    // No batch of one server continues the log of the other at the same place.
    let (ours, theirs) = (bytes_behind(a, *diverged_at), bytes_behind(b, *diverged_at));
    let end = a.durable_lsn();
    a.close().unwrap();
    let block = record::BLOCK_BYTES as usize;
    let path = Path::new(DIR).join(crate::log::segment::file_name(Lsn::ZERO));
    for (index, batch) in theirs.chunks(block).enumerate() {
        let offset = crate::log::segment::SEGMENT_HEADER_BYTES + diverged_at.get() + (index * block) as u64;
        let file = a_disk.open(&path, env::Access::ReadWrite).unwrap();
        file.write_all_at(batch, offset).unwrap();
        let checked = check(a_disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(()));
        assert!(matches!(&checked, Err(Error::Corrupt(damage)) if damage.durable_lsn >= end), "{checked:?}");
        file.write_all_at(&ours[index * block..][..block], offset).unwrap();
        assert!(check(a_disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).is_ok());
    }
}

#[test]
fn a_mirror_that_takes_no_more_than_its_room_can_be_closed() {
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let copy = copy_of_empty(&source_disk, 2);
    let (log, mut mirror) = mirror(&copy, Durability::Strict);
    let mut appender = source.appender();
    // The disk has no room for anything but the first segment.
    copy.set_space_limit(Some(0));
    let mut taken = 0;
    loop {
        append(&source, &mut appender, &[1; 10_000]);
        let bytes = behind(&source, &mirror);
        if !mirror.make_room_for(bytes.len() as u64) {
            break;
        }
        assert_eq!(mirror.append(&bytes, u32::MAX).unwrap(), bytes.len(), "the ring is empty");
        log.flush_all().unwrap();
        taken += 1;
    }
    assert!(taken > 0 && log.durable_lsn() == mirror.position());
    copy.set_space_limit(None);
    let bytes = behind(&source, &mirror);
    assert!(mirror.make_room_for(bytes.len() as u64));
    assert_eq!(mirror.append(&bytes, u32::MAX).unwrap(), bytes.len());
    copy.set_space_limit(Some(0));
    log.flush_all().unwrap();
    assert_eq!(log.durable_lsn(), source.durable_lsn());
}

/// A random payload; one in `large` is large.
fn payload(prng: &mut Prng, large: u64) -> Vec<u8> {
    let bytes = if prng.below(large) == 0 { prng.below(40_000) } else { prng.below(300) };
    vec![prng.below(256) as u8; bytes as usize]
}

#[test]
fn a_promoted_mirror_has_everything_and_goes_on_in_a_higher_epoch() {
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let copy = copy_of_empty(&source_disk, 2);
    let mut appender = source.appender();
    let mut prng = Prng::new(3);
    let mut payloads: Vec<Vec<u8>> = (0..200).map(|_| payload(&mut prng, 20)).collect();
    let (log, mut mirror) = mirror(&copy, Durability::Strict);
    assert!(log.is_mirror());
    for payload in &payloads {
        append(&source, &mut appender, payload);
        if prng.below(10) == 0 {
            catch_up(&source, &log, &mut mirror);
            assert_eq!(log.durable_lsn(), source.durable_lsn());
            assert_eq!(
                log.batch_ending_at(log.durable_lsn()).unwrap(),
                source.batch_ending_at(source.durable_lsn()).unwrap()
            );
        }
    }
    catch_up(&source, &log, &mut mirror);
    assert_eq!(log.epoch(), source.epoch());
    // The source may restart many times without reaching the epoch of the promotion.
    let promoted = mirror.promote().unwrap();
    assert!(promoted > source.epoch() + 1000);
    let mut appender = log.appender();
    payloads.push(b"of its own".to_vec());
    append(&log, &mut appender, b"of its own");
    drop((appender, mirror, log));
    let (recovered, found) = recovery(&copy, Durability::Strict);
    assert_eq!(found, payloads);
    assert!(recovered.finish(Arc::new(SimClock::new(0))).unwrap().epoch() > promoted);
    assert_eq!(check(copy, Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap().epochs, 2);
}

#[test]
fn a_promoted_mirror_with_nothing_left_to_write_can_follow_and_lead_again() {
    let source_disk = disk(1);
    drop(leader(&source_disk));
    let disks = [copy_of_empty(&source_disk, 2), copy_of_empty(&source_disk, 3)];
    let [(first, mut first_mirror), (second, mut second_mirror)] =
        [&disks[0], &disks[1]].map(|disk| mirror(disk, Durability::Strict));
    assert!(!first_mirror.resume(first_mirror.position()).unwrap(), "it is one");
    let mut appenders = [first.appender(), second.appender()];
    let mut payloads: Vec<Vec<u8>> = Vec::new();
    for round in 0..4u8 {
        // The two servers lead in turn.
        let ((log, mirror), (other, other_mirror), appender) = match round % 2 {
            0 => ((&first, &mut first_mirror), (&second, &mut second_mirror), &mut appenders[0]),
            _ => ((&second, &mut second_mirror), (&first, &mut first_mirror), &mut appenders[1]),
        };
        mirror.promote_in(10 + u32::from(round)).unwrap();
        for size in [1, 5_000, 30] {
            payloads.push(vec![round; size]);
            append(log, appender, payloads.last().unwrap());
        }
        catch_up(log, other, other_mirror);
        let end = log.durable_lsn();
        let unwritten = vec![round; 100];
        appender.reserve(&unwritten).unwrap().publish();
        payloads.push(unwritten);
        assert!(!mirror.resume(end).unwrap(), "there is more");
        assert!(!mirror.resume(log.appended_lsn()).unwrap(), "it is not written");
        log.flush_all().unwrap();
        catch_up(log, other, other_mirror);
        assert!(mirror.resume(log.durable_lsn()).unwrap() && log.is_mirror());
        // A log that is a mirror again writes nothing of its own when it is idle.
        log.flush_all().unwrap();
        assert_eq!(log.end_for_handover().unwrap(), other.durable_lsn());
        assert_eq!(mirror.position(), other_mirror.position());
    }
    drop((appenders, first_mirror, second_mirror, first, second));
    for disk in disks {
        let (recovered, found) = recovery(&disk, Durability::Strict);
        assert_eq!(found, payloads);
        drop(recovered);
        assert_eq!(check(disk, Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap().epochs, 4);
    }
}

#[test]
fn a_mirror_stops_in_order_and_goes_on_as_one() {
    let rounds = if cfg!(miri) { 1 } else { 5 };
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let copy = copy_of_empty(&source_disk, 2);
    let mut appender = source.appender();
    for round in 0..rounds {
        let (log, mut mirror) = mirror(&copy, Durability::None);
        append(&source, &mut appender, &[round; 1000]);
        catch_up(&source, &log, &mut mirror);
        log.close().unwrap();
        assert_eq!(log.durable_lsn(), source.durable_lsn(), "nothing of its own is written");
    }
    let (_, found) = recovery(&copy, Durability::Strict);
    assert_eq!(found.len(), usize::from(rounds));
}

#[test]
fn bytes_that_do_not_follow_are_refused_without_a_change() {
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let copy = copy_of_empty(&source_disk, 2);
    let mut appender = source.appender();
    let (log, mut mirror) = mirror(&copy, Durability::Strict);
    for number in 0..4u8 {
        append(&source, &mut appender, &[number; 5000]);
    }
    let bytes = behind(&source, &mirror);
    let refused = |mirror: &mut Mirror, bytes: &[u8]| {
        let before = mirror.position();
        assert!(matches!(mirror.append(bytes, u32::MAX), Err(MirrorError::Invalid { .. })));
        assert_eq!(mirror.position(), before);
    };
    let first = source.batch_at(Lsn::new(1)).unwrap().unwrap();
    refused(&mut mirror, &bytes[first.end.get() as usize..]);
    refused(&mut mirror, &bytes[..first.end.get() as usize - 8]);
    let mut prng = Prng::new(1);
    for _ in 0..300 {
        let mut flipped = bytes[..first.end.get() as usize].to_vec();
        let bit = prng.below(flipped.len() as u64 * 8) as usize;
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&mut mirror, &flipped);
    }
    append_all(&log, &mut mirror, &bytes);
    // The log now ends after these batches, so they no longer continue it.
    refused(&mut mirror, &bytes);
}

#[test]
fn an_epoch_that_nobody_can_have_reached_is_refused_and_not_believed() {
    let source_disk = disk(1);
    let source = leader(&source_disk);
    let copy = copy_of_empty(&source_disk, 2);
    append(&source, &mut source.appender(), b"payload");
    let (log, mut mirror) = mirror(&copy, Durability::Strict);
    let (bytes, epoch) = (behind(&source, &mirror), source.epoch());
    let forged = |record_epoch: u32, footer_epoch: u32| {
        let mut forged = vec![0; record::BLOCK_BYTES as usize];
        let end = Lsn::new(record::BLOCK_BYTES);
        let space = record::occupied_bytes(7);
        let (first, rest) = forged.split_at_mut(space as usize);
        let kind = (RecordKind::Whole, false);
        record::encode(first, kind, Lsn::new(space), record_epoch, b"", b"payload");
        let (start, durable) = (Lsn::ZERO, Lsn::ZERO);
        let before = footer::seed_of(&source.id());
        let link = Some(Link { reign: 9, content: footer::sum_of(first), before });
        let footer =
            Footer { start, batch_number: 0, durable, closed_at_ms: 0, end, epoch: footer_epoch, link };
        record::encode_batch_end(rest, &footer);
        forged
    };
    let refusal = |mirror: &mut Mirror, bytes: &[u8], epoch_max| {
        let Err(MirrorError::Invalid { reason, .. }) = mirror.append(bytes, epoch_max) else {
            panic!("taken")
        };
        assert_eq!((mirror.position(), mirror.before.epoch), (Lsn::ZERO, 0));
        reason
    };
    let far = refusal(&mut mirror, &forged(u32::MAX, u32::MAX), epoch);
    assert!(far.contains("of epoch 4294967295"), "{far}");
    let within = refusal(&mut mirror, &forged(u32::MAX, epoch), epoch);
    assert!(within.contains("does not match its batch"), "{within}");
    refusal(&mut mirror, &bytes, epoch - 1);
    assert_eq!(mirror.append(&forged(epoch, epoch), epoch).unwrap() as u64, record::BLOCK_BYTES);
    log.flush_all().unwrap();
    assert!(mirror.promote().unwrap() > epoch);
}

#[test]
fn a_log_without_epochs_left_does_not_start() {
    let disk = disk(1);
    let log = leader(&disk);
    log.note_epoch(MIRRORING - 2).unwrap();
    drop(log);
    let log = leader(&disk);
    assert_eq!(log.epoch(), MIRRORING - 1);
    drop(log);
    let recovery = recovery(&disk, Durability::Strict).0;
    let Err(refused) = recovery.finish(Arc::new(SimClock::new(0))) else { panic!("it has started") };
    assert!(refused.to_string().contains("no epoch is left"), "{refused}");
}

#[test]
fn no_crash_of_a_mirror_loses_durable_bytes_or_looks_like_damage() {
    for (seed, durability) in
        rounds(300).zip([Durability::Strict, Durability::None, Durability::Interval].iter().cycle())
    {
        let mut prng = Prng::new(seed);
        let source_disk = disk(seed);
        let source = leader(&source_disk);
        let copy = copy_of_empty(&source_disk, seed + 1000);
        let mut appender = source.appender();
        // Some logs are longer than one write of a mirror.
        let large = if seed % 20 == 0 { 1 } else { 20 };
        let (mut log, mut follows) = mirror(&copy, *durability);
        for _ in 0..8 {
            for _ in 0..prng.below(40) {
                append(&source, &mut appender, &payload(&mut prng, large));
            }
            let bytes = behind(&source, &follows);
            let mut rest = bytes.as_slice();
            // The power may fail before everything is written.
            let crash_at_io = Some(copy.io_count() + prng.below(12));
            copy.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
            while !rest.is_empty() {
                let Ok(taken) = follows.append(rest, u32::MAX) else { break };
                rest = &rest[taken..];
                if log.flush_all().is_err() {
                    break;
                }
            }
            let durable = log.durable_lsn();
            drop((log, follows));
            copy.crash(CrashMode::Random);
            copy.set_fault_plan(FaultPlan::default());
            (log, follows) = mirror(&copy, *durability);
            assert!(log.durable_lsn() >= durable, "seed {seed}");
            assert!(log.durable_lsn() <= source.durable_lsn());
        }
        catch_up(&source, &log, &mut follows);
        log.close().unwrap();
        let (_, found) = recovery(&copy, *durability);
        let (_, wanted) = recovery(&source_disk, Durability::Strict);
        assert!(found == wanted, "seed {seed}");
    }
}

#[test]
fn a_mirror_without_syncs_has_synced_up_to_the_position_in_its_footers() {
    let source_disk = disk(1);
    let big = |durability| LogOptions { segment_bytes: 32 << 20, ..options(durability) };
    let open = |disk: &Arc<SimDisk>, durability| {
        let (dir, entropy) = (Path::new(DIR), SimEntropy::new(1));
        let mut recovery = Recovery::open(disk.clone(), dir, big(durability), &entropy).unwrap();
        assert!(recovery.next_batch().unwrap().is_none());
        recovery
    };
    let source = open(&source_disk, Durability::Strict).finish(Arc::new(SimClock::new(0))).unwrap();
    let copy = copy_of_empty(&source_disk, 2);
    let (log, mut mirror) =
        open(&copy, Durability::None).finish_as_mirror(Arc::new(SimClock::new(0))).unwrap();
    let mut appender = source.appender();
    for _ in 0..300 {
        append(&source, &mut appender, &[7; 30_000]);
        catch_up(&source, &log, &mut mirror);
        let last = log.batch_ending_at(log.written_lsn()).unwrap().unwrap();
        let vouched = Lsn::new(last.start.get().saturating_sub(RUN_BYTES_MAX));
        assert!(log.durable_lsn() >= vouched);
    }
    let syncs = log.stats().syncs.load(Ordering::Relaxed);
    assert!((1..10).contains(&syncs), "{syncs} syncs: about one for each run that could be");
}

#[test]
fn a_leader_that_was_replaced_leads_in_a_later_epoch_if_it_is_told_to() {
    let disk = disk(1);
    let (_, log) = crate::log::tests::recover(&disk).unwrap();
    let replaced_by = (log.epoch() / PROMOTION_STEP + 1) * PROMOTION_STEP;
    log.outbid_epoch(replaced_by).unwrap();
    drop(log);
    let (_, log) = crate::log::tests::recover(&disk).unwrap();
    assert!(log.epoch() > replaced_by + 1000, "not one that starts of the other come to");
}
