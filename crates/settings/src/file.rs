//! Settings files: flat TOML tables, one line per setting. The file of settings set by clients is sealed: its
//! first line has a checksum of the others.
//!
//! The module reads them with the line number of each value, and changes values in place: comments, order and
//! types are preserved. The module knows neither the meaning of a value nor the precedence of files (see
//! `lasting`).
//!
//! Invariants
//! - After any crash a reader sees the complete old or the complete new file; a change reported as written is
//!   on disk.
//! - A sealed file that was cut, emptied or changed is refused, unless its first line was removed or
//!   replaced, as by someone who edits it.
//! - No message shows a line of a file: it may contain a password.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use toml_edit::{Document, DocumentMut, Item, Value};

use super::{ConfigError, Kind, Setting, find};

/// A new file may hold passwords: only its owner may read it.
const NEW_FILE_MODE: u32 = 0o600;

/// The beginning of a sealed file; the checksum in hex and [`SEAL_END`] follow.
const SEAL_BEGIN: &str = "# checksum ";
const SEAL_END: &str = ". To edit this file, remove this line: the server adds a new one when it starts.\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: String,
    /// The file and the number of the line, for messages.
    pub(super) place: String,
}

/// Reads the values of a file, in order. A value may be a text, a number or a boolean.
///
/// # Errors
/// If the file cannot be read, or is not a flat table of such values. The error names the file, and the line
/// if known.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, ConfigError> {
    parse(path, &text_of(path)?)
}

/// As [`read`], for a sealed file.
///
/// # Errors
/// As those of [`read`], and if the file was cut, emptied or changed.
pub(super) fn read_sealed(path: &Path) -> Result<Vec<Line>, ConfigError> {
    let damaged = |reason: String| ConfigError::Damaged { path: path.display().to_string(), reason };
    let text = text_in(path, bytes_of(path)?).map_err(|error| damaged(format!("{error}. {RESTORE}")))?;
    unsealed(&text).map_err(|reason| damaged(reason.into()))?;
    parse(path, &text)
}

/// The text of a file.
///
/// # Errors
/// If the file cannot be read, or is not UTF-8.
pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
    text_in(path, bytes_of(path)?)
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path).map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::IsADirectory => "it is a directory: name a file in it".into(),
            _ => error.to_string(),
        };
        ConfigError::File { path: path.display().to_string(), reason }
    })
}

fn text_in(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let number = 1 + before.filter(|byte| **byte == b'\n').count();
        ConfigError::Syntax { reason: "it is not text in UTF-8".into() }.at(place(path, number))
    })
}

/// The remedy for a damaged file of settings set by clients.
const RESTORE: &str = "Restore the file from a copy, or write only the line '# none' into it to start without the settings that clients \
                       have set (CONFIG SET), perhaps a password";

/// The text with its seal.
fn sealed(text: &str) -> String {
    format!("{SEAL_BEGIN}{:08x}{SEAL_END}{text}", crc32c::crc32c(text.as_bytes()))
}

