//! The atomics of the protocols of `presence`, `waiting` and `flow`: the standard library's, or loom's when
//! these protocols are model-checked (`RUSTFLAGS="--cfg loom" cargo test -p pubsub --release loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
