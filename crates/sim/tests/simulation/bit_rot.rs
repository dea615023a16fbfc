//! Damage to data on disk is reported with its place, or it cuts off an unconfirmed last write; it never
//! yields a wrong value.

use std::{path::PathBuf, sync::Arc};

use env::{Prng, SimDisk};
use lsn::Lsn;
use recovery::recover::RecoverError;
use sim::{
    Command, Content, Recovered, WorkloadOptions, World, WorldOptions, content_of, recover, rounds, seed_or,
};
use storage::Error;

use crate::states::{new_disk, oracle_for, seeded, start};

const STEPS: usize = 500;
/// The number of damaged disks per test.
const DAMAGES: u64 = 4000;
const DIR: &str = "/data";
const BLOCK_BYTES: u64 = 4096;
/// The number of used bytes in a segment header.
const SEGMENT_HEADER_USED_BYTES: u64 = 48;
/// The number of used bytes in the control file.
const CONTROL_BYTES: u64 = 64;

/// A sound disk and its expected content.
struct Sound {
    options: WorldOptions,
    world: World,
    /// The content of the newest snapshot and the log after it.
    newest: Content,
    /// The expected content before the last batch.
    before_last: Content,
    /// The last batch, if nothing after it confirms it: the log was not closed, so damage there looks like a
    /// torn tail.
    unvouched: Option<(Lsn, Lsn)>,
    start: Lsn,
    end: Lsn,
}

/// The expected outcome of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The server does not start, and says why.
    Refused,
    /// The last batch is cut off.
    Cut,
    /// The damage hit no used data.
    Harmless,
}

/// Runs a server on a sound disk; `closes` says whether it closes its log. With FLUSHALLs in the workload,
/// the log does not start at the beginning of its first segment.
fn sound(seed: u64, closes: bool, global_permille: u64) -> Sound {
    let workload = WorkloadOptions { global_permille, ..WorkloadOptions::default() };
    let options = WorldOptions { workload, ..seeded(seed) };
    let started = start(options, new_disk(seed), oracle_for(&options));
    let mut world = started.ok().expect("a sound disk starts");
    world.run(STEPS).expect("the replies are right");
    world.drain().expect("a sound server answers everybody");
    let (before_last, last_start) = (world.oracle.content().clone(), world.log.durable_lsn());
    world
        .send(0, vec![Command::Set { key: b"last".to_vec(), value: b"of all".to_vec(), px_ms: None }])
        .expect("OK");
    world.drain().expect("a sound server answers everybody");
    let mut unvouched = Some((last_start, world.log.durable_lsn()));
    if closes {
        world.log.close().expect("a sound disk closes");
        unvouched = None;
    }
    let (start, end) = (world.log.start_lsn(), world.log.durable_lsn());
    Sound { options, newest: world.oracle.content().clone(), before_last, unvouched, start, end, world }
}

impl Sound {
    /// A random range within one block, and the expected outcome of damage there.
    fn place(&self, prng: &mut Prng) -> (PathBuf, u64, u64, Fate) {
        let segment_bytes = self.options.segment_bytes;
        let path = |start: Lsn| PathBuf::from(format!("{DIR}/log-{:016x}.seg", start.get()));
        match prng.below(20) {
            0 => (PathBuf::from(format!("{DIR}/control")), 0, CONTROL_BYTES, Fate::Refused),
            1 => {
                let first = self.start.align_down(segment_bytes).get() / segment_bytes;
                let last = (self.end.get() - 1) / segment_bytes;
                let start = Lsn::new((first + prng.below(last + 1 - first)) * segment_bytes);
                (path(start), 0, SEGMENT_HEADER_USED_BYTES, Fate::Refused)
            }
            _ => {
                let first = self.start.align_down(segment_bytes).get() / BLOCK_BYTES;
                // Includes a few blocks beyond the end of the log.
                let blocks = self.end.get() / BLOCK_BYTES - first + 4;
                let mut block = Lsn::new((first + prng.below(blocks)) * BLOCK_BYTES);
                if let Some((start, _)) = self.unvouched.filter(|_| prng.chance(20)) {
                    block = start;
                }
                let start = block.align_down(segment_bytes);
                (path(start), BLOCK_BYTES + block.bytes_since(start), BLOCK_BYTES, self.fate(block))
            }
        }
    }