/// The text without its seal.
///
/// # Errors
/// If the text differs from the text that was sealed, and does not count as edited by hand.
fn unsealed(text: &str) -> Result<&str, &'static str> {
    const EMPTY: &str = "it is empty, or only its beginning is left, and it had the settings that clients have set (CONFIG SET), perhaps a \
                         password. Restore it from a copy, or write the line '# none' into it to start without them";
    const CHANGED: &str = "it was cut or changed (checksum mismatch). If you have edited it, remove its first line, which has the \
                           checksum; otherwise restore it from a copy";
    if SEAL_BEGIN.starts_with(text.trim_end()) {
        return Err(EMPTY);
    }
    match text.split_once('\n') {
        Some((_, rest)) if sealed(rest) == text => Ok(rest),
        // The second condition finds a damaged beginning.
        _ if text.starts_with(SEAL_BEGIN) || text.contains(SEAL_END.trim_end()) => Err(CHANGED),
        _ => Ok(text),
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Line>, ConfigError> {
    let at = |span: Option<std::ops::Range<usize>>, reason: String| {
        let number = span.map_or(1, |span| line_at(text, span.start));
        ConfigError::Syntax { reason }.at(place(path, number))
    };
    let document = Document::parse(text).map_err(|error| {
        let reason = match error.message() {
            message if message.contains("must be quoted") => "a text needs quotes, as in maxmemory = \"3gb\"",
            message => message,
        };
        at(error.span(), reason.into())
    })?;
    let table = document.as_table();
    let line = |(name, item): (&str, &Item)| {
        let span = table.key(name).and_then(toml_edit::Key::span).or(item.span());
        let value = match item.as_value() {
            Some(Value::String(text)) => text.value().clone(),
            Some(Value::Integer(number)) => number.value().to_string(),
            Some(Value::Float(number)) => number.value().to_string(),
            Some(Value::Boolean(switch)) => if *switch.value() { "yes" } else { "no" }.into(),
            _ => {
                let kind = item.type_name();
                return Err(at(span, format!("'{name}' must be a text, number or boolean, not a {kind}")));
            }
        };
        let number = span.map_or(1, |span| line_at(text, span.start));
        Ok(Line { name: name.into(), value, place: place(path, number) })
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

/// A file with changed values that is to be written.
#[derive(Debug)]
pub(super) struct Change<'p> {
    path: &'p Path,
    text: String,
    mode: u32,
    /// The values of the file once it is written.
    pub(super) lines: Vec<Line>,
}

impl Change<'_> {
    /// Writes the file, and returns its values.
    ///
    /// # Errors
    /// The reason, in words for a client. The file then has its complete old or its complete new contents.
    pub(super) fn write(self) -> Result<Vec<Line>, NotStored> {
        // If the path is a symbolic link, its target is replaced, not the link.
        let target = fs::canonicalize(self.path).unwrap_or_else(|_| self.path.into());
        env::crashsafe::write_atomically_with_mode(&target, self.text.as_bytes(), self.mode)
            .map_err(|error| NotStored::of(&error, cannot_write(self.path, &error.to_string())))?;
        Ok(self.lines)
    }
}

/// Why a change of settings was not stored, in words for a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// The disk has no room for the file.
    #[error("{0}")]
    NoRoom(String),
    /// The change was not stored for another reason.
    #[error("{0}")]
    Refused(String),
}

impl NotStored {
    fn of(error: &io::Error, reason: String) -> NotStored {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NotStored::NoRoom(reason),
            _ => NotStored::Refused(reason),
        }
    }
}

impl From<String> for NotStored {
    fn from(reason: String) -> NotStored {
        NotStored::Refused(reason)
    }
}

fn cannot_write(path: &Path, reason: &str) -> String {
    format!("cannot write {}: {reason}", path.display())
}

/// Prepares a file in which values are set, and settings whose value is `None` are removed; nothing is
/// written yet. A file with `header` is sealed, and has the header after the seal.
///
/// # Errors
/// The reason, in words for a client.
pub(super) fn prepare<'p>(
    path: &'p Path,
    header: Option<&str>,
    changes: &[(&'static Setting, Option<String>)],
) -> Result<Change<'p>, String> {
    let failed = |reason: String| cannot_write(path, &reason);
    let (text, mode) = match fs::read_to_string(path) {
        Ok(text) => {
            let kept = if header.is_some() { unsealed(&text) } else { Ok(&*text) };
            (kept.map_err(|reason| failed(reason.into()))?.into(), mode_of(path).map_err(failed)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), NEW_FILE_MODE),
        Err(error) => return Err(failed(error.to_string())),
    };
    let changed = match header {
        None => changed(&text, changes).map_err(failed)?,
        // The header stays at the top, whichever line is added or removed after it.
        Some(header) => {
            let changed = changed(&text.replacen(header, "", 1), changes).map_err(failed)?;
            sealed(&format!("{header}{changed}"))
        }
    };
    let lines = parse(path, &changed).map_err(|error| error.to_string())?;
    Ok(Change { path, text: changed, mode, lines })
}

/// Seals a file, unless it is sealed. Returns whether this call has sealed it. The checksum of a sealed file
/// is not verified.
///
/// # Errors
/// As [`prepare`] and [`Change::write`], and if the file cannot be read.
pub(super) fn seal(path: &Path, header: &str) -> Result<bool, NotStored> {
    let text = text_of(path).map_err(|error| error.to_string())?;
    let is_edited = !text.starts_with(SEAL_BEGIN);
    if is_edited {
        prepare(path, Some(header), &[])?.write()?;
    }
    Ok(is_edited)
}

