//! Requests: the bytes sent by a client, divided into commands and their arguments.
//!
//! A request is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or one inline line (`GET k\r\n`).
//! Nothing nests: an array may contain only bulk strings. The same input as in Redis 7.2 is accepted, except
//! that some [`Limits`] are lower, that request lines of HTTP are errors, and that two rules make the result
//! independent of how the bytes arrive:
//! - a line is too long if its end is not within [`Limits::inline_bytes_max`] bytes, even if all of it
//!   arrived at once;
//! - a zero byte within a line is a byte like any other (Redis stops searching there).
//!
//! As in Redis, the byte after the `\r` of a header and the two bytes after a bulk string are skipped without
//! a check.

mod args;
mod batch;
pub mod check;
mod encode;
mod error;
mod inline;
mod limits;
mod parser;
#[cfg(test)]
mod tests;

pub use args::{Args, ArgsIter, OwnedArgs};
pub use batch::RequestBatch;
pub use encode::encode;
pub use error::ProtocolError;
pub use inline::split_words;
pub use limits::Limits;
pub use parser::{Parsed, RequestParser};
