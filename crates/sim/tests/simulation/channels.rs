//! Durable channels and power cuts: shown messages are found again at their positions, acknowledged ones
//! survive, and no message is duplicated.

use std::sync::Arc;

use env::{
    SimClock,
    sim::{CrashMode, FaultPlan},
};
use sim::{ChannelWorld, Recovered, WorldOptions, recover, rounds, scale, seed_or, spread_at_least};
use storage::Durability;

use crate::states::{new_disk, with_durability};

const STEPS: usize = 700;
/// The minimum number of power cuts per workload, even on the slowest machine: enough for messages to be
/// shown before some of the cuts.
const POINTS_MIN: u64 = 12;

/// Runs a server until the I/O with this number, and judges all states in which its disk may be left. Returns
/// the number of I/Os, and the number of shown messages.
fn run(options: WorldOptions, crash_at_io: Option<u64>) -> (u64, usize) {
    let (disk, clock) = (new_disk(options.seed), Arc::new(SimClock::new(1_700_000_000_000)));
    let mut world = ChannelWorld::start(options, disk.clone(), clock.clone());
    disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
    let seed = options.seed;
    world.run(STEPS).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    // If nothing is synced before it is shown, a power cut may lose messages that readers were shown. An end
    // of the process must not.
    let modes: &[CrashMode] = match options.durability {
        Durability::Strict | Durability::Commit => {
            &[CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random]
        }
        Durability::Interval | Durability::None => &[CrashMode::KeepAll],
    };
    for &mode in modes {
        let left = disk.clone_state();
        left.crash(mode);
        let Recovered { log, .. } = recover(left, &options, &clock)
            .unwrap_or_else(|error| panic!("seed {seed}, I/O {crash_at_io:?}, {mode:?}: {error}"));
        world
            .judge(&log)
            .unwrap_or_else(|violation| panic!("seed {seed}, I/O {crash_at_io:?}, {mode:?}: {violation}"));
    }
    (disk.io_count(), world.shown())
}

#[test]
fn messages_that_were_shown_stay_where_they_are_whenever_the_power_is_cut() {
    let (mut runs, mut states, mut shown) = (0, 0, 0);
    for round in rounds(20) {
        runs += 1;
        let options = with_durability(seed_or(900) + round, Durability::Strict);
        let first = {
            let disk = new_disk(options.seed);
            let _ = ChannelWorld::start(options, disk.clone(), Arc::new(SimClock::new(0)));
            disk.io_count()
        };
        let (last, _) = run(options, None);
        for io in spread_at_least(POINTS_MIN, last - first) {
            shown += run(options, Some(first + io)).1;
            states += 3;
        }
    }
    println!("{states} states, {shown} messages were shown");
    assert!(
        states > 5 * runs && shown > 50 * runs as usize,
        "{states} states, {shown} messages in {runs} runs are too few to mean anything"
    );
}

#[test]
fn the_end_of_a_process_takes_nothing_that_was_shown() {
    for durability in [Durability::Commit, Durability::Interval] {
        let shown: usize = (0..20 * scale())
            .map(|round| run(with_durability(seed_or(950) + round, durability), None).1)
            .sum();
        assert!(shown > 1_000, "{shown} messages");
    }
}
