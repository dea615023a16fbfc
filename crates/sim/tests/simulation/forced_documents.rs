//! Forced recovery with document databases: a confirmation that is interrupted anywhere is none or whole, for
//! documents as for keys.

use std::{path::Path, sync::Arc};

use documents::Documents;
use env::{
    Disk, Prng, SimClock, SimDisk,
    sim::{CrashMode, FaultPlan},
};
use recovery::recover::Mode;
use sim::{
    DocumentContent, DocumentWorld, Recovered, WorldOptions, confirm, documents_of, recover_documents,
    recover_documents_by, rounds_at_least, seed_or, spread_at_least,
};

use crate::{
    flipped_bits::DIR,
    states::{new_disk, seeded},
};

const LIVES: u64 = 9;
/// The minimum number of damaged lives: one for each kind of damage.
const LIVES_MIN: u64 = 3;
const STEPS: usize = 150;
/// The number of steps that fill a segment.
const STEPS_OF_SEGMENTS: usize = 500;
/// The maximum number of flips until the server refuses one.
const FLIPS_MAX: u64 = 20;
const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    /// Bits in a segment of the log.
    Log,
    /// The files of documents are gone, and the log has only the newer changes.
    NoDocuments,
    /// The last segment of the log is gone; only the saved documents show that the segment existed.
    LastSegment,
}

/// A stopped server with document databases, damaged.
struct Damaged {
    options: WorldOptions,
    clock: Arc<SimClock>,
    disk: Arc<SimDisk>,
}

impl Damaged {
    /// Runs a server and damages its disk; `None` if there is nothing to damage.
    fn new(seed: u64, damage: Damage) -> Option<Damaged> {
        let options = WorldOptions { clients: 5, ..seeded(seed) };
        let (disk, clock) = (new_disk(seed), Arc::new(SimClock::new(1_700_000_000_000)));
        let mut world =
            DocumentWorld::start(options, disk.clone(), clock.clone()).expect("a sound disk starts");
        let steps = if damage == Damage::LastSegment { STEPS_OF_SEGMENTS } else { STEPS };
        let run = |world: &mut DocumentWorld| {
            world.run(steps).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        };
        run(&mut world);
        world.snapshot().expect("a sound disk");
        run(&mut world);
        match damage {
            Damage::LastSegment => world.save_all().expect("a sound disk"),
            _ => world.close().expect("a sound disk closes"),
        }
        let log_bytes = world.log_bytes();
        drop(world);
        let damaged = Damaged { options, clock, disk };
        match damage {
            Damage::Log => damaged.with_flipped_bit(log_bytes),
            Damage::NoDocuments => {
                let dir = documents::directory(Path::new(DIR));
                for name in damaged.disk.list(&dir).expect("documents were saved") {
                    damaged.disk.remove(&dir.join(name)).expect("a file");
                }
                damaged.disk.sync_dir(&dir).expect("a sound disk");
                Some(damaged)
            }
            Damage::LastSegment => {
                let mut segments = damaged.segments();
                // The spare segments after the end of the log are empty.
                while let Some(name) = segments.pop() {
                    damaged.disk.remove(&Path::new(DIR).join(name)).expect("a file");
                    damaged.disk.sync_dir(Path::new(DIR)).expect("a sound disk");
                    if damaged.recover(&damaged.disk).is_err() {
                        return Some(damaged);
                    }
                }
                None
            }
        }
    }

    fn segments(&self) -> Vec<String> {
        let mut names = self.disk.list(Path::new(DIR)).expect("the directory is there");
        names.retain(|name| name.ends_with(".seg"));
        names.sort_unstable();
        names
    }

    /// Flips a bit of the log, whose start was not cut and whose end is at `log_bytes`. `None` if the server
    /// refuses none of [`FLIPS_MAX`] such disks.
    fn with_flipped_bit(self, log_bytes: u64) -> Option<Damaged> {
        let (mut prng, segments) = (Prng::new(self.options.seed), self.segments());
        let flipped = (0..FLIPS_MAX).map(|_| {
            let disk = self.disk.clone_state();
            let at = prng.below(log_bytes);
            let path = Path::new(DIR).join(&segments[(at / self.options.segment_bytes) as usize]);
            let offset = BLOCK_BYTES + at % self.options.segment_bytes;
            disk.corrupt(&path, offset, 1 << prng.below(8)).expect("the place exists");
            disk
        });
        let disk = flipped.into_iter().find(|disk| self.recover(disk).is_err())?;
        Some(Damaged { disk, ..self })
    }

