//! `backup.json`, the manifest of a complete backup; and `backup-unfinished`, the marker of one that is being
//! made or brought up to date.
//!
//! Both files are JSON. The manifest is written in format 2; formats 1 and 2 are read. Format 1 had no
//! increments, so every file is stored under its name.
//!
//! Invariants
//! - The backup is exactly the data named by the manifest: of each file the first `bytes`, stored as
//!   `stored_as` if given, else under its name. Later bytes of these files, and other files, belong to an
//!   unfinished increment, or are no longer needed. (Or they belong to a later state of a backup that shares
//!   files with this one by hard links.)
//! - The manifest is replaced atomically; at that moment an increment becomes the backup.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use env::{Access, Disk, File};
use serde::{Deserialize, Serialize};

/// The name of the manifest.
const FILE_NAME: &str = "backup.json";
/// The name of the marker of an unfinished backup.
const UNFINISHED_NAME: &str = "backup-unfinished";
/// The format version that is written, and the newest that is read.
const FORMAT: u32 = 2;
/// The maximum size of a manifest or marker that is read. A manifest takes about 110 bytes for each file, so
/// this is enough for two million files.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The manifest of a complete backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format version.
    pub format: u32,
    /// The version of the program that made the backup.
    pub sheaf_version: String,
    /// Identifies the log, and with it the server's data.
    pub log_id: String,
    /// Where snapshot and log begin.
    pub begin_lsn: u64,
    /// Where the log ends.
    pub end_lsn: u64,
    /// The chain value at the end of the log, in hex; it stands for the whole log. Earlier versions omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_chain: Option<String>,
    /// The server's time at the end of the log, in milliseconds since 1970.
    pub end_unix_ms: u64,
    /// `end_unix_ms` in a form for people.
    pub made_at: String,
    /// Number of increments since the full copy.
    #[serde(default)]
    pub increments: u32,
    /// The files of the backup.
    pub files: Vec<ManifestFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// The path of the file below a server's data directory, and below the backup unless `stored_as` is
    /// given.
    pub name: String,
    /// Number of its stored bytes that belong to the backup.
    pub bytes: u64,
    /// The CRC-32C of these bytes.
    pub crc32c: u32,
    /// The path of the file in the backup, if it is not `name`: an increment does not overwrite the file that
    /// an earlier state of the backup has stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_as: Option<String>,
}

/// The content of the marker of an unfinished backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unfinished {
    /// The name of the session, which is on disk before the server is asked for a session. So a copy that is
    /// often interrupted has only one session: a new session replaces the old one of the same name.
    pub(super) session: String,
    /// The increment in progress; 0 during a full copy.
    #[serde(default)]
    pub(super) increment: u32,
    /// The source of the copy; `None` before the server has made an offer.
    #[serde(flatten)]
    pub(super) source: Option<CopySource>,
}

/// Log and snapshot of an unfinished copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopySource {
    pub(super) log_id: String,
    pub(super) begin_lsn: u64,
}

/// A backup is incomplete, damaged or not permitted here.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The backup is incomplete.
    #[error("the backup in {} is not complete: run the same `sheaf backup` again to resume it", .0.display())]
    Incomplete(PathBuf),
    /// The directory is a backup, which must not be changed.
    #[error(
        "{} holds a backup, which must stay as it is: make a data directory of it with `sheaf restore {} --dir DIR`",
        .0.display(), .0.display()
    )]
    IsBackup(PathBuf),
    /// The manifest, or the marker of an unfinished backup, is invalid.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The path of the invalid file.
        path: PathBuf,
        /// A description of the error.
        reason: String,
    },
    /// A file does not match the manifest.
    #[error("the backup is damaged: {}: {reason}. Use another backup", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// A description of the damage.
        reason: String,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

