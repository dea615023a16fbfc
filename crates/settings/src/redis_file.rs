//! Configuration files of Redis and Valkey (`redis.conf`).
//!
//! A line is a directive: a name and words, quoted as Redis quotes them. The module says what a directive
//! means here: a setting with its value, a setting without a meaning ([`INERT`](super::INERT)), nothing, or a
//! refusal with a reason. The module also reads the files that a file includes, and shows a file as TOML. It
//! writes no file.
//!
//! Invariants
//! - No directive is skipped in silence: it sets something, is listed as without effect, or is refused.
//! - No message about the syntax of a line shows its text: it may contain a password.
//!
//! Format: <https://redis.io/docs/latest/operate/oss_and_stack/management/config-file/>

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use toml_edit::{DocumentMut, Item};

use super::{
    ConfigError, Key, OPTIONS, Setting, Settings,
    file::{self, Line},
    find, inert_named,
    redis_values::in_our_words,
};

/// How deep files may include each other: a file that includes itself is an error, not an endless loop.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The maximum number of files that are read; a file counts each time that it is read.
const FILES_MAX: usize = 1024;

/// The ending of the names of Redis' files.
const ENDING: &str = "conf";

/// Whether a configuration file is one of Redis, by its name; the others are TOML.
pub fn is_redis_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

/// The settings of a file, in order, and the directives without effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RedisFile {
    pub(super) lines: Vec<Line>,
    /// The names of directives that have no effect here, each once, some with the reason.
    pub(super) without_effect: Vec<String>,
}

/// A line of a file of Redis, split into words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directive {
    /// The file and the number of the line, for messages.
    place: String,
    /// The name, in lower case.
    name: String,
    words: Vec<String>,
}

/// The meaning of a directive here.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// A setting gets this value.
    Setting {
        /// The setting in the table.
        setting: &'static Setting,
        /// The value, as text.
        value: String,
    },
    /// A setting without a meaning gets this value: CONFIG GET shows it.
    Inert {
        /// The name of the setting.
        name: &'static str,
        /// The value, as text.
        value: String,
    },
    /// The directive has no effect here, for this reason.
    Nothing(&'static str),
}

/// The meaning of a directive with this name, in lower case, and these words. `is_appendonly` says whether
/// Redis would write an append-only file: if it would not, its `appendfsync` has no effect.
///
/// # Errors
/// If the directive is refused. The value of a setting is not checked.
pub fn meaning(name: &str, words: &[String], is_appendonly: bool) -> Result<Meaning, ConfigError> {
    const NO_FILES: &str = "every write is in the log";
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let setting = |key: Key, value: String| Ok(Meaning::Setting { setting: &OPTIONS[key as usize], value });
    let is_yes = words.first().is_some_and(|word| word.eq_ignore_ascii_case("yes"));
    if words.len() > 1 && words[0] == "=" {
        return Err(refused(
            name,
            "this line is TOML: --config reads a file of such lines as it is, if its name ends in .toml",
        ));
    }
    if words.len() > 1 && takes_one_word(name) {
        return Err(refused(name, "one word is expected; quotes hold a value with spaces together"));
    }
    match (name, &words[..]) {
        ("save", points) if are_points_of_saving(points) => Ok(Meaning::Nothing(NO_FILES)),
        ("save", _) => Err(refused(name, "Invalid save parameters")),
        ("appendonly", [word]) if is_yes || word.eq_ignore_ascii_case("no") => Ok(Meaning::Nothing(NO_FILES)),
        ("appendonly", _) => Err(refused(name, "argument must be 'yes' or 'no'")),
        ("appendfsync", [policy]) if !is_appendonly => {
            in_our_words(name, policy, &Settings::default()).map_err(|reason| refused(name, &reason))?;
            Ok(Meaning::Nothing(NO_FILES))
        }
        ("databases", [count]) if count.parse().is_ok_and(|count: u32| (1..=16).contains(&count)) => {
            Ok(Meaning::Nothing("there are 16"))
        }
        // The server does not do what these directives ask for: the message names a replacement.
        ("daemonize" | "cluster-enabled", _) if is_yes => Err(ConfigError::Unknown { name: name.into() }),
        ("replicaof" | "slaveof", [first, second]) => setting(
            Key::ReplicaOf,
            match (first.to_ascii_lowercase().as_str(), second.to_ascii_lowercase().as_str()) {
                ("no", "one") => "none".into(),
                _ if first.contains(':') => format!("[{first}]:{second}"),
                _ => format!("{first}:{second}"),
            },
        ),
        ("bind", addresses) => {
            setting(Key::Bind, addresses.iter().map(|it| address(it)).collect::<Vec<_>>().join(" "))
        }
        _ => named(name, &words.join(" ")),
    }
}

