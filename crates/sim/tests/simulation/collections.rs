//! Collections of thousands of elements: structures that split and merge, and records in many parts when one
//! is copied.

use env::sim::FaultPlan;
use sim::{Content, Stored, WorkloadOptions, WorldOptions, scale, seed_or};

use crate::states::{live, seeded};

const STEPS: usize = 250;
const SEEDS: u64 = 4;
const CUTS: u64 = 8;
const MIXTURES: u64 = 2;
/// More elements than one segment of any structure holds.
const LARGE: usize = 600;

/// The number of large collections of each type.
fn large(content: &Content) -> [usize; 4] {
    let mut counts = [0; 4];
    for entry in content.values() {
        let (index, len) = match &entry.value {
            Stored::String(_) => continue,
            Stored::List(list) => (0, list.len()),
            Stored::Set(set) => (1, set.len()),
            Stored::Zset(zset) => (2, zset.len()),
            Stored::Hash(hash) => (3, hash.len()),
        };
        counts[index] += usize::from(len > LARGE);
    }
    counts
}

#[test]
fn power_cut_among_large_collections() {
    let workload = WorkloadOptions {
        pipeline_max: 4,
        value_bytes_max: 20,
        large_percent: 0,
        global_permille: 0,
        collection_percent: 95,
        members: 4000,
        batch_max: 400,
        ..WorkloadOptions::default()
    };
    let (mut states, mut seen) = (0, [0; 4]);
    for round in 0..SEEDS * scale() {
        let options = WorldOptions { workload, segment_bytes: 1 << 20, ..seeded(seed_or(950) + round) };
        let total = live(options, STEPS, FaultPlan::default()).disk.io_count();
        for cut in 1..=CUTS {
            let plan = FaultPlan { crash_at_io: Some(total * cut / CUTS), ..FaultPlan::default() };
            let ended = live(options, STEPS, plan);
            states += ended.judge_power_cuts(MIXTURES).unwrap_or_else(|lost| panic!("{lost}"));
            for (seen, large) in seen.iter_mut().zip(large(ended.oracle.content())) {
                *seen += large;
            }
        }
    }
    println!("{states} crash states with {seen:?} large collections");
    assert!(seen.iter().all(|count| *count > 0), "{seen:?} large collections prove nothing");
}
