//! Values and pipelines of unusual size: records in many parts, values larger than a segment, thousands of
//! parked replies.

use env::sim::FaultPlan;
use sim::{Command, Survival, WorkloadOptions, World, WorldOptions, scale, seed_or};

use crate::{
    crash::sweep,
    states::{end, live, new_disk, oracle_for, seeded, start},
};

fn world(options: WorldOptions) -> World {
    start(options, new_disk(options.seed), oracle_for(&options)).ok().expect("a sound disk starts")
}

fn set(key: &str, bytes: usize) -> Command {
    let value = (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect();
    Command::Set { key: key.into(), value, px_ms: None }
}

/// Sets the values on one client while another writes small ones; all must get replies and survive.
fn assert_survives(options: WorldOptions, sizes: &[usize]) {
    let mut world = world(options);
    for (index, &bytes) in sizes.iter().enumerate() {
        world.send(1, vec![set("small", 10)]).expect("OK");
        world
            .send(0, vec![set(&format!("large-{index}"), bytes), Command::Get(b"small".to_vec())])
            .expect("OK");
        world.drain().unwrap_or_else(|violation| panic!("{bytes} bytes: {violation}"));
    }
    world.run(100).expect("the replies are right");
    world.drain().expect("everybody is answered");
    let executed = world.oracle.executed();
    let ended = end(world, options);
    assert_eq!(ended.oracle.floor(ended.power_cut), executed);
    ended.judge_power_cuts(4).unwrap_or_else(|lost| panic!("{lost}"));
}

#[test]
fn records_of_many_parts_survive() {
    let options = WorldOptions { segment_bytes: 16 << 20, ring_bytes: 4 << 20, ..seeded(seed_or(700)) };
    assert_survives(options, &[(1 << 20) - 100, 1 << 20, (1 << 20) + 1, 5_000_000]);
}

#[test]
fn values_larger_than_the_ring_are_written_through_it() {
    assert_survives(seeded(seed_or(701)), &[60_000, 70_000, 130_000, 200_000]);
}

#[test]
fn values_larger_than_two_segments_are_written() {
    assert_survives(seeded(seed_or(702)), &[300_000, 600_000, 2_000_000]);
}

#[test]
fn transactions_larger_than_two_segments_survive_their_own_flushall() {
    let options = seeded(seed_or(707));
    let mut world = world(options);
    world.send(1, vec![set("small", 10)]).expect("OK");
    // The log may be cut before the FLUSHALL, but not within its record, whose first parts reach the disk
    // early.
    let transaction = vec![
        Command::Multi,
        set("before", 400_000),
        Command::FlushAll,
        set("after", 500_000),
        Command::Rename(b"after".to_vec(), b"renamed".to_vec()),
        Command::Exec,
    ];
    world.send(0, transaction).expect("OK");
    world.drain().expect("everybody is answered");
    world.cut();
    let ended = end(world, options);
    ended.judge_power_cuts(4).unwrap_or_else(|lost| panic!("{lost}"));
}

#[test]
fn large_values_survive_under_the_last_of_many_names() {
    let name = |number: usize| format!("name-{}", number % 7).into_bytes();
    for appliers in [0, 3] {
        let options = WorldOptions { appliers, ..seeded(seed_or(708)) };
        let mut world = world(options);
        for round in 0..60 {
            let (from, to, last) = (name(round), name(round * 3 + 1), name(round * 5 + 2));
            let value =
                |bytes| Command::Set { key: from.clone(), value: vec![round as u8; bytes], px_ms: None };
            let renames = vec![
                value(20_000 + 100 * round),
                Command::Multi,
                Command::Rename(from.clone(), to.clone()),
                value(10),
                Command::Append(to.clone(), b"after".to_vec()),
                Command::Exec,
            ];
            world.send(0, renames).expect("OK");
            // The other client moves the value that the first one has moved, or is about to move.
            world.send(1, vec![Command::Rename(to, last.clone()), Command::Get(last)]).expect("OK");
            if round % 4 == 3 {
                world.drain().expect("everybody is answered");
            }
        }
        let ended = end(world, options);
        ended.judge_power_cuts(12).unwrap_or_else(|lost| panic!("{lost}"));
    }
}

#[test]
fn power_cut_within_a_record_of_many_parts() {
    let workload =
        WorkloadOptions { large_percent: 12, large_bytes_max: 150_000, ..WorkloadOptions::default() };
    for round in 0..scale() {
        let options = WorldOptions { workload, ..seeded(seed_or(703) + round) };
        let states = sweep(options, 120, 4).unwrap_or_else(|lost| panic!("{lost}"));
        println!("{states} crash states with large values");
    }
}

#[test]
fn ten_thousand_parked_replies_leave_with_one_flush() {
    const COMMANDS: usize = 10_000;
    let options = WorldOptions { segment_bytes: 16 << 20, ring_bytes: 4 << 20, ..seeded(seed_or(704)) };
    let mut world = world(options);
    let commands = (0..COMMANDS).map(|number| set(&format!("key-{}", number % 50), 10)).collect();
    world.send(0, commands).expect("OK");
    // The commands take several rounds; nothing is flushed meanwhile.
    while !world.clients[0].unexecuted.is_empty() {
        world.resume(0).expect("OK");
    }
    world.deliver_all().expect("OK");
    assert_eq!(world.clients[0].undelivered(), COMMANDS, "nothing may leave before it is durable");
    assert_eq!(world.oracle.acknowledged(), 0);
    let ios = world.disk.io_count();
    world.flush();
    assert_eq!(world.disk.io_count(), ios + 1, "one write for all");
    world.deliver_all().expect("OK");
    assert_eq!(world.clients[0].undelivered(), 0);
    assert_eq!(world.oracle.acknowledged(), COMMANDS);
    let ended = end(world, options);
    ended.judge_power_cuts(2).unwrap_or_else(|lost| panic!("{lost}"));
}

#[test]
fn writes_of_two_workers_share_one_flush() {
    let options = seeded(seed_or(705));
    let mut world = world(options);
    for client in 0..4 {
        world.send(client, vec![set(&format!("key-{client}"), 10), Command::DbSize]).expect("OK");
    }
    assert_ne!(world.clients[0].worker, world.clients[1].worker);
    let ios = world.disk.io_count();
    world.flush();
    assert_eq!(world.disk.io_count(), ios + 1, "one write for all");
    assert_eq!(world.notices(), 0);
    world.deliver_all().expect("OK");
    assert_eq!(world.notices(), 4, "each write is published");
    assert!(world.clients.iter().all(sim::SimClient::is_done));
    assert!(matches!(end(world, options).power_cut, Survival::Durable(_)));
}

#[test]
fn a_log_that_does_not_merge_keeps_its_promises() {
    let options = WorldOptions { merges: false, ..seeded(seed_or(706)) };
    let merging = live(seeded(options.seed), 100, FaultPlan::default()).disk.io_count();
    let alone = live(options, 100, FaultPlan::default()).disk.io_count();
    assert!(alone > merging, "{alone} I/Os without merging, {merging} with");
    sweep(options, 100, 2).unwrap_or_else(|lost| panic!("{lost}"));
}
