//! Scripting: the virtual machine that runs scripts and functions.
//!
//! ```text
//! source  -> Vm::load: compiled once -> Vm::run(keys, args, calls) -> Returned: the value, to be a reply
//! library -> Vm::load_library: its functions -> Vm::run_function(name, keys, args, calls) -> the same
//!                                        |  redis.call -> Calls::call -> bytes of a reply -> Lua value
//! ```
//!
//! The crate has Lua 5.1 in a sandbox, the `redis` table and the libraries that Redis offers to scripts, the
//! conversion between Lua values and replies, and the limits of a script: memory, instructions, and stopping.
//! The crate knows no keyspace, no log and no socket: `redis.call` is implemented by the host ([`Calls`]).
//!
//! Invariants
//! - A script cannot affect the next one: globals and libraries are read-only, bytecode is not loaded, and
//!   the random generator is seeded anew. Only the local variables of a library persist, in this machine.
//! - Every script can be stopped: long operations ask the [`Meter`] regularly whether to continue, and
//!   `pcall` does not catch a stop.
//! - The size of values that a script builds is bounded: the memory of Lua by the limit of its allocator,
//!   results of libraries by the limit with which the machine was made, and the arguments of a command by a
//!   constant.

#![forbid(unsafe_code)]

mod bits;
mod calls;
mod error;
mod json;
mod memory;
mod meter;
mod msgpack;
mod numbers;
mod pattern;
mod random;
mod redis;
mod reply;
mod returned;
mod sha;
mod source;
mod strings;
mod structs;
#[cfg(test)]
mod testing;
mod vm;
mod word;

pub use calls::{Calls, LogLevel, Refusal};
pub use error::ScriptError;
pub use meter::{ClockUs, Limits, Meter, Stop};
pub use returned::Returned;
pub use sha::{Sha, sha1_hex};
pub use source::{LibrarySource, Source, Traits};
pub use vm::{Ended, LibraryId, Registered, Vm};

/// For fuzzing: decoders of bytes supplied by scripts.
pub mod decoders {
    pub use crate::{json::check as json, msgpack::check as msgpack, structs::check as structs};
}
