//! Documents and power cuts: the recovered content is that of one moment, and has everything that was
//! acknowledged.

use std::sync::Arc;

use env::{
    Prng, SimClock,
    sim::{CrashMode, FaultKind, FaultPlan},
};
use sim::{
    DocumentWorld, Sabotage, Violation, WorldOptions, documents_of, recover_documents, rounds, seed_or,
};

use crate::states::{new_disk, seeded};

const SEEDS: u64 = 80;
const STEPS: usize = 900;
/// The power is cut at a random I/O below this number; some runs end before.
const IOS: u64 = 1200;

/// Runs a server until a fault of its disk, and judges all possible remains. Returns the numbers of changes,
/// saves and compactions.
fn run(options: WorldOptions, plan: impl FnOnce(u64) -> FaultPlan) -> Result<(usize, u64, u64), Violation> {
    let (disk, clock) = (new_disk(options.seed), Arc::new(SimClock::new(1_700_000_000_000)));
    let mut world = DocumentWorld::start(options, disk.clone(), clock.clone()).expect("a sound disk starts");
    disk.set_fault_plan(plan(disk.io_count() + Prng::new(options.seed).below(IOS)));
    world.run(STEPS)?;
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
        let disk = disk.clone_state();
        disk.crash(mode);
        // Twice: the writes of a recovery must not change the result.
        for _ in 0..2 {
            let (_, documents) = recover_documents(disk.clone(), &options, &clock)
                .unwrap_or_else(|error| panic!("seed {}, {mode:?}: {error}", options.seed));
            world.judge(&documents_of(&documents).expect("readable"))?;
        }
    }
    Ok(world.done())
}

fn options(round: u64) -> WorldOptions {
    WorldOptions { clients: 5, ..seeded(seed_or(1300) + round) }
}

#[test]
fn documents_that_were_told_survive_power_cuts() {
    let (mut runs, mut changes, mut saves, mut compactions) = (0, 0, 0, 0);
    for round in rounds(SEEDS) {
        runs += 1;
        let options = options(round);
        let cut = |io| FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
        let done = run(options, cut).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
        (changes, saves, compactions) = (changes + done.0, saves + done.1, compactions + done.2);
    }
    println!("{changes} changes, {saves} saves, {compactions} compactions");
    let enough = changes > 100 * runs && saves > 10 * runs as u64 && compactions > runs as u64 / 2;
    assert!(enough, "{changes}, {saves}, {compactions} in {runs} runs");
}

#[test]
fn documents_survive_a_disk_that_is_full_for_a_while() {
    for round in rounds(SEEDS / 4) {
        let options = options(10_000 + round);
        let full = |io| FaultPlan { fail_io: Some((io, FaultKind::Enospc)), ..FaultPlan::default() };
        run(options, full).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
    }
}

#[test]
fn replies_before_durability_are_found() {
    let sabotage = Some(Sabotage::EarlyReplies);
    let cut = |io| FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
    let found = (0..SEEDS).any(|round| run(WorldOptions { sabotage, ..options(round) }, cut).is_err());
    assert!(found, "replies before durability");
}
