//! The I/Os of a workload, or as many of them as the budget allows, fail in several ways: once, or
//! permanently.

use env::sim::{CrashMode, FaultKind, FaultPlan, IoEvent, IoKind};
use sim::{Survival, WorkloadOptions, World, WorldOptions, scale, seed_or, spread};
use storage::{Admission, Durability};

use crate::states::{Ended, end, live, new_disk, oracle_for, start, with_durability};

const STEPS: usize = 220;
/// The number of steps that clients continue after the log has failed.
const STEPS_AFTER: usize = 60;

#[test]
fn no_io_error_is_taken_for_success() {
    let (mut poisoned, mut read_only, mut refused_to_start) = (0, 0, 0);
    let durabilities = [Durability::Strict, Durability::Interval];
    for (round, durability) in (0..scale()).flat_map(|round| durabilities.map(|it| (round, it))) {
        // Large values and FLUSHALLs, so that segments are created and recycled and the control file is
        // replaced.
        let workload =
            WorkloadOptions { large_percent: 25, global_permille: 12, ..WorkloadOptions::default() };
        let options = WorldOptions { workload, ..with_durability(seed_or(500) + round, durability) };
        for io in spread(live(options, STEPS, FaultPlan::default()).disk.io_count()) {
            for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
                for sticky in [false, true] {
                    let plan = FaultPlan { fail_io: Some((io, kind)), sticky, ..FaultPlan::default() };
                    match fail_one(options, plan) {
                        Outcome::Poisoned => poisoned += 1,
                        Outcome::ReadOnly => read_only += 1,
                        Outcome::NotStarted => refused_to_start += 1,
                        Outcome::Unharmed => {}
                    }
                }
            }
        }
    }
    println!("{poisoned} poisoned, {read_only} read-only, {refused_to_start} not started");
    assert!(poisoned > 0 && read_only > 0 && refused_to_start > 0, "a kind of failure was never met");
}

enum Outcome {
    Poisoned,
    ReadOnly,
    NotStarted,
    Unharmed,
}

fn fail_one(options: WorldOptions, plan: FaultPlan) -> Outcome {
    let place = format!("seed {}, {plan:?}", options.seed);
    let disk = new_disk(options.seed);
    disk.enable_trace();
    disk.set_fault_plan(plan);
    let mut world = match start(options, disk, oracle_for(&options)) {
        Ok(world) => world,
        Err(not_started) => {
            judge_after(&not_started.ended, Survival::Acknowledged, &place);
            return Outcome::NotStarted;
        }
    };
    let started_at = world.disk.io_count();
    for _ in 0..STEPS {
        world.run(1).unwrap_or_else(|violation| panic!("{place}: {violation}"));
        if world.failure().is_some() {
            break;
        }
    }
    let (failed_io, _) = plan.fail_io.expect("something fails");
    let hit = world
        .disk
        .trace()
        .into_iter()
        .find(|event| event.io == failed_io)
        .filter(|_| failed_io >= started_at);
    let hit_log = hit.as_ref().is_some_and(writes_log);
    if hit_log || world.failure().is_some() {
        assert_poisoned(&mut world, &place);
        let ended = end(world, options);
        judge_after(&ended, ended.power_cut, &place);
        return Outcome::Poisoned;
    }
    let read_only = world.oracle.refused() > 0 || world.log.admit(0) == Admission::NoRoom;
    if !plan.sticky {
        // One failure that did not hit a write of the log: the server recovers by itself.
        world.prepare_all();
        world.drain().unwrap_or_else(|violation| panic!("{place}: {violation}"));
        assert_ne!(world.log.admit(0), Admission::NoRoom, "{place}: read-only although there is room again");
    }
    let ended = end(world, options);
    judge_after(&ended, ended.power_cut, &place);
    if read_only { Outcome::ReadOnly } else { Outcome::Unharmed }
}

/// Whether this I/O writes batches, as opposed to creating a segment or a control file.
fn writes_log(event: &IoEvent) -> bool {
    let in_segment = event.path.extension().is_some_and(|extension| extension == "seg");
    in_segment && !matches!(event.kind, IoKind::Rename | IoKind::Remove)
}

/// Checks a poisoned log: nothing more is written or becomes durable, and no write is executed.
fn assert_poisoned(world: &mut World, place: &str) {
    assert!(world.failure().is_some(), "{place}: a failed write of the log was ignored");
    assert_eq!(world.log.admit(0), Admission::Poisoned, "{place}");
    let (durable, ios, executed) = (world.log.durable_lsn(), world.disk.io_count(), world.oracle.executed());
    world.run(STEPS_AFTER).unwrap_or_else(|violation| panic!("{place}: {violation}"));
    assert!(world.log.flush().is_err(), "{place}: flushed again");
    assert_eq!(world.log.durable_lsn(), durable, "{place}: durable after a failure");
    assert_eq!(world.disk.io_count(), ios, "{place}: something was tried again");
    assert_eq!(world.oracle.executed(), executed, "{place}: a write was executed after the log had failed");
    world.fail_all();
}

/// The next server finds everything acknowledged, whether only the process ended or the power failed too.
fn judge_after(ended: &Ended, survival: Survival, place: &str) {
    ended.disk.set_fault_plan(FaultPlan::default());
    let judge = |what: &str, disk| {
        ended.judge(&disk, survival).unwrap_or_else(|violation| panic!("{place}, {what}: {violation}"));
    };
    judge("restart", ended.disk.clone_state());
    judge("power cut", ended.after_power_cut(CrashMode::LoseAll, 1));
    judge("power cut", ended.after_power_cut(CrashMode::Random, ended.options.seed));
}
