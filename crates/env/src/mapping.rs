//! `RingMemory`: a ring buffer whose memory is mapped twice, back to back, so that no range of it wraps.
//!
//! This module provides memory and address arithmetic. Offsets are positions in an endless stream (such as
//! LSNs); the byte at `offset` is stored at `offset mod len`, and any range of at most `len` bytes is one
//! contiguous slice. It is not a queue: the caller's protocol determines which thread may access which range
//! when, so the accessors are unsafe.
//!
//! Invariants
//! - The address is page-aligned, so a slice at a block-aligned offset can be written with `O_DIRECT`.
//! - All pages are allocated before `new` returns, so there is no SIGBUS under memory pressure.
//!
//! Miri cannot map memory twice. There, the two halves are separate memory, which is enough for a test that
//! stays within the first half.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use crate::BLOCK_BYTES;

/// A ring of memory, mapped twice in a row.
#[derive(Debug)]
pub struct RingMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and may be unmapped on any thread. Shared access gives only
// a raw pointer and unsafe accessors, whose callers must exclude data races.
unsafe impl Send for RingMemory {}
// SAFETY: as above; no safe method touches the mapped bytes.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Maps a zeroed ring of `bytes`, a power of two and a multiple of the page size.
    ///
    /// # Errors
    /// `InvalidInput` for any other size; the error of the OS if it refuses the memory.
    pub fn new(bytes: usize) -> io::Result<RingMemory> {
        let page_bytes = page_bytes();
        if !bytes.is_power_of_two() || !bytes.is_multiple_of(page_bytes) || bytes.checked_mul(2).is_none() {
            let message =
                format!("ring of {bytes} bytes: must be a power of two and a multiple of {page_bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let ring = RingMemory { base: reserve_addresses(2 * bytes)?, len: bytes };
        if cfg!(miri) {
            return Ok(ring);
        }
        let memory = allocate_memory_file(bytes)?;
        // If a half cannot be mapped, dropping `ring` unmaps both, whether mapped or only reserved. The
        // mappings keep the memory alive, so the descriptor is closed on return.
        ring.map_half(&memory, 0)?;
        ring.map_half(&memory, bytes)?;
        Ok(ring)
    }

    /// Maps the memory file at `base + at`, in place of the reservation there.
    fn map_half(&self, memory: &OwnedFd, at: usize) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
        // SAFETY: `base + at .. base + at + len` lies inside the reservation of `2 * len` bytes, which this
        // value owns and has not handed out yet, so MAP_FIXED replaces no other mapping.
        let mapped = unsafe {
            libc::mmap(self.base.as_ptr().add(at).cast(), self.len, protection, flags, memory.as_raw_fd(), 0)
        };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Capacity in bytes (of the ring, not of the two mappings).
    #[expect(clippy::len_without_is_empty, reason = "a capacity that is never 0")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// First byte of the first mapping; `2 * len` bytes are mapped from here.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Address of the byte at stream position `offset`; `len` bytes from here on are contiguous.
    #[inline]
    pub fn at(&self, offset: u64) -> *mut u8 {
        let index = offset as usize & (self.len - 1);
        // SAFETY: index < len, so the address is inside the first mapping.
        unsafe { self.base.as_ptr().add(index) }
    }

    /// The `len` bytes from stream position `offset` on.
    ///
    /// # Safety
    /// As long as the slice lives, these ring bytes are not written through either mapping: positions that
    /// differ by a multiple of the capacity are the same memory.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    #[inline]
    pub unsafe fn slice(&self, offset: u64, len: usize) -> &[u8] {
        assert!(len <= self.len, "{len} bytes out of a ring of {}", self.len);
        // SAFETY: `at` is in the first mapping and `len <= capacity` bytes follow it in the two mappings;
        // they are initialised (zeroed by the kernel); the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }
    }

    /// The `len` bytes from stream position `offset` on, for writing.
    ///
    /// # Safety
    /// As long as the slice lives, these ring bytes are not read or written elsewhere, through either
    /// mapping: positions that differ by a multiple of the capacity are the same memory.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "disjoint ranges are written by several threads; see Safety")]
    pub unsafe fn slice_mut(&self, offset: u64, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "{len} bytes out of a ring of {}", self.len);
        // SAFETY: as in `slice`; the caller excludes readers and writers.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `reserve_addresses` returned; no slice outlives the borrow of
        // `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.len) };
    }
}

/// Anonymous memory behind a descriptor, so that it can be mapped more than once.
fn allocate_memory_file(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid C string; the call has no other preconditions.
    let raw = unsafe { libc::memfd_create(c"sheaf-ring".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` is a fresh descriptor without another owner.
    let memory = unsafe { OwnedFd::from_raw_fd(raw) };
    // Unlike `ftruncate`, this allocates the pages now or fails, so there is no SIGBUS later. SAFETY: a valid
    // descriptor.
    match unsafe { libc::fallocate(memory.as_raw_fd(), 0, 0, bytes as libc::off_t) } {
        0 => Ok(memory),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reserves address space, so that no other mapping uses it. This takes no memory.
fn reserve_addresses(bytes: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = if cfg!(miri) {
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    } else {
        (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base: *mut c_void = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(base.cast()).expect("the kernel never chooses address 0"))
}

fn page_bytes() -> usize {
    // SAFETY: no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs memory that is mapped twice")]
    fn a_write_across_the_end_is_contiguous() {
        let ring = RingMemory::new(64 * 1024).unwrap();
        let end = ring.len() as u64;
        // SAFETY: single-threaded, and each slice is dropped before the next is made.
        unsafe {
            ring.slice_mut(end - 3, 6).copy_from_slice(b"abcdef");
            assert_eq!(ring.slice(end - 3, 3), b"abc");
            assert_eq!(ring.slice(0, 3), b"def", "the tail of the range is the head of the ring");
            assert_eq!(ring.slice(7 * end - 3, 6), b"abcdef", "positions are taken modulo the capacity");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memory that is mapped twice")]
    fn whole_ring_is_one_slice_from_any_offset() {
        let ring = RingMemory::new(BLOCK_BYTES).unwrap();
        // SAFETY: single-threaded, and each slice is dropped before the next is made.
        unsafe {
            ring.slice_mut(1000, BLOCK_BYTES).fill(7);
            assert!(ring.slice(0, BLOCK_BYTES).iter().all(|&byte| byte == 7));
        }
        assert_eq!(ring.as_ptr() as usize % BLOCK_BYTES, 0);
        assert_eq!(ring.at(3 * BLOCK_BYTES as u64 + 5), ring.as_ptr().wrapping_add(5));
    }

    #[test]
    fn other_sizes_are_refused() {
        for bytes in [0, 1, 2048, 3 * BLOCK_BYTES, 1 << (usize::BITS - 1)] {
            let error = RingMemory::new(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes}");
        }
    }

    #[test]
    #[should_panic(expected = "out of a ring")]
    fn a_slice_longer_than_the_ring_is_a_bug() {
        let ring = RingMemory::new(BLOCK_BYTES).unwrap();
        // SAFETY: panics before any memory is touched.
        unsafe { ring.slice(0, BLOCK_BYTES + 1) };
    }
}
