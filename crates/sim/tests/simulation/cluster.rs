//! Clusters under all simulated faults. `sim::Cluster` documents the checked invariants.

use sim::{Cluster, ClusterOptions, ClusterSummary, FaultInjection, rounds, rounds_at_least, seed_or};

/// The number of steps of a run, before all faults are healed.
const STEPS: usize = 1_500;
/// A canary that is not detected within this number of seeds counts as missed.
const SEEDS_MAX: u64 = 400;
/// The minimum number of runs, even on the slowest machine. In about one run of ten, a script has to be
/// ended.
const SEEDS_MIN: u64 = 25;

fn run(options: ClusterOptions) -> Result<ClusterSummary, String> {
    Cluster::new(options).run(STEPS)
}

fn sweep(first_seed: u64, seeds: u64, nodes: usize, acks: usize) {
    let (mut total, mut run_count) = (ClusterSummary::default(), 0);
    for round in rounds_at_least(SEEDS_MIN, seeds) {
        let seed = first_seed + round;
        run_count += 1;
        let options = ClusterOptions { seed, nodes, acks, fault: None };
        let summary = run(options).unwrap_or_else(|broken| panic!("SHEAF_SIM_SEED={seed}: {broken}"));
        total.acknowledged += summary.acknowledged;
        total.committed_bytes += summary.committed_bytes;
        total.failovers += summary.failovers;
        total.handovers += summary.handovers;
        total.scripts_ended += summary.scripts_ended;
        total.cuts += summary.cuts;
        total.copies += summary.copies;
        total.starts += summary.starts;
        total.checks += summary.checks;
    }
    println!("{nodes} servers, {acks} acks, {run_count} seeds: {total:?}");
    // Hand-overs that a cut or a crash overtakes are given up.
    let mut rarest = vec![total.acknowledged as u64, 8 * total.handovers, total.copies, total.checks];
    if acks > 0 {
        rarest.extend([total.failovers, total.cuts]);
    }
    assert!(rarest.iter().all(|&count| count > run_count / 2), "something hardly ever happened: {total:?}");
    assert!(total.scripts_ended > run_count / 20, "scripts hardly ever had to be ended: {total:?}");
}

#[test]
fn writes_with_one_acknowledgement_survive_any_single_loss() {
    sweep(seed_or(50_000), 1000, 3, 1);
}

#[test]
fn writes_with_two_acknowledgements_survive_any_two_losses() {
    sweep(seed_or(60_000), 400, 4, 2);
    sweep(seed_or(70_000), 200, 3, 2);
}

#[test]
fn asynchronous_replicas_show_durable_changes_of_their_leader() {
    sweep(seed_or(80_000), 400, 3, 0);
}

/// Promotes two replicas in the same millisecond. Both then write batches of equal lengths.
fn double_promotions(
    seeds: impl Iterator<Item = u64>,
    fault: Option<FaultInjection>,
) -> Result<(), (u64, String)> {
    for seed in seeds {
        let options = ClusterOptions { seed, nodes: 3, acks: 0, fault };
        Cluster::new(options).run_double_promotion(200).map_err(|broken| (seed, broken))?;
    }
    Ok(())
}

#[test]
fn of_two_leaders_at_the_same_time_one_wins_whole() {
    let first_seed = seed_or(95_000);
    if let Err((seed, broken)) = double_promotions(rounds(200).map(|round| first_seed + round), None) {
        panic!("SHEAF_SIM_SEED={seed}: {broken}");
    }
}

#[test]
fn a_join_that_compares_positions_is_found() {
    let first_seed = seed_or(95_000);
    let found = double_promotions(first_seed..first_seed + SEEDS_MAX, Some(FaultInjection::JoinByPosition));
    let (seed, broken) = found.expect_err("it was not found");
    let honest = double_promotions(std::iter::once(seed), None);
    assert_eq!(honest, Ok(()), "fails with joins by chain as well: says nothing of those by position");
    println!("SHEAF_SIM_SEED={seed}: found as: {broken}");
}

/// Asserts that a run detects the defect, and prints the number of runs that it took.
fn assert_found(fault: FaultInjection, acks: usize) {
    let first_seed = seed_or(90_000);
    let found = (first_seed..first_seed + SEEDS_MAX).find_map(|seed| {
        let options = ClusterOptions { seed, nodes: 3, acks, fault: Some(fault) };
        Some((seed - first_seed, run(options).err()?))
    });
    let (runs, found) = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
    println!("{fault:?}: found after {runs} runs as: {found}");
}

#[test]
fn acks_before_the_flush_are_found() {
    assert_found(FaultInjection::AckBeforeFlush, 1);
}

#[test]
fn reads_of_uncommitted_changes_are_found() {
    assert_found(FaultInjection::ApplyBeforeCommit, 2);
}

#[test]
fn a_leader_that_has_not_all_is_found() {
    assert_found(FaultInjection::PromoteAny, 1);
}

#[test]
fn a_replica_that_shows_uncommitted_leftovers_is_found() {
    assert_found(FaultInjection::ShowLeftovers, 1);
}

#[test]
fn a_replica_that_leads_before_it_has_applied_its_log_is_found() {
    assert_found(FaultInjection::LeadBeforeApplying, 1);
}

#[test]
fn a_hand_over_to_a_replica_that_lacks_something_is_found() {
    assert_found(FaultInjection::HandOverEarly, 0);
}

#[test]
fn commits_of_batches_of_earlier_epochs_alone_are_found() {
    assert_found(FaultInjection::CommitLeftovers, 1);
}

#[test]
fn a_hand_over_to_a_replica_that_a_script_holds_up_is_found() {
    assert_found(FaultInjection::HandOverUnapplied, 1);
}

#[test]
fn scripts_that_keep_a_replica_from_its_leader_for_ever_are_found() {
    assert_found(FaultInjection::EndNoScript, 1);
}

/// The number of steps before the leader that was given a setting is lost.
const GIVEN_STEPS: u64 = 1_000;

fn run_given_settings(seed: u64, fault: Option<FaultInjection>) -> Result<usize, String> {
    Cluster::new(ClusterOptions { seed, nodes: 2, acks: 1, fault }).run_given_settings(GIVEN_STEPS)
}

#[test]
fn what_was_promised_with_the_first_write_is_kept_by_the_next_leader() {
    let (first_seed, mut acknowledged, mut run_count) = (seed_or(97_000), 0, 0);
    for round in rounds(300) {
        let seed = first_seed + round;
        run_count += 1;
        let run = run_given_settings(seed, None);
        acknowledged += run.unwrap_or_else(|broken| panic!("SHEAF_SIM_SEED={seed}: {broken}"));
    }
    assert!(acknowledged > run_count, "{acknowledged} writes were acknowledged in {run_count} runs");
}

#[test]
fn writes_before_the_settings_that_they_rest_on_are_found() {
    let first_seed = seed_or(97_000);
    let found = (first_seed..first_seed + SEEDS_MAX)
        .find_map(|seed| run_given_settings(seed, Some(FaultInjection::SettingsLate)).err());
    println!("found as: {}", found.expect("it was not found"));
}
