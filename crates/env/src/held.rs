//! `HeldDisk`: the disk of a server, in a data directory that it has locked.
//!
//! A `HeldDisk` is a [`RealDisk`] whose changes fail once the path no longer leads to the locked directory.
//! It is not a lock itself: it asks its [`DirLock`].
//!
//! Invariants
//! - Once the lock is lost, the path may lead to another server's files. So no direct or durable write and no
//!   sync succeeds any more, and no name is created, changed or removed.
//! - Buffered writes and `set_len` are not checked, but the sync that would make them durable is
//!   (`drop_cache` is such a sync). Files opened for reading are not checked.
//! - Writes and syncs are checked after the operation, changes of names before the operation. If the
//!   directory is replaced between the check and the change of a name, only the next check notices that.
//! - A lost lock stays lost.
//!
//! A check costs about a microsecond; a durable write costs tens.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::{Access, DirLock, Disk, File, LockLost, RealDisk};

/// [`RealDisk`] in a locked data directory: changes fail once the lock is lost.
#[derive(Clone)]
pub struct HeldDisk {
    hold: Arc<Hold>,
}

struct Hold {
    lock: DirLock,
    lost: OnceLock<LockLost>,
}

impl Hold {
    fn verify(&self) -> Result<(), LockLost> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        self.lock.verify().map_err(|lost| self.lost.get_or_init(|| lost).clone())
    }

    fn require(&self) -> io::Result<()> {
        self.verify().map_err(io::Error::other)
    }
}

impl HeldDisk {
    /// The disk of the directory that `lock` protects.
    pub fn new(lock: DirLock) -> HeldDisk {
        HeldDisk { hold: Arc::new(Hold { lock, lost: OnceLock::new() }) }
    }

    /// Checks that the directory is still the locked one.
    ///
    /// # Errors
    /// [`LockLost`] if it is not, now or at an earlier check.
    pub fn verify(&self) -> Result<(), LockLost> {
        self.hold.verify()
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HeldFile { file, hold: self.hold.clone() })
    }
}

impl Disk for HeldDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.hold.require()?;
        RealDisk.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.hold.require()?;
        Ok(self.file(RealDisk.create_new(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = RealDisk.open(path, access)?;
        Ok(if access == Access::Read { file } else { self.file(file) })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.hold.require()?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.hold.require()?;
        RealDisk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)?;
        self.hold.require()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}

/// A file opened for writing.
struct HeldFile {
    file: Arc<dyn File>,
    hold: Arc<Hold>,
}

impl File for HeldFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_durable_at(buf, offset)?;
        self.hold.require()
    }

    fn write_direct_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_direct_at(buf, offset)?;
        self.hold.require()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.hold.require()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()?;
        self.hold.require()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()?;
        self.hold.require()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBytes, BLOCK_BYTES, testing::TempDir};

    #[test]
    fn a_replaced_directory_is_neither_read_nor_written() {
        let temp = TempDir::new("held");
        let dir = temp.path().join("data");
        RealDisk.create_dir_all(&dir).unwrap();
        let disk = HeldDisk::new(DirLock::acquire(&dir).unwrap());
        let file = disk.create_new(&dir.join("log")).unwrap();
        let block = AlignedBytes::zeroed(BLOCK_BYTES);
        file.write_durable_at(&block, 0).unwrap();

        std::fs::rename(&dir, temp.path().join("moved")).unwrap();
        RealDisk.create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("another's"), "").unwrap();
        let error = file.write_durable_at(&block, 0).unwrap_err();
        assert!(error.to_string().contains("moved, replaced or removed"), "{error}");
        assert!(file.sync_data().is_err() && file.sync_all().is_err() && file.drop_cache().is_err());
        assert!(disk.create_new(&dir.join("next")).is_err());
        assert!(disk.remove(&dir.join("another's")).is_err());
        assert!(disk.rename(&dir.join("another's"), &dir.join("ours")).is_err());
        assert_eq!(disk.list(&dir).unwrap(), ["another's"]);
        assert!(disk.verify().is_err());
    }
}
