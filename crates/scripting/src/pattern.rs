//! Lua string patterns. The matcher's depth is bounded, and a script can be stopped while it matches.
//!
//! The module implements `string.find`, `match`, `gmatch` and `gsub` of Lua 5.1 with its own matcher. Lua's
//! matcher recurses on a hostile pattern until the process crashes, and cannot be stopped.

mod class;
mod functions;
mod matcher;

pub(crate) use functions::install;

#[cfg(test)]
mod tests;
