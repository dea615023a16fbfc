//! The seed and the size of a simulation, from the environment: they make failures reproducible, soak tests
//! long, and the gate short on any machine. Random numbers come from [`crate::Prng`].

use std::time::{Duration, Instant};

/// The environment variable with the seed to reproduce.
pub const SEED_VARIABLE: &str = "SHEAF_SIM_SEED";
/// The environment variable that multiplies the number of simulated states.
pub const SCALE_VARIABLE: &str = "SHEAF_SIM_SCALE";
/// The environment variable with the seconds that one sweep may take. `./test` sets it.
pub const BUDGET_VARIABLE: &str = "SHEAF_SIM_BUDGET_S";
/// A sweep whose budget is spent still makes this share of its rounds, so that it means something.
const ROUNDS_SHARE_MIN: u64 = 20;

/// The rounds of a sweep: `full` times the scale, from 0 on. With a budget of time they end early, but never
/// before a twentieth of them is done.
#[expect(
    clippy::disallowed_methods,
    reason = "the budget is of the machine's time, not of the simulated one"
)]
pub fn rounds(full: u64) -> impl Iterator<Item = u64> {
    let (started, wanted) = (Instant::now(), full * scale());
    let budget = number(BUDGET_VARIABLE).map_or(Duration::MAX, Duration::from_secs);
    let fewest = wanted.div_ceil(ROUNDS_SHARE_MIN);
    (0..wanted).take_while(move |&round| round < fewest || started.elapsed() < budget)
}

/// The seed from the environment, or `default`.
///
/// # Panics
/// If the variable is set but not a number: a typing error must not pass as a run of another seed.
pub fn seed_or(default: u64) -> u64 {
    number(SEED_VARIABLE).unwrap_or(default)
}

/// The factor for sizes; 1 unless the environment gives a larger one.
///
/// # Panics
/// As [`seed_or`].
pub fn scale() -> u64 {
    number(SCALE_VARIABLE).unwrap_or(1).max(1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable}={text} is no number"),
    }
}
