//! `sheaf import`: imports an RDB file of Redis or Valkey into the directory of a stopped server.
//!
//! ```text
//! lock -> recover the present data -> rehearse: read the whole file, decide about every key, write nothing
//!      -> mark the directory -> write the log -> make it durable -> remove the mark
//! ```
//!
//! The file is read twice, so that it is refused before anything is written; the second pass writes effects
//! in large records through the log. An import is offline: a running server holds the lock.
//!
//! Invariants
//! - A directory with a part of an import is marked (`unfinished`), and is neither served nor exported. An
//!   interrupted import starts over, from the same source. If the directory held no keys before, the keys of
//!   the interrupted import are removed first; otherwise these keys stay, each of them complete.
//! - A file with a key twice is refused, as Redis refuses it.
//! - Memory is bounded by the data already in the directory, a few dozen bytes for each key of the file, and
//!   the longest element: a collection is never in memory as a whole.

mod log_writer;
mod mark;
mod seen;
#[cfg(test)]
mod tests;
mod transcript;

use std::{
    io,
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
    log_writer::{EffectSink, LogWriter, Rehearsal},
    mark::{Before, Mark},
    seen::Seen,
    transcript::Transcript,
};
use crate::counted::counted;

/// How to treat keys that the directory already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Live keys in the directory are an error.
    #[default]
    Refused,
    /// Keys that are also in the file are replaced.
    Replaced,
    /// The keys in the directory are kept, and the same keys of the file are left out.
    Kept,
}

/// Why an import was refused or interrupted; the message says how to proceed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Another process uses the directory, or it cannot be locked.
    #[error("{}", .0.with_remedy("Stop it. A running server (--from) can be copied into it as it runs (--into)"))]
    Lock(#[from] env::LockError),
    /// An operation of the operating system failed.
    #[error("{doing}: {source}")]
    Os {
        /// The failed operation, in words, with the path.
        doing: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The directory is not a data directory.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The directory is a backup, into which nothing may be imported.
    #[error(transparent)]
    Backup(#[from] ManifestError),
    /// A restore or an import into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// An import from another source was interrupted.
    #[error(
        "an import of {source_before} into {} did not finish, so the directory holds only a part of it: run that import again. Or \
         remove {} to use what is there, and then import \"{source_now}\"", dir.display(), file.display()
    )]
    OtherSource {
        /// The directory of the interrupted import.
        dir: PathBuf,
        /// The path of the marker file.
        file: PathBuf,
        /// The source of the interrupted import, quoted.
        source_before: String,
        /// The source of the import that was refused, quoted.
        source_now: String,
    },
    /// The file cannot be read, or holds something that cannot be imported.
    #[error("the file cannot be imported: {0}")]
    File(rdb::FileError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] storage::Error),
    /// The data in the directory cannot be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The directory has keys, and no option for them was given.
    #[error(
        "{} holds {} already: --replace-existing lets keys of the file replace them, --keep-existing leaves out \
         keys of the file that exist", dir.display(), counted(*keys, "key", "keys")
    )]
    HoldsKeys {
        /// The directory that has keys.
        dir: PathBuf,
        /// The number of keys that have not expired in the directory.
        keys: u64,
    },
    /// A key is in a database that does not exist.
    #[error(
        "key \"{key}\" is in database {db}, and there are {count} here, from 0 on: move it before you save the file"
    )]
    Database {
        /// The name of the key, with escapes.
        key: String,
        /// The database of the key.
        db: u64,
        /// The number of databases that a server has.
        count: usize,
    },
    /// A key comes twice.
    #[error(
        "the file holds the key \"{key}\" of database {db} twice, which no server writes: it is damaged, or was joined \
         from several files"
    )]
    Twice {
        /// The name of the key, with escapes.
        key: String,
        /// The database of the key.
        db: u64,
    },
    /// A library of functions comes twice.
    #[error(
        "the file holds the library of functions \"{name}\" twice, which no server writes: it is damaged, or was joined \
         from several files"
    )]
    LibraryTwice {
        /// The name of the library.
        name: String,
    },
    /// The disk has too little free space.
    #[error("the import takes about {needed} bytes of log, and {} has {free} left", dir.display())]
    TooLarge {
        /// The directory on the disk.
        dir: PathBuf,
        /// About how many bytes the import needs.
        needed: u64,
        /// How many bytes are free.
        free: u64,
    },
    /// The disk became full during the import.
    #[error("the disk has no room for the log: {0}")]
    NoRoom(String),
    /// The import failed after it had begun to write.
    #[error(
        "{cause}. The import has not finished, and {} is not served before it has: run the same command again when the \
         cause is removed; it starts over", dir.display()
    )]
    Interrupted {
        /// The failure that ended the import.
        cause: Box<ImportError>,
        /// The directory that holds a part of the import.
        dir: PathBuf,
    },
}

