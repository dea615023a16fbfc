use std::sync::Arc;

use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
use keyspace::{
    DbId, Effect, Freed, GlobalOp, Items, KeyOp, ListEnd, Options, Scope, SlotId, Value, slot_of,
};
use storage::{
    LogOptions,
    snapshot::{self, Compression},
};

use super::*;
use crate::snapshot_task::{GENERATIONS, SnapshotPlan, SnapshotTask};

const DIR: &str = "/data";

pub(crate) fn recovered(disk: Arc<SimDisk>, appliers: usize) -> (Keyspace, Log) {
    recovered_or_not(disk, appliers).expect("a sound log")
}

fn recovered_or_not(disk: Arc<SimDisk>, appliers: usize) -> Result<(Keyspace, Log), RecoverError> {
    let (segment_bytes, ring_bytes, unwritten_bytes_max) = (8 << 20, 2 << 20, 256 << 10);
    let source = Source {
        disk,
        dir: Path::new(DIR),
        options: LogOptions { segment_bytes, ring_bytes, unwritten_bytes_max, ..LogOptions::default() },
        clock: Arc::new(SimClock::new(0)),
        entropy: &SimEntropy::new(1),
        appliers,
        mode: Mode::Newest,
        documents: None,
    };
    let keyspace = Keyspace::new(Options { hash_seed: appliers as u64 });
    let progress = LoadProgress::new(Arc::new(SimClock::new(0)));
    let log = recover(source, &keyspace, &progress)?;
    Ok((keyspace, log))
}

