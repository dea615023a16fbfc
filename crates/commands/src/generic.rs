//! Keys of any type: their existence, expiry and names, and walks over all of them.
//!
//! Eviction and active expiry are in `engine`.
//!
//! Invariants
//! - An expired key is absent for every command here, whether or not its memory was freed, unless the client
//!   is an import source (CLIENT IMPORT-SOURCE).
//! - Commands that walk the keyspace without naming keys carry `READS_ALL`.

mod dump;
mod existence;
mod expiry;
mod object;
mod rename;
mod rows;
mod walk;

pub(super) use dump::encoded as encoded_value;
pub use dump::{encode as encode_value, stream_effect};
pub(super) use object::encoding_name;

pub(crate) use rows::ROWS;
