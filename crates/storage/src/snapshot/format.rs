//! The byte format of a part file. This is the only description; everything else refers to it.
//!
//! ```text
//! snap-<begin_lsn, 16 hex digits>.<part>.part          all numbers little-endian
//! header page | chunk | chunk | ... | index, zeros up to a page | footer page
//!
//! header page, 4096 bytes                      footer page, 4096 bytes
//!    0  8 bytes  magic "SHEAFPRT"                 0  8 bytes  magic "SHEAFEND"
//!    8  u32      format version, 1                8  u64      offset of the index
//!   12  u32      part number, from 0             16  u64      rows
//!   16  16 bytes log id                          24  u64      bytes of all payloads, not compressed
//!   32  u64      begin_lsn                       32  u64      highest lsn of a chunk
//!   40  zeros                                    40  u32      chunks
//! 4092  u32      crc32c of bytes 0..4092         44  u32      crc32c of the index and its zeros
//!                                                48  zeros
//!                                              4092  u32      crc32c of bytes 0..4092
//! chunk, at a multiple of 8 bytes
//!    0  u32  magic "CHNK"
//!    4  u16  first slot
//!    6  u16  last slot
//!    8  u8   flags: 1 = compressed (LZ4 block), 2 = continues the chunk before it
//!    9  3 zeros
//!   12  u32  rows
//!   16  u32  raw_len: bytes of the payload
//!   20  u32  stored_len: bytes of the payload as it is stored
//!   24  u64  lsn: not below that of any of its slots
//!   32  u32  crc32c of the stored payload and its zeros
//!   36  u32  crc32c of bytes 0..36
//!   40  stored payload, then zeros up to a multiple of 8
//! ```
//!
//! - Chunks follow each other without gaps from 4096 to the index, and the **index is the headers of all
//!   chunks** in order, bytes 0..36 of each. No offset of a chunk is stored: the lengths determine all
//!   offsets. The checksums at 36 are left out, because a CRC over bytes that end with their own CRC is the
//!   same for all contents. The offset of the index, and the sums in footer and manifest, are checked against
//!   the index.
//! - Every file is protected by a chain of checksums: the manifest has the checksum of each footer, the
//!   footer the checksum of the index, the index the checksum of each chunk. This leaves no byte of a file
//!   unprotected, and also detects a stale chunk of another file that is intact by itself.
//! - A part is written front to back, without ever going back to fill in or overwrite bytes.

use env::BLOCK_BYTES;
use lsn::Lsn;

/// The largest payload of a chunk. Reading a snapshot allocates at most about twice this per thread.
pub const CHUNK_RAW_BYTES_MAX: usize = 4 << 20;
/// Bytes of payload after which a chunk should be closed: large enough to compress well, and small enough
/// that the capture works only for a short time between two pauses.
pub const CHUNK_RAW_BYTES_AIM: usize = 64 << 10;

/// Size of a page. Headers and footers are one page each, and files consist of whole pages, as direct writes
/// require.
pub(crate) const PAGE_BYTES: usize = BLOCK_BYTES;
/// The version of manifests and parts.
pub(crate) const VERSION: u32 = 1;
pub(crate) const CHUNK_HEADER_BYTES: usize = 40;
/// Size of an index entry: a chunk header without its checksum.
pub(crate) const INDEX_ENTRY_BYTES: usize = 36;
const CHUNK_ALIGNMENT: usize = 8;

const HEADER_MAGIC: &[u8; 8] = b"SHEAFPRT";
const FOOTER_MAGIC: &[u8; 8] = b"SHEAFEND";
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CHNK");
const FLAG_COMPRESSED: u8 = 1;
const FLAG_CONTINUES: u8 = 2;
/// Offset of the checksum that ends a page.
const PAGE_CRC_AT: usize = PAGE_BYTES - 4;

/// A page of a file.
pub(crate) type Page = [u8; PAGE_BYTES];

