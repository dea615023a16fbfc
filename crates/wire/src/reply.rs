//! Replies: values appended to an output buffer in the protocol version of the client.
//!
//! Types missing in RESP2 are written as Redis does: a map is an array of keys and values in turn, a double
//! is a bulk string, a boolean an integer. So a command writes one reply for both versions.
//!
//! The writer keeps no count: after [`ReplyWriter::array`] of n the caller writes n values.

#[cfg(test)]
mod tests;
mod writer;

pub use writer::{Aggregate, Deferred, Protocol, ReplyWriter};
