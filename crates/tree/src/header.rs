//! `Header`: the end of a checkpoint: the roots of its trees, and the range and hash of the bytes that must
//! have reached the disk with it.

use lsn::Lsn;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    METADATA_BYTES_MAX, Pointer, Sums, TREES_MAX,
    format::{
        FLAG_NO_STATE, HEADER_FIXED_BYTES, LEVEL_MAX, MAGIC, NODE_BYTES_MAX, PAGE_BYTES, POINTER_BYTES,
        ROOT_BYTES, VERSION,
    },
    pointer::Child,
};

const CHECKSUM_BYTES: usize = 8;
pub(crate) const HEADER_BYTES_MAX: usize =
    (HEADER_FIXED_BYTES + TREES_MAX as usize * ROOT_BYTES + METADATA_BYTES_MAX + CHECKSUM_BYTES)
        .next_multiple_of(PAGE_BYTES);

/// The random id of a file.
pub(crate) type FileId = [u8; 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) level: u8,
    pub(crate) child: Child,
}

/// A decoded header; [`format`](crate::format) describes the fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) file_id: FileId,
    pub(crate) offset: u64,
    /// Offset of the header before this one; `None` for header 0.
    pub(crate) previous: Option<u64>,
    pub(crate) range_begin: u64,
    pub(crate) range_hash: u128,
    pub(crate) applied_lsn: Lsn,
    /// Whether the file may be opened with this header. False in header 0 of a built file and in intermediate
    /// checkpoints.
    pub(crate) has_state: bool,
    pub(crate) roots: Vec<Option<Root>>,
    pub(crate) metadata: Vec<u8>,
}

/// The reason why bytes were rejected as a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invalid {
    Damaged(&'static str),
    Version(u32),
}

impl Header {
    /// Encodes the header as whole pages, with its checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = HEADER_FIXED_BYTES + self.roots.len() * ROOT_BYTES + self.metadata.len() + CHECKSUM_BYTES;
        let mut out = Vec::with_capacity(size.next_multiple_of(PAGE_BYTES));
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.file_id);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.previous.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&self.range_begin.to_le_bytes());
        out.extend_from_slice(&self.range_hash.to_le_bytes());
        out.extend_from_slice(&self.applied_lsn.get().to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.metadata.len() as u32).to_le_bytes());
        out.extend_from_slice(&[self.roots.len() as u8, if self.has_state { 0 } else { FLAG_NO_STATE }]);
        out.extend_from_slice(&[0; 6]);
        self.roots.iter().for_each(|root| encode_root(root.as_ref(), &mut out));
        out.extend_from_slice(&self.metadata);
        out.resize(size.next_multiple_of(PAGE_BYTES) - CHECKSUM_BYTES, 0);
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Size of the whole header in bytes, computed from the lengths in its first page.
    pub(crate) fn size(page: &[u8]) -> Result<usize, Invalid> {
        let mut rest = page.get(..HEADER_FIXED_BYTES).ok_or(CUT_OFF)?;
        if take::<16>(&mut rest)? != *MAGIC {
            return Err(Invalid::Damaged("where a header should be, there is none"));
        }
        rest = &page[80..];
        let _version = take::<4>(&mut rest)?;
        let metadata = u32::from_le_bytes(take(&mut rest)?) as usize;
        let [trees] = take(&mut rest)?;
        if metadata > METADATA_BYTES_MAX || trees > TREES_MAX {
            return Err(Invalid::Damaged("a header with impossible lengths"));
        }
        let size = HEADER_FIXED_BYTES + usize::from(trees) * ROOT_BYTES + metadata + CHECKSUM_BYTES;
        Ok(size.next_multiple_of(PAGE_BYTES))
    }

    /// Decodes the header at `offset` and verifies its checksum.
    pub(crate) fn decode(bytes: &[u8], offset: u64) -> Result<Header, Invalid> {
        let bytes = bytes.get(..Header::size(bytes)?).ok_or(CUT_OFF)?;
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(CUT_OFF)?;
        if xxh3_64(body).to_le_bytes() != *checksum {
            return Err(Invalid::Damaged("a header does not have the checksum that it was written with"));
        }
        let mut rest = &body[MAGIC.len()..];
        let file_id = take(&mut rest)?;
        let own = u64::from_le_bytes(take(&mut rest)?);
        let previous = u64::from_le_bytes(take(&mut rest)?);
        let range_begin = u64::from_le_bytes(take(&mut rest)?);
        let range_hash = u128::from_le_bytes(take(&mut rest)?);
        let applied_lsn = Lsn::new(u64::from_le_bytes(take(&mut rest)?));
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(Invalid::Version(version));
        }
        let metadata_len = u32::from_le_bytes(take(&mut rest)?) as usize;
        let [trees, flags] = take(&mut rest)?;
        let _zeros = take::<6>(&mut rest)?;
        let previous = (previous != u64::MAX).then_some(previous);
        let possible = own == offset
            && range_begin <= offset
            && previous.is_none_or(|previous| previous < range_begin)
            && previous.is_none() == (offset == 0);
        if !possible || flags & !FLAG_NO_STATE != 0 {
            return Err(Invalid::Damaged("a header that belongs elsewhere"));
        }
        let roots =
            (0..trees).map(|_| decode_root(take(&mut rest)?, offset)).collect::<Result<Vec<_>, Invalid>>()?;
        let metadata = rest.get(..metadata_len).ok_or(CUT_OFF)?.to_vec();
        let has_state = flags & FLAG_NO_STATE == 0;
        Ok(Header {
            file_id,
            offset,
            previous,
            range_begin,
            range_hash,
            applied_lsn,
            has_state,
            roots,
            metadata,
        })
    }

    /// Offset of the end of the header, where the next checkpoint begins.
    pub(crate) fn end(&self) -> u64 {
        let size = HEADER_FIXED_BYTES + self.roots.len() * ROOT_BYTES + self.metadata.len() + CHECKSUM_BYTES;
        self.offset + size.next_multiple_of(PAGE_BYTES) as u64
    }
}