/// The metadata of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The slot to which the first byte of the payload belongs.
    pub first_slot: u16,
    /// The last slot of which the chunk may have rows.
    pub last_slot: u16,
    /// The number of keys of the slots that begin in the chunk, even if later chunks have some of these keys.
    pub rows: u32,
    /// Not below the LSN of any captured slot: the chunk may be published only when this position is durable.
    pub lsn: Lsn,
    /// Whether the chunk continues the chunk before it in the same part and must be applied after that chunk.
    pub continues: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) info: ChunkInfo,
    pub(crate) compressed: bool,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) payload_crc: u32,
}

impl ChunkHeader {
    /// The header as it is written before the payload.
    pub(crate) fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        let entry = self.index_entry();
        out[..INDEX_ENTRY_BYTES].copy_from_slice(&entry);
        out[INDEX_ENTRY_BYTES..].copy_from_slice(&crc32c::crc32c(&entry).to_le_bytes());
        out
    }

    /// The header as it is written in the index.
    pub(crate) fn index_entry(&self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut out = [0; INDEX_ENTRY_BYTES];
        out[0..4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&self.info.first_slot.to_le_bytes());
        out[6..8].copy_from_slice(&self.info.last_slot.to_le_bytes());
        out[8] = u8::from(self.compressed) * FLAG_COMPRESSED + u8::from(self.info.continues) * FLAG_CONTINUES;
        out[12..16].copy_from_slice(&self.info.rows.to_le_bytes());
        out[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.stored_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.info.lsn.get().to_le_bytes());
        out[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        out
    }

    /// Decodes an index entry, or returns the reason why it is invalid. The lengths of a returned header are
    /// within bounds.
    pub(crate) fn decode(bytes: &[u8; INDEX_ENTRY_BYTES]) -> Result<ChunkHeader, &'static str> {
        if u32_at(bytes, 0) != CHUNK_MAGIC {
            return Err("the index holds no chunk where one should be");
        }
        let flags = bytes[8];
        let header = ChunkHeader {
            info: ChunkInfo {
                first_slot: u16_at(bytes, 4),
                last_slot: u16_at(bytes, 6),
                rows: u32_at(bytes, 12),
                lsn: Lsn::new(u64_at(bytes, 24)),
                continues: flags & FLAG_CONTINUES != 0,
            },
            compressed: flags & FLAG_COMPRESSED != 0,
            raw_len: u32_at(bytes, 16),
            stored_len: u32_at(bytes, 20),
            payload_crc: u32_at(bytes, 32),
        };
        let possible = flags & !(FLAG_COMPRESSED | FLAG_CONTINUES) == 0
            && header.raw_len as usize <= CHUNK_RAW_BYTES_MAX
            && if header.compressed {
                header.stored_len < header.raw_len
            } else {
                header.stored_len == header.raw_len
            };
        if possible { Ok(header) } else { Err("the index holds a chunk with impossible lengths or flags") }
    }

    /// Size of the stored payload including padding.
    pub(crate) fn padded_bytes(&self) -> usize {
        padded_bytes(self.stored_len as usize)
    }

    /// Size of the chunk in the file.
    pub(crate) fn occupied_bytes(&self) -> usize {
        CHUNK_HEADER_BYTES + self.padded_bytes()
    }
}

/// Size of a stored payload including padding.
pub(crate) fn padded_bytes(stored_len: usize) -> usize {
    stored_len.next_multiple_of(CHUNK_ALIGNMENT)
}

pub(crate) fn header_page(log_id: &[u8; 16], begin_lsn: Lsn, part: u32) -> Page {
    let mut page = [0; PAGE_BYTES];
    page[0..8].copy_from_slice(HEADER_MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&part.to_le_bytes());
    page[16..32].copy_from_slice(log_id);
    page[32..40].copy_from_slice(&begin_lsn.get().to_le_bytes());
    seal(&mut page);
    page
}

/// The footer page of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) index_offset: u64,
    pub(crate) rows: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) highest_lsn: Lsn,
    pub(crate) chunks: u32,
    pub(crate) index_crc: u32,
}

