//! Many consecutive incarnations of a server on one disk: a recovered server must also continue to work.

use std::sync::Arc;

use env::{
    Prng, SimClock,
    sim::{CrashMode, FaultPlan},
};
use keyspace::Digest;
use sim::{Survival, WorkloadOptions, World, WorldOptions, content_of, recover, rounds, seed_or};
use storage::Durability;

use crate::states::{live, new_disk, oracle_for, seeded};

const LIVES: usize = 12;
const STEPS_MAX: u64 = 250;
const SEEDS: u64 = 40;
/// The maximum steps of a short life. Its log then often ends within the batches that the life before it left
/// behind the end that recovery found.
const SHORT_STEPS_MAX: u64 = 30;
const SHORT_SEEDS: u64 = 100;

#[test]
fn servers_that_crash_again_and_again_keep_every_promise() {
    let durabilities =
        [Durability::Strict, Durability::Strict, Durability::Commit, Durability::Interval, Durability::None];
    // FLUSHALL allows the log to be cut and segments to be recycled.
    let workload = WorkloadOptions { global_permille: 15, ..WorkloadOptions::default() };
    for round in rounds(SEEDS) {
        let durability = durabilities[round as usize % durabilities.len()];
        let options =
            WorldOptions { seed: seed_or(400) + round, durability, workload, ..WorldOptions::default() };
        many_lives(options, STEPS_MAX);
    }
}

/// A run that a crash cuts off may leave whole batches after the end that recovery finds. The commands are so
/// small that the next run's batches mostly have the same lengths, and end where a leftover one begins.
#[test]
fn leftovers_of_a_run_never_continue_the_next() {
    let workload = WorkloadOptions {
        large_percent: 0,
        pipeline_max: 2,
        global_permille: 0,
        ..WorkloadOptions::default()
    };
    for round in rounds(SHORT_SEEDS) {
        let (seed, durability) = (seed_or(430) + round, Durability::None);
        many_lives(WorldOptions { seed, durability, workload, ..WorldOptions::default() }, SHORT_STEPS_MAX);
    }
}

pub(crate) fn many_lives(options: WorldOptions, steps_max: u64) {
    let seed = options.seed;
    let (disk, clock) = (new_disk(seed), Arc::new(SimClock::new(1_700_000_000_000)));
    let mut prng = Prng::new(seed);
    let mut oracle = oracle_for(&options);
    let (mut survival, mut digest) = (Survival::Acknowledged, None);
    let mut epoch = 0;
    for life in 0..LIVES {
        let options = WorldOptions { seed: prng.next_u64(), ..options };
        let mut world = World::start(options, disk.clone(), clock.clone(), oracle)
            .unwrap_or_else(|error| panic!("seed {seed}, life {life}: does not start: {error}"));
        let position = world.oracle.judge(&content_of(&world.keyspace), survival);
        let position = position.unwrap_or_else(|violation| panic!("seed {seed}, life {life}: {violation}"));
        assert!(world.log.epoch() > epoch, "seed {seed}, life {life}");
        epoch = world.log.epoch();
        if let Some(digest) = digest {
            assert_eq!(world.keyspace.digest(), digest, "seed {seed}, life {life}: not what was stopped");
        }
        world.oracle.restart(position, world.log.appended_lsn());

        let crash_at_io = prng.chance(70).then(|| disk.io_count() + prng.below(120));
        disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
        let steps = prng.below(steps_max) as usize;
        world.run(steps).unwrap_or_else(|violation| panic!("seed {seed}, life {life}: {violation}"));
        (survival, digest) = end_life(&mut world, &mut prng);
        world.check().unwrap_or_else(|violation| panic!("seed {seed}, life {life}: {violation}"));
        oracle = world.oracle;
    }
}

/// Ends an incarnation in a random way. Returns the data that must survive, and after an orderly stop the
/// digest of memory.
fn end_life(world: &mut World, prng: &mut Prng) -> (Survival, Option<Digest>) {
    let disk = world.disk.clone();
    let (durable, written) = (world.log.durable_lsn(), world.log.written_lsn());
    if !world.has_stopped() {
        match prng.below(3) {
            0 => {
                disk.set_fault_plan(FaultPlan::default());
                world.drain().expect("a sound server answers everybody");
                world.log.close().expect("a sound disk closes");
                return (Survival::Durable(world.log.durable_lsn()), Some(world.keyspace.digest()));
            }
            1 => {
                disk.set_fault_plan(FaultPlan::default());
                return (Survival::Written(written), None);
            }
            _ => {}
        }
    }
    let mode = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random, CrashMode::Random]
        [prng.below(4) as usize];
    disk.crash(mode);
    let kept = mode == CrashMode::KeepAll;
    (if kept { Survival::Written(written) } else { Survival::Durable(durable) }, None)
}

#[test]
fn recovery_by_several_threads_equals_recovery_by_one() {
    for round in rounds(SEEDS) {
        let workload = WorkloadOptions { global_permille: 15, ..WorkloadOptions::default() };
        let alone = WorldOptions { workload, ..seeded(seed_or(450) + round) };
        let crash_at_io = Some(20 + 3 * (round % SEEDS));
        let plan = FaultPlan { crash_at_io, ..FaultPlan::default() };
        let ended = live(alone, STEPS_MAX as usize, plan);
        let contents = [0, 1, 3].map(|appliers| {
            let disk = ended.after_power_cut(CrashMode::Random, round);
            let recovered = recover(disk, &WorldOptions { appliers, ..alone }, &ended.clock);
            let recovered = recovered.unwrap_or_else(|error| panic!("seed {}: {error}", alone.seed));
            recovered.keyspace.check();
            content_of(&recovered.keyspace)
        });
        ended.oracle.judge(&contents[0], ended.power_cut).unwrap();
        assert!(contents.iter().all(|content| *content == contents[0]), "seed {}", alone.seed);
    }
}
