//! A power cut during the recovery from a power cut, at every I/O of the recovery.

use env::sim::{CrashMode, FaultPlan, IoEvent, IoKind};
use sim::{recover, scale, seed_or, spread};
use storage::Durability;

use crate::states::{Ended, live, with_durability};

const STEPS: usize = 250;
/// The number of first crashes per durability.
const FIRST_CRASHES: u64 = 40;
/// The number of mixtures of data that survives the second crash, per I/O of the recovery.
const MIXTURES: u64 = 3;

#[test]
fn power_cut_at_every_io_of_recovery_changes_nothing() {
    let (mut crashes, mut states) = (0, 0);
    for durability in [Durability::Strict, Durability::None] {
        let options = with_durability(seed_or(200), durability);
        let total = live(options, STEPS, FaultPlan::default()).disk.io_count();
        for first in spread(FIRST_CRASHES * scale()) {
            crashes += 1;
            let io = total * first / (FIRST_CRASHES * scale());
            let plan = FaultPlan { crash_at_io: Some(io), ..FaultPlan::default() };
            states += crash_recovery(&live(options, STEPS, plan), first);
        }
    }
    assert!(states >= 20 * crashes, "{states} nested crash states are too few to mean anything");
    println!("{states} nested crash states");
}

pub(crate) fn crash_recovery(ended: &Ended, seed: u64) -> u64 {
    let found = ended.after_power_cut(CrashMode::Random, seed);
    let before = found.io_count();
    let sound = found.clone_state();
    sound.enable_trace();
    recover(sound.clone(), &ended.options, &ended.clock)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let recovery_ios = sound.io_count() - before;
    // Removing obsolete files may fail: the next start does it.
    let tidies = |event: &IoEvent| event.kind == IoKind::Remove || event.path.ends_with("snapshots");
    let tidying: Vec<u64> = sound.trace().iter().filter(|it| tidies(it)).map(|it| it.io - before).collect();
    let mut states = 0;
    for io in 0..recovery_ios {
        let stopped = found.clone_state();
        stopped.set_fault_plan(FaultPlan { crash_at_io: Some(before + io), ..FaultPlan::default() });
        assert!(
            recover(stopped.clone(), &ended.options, &ended.clock).is_err() || tidying.contains(&io),
            "I/O {io} of recovery was ignored"
        );
        for mixture in 0..MIXTURES {
            let disk = stopped.clone_state();
            disk.reseed(seed ^ mixture << 32 ^ io);
            disk.crash(if mixture == 0 { CrashMode::LoseAll } else { CrashMode::Random });
            let judged = ended.judge(&disk, ended.power_cut);
            judged.unwrap_or_else(|violation| {
                panic!("first crash {seed}, recovery stopped at {io}: {violation}")
            });
            states += 1;
        }
    }
    states
}