/// The address that a word of Redis' `bind` means. `*` is every IPv4 address, `::*` every IPv6 address.
fn address(word: &str) -> &str {
    match word {
        "*" => "0.0.0.0",
        "-*" => "-0.0.0.0",
        "::*" => "::",
        "-::*" => "-::",
        address => address,
    }
}

/// An error without the words, which may be a password.
fn refused(name: &str, reason: &str) -> ConfigError {
    ConfigError::Syntax { reason: format!("'{name}': {reason}") }
}

/// Whether more than one word is refused for this directive. The value of other known directives is a list of
/// words, quoted together or not.
fn takes_one_word(name: &str) -> bool {
    const LISTS: [&str; 10] = [
        "bind",
        "client-output-buffer-limit",
        "durable-channels",
        "latency-tracking-info-percentiles",
        "oom-score-adj-values",
        "replicaof",
        "save",
        "shutdown-on-sigint",
        "shutdown-on-sigterm",
        "slaveof",
    ];
    // For an unknown name, the message names a replacement instead.
    let is_known = find(name).is_ok() || inert_named(name).is_some() || name == "appendfsync";
    is_known && !LISTS.contains(&name)
}

/// Whether these are pairs of seconds and changes, or one empty word, as the `save` of Redis takes them.
fn are_points_of_saving(words: &[&str]) -> bool {
    let are_pair = |pair: &[&str]| {
        let at_least = |word: &str, least: i64| word.parse().is_ok_and(|number: i64| number >= least);
        at_least(pair[0], 1) && at_least(pair[1], 0)
    };
    words == [""] || (words.len().is_multiple_of(2) && words.chunks_exact(2).all(are_pair))
}

/// The meaning of a name that has one value.
fn named(name: &str, value: &str) -> Result<Meaning, ConfigError> {
    let invalid = |name, reason| ConfigError::Invalid { name, value: value.into(), reason };
    let defaults = Settings::default();
    let (name, value) =
        in_our_words(name, value, &defaults).map_err(|reason| invalid("appendfsync", reason))?;
    match (find(name), inert_named(name)) {
        (Ok((_, setting)), _) => Ok(Meaning::Setting { setting, value: value.into() }),
        (Err(_), Some((_, inert))) => {
            Settings::default().set_inert(name, value).map_err(|reason| invalid(inert.name, reason))?;
            Ok(Meaning::Inert { name: inert.name, value: value.into() })
        }
        (Err(error), None) => Err(error),
    }
}

/// Reads a file and the files that it includes.
///
/// # Errors
/// If a file cannot be read, or a directive is refused; the error names the line.
pub(super) fn read(path: &Path) -> Result<RedisFile, ConfigError> {
    let directives = directives(path)?;
    let is_appendonly = is_appendonly(&directives);
    let mut read = RedisFile::default();
    for Directive { place, name, words } in directives {
        let meaning = meaning(&name, &words, is_appendonly).map_err(|error| error.at(place.clone()))?;
        let (name, value) = match meaning {
            Meaning::Setting { setting, value } => (setting.name.to_owned(), Some(value)),
            Meaning::Inert { name, value } => {
                read.note_without_effect(name);
                (name.to_owned(), Some(value))
            }
            Meaning::Nothing(why) => {
                read.note_without_effect(&format!("{name} ({why})"));
                (name, None)
            }
        };
        read.lines.extend(value.map(|value| Line { name, value, place }));
    }
    Ok(read)
}

