//! Files: many values with their keys.
//!
//! ```text
//! "REDIS" and four digits, or "VALKEY" and three: the version
//! ( opcode and its operands | [deadline] [access time] type number, key, value ) ...
//! end opcode, CRC-64 of everything before (eight bytes little-endian, zero for none; since version 5)
//! ```
//!
//! [`read_file`] passes every key and every element once to a [`Visitor`], in the order of the file;
//! [`FileWriter`] writes a file. The visitor decides about keys that are expired or exist already.
//!
//! Invariants
//! - A [`FileError`] after the header has a position in the file. If reading stopped within the value of a
//!   key, an error of the content names this key, too.
//! - Only hints are skipped silently: auxiliary fields, sizes, access times and frequencies, and cluster
//!   slots.

mod reading;
mod skip;
mod source;
#[cfg(test)]
mod tests;
mod writing;

pub use reading::{Header, Key, PassedOver, Visitor, read_file};
pub use writing::FileWriter;

use crate::Error;

/// The newest version of Redis files that can be read.
pub const FILE_VERSION_MAX: u16 = 12;
/// The version of Valkey's own files that can be read.
pub const FILE_VERSION_VALKEY: u16 = 80;
/// The first version with a checksum.
const VERSION_CHECKSUM: u16 = 5;
/// The first version with field expiry.
const VERSION_EXPIRING_FIELDS: u16 = 12;
/// The first version with the time of the last delivery to a consumer of a stream.
const VERSION_ACTIVE_TIMES: u16 = 11;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not begin like an RDB file.
    #[error("this is no RDB file: it does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// The file begins like an append-only file.
    #[error(
        "this is no RDB file. Is it an append only file? Use dump.rdb, or copy the running server with --from"
    )]
    AppendOnly,
    /// The version of the file is not one that can be read.
    #[error(
        "the file is of {server} RDB version {version}; up to {FILE_VERSION_MAX} of Redis and {FILE_VERSION_VALKEY} of Valkey can be read"
    )]
    Version {
        /// The server whose format the file has.
        server: &'static str,
        /// The version of this format.
        version: u16,
    },
    /// Reading the file failed.
    #[error("at byte {offset}: {error}")]
    Io {
        /// The position in the file.
        offset: u64,
        /// The error of the source of bytes.
        error: std::io::Error,
    },
    /// The content of the file is invalid.
    #[error("at byte {offset}{}: {error}", within(.key))]
    Malformed {
        /// The position at which reading stopped, behind the fault.
        offset: u64,
        /// Database and name of the key whose value was being read.
        key: Option<(u64, Vec<u8>)>,
        /// The fault.
        error: Error,
    },
    /// The file has a value of a module, which only the module can decode.
    #[error("at byte {offset}{}: a value of a module, which only that module understands", within(&Some((*.db, .key.clone()))))]
    Module {
        /// The position at which reading stopped.
        offset: u64,
        /// The number of the key's database.
        db: u64,
        /// The name of the key.
        key: Vec<u8>,
    },
    /// The checksum does not match.
    #[error("the checksum at the end of the file (byte {offset}) is of other bytes: the file was damaged")]
    Checksum {
        /// The position of the checksum.
        offset: u64,
    },
    /// Bytes follow the end of the RDB data.
    #[error(
        "more bytes follow the end of the RDB data at byte {offset} (an append only file with an RDB file at its start?)"
    )]
    GoesOn {
        /// The end of the RDB data.
        offset: u64,
    },
}

/// The maximum bytes of a key that an error shows.
const SHOWN_BYTES_MAX: usize = 128;

fn within(key: &Option<(u64, Vec<u8>)>) -> String {
    let Some((db, key)) = key else { return String::new() };
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!(", in the value of key \"{}\"{more} of database {db}", shown.escape_ascii())
}
