//! `Untouched`: a read-only view of a disk. Code that also cleans up can run on it without changing anything.
//!
//! Removing, renaming, creating directories and syncing them succeed without effect; creating and writing
//! files fail. The view does not remember such changes: a "removed" file is still found.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{Access, Disk, File};

/// A read-only view of a disk; changes of names succeed without effect, new files and writes fail.
pub struct Untouched(pub Arc<dyn Disk>);

impl Disk for Untouched {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let message = format!("{} is not to be made: the disk is only read", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    fn open(&self, path: &Path, _: Access) -> io::Result<Arc<dyn File>> {
        self.0.open(path, Access::Read)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match self.0.list(dir) {
            // `create_dir_all` reports success for a directory that does not exist, so it lists as empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        }
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.0.free_bytes(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RealDisk, testing::TempDir};

    #[test]
    fn an_untouched_disk_ignores_removals_and_refuses_writes() {
        let temp = TempDir::new("untouched");
        let (path, other) = (temp.path().join("a.tmp"), temp.path().join("b"));
        std::fs::write(&path, "kept").unwrap();
        let disk = Untouched(Arc::new(RealDisk));
        disk.remove(&path).unwrap();
        disk.rename(&path, &other).unwrap();
        assert!(disk.create_new(&other).is_err());
        assert!(disk.open(&path, Access::ReadWrite).unwrap().write_all_at(b"lost", 0).is_err());
        assert_eq!(disk.list(temp.path()).unwrap(), ["a.tmp"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        let below = temp.path().join("below");
        disk.create_dir_all(&below).unwrap();
        assert!(disk.list(&below).unwrap().is_empty() && !below.exists());
    }
}
