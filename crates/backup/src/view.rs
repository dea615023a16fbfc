//! `BackupView`: the directory of a backup as described by its `backup.json`, for all readers.
//!
//! A `BackupView` is a [`Disk`] on which the three directories of the backup hold exactly the files of the
//! manifest, each with its length in the manifest, wherever it is stored. All other paths are passed to the
//! disk below. A view verifies nothing: its users do.
//!
//! Invariants
//! - Data appended or added by an unfinished increment is invisible.
//! - The backup cannot be changed through its view.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, File};
use storage::snapshot;

use super::{Manifest, ManifestError};

pub(crate) struct BackupView {
    disk: Arc<dyn Disk>,
    /// The directory of the backup, and its two subdirectories.
    dirs: [PathBuf; 3],
    /// The stored path and the length of each file, by its path in a data directory.
    files: BTreeMap<PathBuf, (PathBuf, u64)>,
}

/// The disk through which `dir` is to be read, and the manifest if `dir` is a backup.
///
/// # Errors
/// If the manifest cannot be read or is invalid.
pub fn view(disk: Arc<dyn Disk>, dir: &Path) -> Result<(Arc<dyn Disk>, Option<Manifest>), ManifestError> {
    let manifest = Manifest::load(&*disk, dir)?;
    Ok(match &manifest {
        Some(found) => (Arc::new(BackupView::new(disk, dir, found)), manifest),
        None => (disk, None),
    })
}

impl BackupView {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path, manifest: &Manifest) -> BackupView {
        let place = |file: &super::manifest::ManifestFile| {
            (dir.join(&file.name), (dir.join(file.stored()), file.bytes))
        };
        let dirs = [dir.to_path_buf(), snapshot::directory(dir), documents::directory(dir)];
        BackupView { disk, dirs, files: manifest.files.iter().map(place).collect() }
    }

    /// Whether a path lies directly in one of the backup's directories.
    fn is_inside(&self, path: &Path) -> bool {
        path.parent().is_some_and(|dir| self.dirs.iter().any(|own| own == dir))
    }

    fn require_outside(&self, path: &Path) -> io::Result<()> {
        if self.is_inside(path) { Err(refused()) } else { Ok(()) }
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "a backup must stay as it is")
}

impl Disk for BackupView {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if self.dirs.iter().any(|own| own == dir) { Ok(()) } else { self.disk.create_dir_all(dir) }
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.require_outside(path)?;
        self.disk.create_new(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if !self.is_inside(path) {
            return self.disk.open(path, access);
        }
        let (stored, bytes) = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Beginning { file: self.disk.open(stored, Access::Read)?, bytes: *bytes }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.require_outside(from)?;
        self.require_outside(to)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.require_outside(path)?;
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if !self.dirs.iter().any(|own| own == dir) {
            return self.disk.list(dir);
        }
        let below = self.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(below.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }
}

/// The first bytes of a file, read-only.
struct Beginning {
    file: Arc<dyn File>,
    bytes: u64,
}

impl File for Beginning {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.bytes.saturating_sub(offset).min(buf.len() as u64) as usize;
        self.file.read_at(&mut buf[..wanted], offset)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn write_durable_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn write_direct_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len().map(|bytes| bytes.min(self.bytes))
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

#[cfg(test)]
mod tests {
    use env::{SimDisk, sim::SimDiskOptions};

    use super::*;
    use crate::manifest::ManifestFile;

    #[test]
    fn a_view_shows_only_files_of_the_manifest_and_changes_none() {
        let (disk, dir) =
            (SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() }), Path::new("/backup"));
        let entry = |name: &str, bytes, stored_as: Option<&str>| ManifestFile {
            name: name.into(),
            bytes,
            crc32c: 0,
            stored_as: stored_as.map(String::from),
        };
        disk.write_file(&dir.join("log-a.seg"), b"known, and appended");
        disk.write_file(&dir.join("log-b.seg"), b"new");
        disk.write_file(&dir.join("control"), b"earlier");
        disk.write_file(&dir.join("control.1"), b"control");
        disk.write_file(&dir.join("snapshots/part"), b"part");
        disk.write_file(Path::new("/elsewhere/file"), b"other");
        let manifest = Manifest {
            format: 2,
            sheaf_version: String::new(),
            log_id: String::new(),
            begin_lsn: 0,
            end_lsn: 0,
            end_chain: None,
            end_unix_ms: 0,
            made_at: String::new(),
            increments: 1,
            files: vec![
                entry("log-a.seg", 5, None),
                entry("control", 7, Some("control.1")),
                entry("snapshots/part", 4, None),
            ],
        };
        let view = BackupView::new(disk.clone(), dir, &manifest);
        assert_eq!(view.list(dir).unwrap(), ["control", "log-a.seg"]);
        assert_eq!(view.list(&dir.join("snapshots")).unwrap(), ["part"]);
        assert!(view.list(&dir.join("documents")).unwrap().is_empty());
        let read = |name: &str| -> io::Result<Vec<u8>> {
            let file = view.open(&dir.join(name), Access::ReadWrite)?;
            let mut bytes = vec![0; 100];
            let read = file.read_at(&mut bytes, 0)?;
            assert_eq!(file.len()?, read as u64);
            assert_eq!(file.read_at(&mut [0; 8], 90)?, 0);
            assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
            file.drop_cache()?;
            bytes.truncate(read);
            Ok(bytes)
        };
        assert_eq!(read("log-a.seg").unwrap(), b"known");
        assert_eq!(read("control").unwrap(), b"control");
        assert_eq!(read("snapshots/part").unwrap(), b"part");
        for hidden in ["log-b.seg", "control.1", "documents/catalog"] {
            assert_eq!(read(hidden).unwrap_err().kind(), io::ErrorKind::NotFound, "{hidden}");
        }
        assert!(view.create_new(&dir.join("snapshots/new")).is_err());
        assert!(view.remove(&dir.join("control")).is_err());
        assert!(view.rename(Path::new("/elsewhere/file"), &dir.join("control")).is_err());
        assert_eq!(disk.read_file(&dir.join("control")).unwrap(), b"earlier");
        // The restored files are outside of the backup.
        view.create_new(Path::new("/elsewhere/new")).unwrap();
        assert_eq!(view.list(Path::new("/elsewhere")).unwrap(), ["file", "new"]);
    }
}
