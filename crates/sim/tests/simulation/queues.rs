//! Clients that wait for elements of lists, while clients disconnect, are killed, are unblocked and time out,
//! until the power is cut.

use std::sync::Arc;

use env::{
    Prng, SimClock,
    sim::{CrashMode, FaultPlan},
};
use sim::{QueueWorld, Recovered, Sabotage, Violation, WorldOptions, lists, recover, scale, seed_or};

use crate::states::{new_disk, seeded};

const SEEDS: u64 = 150;
const STEPS: usize = 1500;
const CLIENTS: usize = 8;
/// The power is cut at a random I/O below this number; some runs end before.
const IOS: u64 = 400;

/// Runs a server until the power is cut, and judges all possible remains. Returns the number of popped
/// elements, and the number of those that were popped in the record of their push.
fn run(options: WorldOptions) -> Result<(usize, usize), Violation> {
    let disk = new_disk(options.seed);
    let clock = Arc::new(SimClock::new(1_700_000_000_000));
    let mut world = QueueWorld::start(options, disk.clone(), clock.clone()).expect("a sound disk starts");
    let crash_at_io = Some(disk.io_count() + Prng::new(options.seed).below(IOS));
    disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
    world.run(STEPS)?;
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
        let disk = world.disk().clone_state();
        disk.crash(mode);
        let Recovered { keyspace, .. } = recover(disk, &options, &clock).expect("what is left starts");
        world.ledger.judge(&lists(&keyspace))?;
    }
    Ok(world.ledger.popped())
}

fn options(round: u64) -> WorldOptions {
    WorldOptions { clients: CLIENTS, ..seeded(seed_or(500) + round) }
}

#[test]
fn elements_are_popped_once_and_in_order() {
    let (mut popped, mut passed_on) = (0, 0);
    for round in 0..SEEDS * scale() {
        let options = options(round);
        let counts = run(options).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
        (popped, passed_on) = (popped + counts.0, passed_on + counts.1);
    }
    println!("{popped} elements were popped, {passed_on} of them in the record of their push");
    assert!(passed_on > 1000, "clients waited and were served");
}

#[test]
fn pops_that_are_answered_early_are_found() {
    let sabotage = Some(Sabotage::EarlyReplies);
    let found = (0..SEEDS).any(|round| run(WorldOptions { sabotage, ..options(round) }).is_err());
    assert!(found, "replies before durability");
}
