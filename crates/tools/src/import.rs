//! `sheaf import`: an RDB file of Redis or Valkey into the directory of a stopped server.
//!
//! ```text
//! lock -> recover what is there -> rehearse: read the whole file, decide about every key, write nothing
//!      -> mark the directory -> write the log -> make it durable -> remove the mark
//! ```
//!
//! What it is: the file read twice, so that whatever can be refused is refused before anything is written; then effects in
//! large records, through the log.
//! What it is not: online. A running server has the lock.
//!
//! Invariants
//! - A directory with a part of an import says so (`unfinished`), and is neither served nor exported. Interrupted imports
//!   start over: what they left in a directory without other keys is thrown away; elsewhere every key is whole.
//! - Memory does not depend on the file, but for what the directory already holds.

mod before;
mod log_writer;
#[cfg(test)]
mod tests;
mod transcript;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::ManifestError;
use env::{Access, DirLock, Disk, RealDisk};
use keyspace::{DbId, Keyspace, Libraries, SlotId};
use rdb::{Header, read_file};
use recovery::{
    data_directory::{Foreign, refuse_foreign},
    offline::{Place, ProgressBars, Report, Stage, Stream},
    recover::RecoverError,
    unfinished::{self, Unfinished, Work},
};
use storage::Control;

use self::{
    before::Before,
    log_writer::{EffectSink, LogWriter, Rehearsal},
    transcript::Transcript,
};

/// How to treat keys that the directory already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// There must be none.
    #[default]
    Refused,
    /// Those that the file has too are replaced.
    Replaced,
    /// They are kept, and what the file has for them is left out.
    Kept,
}

/// Why an import was refused or interrupted; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Another process uses the directory, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] env::LockError),
    /// The OS refused something.
    #[error("{doing}: {source}")]
    Os {
        /// What was tried.
        doing: String,
        /// What the OS said.
        source: std::io::Error,
    },
    /// The directory is not for a server.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The directory is a backup.
    #[error(transparent)]
    Backup(#[from] ManifestError),
    /// The directory holds a part of what was to be restored.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The file cannot be imported.
    #[error("the file cannot be imported: {0}")]
    File(rdb::FileError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] storage::Error),
    /// What is in the directory cannot be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// There are keys, and nothing was said about them.
    #[error(
        "{} holds {keys} keys already: --replace-existing lets keys of the file replace them, --keep-existing leaves out \
         keys of the file that exist", dir.display()
    )]
    HoldsKeys {
        /// The directory.
        dir: PathBuf,
        /// How many.
        keys: u64,
    },
    /// A key is in a database that does not exist.
    #[error(
        "key \"{key}\" is in database {db}, and there are {count} here, from 0 on: move it before you save the file"
    )]
    Database {
        /// The key.
        key: String,
        /// Its database.
        db: u64,
        /// The number of connected clients.
        count: usize,
    },
    /// The disk is too small.
    #[error("the import takes about {needed} bytes of log, and {} has {free} left", dir.display())]
    TooLarge {
        /// The directory.
        dir: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes left.
        free: u64,
    },
    /// The disk has become full.
    #[error("the disk has no room for the log: {0}")]
    NoRoom(String),
    /// It failed after it had begun to write.
    #[error(
        "{cause}. The import has not finished, and {} is not served before it has: run the same command again when the \
         cause is removed; it starts over", dir.display()
    )]
    Interrupted {
        /// Why.
        cause: Box<ImportError>,
        /// The directory.
        dir: PathBuf,
    },
}

impl ImportError {
    fn os(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> ImportError + use<> {
        let doing = format!("cannot {doing} {}", path.display());
        |source| ImportError::Os { doing, source }
    }
}

/// What was imported, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// What the file says about itself.
    pub header: Option<Header>,
    /// Keys by type: strings, lists, sets, sorted sets, hashes, streams.
    pub keys: [u64; 6],
    /// Keys among them that took the place of others.
    pub replaced: u64,
    /// Keys of the file that were left out because they exist.
    pub kept: u64,
    /// Keys that have expired.
    pub expired_keys: u64,
    /// Fields of hashes that have expired.
    pub expired_fields: u64,
    /// Collections without elements, or only with such that have expired.
    pub empty: u64,
    /// Number of libraries of functions.
    pub libraries: u64,
    /// Libraries of the file that were left out because there is one of their name.
    pub kept_libraries: u64,
    /// Libraries that cannot be taken over.
    pub refused_libraries: u64,
    /// Why the first of them cannot.
    pub first_refusal: Option<String>,
    /// What modules keep beside keys, which was passed over.
    pub module_data: u64,
    /// Bytes of the changes in the log.
    pub log_bytes: u64,
}