impl ImportError {
    fn os(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> ImportError + use<> {
        let doing = format!("cannot {doing} {}", path.display());
        |source| ImportError::Os { doing, source }
    }
}

/// The result of an import, for the summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// The format of the file.
    pub header: Option<Header>,
    /// Number of keys by type: strings, lists, sets, sorted sets, hashes, streams.
    pub keys: [u64; 6],
    /// Number of these keys that replaced existing ones.
    pub replaced: u64,
    /// Number of keys left out because they exist in the directory.
    pub kept: u64,
    /// Number of expired keys, which were left out.
    pub expired_keys: u64,
    /// Number of expired fields of hashes, which were left out.
    pub expired_fields: u64,
    /// Number of collections left out because they have no elements, or only expired ones.
    pub empty: u64,
    /// Number of libraries of functions.
    pub libraries: u64,
    /// Number of libraries left out because one with the same name exists.
    pub kept_libraries: u64,
    /// Number of libraries that cannot be imported.
    pub refused_libraries: u64,
    /// The reason for the first refused library.
    pub first_refusal: Option<String>,
    /// Number of records of module data that belong to no key; they were skipped.
    pub module_data: u64,
    /// Whether the file is the base of an append-only file, without the writes after it.
    pub is_append_only_base: bool,
    /// The bytes of the changes that the import writes to the log.
    pub log_bytes: u64,
}

impl Imported {
    /// Number of all imported keys.
    pub fn keys_total(&self) -> u64 {
        self.keys.iter().sum()
    }
}

/// `sheaf import`: imports `file` into `dir` and prints the result.
///
/// # Errors
/// [`ImportError`].
pub fn run(file: &Path, dir: &Path, existing: Existing) -> Result<(), ImportError> {
    // The same file is the same source, in whichever directory the command runs.
    let source = std::path::absolute(file).map_err(ImportError::os("find", file))?;
    run_named(file, (&file.display().to_string(), &source.display().to_string()), dir, existing)
}

/// As [`run`], with another name for the file in the output, and in the marker of an unfinished import.
///
/// # Errors
/// [`ImportError`].
pub(crate) fn run_named(
    file: &Path,
    (name, source): (&str, &str),
    dir: &Path,
    existing: Existing,
) -> Result<(), ImportError> {
    let disk = Arc::new(RealDisk);
    disk.open(file, Access::Read).map_err(ImportError::os("open", file))?;
    refuse_foreign(dir, None)?;
    let is_new = !dir.exists();
    disk.create_dir_all(dir).map_err(ImportError::os("create", dir))?;
    let lock = DirLock::acquire(dir)?;
    backup::refuse_backup(&*disk, dir)?;
    let bars = ProgressBars::default();
    let report = |stage, done, total| bars.show(stage, done, total);
    let imported = import(&Place::real(dir), (file, source), existing, &report);
    bars.finish();
    if imported.is_err() && is_new {
        lock.discard_directory();
    }
    print!("{}", summary(&imported?, name));
    Ok(())
}

/// The text printed at the end.
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
    let keys = counted(imported.keys_total(), "key", "keys");
    line("imported", format!("{keys} from {source}{of}{types}"));
    line("log", format!("{} bytes written, durable", imported.log_bytes));
    let mut count = |name: &str, count: u64, (one, many): (&str, &str), more: &str| {
        if count > 0 {
            line(name, counted(count, one, many) + more);
        }
    };
    const KEYS: (&str, &str) = ("key", "keys");
    const LIBRARIES: (&str, &str) = ("library", "libraries");
    count("replaced", imported.replaced, KEYS, " that existed");
    count("kept", imported.kept, KEYS, " that existed; what the file has for them is left out");
    count("expired", imported.expired_keys, KEYS, ", left out");
    count("expired", imported.expired_fields, ("field", "fields"), " of hashes, left out");
    count("empty", imported.empty, ("collection", "collections"), ", left out");
    count("functions", imported.libraries, LIBRARIES, "");
    count("kept", imported.kept_libraries, LIBRARIES, " that existed; those of the file are left out");
    let why = imported.first_refusal.as_deref().unwrap_or_default();
    let refused = format!(" of functions, the first one: {why}");
    count("NOT IMPORTED", imported.refused_libraries, LIBRARIES, &refused);
    count("NOT IMPORTED", imported.module_data, ("record", "records"), " of modules");
    if imported.is_append_only_base {
        line(
            "NOT IMPORTED",
            "later writes: the file is the base of an append-only file, and they are in the .incr.aof beside it. \
             `redis-cli --rdb FILE` makes a file of everything, `sheaf import --from` copies a running server"
                .into(),
        );
    }
    text
}