fn mode_of(path: &Path) -> Result<u32, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    Ok(metadata.permissions().mode() & 0o7777)
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
        Value::Float(_) => text.parse().ok().map(|number: f64| number.into()),
        Value::Boolean(_) if text == "yes" => Some(true.into()),
        Value::Boolean(_) if text == "no" => Some(false.into()),
        _ => None,
    };
    same.unwrap_or_else(|| text.into())
}

/// A value of the type usual for this setting.
pub(super) fn typed(setting: &Setting, text: &str) -> Value {
    let number = match setting.kind {
        Kind::Integer { .. } | Kind::Signed { .. } | Kind::Bytes { .. } | Kind::BytesPowerOfTwo { .. } => {
            text.parse::<i64>().ok().map(Into::into)
        }
        Kind::Share => text.parse::<f64>().ok().map(Into::into),
        _ => None,
    };
    number.unwrap_or_else(|| text.into())
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
    fn written_settings_are_read_back_and_readable_by_their_owner_only() {
        let path = std::env::temp_dir().join(format!("sheaf-settings-{}.toml", std::process::id()));
        let set = |changes: &[_]| prepare(&path, Some("# made\n"), changes).unwrap().write().unwrap();
        set(&[change_to(Key::Requirepass, "secret"), change_to(Key::Timeout, "5")]);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        set(&[(&OPTIONS[Key::Requirepass as usize], None)]);
        let kept_mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let (text, lines) = (fs::read_to_string(&path), read(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!((mode, kept_mode), (0o600, 0o644));
        assert_eq!(text.unwrap(), sealed("# made\ntimeout = 5\n"));
        let [line] = &lines.unwrap()[..] else { panic!("one line") };
        assert_eq!((line.name.as_str(), line.value.as_str()), ("timeout", "5"));
    }

    #[test]
    fn a_sealed_file_that_was_cut_or_changed_is_found_and_an_edited_one_is_read() {
        let body = "# made\nrequirepass = \"geheim\"\ntimeout = 5\n";
        let text = sealed(body);
        assert_eq!(unsealed(&text), Ok(body));
        for len in 0..text.len() {
            unsealed(&text[..len]).expect_err("it was cut");
        }
        for bit in 0..text.len() * 8 {
            let mut changed = text.clone().into_bytes();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(changed) = String::from_utf8(changed) else { continue };
            unsealed(&changed).expect_err("it was changed");
        }
        for edited in [body, "timeout = 1", "# none\n", "# check of the settings: none"] {
            assert_eq!(unsealed(edited), Ok(edited));
        }
        for empty in ["\n\n", " "] {
            unsealed(empty).expect_err("nothing is in it");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_damage_with_a_way_out() {
        let path = std::env::temp_dir().join(format!("sheaf-bytes-{}.toml", std::process::id()));
        fs::write(&path, b"timeout = 5\nrequirepass = \"\xff\"\n").unwrap();
        let (of_clients, of_administrator) = (read_sealed(&path).unwrap_err(), read(&path).unwrap_err());
        fs::remove_file(&path).unwrap();
        assert!(of_clients.is_damage() && !of_administrator.is_damage());
        let text = of_clients.to_string();
        assert!(text.contains("line 2: it is not text in UTF-8. Restore the file from a copy"), "{text}");
        assert_eq!(
            of_administrator.to_string(),
            format!("{}, line 2: it is not text in UTF-8", path.display())
        );
    }

    #[test]
    fn a_file_without_a_seal_is_sealed_once() {
        let path = std::env::temp_dir().join(format!("sheaf-seal-{}.toml", std::process::id()));
        fs::write(&path, "# made\ntimeout = 5\n").unwrap();
        let outcomes = [seal(&path, "# made\n"), seal(&path, "# made\n")];
        let text = fs::read_to_string(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(outcomes, [Ok(true), Ok(false)]);
        assert_eq!(text.unwrap(), sealed("# made\ntimeout = 5\n"));
    }

    #[test]
    fn errors_name_their_line_and_do_not_show_its_text() {
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
