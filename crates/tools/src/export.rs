//! `sheaf export`: the data of a server as an RDB file.
//!
//! The command recovers the data into memory and writes a file that Redis and Valkey load. The file is
//! written under a temporary name and renamed once durable; the data in the directory does not change. The
//! data of a running server is copied first, as a backup beside the file. An export is not a backup (see
//! `backup`): it has no log, and only the final state.
//!
//! Invariants
//! - Of keys and functions, only expired data is left out. Data that the format version cannot hold is
//!   refused, or dropped if the caller requested that. Documents are not exported, and the command says so.
//! - The copy of a running server is removed at the end; after an interruption the same command resumes it.

use std::{
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::fetch::BackupError;
use env::{Access, DirLock, RealDisk};
use keyspace::{DbId, EntryRef, Keyspace, SlotId, View};
use propagation::dump::{self, VERSION_EXPIRING_FIELDS, for_each_live};
use recovery::{
    offline::{Place, ProgressBars, Report, Stage, Stream},
    recover::RecoverError,
    unfinished::{Unfinished, refuse_unfinished},
};
use storage::Control;

use crate::{backup::Source, counted::counted};

/// The ending of the directory into which a running server is copied. This ending is added to the whole name
/// of the file.
const COPY_ENDING: &str = ".export-copy";
/// Number of keys between two progress reports.
const REPORT_KEYS: u64 = 1024;

/// The format of the RDB file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The version of the RDB format.
    pub version: u16,
    /// Whether field expiry is dropped if the version cannot hold it.
    pub drops_field_expiry: bool,
}

impl Format {
    /// Versions that can be written.
    pub const VERSIONS: RangeInclusive<i64> = 10..=12;
    /// The version of Redis 7.0, which later servers load too.
    pub const DEFAULT_VERSION: u16 = 10;
}

