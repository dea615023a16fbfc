use std::{path::Path, sync::Arc};

use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
use keyspace::{DbId, KeyOp, Options, Value};
use storage::{CursorRead, Log, LogOptions};

use super::*;
use crate::{
    recover::{Mode, recover_witness, tests::recovered},
    replay::Replayer,
    source::Source,
};

const DIR: &str = "/data";

fn witness(disk: Arc<SimDisk>) -> (Arc<Keyspace>, Log) {
    let source = Source {
        disk,
        dir: Path::new(DIR),
        options: LogOptions::default(),
        clock: Arc::new(SimClock::new(0)),
        entropy: &SimEntropy::new(1),
        appliers: 0,
        mode: Mode::Newest,
        documents: None,
    };
    let keyspace = Arc::new(Keyspace::new(Options { hash_seed: 7 }));
    let progress = LoadProgress::new(Arc::new(SimClock::new(0)));
    let (log, _mirror) = recover_witness(source, &keyspace, &progress).expect("a sound log");
    (keyspace, log)
}

fn roster(keyspace: &Keyspace) -> Option<Vec<u8>> {
    keyspace.data_settings().get(b"group:roster").map(<[u8]>::to_vec)
}

#[test]
fn a_witness_has_the_settings_of_its_log_and_nothing_else() {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
    let (_, log) = recovered(disk.clone(), 0);
    let mut appender = log.appender();
    let mut append = |effects: &[Effect<'_>]| {
        let mut record = Vec::new();
        effects.iter().for_each(|effect| effect.encode_into(&mut record));
        let pending = appender.reserve(&record).expect("a sound disk");
        let lsn = pending.lsn();
        pending.publish();
        lsn
    };
    let flush = || {
        log.flush_all().expect("a sound disk");
        log.durable_lsn()
    };
    let put = |key: &'static [u8]| {
        KeyOp::Put { value: Value::String(b"value"), expire_at_ms: None }.on(DbId::ZERO, key)
    };
    let large = vec![7; 100_000];
    let large = KeyOp::Put { value: Value::String(&large), expire_at_ms: None }.on(DbId::ZERO, b"large");
    let named = |value: &'static [u8]| Effect::Setting { name: b"group:roster", value: Some(value) };
    append(&[put(b"a"), named(b"first")]);
    append(&[put(b"b")]);
    let forgotten = flush();
    append(&[put(b"c"), named(b"second"), put(b"d")]);
    append(&[large]);
    flush();
    log.forget_before(forgotten).expect("a sound disk");

    let (keyspace, recovered) = witness(disk.clone_state());
    assert_eq!(roster(&keyspace).as_deref(), Some(&b"second"[..]));
    assert_eq!((keyspace.len(DbId::ZERO), recovered.durable_lsn()), (0, log.durable_lsn()));

    let (mut replayer, mut cursor) =
        (Replayer::of_witness(keyspace.clone(), log.durable_lsn()), log.cursor(log.durable_lsn()));
    let third = append(&[put(b"e"), named(b"third")]);
    append(&[named(b"fourth")]);
    flush();
    let CursorRead::Chunk(chunk) = cursor.read(1 << 20).expect("a sound disk") else { panic!("a chunk") };
    let mut apply = |until| {
        replayer.apply(&chunk, until, AccessClock::default(), &mut ()).expect("sound records");
        assert_eq!((replayer.applied(), replayer.needed_from()), (until, until));
        roster(&keyspace).expect("a setting")
    };
    assert_eq!(apply(third), b"third", "not further than it is committed");
    assert_eq!(apply(third), b"third");
    assert_eq!(apply(chunk.end), b"fourth");
    assert_eq!(keyspace.len(DbId::ZERO), 0);
    assert!(roster(&witness(disk).0).is_some_and(|text| text == b"fourth"));
}
