//! Settings files: flat TOML tables, one line per setting.
//!
//! The module reads them with the line number of each value, and changes values in place: comments, order and
//! types are preserved. It knows neither the meaning of a value nor the precedence of files (see `lasting`).
//!
//! Invariants
//! - After any crash a reader sees the complete old or the complete new file; a change reported as written is
//!   on disk.
//! - No message shows a line of a file: it may contain a password.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use toml_edit::{Document, DocumentMut, Item, Value};

use super::{ConfigError, Kind, Setting, find};

/// A new file may hold passwords: only its owner may read it.
const NEW_FILE_MODE: u32 = 0o600;

/// A value in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: String,
    /// The line number, from 1.
    pub(super) number: usize,
}

/// Reads the values of a file, in order. They may be texts, numbers or booleans.
///
/// # Errors
/// If the file cannot be read, or is no such table. The error names the file, and the line if known.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::File { path: path.display().to_string(), reason: error.to_string() })?;
    let at = |span: Option<std::ops::Range<usize>>, reason: String| {
        let number = span.map_or(1, |span| line_at(&text, span.start));
        ConfigError::Syntax { reason }.at(place(path, number))
    };
    let document =
        Document::parse(text.as_str()).map_err(|error| at(error.span(), error.message().into()))?;
    let table = document.as_table();
    let line = |(name, item): (&str, &Item)| {
        let span = table.key(name).and_then(toml_edit::Key::span).or(item.span());
        let value = match item.as_value() {
            Some(Value::String(text)) => text.value().clone(),
            Some(Value::Integer(number)) => number.value().to_string(),
            Some(Value::Boolean(switch)) => if *switch.value() { "yes" } else { "no" }.into(),
            _ => {
                let kind = item.type_name();
                return Err(at(span, format!("'{name}' must be a text, number or boolean, not a {kind}")));
            }
        };
        let number = span.map_or(1, |span| line_at(&text, span.start));
        Ok(Line { name: name.into(), value, number })
    };
    table.iter().map(line).collect()
}

/// The position of a line, for messages.
pub(super) fn place(path: &Path, number: usize) -> String {
    format!("{}, line {number}", path.display())
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Sets values in a file, and removes settings whose value is `None`. The file begins with `header`.
///
/// # Errors
/// The text for a client; the file is then unchanged.
pub(super) fn change(
    path: &Path,
    header: &str,
    changes: &[(&'static Setting, Option<String>)],
) -> Result<(), String> {
    let failed = |reason: String| format!("cannot write {}: {reason}", path.display());
    // If the path is a symbolic link, its target is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let (text, mode) = match fs::read_to_string(path) {
        Ok(text) => {
            let mode = fs::metadata(path).map_err(|error| failed(error.to_string()))?.permissions().mode();
            (text, mode & 0o7777)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), NEW_FILE_MODE),
        Err(error) => return Err(failed(error.to_string())),
    };
    // It stays at the top, whichever line is added or removed behind it.
    let changed = changed(&text.replacen(header, "", 1), changes).map_err(failed)?;
    let changed = format!("{header}{changed}");
    env::crashsafe::write_atomically_with_mode(path, changed.as_bytes(), mode)
        .map_err(|error| failed(error.to_string()))
}

/// The text of a file after setting these values.
fn changed(text: &str, changes: &[(&'static Setting, Option<String>)]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let number = error.span().map_or(1, |span| line_at(text, span.start));
        format!("line {number}: {}", error.message())
    })?;
    for (setting, value) in changes {
        let names = document.iter().map(|(name, _)| name);
        let is_it = |name: &&str| find(name).is_ok_and(|(_, known)| known.key == setting.key);
        let name = names.into_iter().find(is_it).unwrap_or(setting.name).to_owned();
        let Some(value) = value else {
            document.remove(&name);
            continue;
        };
        match document.get_mut(&name).and_then(Item::as_value_mut) {
            Some(old) => {
                let mut new = like(old, value);
                *new.decor_mut() = old.decor().clone();
                *old = new;
            }
            None => _ = document.insert(&name, Item::Value(typed(setting, value))),
        }
    }
    Ok(document.to_string())
}

/// A value of the same type as the old one, if possible.
fn like(old: &Value, text: &str) -> Value {
    let same = match old {
        Value::Integer(_) => text.parse().ok().map(|number: i64| number.into()),
        Value::Boolean(_) if text == "yes" => Some(true.into()),
        Value::Boolean(_) if text == "no" => Some(false.into()),
        _ => None,
    };
    same.unwrap_or_else(|| text.into())
}

/// A value of the type usual for this setting.
fn typed(setting: &Setting, text: &str) -> Value {
    let number = match setting.kind {
        Kind::Integer { .. } | Kind::Signed { .. } | Kind::Bytes { .. } | Kind::BytesPowerOfTwo { .. } => {
            text.parse::<i64>().ok()
        }
        _ => None,
    };
    number.map_or_else(|| text.into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, OPTIONS};

    fn change_to(key: Key, value: &str) -> (&'static Setting, Option<String>) {
        (&OPTIONS[key as usize], Some(value.into()))
    }

    #[test]
    fn values_change_where_they_stand_and_all_else_stays() {
        let before = include_str!("testing/before.toml");
        let changes = [
            change_to(Key::Maxmemory, "2147483648"),
            change_to(Key::Timeout, "30"),
            change_to(Key::ProtectedMode, "no"),
            change_to(Key::MinReplicasToWrite, "2"),
            change_to(Key::Requirepass, "with \"quotes\" and \\"),
            change_to(Key::SlowlogMaxLen, "64"),
            (&OPTIONS[Key::MaxmemorySamples as usize], None),
        ];
        assert_eq!(changed(before, &changes).unwrap(), include_str!("testing/after.toml"));
        assert_eq!(changed(before, &[]).unwrap(), before);
    }

    #[test]
    fn what_is_written_is_read_back_and_belongs_to_its_owner() {
        let path = std::env::temp_dir().join(format!("sheaf-settings-{}.toml", std::process::id()));
        change(&path, "# made\n", &[change_to(Key::Requirepass, "secret"), change_to(Key::Timeout, "5")])
            .unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        change(&path, "# made\n", &[(&OPTIONS[Key::Requirepass as usize], None)]).unwrap();
        let kept_mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let (text, lines) = (fs::read_to_string(&path), read(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!((mode, kept_mode), (0o600, 0o644));
        assert_eq!(text.unwrap(), "# made\ntimeout = 5\n");
        let [line] = &lines.unwrap()[..] else { panic!("one line") };
        assert_eq!((line.name.as_str(), line.value.as_str()), ("timeout", "5"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_its_text() {
        for (text, line, word) in [
            ("# a\n\nport = [1]\n", 3, "array"),
            ("timeout = 1\nrequirepass = \"geheim\n", 2, ""),
            ("a = 1\na = 2\n", 2, "duplicate"),
            ("[section]\nport = 1\n", 1, "table"),
        ] {
            let path =
                std::env::temp_dir().join(format!("sheaf-wrong-{}-{line}-{word}.toml", std::process::id()));
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            fs::remove_file(&path).unwrap();
            assert!(error.starts_with(&place(&path, line)), "{text:?}: {error}");
            assert!(error.contains(word) && !error.contains("geheim"), "{error}");
        }
    }
}
