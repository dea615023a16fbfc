//! The oracle must detect deliberate defects: a test that cannot fail proves nothing.

use env::sim::FaultPlan;
use sim::{Oracle, Sabotage, WorkloadOptions, WorldOptions, seed_or};
use storage::Durability;

use crate::{
    crash::sweep_at_least,
    states::{end, live, new_disk, seeded, start, with_durability},
};

const STEPS: usize = 200;
/// A canary that is not detected within this number of seeds counts as missed.
const SEEDS_MAX: u64 = 100;
/// As [`SEEDS_MAX`], for defects by which a client waits for ever: these are rarer, because most forgotten
/// clients are woken together with other clients.
const FORGOTTEN_SEEDS_MAX: u64 = 1000;

/// Stops the machine during every I/O until the defect is found: a budget of time would let it pass.
fn assert_found(options: WorldOptions, what: &str) {
    let found = sweep_at_least(u64::MAX, options, STEPS, 2).expect_err(what);
    println!("{what}: found as: {found}");
}

#[test]
fn replies_that_leave_early_are_found() {
    let options = WorldOptions { sabotage: Some(Sabotage::EarlyReplies), ..seeded(seed_or(300)) };
    assert_found(options, "replies before durability");
}

#[test]
fn notices_that_leave_early_are_found() {
    let options = WorldOptions { sabotage: Some(Sabotage::EarlyNotices), ..seeded(seed_or(304)) };
    assert_found(options, "notices before durability");
}

/// In each of these ways, a client waits for ever.
#[test]
fn forgotten_waiters_are_found() {
    for (sabotage, seed) in
        [(Sabotage::NoWakeUp, 303), (Sabotage::NoResume, 305), (Sabotage::SleepingLogThread, 306)]
    {
        let options = |round| WorldOptions { sabotage: Some(sabotage), ..seeded(seed_or(seed) + round) };
        let found = (0..FORGOTTEN_SEEDS_MAX).find_map(|round| wait_for_ever(options(round)));
        println!("{sabotage:?}: found as: {}", found.expect("a client waits for ever"));
    }
}

/// The violation, if a client waits for ever.
fn wait_for_ever(options: WorldOptions) -> Option<String> {
    let oracle = Oracle::new(options.durability);
    let mut world = start(options, new_disk(options.seed), oracle).ok().expect("it starts");
    let found = world.run(STEPS).and_then(|()| world.drain()).err()?.to_string();
    assert!(found.contains("waits for ever"), "{found}");
    Some(format!("seed {}: {found}", options.seed))
}

#[test]
fn a_lying_disk_is_found() {
    // The first start uses an honest disk: otherwise the lie about the new, empty log would be found before
    // any other lie.
    let mut options = seeded(seed_or(301));
    let disk = new_disk(options.seed);
    drop(start(options, disk.clone(), Oracle::new(Durability::Strict)).ok().expect("a sound disk starts"));
    options.sabotage = Some(Sabotage::LyingDisk);
    let mut world = start(options, disk, Oracle::new(Durability::Strict)).ok().expect("lying is not failing");
    world.run(STEPS).expect("the replies are right");
    assert!(world.oracle.acknowledged() > 0);
    let found = end(world, options).judge_power_cuts(2).expect_err("a disk that does not sync");
    println!("a lying disk: found as: {found}");
}

#[test]
fn reads_of_undurable_changes_are_found() {
    // The read of an undurable change must be the first in its reply, and the power must fail before the next
    // flush. So not every run detects the defect.
    let found = (0..SEEDS_MAX).any(|round| is_dirty_read_found(seed_or(302) + round));
    assert!(found, "a read of what was lost was not found");
}

/// Runs a server with a weaker durability than the oracle assumes: `commit` lets reads show data that is not
/// durable yet.
fn is_dirty_read_found(seed: u64) -> bool {
    // Few keys and no pipelines, so that a read of another client's write is often the first in its reply.
    let workload = WorkloadOptions { keys: 2, pipeline_max: 1, ..WorkloadOptions::default() };
    let options = WorldOptions { workload, ..with_durability(seed, Durability::Commit) };
    let ios = live(options, STEPS, FaultPlan::default()).disk.io_count();
    (0..ios).any(|io| {
        let disk = new_disk(options.seed);
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() });
        let Ok(mut world) = start(options, disk, Oracle::new(Durability::Strict)) else { return false };
        world.run(STEPS).expect("the replies are right");
        end(world, options).judge_power_cuts(2).is_err()
    })
}
