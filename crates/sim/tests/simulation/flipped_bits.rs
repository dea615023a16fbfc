//! One flipped bit anywhere in a directory with snapshots, in files of every kind: it is detected, or it cuts
//! off an unconfirmed last write, or it is harmless. It never yields a wrong value.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, Prng, SimDisk};
use lsn::Lsn;
use sim::{Command, Content, Recovered, WorkloadOptions, WorldOptions, content_of, recover, rounds, seed_or};
use storage::{Durability, snapshot};

use crate::states::{Ended, end, new_disk, oracle_for, start, with_durability};

const STEPS: usize = 700;
const LIVES: u64 = 16;
const FLIPS_PER_LIFE: u64 = 1350;
pub(crate) const DIR: &str = "/data";
const BLOCK_BYTES: u64 = 4096;

/// An incarnation with snapshots, and the expected content of its disk.
pub(crate) struct Sound {
    pub(crate) ended: Ended,
    pub(crate) newest: Content,
    /// The content before the last batch and the range of that batch, if nothing after it confirms it.
    unvouched: Option<(Content, Lsn, Lsn)>,
    /// The start and the end of the log.
    pub(crate) log: (Lsn, Lsn),
}

/// Runs an incarnation; `None` if it has no snapshot from which its log can be replayed.
pub(crate) fn sound(seed: u64, closes: bool, global_permille: u64) -> Option<Sound> {
    let workload = WorkloadOptions { global_permille, ..WorkloadOptions::default() };
    let options =
        WorldOptions { workload, snapshots_permille: 60, ..with_durability(seed, Durability::Strict) };
    let mut world = start(options, new_disk(seed), oracle_for(&options)).ok().expect("a sound disk starts");
    world.run(STEPS).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    world.drain().expect("everybody is answered");
    let (before_last, last_start) = (world.oracle.content().clone(), world.log.durable_lsn());
    let last = Command::Set { key: b"last".to_vec(), value: b"of all".to_vec(), px_ms: None };
    world.send(0, vec![last]).expect("OK");
    world.drain().expect("everybody is answered");
    let unvouched = (!closes).then(|| (before_last, last_start, world.log.durable_lsn()));
    if closes {
        world.log.close().expect("a sound disk closes");
    }
    let log = (world.log.start_lsn(), world.log.durable_lsn());
    let begins = snapshot::list_begins(&*world.disk, Path::new(DIR)).expect("the directory is there");
    begins.first().filter(|&&begin| begin >= log.0)?;
    let newest = world.oracle.content().clone();
    Some(Sound { ended: end(world, options), newest, unvouched, log })
}

impl Sound {
    /// A random bit of a file of a random kind: (kind, path, offset, mask).
    pub(crate) fn place(&self, prng: &mut Prng) -> (&'static str, PathBuf, u64, u8) {
        let disk = &self.ended.disk;
        let mut kinds = BTreeMap::<&str, Vec<PathBuf>>::new();
        for dir in [PathBuf::from(DIR), snapshot::directory(Path::new(DIR))] {
            for name in disk.list(&dir).expect("the directory is there") {
                let kind = match name.rsplit_once('.') {
                    Some((_, "seg")) => "log segment",
                    Some((_, "part")) => "part of a snapshot",
                    Some((_, "manifest")) => "manifest",
                    None if name == "control" => "control file",
                    _ => "other",
                };
                kinds.entry(kind).or_default().push(dir.join(name));
            }
        }
        let (kind, paths) =
            kinds.iter().nth(prng.below(kinds.len() as u64) as usize).expect("there are files");
        let path = paths[prng.below(paths.len() as u64) as usize].clone();
        let length = disk.open(&path, Access::Read).and_then(|file| file.len()).expect("the file is there");
        let offset = match segment_start(&path) {
            // Mostly within the log, sometimes in the header or beyond the end.
            Some(start) if start < self.log.1 && prng.chance(90) => {
                let used = self.log.1.bytes_since(start).min(length - BLOCK_BYTES);
                BLOCK_BYTES + prng.below(used)
            }
            Some(_) if prng.chance(50) => prng.below(BLOCK_BYTES),
            _ => prng.below(length),
        };
        (kind, path, offset, 1 << prng.below(8))
    }

    /// The content before the last batch, if the place lies in that batch and nothing confirms it.
    fn is_unvouched(&self, path: &Path, offset: u64) -> Option<&Content> {
        let (before, from, to) = self.unvouched.as_ref()?;
        let position = segment_start(path)?.advance(offset.checked_sub(BLOCK_BYTES)?);
        (*from <= position && position < *to).then_some(before)
    }

    pub(crate) fn damaged(&self, places: &[(PathBuf, u64, u8)]) -> Arc<SimDisk> {
        let disk = self.ended.disk.clone_state();
        for (path, offset, mask) in places {
            disk.corrupt(path, *offset, *mask).expect("the place exists");
        }
        disk
    }
}

fn segment_start(path: &Path) -> Option<Lsn> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    u64::from_str_radix(digits, 16).ok().map(Lsn::new)
}

#[test]
fn no_flipped_bit_makes_a_wrong_value() {
    // (refused, cut, harmless) by kind.
    let mut fates = BTreeMap::<&str, [u64; 3]>::new();
    let mut seed = seed_or(820);
    let mut lives = 0;
    for life in rounds(LIVES) {
        lives += 1;
        let sound = loop {
            seed += 1;
            if let Some(sound) = sound(seed, life % 2 == 0, 6) {
                break sound;
            }
        };
        let mut prng = Prng::new(seed);
        for number in 0..FLIPS_PER_LIFE {
            let (kind, path, offset, mask) = sound.place(&mut prng);
            let disk = sound.damaged(&[(path.clone(), offset, mask)]);
            let place = format!("seed {seed} #{number}: {} at {offset}, {mask:#x}", path.display());
            let fate = match recover(disk, &sound.ended.options, &sound.ended.clock) {
                Err(error) => {
                    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
                    // A record that began in the previous segment is reported at its beginning.
                    let text = error.to_string();
                    let is_named = text.contains(if kind == "log segment" { "log-" } else { name });
                    // Recovery finds the footer before the snapshot by its position alone, so a damaged one
                    // is reported as missing.
                    let is_base =
                        kind == "log segment" && text.contains("begins where no batch of the log ends");
                    assert!(is_named || is_base, "{place}: {error}");
                    0
                }
                Ok(Recovered { keyspace, .. }) => {
                    let content = content_of(&keyspace);
                    match sound.is_unvouched(&path, offset) {
                        Some(before) if content == *before => 1,
                        _ => {
                            assert!(content == sound.newest, "{place}: a wrong value");
                            2
                        }
                    }
                }
            };
            fates.entry(kind).or_default()[fate] += 1;
        }
    }
    println!("{lives} lives, (refused, cut, harmless): {fates:?}");
    for kind in ["log segment", "part of a snapshot", "manifest", "control file"] {
        assert!(fates.get(kind).is_some_and(|fates| fates[0] > 6 * lives), "{kind}: {fates:?}");
    }
    // Only a flip within the very last batch is cut off.
    assert!(lives < LIVES / 2 || fates["log segment"][1] > 0, "{fates:?}");
}
