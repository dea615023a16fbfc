//! Seed and size of a simulation, from the environment: what makes a failure repeatable and a soak long.
//!
//! What it is not: a source of randomness; see `env::Prng`.

/// The environment variable that repeats one seed.
pub const SEED_VARIABLE: &str = "SHEAF_SIM_SEED";
/// The environment variable that multiplies the number of states.
pub const SCALE_VARIABLE: &str = "SHEAF_SIM_SCALE";

/// The seed asked for through the environment, or `default`.
///
/// # Panics
/// If the variable is set and is no number: a typing error must not pass as a run of another seed.
pub fn seed_or(default: u64) -> u64 {
    number(SEED_VARIABLE).unwrap_or(default)
}

/// By how much sizes are multiplied; 1 unless the environment asks for more.
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
