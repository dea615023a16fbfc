//! The Redis serialization protocol, versions 2 and 3: bytes in, frames out.
//!
//! What it is: the parser of requests ([`RequestParser`]), the writer of replies ([`ReplyWriter`]), a reader of replies
//! for tests, simulations and importers ([`decode()`]), and the small text rules that belong to the protocol as clients
//! see it: numbers ([`number`], [`decimal`], [`double`]) and glob patterns ([`glob`]).
//!
//! What it is not: it owns no socket and no buffer, knows no command, no key and no log position.
//!
//! Invariants:
//! - No input makes it panic, and none makes it reserve more memory than a constant plus what was received.
//! - A request byte is looked at once, however the input is cut into reads, and how it is cut never changes the result.
//! - After warm-up nothing is allocated per command or per reply.

#![forbid(unsafe_code)]

pub mod decimal;
pub mod decode;
pub mod double;
pub mod glob;
pub mod number;
pub mod reply;
pub mod request;

pub use decode::{DecodeError, DecodeLimits, Value, decode};
pub use reply::{Aggregate, Deferred, Protocol, ReplyWriter};
pub use request::{
    Args, ArgsIter, Limits, OwnedArgs, Parsed, ProtocolError, RequestBatch, RequestParser, split_words,
};
