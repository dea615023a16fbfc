//! Requests: the bytes a client sends, cut into commands and their arguments.
//!
//! A request is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or one inline line (`GET k\r\n`). Nothing nests: inside
//! an array only bulk strings are accepted. What is accepted is what Redis 7.2 accepts, with these two refinements, which
//! make the result a function of the bytes alone and not of how they arrived:
//! - a line is too long when its end is not within [`Limits::inline_bytes_max`] bytes, even if all of it arrived at once;
//! - a zero byte within a line is a byte like any other (Redis stops looking there).
//!
//! As in Redis, the byte after the `\r` of a header and the two bytes after a bulk string are skipped, not checked.

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
