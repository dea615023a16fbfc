//! RDB: how Redis writes values to bytes, for DUMP and RESTORE and for files.
//!
//! What it is: decoding one value from a byte slice and encoding one, with the footer that a DUMP payload has. Reads all
//! value types of strings, lists, sets, sorted sets and hashes up to RDB version 12; writes the ones that every Redis
//! since 7.0 reads.
//! What it is not: how Sheaf stores anything; nor a reader of files, which are many values with their keys.
//!
//! Invariants
//! - Decoding arbitrary bytes never panics, and never allocates for what a length promises but for bytes that are there
//!   (compressed strings: at most [`LZF_RATIO_MAX`] times those).
//! - A value that decodes has no duplicate members or fields, no score that is not a number, and is not empty.
//!
//! Formats: <https://github.com/redis/redis/blob/7.2/src/rdb.h>, and the comments at the head of `listpack.c`,
//! `ziplist.c`, `intset.c` and `zipmap.c` there.

#![forbid(unsafe_code)]

mod compact;
mod lzf;
mod payload;
mod reader;
mod value;
mod writer;

pub use lzf::LZF_RATIO_MAX;
pub use payload::{PAYLOAD_VERSION_MAX, PayloadError, dump, restore};
pub use reader::{Error, Reader};
pub use value::{HashField, Value, decode_value};
pub use writer::Writer;

/// Numbers of the value types, as they stand before a value.
pub(crate) mod types {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const HASH_METADATA_PRE_GA: u8 = 22;
    pub(crate) const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
    pub(crate) const HASH_METADATA: u8 = 24;
    pub(crate) const HASH_LISTPACK_EX: u8 = 25;
}
