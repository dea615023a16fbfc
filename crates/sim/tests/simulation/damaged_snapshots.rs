//! Damaged snapshots: the server offers an older one instead, loses nothing, and never uses it silently.

use std::{path::Path, sync::Arc};

use env::{Disk, Prng, SimDisk};
use lsn::Lsn;
use recovery::recover::{Mode, RecoverError};
use sim::{WorkloadOptions, WorldOptions, content_of, recover, recover_by, rounds, seed_or};
use storage::{Durability, snapshot};

use crate::states::{Ended, end, new_disk, oracle_for, start, with_durability};

const STEPS: usize = 900;
const DIR: &str = "/data";

/// An incarnation with at least one snapshot from which its log can be replayed; the log is closed at the end
/// if `closes`.
pub(crate) fn life_with_snapshots(seed: u64, global_permille: u64, closes: bool) -> Option<Ended> {
    let workload = WorkloadOptions { global_permille, ..WorkloadOptions::default() };
    let options =
        WorldOptions { workload, snapshots_permille: 60, ..with_durability(seed, Durability::Strict) };
    let mut world = start(options, new_disk(seed), oracle_for(&options)).ok().expect("a sound disk starts");
    world.run(STEPS).expect("the replies are right");
    world.drain().expect("everybody is answered");
    if closes {
        world.log.close().expect("a sound disk closes");
    }
    let log_start = world.log.start_lsn();
    let begins = snapshot::list_begins(&*world.disk, Path::new(DIR)).expect("the directory is there");
    begins.first().is_some_and(|&begin| begin >= log_start).then(|| end(world, options))
}

/// The positions of the snapshots on the disk.
fn begins(disk: &SimDisk) -> Vec<Lsn> {
    snapshot::list_begins(disk, Path::new(DIR)).expect("the directory is there")
}

/// Flips a bit in a file of the snapshot at this position.
fn damage(disk: &SimDisk, begin: Lsn, prng: &mut Prng) {
    let snapshots = Path::new(DIR).join("snapshots");
    let names = disk.list(&snapshots).expect("the directory is there");
    let prefix = format!("snap-{:016x}.", begin.get());
    let names: Vec<&String> = names.iter().filter(|name| name.starts_with(&prefix)).collect();
    let path = snapshots.join(names[prng.below(names.len() as u64) as usize]);
    let bytes = disk.open(&path, env::Access::Read).and_then(|file| file.len()).expect("the file is there");
    disk.corrupt(&path, prng.below(bytes), 1 << prng.below(8)).expect("the place exists");
}

fn refusal(ended: &Ended, disk: &Arc<SimDisk>) -> String {
    match recover(disk.clone(), &ended.options, &ended.clock) {
        Err(error @ RecoverError::Snapshot { .. }) => error.to_string(),
        other => panic!("{:?}", other.map(|_| "a server").map_err(|error| error.to_string())),
    }
}

/// The position that the refusal offers for recovery.
fn offered(refusal: &str) -> Option<Lsn> {
    let (_, rest) = refusal.split_once("--recover-from ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Lsn::new)
}

#[test]
fn an_older_snapshot_is_offered_and_loses_nothing() {
    let (mut lives, mut offers, mut offers_of_the_log, mut refusals) = (0, 0, 0, 0);
    for round in rounds(60) {
        lives += 1;
        let Some(ended) = life_with_snapshots(seed_or(800) + round, 6, false) else { continue };
        let intact = recover(ended.disk.clone_state(), &ended.options, &ended.clock).expect("a sound disk");
        let expected = content_of(&intact.keyspace);
        let mut prng = Prng::new(ended.options.seed);
        let disk = ended.disk.clone_state();
        // Damage them from the newest to the oldest: each time the remaining ones are offered.
        let mut usable = begins(&ended.disk);
        usable.retain(|&begin| begin >= intact.log.start_lsn());
        let newest = usable[0];
        for &begin in &usable {
            damage(&disk, begin, &mut prng);
            // The offered snapshot is checked only superficially: it may prove damaged too, which leads to
            // another offer.
            let mut base = offered(&refusal(&ended, &disk));
            let (chosen, started) = loop {
                let Some(from) = base else { break (disk.clone_state(), None) };
                assert!(from <= newest);
                let chosen = disk.clone_state();
                match recover_by(Mode::From(from), chosen.clone(), &ended.options, &ended.clock) {
                    Ok(started) => break (chosen, Some(started)),
                    Err(error) => base = offered(&error.to_string()),
                }
            };
            let Some(started) = started else {
                refusals += 1;
                assert_eq!(usable.iter().min(), Some(&begin), "all are damaged");
                continue;
            };
            let base = base.expect("it was started from");
            assert!(content_of(&started.keyspace) == expected, "seed {}", ended.options.seed);
            offers += 1;
            offers_of_the_log += u64::from(!begins(&disk).contains(&base));
            assert!(begins(&chosen).iter().all(|&begin| begin <= base), "what was passed over is set aside");
            let again = recover(chosen, &ended.options, &ended.clock);
            let again = again.unwrap_or_else(|error| panic!("seed {}: {error}", ended.options.seed));
            assert!(content_of(&again.keyspace) == expected, "seed {}", ended.options.seed);
        }
    }
    println!("{offers} offers, {offers_of_the_log} of them of the log alone, {refusals} without");
    assert!(3 * offers > lives, "{offers} offers in {lives} lives");
}

#[test]
fn recovery_from_a_position_without_a_snapshot_is_refused() {
    let ended =
        (0..).find_map(|round| life_with_snapshots(seed_or(800) + round, 6, true)).expect("a snapshot");
    let refused =
        recover_by(Mode::From(Lsn::new(4097)), ended.disk.clone_state(), &ended.options, &ended.clock);
    let Err(error @ RecoverError::NoBase { .. }) = refused else { panic!("4097 is no boundary") };
    let newest = begins(&ended.disk)[0].to_string();
    assert!(error.to_string().contains(&newest), "{error}");
}
