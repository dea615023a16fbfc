//! `env`: the only door to the operating system: files, clock, randomness, locks, memory mappings, process statistics.
//!
//! What it is: small traits ([`Disk`], [`File`], [`Clock`], [`Entropy`]) with a real and a simulated
//! implementation each, and the few things that exist only for real (directory lock, ring memory, `/proc`).
//! What it is not: sockets and threads, which belong to `server`; nor any format or policy of what is stored.
//!
//! Invariants
//! - No other crate calls the OS for files, time or randomness (enforced by `clippy.toml`), so a whole server runs
//!   on [`SimDisk`], [`SimClock`] and [`SimEntropy`], and a failure is repeated from one seed.
//! - The promises about durability are those of the traits; the simulation breaks everything they do not promise.
//! - Unsafe code is confined to the modules that allow it, each block with its argument.

#![allow(clippy::disallowed_methods, reason = "the one crate that may ask the OS")]

mod aligned;
pub mod allocator;
mod clock;
pub mod crashsafe;
mod disk;
mod entropy;
mod held;
mod lock;
mod mapping;
pub mod process;
mod real;
pub mod sim;
#[cfg(test)]
mod testing;
pub mod thread;
mod untouched;

pub use aligned::AlignedBytes;
pub use clock::{Clock, RealClock, SimClock};
pub use disk::{Access, BLOCK_BYTES, Disk, File};
pub use entropy::{Entropy, Prng, RealEntropy, SimEntropy};
pub use held::HeldDisk;
pub use lock::{DirLock, LockError, LockLost};
pub use mapping::RingMemory;
pub use real::RealDisk;
pub use sim::SimDisk;
pub use untouched::Untouched;
