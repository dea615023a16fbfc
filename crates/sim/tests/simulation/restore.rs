//! Point-in-time recovery: for any record of a random history, the restored state is that of the model after
//! this record.

use std::path::Path;

use backup::restore::{RestoreError, Target, restore};
use env::{Access, Prng, SimEntropy};
use lsn::Lsn;
use sim::{WorkloadOptions, WorldOptions, content_of, place, rounds, seed_or};
use storage::{Durability, LogReader, RecordKind};

use crate::states::{Ended, end, new_disk, oracle_for, start, with_durability};

const STEPS: usize = 700;
/// The number of records to restore to, per history.
const CHOSEN: usize = 6;
const RESTORED: &str = "/restored";

/// A history that ends with everything on disk.
fn history(seed: u64) -> Ended {
    let workload = WorkloadOptions { global_permille: 4, ..WorkloadOptions::default() };
    // Some histories have one snapshot, others many, of which two remain.
    let snapshots_permille = [2, 10, 200][seed as usize % 3];
    let durability = [Durability::Strict, Durability::None][seed as usize % 2];
    let options = WorldOptions { workload, snapshots_permille, ..with_durability(seed, durability) };
    let mut world = start(options, new_disk(seed), oracle_for(&options))
        .unwrap_or_else(|not_started| panic!("seed {seed}: {}", not_started.error));
    world.run(STEPS).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    world.drain().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    world.prepare_all();
    world.log.flush_all().unwrap();
    end(world, options)
}

/// The ends of the records of a log.
fn records(ended: &Ended) -> Vec<Lsn> {
    let mut reader = LogReader::open(ended.disk.clone(), Path::new("/data"), Access::Read).unwrap();
    let mut lsns = Vec::new();
    while let Ok(batch) = reader.next_batch().unwrap() {
        lsns.extend(
            batch.records().filter(|record| record.kind != RecordKind::Part).map(|record| record.lsn),
        );
    }
    lsns
}

#[test]
fn any_record_can_be_restored_to_and_gives_the_state_of_the_model_after_it() {
    let (mut histories, mut restored, mut refused) = (0, 0, 0);
    for seed in rounds(40).map(|round| seed_or(900) + round) {
        histories += 1;
        let ended = history(seed);
        let lsns = records(&ended);
        if lsns.is_empty() {
            continue;
        }
        let mut prng = Prng::new(seed);
        for _ in 0..CHOSEN {
            let lsn = lsns[prng.below(lsns.len() as u64) as usize];
            match restore_to(&ended, Target::Lsn(lsn)) {
                Ok(reached) => {
                    assert_eq!(reached, lsn, "seed {seed}");
                    restored += 1;
                }
                Err(RestoreError::OutOfRange { range, .. }) => {
                    assert!(
                        lsn < range.first_lsn && range.last_lsn >= lsns[lsns.len() - 1],
                        "seed {seed}, {lsn}"
                    );
                    refused += 1;
                }
                Err(error) => panic!("seed {seed}, lsn {lsn}: {error}"),
            }
        }
        restore_to(&ended, Target::End).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    println!("{restored} restored, {refused} refused, of {histories} histories");
    assert!(restored >= 2 * histories, "{restored} restored of {histories} histories");
}

/// Restores, starts the restored server, and compares it with the model. Returns the position that was
/// reached.
fn restore_to(ended: &Ended, target: Target) -> Result<Lsn, RestoreError> {
    let (disk, options) = (ended.disk.clone_state(), &ended.options);
    let (seed, entropy) = (options.seed, SimEntropy::new(options.seed));
    let appliers = [0, 2][seed as usize % 2];
    let options = WorldOptions { appliers, ..*options };
    let source = place(disk.clone(), None, &options, &ended.clock, &entropy);
    let dir = Path::new(RESTORED);
    let reached = restore(&source, None, dir, target, &|_, _, _| {})?.reached.lsn;
    let new = place(disk, Some(dir), &options, &ended.clock, &entropy);
    let (keyspace, _) = new.load(&|_, _, _| {}).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    keyspace.check();
    let judged = ended.oracle.judge_restored(&content_of(&keyspace), reached);
    judged.unwrap_or_else(|violation| panic!("seed {seed}, {target}, lsn {reached}: {violation}"));
    Ok(reached)
}
