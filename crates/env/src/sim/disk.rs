//! `SimDisk`: the simulated volume behind the [`Disk`] and [`File`] contracts, and the controls for tests.
//!
//! This module has the locking, the handles and the controls (crash, faults, space, damage, inspection). The
//! module documentation of `sim` describes the model.
//!
//! Invariants
//! - Handles opened before a crash fail with a crash error forever after.
//! - Controls are not I/O: they are never counted, failed or traced.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::crash::CrashMode;
use super::fault::{FaultPlan, IoEvent, crash_error};
use super::volume::{InodeId, Volume};
use crate::disk::require_block_aligned;
use crate::{Access, Disk, File, Prng};

/// The initial state of a simulated disk.
#[derive(Clone, Copy, Default, Debug)]
pub struct SimDiskOptions {
    /// Decides every random choice of crashes and faults.
    pub seed: u64,
    /// Capacity in bytes; `None` for practically unlimited. See [`SimDisk::set_space_limit`].
    pub space_limit_bytes: Option<u64>,
}

/// A disk in memory that fails and crashes on demand.
#[derive(Debug)]
pub struct SimDisk {
    volume: Arc<Mutex<Volume>>,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(options: SimDiskOptions) -> Arc<SimDisk> {
        Self::of(Volume::new(options.seed, options.space_limit_bytes))
    }

    fn of(volume: Volume) -> Arc<SimDisk> {
        Arc::new(SimDisk { volume: Arc::new(Mutex::new(volume)) })
    }

    /// An independent copy of the whole state (including unsynced changes, the fault plan and the random
    /// state) without open handles: one state can be crashed in many ways. Cheap: pages are shared until they
    /// change.
    pub fn clone_state(&self) -> Arc<SimDisk> {
        Self::of(self.volume.lock().copy())
    }

    /// Restarts the random choices from `seed`.
    pub fn reseed(&self, seed: u64) {
        self.volume.lock().prng = Prng::new(seed);
    }

    /// Cuts the power now (unless a planned crash already has) and restores it: `mode` decides about unsynced
    /// changes, all handles become invalid, the fault plan is cleared. The count of I/Os continues.
    pub fn crash(&self, mode: CrashMode) {
        self.volume.lock().crash(mode);
    }

    /// Replaces the fault plan. Its I/O numbers count from the creation of the disk: see
    /// [`SimDisk::io_count`].
    pub fn set_fault_plan(&self, plan: FaultPlan) {
        self.volume.lock().gate.plan = plan;
    }

    /// Number of I/Os so far, which is also the number of the next one.
    pub fn io_count(&self) -> u64 {
        self.volume.lock().gate.io_count
    }

    /// Whether a planned crash has stopped the machine.
    pub fn has_stopped(&self) -> bool {
        self.volume.lock().gate.stopped
    }

    /// Sets the capacity in bytes. Writes that would allocate more fail with `ENOSPC`; overwrites of
    /// allocated blocks always succeed. Blocks written with zeros are allocated, blocks skipped by `set_len`
    /// are not.
    pub fn set_space_limit(&self, bytes: Option<u64>) {
        self.volume.lock().space_limit_bytes = bytes;
    }

    /// Starts recording I/Os and discards earlier recordings.
    pub fn enable_trace(&self) {
        self.volume.lock().trace = Some(Vec::new());
    }

    /// The I/Os since [`SimDisk::enable_trace`]; empty if it was never called.
    pub fn trace(&self) -> Vec<IoEvent> {
        self.volume.lock().trace.clone().unwrap_or_default()
    }

    /// The visible contents of the file at `path`; works also while the machine is stopped.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut volume = self.volume.lock();
        let image = volume.image_at(path)?;
        let mut bytes = vec![0; image.size as usize];
        image.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Puts a durable file with these contents at `path`, creating directories and replacing an existing
    /// file.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        self.volume.lock().put_file(path, bytes);
    }

    /// Truncates or extends the file and makes all its contents durable.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut volume = self.volume.lock();
        let image = volume.image_at(path)?;
        image.set_len(len, &mut 0);
        image.commit_all();
        Ok(())
    }

    /// XORs the byte at `offset` with `xor`, on the disk and in the cache: bit rot.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist, `InvalidInput` if it ends at or before `offset`.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) -> io::Result<()> {
        let mut volume = self.volume.lock();
        let image = volume.image_at(path)?;
        if offset >= image.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        image.xor_byte(offset, xor);
        Ok(())
    }

    /// Flips `count` random bits of the file, on the disk and in the cache, and returns their byte offsets.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist, `InvalidInput` if it is empty.
    pub fn flip_bits(&self, path: &Path, count: usize) -> io::Result<Vec<u64>> {
        let mut volume = self.volume.lock();
        let mut prng = volume.prng.fork();
        let image = volume.image_at(path)?;
        if image.size == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let offsets: Vec<u64> = (0..count).map(|_| prng.below(image.size)).collect();
        offsets.iter().for_each(|&offset| image.xor_byte(offset, 1 << prng.below(8)));
        Ok(offsets)
    }

    /// Locks the volume; fails if the machine is stopped.
    fn running(&self) -> io::Result<MutexGuard<'_, Volume>> {
        let volume = self.volume.lock();
        volume.gate.require_running()?;
        Ok(volume)
    }

    fn handle(&self, volume: &Volume, inode: InodeId, access: Access) -> Arc<dyn File> {
        Arc::new(SimFile { volume: self.volume.clone(), inode, generation: volume.generation, access })
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.running()?.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut volume = self.running()?;
        let inode = volume.create_new(path)?;
        Ok(self.handle(&volume, inode, Access::ReadWrite))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut volume = self.running()?;
        let inode = volume.open(path)?;
        Ok(self.handle(&volume, inode, access))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.running()?.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.running()?.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.running()?.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.running()?.sync_dir(dir)
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.running()?.free_bytes())
    }
}

/// A handle; valid until the next crash.
struct SimFile {
    volume: Arc<Mutex<Volume>>,
    inode: InodeId,
    generation: u64,
    access: Access,
}

impl SimFile {
    fn running(&self) -> io::Result<MutexGuard<'_, Volume>> {
        let volume = self.volume.lock();
        volume.gate.require_running()?;
        if volume.generation == self.generation { Ok(volume) } else { Err(crash_error()) }
    }

    fn writable(&self) -> io::Result<MutexGuard<'_, Volume>> {
        match self.access {
            Access::ReadWrite => self.running(),
            Access::Read => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.running()?.image(self.inode).read(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?.write(self.inode, buf, offset)
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        require_block_aligned(buf, offset)?;
        self.writable()?.write_durable(self.inode, buf, offset)
    }

    fn write_direct_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        require_block_aligned(buf, offset)?;
        self.writable()?.write(self.inode, buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.running()?.sync(self.inode)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.running()?.sync(self.inode)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.running()?.image(self.inode).size)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?.set_len(self.inode, len)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.running()?.drop_cache(self.inode)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut volume = self.volume.lock();
        if volume.generation == self.generation {
            volume.release(self.inode);
        }
    }
}
