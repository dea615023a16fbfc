//! The prefetch instruction. It is a hint: it changes nothing, faults on no address, and does nothing on
//! processors without it.

#![allow(unsafe_code)]

/// Starts loading the cache line at `address`.
#[inline(always)]
pub(crate) fn prefetch_line<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching is allowed for any address, mapped or not; SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching is allowed for any address, mapped or not, and touches no register or memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
