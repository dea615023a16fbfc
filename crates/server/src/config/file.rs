//! Files with settings: flat TOML tables, one line per setting. The configuration file is the administrator's. Without one, the
//! data directory has a file of what the server was told to keep over HTTP, and nothing else.

use std::{io, path::Path};

use super::{ConfigError, OPTIONS, Settings};

const KEPT_HEADER: &str =
    "# What this server was told to keep (/_node/_local/_config). Flags and variables override it.\n";

/// Reads (name, value) pairs. Values may be strings, numbers or booleans.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let refused = |reason: String| ConfigError::File { path: path.display().to_string(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| refused(error.to_string()))?;
    let pair = |(name, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(number) => Ok((name, number.to_string())),
        toml::Value::Boolean(switch) => Ok((name, if switch { "yes" } else { "no" }.into())),
        other => {
            Err(refused(format!("'{name}' must be a text, number or boolean, not a {}", other.type_str())))
        }
    };
    table.into_iter().map(pair).collect()
}

/// Writes every setting with its documentation; those with their default value are commented out.
pub(super) fn render(settings: &Settings) -> String {
    let defaults = Settings::default();
    let mut out = String::from("# Settings of sheaf. Lines that start with # show defaults.\n");
    for ((option, value), (_, default)) in settings.iter().zip(defaults.iter()) {
        let comment = if value == default { "# " } else { "" };
        out += &format!("\n# {}\n{comment}{} = {}\n", option.doc, option.name, toml::Value::String(value));
    }
    debug_assert_eq!(out.matches(" = ").count(), OPTIONS.len());
    out
}

/// Keeps one value in a file, or forgets it.
///
/// # Errors
/// What failed; the file is then as it was.
pub(super) fn keep(path: &Path, name: &str, value: Option<&str>) -> Result<(), String> {
    let mut table: toml::Table = match std::fs::read_to_string(path) {
        Ok(text) => text.parse().map_err(|error: toml::de::Error| error.to_string())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => toml::Table::new(),
        Err(error) => return Err(error.to_string()),
    };
    match value {
        Some(value) => _ = table.insert(name.into(), value.into()),
        None => _ = table.remove(name),
    }
    let text = format!("{KEPT_HEADER}{table}");
    env::crashsafe::write_atomically(&env::RealDisk, path, text.as_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_until_it_is_forgotten() {
        let path = std::env::temp_dir().join(format!("sheaf-kept-{}.toml", std::process::id()));
        keep(&path, "cors", Some("yes")).unwrap();
        keep(&path, "cors-origins", Some("https://a.example, \"quoted\"")).unwrap();
        keep(&path, "cors", None).unwrap();
        let kept = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(kept, Ok(vec![("cors-origins".into(), "https://a.example, \"quoted\"".into())]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut settings = Settings::default();
        settings.set("maxmemory", "123mb").unwrap();
        settings.set("requirepass", "with \"quotes\" and \\").unwrap();
        let path = std::env::temp_dir().join(format!("sheaf-config-{}.toml", std::process::id()));
        std::fs::write(&path, render(&settings)).unwrap();
        let read = Settings::load(Some(&path), &[]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, Ok(settings));
    }

    #[test]
    fn a_typo_in_the_file_is_an_error_that_names_it() {
        let path = std::env::temp_dir().join(format!("sheaf-config-typo-{}.toml", std::process::id()));
        std::fs::write(&path, "prot = 6380\n").unwrap();
        let error = Settings::load(Some(&path), &[]).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.to_string(), "unknown setting 'prot'; did you mean 'port'?");
    }
}
