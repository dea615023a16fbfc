//! Forced recovery: the remaining data is right, the report names the lost data, and no ordinary start
//! accepts the state before it is confirmed, even if the confirmation is interrupted anywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    path::Path,
    sync::Arc,
};

use env::{
    Access, Disk, Prng, SimDisk,
    sim::{CrashMode, FaultPlan},
};
use keyspace::{Effect, Scope, slot_of};
use lsn::Lsn;
use recovery::recover::Mode;
use serde_json::Value;
use sim::{
    Content, Recovered, WorldOptions, confirm, content_of, recover, recover_by, rounds_at_least, seed_or,
    spread_at_least,
};
use storage::{Admission, LogReader, RecordKind};

use crate::flipped_bits::{DIR, Sound, sound};

const LIVES: u64 = 12;
/// The minimum number of damaged lives, even on the slowest machine: the log of a single life may be too
/// small to lose a record.
const LIVES_MIN: u64 = 3;
const DAMAGES_PER_LIFE: u64 = 50;
const REPORT: &str = "/data/recovery-report.json";

/// The losses in a report.
#[derive(Debug)]
struct Lost {
    lsns: Vec<(Lsn, Lsn)>,
    slots: Vec<RangeInclusive<u64>>,
    places: usize,
}

impl Lost {
    fn read(disk: &SimDisk) -> Option<Lost> {
        let report: Value = serde_json::from_slice(&disk.read_file(Path::new(REPORT)).ok()?).expect("JSON");
        let number = |value: &Value| value.as_u64().expect("a number");
        let pair = |value: &Value| (number(&value[0]), number(&value[1]));
        let array = |value: &Value| value.as_array().expect("an array").clone();
        let places = array(&report["places"]);
        let lsns =
            places.iter().filter(|place| place["what"].as_str().expect("text").starts_with("log record"));
        let lsns = lsns.map(|place| pair(&place["lsns"])).map(|(from, to)| (Lsn::new(from), Lsn::new(to)));
        let slots = array(&report["left_out"]["slots"]).iter().map(pair).map(|(a, b)| a..=b).collect();
        Some(Lost { lsns: lsns.collect(), slots, places: places.len() })
    }

    fn has_slot_of(&self, key: &[u8]) -> bool {
        let slot = slot_of(key).index() as u64;
        self.slots.iter().any(|slots| slots.contains(&slot))
    }

    /// The keys that lost records have changed, and the keys to which such keys were moved.
    fn keys(&self, records: &[(Lsn, Vec<u8>)]) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::<Vec<u8>>::new();
        for (lsn, payload) in records {
            let is_lost = self.lsns.iter().any(|(from, to)| from < lsn && lsn <= to);
            let mut rest = payload.as_slice();
            while let Some(effect) = Effect::decode_next(&mut rest).expect("what was logged decodes") {
                match effect.scope() {
                    Scope::Slot(key) if is_lost => _ = keys.insert(key.to_vec()),
                    Scope::Two(from, to) if is_lost || keys.contains(from) || self.has_slot_of(from) => {
                        keys.extend([from.to_vec(), to.to_vec()]);
                    }
                    Scope::Slot(_) | Scope::Two(..) => {}
                    Scope::Global => panic!("this workload has none"),
                }
            }
        }
        keys
    }
}

