//! RDB: the encoding of values by Redis, for DUMP and RESTORE and for files.
//!
//! The crate decodes and encodes values in DUMP payloads. It reads files of Redis (versions 1 to 12) and
//! Valkey (version 80) element by element, and writes files of Redis. It reads all encodings of strings,
//! lists, sets, sorted sets, hashes and streams. It writes encodings that every Redis since 7.0 reads, with
//! two exceptions: hashes with field expiry, and streams with the times of the last deliveries to consumers
//! (in files from version 11 on). RDB is not Sheaf's storage format. The crate opens no files: callers pass
//! them as [`std::io::Read`] and [`std::io::Write`].
//!
//! ```text
//! input (a slice, or a file) -> elements (walks over the encodings) -> value (RESTORE) or visitor (import)
//! writer -> output (a buffer, or a file with its checksum)
//! ```
//!
//! Invariants
//! - Decoding arbitrary bytes never panics, and allocates as bytes arrive, not for all of a claimed length
//!   (compressed strings: at most [`LZF_RATIO_MAX`] times their bytes).
//! - A set, sorted set or hash that [`restore`] returns has no duplicates, and no collection but a stream is
//!   empty. No score is NaN.
//! - Reading a file takes the memory of a few strings, independent of the size of collections; reading a
//!   stream also takes the memory of the pending entries of one group.
//!
//! Formats: <https://github.com/redis/redis/blob/7.2/src/rdb.h>, and the comments at the head of
//! `listpack.c`, `ziplist.c`, `intset.c` and `zipmap.c` there;
//! <https://github.com/valkey-io/valkey/blob/9.0/src/rdb.h>.

#![forbid(unsafe_code)]

mod compact;
mod element;
mod error;
mod file;
mod input;
mod libraries;
mod lzf;
mod opcodes;
mod payload;
mod stream;
#[cfg(test)]
mod testing;
mod value;
mod writer;

pub use element::{Element, Kind};
pub use error::Error;
pub use file::{
    FILE_VERSION_MAX, FILE_VERSION_VALKEY, FileError, FileWriter, Header, Key, PassedOver, Visitor, read_file,
};
pub use input::STRING_BYTES_MAX;
pub use libraries::{LibrariesError, dump_libraries, restore_libraries};
pub use lzf::LZF_RATIO_MAX;
pub use payload::{PAYLOAD_VERSION_MAX, PayloadError, dump, restore};
pub use stream::{Stream, StreamConsumer, StreamElement, StreamGroup, StreamHead, StreamId, StreamNode};
pub use value::{HashField, Value};
pub use writer::{Output, Writer};

/// The checksum of payloads and files. It processes 16 bytes at a time, because files are large.
pub(crate) const CRC: crc::Crc<u64, crc::Table<16>> =
    crc::Crc::<u64, crc::Table<16>>::new(&crc::CRC_64_REDIS);

/// The type numbers that precede values.
pub(crate) mod types {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE: u8 = 6;
    pub(crate) const MODULE_2: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM_LISTPACKS: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const STREAM_LISTPACKS_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_LISTPACKS_3: u8 = 21;
    pub(crate) const HASH_METADATA_PRE_GA: u8 = 22;
    pub(crate) const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
    pub(crate) const HASH_METADATA: u8 = 24;
    pub(crate) const HASH_LISTPACK_EX: u8 = 25;
    /// The type of hashes with field expiry in Valkey files. In Redis files, this number is
    /// [`HASH_METADATA_PRE_GA`].
    pub(crate) const VALKEY_HASH_2: u8 = 22;
}
