//! `Disk` and `File`: the file system operations that Sheaf uses, and the guarantees of each after a power
//! cut.
//!
//! [`RealDisk`](crate::RealDisk) and [`SimDisk`](crate::SimDisk) both keep this contract, so the log,
//! snapshots and trees can be tested against a disk that tears, reorders and loses writes.
//! These traits are not a portable file API: they have only the operations that Sheaf needs.
//!
//! Invariants
//! - Data handed to the OS is not durable. Only `write_durable_at`, `sync_data`, `sync_all`, `drop_cache`
//!   (contents and size of one file), `sync_dir` (names in one directory) and `create_dir_all` make anything
//!   durable.
//! - After a failed sync or durable write, the state on disk is unknown, and the next sync may succeed
//!   although data was lost. So never retry a failed sync or durable write: stop, and read the file again
//!   after [`File::drop_cache`].
//! - Every method may be called from any thread. Where concurrent writes overlap, the file has the bytes of
//!   one of them.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Unit of [`File::write_durable_at`]: address, length and offset are multiples of this many bytes.
pub const BLOCK_BYTES: usize = 4096;

/// The access rights of an opened file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only; writes, syncs and `set_len` may fail.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// A file system: files by name in directories.
pub trait Disk: Send + Sync + 'static {
    /// Creates `dir` and its missing parents; the directories that it creates are durable on return.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Creates an empty file for reading and writing. Its name is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, `NotFound` if its directory does not exist; other I/O errors.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist; other I/O errors.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing `to` if it exists. A rename is atomic, even in a crash: either the old or
    /// the new state is seen. The new name is durable after [`Disk::sync_dir`]. A rename does not sync the
    /// contents: the caller must sync the file first.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name. Until [`Disk::sync_dir`], a crash may bring the file back.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names of the regular files in `dir`, sorted. Directories, and names that are not UTF-8 (Sheaf makes
    /// none), are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes all creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that can still be allocated on the file system that holds `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. It stays usable after it is renamed or removed.
pub trait File: Send + Sync {
    /// Reads at most `buf.len()` bytes from `offset`; fewer only at the end of the file, 0 at or after the
    /// end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has too few bytes; other I/O errors.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buf, offset)? {
            read if read == buf.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Hands all of `buf` to the OS (page cache), growing the file if needed. Not durable.
    ///
    /// The OS may take only a part of a write. Callers do not see that: this and the other writes go on with
    /// the rest, and either write everything or fail.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` and returns when exactly this range, and a file size that covers it, is on stable
    /// storage. Does not make earlier unsynced writes to *other* ranges durable. Address, length and offset
    /// must be multiples of [`BLOCK_BYTES`]; [`AlignedBytes`](crate::AlignedBytes) provides such buffers.
    ///
    /// # Errors
    /// `InvalidInput` if misaligned. After any other error the range holds old, new or mixed contents.
    fn write_durable_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` past the page cache if the file system supports that, else into the page cache.
    /// Even if the device has the data on return, a power cut may lose them: the write is not durable. For
    /// bulk data that is not read again soon, this saves the copy into the page cache, and the memory of the
    /// cache. Address, length and offset must be aligned as for [`File::write_durable_at`].
    ///
    /// # Errors
    /// As [`File::write_durable_at`].
    fn write_direct_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all contents and the size durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Like [`File::sync_data`], and makes the times and permissions durable as well.
    fn sync_all(&self) -> io::Result<()>;

    /// The present size of the file in bytes, durable or not.
    fn len(&self) -> io::Result<u64>;

    /// Whether [`File::len`] is 0.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// Truncates the file, or extends it with zeros, to `len` bytes. Extending allocates no space. Not
    /// durable.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes dirty pages durable, then drops the page cache of this file, so that the next read shows the
    /// contents on disk. After a failed sync, the cache shows data that never reached the disk. The cache is
    /// dropped even if making the pages durable fails; that error is returned.
    fn drop_cache(&self) -> io::Result<()>;
}

/// Checks the alignment that [`File::write_durable_at`] demands.
pub(crate) fn require_block_aligned(buf: &[u8], offset: u64) -> io::Result<()> {
    let block = BLOCK_BYTES as u64;
    if (buf.as_ptr() as u64 | buf.len() as u64 | offset).is_multiple_of(block) {
        return Ok(());
    }
    let message = format!(
        "durable write of {} bytes at offset {offset} from {:p} is not aligned to {BLOCK_BYTES} bytes",
        buf.len(),
        buf.as_ptr(),
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