impl Footer {
    /// Encodes the page; returns it with its checksum for the manifest.
    pub(crate) fn encode(&self) -> (Page, u32) {
        let mut page = [0; PAGE_BYTES];
        page[0..8].copy_from_slice(FOOTER_MAGIC);
        page[8..16].copy_from_slice(&self.index_offset.to_le_bytes());
        page[16..24].copy_from_slice(&self.rows.to_le_bytes());
        page[24..32].copy_from_slice(&self.raw_bytes.to_le_bytes());
        page[32..40].copy_from_slice(&self.highest_lsn.get().to_le_bytes());
        page[40..44].copy_from_slice(&self.chunks.to_le_bytes());
        page[44..48].copy_from_slice(&self.index_crc.to_le_bytes());
        let crc = seal(&mut page);
        (page, crc)
    }

    /// Decodes the footer page and checks its checksum against `crc`, the checksum in the manifest.
    pub(crate) fn decode(page: &Page, crc: u32) -> Result<Footer, &'static str> {
        if &page[0..8] != FOOTER_MAGIC {
            return Err("no footer stands here");
        }
        if u32_at(page, PAGE_CRC_AT) != crc32c::crc32c(&page[..PAGE_CRC_AT]) {
            return Err("the checksum of the footer does not match");
        }
        if u32_at(page, PAGE_CRC_AT) != crc {
            return Err("the footer is not the one that the manifest names");
        }
        Ok(Footer {
            index_offset: u64_at(page, 8),
            rows: u64_at(page, 16),
            raw_bytes: u64_at(page, 24),
            highest_lsn: Lsn::new(u64_at(page, 32)),
            chunks: u32_at(page, 40),
            index_crc: u32_at(page, 44),
        })
    }
}

/// Writes the checksum at the end of a page, and returns it.
fn seal(page: &mut Page) -> u32 {
    let crc = crc32c::crc32c(&page[..PAGE_CRC_AT]);
    page[PAGE_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The number at `at`, which must lie within `bytes`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// As [`u16_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// As [`u16_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> ChunkHeader {
        ChunkHeader {
            info: ChunkInfo { first_slot: 7, last_slot: 9, rows: 3, lsn: Lsn::new(77), continues: true },
            compressed: true,
            raw_len: 100,
            stored_len: 61,
            payload_crc: 5,
        }
    }

    #[test]
    fn a_chunk_header_reads_back_from_the_index() {
        assert_eq!(ChunkHeader::decode(&chunk().index_entry()), Ok(chunk()));
        assert_eq!(chunk().encode()[..INDEX_ENTRY_BYTES], chunk().index_entry());
        assert_eq!((chunk().padded_bytes(), chunk().occupied_bytes()), (64, 104));
    }

    #[test]
    fn the_checksum_of_an_index_depends_on_its_entries() {
        let other = ChunkHeader { payload_crc: 6, ..chunk() };
        assert_ne!(crc32c::crc32c(&chunk().index_entry()), crc32c::crc32c(&other.index_entry()));
    }

    #[test]
    fn lengths_out_of_bounds_and_unknown_flags_are_refused() {
        let too_long = CHUNK_RAW_BYTES_MAX as u32 + 1;
        let cases = [
            ChunkHeader { raw_len: too_long, ..chunk() },
            ChunkHeader { stored_len: 100, ..chunk() },
            ChunkHeader { compressed: false, ..chunk() },
        ];
        for header in cases {
            assert!(ChunkHeader::decode(&header.index_entry()).is_err(), "{header:?}");
        }
        let mut unknown_flag = chunk().index_entry();
        unknown_flag[8] |= 4;
        assert!(ChunkHeader::decode(&unknown_flag).is_err());
    }

    #[test]
    fn only_the_footer_of_the_snapshot_itself_is_read() {
        let footer = Footer {
            index_offset: 8192,
            rows: 1 << 40,
            raw_bytes: 2 << 40,
            highest_lsn: Lsn::new(9),
            chunks: 4,
            index_crc: 5,
        };
        let (page, crc) = footer.encode();
        assert_eq!(Footer::decode(&page, crc), Ok(footer));
        assert!(Footer::decode(&page, crc ^ 1).is_err(), "another file's footer");
        let mut bad = page;
        bad[2000] = 1;
        assert!(Footer::decode(&bad, crc).is_err());
    }
}
