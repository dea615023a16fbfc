//! The byte layout of a tree file. This is the only description; all other comments refer to it.
//!
//! ```text
//! header 0 | blobs and nodes | zeros | header | blobs and nodes | zeros | header | ...
//!            '- checkpoint range --'
//! All numbers are little-endian.
//!
//! header, at a multiple of 4096 bytes, as many pages as it needs
//!    0  16 bytes  magic "SHEAF-TREE-HEAD\n"
//!   16  16 bytes  file id, random: the same in every header of a file
//!   32  u64       offset of this header in the file
//!   40  u64       offset of the header before it; of header 0: 2^64 - 1
//!   48  u64       begin of the range: it ends at this header
//!   56  u128      XXH3-128 of the range
//!   72  u64       applied_lsn
//!   80  u32       format version, 1
//!   84  u32       bytes of metadata, up to 65536
//!   88  u8        trees
//!   89  u8        flags: 1 = holds no state: header 0 of a built file, or an intermediate checkpoint
//!   90  6 zeros
//!   96  for each tree a root of 64 bytes
//!       metadata
//!       zeros up to the last 8 bytes of the last page
//!       u64       XXH3-64 of everything before it in this header
//!
//! root
//!    0  u8        1 if there is one; else all 64 bytes are zeros and the tree is empty
//!    1  u8        level of the root node
//!    2  6 zeros
//!    8  pointer
//!   24  4 x u64   sums of all its entries
//!   56  u64       bytes of all its nodes
//!
//! pointer, 16 bytes
//!    0  u48       offset in the file
//!    6  u32       bytes
//!   10  u48       the low 48 bits of their XXH3-64
//!
//! node
//!    0  u8        level: 0 = leaf; the nodes that an inner node points to are one level lower
//!    1  u8        tree
//!    2  u16       p: bytes that all its keys begin with
//!    4  u32       n: entries, at least 1
//!    8  p bytes   the beginning of all keys
//!       n x u32   where each entry ends, counted from the end of this table
//!       n entries, their keys strictly ascending
//! entry
//!    0  u16       bytes of the rest of the key
//!       rest of the key
//!       leaf: the value
//!       inner node: pointer, then as varints (LEB128) 4 sums and the bytes of the child and all nodes below
//!
//! blob: its bytes
//! ```
//!
//! - **Headers can be found by scanning back from the end.** A header stands at a multiple of 4096 bytes,
//!   contains the file id and its own offset, and has a checksum over all of it. The file id is secret, so
//!   that no stored blob can pass for a header.
//! - **Versions** may change everything except the magic, and the places of the version, the lengths and the
//!   checksum in a header.
//! - **One sync is enough.** A header names the range of bytes that must have reached the disk with it. If
//!   these bytes or the header are incomplete, the previous header is used, which was durable before anything
//!   after it was written. The range of a header may be empty: that of header 0, because nothing precedes it;
//!   that of a checkpoint without blobs and nodes; and that of the header with which a build ends, because
//!   everything before that header was synced before it was written.
//! - **Keys of inner nodes** are lower bounds: the keys below entry i are at least key i and less than key
//!   i + 1. The first key is not used as a bound, so only its common beginning is stored.
//! - Nothing is compressed, but the common beginning of keys is stored once per node.

/// Alignment of headers, in bytes.
pub const PAGE_BYTES: usize = env::BLOCK_BYTES;
/// The first bytes of every header.
pub const MAGIC: &[u8; 16] = b"SHEAF-TREE-HEAD\n";
/// The format version that this code writes, and the only one that it reads.
pub const VERSION: u32 = 1;
/// Bytes of a header before its roots.
pub const HEADER_FIXED_BYTES: usize = 96;
/// Bytes of a root in a header.
pub const ROOT_BYTES: usize = 64;
/// The flag of a header that holds no state.
pub const FLAG_NO_STATE: u8 = 1;
/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 16;
/// Bytes of a node before the common beginning of its keys.
pub const NODE_FIXED_BYTES: usize = 8;
/// Bytes of an entry besides its key and value: its end in the table, and the length of the rest of its key.
pub const ENTRY_FIXED_BYTES: usize = 6;
/// The maximum bytes of a node. An entry with the longest key and value takes about half of them, and the
/// other entries of its node need less than the rest.
pub const NODE_BYTES_MAX: usize = 2 << 20;
/// The highest level of a node. Even a tree with the smallest fan-out does not reach it within 2^48 bytes.
pub const LEVEL_MAX: u8 = 48;