    /// The documents that an ordinary start shows.
    fn recover(&self, disk: &Arc<SimDisk>) -> Result<DocumentContent, String> {
        let recovered = recover_documents(disk.clone_state(), &self.options, &self.clock);
        recovered.map(|(_, documents)| content(&documents)).map_err(|error| error.to_string())
    }

    /// Forces a recovery with a different seed each time: the log that it begins gets another id.
    fn force(&self, disk: &Arc<SimDisk>, attempt: u64) -> (Recovered, Arc<Documents>) {
        let options = WorldOptions { seed: !self.options.seed ^ attempt << 32, ..self.options };
        recover_documents_by(Mode::Force, disk.clone(), &options, &self.clock)
            .unwrap_or_else(|error| panic!("seed {}: {error}", self.options.seed))
    }
}

fn content(documents: &Documents) -> DocumentContent {
    documents_of(documents).expect("readable")
}

#[test]
fn a_confirmation_with_documents_that_is_interrupted_anywhere_is_none_or_whole() {
    let (mut states, mut refused, mut whole, mut kinds) = (0, 0, 0, Vec::new());
    let mut seed = seed_or(890);
    for round in rounds_at_least(LIVES_MIN, LIVES) {
        let damage = [Damage::Log, Damage::NoDocuments, Damage::LastSegment][round as usize % 3];
        let damaged = loop {
            seed += 1;
            if let Some(damaged) = Damaged::new(seed, damage) {
                break damaged;
            }
        };
        kinds.push(damage);
        let place = format!("seed {seed}, {damage:?}");
        let refusal = damaged.recover(&damaged.disk).expect_err("it is damaged");
        let left = {
            let disk = damaged.disk.clone_state();
            let (recovered, documents) = damaged.force(&disk, 0);
            assert!(recovered.log.is_frozen(), "{place}: {refusal}");
            assert!(recovered.log.appended_lsn() >= documents.reached(), "{place}: positions come twice");
            assert_eq!(damaged.recover(&disk), Err(refusal), "{place}: only the report was written");
            content(&documents)
        };
        let mut attempts = 0;
        let mut confirmed = |disk: &Arc<SimDisk>, crash_after: Option<u64>| {
            attempts += 1;
            let (recovered, documents) = damaged.force(disk, attempts);
            assert!(content(&documents) == left, "{place}: it is what it was before");
            let before = disk.io_count();
            if let Some(io) = crash_after {
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(before + io), ..FaultPlan::default() });
            }
            let door: Arc<dyn Disk> = disk.clone();
            let outcome = confirm(&door, &recovered, Some(&documents));
            (outcome, disk.io_count() - before)
        };
        let (outcome, ios) = confirmed(&damaged.disk.clone_state(), None);
        outcome.expect("a sound disk");
        for io in spread_at_least(8, ios) {
            let stopped = damaged.disk.clone_state();
            // Cleaning up afterwards may fail.
            let _ = confirmed(&stopped, Some(io));
            for mixture in 0..2 {
                let found = stopped.clone_state();
                found.reseed(seed ^ mixture << 32 ^ io);
                found.crash(if mixture == 0 { CrashMode::LoseAll } else { CrashMode::Random });
                states += 1;
                match damaged.recover(&found) {
                    Ok(shown) => {
                        whole += 1;
                        assert!(shown == left, "{place}, I/O {io}: another state");
                    }
                    Err(_) => {
                        refused += 1;
                        let (outcome, _) = confirmed(&found, None);
                        outcome.unwrap_or_else(|error| panic!("{place}, I/O {io}: {error}"));
                        let shown = damaged.recover(&found);
                        assert!(shown.as_ref() == Ok(&left), "{place}, I/O {io}: {:?}", shown.err());
                    }
                }
            }
        }
    }
    println!("{states} crash states of {kinds:?}: {refused} refused and confirmed again, {whole} whole");
    assert!(refused > 5 && whole > 0);
}
