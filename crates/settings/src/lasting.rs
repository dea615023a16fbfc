//! The sources of settings, and their storage across restarts.
//!
//! ```text
//! defaults < settings.toml in the data directory < configuration file < SHEAF_* variables < flags
//!                ^                                     ^
//!                | CONFIG SET without a                | CONFIG REWRITE, and a change over HTTP
//!                | configuration file,                 | with a configuration file
//!                | a change over HTTP                  |
//! ```
//!
//! A password from a file counts as a flag. The settings in force are not here, but in [`Settings`]. Settings
//! that belong to the data are stored as records in the log (`data_settings`); of those, only values in a
//! file, a variable or a flag matter here.
//!
//! Invariants
//! - Only [`Lasting::keep_one`] and [`Lasting::rewrite`] write the configuration file.
//! - CONFIG REWRITE writes no value that a flag or a variable has given and no client has changed.

use std::path::{Path, PathBuf};

use super::{
    ConfigError, Key, OPTIONS, Setting, Settings,
    environment::variable,
    file::{self, Line, NotStored},
    find, inert_named, instead_of, password_file,
    redis_file::{self, RedisFile, is_redis_file},
};

/// The file in the data directory with the settings changed by clients.
const KEPT_FILE: &str = "settings.toml";

const KEPT_HEADER: &str = "# What this server was told to keep, by CONFIG SET and over HTTP (/_node/_local/_config). A configuration \
                           file, variables and flags override it.\n";

/// The source of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// No source gives a value: the default holds.
    Default,
    /// `settings.toml`, set by a client.
    Kept,
    /// The configuration file, of TOML or of Redis.
    File,
    /// An environment variable that begins with `SHEAF_`.
    Variable,
    /// A flag.
    Flag,
}

/// A value given by a variable or a flag.
#[derive(Debug, Clone)]
pub struct Given {
    /// The setting, by any of its names.
    pub name: String,
    /// The value, as text.
    pub value: String,
    /// The kind of source: [`Origin::Variable`] or [`Origin::Flag`].
    pub origin: Origin,
}

impl Given {
    fn place(&self) -> String {
        match self.origin {
            Origin::Variable => variable(&self.name),
            _ => format!("--{}", self.name),
        }
    }
}

/// The result of reading the configuration file again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// Changed values that can be applied now.
    pub changed: Vec<(Key, String)>,
    /// Changed settings that take effect only after a restart.
    pub needs_restart: Vec<&'static str>,
    /// Changed settings that are overridden by a variable or a flag.
    pub overridden: Vec<&'static str>,
}

/// The values of settings from all sources except the log, and the files in which they are stored.
#[derive(Debug, Default)]
pub struct Lasting {
    config_file: Option<PathBuf>,
    kept_file: PathBuf,
    /// Whether the file in the data directory existed when it was last read or written.
    has_kept: bool,
    kept: Vec<Line>,
    lines: Vec<Line>,
    /// The names in the configuration file that have no effect.
    without_effect: Vec<String>,
    /// The flags of Redis that have no effect.
    flags_without_effect: Vec<String>,
    given: Vec<Given>,
    /// The settings given by the files alone.
    base: Settings,
}

impl Lasting {
    /// Reads the configuration file, if given, and the settings file of the data directory.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged, a name is unknown, a value is invalid, or a password is given
    /// twice; the first error, with its position if it has one.
    pub fn load(config_file: Option<PathBuf>, given: Vec<Given>) -> Result<(Settings, Lasting), ConfigError> {
        let RedisFile { lines, without_effect } =
            config_file.as_deref().map_or(Ok(RedisFile::default()), read)?;
        let mut lasting = Lasting { config_file, lines, without_effect, given, ..Lasting::default() };
        lasting.base = lasting.base_of(&[], &lasting.lines)?;
        let settings = lasting.with_given()?;
        lasting.refuse_no_door(&settings)?;
        let passwords = password_file::given(&settings)?;
        lasting.given.extend(passwords);
        // The data directory must be known before its file can be read.
        lasting.kept_file = Path::new(settings.text(Key::Dir)).join(KEPT_FILE);
        lasting.has_kept = lasting.kept_file.exists();
        if lasting.has_kept {
            lasting.kept = file::read_sealed(&lasting.kept_file)?;
            lasting.base = lasting.base_of(&lasting.kept, &lasting.lines)?;
        }
        Ok((lasting.with_given()?, lasting))
    }

