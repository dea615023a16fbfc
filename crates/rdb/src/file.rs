//! Files: many values with their keys.
//!
//! ```text
//! "REDIS" and four digits, or "VALKEY" and three: the version
//! ( opcode and what belongs to it | [deadline] [access time] type number, key, value ) ...
//! end opcode, CRC-64 of everything before (eight bytes little-endian, zero for none; since version 5)
//! ```
//!
//! What it is: [`read_file`], which shows a [`Visitor`] every key and every element once, in the order of the file; and
//! [`FileWriter`].
//! What it is not: a judge of what to do with it: whoever reads decides about keys that have expired, that exist, or
//! whose type it does not take.
//!
//! Invariants
//! - Every error names the byte where reading stopped, and the key if it is within one.
//! - Nothing is passed over in silence but what is no data: hints about sizes and times of access.

mod reading;
mod skip;
mod source;
#[cfg(test)]
mod tests;
mod writing;

pub use reading::{Header, Key, PassedOver, Visitor, read_file};
pub use writing::FileWriter;

use crate::Error;

/// Newest version of Redis' files that is read.
pub const FILE_VERSION_MAX: u16 = 12;
/// The version of Valkey's own files that is read.
pub const FILE_VERSION_VALKEY: u16 = 80;
/// First version with a checksum.
const VERSION_CHECKSUM: u16 = 5;
/// First version with fields that expire.
const VERSION_EXPIRING_FIELDS: u16 = 12;
/// First version that says when a consumer of a stream got something last.
const VERSION_ACTIVE_TIMES: u16 = 11;

/// What may stand where a type number may.
pub(crate) mod opcodes {
    pub(super) const SLOT_IMPORT: u8 = 243;
    pub(super) const SLOT_INFO: u8 = 244;
    pub(crate) const FUNCTION: u8 = 245;
    pub(super) const FUNCTION_PRE_GA: u8 = 246;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE_TIME: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const RESIZE_DB: u8 = 251;
    pub(super) const EXPIRE_TIME_MS: u8 = 252;
    pub(super) const EXPIRE_TIME: u8 = 253;
    pub(super) const SELECT_DB: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It begins like no such file.
    #[error("this is no RDB file: it does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// It is newer than this reader.
    #[error(
        "the file is of {server} RDB version {version}; up to {FILE_VERSION_MAX} of Redis and {FILE_VERSION_VALKEY} of Valkey can be read"
    )]
    Version {
        /// Who wrote it.
        server: &'static str,
        /// The version.
        version: u16,
    },
    /// The OS cannot read it.
    #[error("at byte {offset}: {error}")]
    Io {
        /// Where.
        offset: u64,
        /// What the OS said.
        error: std::io::Error,
    },
    /// Its bytes are not what they should be.
    #[error("at byte {offset}{}: {error}", within(.key))]
    Malformed {
        /// Where reading stopped: at most a few bytes behind what is wrong.
        offset: u64,
        /// Database and name of the key that was being read.
        key: Option<(u64, Vec<u8>)>,
        /// What is wrong.
        error: Error,
    },
    /// A value that belongs to a module.
    #[error("at byte {offset}{}: a value of a module, which only that module understands", within(&Some((*.db, .key.clone()))))]
    Module {
        /// Where reading stopped.
        offset: u64,
        /// Its database.
        db: u64,
        /// Its key.
        key: Vec<u8>,
    },
    /// The checksum is of other bytes.
    #[error("the checksum at the end of the file (byte {offset}) is of other bytes: the file was damaged")]
    Checksum {
        /// Where the checksum is.
        offset: u64,
    },
    /// The file goes on.
    #[error(
        "more bytes follow the end of the RDB data at byte {offset} (an append only file with an RDB file at its start?)"
    )]
    GoesOn {
        /// Where it should end.
        offset: u64,
    },
}

/// Longest part of a key that an error shows.
const SHOWN_BYTES_MAX: usize = 128;

fn within(key: &Option<(u64, Vec<u8>)>) -> String {
    let Some((db, key)) = key else { return String::new() };
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!(", in the value of key \"{}\"{more} of database {db}", shown.escape_ascii())
}