    fn fate(&self, block: Lsn) -> Fate {
        match self.unvouched {
            _ if block < self.start || block >= self.end => Fate::Harmless,
            Some((start, end)) if block >= start && block < end => Fate::Cut,
            _ => Fate::Refused,
        }
    }

    fn expect(&self, disk: &Arc<SimDisk>, fate: Fate, place: &str) {
        let found = recover(disk.clone(), &self.options, &self.world.clock);
        match (fate, found) {
            (Fate::Refused, Err(error)) => assert_names_the_place(&error, place),
            (Fate::Cut, Ok(Recovered { keyspace, .. })) => {
                assert!(
                    content_of(&keyspace) == self.before_last,
                    "{place}: not the state before the last batch"
                );
            }
            (Fate::Harmless, Ok(Recovered { keyspace, .. })) => {
                assert!(content_of(&keyspace) == self.newest, "{place}: not the newest state");
            }
            (fate, found) => panic!(
                "{place}: {fate:?} expected, found {:?}",
                found.map(|_| "a server").map_err(|e| e.to_string())
            ),
        }
    }
}

fn assert_names_the_place(error: &RecoverError, place: &str) {
    let file = match error {
        RecoverError::Storage(Error::Corrupt(damage)) => damage.file_name(),
        RecoverError::Storage(Error::Inconsistent { path, .. }) => path.display().to_string(),
        other => panic!("{place}: reported as {other}"),
    };
    assert!(error.to_string().contains(&file) && !file.is_empty(), "{place}: {error}");
}

fn rot(closes: bool) {
    let sound = sound(seed_or(600), closes, 10);
    let mut prng = Prng::new(sound.options.seed);
    let mut fates = [0; 3];
    for number in rounds(DAMAGES) {
        let (path, from, bytes, fate) = sound.place(&mut prng);
        let disk = sound.world.disk.clone_state();
        let mut bits = std::collections::BTreeSet::new();
        (0..=prng.below(8)).for_each(|_| _ = bits.insert(prng.below(bytes * 8)));
        for bit in &bits {
            disk.corrupt(&path, from + bit / 8, 1 << (bit % 8)).expect("the place exists");
        }
        fates[fate as usize] += 1;
        sound.expect(&disk, fate, &format!("#{number}: {} from {from}, bits {bits:?}", path.display()));
    }
    println!("{} refused, {} cut, {} harmless", fates[0], fates[1], fates[2]);
    assert!(fates[0] > 0 && fates[2] > 0 && (closes || fates[1] > 0));
}

#[test]
fn every_flipped_bit_after_a_crash_is_found_or_cut_with_the_last_write() {
    rot(false);
}

#[test]
fn every_flipped_bit_after_an_orderly_stop_is_found() {
    rot(true);
}

#[test]
fn a_missing_file_is_found() {
    let sound = sound(seed_or(601), false, 0);
    let disk = &sound.world.disk;
    let needed_from = sound.start.align_down(sound.options.segment_bytes);
    let names = env::Disk::list(&**disk, DIR.as_ref()).expect("the directory is there");
    let mut removed = 0;
    for name in names {
        let start = name
            .strip_prefix("log-")
            .and_then(|it| u64::from_str_radix(it.trim_end_matches(".seg"), 16).ok());
        // A spare segment without data can be recreated.
        if start.is_some_and(|start| Lsn::new(start) < needed_from || Lsn::new(start) >= sound.end) {
            continue;
        }
        let state = disk.clone_state();
        env::Disk::remove(&*state, format!("{DIR}/{name}").as_ref()).expect("the file is there");
        sound.expect(&state, Fate::Refused, &format!("without {name}"));
        removed += 1;
    }
    assert!(removed >= 3, "the control file and two segments at least");
}