/// Reads a whole file and returns the result that an import into an empty directory would have; writes
/// nothing.
///
/// # Errors
/// [`ImportError`].
pub(crate) fn verify(file: &Path, report: Report<'_>) -> Result<Imported, ImportError> {
    let place = Place::real(Path::new(""));
    let (existing, now_ms) = (Existing::Refused, place.clock.unix_ms());
    let (present, libraries, what) = (None, Arc::default(), Stage::Verifying);
    let reading = Reading { place: &place, file, present, libraries, existing, now_ms, what, report };
    reading.read(Rehearsal::default()).map(|(_, found)| found)
}

/// Imports `file`, which comes from `source`. The directory must be locked.
pub(crate) fn import(
    place: &Place<'_>,
    (file, source): (&Path, &str),
    existing: Existing,
    report: Report<'_>,
) -> Result<Imported, ImportError> {
    let Place { disk, dir, .. } = place;
    unfinished::refuse(&**disk, dir, Work::Restore)?;
    let interrupted = Mark::find(&**disk, dir).map_err(ImportError::os("look into", dir))?;
    if let Some(before) = interrupted.as_ref().and_then(|mark| mark.other_source(source)) {
        let (dir, file) = (dir.to_path_buf(), Work::Import.file(dir));
        let (source_before, source_now) = (before.into(), source.into());
        return Err(ImportError::OtherSource { dir, file, source_before, source_now });
    }
    let (keyspace, recovery) = match Control::load(&**disk, dir)? {
        // The log is created only after the directory is marked.
        None => (None, None),
        Some(_) => {
            let (keyspace, recovery) = place.load(report)?;
            (Some(keyspace), Some(recovery))
        }
    };
    let now_ms = place.clock.unix_ms();
    let keys = keyspace.as_ref().map_or(0, |keyspace| live_keys(keyspace, now_ms));
    let before =
        interrupted.map(|mark| mark.before).unwrap_or(if keys == 0 { Before::Nothing } else { Before::Keys });
    if before == Before::Keys && existing == Existing::Refused {
        return Err(ImportError::HoldsKeys { dir: dir.to_path_buf(), keys });
    }
    // Leftovers are keys of an interrupted import, or expired keys: they may be removed.
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

    let mark = Mark::new(before, source);
    unfinished::begin(&**disk, dir, Work::Import, &mark.text()).map_err(ImportError::os("mark", dir))?;
    let write = || {
        let recovery = recovery.map_or_else(|| place.load(report).map(|(_, recovery)| recovery), Ok)?;
        let log = recovery.finish(place.clock.clone())?;
        let mut writer = LogWriter::new(log.clone());
        if has_leftovers {
            let may_have_documents =
                has_been_served(&**disk, dir).map_err(ImportError::os("look into", dir))?;
            writer.forget_keys(&libraries, &settings, may_have_documents)?;
        }
        let (mut writer, imported) = open(Stage::Importing).read(writer)?;
        writer.sync()?;
        log.close()?;
        unfinished::end(&**disk, dir, Work::Import).map_err(ImportError::os("unmark", dir))?;
        Ok(Imported { log_bytes: rehearsal.bytes, ..imported })
    };
    write().map_err(|cause| ImportError::Interrupted { cause: Box::new(cause), dir: dir.to_path_buf() })
}

/// Whether a server has used the directory: only then may it have documents, saved or in the log.
fn has_been_served(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    match disk.list(&documents::directory(dir)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Number of keys that have not expired.
fn live_keys(keyspace: &Keyspace, now_ms: u64) -> u64 {
    let databases: Vec<DbId> = DbId::all().filter(|&db| keyspace.len(db) > 0).collect();
    let live = |slot: SlotId| {
        let slot = keyspace.lock(slot);
        let live = |&db: &DbId| slot.entries(db).filter(|entry| !entry.is_expired(now_ms)).count() as u64;
        databases.iter().map(live).sum::<u64>()
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
        // Only the first pass looks for keys that come twice.
        transcript.seen = (self.what == Stage::Verifying).then(Seen::default);
        let header = read_file(Stream::new(file, &moved), &mut transcript)?;
        let Transcript { sink, imported, .. } = transcript;
        Ok((sink, Imported { header: Some(header), ..imported }))
    }
}