/// Calls `visit` with effects on a few keys of many slots, many of them moves: the value of a key depends on
/// the order of all previous effects, across slots.
pub fn history(count: u64, mut visit: impl FnMut(&Effect<'_>)) {
    let (db, filling) = (DbId::ZERO, [b'f'; 700]);
    for step in 0..count {
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let key = format!("key-{}", mixed % 41).into_bytes();
        let to_key = format!("key-{}", mixed / 41 % 41).into_bytes();
        let number = step.to_be_bytes();
        let items = [&number[..], &filling];
        visit(&match mixed / 2000 % 12 {
            0..2 => Effect::Move { db, key: &key, to_db: db, to_key: &to_key },
            2 => {
                let value = Value::List(Items::Slices(&items[..1]));
                KeyOp::Put { value, expire_at_ms: Some(step) }.on(db, &key)
            }
            3 => KeyOp::Delete.on(db, &key),
            4 if step % 50 == 0 => Effect::Global(GlobalOp::FlushAll),
            _ => KeyOp::ListPush { end: ListEnd::Tail, items: Items::Slices(&items) }.on(db, &key),
        });
    }
}

#[test]
fn moves_keep_their_order_with_any_number_of_appliers() {
    const EFFECTS: u64 = 8_000;
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
    let (expected, log) = recovered(disk.clone(), 0);
    let (mut appender, mut record, mut in_record) = (log.appender(), Vec::new(), 0);
    let now = AccessClock::default();
    history(EFFECTS, |effect| {
        match effect.scope() {
            Scope::Slot(key) => expected.lock(slot_of(key)).apply(effect, now, &mut Freed::new()),
            Scope::Two(from, to) => {
                expected.lock_many([from, to].map(slot_of)).apply(effect, now, &mut Freed::new())
            }
            Scope::Global => expected.lock_all().apply(effect, now, &mut Freed::new()),
        };
        effect.encode_into(&mut record);
        in_record += 1;
        // Several effects per record, so that moves also occur in the middle of one.
        if in_record == 16 {
            appender.reserve(&record).expect("a sound disk").publish();
            record.clear();
            in_record = 0;
            log.flush_all().expect("a sound disk");
            log.prepare_segment().expect("a sound disk");
        }
    });
    assert!(record.is_empty() && expected.len(DbId::ZERO) > 5, "the history is to leave something");
    log.flush_all().expect("a sound disk");
    for appliers in [0, 1, 2, 5] {
        let (keyspace, _log) = recovered(disk.clone_state(), appliers);
        assert!(keyspace.digest() == expected.digest(), "{appliers} appliers");
    }
}

/// Only a log that was forged, or does not belong to its snapshot, has such an effect.
#[test]
fn an_effect_on_a_value_of_another_type_is_refused_with_any_number_of_appliers() {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
    let (_, log) = recovered(disk.clone(), 0);
    let (mut appender, db) = (log.appender(), DbId::ZERO);
    let value = Value::Set(Items::Slices(&[b"member"]));
    let put = KeyOp::Put { value, expire_at_ms: None };
    let misfit = [put, KeyOp::Append { suffix: &[b'x'; 100] }];
    let mut lsns = Vec::new();
    for (key, operations) in [(&b"a"[..], &misfit[..]), (b"b", &misfit[..1]), (b"a", &misfit[1..])] {
        let mut record = Vec::new();
        operations.iter().for_each(|op| op.on(db, key).encode_into(&mut record));
        let pending = appender.reserve(&record).expect("a sound disk");
        lsns.push(pending.lsn());
        pending.publish();
    }
    log.flush_all().expect("a sound disk");
    for appliers in [0, 1, 3] {
        match recovered_or_not(disk.clone_state(), appliers) {
            Err(error @ RecoverError::WrongType { lsn }) => {
                assert_eq!(lsn, lsns[0], "{appliers} appliers");
                assert!(error.last_resort().contains("--force-recovery"));
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("recovered with {appliers} appliers"),
        }
    }
}

/// Snapshots are taken between the records, one or a few slots at a time, while values move in and out of the
/// slots.
#[test]
fn a_snapshot_with_the_log_after_it_equals_the_whole_log() {
    take_snapshots_between(8_000, 16, false);
}

/// The same on a replica: it applies every move of its leader, whose snapshots were taken at other positions.
#[test]
fn snapshots_of_a_replica_with_the_log_behind_them_equal_the_whole_log() {
    take_snapshots_between(4_000, 1, true);
}

fn take_snapshots_between(effects: u64, effects_per_record: u32, is_replica: bool) {
    let sim = SimDisk::new(SimDiskOptions { seed: 2, ..SimDiskOptions::default() });
    let disk: Arc<dyn Disk> = sim.clone();
    let (live, log) = recovered(sim.clone(), 0);
    let (mut appender, mut record, mut touched, mut in_record) = (log.appender(), Vec::new(), Vec::new(), 0);
    let (now, dir) = (AccessClock::default(), Path::new(DIR));
    // Chunks of a few hundred empty slots, or a few keys.
    let (compression, parts, chunk_bytes_aim) = (Compression::Lz4, 3, 8 << 10);
    let plan =
        SnapshotPlan { disk: &disk, dir, log: &log, begin_lsn: None, parts, chunk_bytes_aim, compression };
    let (mut taking, mut summaries, mut published, mut early) = (None, Vec::new(), 0, 0);
    history(effects, |effect| {
        match effect.scope() {
            Scope::Two(from, to) => {
                let (from, to) = (slot_of(from), slot_of(to));
                let mut slots = live.lock_many([from, to]);
                if is_replica {
                    early += u32::from(!live.may_move(from, to));
                    slots.capture_before_moves(&[(from, to)]);
                }
                // RENAME moves a value only if it may; otherwise it copies the value.
                if live.may_move(from, to) {
                    slots.apply(effect, now, &mut Freed::new());
                    effect.encode_into(&mut record);
                    touched.extend([from, to]);
                }
            }
            Scope::Slot(key) => {
                live.lock(slot_of(key)).apply(effect, now, &mut Freed::new());
                effect.encode_into(&mut record);
                touched.push(slot_of(key));
            }
            Scope::Global => {
                live.lock_all().apply(effect, now, &mut Freed::new());
                effect.encode_into(&mut record);
                touched.extend(SlotId::all());
            }
        }
        in_record += 1;
        if in_record < effects_per_record || record.is_empty() {
            return;
        }
        in_record = 0;
        let pending = appender.reserve(&record).expect("a sound disk");
        touched.drain(..).for_each(|slot| live.lock(slot).set_last_lsn(pending.lsn()));
        pending.publish();
        record.clear();
        log.flush_all().expect("a sound disk");
        log.prepare_segment().expect("a sound disk");
        let (task, mut left) = match taking.take() {
            Some(taking) => taking,
            None => SnapshotTask::begin(plan, &live).expect("a sound disk").expect("something was written"),
        };
        match left.pop() {
            None => {
                let all: Vec<_> = std::mem::take(&mut summaries);
                task.publish(all).expect("a sound disk");
                published += 1;
                return;
            }
            Some(mut part) => match part.step().expect("a sound disk") {
                Some(_) => left.insert(0, part),
                None => summaries.push(part.finish().expect("a sound disk")),
            },
        }
        taking = Some((task, left));
    });
    drop(taking);
    assert!(published >= 4, "{published} snapshots are too few");
    assert_eq!(early > 10, is_replica, "{early} moves to where a snapshot has been");
    assert_eq!(snapshot::list(&*disk, dir).expect("a sound disk").len(), GENERATIONS);
    log.flush_all().expect("a sound disk");
    for appliers in [0, 1, 2, 5] {
        let (keyspace, _log) = recovered(sim.clone_state(), appliers);
        assert!(keyspace.digest() == live.digest(), "{appliers} appliers");
    }
}
