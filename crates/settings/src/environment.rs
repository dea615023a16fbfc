//! Environment variables of settings: their names, and a warning about variables with similar names that set
//! nothing.

use super::{OPTIONS, instead_of, nearest};

const PREFIX: &str = "SHEAF_";
/// The flag of the configuration file, which is no setting, but has a variable as well.
const CONFIG_NAME: &str = "config";

/// The name of the environment variable for a setting.
pub fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Variables of tests, the simulation and fuzzing; a `*` at the end stands for any rest.
const OF_TESTS: &[&str] =
    &["SHEAF_BINARY", "SHEAF_EARLIER_BINARY", "SHEAF_FUZZ_*", "SHEAF_SIM_*", "SHEAF_TEST_*"];

fn is_of_tests(name: &str) -> bool {
    OF_TESTS
        .iter()
        .any(|known| known.strip_suffix('*').map_or(*known == name, |start| name.starts_with(start)))
}

/// A warning about variables that are named like a setting but are none: a mistyped password must not be
/// ignored silently. `None` if there are no such variables.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Option<String> {
    let names_here = || OPTIONS.iter().map(|option| option.name).chain([CONFIG_NAME]);
    let known: Vec<String> = names_here().map(variable).collect();
    let is_unknown = |name: &String| name.starts_with(PREFIX) && !known.contains(name) && !is_of_tests(name);
    let mut unknown: Vec<String> = names.filter(is_unknown).collect();
    // The environment has no order, so the names are sorted.
    unknown.sort_unstable();
    let told = |name: &String| {
        let setting = name[PREFIX.len()..].replace('_', "-");
        match (instead_of(&setting), nearest(&setting.to_lowercase(), names_here()).map(variable)) {
            (Some(answer), _) => format!("{name} is no setting: {answer}"),
            (None, Some(nearest)) => format!("{name} is no setting; did you mean {nearest}?"),
            (None, None) => format!("{name} is no setting; `sheaf --help` lists all"),
        }
    };
    (!unknown.is_empty()).then(|| unknown.iter().map(told).collect::<Vec<_>>().join(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_variables_are_told_with_the_nearest_name() {
        let told = |names: &[&str]| unknown_variables(names.iter().map(ToString::to_string));
        assert_eq!(
            told(&["SHEAF_PROT", "SHEAF_PORT", "SHEAF_CONFIG", "PATH", "SHEAF_PASSWORD", "SHEAF_BINARY"])
                .unwrap(),
            "SHEAF_PASSWORD is no setting; `sheaf --help` lists all. SHEAF_PROT is no setting; did you mean SHEAF_PORT?"
        );
        assert!(told(&["SHEAF_IO_THREADS"]).unwrap().ends_with("there is one per core"));
    }

    #[test]
    fn variables_of_tests_and_known_ones_are_not_told() {
        let names =
            ["SHEAF_SIM_SEED", "SHEAF_FUZZ_INPUT", "SHEAF_TEST_SERVER", "SHEAF_EARLIER_BINARY", "SHEAF_PORT"];
        assert_eq!(unknown_variables(names.into_iter().map(String::from)), None);
        assert!(unknown_variables(["SHEAF_BINARY_2".to_owned()].into_iter()).is_some());
    }
}
