//! Environment variables of settings: their names, and those that look like one but are none.

use super::{OPTIONS, nearest};

const PREFIX: &str = "SHEAF_";
/// The variable of the configuration file, which is no setting.
const CONFIG: &str = "SHEAF_CONFIG";

/// The name of the environment variable for a setting.
pub fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// A warning for each of these variables whose name resembles that of a setting: a mistyped password must not
/// be ignored silently.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known: Vec<String> =
        OPTIONS.iter().map(|option| variable(option.name)).chain([CONFIG.into()]).collect();
    let unknown = names.filter(|name| name.starts_with(PREFIX) && !known.contains(name));
    let warning = |name: String| match nearest(&name, known.iter()) {
        Some(nearest) => format!("{name} is no setting; did you mean {nearest}?"),
        None => format!("{name} is no setting; `sheaf serve --help` lists all"),
    };
    unknown.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_variables_are_told_with_the_nearest_name() {
        let names = ["SHEAF_PROT", "SHEAF_PORT", "SHEAF_CONFIG", "PATH", "SHEAF_PASSWORD"];
        assert_eq!(
            unknown_variables(names.into_iter().map(String::from)),
            [
                "SHEAF_PROT is no setting; did you mean SHEAF_PORT?",
                "SHEAF_PASSWORD is no setting; `sheaf serve --help` lists all",
            ]
        );
    }
}
