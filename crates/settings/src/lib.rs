//! Configuration: one table ([`table`]) feeds flags, environment, file, `--help`, CONFIG GET and CONFIG SET.
//!
//! ```text
//! defaults < settings.toml (set by clients) < file (TOML or redis.conf) < SHEAF_* environment < flags
//!     -> Settings
//! ```
//!
//! The crate has names, kinds, ranges and values of settings. The crate applies no setting; other crates read
//! the values and act on them.
//!
//! Invariants
//! - A [`Settings`] has a value of the right [`Kind`] for every row.
//! - An unknown name is an error in every source but the environment, where it is a warning.

mod bytes;
mod clients_max;
mod environment;
mod file;
mod foreign;
mod inert;
mod lasting;
mod output_limits;
mod owed;
mod password_file;
mod redis_file;
mod redis_values;
mod table;
mod value;

use std::collections::BTreeMap;

pub use clients_max::{ClientsMax, RESERVED_PLACES};
use engine::DebugAccess;
pub use environment::{unknown_variables, variable};
pub use file::NotStored;
pub use foreign::instead_of;
pub use inert::{INERT, InertSetting, inert_named};
use keyspace::PackedLimits;
pub use lasting::{Given, Lasting, Origin, Reread};
pub use output_limits::{OutputLimit, OutputLimits};
pub use owed::{OwedSettings, RecordedSetting};
pub use password_file::read_password;
pub use redis_file::{Converted, Meaning, converted, is_redis_file, meaning};
pub use redis_values::{appendfsync_of, in_our_words};
pub use table::{ALIASES, Group, Key, OPTIONS, Setting};
pub use value::{Kind, Value};

/// A pseudo-setting of CONFIG SET, so that stock clients can confirm a forced recovery.
pub const FORCE_RECOVERY: &str = "force-recovery";

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No setting has this name.
    #[error("{}", unknown(.name))]
    Unknown {
        /// The unknown name, as it was given.
        name: String,
    },
    /// The value does not fit the setting.
    #[error("invalid value '{value}' for '{name}': {reason}")]
    Invalid {
        /// The name of the setting.
        name: &'static str,
        /// The value as given; hidden for secret settings.
        value: String,
        /// The values that are accepted, or the reason why this one cannot be used, in words.
        reason: String,
    },
    /// The setting can be changed only by a restart.
    #[error("'{name}' cannot be changed while the server runs; set it in the file or as a flag and restart")]
    Immutable {
        /// The name of the setting.
        name: &'static str,
    },
    /// The setting was fixed when the directory was created.
    #[error("'{name}' was fixed when the directory was created")]
    OfDirectory {
        /// The name of the setting.
        name: &'static str,
    },
    /// A settings file cannot be read.
    #[error("cannot read the settings of {path}: {reason}")]
    File {
        /// The path of the settings file.
        path: String,
        /// The reason, in words.
        reason: String,
    },
    /// A file with a password cannot be read.
    #[error("cannot read the password of {path}: {reason}")]
    PasswordFile {
        /// The path of the file.
        path: String,
        /// The reason, in words.
        reason: String,
    },
    /// A password is given twice.
    #[error("give '{name}' or '{name}-file', not both")]
    PasswordTwice {
        /// The name of the setting.
        name: &'static str,
    },
    /// The file of settings set by clients is damaged.
    #[error("cannot read the settings of {path}: {reason}")]
    Damaged {
        /// The path of the settings file.
        path: String,
        /// The damage, and the remedy.
        reason: String,
    },
    /// A settings file is not UTF-8, is no flat table of TOML, or has a directive that Redis would refuse; or
    /// files of Redis include too many others.
    #[error("{reason}")]
    Syntax {
        /// A description of the error, without the text of the line.
        reason: String,
    },
    /// An error with the position of the value.
    #[error("{place}: {error}")]
    At {
        /// A variable, a flag, or a line of a file.
        place: String,
        /// The error at that place.
        error: Box<ConfigError>,
    },
}

