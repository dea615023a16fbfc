//! The RDB file of a source on this machine, between its arrival and its end.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Disk, Entropy, File, RealDisk, RealEntropy};

/// See the module documentation. Removed when dropped.
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
        // What is left behind is a file with a telling name in a directory for such files.
        let _ = RealDisk.remove(&self.path);
    }
}