/// All records of a sound log.
fn records(sound: &Sound) -> Vec<(Lsn, Vec<u8>)> {
    let mut reader =
        LogReader::open(sound.ended.disk.clone_state(), Path::new(DIR), Access::Read).expect("a sound log");
    let (mut records, mut chains) = (Vec::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    while let Ok(batch) = reader.next_batch().expect("a sound log") {
        for record in batch.records() {
            // A payload in parts, each prefixed with the number of its chain, counts as one record at the
            // last part.
            let (chain, piece) = record.payload.split_at(record.payload.len().min(8));
            match record.kind {
                RecordKind::Whole => records.push((record.lsn, record.payload.to_vec())),
                RecordKind::Part => chains.entry(chain.to_vec()).or_default().extend_from_slice(piece),
                RecordKind::Last => {
                    // If a chain began before the log, its record is in the snapshot.
                    if let Some(mut whole) = chains.remove(chain) {
                        whole.extend_from_slice(piece);
                        records.push((record.lsn, whole));
                    }
                }
                RecordKind::BatchEnd => {}
            }
        }
    }
    records
}

/// Forces a recovery with a different seed each time: the log that it begins gets another id.
fn force(sound: &Sound, disk: &Arc<SimDisk>, attempt: u64) -> Result<Recovered, String> {
    let options = WorldOptions { seed: !sound.ended.options.seed ^ attempt << 32, ..sound.ended.options };
    recover_by(Mode::Force, disk.clone(), &options, &sound.ended.clock).map_err(|error| error.to_string())
}

fn damage(sound: &Sound, prng: &mut Prng) -> Arc<SimDisk> {
    let count = 1 + prng.below(3);
    let places: Vec<_> = (0..count)
        .map(|_| {
            let (_, path, offset, mask) = sound.place(prng);
            (path, offset, mask)
        })
        .collect();
    sound.damaged(&places)
}

fn differing<'a>(a: &'a Content, b: &'a Content) -> impl Iterator<Item = &'a Vec<u8>> {
    a.keys().chain(b.keys()).filter(|key| a.get(*key) != b.get(*key)).map(|(_, key)| key)
}

/// Incarnations that closed their logs. The control file has the clean end of such a log, so damage to the
/// last batch is detected too, and not taken for a torn tail.
fn sounds(seed: u64) -> impl Iterator<Item = Sound> {
    let sounds = (0..).filter_map(move |round| sound(seed + round, true, 0));
    rounds_at_least(LIVES_MIN, LIVES).zip(sounds).map(|(_, sound)| sound)
}

#[test]
fn salvaged_data_is_correct_and_the_report_names_the_losses() {
    let (mut frozen, mut without_loss, mut refused, mut lost_slots, mut lost_records) = (0, 0, 0, 0, 0);
    let mut lives = 0;
    for sound in sounds(seed_or(840)) {
        lives += 1;
        let (seed, records) = (sound.ended.options.seed, records(&sound));
        let mut prng = Prng::new(seed);
        for number in 0..DAMAGES_PER_LIFE {
            let disk = damage(&sound, &mut prng);
            let ordinary = recover(disk.clone_state(), &sound.ended.options, &sound.ended.clock);
            let recovered = match force(&sound, &disk, 0) {
                Ok(recovered) => recovered,
                Err(error) => {
                    refused += 1;
                    assert!(error.contains("restore"), "seed {seed} #{number}: {error}");
                    continue;
                }
            };
            recovered.keyspace.check();
            let content = content_of(&recovered.keyspace);
            let place = format!("seed {seed} #{number}");
            if !recovered.log.is_frozen() {
                assert!(content == sound.newest && Lost::read(&disk).is_none(), "{place}: lost silently");
                assert!(ordinary.is_ok(), "{place}: refused, and forced without a word");
                continue;
            }
            assert_eq!(recovered.log.admit(0), Admission::Frozen);
            let lost = Lost::read(&disk).unwrap_or_else(|| panic!("{place}: no report"));
            assert!(lost.places > 0);
            let keys = lost.keys(&records);
            for key in differing(&content, &sound.newest) {
                assert!(
                    keys.contains(key) || lost.has_slot_of(key),
                    "{place}: {} is not right, and not in {lost:?}",
                    key.escape_ascii()
                );
            }
            frozen += 1;
            lost_slots += u64::from(!lost.slots.is_empty());
            lost_records += u64::from(!lost.lsns.is_empty());
            without_loss += u64::from(content == sound.newest);
            // The disk was not changed, except for the report.
            let again = recover(disk.clone_state(), &sound.ended.options, &sound.ended.clock);
            assert!(ordinary.is_err() && again.is_err(), "{place}: an ordinary start takes it for sound");
            let door: Arc<dyn Disk> = disk.clone();
            confirm(&door, &recovered, None).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!((recovered.log.is_frozen(), Lost::read(&disk).is_none()), (false, true), "{place}");
            assert_ne!(recovered.log.admit(0), Admission::Frozen, "{place}");
            let next = recover(disk, &sound.ended.options, &sound.ended.clock);
            let next = next.unwrap_or_else(|error| panic!("{place}: after the confirmation: {error}"));
            assert!(content_of(&next.keyspace) == content, "{place}: the confirmed state is another");
        }
    }
    println!(
        "{frozen} forced ({without_loss} without loss, {lost_slots} of slots, {lost_records} of records), {refused} refused"
    );
    assert!(frozen > 10 * lives && without_loss > lives && lost_records > lives, "of {lives} lives");
}

#[test]
fn a_confirmation_that_is_interrupted_anywhere_is_none_or_whole() {
    let (mut states, mut refused, mut whole) = (0, 0, 0);
    for sound in sounds(seed_or(870)).take(4) {
        let mut prng = Prng::new(sound.ended.options.seed);
        let (disk, recovered) = loop {
            let disk = damage(&sound, &mut prng);
            match force(&sound, &disk, 0) {
                Ok(recovered) if recovered.log.is_frozen() => break (disk, recovered),
                _ => {}
            }
        };
        let content = content_of(&recovered.keyspace);
        drop(recovered);
        let mut attempts = 0;
        let mut confirmed = |disk: &Arc<SimDisk>, plan: Option<u64>| {
            attempts += 1;
            let recovered = force(&sound, disk, attempts).expect("it was recovered before");
            assert!(content_of(&recovered.keyspace) == content, "it is what it was before");
            let before = disk.io_count();
            if let Some(io) = plan {
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(before + io), ..FaultPlan::default() });
            }
            let door: Arc<dyn Disk> = disk.clone();
            let outcome = confirm(&door, &recovered, None);
            (outcome, disk.io_count() - before)
        };
        let (outcome, ios) = confirmed(&disk.clone_state(), None);
        outcome.expect("a sound disk");
        for io in spread_at_least(8, ios) {
            let stopped = disk.clone_state();
            // Cleaning up afterwards may fail.
            let _ = confirmed(&stopped, Some(io));
            for mixture in 0..3 {
                let found = stopped.clone_state();
                found.reseed(sound.ended.options.seed ^ mixture << 32 ^ io);
                found.crash(if mixture == 0 { CrashMode::LoseAll } else { CrashMode::Random });
                states += 1;
                if let Ok(recovered) = recover(found.clone_state(), &sound.ended.options, &sound.ended.clock)
                {
                    whole += 1;
                    assert!(content_of(&recovered.keyspace) == content, "I/O {io}: another state");
                    continue;
                }
                refused += 1;
                let (outcome, _) = confirmed(&found, None);
                outcome.unwrap_or_else(|error| panic!("I/O {io}: {error}"));
                let next = recover(found, &sound.ended.options, &sound.ended.clock);
                let next = next.unwrap_or_else(|error| panic!("I/O {io}: {error}"));
                assert!(content_of(&next.keyspace) == content, "I/O {io}: another state");
            }
        }
    }
    println!("{states} crash states: {refused} refused and confirmed again, {whole} whole");
    assert!(refused > 5 && whole > 0);
}