fn os(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ManifestError {
    let path = path.to_path_buf();
    move |source| ManifestError::Os { doing, path, source }
}

/// Refuses a directory that is a complete or unfinished backup.
pub fn refuse_backup(disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
    refuse_incomplete(disk, dir)?;
    match exists(disk, &dir.join(FILE_NAME)) {
        true => Err(ManifestError::IsBackup(dir.to_path_buf())),
        false => Ok(()),
    }
}

/// Refuses a directory with an incomplete backup.
pub fn refuse_incomplete(disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
    match exists(disk, &dir.join(UNFINISHED_NAME)) && !exists(disk, &dir.join(FILE_NAME)) {
        true => Err(ManifestError::Incomplete(dir.to_path_buf())),
        false => Ok(()),
    }
}

/// Whether a backup into the directory, or an increment, is unfinished.
pub fn is_being_made(disk: &dyn Disk, dir: &Path) -> bool {
    exists(disk, &dir.join(UNFINISHED_NAME))
}

/// Whether a file exists; one that cannot be opened counts as existing.
fn exists(disk: &dyn Disk, path: &Path) -> bool {
    !matches!(disk.open(path, Access::Read), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

impl Manifest {
    /// A manifest of this program's version and format, without files.
    pub(super) fn new(offer: &super::Offer) -> Manifest {
        Manifest {
            format: FORMAT,
            sheaf_version: env!("CARGO_PKG_VERSION").into(),
            log_id: offer.log_id.clone(),
            begin_lsn: offer.begin_lsn,
            end_lsn: offer.end_lsn,
            end_chain: offer.end_chain.clone(),
            end_unix_ms: offer.end_unix_ms,
            made_at: recovery::unix_time::shown(offer.end_unix_ms),
            increments: 0,
            files: Vec::new(),
        }
    }

    /// Reads the manifest of the backup in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, is invalid, or has an unknown format.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Manifest>, ManifestError> {
        let path = dir.join(FILE_NAME);
        let Some(text) = read_small(disk, &path)? else { return Ok(None) };
        let refused = |reason: String| ManifestError::Manifest { path: path.clone(), reason };
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| refused(format!("is damaged: {error}")))?;
        if !(1..=FORMAT).contains(&manifest.format) {
            return Err(refused(format!(
                "format version {}, this program reads versions up to {FORMAT}",
                manifest.format
            )));
        }
        let lies_elsewhere = |file: &&ManifestFile| !is_below(&file.name) || !is_below(file.stored());
        match manifest.files.iter().find(lies_elsewhere) {
            Some(file) => Err(refused(format!("names '{}', which lies elsewhere", file.name))),
            None => Ok(Some(manifest)),
        }
    }

    /// Publishes this as the backup, durably, replacing an earlier one.
    pub(super) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_vec_pretty(self).expect("texts and numbers");
        env::crashsafe::write_atomically(disk, &path, &text).map_err(os("write", &path))
    }

    pub(super) fn file(&self, name: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// Checks that every file exists with all its bytes.
    ///
    /// # Errors
    /// The first file that is missing, too short or cannot be opened.
    pub fn check_sizes(&self, disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
        self.files.iter().try_for_each(|file| open_sized(disk, dir, file).map(drop))
    }

    /// Reads every byte and compares the checksums. `progress` is called with bytes done and total.
    ///
    /// # Errors
    /// The first file that cannot be read or does not match.
    pub fn check(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(), ManifestError> {
        let (mut done, total) = (0, self.bytes());
        for wanted in &self.files {
            let path = dir.join(wanted.stored());
            let file = open_sized(disk, dir, wanted)?;
            let crc = crc_of(&*file, wanted.bytes, |read| {
                done += read;
                progress(done, total);
            });
            if crc.map_err(os("read", &path))? != wanted.crc32c {
                let reason = "its checksum is not that of the copied file".into();
                return Err(ManifestError::Damaged { path, reason });
            }
        }
        Ok(())
    }
}

impl ManifestFile {
    /// The path of the file below the directory of the backup.
    pub(super) fn stored(&self) -> &str {
        self.stored_as.as_deref().unwrap_or(&self.name)
    }
}

impl Unfinished {
    /// The content of the marker in `dir`; `None` if there is no marker.
    pub(super) fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Unfinished>, ManifestError> {
        let path = dir.join(UNFINISHED_NAME);
        let Some(text) = read_small(disk, &path)? else { return Ok(None) };
        let damaged = |error| ManifestError::Manifest {
            path,
            reason: format!("is damaged: {error}; remove the directory"),
        };
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    pub(super) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
        let path = dir.join(UNFINISHED_NAME);
        let text = serde_json::to_vec(self).expect("texts and numbers");
        env::crashsafe::write_atomically(disk, &path, &text).map_err(os("write", &path))
    }

    /// Removes the marker durably.
    pub(super) fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
        let path = dir.join(UNFINISHED_NAME);
        env::crashsafe::remove_durably(disk, &path).map_err(os("remove", &path))
    }

    /// Whether a file is the marker, or its temporary file left by a crash.
    pub(super) fn is_named(name: &str) -> bool {
        name.strip_suffix(env::crashsafe::TMP_SUFFIX).unwrap_or(name) == UNFINISHED_NAME
    }
}

/// Whether a path stays below the directory that it is joined to.
pub(super) fn is_below(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The CRC-32C of the first `bytes` of a file. After each read, `progress` is called with its number of
/// bytes.
pub(super) fn crc_of(file: &dyn File, bytes: u64, mut progress: impl FnMut(u64)) -> io::Result<u32> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut offset, mut crc) = (0, 0);
    while offset < bytes {
        let piece = (bytes - offset).min(READ_BYTES as u64);
        let buffer = &mut buffer[..piece as usize];
        file.read_exact_at(buffer, offset)?;
        crc = crc32c::crc32c_append(crc, buffer);
        offset += piece;
        progress(piece);
    }
    Ok(crc)
}

fn open_sized(
    disk: &dyn Disk,
    dir: &Path,
    wanted: &ManifestFile,
) -> Result<std::sync::Arc<dyn File>, ManifestError> {
    let path = dir.join(wanted.stored());
    let damaged = |reason: String| ManifestError::Damaged { path: path.clone(), reason };
    let file = match disk.open(&path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("it is missing".into())),
        other => other.map_err(os("open", &path))?,
    };
    let bytes = file.len().map_err(os("measure", &path))?;
    if bytes < wanted.bytes {
        return Err(damaged(format!("it has {bytes} bytes, {} were copied", wanted.bytes)));
    }
    Ok(file)
}

