//! The source's RDB file on this machine, for the duration of the copy.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Disk, Entropy, File, RealDisk, RealEntropy};

/// A file in the spool directory, removed when dropped.
pub(super) struct Spool {
    path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

impl Spool {
    pub(super) fn create(dir: &Path) -> io::Result<Spool> {
        let path = dir.join(format!("sheaf-import-{:016x}.rdb", RealEntropy.random_u64()));
        let file = RealDisk.create_new(&path)?;
        Ok(Spool { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A file that cannot be removed has a recognisable name, in a directory meant for such files.
        let _ = RealDisk.remove(&self.path);
    }
}
