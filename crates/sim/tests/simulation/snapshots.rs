//! Snapshots of a running server, with all faults.

use env::sim::{FaultKind, FaultPlan};
use sim::{
    Survival, WorkloadOptions, WorldOptions, content_of, recover, rounds, rounds_at_least, scale, seed_or,
    spread_at_least,
};
use storage::Durability;

use crate::{
    crash::sweep_at_least,
    crash_in_recovery::crash_recovery,
    lives::many_lives,
    states::{end, live, new_disk, oracle_for, start, with_durability},
};

const STEPS: usize = 300;
/// The number of random mixtures of surviving data per boundary.
const MIXTURES: u64 = 3;

/// Options with frequent snapshots, and with commands that move or remove all values of a database.
fn with_snapshots(seed: u64, durability: Durability) -> WorldOptions {
    let workload = WorkloadOptions { global_permille: 6, ..WorkloadOptions::default() };
    WorldOptions { workload, snapshots_permille: 200, ..with_durability(seed, durability) }
}

#[test]
fn snapshots_of_a_sound_disk_are_published_and_restored() {
    let (mut runs, mut published) = (0, 0);
    for round in rounds(60) {
        runs += 1;
        let durability = [Durability::Strict, Durability::Commit, Durability::Interval, Durability::None]
            [round as usize % 4];
        let options = with_snapshots(seed_or(700) + round, durability);
        let mut world = start(options, new_disk(options.seed), oracle_for(&options))
            .unwrap_or_else(|not_started| panic!("seed {}: {}", options.seed, not_started.error));
        world.run(3 * STEPS).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
        assert_eq!(world.snapshot_failure(), None, "seed {}", options.seed);
        published += world.snapshots_published();
        let ended = end(world, options);
        ended.judge_power_cuts(MIXTURES).unwrap_or_else(|lost| panic!("{lost}"));
        let contents = [0, 1, 3].map(|appliers| {
            let recovered =
                recover(ended.disk.clone_state(), &WorldOptions { appliers, ..options }, &ended.clock);
            let recovered = recovered.unwrap_or_else(|error| panic!("seed {}: {error}", options.seed));
            recovered.keyspace.check();
            content_of(&recovered.keyspace)
        });
        assert!(contents.iter().all(|content| *content == contents[0]), "seed {}", options.seed);
    }
    println!("{published} snapshots");
    assert!(published >= 3 * runs, "{published} snapshots in {runs} runs are too few to mean anything");
}

#[test]
fn power_cut_at_every_io_of_taking_snapshots_loses_nothing() {
    let mut states = 0;
    for (round, durability) in
        (0..scale()).flat_map(|round| [Durability::Strict, Durability::None].map(|it| (round, it)))
    {
        let options = with_snapshots(seed_or(720) + round, durability);
        states += sweep_at_least(20, options, 2 * STEPS, MIXTURES).unwrap_or_else(|lost| panic!("{lost}"));
    }
    println!("{states} crash states");
    assert!(states >= 100 * scale(), "{states} crash states are too few to mean anything");
}

#[test]
fn power_cut_at_every_io_of_recovering_from_a_snapshot_changes_nothing() {
    const FIRST_CRASHES: u64 = 12;
    let options = with_snapshots(seed_or(740), Durability::Strict);
    let total = live(options, STEPS, FaultPlan::default()).disk.io_count();
    let mut states = 0;
    for first in 0..FIRST_CRASHES * scale() {
        // In the second half of the run, when snapshots exist.
        let io = total / 2 + total / 2 * first / (FIRST_CRASHES * scale());
        let plan = FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
        states += crash_recovery(&live(options, STEPS, plan), first);
    }
    println!("{states} nested crash states");
    assert!(states >= 300, "{states} nested crash states are too few to mean anything");
}

#[test]
fn servers_that_take_snapshots_and_crash_again_and_again_keep_every_promise() {
    let durabilities = [Durability::Strict, Durability::Strict, Durability::Commit, Durability::None];
    for round in rounds_at_least(4, 20) {
        let durability = durabilities[round as usize % durabilities.len()];
        many_lives(with_snapshots(seed_or(760) + round, durability), STEPS as u64);
    }
}

/// An I/O error fails the snapshot or the log, and no acknowledged data is lost.
#[test]
fn no_io_error_while_a_snapshot_is_taken_loses_anything() {
    let options = with_snapshots(seed_or(780), Durability::Strict);
    let (mut failed_snapshots, mut failed_logs) = (0, 0);
    for io in spread_at_least(80, live(options, STEPS, FaultPlan::default()).disk.io_count()) {
        for (kind, sticky) in
            [(FaultKind::Eio, false), (FaultKind::Enospc, true), (FaultKind::ShortWrite, false)]
        {
            let plan = FaultPlan { fail_io: Some((io, kind)), sticky, ..FaultPlan::default() };
            let place = format!("seed {}, {plan:?}", options.seed);
            let disk = new_disk(options.seed);
            disk.set_fault_plan(plan);
            let Ok(mut world) = start(options, disk, oracle_for(&options)) else { continue };
            world.run(STEPS).unwrap_or_else(|violation| panic!("{place}: {violation}"));
            failed_snapshots += u64::from(world.snapshot_failure().is_some());
            failed_logs += u64::from(world.failure().is_some());
            let ended = end(world, options);
            ended.disk.set_fault_plan(FaultPlan::default());
            let Survival::Durable(_) = ended.power_cut else { panic!("a world that has started") };
            ended.judge_power_cuts(1).unwrap_or_else(|lost| panic!("{place}: {lost}"));
        }
    }
    println!("{failed_snapshots} snapshots and {failed_logs} logs failed");
    assert!(failed_snapshots > 10 && failed_logs > 50, "{failed_snapshots} and {failed_logs}");
}
