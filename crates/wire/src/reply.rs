//! Replies: values appended to an output buffer in the protocol version that the client asked for.
//!
//! What RESP2 has no type for takes the form that Redis gives it there: a map is an array of keys and values in turn, a
//! double is a bulk string, a boolean an integer. So a command writes one reply and never asks for the version.
//!
//! The writer keeps no count: after [`ReplyWriter::array`] of n the caller writes n values.

#[cfg(test)]
mod tests;
mod writer;

pub use writer::{Aggregate, Deferred, Protocol, ReplyWriter};