impl Imported {
    /// All keys that were written.
    pub fn keys_total(&self) -> u64 {
        self.keys.iter().sum()
    }
}

/// `sheaf import`: imports `file` into `dir` and prints what was done.
///
/// # Errors
/// See [`ImportError`].
pub fn run(file: &Path, dir: &Path, existing: Existing) -> Result<(), ImportError> {
    run_named(file, &file.display().to_string(), dir, existing)
}

/// As [`run`], of a file that people know by another name.
///
/// # Errors
/// See [`ImportError`].
pub(crate) fn run_named(file: &Path, name: &str, dir: &Path, existing: Existing) -> Result<(), ImportError> {
    let disk = Arc::new(RealDisk);
    disk.open(file, Access::Read).map_err(ImportError::os("open", file))?;
    refuse_foreign(dir, None)?;
    disk.create_dir_all(dir).map_err(ImportError::os("create", dir))?;
    let _lock = DirLock::acquire(dir)?;
    backup::refuse_backup(&*disk, dir)?;
    let bars = ProgressBars::default();
    let imported =
        import(&Place::real(dir), file, existing, &|stage, done, total| bars.show(stage, done, total));
    bars.finish();
    print!("{}", summary(&imported?, name));
    Ok(())
}

/// What people are told at the end.
fn summary(imported: &Imported, source: &str) -> String {
    use std::fmt::Write;
    const TYPE_NAMES: [&str; 6] = ["strings", "lists", "sets", "sorted sets", "hashes", "streams"];
    let mut text = String::new();
    let mut line = |name: &str, what: String| _ = writeln!(text, "{name:<12} {what}");
    let of = imported
        .header
        .as_ref()
        .map_or(String::new(), |Header { server, version }| format!(", {server} RDB version {version}"));
    let mut types: Vec<String> = Vec::new();
    for (count, name) in imported.keys.iter().zip(TYPE_NAMES).filter(|(count, _)| **count > 0) {
        types.push(format!("{name} {count}"));
    }
    let types = if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
    line("imported", format!("{} keys from {source}{of}{types}", imported.keys_total()));
    line("log", format!("{} bytes written, durable", imported.log_bytes));
    let mut count = |name: &str, count: u64, what: &str| {
        if count > 0 {
            line(name, format!("{count} {what}"));
        }
    };
    count("replaced", imported.replaced, "keys that existed");
    count("kept", imported.kept, "keys that existed; what the file has for them is left out");
    count("expired", imported.expired_keys, "keys, left out");
    count("expired", imported.expired_fields, "fields of hashes, left out");
    count("empty", imported.empty, "collections, left out");
    count("functions", imported.libraries, "libraries");
    count("kept", imported.kept_libraries, "libraries that existed; those of the file are left out");
    let why = imported.first_refusal.as_deref().unwrap_or_default();
    count(
        "NOT IMPORTED",
        imported.refused_libraries,
        &format!("libraries of functions, the first one: {why}"),
    );
    count("NOT IMPORTED", imported.module_data, "records of modules");
    text
}

/// Reads a whole file and says what an import would do with it; writes nothing.
///
/// # Errors
/// See [`ImportError`].
pub(crate) fn verify(file: &Path, report: Report<'_>) -> Result<Imported, ImportError> {
    let place = Place::real(Path::new(""));
    let (existing, now_ms) = (Existing::Refused, place.clock.unix_ms());
    let (present, libraries, what) = (None, Arc::default(), Stage::Verifying);
    let reading = Reading { place: &place, file, present, libraries, existing, now_ms, what, report };
    reading.read(Rehearsal::default()).map(|(_, found)| found)
}