impl RedisFile {
    fn note_without_effect(&mut self, name: &str) {
        if !self.without_effect.iter().any(|known| known == name) {
            self.without_effect.push(name.into());
        }
    }
}

/// A file of Redis as a file of TOML.
#[derive(Debug)]
pub struct Converted {
    /// The text of the file of TOML, which has the same meaning. Directives without effect, and refused ones,
    /// are comments at its end.
    pub text: String,
    /// The number of directives that were refused.
    pub refused: usize,
}

/// Converts a file of Redis and the files that it includes.
///
/// # Errors
/// If a file cannot be read or included, or a line is not a name and words.
pub fn converted(path: &Path) -> Result<Converted, ConfigError> {
    let directives = directives(path)?;
    let is_appendonly = is_appendonly(&directives);
    let mut settings = Settings::default();
    let mut set: Vec<&'static Setting> = Vec::new();
    let (mut without_effect, mut refused) = (Vec::new(), Vec::new());
    for Directive { place, name, words } in &directives {
        match meaning(name, words, is_appendonly) {
            Ok(Meaning::Setting { setting, value }) => match settings.set(setting.name, &value) {
                Ok(setting) if set.iter().any(|known| known.key == setting.key) => {}
                Ok(setting) => set.push(setting),
                Err(error) => refused.push(format!("{place}: {error}")),
            },
            Ok(Meaning::Inert { name, .. }) => without_effect.push(name.to_owned()),
            Ok(Meaning::Nothing(why)) => without_effect.push(format!("{name}: {why}")),
            Err(error) => refused.push(format!("{place}: {error}")),
        }
    }
    let mut document = DocumentMut::new();
    for setting in set {
        let value = file::typed(setting, &settings.rendered(setting.key));
        document.insert(setting.name, Item::Value(value));
    }
    without_effect.sort_unstable();
    without_effect.dedup();
    let comment = |title: &str, lines: Vec<String>| {
        let lines: String = lines.iter().map(|line| format!("#   {line}\n")).collect();
        if lines.is_empty() { lines } else { format!("\n# {title}\n{lines}") }
    };
    let refused_count = refused.len();
    let refused = comment("Not taken over:", refused);
    let without_effect = comment("Without effect here:", without_effect);
    let text = format!("# Made from {}\n{document}{refused}{without_effect}", path.display());
    Ok(Converted { text, refused: refused_count })
}

/// Whether the last `appendonly` says yes.
fn is_appendonly(directives: &[Directive]) -> bool {
    let last = directives.iter().rev().find(|directive| directive.name == "appendonly");
    last.and_then(|directive| directive.words.first()).is_some_and(|word| word.eq_ignore_ascii_case("yes"))
}

/// The directives of a file, with the directives of included files where these are included.
fn directives(path: &Path) -> Result<Vec<Directive>, ConfigError> {
    let mut found = Found { directives: Vec::new(), files: 0 };
    found.add(path, INCLUDE_DEPTH_MAX)?;
    Ok(found.directives)
}

struct Found {
    directives: Vec<Directive>,
    files: usize,
}

impl Found {
    fn add(&mut self, path: &Path, depth: usize) -> Result<(), ConfigError> {
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(
                ConfigError::Syntax { reason: "too many files are included".into() }.at(file::place(path, 1))
            );
        }
        let text = file::text_of(path)?;
        for (index, line) in text.lines().enumerate() {
            let place = file::place(path, index + 1);
            let failed = |reason: &str| ConfigError::Syntax { reason: reason.into() }.at(place.clone());
            let line = line.trim_matches([' ', '\t', '\r', '\n']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = split(line).map_err(failed)?.into_iter();
            let name = words.next().unwrap_or_default().to_ascii_lowercase();
            let words: Vec<String> = words.collect();
            match (&*name, &words[..]) {
                ("include", [_]) if depth == 0 => return Err(failed("files include each other too deeply")),
                ("include", [pattern]) if is_pattern(pattern) => {
                    files_of(pattern)
                        .iter()
                        .try_for_each(|included| self.include(included, depth, &place))?;
                }
                ("include", [included]) if Path::new(included).is_dir() => {
                    return Err(failed(
                        "a directory cannot be included; 'include DIR/*.conf' reads its files",
                    ));
                }
                ("include", [included]) => self.include(Path::new(included), depth, &place)?,
                ("include", [_, _, ..]) => {
                    return Err(failed(
                        "'include' takes one file or pattern; quotes hold a name with spaces together",
                    ));
                }
                (_, []) => return Err(failed("a directive is a name and at least one word")),
                _ => self.directives.push(Directive { place, name, words }),
            }
        }
        Ok(())
    }

