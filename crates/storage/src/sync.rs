//! The atomics that the log uses: the atomics of the standard library, or those of loom when loom checks the
//! log's concurrency (`RUSTFLAGS="--cfg loom" cargo test -p storage --release loom`).

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// Keeps a value on cache lines of its own, so that threads that write neighbouring values do not slow each
/// other down. The alignment is 128 bytes because x86 prefetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
