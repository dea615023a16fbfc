//! Scripting: the virtual machine in which scripts and functions run.
//!
//! ```text
//! source -> Vm::load: compiled once -> Vm::run(keys, args, calls) -> Returned: the value, to be written as a reply
//! library -> Vm::load_library: what it registers -> Vm::run_function(name, keys, args, calls) -> the same
//!                                        |  redis.call -> Calls::call -> bytes of a reply -> Lua value
//! ```
//!
//! What it is: Lua 5.1 in a sandbox, the `redis` table and the libraries that Redis gives scripts, what values become on
//! their way between Lua and the protocol, and the limits of a script: memory, instructions, and whether it was stopped.
//! What it is not: it knows no keyspace, no log and no socket. What `redis.call` does is up to who runs a script
//! ([`Calls`]).
//!
//! Invariants
//! - A script changes nothing that the next one sees: globals and libraries are read-only, bytecode is not loaded, and
//!   randomness begins anew. Only what a library keeps in
//!   locals of its own stays, in this machine.
//! - Whatever a script does, it can be stopped: what runs for long asks [`Meter`] for leave, and `pcall` does not catch the
//!   refusal.
//! - What a script builds is bounded: memory of Lua by the limit of its allocator, what is built outside by the same limit.

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

/// For fuzzing: what decoders make of bytes that a script was given.
pub mod decoders {
    pub use crate::{json::check as json, msgpack::check as msgpack, structs::check as structs};
}
