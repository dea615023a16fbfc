//! HTTP clients and power cuts: no document is older than a reply has shown it, and no change is half done.

use std::sync::Arc;

use env::{
    Prng, SimClock,
    sim::{CrashMode, FaultPlan},
};
use sim::{HttpWorld, Sabotage, Violation, WorldOptions, documents_of, recover_documents, rounds, seed_or};

use crate::states::{new_disk, seeded};

const SEEDS: u64 = 200;
const STEPS: usize = 3000;
/// The power is cut at a random I/O below this number; some runs end before.
const IOS: u64 = 500;

/// Runs a server until the power is cut, and judges all possible remains. Returns the numbers of acknowledged
/// changes, of shown documents and of log-ins.
fn run(options: WorldOptions) -> Result<(u64, u64, u64), Violation> {
    let (disk, clock) = (new_disk(options.seed), Arc::new(SimClock::new(1_700_000_000_000)));
    let mut world = HttpWorld::start(options, disk.clone(), clock.clone()).expect("a sound disk starts");
    world.create_database()?;
    let io = disk.io_count() + Prng::new(options.seed).below(IOS);
    disk.set_fault_plan(FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() });
    world.run(STEPS)?;
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
        let disk = disk.clone_state();
        disk.crash(mode);
        let recovered = recover_documents(disk, &options, &clock);
        let (_, documents) = recovered.map_err(|error| Violation::Protocol(format!("{mode:?}: {error}")))?;
        world.judge(&documents_of(&documents).expect("readable"))?;
    }
    Ok(world.done())
}

fn options(round: u64) -> WorldOptions {
    WorldOptions { clients: 5, ..seeded(seed_or(1500) + round) }
}

#[test]
fn documents_shown_over_http_survive_power_cuts() {
    let (mut runs, mut changes, mut shown, mut log_ins) = (0, 0, 0, 0);
    for round in rounds(SEEDS) {
        let options = options(round);
        let done = run(options).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
        (runs, changes, shown, log_ins) = (runs + 1, changes + done.0, shown + done.1, log_ins + done.2);
    }
    println!("{runs} runs: {changes} acknowledged changes, {shown} shown documents, {log_ins} log-ins");
    assert!(changes > 30 * runs && shown > 30 * runs && log_ins > 5 * runs, "{changes}, {shown}, {log_ins}");
}

#[test]
fn replies_over_http_before_durability_are_found() {
    let sabotage = Some(Sabotage::LyingDisk);
    let found = (0..SEEDS).any(|round| run(WorldOptions { sabotage, ..options(round) }).is_err());
    assert!(found, "replies before durability");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let twice = [options(7), options(7)].map(|options| run(options).ok());
    assert_eq!(twice[0], twice[1]);
}
