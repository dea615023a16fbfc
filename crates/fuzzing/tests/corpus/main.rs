//! Every fuzz target over its corpus, and over a bounded number of inputs made from it.
//!
//! A failure names its input: `SHEAF_FUZZ_INPUT=<hex> cargo test -p fuzzing --test corpus NAME` repeats this
//! input alone. `SHEAF_FUZZ_SEED=<n>` makes other inputs, `SHEAF_FUZZ_SCALE=<n>` n times as many in n times
//! the time. If an input ends the process, as by an overflow of the stack, no input is named: the seed
//! repeats the run.

#![forbid(unsafe_code)]

mod mutation;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::{env, fs};

use ::env::{Clock, RealClock};
use fuzzing::{Outcome, TARGETS, Target};
use prng::Prng;

/// The maximum number of made inputs per target. Only fast targets reach it within their time.
const INPUTS: u64 = 5000;
/// The minimum number of made inputs per target, however slow the machine is.
const INPUTS_MIN: u64 = 50;
/// Time for the made inputs of all targets together, in microseconds.
const BUDGET_US: u64 = 10_000_000;
/// Bytes of the corpus, at most: it is part of every checkout.
const CORPUS_BYTES_MAX: usize = 200_000;
const SEED: u64 = 1;

macro_rules! tests {
    ($($name:ident,)+) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), fuzzing::$name);
        })+
    };
}
fuzzing::with_targets!(tests);

fn run(name: &str, target: Target) {
    let seed = number("SHEAF_FUZZ_SEED").unwrap_or(SEED);
    if let Ok(input) = env::var("SHEAF_FUZZ_INPUT") {
        let input = hex::decode(input).expect("SHEAF_FUZZ_INPUT is hexadecimal");
        println!("{name}: {:?}", outcome(name, target, &input, seed));
        return;
    }
    let stored = stored(name);
    for (file, input) in stored.iter().map(|(file, input)| (file.as_str(), input)) {
        assert_eq!(outcome(name, target, input, seed), expected(file), "corpus/{name}/{file}");
    }
    for (file, input) in fuzzing::seeds(name) {
        assert_eq!(outcome(name, target, &input, seed), expected(file), "seed {file} of {name}");
    }

    let corpus: Vec<Vec<u8>> = stored.into_iter().map(|(_, input)| input).collect();
    let scale = number("SHEAF_FUZZ_SCALE").unwrap_or(1).max(1);
    let budget_us = scale * BUDGET_US / TARGETS.len() as u64;
    let (mut random, begun_us) = (Prng::new(seed), RealClock.monotonic_us());
    let (mut made, mut accepted) = (0, 0);
    while made < scale * INPUTS && (made < INPUTS_MIN || RealClock.monotonic_us() - begun_us < budget_us) {
        let input = mutation::input(&mut random, &corpus);
        accepted += u64::from(outcome(name, target, &input, seed) == Outcome::Accepted);
        made += 1;
    }
    let ms = (RealClock.monotonic_us() - begun_us) / 1000;
    println!("{name}: corpus of {}, {made} inputs made, {accepted} of them accepted, {ms} ms", corpus.len());
}

fn outcome(name: &str, target: Target, input: &[u8], seed: u64) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| target(input))).unwrap_or_else(|panic| {
        println!(
            "{name} fails with seed {seed}; its input alone:\n\
             SHEAF_FUZZ_INPUT={} cargo test -p fuzzing --test corpus {name}",
            hex::encode(input)
        );
        resume_unwind(panic)
    })
}

/// The outcome that an input of this name must have.
fn expected(file: &str) -> Outcome {
    if file.starts_with("refused-") { Outcome::Refused } else { Outcome::Accepted }
}

fn directory(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The names of the entries of a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("names are text");
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("it can be listed"))).collect();
    names.sort_unstable();
    names
}

/// The stored inputs of a target with the names of their files, in order.
fn stored(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = directory("corpus").join(target);
    let read = |file: String| {
        let input = fs::read(dir.join(&file)).expect("it can be read");
        (file, input)
    };
    names(&dir).into_iter().map(read).collect()
}

/// A number from the environment. Panics on other text, so that a typing error does not pass as another run.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[test]
fn every_target_has_accepted_and_refused_inputs() {
    assert_eq!(names(&directory("corpus")), TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut bytes = 0;
    for (name, _) in TARGETS {
        let files = stored(name);
        bytes += files.iter().map(|(_, input)| input.len()).sum::<usize>();
        for outcome in [Outcome::Accepted, Outcome::Refused] {
            assert!(files.iter().any(|(file, _)| expected(file) == outcome), "{name}: none is {outcome:?}");
        }
        let seeds = fuzzing::seeds(name);
        let distinct: std::collections::BTreeSet<&str> = seeds.iter().map(|(seed, _)| *seed).collect();
        assert_eq!(distinct.len(), seeds.len(), "{name}: two seeds of one name");
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn libfuzzer_runs_every_target() {
    let shells = names(&directory("../../fuzz/fuzz_targets"));
    assert_eq!(shells, TARGETS.iter().map(|(name, _)| format!("{name}.rs")).collect::<Vec<_>>());
    let package = fs::read_to_string(directory("../../fuzz/Cargo.toml")).expect("it can be read");
    for (name, _) in TARGETS {
        let shell = directory("../../fuzz/fuzz_targets").join(format!("{name}.rs"));
        let shell = fs::read_to_string(shell).expect("it can be read");
        assert!(shell.contains(&format!("fuzzing::{name}(input)")), "{name}");
        assert!(package.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
