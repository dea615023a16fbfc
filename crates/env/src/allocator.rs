//! The memory allocator: mimalloc behind [`GlobalAlloc`], its statistics, and returning memory to the OS.
//!
//! [`Allocator`] is for binaries, which choose their global allocator themselves. In a binary with another
//! allocator, the figures of this module describe an unused mimalloc.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::{CStr, c_char, c_int, c_long, c_void},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// Every block of at least this many bytes has this alignment without a request.
const NATURAL_ALIGN: usize = 16;
/// Alignment in bytes of smaller blocks.
const SMALL_ALIGN: usize = 8;

/// Blocks of at least this many bytes return their pages to the OS when they are freed.
const LARGE_BYTES: usize = 16 << 20;
/// Granularity of `madvise`: the OS takes memory back in units of this size.
const PAGE_BYTES: usize = 4096;

static LARGE_FREED: AtomicU64 = AtomicU64::new(0);

/// mimalloc as a global allocator. Its aligned functions are slower, so they are called only for alignments
/// that the plain functions do not guarantee.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

/// Whether blocks of this size from the plain functions always have this alignment.
#[inline]
fn is_natural(size: usize, align: usize) -> bool {
    align <= SMALL_ALIGN || align <= NATURAL_ALIGN && size >= NATURAL_ALIGN
}

// SAFETY: mimalloc's memory is valid for the requested size and alignment until it is freed. The plain
// functions are called only for an `is_natural` alignment, which their blocks have: sizes are rounded up to
// classes of 8 bytes and of multiples of 16 (mimalloc's `MI_MAX_ALIGN_SIZE`), and pages begin at multiples of
// their class. mimalloc does not unwind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: any size is allowed; the alignment is a power of two.
        unsafe { if is_natural(size, align) { mi_malloc(size) } else { mi_malloc_aligned(size, align) } }
            .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as above.
        unsafe { if is_natural(size, align) { mi_zalloc(size) } else { mi_zalloc_aligned(size, align) } }
            .cast()
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if layout.size() >= LARGE_BYTES {
            // SAFETY: the caller got the block from this allocator and no longer uses it.
            unsafe { give_back(ptr, layout.size()) };
            note_large_freed();
        }
        // SAFETY: the caller got the block from this allocator.
        unsafe { mi_free(ptr.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (ptr, align) = (ptr.cast(), layout.align());
        if layout.size() >= LARGE_BYTES {
            note_large_freed();
        }
        // SAFETY: the caller got `ptr` from this allocator; otherwise as above.
        unsafe {
            if is_natural(size, align) { mi_realloc(ptr, size) } else { mi_realloc_aligned(ptr, size, align) }
        }
        .cast()
    }
}

/// Returns the whole pages within a block to the OS, at once. mimalloc alone would return them with a delay
/// or, if another thread has allocated the block, not before that thread allocates again.
///
/// # Safety
/// `block` is valid for `bytes` bytes, and their contents are no longer needed.
#[cold]
unsafe fn give_back(block: *mut u8, bytes: usize) {
    let start = block.align_offset(PAGE_BYTES);
    let whole = bytes.saturating_sub(start) / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: the pages are within the block. If the OS uses larger pages it refuses the call, which is
    // harmless.
    unsafe { libc::madvise(block.add(start).cast(), whole, libc::MADV_DONTNEED) };
}

#[cold]
fn note_large_freed() {
    LARGE_FREED.fetch_add(1, Relaxed);
}

/// Number of blocks of at least 16 MiB (`LARGE_BYTES`) freed or reallocated so far. The pages of a freed one
/// are returned to the OS at once. The allocator returns other memory, such as the old block of a
/// reallocation, only during later allocations and frees, so an idle server would keep it: see
/// [`release_unused`].
pub fn large_blocks_freed() -> u64 {
    LARGE_FREED.load(Relaxed)
}

/// The index of `mi_option_purge_delay`, the milliseconds after which unused pages are returned to the OS.
/// Whole segments of mimalloc are returned after ten times as long.
const PURGE_DELAY: c_int = 15;

type Output = unsafe extern "C" fn(text: *const c_char, to: *mut c_void);

unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_stats_print_out(out: Option<Output>, to: *mut c_void);
}

/// Returns the unused memory of this thread's heap, including blocks that other threads have freed, to the
/// OS. Takes milliseconds per gigabyte.
pub fn release_unused() {
    // SAFETY: callable at any time from any thread; it touches only memory of the allocator.
    unsafe { mi_collect(true) };
}

/// Sets how long the allocator keeps unused pages (mimalloc's default: 10 ms), unless the environment
/// variable `MIMALLOC_PURGE_DELAY` sets it. Allocations that reuse the pages within this time cause no page
/// faults.
pub fn keep_unused_for_ms(delay_ms: u16) {
    // SAFETY: callable at any time from any thread; the option exists.
    unsafe { mi_option_set_default(PURGE_DELAY, c_long::from(delay_ms)) };
}

/// The allocator's own report in readable text.
pub fn report() -> String {
    let mut text = Vec::new();
    // SAFETY: `append` is called only during this call, with the address of `text`, which nothing else uses
    // meanwhile.
    unsafe { mi_stats_print_out(Some(append), (&raw mut text).cast()) };
    String::from_utf8_lossy(&text).into_owned()
}

/// # Safety
/// `text` is a C string; `to` is the address of a `Vec<u8>` that is not used elsewhere during the call.
unsafe extern "C" fn append(text: *const c_char, to: *mut c_void) {
    // SAFETY: the caller guarantees both.
    let (text, to) = unsafe { (CStr::from_ptr(text), &mut *to.cast::<Vec<u8>>()) };
    to.extend_from_slice(text.to_bytes());
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn the_allocator_reports_its_memory() {
        super::release_unused();
        assert!(!super::report().is_empty());
    }

    #[test]
    fn a_large_block_freed_by_another_thread_returns_to_the_system() {
        const BYTES: usize = 256 << 20;
        let layout = Layout::from_size_align(BYTES, 16).expect("a layout");
        // SAFETY: the layout is not empty; the block is written within its size and freed once, with its
        // layout.
        let address = unsafe {
            let block = Allocator.alloc(layout);
            assert!(!block.is_null());
            block.write_bytes(1, BYTES);
            block.expose_provenance()
        };
        let before = crate::process::rss_bytes();
        // SAFETY: as above.
        let free = move || unsafe { Allocator.dealloc(ptr::with_exposed_provenance_mut(address), layout) };
        std::thread::spawn(free).join().expect("no panic");
        let given_back = before.saturating_sub(crate::process::rss_bytes());
        assert!(given_back > BYTES as u64 / 2, "{given_back} of {BYTES} bytes");
    }

    #[test]
    fn unused_pages_are_kept_for_as_long_as_is_said() {
        unsafe extern "C" {
            fn mi_option_get(option: c_int) -> c_long;
        }
        // SAFETY: callable at any time from any thread; the option exists.
        let delay_ms = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay_ms(), 10, "what it is by itself: this is the option that is meant");
        keep_unused_for_ms(250);
        assert_eq!(delay_ms(), 250);
    }
}
