//! The interface between a script and its host, which runs commands, gives the time and writes to the log.

use wire::{Args, Protocol};

use crate::Stop;

/// The level of a message to the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Messages for debugging, as LOG_DEBUG in scripts.
    Debug,
    /// More than an operator usually wants to see.
    Verbose,
    /// Messages that an operator usually wants to see.
    Notice,
    /// Messages that need an operator's attention.
    Warning,
}

/// Why a command was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The script gets this error text.
    Error(String),
    /// The script must stop, for this reason.
    Stop(Stop),
}

/// The host of a running script.
pub trait Calls {
    /// Runs a command for `redis.call`, and appends its reply in this protocol.
    ///
    /// # Errors
    /// If the command cannot be run. An error of the command itself is a reply. The host counts both.
    fn call(&mut self, args: Args<'_>, protocol: Protocol, reply: &mut Vec<u8>) -> Result<(), Refusal>;

    /// Whether the user of the script may run this command; `None` if there is no such command.
    fn may_call(&mut self, args: Args<'_>) -> Option<bool>;

    /// Microseconds of a monotonic clock, for `os.clock`. If the [`Meter`](crate::Meter) has no clock, this
    /// one also serves for the number of instructions between questions, and for the deadline of a library
    /// that is being loaded.
    fn clock_us(&self) -> u64;

    /// Writes to the server's log, for `redis.log`.
    fn log(&mut self, level: LogLevel, message: &[u8]);
}
