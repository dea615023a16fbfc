//! Groups under all simulated faults. `sim::GroupWorld` documents the checked invariants.
//!
//! Each rule of a group is broken on purpose: here, see `GroupFault`, or in the simulation of votes alone,
//! see `every_deliberate_break_is_found` in `consensus`.
//!
//! | rule | broken here by | in the votes by |
//! |---|---|---|
//! | 1. the ballot is on disk before it leaves | SendsBeforeItHasSaved, IgnoresItsBallot | ForgetsItsVote |
//! | 2. only the winner of a term begins its epoch | | BeginsAnEpochAtItsStart |
//! | 3. batches are accepted before the log takes them | TakesWhatIsNotAccepted | |
//! | and durable before that is said | ReportsBeforeItIsDurable | AcknowledgesBeforeItIsDurable |
//! | by a leader as well | | ProposesWhatIsNotDurable |
//! | 4. a log is cut where it conflicts | CutsCommitted, JoinsByPosition | CutsCommitted, JoinsAnyLeader |
//! | 5. data are committed before they are shown | ShowsUncommitted, ShowsLeftovers, KeepsItsMemory | |
//! | and before they are acknowledged | AnswersBeforeCommit | |
//! | 6. a voter syncs before it acknowledges | AcknowledgesWithoutSync | |
//! | 7. a lost or older disk is another member | GoesBackToAnOlderDisk | |
//! | 8. reads at a leader need a lease | AnswersWithoutLease | VotesAtOnceAfterAStart, LeaseDuringTransfer |
//! | 9. a member that has not loaded does not lead | LeadsBeforeApplying | CampaignsWithOldMembers |

use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::{GroupFault, GroupFigures, GroupOptions, GroupWorld, rounds_at_least, seed_or};

/// The length of a run in simulated milliseconds.
const RUN_MS: u64 = 5_000;
/// A canary that is not detected within this number of seeds counts as missed.
const SEEDS_MAX: u64 = 2_000;

/// Runs one seed; a panic counts as a broken invariant.
fn run(seed: u64, fault: Option<GroupFault>) -> Result<GroupFigures, String> {
    let options = GroupOptions { seed, run_ms: RUN_MS, fault };
    catch_unwind(AssertUnwindSafe(|| GroupWorld::new(options).run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

#[test]
fn no_acknowledged_write_of_a_group_is_lost_and_no_read_is_stale() {
    let first_seed = seed_or(200_000);
    let (mut total, mut seeds) = (GroupFigures::default(), 0);
    for seed in rounds_at_least(100, 2_000).map(|round| first_seed + round) {
        seeds += 1;
        let figures = run(seed, None).unwrap_or_else(|broken| panic!("SHEAF_SIM_SEED={seed}: {broken}"));
        total.add(&figures);
    }
    println!("{seeds} seeds: {total:?}");
    let rarest = [
        total.reads_at_leaders,
        total.reads_at_followers,
        total.elections,
        total.power_failures,
        total.crashes_in_saves,
        total.crashes_in_batches,
        total.failed_saves,
        total.cuts,
        total.copies,
        total.changes,
        total.transfers,
        total.lost_members,
        total.kept_memories,
    ];
    assert!(rarest.iter().all(|&count| count > seeds / 40), "something hardly ever happened: {total:?}");
}

/// Asserts that a run from this seed on detects the defect, and prints the number of runs that it took.
fn assert_found(fault: GroupFault, first_seed: u64) {
    let first_seed = seed_or(first_seed);
    let found = (first_seed..first_seed + SEEDS_MAX).find_map(|seed| {
        let found = run(seed, Some(fault)).err()?;
        Some((seed - first_seed, found))
    });
    let (runs, found) = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
    let honest = run(first_seed + runs, None);
    assert!(honest.is_ok(), "seed {}: fails without {fault:?} as well: {honest:?}", first_seed + runs);
    println!("{fault:?}: found after {runs} runs as: {}", found.lines().next().unwrap_or_default());
}

/// One test for each defect.
macro_rules! defects {
    ($($name:ident: $fault:ident,)+) => {
        $(#[test]
        fn $name() {
            super::assert_found(GroupFault::$fault, 200_000);
        })+
    };
}

/// Deliberate defects of a server, each of which is found.
mod defects {
    use super::GroupFault;

    defects! {
        sends_before_it_has_saved: SendsBeforeItHasSaved,
        ignores_its_ballot: IgnoresItsBallot,
        takes_what_is_not_accepted: TakesWhatIsNotAccepted,
        answers_before_commit: AnswersBeforeCommit,
        shows_uncommitted: ShowsUncommitted,
        shows_leftovers: ShowsLeftovers,
        leads_before_applying: LeadsBeforeApplying,
        joins_by_position: JoinsByPosition,
        reports_before_it_is_durable: ReportsBeforeItIsDurable,
        keeps_its_memory: KeepsItsMemory,
        cuts_committed: CutsCommitted,
        acknowledges_without_sync: AcknowledgesWithoutSync,
        goes_back_to_an_older_disk: GoesBackToAnOlderDisk,
    }

    /// This defect has a first seed of its own. From the common first seed it is found only after 205 runs: a
    /// reply has to wait while another leader is elected and takes writes.
    #[test]
    fn answers_without_lease() {
        super::assert_found(GroupFault::AnswersWithoutLease, 200_200);
    }
}
