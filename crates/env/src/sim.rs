//! The simulated disk: everything a real one may do to us between two syncs, repeatable from a seed.
//!
//! What it is: [`SimDisk`], a [`Disk`](crate::Disk) in memory with a page cache that forgets, tears and reorders
//! at a crash; a [`FaultPlan`] that fails or stops the n-th I/O; tools to damage and inspect files.
//! What it is not: a performance model (no call takes time), nor more forgiving than POSIX: an `fsync` of a file
//! does not make its name durable here, although ext4 would.
//!
//! The model
//! - A file is a *durable* image, a *visible* image (what programs read), and for every 512-byte sector the
//!   versions written since the last sync. A crash keeps any one version of each sector (also an older one),
//!   or none, or a torn mix; sizes likewise. A truncation not yet synced may leave the old bytes.
//! - Directory operations since the last `sync_dir` are each kept or lost on their own; a rename is atomic.
//! - A failed sync reports its error once, forgets that the pages were dirty and loses some of them: the next sync
//!   succeeds, reads show the lost data until the cache is dropped, a crash shows the truth.
//! - Rot is put in by hand: `flip_bits`, `corrupt`, `truncate`.
//!
//! Invariants
//! - What the contract of [`Disk`](crate::Disk) and [`File`](crate::File) calls durable survives every crash.
//! - The same seed and the same calls in the same order give the same disk.
//! - Zeros cost no memory: a pre-filled segment is free, and copying the state copies references to pages.

mod crash;
mod disk;
mod fault;
mod image;
mod volume;

pub use crash::CrashMode;
pub use disk::{SimDisk, SimDiskOptions};
pub use fault::{FaultKind, FaultPlan, IoEvent, IoKind, is_crash};

#[cfg(test)]
mod tests;