/// The content of a small file; `None` if there is none.
fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, ManifestError> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(os("open", path))?,
    };
    let bytes = file.len().map_err(os("measure", path))?;
    if bytes > FILE_BYTES_MAX {
        let reason = format!("is damaged: {bytes} bytes are too many");
        return Err(ManifestError::Manifest { path: path.to_path_buf(), reason });
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(&mut text, 0).map_err(os("read", path))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use env::{SimDisk, sim::SimDiskOptions};

    use super::*;

    const DIR: &str = "/backup";

    fn manifest(content: &[u8]) -> Manifest {
        let offer = super::super::Offer {
            end_chain: None,
            session: "s".into(),
            log_id: "ab".into(),
            begin_lsn: 4096,
            end_lsn: 8192,
            end_unix_ms: 1_700_000_000_000,
            files: Vec::new(),
        };
        let file = ManifestFile {
            name: "snapshots/part".into(),
            bytes: content.len() as u64,
            crc32c: crc32c::crc32c(content),
            stored_as: None,
        };
        Manifest { files: vec![file], ..Manifest::new(&offer) }
    }

    #[test]
    fn a_backup_is_complete_with_its_manifest_and_every_flip_in_it_is_found() {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        let (dir, content) = (Path::new(DIR), vec![7; READ_BYTES + 5]);
        disk.create_dir_all(&dir.join("snapshots")).unwrap();
        let path = dir.join("snapshots/part");
        disk.write_file(&path, &content);
        assert!(refuse_backup(&*disk, dir).is_ok() && Manifest::load(&*disk, dir).unwrap().is_none());
        let source = Some(CopySource { log_id: "ab".into(), begin_lsn: 4096 });
        let asked = Unfinished { session: "cd".into(), increment: 0, source: None };
        asked.store(&*disk, dir).unwrap();
        assert_eq!(Unfinished::load(&*disk, dir).unwrap(), Some(asked));
        let unfinished = Unfinished { session: "cd".into(), increment: 1, source };
        unfinished.store(&*disk, dir).unwrap();
        assert_eq!(Unfinished::load(&*disk, dir).unwrap(), Some(unfinished));
        assert!(matches!(refuse_incomplete(&*disk, dir), Err(ManifestError::Incomplete(_))));
        manifest(&content).store(&*disk, dir).unwrap();
        assert!(refuse_incomplete(&*disk, dir).is_ok());
        assert!(matches!(refuse_backup(&*disk, dir), Err(ManifestError::IsBackup(_))));
        let loaded = Manifest::load(&*disk, dir).unwrap().unwrap();
        assert_eq!(loaded, manifest(&content));

        let check = || loaded.check(&*disk, dir, |done, total| assert!(done <= total));
        check().unwrap();
        disk.write_file(&path, &content[1..]);
        assert!(matches!(loaded.check_sizes(&*disk, dir), Err(ManifestError::Damaged { .. })));
        assert!(matches!(check(), Err(ManifestError::Damaged { .. })));
        // Bytes appended by an increment do not belong to the backup before it is published.
        disk.write_file(&path, &[content.clone(), vec![0]].concat());
        loaded.check_sizes(&*disk, dir).unwrap();
        check().unwrap();
        for place in [0, READ_BYTES, content.len() - 1] {
            let mut damaged = content.clone();
            damaged[place] ^= 4;
            disk.write_file(&path, &damaged);
            assert!(loaded.check_sizes(&*disk, dir).is_ok());
            assert!(matches!(check(), Err(ManifestError::Damaged { .. })), "byte {place}");
        }
        disk.remove(&path).unwrap();
        assert!(matches!(check(), Err(ManifestError::Damaged { .. })));
    }

    #[test]
    fn a_manifest_of_another_format_or_that_leads_elsewhere_is_refused() {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        let dir = Path::new(DIR);
        disk.create_dir_all(dir).unwrap();
        let with_name = |name: &str| {
            let mut manifest = manifest(b"");
            manifest.files[0].name = name.into();
            manifest
        };
        let refused = [
            Manifest { format: 0, ..manifest(b"") },
            Manifest { format: FORMAT + 1, ..manifest(b"") },
            with_name("../control"),
            with_name("/etc/passwd"),
            with_name("snapshots/../../x"),
            with_name(""),
        ];
        let mut elsewhere = manifest(b"");
        elsewhere.files[0].stored_as = Some("../control".into());
        for manifest in refused.into_iter().chain([elsewhere]) {
            disk.write_file(&dir.join(FILE_NAME), &serde_json::to_vec(&manifest).unwrap());
            assert!(
                matches!(Manifest::load(&*disk, dir), Err(ManifestError::Manifest { .. })),
                "{manifest:?}"
            );
        }
        disk.write_file(&dir.join(FILE_NAME), b"{");
        assert!(matches!(Manifest::load(&*disk, dir), Err(ManifestError::Manifest { .. })));
    }
}
