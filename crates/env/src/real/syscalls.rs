//! System calls on files that the standard library lacks.
//!
//! These are thin safe wrappers, one call each, with the errors of the kernel. Repetition and fallbacks are
//! in `real`.
//!
//! Invariants
//! - Descriptors are borrowed from live `File`s, so they are open during the call.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// The guarantee that holds when a write returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteGuarantee {
    /// The kernel or the device has the bytes; they may be lost in a power cut.
    None,
    /// The bytes, and the size that covers them, are durable.
    Durable,
}

/// One write call. May be short.
pub(super) fn write_at(file: &File, buf: &[u8], offset: u64, promise: WriteGuarantee) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let flags = if promise == WriteGuarantee::Durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: `part` describes the live slice `buf`, which the kernel only reads; the descriptor is open.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, offset, flags) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Asks the kernel to drop the clean cached pages of `file`. Pages that another process has mapped may stay.
pub(super) fn drop_clean_pages(file: &File) -> io::Result<()> {
    // SAFETY: no memory is passed; the descriptor is open. Length 0 means up to the end.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)), // this call returns the code instead of setting errno
    }
}

/// Bytes that an unprivileged user can still allocate on the file system of `file`.
pub(super) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut stats = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `stats` is writable memory of the right type; the descriptor is open.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), stats.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled `stats`.
    let stats = unsafe { stats.assume_init() };
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}
