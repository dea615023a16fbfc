//! What a script asks of those who run it.

use wire::{Args, Protocol};

use crate::Stop;

/// How important a message for the log of the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For those who look for an error.
    Debug,
    /// Usually not wanted.
    Verbose,
    /// Usually wanted.
    Notice,
    /// Somebody should look.
    Warning,
}

/// Why a command was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The script gets this error.
    Error(String),
    /// The script must not go on.
    Stop(Stop),
}

/// Whoever runs a script.
pub trait Calls {
    /// Runs a command for `redis.call`, and appends its reply in this protocol.
    ///
    /// # Errors
    /// It cannot be run. An error of the command itself is a reply.
    fn call(&mut self, args: Args<'_>, protocol: Protocol, reply: &mut Vec<u8>) -> Result<(), Refusal>;

    /// Whether the user of the script may run this command; `None`: it is no command.
    fn may_call(&mut self, args: Args<'_>) -> Option<bool>;

    /// Microseconds of a clock that only goes forward, for `os.clock`.
    fn clock_us(&self) -> u64;

    /// Writes to the log of the server, for `redis.log`.
    fn log(&mut self, level: LogLevel, message: &[u8]);
}
