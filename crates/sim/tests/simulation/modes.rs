//! The guarantees of the weaker durabilities, over many segments: after any power cut a prefix remains, and
//! the end of the process loses no written data.

use env::sim::{CrashMode, FaultPlan};
use sim::{Survival, WorkloadOptions, WorldOptions, scale, seed_or, spread};
use storage::Durability;

use crate::states::{end, live, new_disk, oracle_for, start, with_durability};

const STEPS: usize = 900;
const CUTS: u64 = 120;
const MIXTURES: u64 = 4;

/// Options with values so large that a run fills a dozen segments.
fn many_segments(seed: u64, durability: Durability) -> WorldOptions {
    let workload = WorkloadOptions { large_percent: 25, ..WorkloadOptions::default() };
    WorldOptions { workload, ..with_durability(seed, durability) }
}

#[test]
fn a_lazy_log_of_many_segments_recovers_as_a_prefix() {
    for durability in [Durability::None, Durability::Interval, Durability::Commit, Durability::Strict] {
        let options = many_segments(seed_or(800), durability);
        let whole = live(options, STEPS, FaultPlan::default());
        let total = whole.disk.io_count();
        let mut states = 0;
        for cut in spread(CUTS * scale()) {
            let io = total * cut / (CUTS * scale());
            let plan = FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
            states +=
                live(options, STEPS, plan).judge_power_cuts(MIXTURES).unwrap_or_else(|lost| panic!("{lost}"));
        }
        println!("{states} states of {total} I/Os with {durability:?}");
    }
}

#[test]
fn the_end_of_a_process_takes_nothing_that_was_written() {
    for durability in [Durability::None, Durability::Interval] {
        let options = many_segments(seed_or(801), durability);
        let mut world =
            start(options, new_disk(options.seed), oracle_for(&options)).ok().expect("a sound disk starts");
        world.run(STEPS).expect("the replies are right");
        world.drain().expect("everybody is answered");
        let executed = world.oracle.executed();
        let ended = end(world, options);
        assert_eq!(ended.oracle.floor(ended.process_end), executed, "everything is written");
        assert!(
            ended.oracle.floor(ended.power_cut) < executed,
            "not everything is durable, or this proves nothing"
        );
        ended.judge(&ended.disk.clone_state(), ended.process_end).unwrap();
        ended.judge(&ended.after_power_cut(CrashMode::KeepAll, 1), ended.process_end).unwrap();
    }
}

#[test]
fn closing_in_order_makes_everything_durable() {
    for durability in [Durability::None, Durability::Interval, Durability::Commit] {
        let options = many_segments(seed_or(802), durability);
        let mut world =
            start(options, new_disk(options.seed), oracle_for(&options)).ok().expect("a sound disk starts");
        world.run(STEPS / 2).expect("the replies are right");
        world.drain().expect("everybody is answered");
        world.log.close().expect("a sound disk closes");
        let end_of_log = Survival::Durable(world.log.durable_lsn());
        let ended = end(world, options);
        let position = ended.judge(&ended.after_power_cut(CrashMode::LoseAll, 1), end_of_log).unwrap();
        assert_eq!(position, ended.oracle.executed());
    }
}
