//! Power cuts at the I/O boundaries of a workload, or at as many of them as the budget allows. The I/Os of
//! the first start count as well.

use env::sim::FaultPlan;
use sim::{WorldOptions, rounds, scale, seed_or, spread_at_least};
use storage::Durability;

use crate::states::{live, seeded, with_durability};

/// The number of steps: about 600 commands, and one or two new segments.
const STEPS: usize = 450;
/// The number of workloads: each meets a power cut at each of its I/Os, or at as many of them as the budget
/// allows.
const WORKLOADS: u64 = 7;
/// The number of random mixtures of surviving data per boundary.
const MIXTURES: u64 = 14;

/// Stops the machine during every I/O, or as many as the budget allows, and judges all possible remains.
/// Returns the number of judged states.
pub(crate) fn sweep(options: WorldOptions, steps: usize, mixtures: u64) -> Result<u64, String> {
    sweep_at_least(0, options, steps, mixtures)
}

/// As [`sweep`], but stops the machine during at least `fewest` of the I/Os, whatever the budget.
pub(crate) fn sweep_at_least(
    fewest: u64,
    options: WorldOptions,
    steps: usize,
    mixtures: u64,
) -> Result<u64, String> {
    let total = live(options, steps, FaultPlan::default()).disk.io_count();
    let mut states = 0;
    for io in spread_at_least(fewest, total) {
        let plan = FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
        states += live(options, steps, plan).judge_power_cuts(mixtures)?;
    }
    Ok(states)
}

#[test]
fn power_cut_at_every_io_loses_nothing_acknowledged() {
    let (mut states, mut workloads) = (0, 0);
    for round in rounds(WORKLOADS) {
        states += sweep_at_least(4, seeded(seed_or(1) + round), STEPS, MIXTURES)
            .unwrap_or_else(|lost| panic!("{lost}"));
        workloads += 1;
    }
    println!("{states} crash states in {workloads} workloads");
    assert!(states >= 50 * workloads, "too few to mean anything");
}

#[test]
fn power_cut_of_a_lazy_log_leaves_a_prefix() {
    for durability in [Durability::Commit, Durability::Interval, Durability::None] {
        for round in 0..scale() {
            let options = with_durability(seed_or(100) + round, durability);
            let states = sweep(options, STEPS / 2, 4).unwrap_or_else(|lost| panic!("{lost}"));
            println!("{states} crash states with {durability:?}");
        }
    }
}
