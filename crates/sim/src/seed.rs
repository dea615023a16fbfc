//! The seed and the size of a simulation, from the environment: they make failures reproducible and soak
//! tests long. Random numbers come from `env::Prng`.

/// The environment variable with the seed to reproduce.
pub const SEED_VARIABLE: &str = "SHEAF_SIM_SEED";
/// The environment variable that multiplies the number of simulated states.
pub const SCALE_VARIABLE: &str = "SHEAF_SIM_SCALE";

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
