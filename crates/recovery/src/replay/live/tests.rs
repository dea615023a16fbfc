use env::{Prng, SimDisk, sim::SimDiskOptions};
use keyspace::{DbId, KeyOp, Options, Value};
use storage::{CursorRead, Log};

use super::*;
use crate::recover::tests::{history, recovered};

/// A leader whose log and memory are written by a test.
struct Leader {
    keyspace: Keyspace,
    log: Log,
    appender: storage::Appender,
    record: Vec<u8>,
}

impl Leader {
    fn new() -> Leader {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
        let (keyspace, log) = recovered(disk, 0);
        let appender = log.appender();
        Leader { keyspace, log, appender, record: Vec::new() }
    }

    fn apply(&mut self, effect: &Effect<'_>) {
        let (now, freed) = (AccessClock::default(), &mut Freed::new());
        self.keyspace.lock_all().apply(effect, now, freed);
        effect.encode_into(&mut self.record);
    }

    fn commit(&mut self) -> Lsn {
        let pending = self.appender.reserve(&self.record).expect("a sound disk");
        let lsn = pending.lsn();
        pending.publish();
        self.record.clear();
        self.log.flush_all().expect("a sound disk");
        self.log.prepare_segment().expect("a sound disk");
        lsn
    }
}

/// Counts what was applied; no record is seen before its effects.
#[derive(Default)]
struct Counter {
    effects: u64,
    records: u64,
}

impl Observer for Counter {
    fn saw(&mut self, _: &Effect<'_>) {
        self.effects += 1;
    }

    fn after_record(&mut self, _: Lsn) {
        self.records += 1;
        assert!(self.effects >= self.records);
    }
}

fn replica() -> (Arc<Keyspace>, Replayer) {
    let keyspace = Arc::new(Keyspace::new(Options { hash_seed: 99 }));
    (keyspace.clone(), Replayer::new(keyspace, Chains::from(Lsn::ZERO), Lsn::ZERO))
}

/// Applies the whole log in random steps.
fn follow(log: &Log, replayer: &mut Replayer, prng: &mut Prng) {
    let mut cursor = log.cursor(replayer.applied());
    while let CursorRead::Chunk(chunk) = cursor.read(200_000).expect("a sound disk") {
        let mut until = replayer.applied();
        while replayer.applied() < chunk.end {
            until = until.advance(4096 * prng.below(20)).min(chunk.end);
            let replayed =
                replayer.apply(&chunk, until, AccessClock::default(), &mut ()).expect("sound records");
            assert_eq!(replayed, until);
        }
    }
}

#[test]
fn a_replica_reaches_the_content_of_its_leader_in_steps_of_any_size() {
    let mut leader = Leader::new();
    let (keyspace, mut replayer) = replica();
    let (mut prng, mut effects) = (Prng::new(7), 0);
    history(6_000, |effect| {
        leader.apply(effect);
        effects += 1;
        // Ends the record at random, so that some records have one effect, and others several.
        if prng.chance(60) {
            leader.commit();
        }
        if effects % 1500 == 0 {
            leader.commit();
            follow(&leader.log, &mut replayer, &mut prng);
            assert!(keyspace.digest() == leader.keyspace.digest());
        }
    });
    assert!(leader.keyspace.len(DbId::ZERO) > 5, "the history is to leave something");
    keyspace.check();
    assert_eq!(replayer.applied(), leader.log.durable_lsn());
}

#[test]
fn records_beyond_the_limit_are_not_applied() {
    let mut leader = Leader::new();
    let (keyspace, mut replayer) = replica();
    let mut ends = Vec::new();
    for number in 0..50u32 {
        let key = number.to_be_bytes();
        let value = Value::String(b"v");
        leader.apply(&KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, &key));
        leader.commit();
        ends.push(leader.log.durable_lsn());
    }
    let mut cursor = leader.log.cursor(Lsn::ZERO);
    let CursorRead::Chunk(chunk) = cursor.read(1 << 20).expect("a sound disk") else { panic!("a chunk") };
    assert_eq!(chunk.end, ends[49]);
    let mut told = Counter::default();
    for (count, &end) in (1u64..).zip(&ends) {
        replayer.apply(&chunk, end, AccessClock::default(), &mut told).expect("sound records");
        assert_eq!((keyspace.len(DbId::ZERO), told.effects, told.records), (count, count, count));
    }
}

