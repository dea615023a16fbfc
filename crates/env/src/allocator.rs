//! The memory allocator: what it can say about itself, and giving memory back.
//!
//! What it is: calls that Rust's allocator interface lacks. What it is not: the choice of the allocator, which is the
//! binary's; where it has chosen another one, the figures here are those of an unused one.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_void},
    ptr,
};

// Linked with the allocator itself.
use libmimalloc_sys as _;

/// `mi_option_purge_delay`: milliseconds after which the OS gets unused pages back; whole segments after ten times as many.
const PURGE_DELAY: c_int = 15;

type Output = unsafe extern "C" fn(text: *const c_char, to: *mut c_void);

unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_stats_print_out(out: Option<Output>, to: *mut c_void);
    fn mi_process_info(
        elapsed_ms: *mut usize,
        user_ms: *mut usize,
        system_ms: *mut usize,
        resident: *mut usize,
        resident_max: *mut usize,
        committed: *mut usize,
        committed_max: *mut usize,
        page_faults: *mut usize,
    );
}

/// Gives memory that this thread has freed, and that was freed for it, back to the OS. Takes milliseconds per gigabyte.
pub fn release_unused() {
    // SAFETY: callable at any time from any thread; it touches only what the allocator owns.
    unsafe { mi_collect(true) };
}

/// How long the allocator keeps pages that nothing uses, unless `MIMALLOC_PURGE_DELAY` says it: 10 ms by itself. Whoever needs as much
/// again within this time pays no page faults for it.
pub fn keep_unused_for_ms(delay_ms: u16) {
    // SAFETY: callable at any time from any thread; the option exists.
    unsafe { mi_option_set_default(PURGE_DELAY, c_long::from(delay_ms)) };
}

/// Bytes that the allocator has taken from the OS and not given back, in use or not.
pub fn committed_bytes() -> u64 {
    let mut committed = 0;
    let null = ptr::null_mut();
    // SAFETY: every argument may be null but is written through otherwise; `committed` is writable.
    unsafe { mi_process_info(null, null, null, null, null, &mut committed, null, null) };
    committed as u64
}

/// The allocator's own report, for people.
pub fn report() -> String {
    let mut text = Vec::new();
    // SAFETY: `append` is called only before the call returns, with the address of `text`, which nothing else uses meanwhile.
    unsafe { mi_stats_print_out(Some(append), (&raw mut text).cast()) };
    String::from_utf8_lossy(&text).into_owned()
}

/// # Safety
/// `text` is a C string; `to` is the address of a `Vec<u8>` that nothing else uses.
unsafe extern "C" fn append(text: *const c_char, to: *mut c_void) {
    // SAFETY: see above.
    let (text, to) = unsafe { (CStr::from_ptr(text), &mut *to.cast::<Vec<u8>>()) };
    to.extend_from_slice(text.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_answers() {
        super::release_unused();
        assert!(!super::report().is_empty());
        // Whatever has used it in this process or not.
        assert!(super::committed_bytes() < u64::MAX / 2);
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