impl ConfigError {
    /// Whether the file of settings set by clients is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, ConfigError::Damaged { .. })
    }

    /// The message for a client, which names CONFIG SET where the message for an administrator names a flag.
    pub fn for_client(&self) -> String {
        let ConfigError::Unknown { name } = self else { return self.to_string() };
        match (foreign::for_client(name), nearest(name, OPTIONS.iter().map(|option| option.name))) {
            (Some(answer), _) => format!("'{name}' cannot be set here: {answer}"),
            (None, Some(nearest)) => format!("unknown setting '{name}'; did you mean '{nearest}'?"),
            (None, None) => format!("unknown setting '{name}'; CONFIG GET * shows all settings"),
        }
    }

    fn at(self, place: String) -> ConfigError {
        ConfigError::At { place, error: Box::new(self) }
    }
}

/// The message about a name that is no setting, with advice.
fn unknown(name: &str) -> String {
    match (instead_of(name), nearest(name, OPTIONS.iter().map(|option| option.name))) {
        (Some(answer), _) => format!("'{name}' is not known here: {answer}"),
        (None, Some(nearest)) => format!("unknown setting '{name}'; did you mean '{nearest}'?"),
        (None, None) => format!("unknown setting '{name}'; `sheaf serve --help` lists all settings"),
    }
}

/// The name that was probably meant, if one is near.
fn nearest<N: AsRef<str>>(name: &str, known: impl Iterator<Item = N>) -> Option<N> {
    // No more than half of a short name may differ.
    let most = (name.chars().count() / 2).min(3);
    let distances = known.map(|known| (edit_distance(name, known.as_ref()), known));
    distances
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, known)| known)
}

/// The Levenshtein distance, for suggestions in messages.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, other) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// The maximum entries of a packed collection, whatever the settings say: larger limits would make every edit
/// of a packed collection slow.
const PACKED_ENTRIES_MAX: u32 = 32_000;
const PACKED_VALUE_BYTES_MAX: u32 = 1 << 20;

/// Maximum bytes of a packed list whose size is limited in elements.
const LIST_BYTES_MAX: u32 = 8192;

/// A valid value for every setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    values: Vec<Value>,
    /// The values that were given to settings of [`INERT`], by position.
    inert: BTreeMap<usize, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let default = |option: &Setting| option.parse(option.default).expect("defaults are valid; tested");
        Settings { values: OPTIONS.iter().map(default).collect(), inert: BTreeMap::new() }
    }
}