/// A leader with damaged memory could send such an effect.
#[test]
fn an_effect_on_a_value_of_another_type_is_refused() {
    let value = Value::Set(keyspace::Items::Slices(&[b"member"]));
    let put = KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"a");
    let append = KeyOp::Append { suffix: &[b'x'; 100] }.on(DbId::ZERO, b"a");
    // Alone in its record, and with another effect in the same one.
    for records in [&[&[put][..], &[append]][..], &[&[put, append]]] {
        let (mut leader, (keyspace, mut replayer)) = (Leader::new(), replica());
        let mut last = Lsn::ZERO;
        for record in records {
            record.iter().for_each(|effect| leader.apply(effect));
            last = leader.commit();
        }
        let Ok(CursorRead::Chunk(chunk)) = leader.log.cursor(Lsn::ZERO).read(1 << 20) else {
            panic!("everything is durable")
        };
        let applied = replayer.apply(&chunk, Lsn::MAX, AccessClock::default(), &mut ());
        assert!(matches!(applied, Err(RecoverError::WrongType { lsn }) if lsn == last), "{applied:?}");
        keyspace.lock(slot_of(b"a")).check();
    }
}

#[test]
fn payloads_in_parts_are_joined_and_name_the_position_that_they_need() {
    let mut leader = Leader::new();
    let (keyspace, mut replayer) = replica();
    let long = vec![b'x'; 5 << 20];
    let value = Value::String(&long);
    leader.apply(&KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"long"));
    let lsn = leader.commit();
    let mut cursor = leader.log.cursor(Lsn::ZERO);
    let mut chunks = 0;
    while let CursorRead::Chunk(chunk) = cursor.read(1 << 20).expect("a sound disk") {
        let replayed =
            replayer.apply(&chunk, Lsn::MAX, AccessClock::default(), &mut ()).expect("sound records");
        assert_eq!(replayed, chunk.end);
        let is_complete = chunk.end >= lsn;
        assert_eq!(keyspace.len(DbId::ZERO), u64::from(is_complete));
        assert_eq!(replayer.needed_from() < Lsn::new(4096), !is_complete, "at {}", chunk.end);
        chunks += 1;
    }
    assert!(chunks > 1, "it came in one piece");
    assert!(keyspace.digest() == leader.keyspace.digest());
}

#[test]
fn a_value_that_moves_to_where_the_snapshot_has_been_is_in_it() {
    let mut leader = Leader::new();
    let (keyspace, mut replayer) = replica();
    let value = Value::String(b"v");
    leader.apply(&KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"from"));
    leader.commit();
    follow(&leader.log, &mut replayer, &mut Prng::new(1));
    // The slot of the destination is captured, the slot of the source is not.
    let (from, to) = (slot_of(b"from"), SlotId::FIRST);
    let to_key = (0u32..).map(|it| it.to_string()).find(|it| slot_of(it.as_bytes()) == to).expect("some key");
    assert!(from > to);
    let mut capture = keyspace::Capture::new(&keyspace, SlotId::FIRST, SlotId::FIRST);
    while capture.fill(&mut Vec::new(), 1 << 10, 1 << 10).is_some() {}
    let before = replayer.applied();
    leader.apply(&Effect::Move {
        db: DbId::ZERO,
        key: b"from",
        to_db: DbId::ZERO,
        to_key: to_key.as_bytes(),
    });
    leader.commit();
    let mut cursor = leader.log.cursor(replayer.applied());
    let CursorRead::Chunk(chunk) = cursor.read(1 << 20).expect("a sound disk") else { panic!("a chunk") };
    let replayed = replayer.apply(&chunk, Lsn::MAX, AccessClock::default(), &mut ()).expect("sound records");
    assert_eq!(replayed, chunk.end);
    assert!(keyspace.digest() == leader.keyspace.digest());
    let mut rest = keyspace::Capture::new(&keyspace, from, from);
    let mut piece = Vec::new();
    let captured = rest.fill(&mut piece, 1 << 10, 1 << 10).expect("the slot that the value was in");
    assert!(captured.lsn <= before, "as it was before the record");
    assert!(piece.windows(4).any(|it| it == b"from"), "with the value");
    assert!(rest.fill(&mut piece, 1 << 10, 1 << 10).is_none());
}
