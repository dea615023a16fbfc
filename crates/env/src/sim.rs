//! The simulated disk: what a crash or a failure may do to data between two syncs, reproducible from a seed.
//!
//! [`SimDisk`] is a [`Disk`](crate::Disk) in memory with a page cache that loses, tears and reorders writes
//! at a crash. With a [`FaultPlan`], the n-th I/O fails or stops the machine, and tests can damage and
//! inspect files. The simulation is not a performance model: no call takes time. It promises no more than
//! POSIX: an `fsync` of a file does not make its name durable here, although it does on ext4.
//!
//! The model
//! - A file is a *durable* image, a *visible* image (the one that programs read), and for every 512-byte
//!   sector the versions written since the last sync.
//! - For each sector, a crash keeps any one of these versions (even an older one), or none, or a torn mix of
//!   two. Of the sizes of the file since the last sync, a crash keeps any one, or none. An unsynced
//!   truncation may leave the old bytes.
//! - Each directory operation since the last `sync_dir` is kept or lost independently; a rename is atomic.
//! - A failed sync reports its error once, marks the pages clean and loses some of them. The next sync then
//!   succeeds, and reads show the lost data until the cache is dropped. A crash keeps only the data that
//!   reached the disk.
//! - Bit rot is injected by tests: `flip_bits`, `corrupt`, `truncate`.
//!
//! Invariants
//! - Everything that the contracts of [`Disk`](crate::Disk) and [`File`](crate::File) call durable survives
//!   every crash.
//! - The same seed and the same calls in the same order give the same disk.
//! - Zero pages cost no memory: a pre-filled segment is free, and copying the state copies references to
//!   pages.

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
