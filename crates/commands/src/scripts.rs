//! Scripts and functions.
//!
//! What it is: EVAL, EVALSHA, their read-only forms, SCRIPT, FCALL, FUNCTION.
//! What it is not: the machine (see the crate `scripting`), nor the scripts that are kept (see
//! `engine::scripts`).
//!
//! Invariants
//! - A script that fails leaves what it did until then, as in Redis, unless `script-rollback` is on.
//! - What is refused to a script is refused before its command has begun.
//! - A script runs on a stale replica, and calls nothing there that could show what is here. One that
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