/// Imports `file`. The directory must be locked.
pub(crate) fn import(
    place: &Place<'_>,
    file: &Path,
    existing: Existing,
    report: Report<'_>,
) -> Result<Imported, ImportError> {
    let Place { disk, dir, .. } = place;
    unfinished::refuse(&**disk, dir, Work::Restore)?;
    let interrupted = Before::find(&**disk, dir).map_err(ImportError::os("look into", dir))?;
    let (keyspace, recovery) = match Control::load(&**disk, dir)? {
        // Not made before the directory is marked.
        None => (None, None),
        Some(_) => {
            let (keyspace, recovery) = place.load(report)?;
            (Some(keyspace), Some(recovery))
        }
    };
    let now_ms = place.clock.unix_ms();
    let keys = keyspace.as_ref().map_or(0, |keyspace| live_keys(keyspace, now_ms));
    let before = interrupted.unwrap_or(if keys == 0 { Before::Nothing } else { Before::Keys });
    if before == Before::Keys && existing == Existing::Refused {
        return Err(ImportError::HoldsKeys { dir: dir.to_path_buf(), keys });
    }
    // Of an interrupted import, or expired: nothing that anybody can miss.
    let has_leftovers =
        before == Before::Nothing && keyspace.as_ref().is_some_and(|keyspace| !keyspace.is_empty());
    let present = keyspace.as_ref().filter(|_| before == Before::Keys);
    let libraries = keyspace.as_ref().map_or_else(Arc::default, |keyspace| keyspace.libraries().libraries);
    let settings = keyspace.as_ref().map_or_else(Arc::default, |keyspace| keyspace.data_settings());
    let open = |what| {
        let libraries = libraries.clone();
        Reading { place, file, present, libraries, existing, now_ms, what, report }
    };

    let (rehearsal, _) = open(Stage::Verifying).read(Rehearsal::default())?;
    let free = disk.free_bytes(dir).map_err(ImportError::os("look into", dir))?;
    if rehearsal.bytes > free && !has_leftovers {
        return Err(ImportError::TooLarge { dir: dir.to_path_buf(), needed: rehearsal.bytes, free });
    }

    unfinished::begin(&**disk, dir, Work::Import, before.text()).map_err(ImportError::os("mark", dir))?;
    let write = || {
        let recovery = recovery.map_or_else(|| place.load(report).map(|(_, recovery)| recovery), Ok)?;
        let log = recovery.finish(place.clock.clone())?;
        let mut writer = LogWriter::new(log.clone());
        if has_leftovers {
            writer.forget_keys(&libraries, &settings)?;
        }
        let (mut writer, imported) = open(Stage::Importing).read(writer)?;
        writer.sync()?;
        log.close()?;
        unfinished::end(&**disk, dir, Work::Import).map_err(ImportError::os("unmark", dir))?;
        Ok(Imported { log_bytes: rehearsal.bytes, ..imported })
    };
    write().map_err(|cause| ImportError::Interrupted { cause: Box::new(cause), dir: dir.to_path_buf() })
}

/// Keys that have not expired.
fn live_keys(keyspace: &Keyspace, now_ms: u64) -> u64 {
    let live = |slot: SlotId| {
        let slot = keyspace.lock(slot);
        DbId::all()
            .map(|db| slot.entries(db).filter(|entry| !entry.is_expired(now_ms)).count() as u64)
            .sum::<u64>()
    };
    SlotId::all().map(live).sum()
}

/// One pass over the file.
struct Reading<'a> {
    place: &'a Place<'a>,
    file: &'a Path,
    present: Option<&'a Keyspace>,
    libraries: Arc<Libraries>,
    existing: Existing,
    now_ms: u64,
    what: Stage,
    report: Report<'a>,
}

impl Reading<'_> {
    fn read<S: EffectSink>(self, sink: S) -> Result<(S, Imported), ImportError> {
        let file =
            self.place.disk.open(self.file, Access::Read).map_err(ImportError::os("open", self.file))?;
        let total = file.len().map_err(ImportError::os("open", self.file))?;
        let moved = |bytes| (self.report)(self.what, bytes, total);
        let mut transcript =
            Transcript::new(sink, (self.present, self.libraries), self.existing, self.now_ms);
        let header = read_file(Stream::new(file, &moved), &mut transcript)?;
        let Transcript { sink, imported, .. } = transcript;
        Ok((sink, Imported { header: Some(header), ..imported }))
    }
}
