//! Scripts and functions.
//!
//! What it is: EVAL, EVALSHA, their read-only forms, SCRIPT, FCALL, FUNCTION.
//! What it is not: the virtual machine (see the crate `scripting`), nor the cache of scripts (see
//! `engine::scripts`).
//!
//! Invariants
//! - The changes that a script made before it failed stay, as in Redis, unless `script-rollback` is on. The
//!   changes of a script that was stopped (killed, at a limit, for holding up replication, or because the
//!   server stops or changes its role) are undone. A script that has flushed a database cannot be undone.
//! - A command that a script may not call is refused before it has begun.
//! - A script runs on a stale replica, but may call only commands with the flag STALE there. A script that
//!   declares its flags runs there only with `allow-stale`.

mod caller;
mod eval;
mod fcall;
mod function;
mod script;

pub(crate) use rows::ROWS;

mod rows;
#[cfg(test)]
mod tests;