    /// Takes flags of Redis that have no effect here, each as its name, a space and its value.
    /// [`Lasting::report`] names the flags. CONFIG GET shows the values of those that are in
    /// [`INERT`](super::INERT).
    pub fn take_without_effect<'a>(&mut self, settings: &mut Settings, flags: impl Iterator<Item = &'a str>) {
        for (name, value) in flags.filter_map(|flag| flag.split_once(' ')) {
            // The values were checked before. The name may be one of which nothing is kept, such as `save`.
            _ = settings.set_inert(name, value);
            let advice = instead_of(name).map_or(String::new(), |advice| format!(" ({advice})"));
            self.flags_without_effect.push(format!("{name}{advice}"));
        }
    }

    /// Refuses a file of Redis that closes the plain port and opens no other one: here, `port 0` alone means
    /// any free port.
    fn refuse_no_door(&self, settings: &Settings) -> Result<(), ConfigError> {
        let is_redis = self.config_file().is_some_and(is_redis_file);
        let closes = self.lines.iter().rfind(|line| line.name == "port");
        let is_open = settings.integer(Key::Port) != 0
            || settings.integer(Key::TlsPort) != 0
            || !settings.text(Key::Unixsocket).is_empty();
        match closes.filter(|_| is_redis && !is_open) {
            Some(line) => {
                let reason = "no client could connect: there is neither tls-port nor unixsocket".into();
                let error = ConfigError::Invalid { name: "port", value: line.value.clone(), reason };
                Err(error.at(line.place.clone()))
            }
            None => Ok(()),
        }
    }

    /// The path of the configuration file; `None` without one.
    pub fn config_file(&self) -> Option<&Path> {
        self.config_file.as_deref()
    }

    /// The settings given by lines of the data directory's file and of the configuration file.
    fn base_of(&self, kept: &[Line], lines: &[Line]) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        let config_file = self.config_file.as_deref().unwrap_or(Path::new(""));
        for (path, lines) in [(&*self.kept_file, kept), (config_file, lines)] {
            for Line { name, value, place } in lines {
                // The reader of Redis' files has accepted the value.
                if is_redis_file(path) && inert_named(name).is_some() {
                    _ = settings.set_inert(name, value);
                    continue;
                }
                if path == &*self.kept_file && find(name).is_ok_and(|(_, setting)| setting.key == Key::Dir) {
                    // With this value, the server would use another data directory than the one that this
                    // file is in.
                    let reason = "this file is in the directory of the data, so it cannot name one".into();
                    let error = ConfigError::Invalid { name: "dir", value: value.clone(), reason };
                    return Err(error.at(place.clone()));
                }
                settings.set(name, value).map_err(|error| error.at(place.clone()))?;
            }
        }
        Ok(settings)
    }

    fn with_given(&self) -> Result<Settings, ConfigError> {
        self.with_given_over(self.base.clone())
    }

    /// These settings, with the values of variables and flags. A variable or a flag may leave part of a
    /// setting as it is: the output limits of the classes of clients that the variable or flag does not name.
    fn with_given_over(&self, mut settings: Settings) -> Result<Settings, ConfigError> {
        for given in &self.given {
            settings.set(&given.name, &given.value).map_err(|error| error.at(given.place()))?;
        }
        Ok(settings)
    }

    /// The source of the value that a start puts in force, from the files as they were last read or written.
    pub fn origin(&self, key: Key) -> Origin {
        let is_it = |name: &str| find(name).is_ok_and(|(_, setting)| setting.key == key);
        if let Some(given) = self.given.iter().rev().find(|given| is_it(&given.name)) {
            return given.origin;
        }
        let has = |lines: &[Line]| lines.iter().any(|line| is_it(&line.name));
        match (has(&self.lines), has(&self.kept)) {
            (true, _) => Origin::File,
            (false, true) => Origin::Kept,
            (false, false) => Origin::Default,
        }
    }

    /// Whether a variable or a flag sets the setting.
    fn is_given(&self, key: Key) -> bool {
        matches!(self.origin(key), Origin::Variable | Origin::Flag)
    }

    /// Logs which settings changed by clients are in force, and which are overridden by another source; and
    /// the flags, and lines of the configuration file, that have no effect.
    pub fn report(&self) {
        if !self.flags_without_effect.is_empty() {
            let names = self.flags_without_effect.join(", ");
            tracing::info!(target: "server", names, "flags that have no effect here");
        }
        if let (Some(file), false) = (&self.config_file, self.without_effect.is_empty()) {
            tracing::info!(
                target: "server", file = %file.display(), names = self.without_effect.join(", "),
                "lines of the configuration file that have no effect here"
            );
        }
        let (mut in_force, mut overridden) = (Vec::new(), Vec::new());
        for line in &self.kept {
            let Ok((_, setting)) = find(&line.name) else { continue };
            match self.origin(setting.key) {
                Origin::Kept => in_force.push(setting.name.to_owned()),
                Origin::File => overridden.push(format!("{} (configuration file)", setting.name)),
                Origin::Variable => overridden.push(format!("{} ({})", setting.name, variable(setting.name))),
                Origin::Flag => overridden.push(format!("{} (flag)", setting.name)),
                Origin::Default => {}
            }
        }
        if !self.kept.is_empty() {
            tracing::info!(
                target: "server", file = %self.kept_file.display(), in_force = in_force.join(", "),
                overridden = overridden.join(", "), "settings that clients have set"
            );
        }
    }

    /// Stores settings changed by clients for the next start. Stores nothing if there is a configuration
    /// file: the client must ask for CONFIG REWRITE. `mark` must note that the directory has the file of such
    /// settings. `mark` is called when the file exists, before the new values are in the file.
    ///
    /// # Errors
    /// The reason why the values were not stored. All old values or all new ones are then in the file.
    pub fn keep(
        &mut self,
        changed: &Settings,
        keys: &[Key],
        mark: &dyn Fn() -> Result<(), NotStored>,
    ) -> Result<(), NotStored> {
        self.tell_of_overrides(changed, keys);
        if self.config_file.is_some() {
            return Ok(());
        }
        let differs = |key: &&Key| changed.value(**key) != self.base.value(**key);
        let lasts = |key: &&Key| OPTIONS[**key as usize].mutable && !OPTIONS[**key as usize].of_data;
        let keys = keys.iter().filter(lasts).filter(differs);
        let changes: Vec<_> = keys.map(|key| change(changed, *key)).collect();
        self.write_kept(&changes, mark)
    }

    /// Stores the value of one setting, or removes it if `forgets`: in the configuration file if there is
    /// one, otherwise in the data directory. A setting that is fixed, or that belongs to the data, is not
    /// stored. `mark`: see [`Lasting::keep`].
    ///
    /// # Errors
    /// The reason why the value was not stored. All old values or all new ones are then in the file.
    pub fn keep_one(
        &mut self,
        changed: &Settings,
        key: Key,
        forgets: bool,
        mark: &dyn Fn() -> Result<(), NotStored>,
    ) -> Result<(), NotStored> {
        let (setting, value) = change(changed, key);
        if !setting.mutable || setting.of_data {
            return Ok(());
        }
        let changes = [(setting, value.filter(|_| !forgets))];
        self.tell_of_overrides(changed, &[key]);
        if self.config_file.is_some() { self.write_lines(&changes) } else { self.write_kept(&changes, mark) }
    }

    /// Updates the configuration file to the settings in force: changes lines with other values, and adds new
    /// ones.
    ///
    /// # Errors
    /// The complete error text.
    pub fn rewrite(&mut self, settings: &Settings) -> Result<(), String> {
        if self.config_file.is_none() {
            return Err("ERR The server is running without a config file".into());
        }
        let started = self.with_given().map_err(|error| format!("ERR {error}"))?;
        let has_line = |key| {
            let is_it = |line: &Line| find(&line.name).is_ok_and(|(_, setting)| setting.key == key);
            self.lines.iter().any(is_it)
        };
        let is_due = |setting: &&Setting| {
            let (key, now) = (setting.key, settings.value(setting.key));
            // Values of flags and variables apply again at the next start; settings of the data are in the
            // log.
            let is_given = self.is_given(key) && now == started.value(key);
            let is_elsewhere = setting.of_data && !has_line(key);
            setting.mutable && now != self.base.value(key) && !is_given && !is_elsewhere
        };
        let changes: Vec<_> = OPTIONS.iter().filter(is_due).map(|it| change(settings, it.key)).collect();
        self.write_lines(&changes).map_err(|error| format!("ERR Rewriting config file: {error}"))
    }

    /// Reads the configuration file again. Only settings that have changed since it was last read or written
    /// take effect: the others may have been overridden by a client meanwhile.
    ///
    /// # Errors
    /// As [`Lasting::load`]; nothing has changed then.
    pub fn reread(&mut self) -> Result<Reread, ConfigError> {
        let mut reread = Reread::default();
        let Some(path) = &self.config_file else { return Ok(reread) };
        let RedisFile { lines, without_effect } = read(path)?;
        let base = self.base_of(&self.kept, &lines)?;
        let (before, after) = (self.with_given()?, self.with_given_over(base.clone())?);
        for setting in OPTIONS.iter().filter(|it| base.value(it.key) != self.base.value(it.key)) {
            if before.value(setting.key) == after.value(setting.key) {
                reread.overridden.push(setting.name);
            } else if setting.mutable {
                reread.changed.push((setting.key, after.rendered(setting.key)));
            } else {
                reread.needs_restart.push(setting.name);
            }
        }
        (self.lines, self.without_effect, self.base) = (lines, without_effect, base);
        Ok(reread)
    }

    /// Seals the file of settings set by clients, if there is one: an administrator may have edited it, and
    /// earlier versions wrote it without a checksum. `mark`: see [`Lasting::keep`].
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or cannot be written, or `mark` fails.
    pub fn seal_kept(&self, mark: &dyn Fn() -> Result<(), NotStored>) -> Result<(), NotStored> {
        if !self.has_kept {
            return Ok(());
        }
        if file::seal(&self.kept_file, KEPT_HEADER)? {
            tracing::info!(
                target: "server", file = %self.kept_file.display(),
                "the file of settings had no checksum (it was edited, or is of an earlier version); now it has one"
            );
        }
        mark()
    }

    fn write_kept(
        &mut self,
        changes: &[(&'static Setting, Option<String>)],
        mark: &dyn Fn() -> Result<(), NotStored>,
    ) -> Result<(), NotStored> {
        if changes.is_empty() {
            return Ok(());
        }
        match (self.has_kept, self.kept_file.exists()) {
            // A new file would lack all that the removed one held.
            (true, false) => return Err(gone(&self.kept_file)),
            // The mark comes after the file and before its values: a crash or an error in between leaves
            // neither a mark without a file nor values that were refused.
            (false, false) => _ = file::prepare(&self.kept_file, Some(KEPT_HEADER), &[])?.write()?,
            (_, true) => {}
        }
        self.has_kept = true;
        mark()?;
        let change = file::prepare(&self.kept_file, Some(KEPT_HEADER), changes)?;
        let base = self.base_of(&change.lines, &self.lines).map_err(|error| error.to_string())?;
        (self.kept, self.base) = (change.write()?, base);
        Ok(())
    }

    fn write_lines(&mut self, changes: &[(&'static Setting, Option<String>)]) -> Result<(), NotStored> {
        let Some(path) = self.config_file.as_deref() else { return Ok(()) };
        // A new file would lack all that the removed one held.
        if !path.exists() {
            return Err(gone(path));
        }
        if changes.is_empty() {
            return Ok(());
        }
        if is_redis_file(path) {
            let path = path.display();
            return Err(format!(
                "{path} is a file of Redis, which is read only; `sheaf config convert {path}` prints one of TOML"
            )
            .into());
        }
        let change = file::prepare(path, None, changes)?;
        // Another line may be wrong: an administrator may have edited the file meanwhile.
        let base = self.base_of(&self.kept, &change.lines).map_err(|error| error.to_string())?;
        (self.lines, self.base) = (change.write()?, base);
        Ok(())
    }

    /// Warns of changed settings that have another value again at the next start, whatever the files say.
    fn tell_of_overrides(&self, changed: &Settings, keys: &[Key]) {
        let Ok(started) = self.with_given_over(changed.clone()) else { return };
        let is_overridden = |key: Key| changed.value(key) != started.value(key);
        for key in keys.iter().copied().filter(|key| is_overridden(*key)) {
            tracing::warn!(
                target: "server", setting = OPTIONS[key as usize].name,
                "changed until the next start only: a flag or a variable overrides it then"
            );
        }
    }
}

fn gone(path: &Path) -> NotStored {
    NotStored::Refused(format!("{} no longer exists", path.display()))
}

/// Reads a configuration file of either format.
fn read(path: &Path) -> Result<RedisFile, ConfigError> {
    if is_redis_file(path) {
        return redis_file::read(path);
    }
    Ok(RedisFile { lines: file::read(path)?, without_effect: Vec::new() })
}

fn change(settings: &Settings, key: Key) -> (&'static Setting, Option<String>) {
    (&OPTIONS[key as usize], Some(settings.rendered(key)))
}

#[cfg(test)]
mod tests;