impl Settings {
    /// Sets a value, also of an immutable setting.
    ///
    /// # Errors
    /// If the name is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<&'static Setting, ConfigError> {
        let (index, option) = find(name)?;
        self.values[index] = option.parse_over(value, &self.values[index])?;
        Ok(option)
    }

    /// As [`Settings::set`], on a running server.
    ///
    /// # Errors
    /// Also if the value of an immutable setting would change.
    pub fn set_live(&mut self, name: &str, value: &str) -> Result<&'static Setting, ConfigError> {
        let (index, option) = find(name)?;
        let parsed = option.parse_over(value, &self.values[index])?;
        if !option.mutable && self.values[index] != parsed {
            if option.key == Key::LogSegmentBytes {
                return Err(ConfigError::OfDirectory { name: option.name });
            }
            return Err(ConfigError::Immutable { name: option.name });
        }
        self.values[index] = parsed;
        Ok(option)
    }

    /// Keeps the value of a setting without a meaning, on a running server. Returns the name of the setting
    /// if it had no value before. `None` also if no such setting has this name.
    ///
    /// # Errors
    /// The reason, in the words of Redis; also if Redis reads the setting only when it starts.
    pub fn set_inert_live(&mut self, name: &str, value: &str) -> Result<Option<&'static str>, String> {
        if inert_named(name).is_some_and(|(_, setting)| !setting.mutable) {
            return Err("can't set immutable config".into());
        }
        self.set_inert(name, value)
    }

    /// As [`Settings::set_inert_live`], also for settings that Redis reads only when it starts.
    ///
    /// # Errors
    /// The reason, in the words of Redis.
    pub fn set_inert(&mut self, name: &str, value: &str) -> Result<Option<&'static str>, String> {
        let Some((index, setting)) = inert_named(name) else { return Ok(None) };
        let first = self.inert.insert(index, setting.parse(value)?).is_none();
        Ok(first.then_some(setting.name))
    }

    /// The settings without a meaning, by all of their names, with their values.
    pub fn inert(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        INERT.iter().enumerate().flat_map(|(index, setting)| {
            let value = self.inert.get(&index).map_or(setting.default, String::as_str);
            let names = [setting.name, setting.alias].into_iter().filter(|name| !name.is_empty());
            names.map(move |name| (name, value))
        })
    }

    /// All settings with their values as text, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, String)> + '_ {
        OPTIONS.iter().zip(&self.values).map(|(option, value)| (option, value.to_string()))
    }

    /// Copies one value from other settings.
    pub fn take_from(&mut self, other: &Settings, key: Key) {
        self.values[key as usize] = other.value(key).clone();
    }

    /// The value of a setting, of the type that its kind has.
    pub fn value(&self, key: Key) -> &Value {
        &self.values[key as usize]
    }

    /// The value of a setting as text.
    pub fn rendered(&self, key: Key) -> String {
        self.value(key).to_string()
    }

    /// The value of a setting of [`Kind::Integer`], [`Kind::Bytes`] or [`Kind::BytesPowerOfTwo`].
    ///
    /// # Panics
    ///
    /// If the setting is of another kind.
    pub fn integer(&self, key: Key) -> u64 {
        match self.values[key as usize] {
            Value::Integer(value) => value,
            ref other => panic!("{key:?} holds {other:?}, not a number"),
        }
    }

    /// The value of a setting of [`Kind::Signed`].
    ///
    /// # Panics
    ///
    /// If the setting is of another kind.
    pub fn signed(&self, key: Key) -> i64 {
        match self.values[key as usize] {
            Value::Signed(value) => value,
            ref other => panic!("{key:?} holds {other:?}, not a signed number"),
        }
    }

    /// The value of a setting of [`Kind::Switch`].
    ///
    /// # Panics
    ///
    /// If the setting is of another kind.
    pub fn switch(&self, key: Key) -> bool {
        match self.values[key as usize] {
            Value::Switch(value) => value,
            ref other => panic!("{key:?} holds {other:?}, not a switch"),
        }
    }

    /// The value of a setting of [`Kind::Share`], in millionths.
    ///
    /// # Panics
    ///
    /// If the setting is of another kind.
    pub fn millionths(&self, key: Key) -> u32 {
        match self.values[key as usize] {
            Value::Share(millionths) => millionths,
            ref other => panic!("{key:?} holds {other:?}, not a share"),
        }
    }

    /// The value of a setting of [`Kind::Text`], [`Kind::HttpUrl`], [`Kind::Events`] or [`Kind::Choice`].
    ///
    /// # Panics
    ///
    /// If the setting is of another kind.
    pub fn text(&self, key: Key) -> &str {
        match &self.values[key as usize] {
            Value::Text(value) => value,
            Value::Choice(name) => name,
            other => panic!("{key:?} holds {other:?}, not a text"),
        }
    }

    /// The limits of the clients' unsent output.
    pub fn output_limits(&self) -> OutputLimits {
        match self.values[Key::ClientOutputBufferLimit as usize] {
            Value::OutputLimits(limits) => limits,
            ref other => panic!("the limits are {other:?}"),
        }
    }

    /// All settings with further names: the further name and the value as text.
    pub fn aliases(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let rendered = |key: Key| self.values[key as usize].to_string();
        ALIASES.iter().map(move |(alias, key)| (*alias, rendered(*key)))
    }

    /// The clients that may run DEBUG.
    pub fn debug_access(&self) -> DebugAccess {
        match self.text(Key::EnableDebugCommand) {
            "yes" => DebugAccess::Everybody,
            "local" => DebugAccess::Local,
            _ => DebugAccess::Nobody,
        }
    }

    /// The size limits up to which collections are packed.
    pub fn packed_limits(&self) -> PackedLimits {
        let at_most = |key, max| self.integer(key).min(u64::from(max)) as u32;
        let number = |key| at_most(key, PACKED_ENTRIES_MAX);
        let bytes = |key| at_most(key, PACKED_VALUE_BYTES_MAX);
        // Values from -1 to -5 stand for 4, 8, 16, 32, 64 KiB; Redis reads smaller ones as -5.
        let list_size = self.signed(Key::ListMaxListpackSize).max(-5);
        let (list_entries, list_bytes) = match u32::try_from(list_size) {
            Ok(entries) => (entries.clamp(1, PACKED_ENTRIES_MAX), LIST_BYTES_MAX),
            Err(_) => (u32::MAX, 2048 << list_size.unsigned_abs()),
        };
        PackedLimits {
            list_entries,
            list_bytes,
            set_integers: number(Key::SetMaxIntsetEntries),
            set_entries: number(Key::SetMaxListpackEntries),
            set_value_bytes: bytes(Key::SetMaxListpackValue),
            zset_entries: number(Key::ZsetMaxListpackEntries),
            zset_value_bytes: bytes(Key::ZsetMaxListpackValue),
            hash_entries: number(Key::HashMaxListpackEntries),
            hash_value_bytes: bytes(Key::HashMaxListpackValue),
        }
    }
}

