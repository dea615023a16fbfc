//! The Redis serialization protocol, versions 2 and 3: bytes in, frames out.
//!
//! The crate has the parser of requests ([`RequestParser`]), the writer of replies ([`ReplyWriter`]), a
//! decoder of replies for clients, tests and simulations ([`decode()`], [`Decoder`]), and the text rules of
//! the protocol: numbers ([`number`], [`decimal`], [`double`]) and glob patterns ([`glob`]).
//!
//! The crate owns no socket and no buffer, and knows no commands, keys or log positions.
//!
//! Invariants:
//! - No input causes a panic, or a reservation of more memory than a constant plus the bytes received.
//! - Input that arrives in parts is not searched again from its start at each read, and its division into
//!   reads does not change the result.
//! - After warm-up, the parser of requests allocates nothing for usual commands that arrive whole, and the
//!   writer of replies nothing beside its buffer.

#![forbid(unsafe_code)]

pub mod decimal;
pub mod decode;
pub mod double;
pub mod glob;
pub mod number;
pub mod reply;
pub mod request;

pub use decode::{DecodeError, DecodeLimits, Decoder, Value, decode};
pub use reply::{Aggregate, Deferred, Protocol, ReplyWriter};
pub use request::{
    Args, ArgsIter, Limits, OwnedArgs, Parsed, ProtocolError, RequestBatch, RequestParser, split_words,
};
