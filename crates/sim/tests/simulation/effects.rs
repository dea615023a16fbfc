//! The log of random histories has every effect that the workload can make, and a replay that misses any of
//! them is detected.

use std::{collections::BTreeMap, sync::Arc};

use env::{Clock, SimDisk};
use keyspace::{AccessClock, Effect, Freed, Keyspace, Options, Scope, slot_of};
use sim::{Survival, WorkloadOptions, WorldOptions, content_of, records, seed_or};

use crate::states::{Ended, end, new_disk, oracle_for, seeded, start};

/// Short, because later effects hide missed ones.
const STEPS: usize = 120;
/// An effect whose absence is not detected within this number of histories fails the test.
const SEEDS_MAX: u64 = 500;
/// An effect whose absence was detected this often is not left out again.
const ENOUGH: usize = 3;

/// The first bytes of all effects that the workload makes; see `keyspace::effect`.
const OPCODES: [u8; 37] = [
    0x01, 0x02, 0x03, 0x04, // any key
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, // whole values, strings
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, // lists
    0x30, 0x31, // sets
    0x40, 0x41, 0x42, // sorted sets
    0x50, 0x51, 0x52, 0x53, 0x54, // hashes
    0xf0, 0xf1, 0xf2, // whole databases
];

/// An incarnation that ends with a closed log.
fn stopped(options: WorldOptions) -> Ended {
    let mut world = start(options, new_disk(options.seed), oracle_for(&options)).ok().expect("a sound disk");
    world.run(STEPS).expect("the replies are right");
    world.drain().expect("everybody is answered");
    world.log.close().expect("a sound disk closes");
    end(world, options)
}

/// The encoded effects on a disk, in order.
fn effects(disk: &Arc<SimDisk>, options: &WorldOptions) -> Vec<Vec<u8>> {
    let mut effects = Vec::new();
    for record in records(disk.clone_state(), options).expect("a sound log") {
        let mut rest = record.as_slice();
        loop {
            let before = rest;
            if Effect::decode_next(&mut rest).expect("what was logged decodes").is_none() {
                break;
            }
            effects.push(before[..before.len() - rest.len()].to_vec());
        }
    }
    effects
}

/// Replays all effects except one.
fn replay_without(effects: &[Vec<u8>], left_out: usize, now_ms: u64) -> Keyspace {
    let keyspace = Keyspace::new(Options { hash_seed: 1 });
    let (clock, mut freed) = (AccessClock { now_ms, ..AccessClock::default() }, Freed::new());
    for (_, bytes) in effects.iter().enumerate().filter(|(index, _)| *index != left_out) {
        let effect = Effect::decode_next(&mut bytes.as_slice()).expect("it decodes").expect("it is one");
        match effect.scope() {
            Scope::Slot(key) => _ = keyspace.lock(slot_of(key)).apply(&effect, clock, &mut freed),
            Scope::Two(from, to) => {
                _ = keyspace.lock_many([from, to].map(slot_of)).apply(&effect, clock, &mut freed);
            }
            Scope::Global => _ = keyspace.lock_all().apply(&effect, clock, &mut freed),
        }
    }
    keyspace
}

#[test]
fn an_effect_that_is_not_replayed_is_found() {
    let mut missed = BTreeMap::<u8, usize>::new();
    for round in 0..SEEDS_MAX {
        // Few names, so that most effects change existing data, and values so large that they are moved
        // without a copy.
        let workload = WorkloadOptions {
            large_percent: 40,
            large_bytes_max: 60_000,
            members: 8,
            global_permille: 4,
            collection_percent: 70,
            ..WorkloadOptions::default()
        };
        let options = WorldOptions { workload, ..seeded(seed_or(900) + round) };
        let ended = stopped(options);
        let survival = Survival::Acknowledged;
        let (effects, now_ms) = (effects(&ended.disk, &options), ended.clock.unix_ms());
        let whole = content_of(&replay_without(&effects, usize::MAX, now_ms));
        assert_eq!(ended.oracle.judge(&whole, survival), Ok(ended.oracle.executed()));
        for (index, effect) in effects.iter().enumerate() {
            let times = missed.entry(effect[0]).or_default();
            if *times < ENOUGH {
                let content = content_of(&replay_without(&effects, index, now_ms));
                *times += usize::from(ended.oracle.judge(&content, survival).is_err());
            }
        }
        if OPCODES.iter().all(|opcode| missed.get(opcode).is_some_and(|times| *times > 0)) {
            assert_eq!(missed.len(), OPCODES.len(), "an effect that is not known here: {missed:x?}");
            println!("every effect is made and missed in {} histories", round + 1);
            return;
        }
    }
    panic!("an effect is never made, or never missed: {missed:x?}");
}