/// The setting with this name or further name, ignoring case; `None` if unknown.
pub fn setting_named(name: &[u8]) -> Option<&'static Setting> {
    find(std::str::from_utf8(name).ok()?).ok().map(|(_, setting)| setting)
}

/// Whether a value that was given for this name may be shown to others. `false` if the value may be a
/// password: for a secret setting, for an unknown name, and for a name that ends like that of a password.
pub fn may_show_value(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let is_known = match find(name) {
        Ok((_, setting)) => !setting.is_secret(),
        Err(_) => inert_named(name).is_some() || name.eq_ignore_ascii_case(FORCE_RECOVERY),
    };
    let lower = name.to_ascii_lowercase();
    is_known && !["pass", "auth", "password", "secret"].iter().any(|ending| lower.ends_with(ending))
}

fn find(name: &str) -> Result<(usize, &'static Setting), ConfigError> {
    let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    let name = alias.map_or(name, |(_, key)| OPTIONS[*key as usize].name);
    let known = OPTIONS.iter().enumerate().find(|(_, option)| option.name.eq_ignore_ascii_case(name));
    known.ok_or_else(|| ConfigError::Unknown { name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_renders_to_itself() {
        let settings = Settings::default();
        for (option, text) in settings.iter() {
            assert_eq!(option.parse(&text), option.parse(option.default), "{}", option.name);
        }
    }

    #[test]
    fn values_that_may_be_passwords_are_not_shown() {
        for shown in ["maxmemory", "MaxClients", "slaveof", "force-recovery", "tls-port", "requirepass-file"]
        {
            assert!(may_show_value(shown.as_bytes()), "{shown}");
        }
        let hidden = ["requirepass", "MASTERAUTH", "primaryauth", "admin-password", "tls-key-file-pass"];
        for hidden in [&hidden[..], &["sentinel-pass", "masterauht", "\"masterauth\"", ""]].concat() {
            assert!(!may_show_value(hidden.as_bytes()), "{hidden}");
        }
        assert!(!may_show_value(b"\xff"));
    }

    #[test]
    fn the_name_of_a_value_says_its_kind() {
        for option in OPTIONS {
            let fits = match option.kind {
                Kind::Switch => option.value == "yes|no",
                Kind::Bytes { .. } | Kind::BytesPowerOfTwo { .. } => option.value == "BYTES",
                Kind::Choice([only]) => only.is_empty() || option.value == *only,
                Kind::Choice(names) => option.value == names.join("|") || option.unlisted_names() == names,
                _ => !option.value.is_empty(),
            };
            assert!(fits, "{} {}", option.name, option.value);
        }
    }

    #[test]
    fn names_of_other_servers_are_answered_with_ours() {
        let error = Settings::default().set("appendfsync", "always").unwrap_err().to_string();
        assert!(error.starts_with("'appendfsync' is not known here: use --durability"), "{error}");
        // `set` does not know settings without a meaning: `set_inert` sets them.
        let error = Settings::default().set("hz", "10").unwrap_err().to_string();
        assert_eq!(error, "'hz' is not known here: there is nothing to set: leave it out");
    }

    #[test]
    fn a_client_is_told_what_it_can_set() {
        let told = |name: &str| Settings::default().set(name, "x").unwrap_err().for_client();
        assert_eq!(told("primary"), "unknown setting 'primary'; CONFIG GET * shows all settings");
        assert!(
            told("rename-command").starts_with("'rename-command' cannot be set here: commands keep their")
        );
        assert_eq!(told("maxmemroy"), "unknown setting 'maxmemroy'; did you mean 'maxmemory'?");
        assert_eq!(told("bogus"), "unknown setting 'bogus'; CONFIG GET * shows all settings");
    }

    #[test]
    fn keys_are_in_table_order() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert_eq!(option.key as usize, index, "{}", option.name);
        }
        // The budget was raised for tokens, a proxy and public members of users (five settings, as in
        // CouchDB), a Unix socket (two of Redis), the audit (one), the files of lines (two, one of them of
        // Redis), replicas that time out (one of Redis), HyperLogLogs (one of Redis), and traces (three).
        assert!(OPTIONS.len() < 117, "the budget for settings");
    }

    #[test]
    fn packed_limits_are_those_of_redis_by_default_and_have_older_names() {
        let mut settings = Settings::default();
        assert_eq!(settings.packed_limits(), PackedLimits::DEFAULT);
        settings.set("hash-max-ziplist-entries", "7").unwrap();
        settings.set("list-max-listpack-size", "3").unwrap();
        let limits = settings.packed_limits();
        assert_eq!((limits.hash_entries, limits.list_entries, limits.list_bytes), (7, 3, 8192));
        assert!(settings.aliases().any(|it| it == ("hash-max-ziplist-entries", "7".into())));
        settings.set("list-max-listpack-size", "-5").unwrap();
        assert_eq!(settings.packed_limits().list_bytes, 64 << 10);
    }

    #[test]
    fn packed_limits_that_redis_takes_are_taken_and_have_an_upper_end() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("hash-max-listpack-entries", "9223372036854775807"),
            ("set-max-intset-entries", "1000000"),
            ("zset-max-listpack-value", "1gb"),
            ("list-max-listpack-size", "-9"),
        ] {
            settings.set(name, value).unwrap();
        }
        let limits = settings.packed_limits();
        assert_eq!((limits.hash_entries, limits.set_integers), (32_000, 32_000));
        assert_eq!((limits.zset_value_bytes, limits.list_bytes), (1 << 20, 64 << 10));
        settings.set("list-max-listpack-size", "100000").unwrap();
        assert_eq!(settings.packed_limits().list_entries, 32_000);
        assert_eq!(settings.rendered(Key::ListMaxListpackSize), "100000");
    }

    #[test]
    fn settings_without_a_meaning_are_kept_and_shown_by_all_their_names() {
        let mut settings = Settings::default();
        let shown = |settings: &Settings, name: &str| {
            settings.inert().find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        assert_eq!(shown(&settings, "slave-priority").as_deref(), Some("100"));
        assert_eq!(settings.set_inert("Slave-Priority", "7"), Ok(Some("replica-priority")));
        assert_eq!(settings.set_inert("replica-priority", "8"), Ok(None), "said once");
        assert_eq!(shown(&settings, "slave-priority").as_deref(), Some("8"));
        assert_eq!(shown(&settings, "replica-priority").as_deref(), Some("8"));
        assert!(settings.set_inert("replica-priority", "x").is_err());
        assert_eq!(settings.set_inert_live("pidfile", "x"), Err("can't set immutable config".into()));
        assert_eq!(settings.set_inert("pidfile", "x"), Ok(Some("pidfile")));
        assert_eq!(shown(&settings, "replica-priority").as_deref(), Some("8"));
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest_known_one() {
        let error = Settings::default().set("maxmemroy", "1").unwrap_err();
        assert_eq!(error.to_string(), "unknown setting 'maxmemroy'; did you mean 'maxmemory'?");
        for name in ["nothing-like-it-at-all", "bogus", "x"] {
            let error = Settings::default().set(name, "1").unwrap_err().to_string();
            assert!(error.contains("--help"), "{error}");
        }
    }

    #[test]
    fn values_are_checked_against_their_kind_and_range() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("port", "65536"),
            ("port", "x"),
            ("durability", "maybe"),
            ("protected-mode", "2"),
            ("slowlog-log-slower-than", "-2"),
            ("notify-keyspace-events", "KEq"),
            ("log-segment-bytes", "63mb"),
            ("log-segment-bytes", "512kb"),
        ] {
            assert!(matches!(settings.set(name, value), Err(ConfigError::Invalid { .. })), "{name} {value}");
        }
        settings.set("maxmemory", "2gb").unwrap();
        assert_eq!(settings.integer(Key::Maxmemory), 2 << 30);
        settings.set("slowlog-log-slower-than", "-1").unwrap();
        assert_eq!(settings.signed(Key::SlowlogLogSlowerThan), -1);
        settings.set("notify-keyspace-events", "KExE$").unwrap();
        assert_eq!(settings.text(Key::NotifyKeyspaceEvents), "$xKE");
        settings.set("durability", "COMMIT").unwrap();
        assert_eq!(settings.text(Key::Durability), "commit");
    }

    #[test]
    fn an_example_in_an_error_is_a_value() {
        for option in OPTIONS {
            let Err(ConfigError::Invalid { reason, .. }) = option.parse("no value of this kind") else {
                continue;
            };
            if let Some((_, example)) = reason.split_once(", such as ") {
                assert!(option.parse(example).is_ok(), "{}: {reason}", option.name);
            }
        }
        assert!(Settings::default().set("max-document-size", "x").unwrap_err().to_string().contains("64mb"));
    }

    #[test]
    fn settings_with_one_value_refuse_others_with_the_reason() {
        for (name, value, reason) in [
            ("save", "900", "must stay empty: the log is the persistence"),
            ("appendonly", "no", "can only be yes"),
            ("databases", "8", "can only be 16"),
        ] {
            let error = Settings::default().set(name, value).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid value '{value}' for '{name}': {reason}"));
        }
    }

    #[test]
    fn a_running_server_refuses_changes_of_immutable_settings() {
        let mut settings = Settings::default();
        assert!(settings.set_live("maxmemory", "1mb").is_ok());
        assert!(matches!(settings.set_live("port", "1"), Err(ConfigError::Immutable { name: "port" })));
        assert!(settings.set_live("port", "6379").is_ok(), "the same value changes nothing");
        let error = settings.set_live("log-segment-bytes", "16mb").unwrap_err();
        assert_eq!(error.to_string(), "'log-segment-bytes' was fixed when the directory was created");
    }
}
