//! `env`: the operating system as the other crates use it: files, clocks, randomness, locks, memory mappings
//! and process statistics.
//!
//! The crate has small traits ([`Disk`], [`File`], [`Clock`], [`Entropy`]), each with a real and a simulated
//! implementation. Other parts have only a real implementation, such as the directory lock, ring memory,
//! `/proc` and the state of a socket. The crate opens no sockets and keeps no threads; file formats and
//! storage policies belong to the crates above.
//!
//! Invariants
//! - Code that asks for files, time and randomness only through the traits also runs on [`SimDisk`],
//!   [`SimClock`] and [`SimEntropy`], where a failure can be reproduced from one seed. `clippy.toml` forbids
//!   some other ways to files and time.
//! - The traits define the durability guarantees.
//! - Unsafe code is confined to the modules that allow it; each block has a `SAFETY` comment.

#![allow(clippy::disallowed_methods, reason = "the one crate that may ask the OS")]

mod aligned;
pub mod allocator;
mod clock;
pub mod crashsafe;
mod disk;
mod entropy;
mod held;
mod line_file;
mod lock;
pub mod machine;
mod mapping;
pub mod process;
mod real;
pub mod reserve;
pub mod sim;
pub mod socket;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod thread;
mod untouched;

pub use aligned::AlignedBytes;
pub use clock::{Clock, RealClock, SimClock};
pub use disk::{Access, BLOCK_BYTES, Disk, File};
pub use entropy::{Entropy, RealEntropy, SimEntropy};
pub use held::HeldDisk;
pub use line_file::LineFile;
pub use lock::{DirLock, LockError, LockLost};
pub use mapping::RingMemory;
pub use prng::Prng;
pub use real::RealDisk;
pub use sim::SimDisk;
pub use untouched::Untouched;
