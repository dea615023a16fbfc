//! The seed and the size of a simulation, from the environment: they make failures reproducible, soak tests
//! long, and `./test` short on any machine. Random numbers come from [`crate::Prng`].

use std::time::{Duration, Instant};

/// The environment variable with the seed to reproduce.
pub const SEED_VARIABLE: &str = "SHEAF_SIM_SEED";
/// The environment variable that multiplies the number of rounds.
pub const SCALE_VARIABLE: &str = "SHEAF_SIM_SCALE";
/// The environment variable with the seconds that one sweep may take. `./test` sets it.
pub const BUDGET_VARIABLE: &str = "SHEAF_SIM_BUDGET_S";
/// A sweep whose budget is spent still makes at least one in this many of its rounds: fewer would test
/// little.
const ROUNDS_SHARE_MIN: u64 = 40;
/// With a budget, one in this many of the random outcomes of each crash is looked at.
const OUTCOMES_SHARE: u64 = 3;

/// The numbers of the rounds of a sweep: the range `0..full * scale()`. The rounds end early once the seconds
/// of [`BUDGET_VARIABLE`] are over, but not before one in forty of them was made.
///
/// # Panics
/// As [`seed_or`].
pub fn rounds(full: u64) -> impl Iterator<Item = u64> {
    rounds_at_least(0, full)
}

/// As [`rounds`], but at least `fewest` of the rounds come, however slow the machine is.
pub fn rounds_at_least(fewest: u64, full: u64) -> impl Iterator<Item = u64> {
    within_budget(fewest, full * scale())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the budget is of the machine's time, not of the simulated one"
)]
fn within_budget(fewest: u64, wanted: u64) -> impl Iterator<Item = u64> {
    let started = Instant::now();
    let budget = number(BUDGET_VARIABLE).map_or(Duration::MAX, Duration::from_secs);
    let fewest = fewest.max(wanted.div_ceil(ROUNDS_SHARE_MIN));
    (0..wanted).take_while(move |&round| round < fewest || started.elapsed() < budget)
}

/// The numbers below `count`, each once, in an order that is spread over the whole range from the beginning,
/// because the budget may end the iteration early. It ends, and panics, as [`rounds`] does.
///
/// The step is about `count` divided by the golden ratio, which leaves the most even gaps (Knuth, TAOCP 3,
/// 6.4).
pub fn spread(count: u64) -> impl Iterator<Item = u64> {
    spread_at_least(0, count)
}

/// As [`spread`]; at least `fewest` of the numbers come, however slow the machine is, and all of them with
/// `u64::MAX`.
pub fn spread_at_least(fewest: u64, count: u64) -> impl Iterator<Item = u64> {
    let golden = (count as f64 / 1.618_033_988_749_895) as u64;
    let step = (golden.max(1)..).find(|&step| gcd(step, count.max(1)) == 1).expect("a prime is among them");
    within_budget(fewest, count)
        .map(move |round| (u128::from(round) * u128::from(step) % u128::from(count)) as u64)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The number of random outcomes to look at for one crash: `full`, or a third of `full` within a budget. With
/// a budget, another crash tests more than another outcome of the same crash.
pub fn outcomes(full: u64) -> u64 {
    match number(BUDGET_VARIABLE) {
        None => full,
        Some(_) => full.div_ceil(OUTCOMES_SHARE),
    }
}

/// The seed from the environment, or `default`.
///
/// # Panics
/// If the variable is set but not a number: a typing error must not pass as a run of another seed.
pub fn seed_or(default: u64) -> u64 {
    number(SEED_VARIABLE).unwrap_or(default)
}

/// The factor for the number of rounds; 1 unless the environment gives a larger one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_numbers_come_once_and_are_spread_from_the_beginning() {
        for count in [0, 1, 2, 3, 10, 97, 120, 1000] {
            let mut numbers: Vec<u64> = spread_at_least(u64::MAX, count).collect();
            let beginning: Vec<u64> = {
                let mut first = numbers[..numbers.len() / 10].to_vec();
                first.sort_unstable();
                first
            };
            let gap_max = beginning.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(gap_max <= 50, "{count}: {gap_max} are left out in a row");
            numbers.sort_unstable();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>());
        }
    }
}