/// Why the export failed; the message says how to proceed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The directory has no control file, so it holds no data.
    #[error("{} holds no data of sheaf", .0.display())]
    NoData(PathBuf),
    /// Another process uses the directory, or it cannot be locked.
    #[error("{}", .0.with_remedy("Stop it, or copy it while it runs: --from http://HOST:PORT, its HTTP port"))]
    Lock(#[from] env::LockError),
    /// An import or a restore into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The manifest of a backup cannot be read.
    #[error(transparent)]
    Backup(#[from] backup::ManifestError),
    /// The directory cannot be read.
    #[error(transparent)]
    Log(#[from] storage::Error),
    /// The data cannot be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The address begins neither with `http://` nor with `https://`.
    #[error(
        "{0:?} is not the HTTP port of a Sheaf, such as http://127.0.0.1:5984. A Redis or Valkey writes such a file by itself: \
         redis-cli -h HOST --rdb FILE"
    )]
    NotHttp(String),
    /// The running server could not be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The copy of the running server cannot be removed.
    #[error("cannot remove the copy in {}: {error}", path.display())]
    Remove {
        /// The directory of the copy.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The format version cannot hold the expiry of hash fields.
    #[error(
        "{fields} fields of {hashes} hashes expire (the first is \"{first}\"), which RDB version {version} cannot hold: write \
         version 12 with --rdb-version 12, or fields that do not expire with --drop-field-expiry"
    )]
    FieldExpiry {
        /// The number of fields with a deadline.
        fields: u64,
        /// Number of hashes with such fields.
        hashes: u64,
        /// The key of one of them.
        first: String,
        /// The requested version of the RDB format.
        version: u16,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The path of the RDB file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// The result of an export, for the summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    /// Number of keys in the file.
    pub keys: u64,
    /// Number of function libraries in the file.
    pub libraries: u64,
    /// Number of expired keys, which were left out.
    pub expired: u64,
    /// Number of fields whose expiry was dropped.
    pub fields_made_lasting: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// `sheaf export --from`: as [`run`], for a running server. The data of the server is copied into a directory
/// beside `file`.
///
/// # Errors
/// [`ExportError`].
pub fn run_live(file: &Path, source: &Source, format: Format) -> Result<(), ExportError> {
    if !["http://", "https://"].iter().any(|scheme| source.url.starts_with(scheme)) {
        return Err(ExportError::NotHttp(source.url.clone()));
    }
    let mut copy = file.as_os_str().to_owned();
    copy.push(COPY_ENDING);
    let copy = PathBuf::from(copy);
    // If this is interrupted, the copy stays, and is resumed.
    source.copy_into(&copy)?;
    let exported = run(file, &copy, format);
    let removed = std::fs::remove_dir_all(&copy).map_err(|error| ExportError::Remove { path: copy, error });
    exported.and(removed)
}

/// `sheaf export`: writes the data of `dir` to `file` and prints the result.
///
/// # Errors
/// [`ExportError`].
pub fn run(file: &Path, dir: &Path, format: Format) -> Result<(), ExportError> {
    let (disk, _) = backup::view(Arc::new(RealDisk), dir)?;
    if Control::load(&*disk, dir)?.is_none() {
        return Err(ExportError::NoData(dir.to_path_buf()));
    }
    let _lock = DirLock::acquire(dir)?;
    let bars = ProgressBars::default();
    let exported =
        export(&Place { disk: disk.clone(), ..Place::real(dir) }, file, format, &|stage, done, total| {
            bars.show(stage, done, total)
        });
    bars.finish();
    let Exported { keys, libraries, expired, fields_made_lasting, bytes } = exported?;
    let exported = counted(keys, "key", "keys");
    println!("exported     {exported} to {}, {bytes} bytes, RDB version {}", file.display(), format.version);
    if libraries > 0 {
        println!("functions    {}", counted(libraries, "library", "libraries"));
    }
    if expired > 0 {
        println!("expired      {}, left out", counted(expired, "key", "keys"));
    }
    if fields_made_lasting > 0 {
        let fields = counted(fields_made_lasting, "field", "fields");
        println!("NOT EXPORTED the expiry of {fields} of hashes");
    }
    // The catalog is looked for through `disk`, which is a view if `dir` is a backup: an increment may have
    // stored the catalog under another name.
    if disk.open(&documents::directory(dir).join(documents::CATALOG_NAME), Access::Read).is_ok() {
        println!("NOT EXPORTED documents: an RDB file has none. `sheaf backup` has them");
    }
    Ok(())
}

/// Exports to `file`. The directory must be locked.
pub(crate) fn export(
    place: &Place<'_>,
    file: &Path,
    format: Format,
    report: Report<'_>,
) -> Result<Exported, ExportError> {
    refuse_unfinished(&*place.disk, place.dir)?;
    let (keyspace, _) = place.load(report)?;
    let now_ms = place.clock.unix_ms();
    let content = Content::of(&keyspace, now_ms);
    let libraries = keyspace.libraries().libraries;
    let knows_expiring_fields = format.version >= VERSION_EXPIRING_FIELDS;
    if let Some(first) =
        content.first_expiring.filter(|_| !knows_expiring_fields && !format.drops_field_expiry)
    {
        let Content { fields, hashes, .. } = content;
        return Err(ExportError::FieldExpiry { fields, hashes, first, version: format.version });
    }
    let failed = |error| ExportError::Write { path: file.to_path_buf(), error };
    let keys = content.keys.iter().map(|(keys, _)| keys).sum();
    let mut bytes = 0;
    env::crashsafe::write_atomically_with(&*place.disk, file, |new| {
        let mut writer = dump::begin(Stream::new(new, &|_| {}), format.version, now_ms);
        libraries.iter().for_each(|library| writer.library(&library.code));
        let mut done = 0;
        for (db, (keys_of_db, expiring)) in DbId::all().zip(content.keys).filter(|(_, (keys, _))| *keys > 0) {
            writer.select(db.get().into(), keys_of_db, expiring);
            for_each_live(&keyspace, SlotId::all(), db, now_ms, |entry| {
                dump::key(&mut writer, entry, now_ms);
                done += 1;
                if done % REPORT_KEYS == 0 {
                    report(Stage::Exporting, done, keys);
                }
            });
        }
        bytes = writer.finish()?.offset();
        Ok(())
    })
    .map_err(failed)?;
    let fields_made_lasting = if knows_expiring_fields { 0 } else { content.fields };
    let libraries = libraries.len() as u64;
    Ok(Exported { keys, libraries, expired: content.expired, fields_made_lasting, bytes })
}

/// Counts of the data to be exported.
#[derive(Default)]
struct Content {
    /// For each database, the number of keys, and of keys with a deadline.
    keys: [(u64, u64); keyspace::DB_COUNT],
    /// The number of expired keys, which are left out.
    expired: u64,
    /// Fields with a deadline, the hashes that have them, and the key of the first such hash.
    fields: u64,
    hashes: u64,
    first_expiring: Option<String>,
}

impl Content {
    fn of(keyspace: &Keyspace, now_ms: u64) -> Content {
        let mut content = Content::default();
        for db in DbId::all() {
            let mut live = (0, 0);
            for_each_live(keyspace, SlotId::all(), db, now_ms, |entry| {
                live.0 += 1;
                live.1 += u64::from(entry.expire_at_ms().is_some());
                content.look_at_fields(entry, now_ms);
            });
            content.keys[db.index()] = live;
            content.expired += keyspace.len(db) - live.0;
        }
        content
    }

    fn look_at_fields(&mut self, entry: EntryRef<'_>, now_ms: u64) {
        let View::Hash(hash) = entry.view() else { return };
        if !hash.has_deadlines() {
            return;
        }
        let expires =
            |field: &keyspace::HashField<'_>| field.expire_at_ms.is_some() && !field.is_expired(now_ms);
        let fields = hash.iter().filter(expires).count() as u64;
        if fields > 0 {
            self.fields += fields;
            self.hashes += 1;
            self.first_expiring.get_or_insert_with(|| entry.key().escape_ascii().to_string());
        }
    }
}
