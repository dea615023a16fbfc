//! A disk that lies about syncs.
//!
//! [`LyingDisk`] wraps a [`Disk`]. In the files that it opens, a sync does nothing and reports success, and a
//! durable write is only a plain write. [`SimDisk`](env::SimDisk) itself never lies: this sabotage shows that
//! the oracle would detect a log that forgets to sync.

use std::{io, path::Path, sync::Arc};

use env::{Access, Disk, File};

/// A disk on which syncs of opened files do nothing.
pub struct LyingDisk {
    honest: Arc<dyn Disk>,
}

impl LyingDisk {
    /// Wraps a disk. Syncs of directories are honest, so that the log can be opened at all.
    pub fn over(honest: Arc<dyn Disk>) -> LyingDisk {
        LyingDisk { honest }
    }
}

impl Disk for LyingDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.honest.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        // Files are created honestly: otherwise a lost segment header would be found first and hide the lie
        // about batches.
        self.honest.create_new(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LyingFile(self.honest.open(path, access)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.honest.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.honest.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.honest.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.honest.sync_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.honest.free_bytes(dir)
    }
}

struct LyingFile(Arc<dyn File>);

impl File for LyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn write_direct_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_direct_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.0.drop_cache()
    }
}
