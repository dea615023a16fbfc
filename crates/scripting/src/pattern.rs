//! Patterns of Lua strings, matched in bounded time and depth.
//!
//! What it is: `string.find`, `match`, `gmatch` and `gsub` as Lua 5.1 has them, on a matcher of its own.
//! What it is not: that of Lua itself, which follows a hostile pattern down the stack until the process ends, and which
//! nobody can stop.

mod class;
mod functions;
mod matcher;

pub(crate) use functions::install;

#[cfg(test)]
mod tests;