    /// Adds the directives of a file that is included at `place`, which is named if the file cannot be read.
    fn include(&mut self, path: &Path, depth: usize, place: &str) -> Result<(), ConfigError> {
        self.add(path, depth - 1).map_err(|error| match error {
            ConfigError::File { .. } => error.at(place.to_owned()),
            located => located,
        })
    }
}

/// Whether the path of an `include` is a pattern.
fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// The files that a pattern of `include` names, in the order of their names. A pattern that names no file is
/// no error, as in Redis. A part of the path may be a pattern; `*` does not match the leading dot of a hidden
/// name.
fn files_of(pattern: &str) -> Vec<PathBuf> {
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match is_pattern(part) {
            false => found.into_iter().map(|path| path.join(part)).collect(),
            true => found.iter().flat_map(|directory| entries_like(directory, part)).collect(),
        };
    }
    found.retain(|path| path.is_file());
    found
}

/// The entries of a directory whose names match a pattern, in the order of their names; none if the directory
/// cannot be read.
fn entries_like(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let is_like = |name: &OsString| {
        let name = name.as_encoded_bytes();
        (pattern.starts_with('.') || !name.starts_with(b".")) && wire::glob::matches(pattern.as_bytes(), name)
    };
    let entries = std::fs::read_dir(named).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<OsString> = entries.filter(is_like).collect();
    names.sort_unstable();
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// Whether a word ends before this byte.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The bytes from the next word on. More kinds of space are skipped than end a word, as in Redis.
fn skip_space(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    &bytes[begin..]
}

/// The words of a line. In double quotes, a backslash begins an escape (`\n`, `\r`, `\t`, `\b`, `\a`, `\xHH`,
/// or the next character itself); in single quotes, only `\'` is one.
///
/// # Errors
/// The reason, if a quote is not closed, is closed inside a word, or the words are not UTF-8.
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    const UNBALANCED: &str = "a quote is not closed, or not followed by a space";
    let (mut words, mut rest) = (Vec::new(), skip_space(line.as_bytes()));
    while !rest.is_empty() {
        let mut word = Vec::new();
        while let Some((&first, behind)) = rest.split_first()
            && !ends_word(first)
        {
            rest = match first {
                b'"' | b'\'' => {
                    let behind = quoted(first, behind, &mut word).ok_or(UNBALANCED)?;
                    if !behind.first().is_none_or(u8::is_ascii_whitespace) {
                        return Err(UNBALANCED);
                    }
                    behind
                }
                _ => {
                    word.push(first);
                    behind
                }
            };
        }
        words.push(String::from_utf8(word).map_err(|_| "it is not text in UTF-8")?);
        rest = skip_space(rest);
    }
    Ok(words)
}

/// Adds the text up to the closing quote to a word. Returns the bytes after the quote; `None` if there is no
/// closing quote.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match *rest {
            [end, ref behind @ ..] if end == quote => return Some(behind),
            [b'\\', b'x', high, low, ref behind @ ..] if quote == b'"' && hex(high, low).is_some() => {
                word.extend(hex(high, low));
                behind
            }
            [b'\\', escaped, ref behind @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                behind
            }
            [b'\\', b'\'', ref behind @ ..] if quote == b'\'' => {
                word.push(quote);
                behind
            }
            [letter, ref behind @ ..] => {
                word.push(letter);
                behind
            }
            [] => return None,
        };
    }
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |letter: u8| char::from(letter).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests;