const CUT_OFF: Invalid = Invalid::Damaged("a header is cut off");

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Invalid> {
    let (taken, behind) = rest.split_first_chunk::<N>().ok_or(CUT_OFF)?;
    *rest = behind;
    Ok(*taken)
}

fn encode_root(root: Option<&Root>, out: &mut Vec<u8>) {
    let Some(Root { level, child }) = root else { return out.extend_from_slice(&[0; ROOT_BYTES]) };
    out.extend_from_slice(&[1, *level, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&child.pointer.encode());
    child.sums.0.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    out.extend_from_slice(&child.node_bytes.to_le_bytes());
}

fn decode_root(bytes: [u8; ROOT_BYTES], header_offset: u64) -> Result<Option<Root>, Invalid> {
    let mut rest = &bytes[..];
    let [exists, level, zeros @ ..] = take::<8>(&mut rest)?;
    let pointer = Pointer::decode(&take::<POINTER_BYTES>(&mut rest)?);
    let mut sums = Sums::default();
    for sum in &mut sums.0 {
        *sum = u64::from_le_bytes(take(&mut rest)?);
    }
    let node_bytes = u64::from_le_bytes(take(&mut rest)?);
    if bytes == [0; ROOT_BYTES] {
        return Ok(None);
    }
    let possible = exists == 1
        && level <= LEVEL_MAX
        && zeros == [0; 6]
        && pointer.end() <= header_offset
        && pointer.len() <= NODE_BYTES_MAX;
    if !possible {
        return Err(Invalid::Damaged("a header with an impossible root"));
    }
    Ok(Some(Root { level, child: Child { pointer, sums, node_bytes } }))
}

/// For fuzzing: any bytes are either rejected, or decoded to a header that encodes to bytes of the same
/// meaning.
pub fn decode_any(bytes: &[u8], offset: u64) -> bool {
    let Ok(header) = Header::decode(bytes, offset) else { return false };
    let encoded = header.encode();
    assert_eq!(header.end() - header.offset, encoded.len() as u64);
    assert_eq!(Header::decode(&encoded, offset), Ok(header));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let child =
            Child { pointer: Pointer::new(5000, b"node"), sums: Sums([1, 2, 3, u64::MAX]), node_bytes: 99 };
        Header {
            file_id: [7; 16],
            offset: 3 << 12,
            previous: Some(0),
            range_begin: 1 << 12,
            range_hash: u128::MAX / 3,
            applied_lsn: Lsn::new(123),
            has_state: true,
            roots: vec![Some(Root { level: 3, child }), None],
            metadata: vec![9; 5000],
        }
    }

    #[test]
    fn encoded_headers_are_decoded() {
        for metadata in [0, 1, 3855, 3864, 3865, METADATA_BYTES_MAX] {
            let header = Header { metadata: vec![1; metadata], ..header() };
            let bytes = header.encode();
            assert!(bytes.len().is_multiple_of(PAGE_BYTES) && bytes.len() <= HEADER_BYTES_MAX);
            assert_eq!(Header::size(&bytes[..PAGE_BYTES]), Ok(bytes.len()));
            assert_eq!(header.end(), header.offset + bytes.len() as u64);
            assert_eq!(Header::decode(&bytes, 3 << 12), Ok(header));
        }
    }

    #[test]
    fn no_bit_of_a_header_may_change() {
        let bytes = header().encode();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&changed, 3 << 12).is_err(), "bit {bit}");
        }
        assert!(Header::decode(&bytes, 4 << 12).is_err(), "it stands elsewhere");
        assert!(Header::decode(&bytes[..bytes.len() - 1], 3 << 12).is_err(), "cut");
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut bytes = header().encode();
        bytes[80] = 2;
        assert!(matches!(Header::decode(&bytes, 3 << 12), Err(Invalid::Damaged(_))), "a flipped bit");
        let body = bytes.len() - CHECKSUM_BYTES;
        let checksum = xxh3_64(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&checksum);
        assert_eq!(Header::decode(&bytes, 3 << 12), Err(Invalid::Version(2)));
    }
}
