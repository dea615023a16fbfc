//! The bytes of the log: records. Together with [`footer`](super::footer) this is the only description of the
//! format.
//!
//! The log is one stream of records, each starting at a multiple of 8 bytes. A *batch* is what the server
//! that closed it writes at once: records, then one batch-end record that pads the batch to a multiple of
//! 4096 bytes. All numbers are little-endian.
//!
//! ```text
//! record
//!  0  u32  crc32c of `len`, then of bytes 8..
//!  4  u32  len: header + payload
//!  8  u64  lsn: position after the record
//! 16  u32  epoch of the writer
//! 20  u8   kind
//! 21  u8   mark: 1 or 0
//! 22  u16  zero
//! 24  ..   payload, then zeros up to 8
//! ```
//!
//! The payload of a batch-end record is zeros, then a footer: see [`footer`](super::footer).
//!
//! - After `len`, the checksum covers the record from byte 8 to its end, padding included, in whole words of
//!   8 bytes. Most records are short, and a checksum over part of a word would take longer than one over the
//!   whole word.
//! - The mark belongs to the writer: a marked payload is relevant for certain readers, which can skip
//!   unmarked records without decoding them. All parts of a chain have the mark of the whole record. A
//!   batch-end record has no mark.
//! - Kind 0 is no record, so zero-filled space ahead of the log is never mistaken for one.
//! - `lsn` binds a record to its position: stale bytes in a recycled segment are never taken for new records.
//! - Epochs never decrease along the log: each start as a leader begins a higher epoch, so stale parts of an
//!   unfinished batch of an earlier run cannot continue the log of a newer run.
//! - A payload larger than [`PAYLOAD_BYTES_MAX`] or a quarter of the ring is split into pieces: `Part`
//!   records, and one `Last` record, whose LSN is the LSN of the whole record. The payload of each of these
//!   is the chain id (u64), then a piece. The chain id is the position at which the first part starts. Other
//!   records may lie between the parts. A chain without its `Last` is ignored.
//! - The first piece of a split payload has the remainder of the length, and all others, also the last one,
//!   have the full length. The reason: the n-th message of a durable channel in a split record has the
//!   position `start of the last piece + n`, which must lie within the record.

use lsn::Lsn;

use super::footer::{FOOTER_BYTES, Footer};

/// Bytes before the payload of a record.
pub const RECORD_HEADER_BYTES: usize = 24;
/// Records start at multiples of this many bytes.
pub(crate) const RECORD_ALIGNMENT: u64 = 8;
/// Batches end at multiples of this many bytes: the unit of direct disk writes, so that a torn write cannot
/// touch a block with acknowledged records.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Size of the smallest batch-end record.
pub(crate) const BATCH_END_BYTES_MIN: u64 = (RECORD_HEADER_BYTES + FOOTER_BYTES) as u64;
/// The largest payload of one record, 1 MiB; larger payloads are split into a chain of parts. With this size,
/// one part of a huge value delays its batch by at most about a millisecond of disk time.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of the chain id that starts the payload of `Part` and `Last`.
pub(crate) const CHAIN_ID_BYTES: usize = 8;
/// The largest payload that is accepted: 2 GiB, as much as the greatest `client-query-buffer-limit`.
pub const CHAIN_BYTES_MAX: usize = 1 << 31;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!(BATCH_END_BYTES_MIN < BLOCK_BYTES);
const _: () = assert!((RECORD_HEADER_BYTES as u64).is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!((FOOTER_BYTES as u64).is_multiple_of(RECORD_ALIGNMENT));

/// The role of a record in the log, independent of the meaning of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A whole payload.
    Whole = 1,
    /// The end of a batch; its payload is padding and a footer.
    BatchEnd = 2,
    /// A piece of a payload, not the last.
    Part = 3,
    /// The last piece of a payload.
    Last = 4,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Whole),
            2 => Some(Self::BatchEnd),
            3 => Some(Self::Part),
            4 => Some(Self::Last),
            _ => None,
        }
    }
}

/// Size in the log of a record with this payload, including header and padding.
#[inline]
pub(crate) const fn occupied_bytes(payload_bytes: usize) -> u64 {
    (RECORD_HEADER_BYTES as u64 + payload_bytes as u64).next_multiple_of(RECORD_ALIGNMENT)
}

/// Writes a record into `space`, which has exactly the record's size. The payload of the record is `prefix`
/// followed by `payload`.
///
/// # Panics
/// If `space` does not have the record's size.
#[inline]
pub(crate) fn encode(
    space: &mut [u8],
    (kind, is_marked): (RecordKind, bool),
    lsn: Lsn,
    epoch: u32,
    prefix: &[u8],
    payload: &[u8],
) {
    let len = RECORD_HEADER_BYTES + prefix.len() + payload.len();
    assert_eq!(space.len() as u64, occupied_bytes(len - RECORD_HEADER_BYTES));
    let (header, rest) = space.split_at_mut(RECORD_HEADER_BYTES);
    header[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    header[8..16].copy_from_slice(&lsn.get().to_le_bytes());
    header[16..20].copy_from_slice(&epoch.to_le_bytes());
    header[20..24].copy_from_slice(&[kind as u8, u8::from(is_marked), 0, 0]);
    rest[..prefix.len()].copy_from_slice(prefix);
    rest[prefix.len()..prefix.len() + payload.len()].copy_from_slice(payload);
    rest[prefix.len() + payload.len()..].fill(0);
    let crc = checksum(space);
    space[0..4].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of the record that occupies all of `space`.
#[inline]
fn checksum(space: &[u8]) -> u32 {
    crc32c::crc32c_append(u32_at(space, 4), &space[8..])
}

/// Writes a batch-end record into `space`, which reaches from the last record to the end of the batch.
pub(crate) fn encode_batch_end(space: &mut [u8], footer: &Footer) {
    assert!(space.len() as u64 >= BATCH_END_BYTES_MIN);
    let payload_bytes = space.len() - RECORD_HEADER_BYTES;
    let (padding, end) = space[RECORD_HEADER_BYTES..].split_at_mut(payload_bytes - FOOTER_BYTES);
    padding.fill(0);
    end.copy_from_slice(&footer.encode());
    let len = space.len();
    space[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    space[8..16].copy_from_slice(&footer.end.get().to_le_bytes());
    space[16..20].copy_from_slice(&footer.epoch.to_le_bytes());
    space[20..24].copy_from_slice(&[RecordKind::BatchEnd as u8, 0, 0, 0]);
    let crc = checksum(space);
    space[0..4].copy_from_slice(&crc.to_le_bytes());
}

/// A valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its role in the log.
    pub kind: RecordKind,
    /// The mark of the writer; see [`Appender::reserve_marked`](crate::Appender::reserve_marked).
    pub is_marked: bool,
    /// The position after the last byte of the record.
    pub lsn: Lsn,
    /// The epoch of the writer.
    pub epoch: u32,
    /// The payload of the record.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Its size in the log, including header and padding.
    pub fn occupied_bytes(&self) -> u64 {
        occupied_bytes(self.payload.len())
    }

    /// The position of its first byte.
    pub fn start(&self) -> Lsn {
        Lsn::new(self.lsn.get() - self.occupied_bytes())
    }

    /// For a part of a chain: the beginning of the chain's first part, and the bytes of this part. `None` for
    /// other records.
    pub fn piece(&self) -> Option<(Lsn, &[u8])> {
        let (id, piece) = self.payload.split_first_chunk::<CHAIN_ID_BYTES>()?;
        let is_piece = matches!(self.kind, RecordKind::Part | RecordKind::Last);
        is_piece.then(|| (Lsn::new(u64::from_le_bytes(*id)), piece))
    }
}

/// Why bytes are not a valid record at their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// More bytes are needed to decide: this many, counted from the start of the record.
    Short(usize),
    /// A header of zeros: no record was written here, or it was overwritten with zeros.
    Blank,
    /// The length field is impossible.
    Length(u32),
    /// A record of another position: stale bytes of a recycled segment, or misplaced by the disk.
    Position(Lsn),
    /// An unknown kind, or nonzero reserved or padding bytes.
    Form,
    /// The checksum does not match.
    Checksum,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Invalid::Short(bytes) => write!(f, "the log ends within a record of {bytes} bytes"),
            Invalid::Blank => f.write_str("zeros where a record should be"),
            Invalid::Length(len) => write!(f, "impossible record length {len}"),
            Invalid::Position(lsn) => write!(f, "a record of another position (lsn {lsn})"),
            Invalid::Form => f.write_str("unknown record kind or reserved bytes in use"),
            Invalid::Checksum => f.write_str("record checksum mismatch"),
        }
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Decodes the record that starts at `position` from the front of `bytes`, with all checks.
pub(crate) fn decode(bytes: &[u8], position: Lsn) -> Result<Record<'_>, Invalid> {
    let Some(header) = bytes.get(..RECORD_HEADER_BYTES) else {
        return Err(Invalid::Short(RECORD_HEADER_BYTES));
    };
    if header.iter().all(|&byte| byte == 0) {
        return Err(Invalid::Blank);
    }
    let len = u32_at(header, 4);
    let payload_max = PAYLOAD_BYTES_MAX.max(2 * BLOCK_BYTES as usize);
    if (len as usize) < RECORD_HEADER_BYTES || len as usize > RECORD_HEADER_BYTES + payload_max {
        return Err(Invalid::Length(len));
    }
    let len = len as usize;
    let occupied = occupied_bytes(len - RECORD_HEADER_BYTES);
    let lsn = Lsn::new(u64_at(header, 8));
    if lsn != position.advance(occupied) {
        return Err(Invalid::Position(lsn));
    }
    let Some(space) = bytes.get(..occupied as usize) else {
        return Err(Invalid::Short(occupied as usize));
    };
    if u32_at(header, 0) != checksum(space) {
        return Err(Invalid::Checksum);
    }
    let kind = RecordKind::from_byte(header[20]).ok_or(Invalid::Form)?;
    let is_marked = header[21] == 1 && kind != RecordKind::BatchEnd;
    if header[21..24] != [u8::from(is_marked), 0, 0] || space[len..].iter().any(|&byte| byte != 0) {
        return Err(Invalid::Form);
    }
    Ok(Record { kind, is_marked, lsn, epoch: u32_at(header, 16), payload: &space[RECORD_HEADER_BYTES..len] })
}

/// Decodes a record that [`decode`] has accepted before, without verifying it again.
///
/// # Panics
/// If the record is not valid.
pub(crate) fn decode_verified(bytes: &[u8], position: Lsn) -> Record<'_> {
    let len = u32_at(bytes, 4) as usize;
    let kind = RecordKind::from_byte(bytes[20]).expect("the record was verified");
    let lsn = position.advance(occupied_bytes(len - RECORD_HEADER_BYTES));
    Record {
        kind,
        is_marked: bytes[21] == 1,
        lsn,
        epoch: u32_at(bytes, 16),
        payload: &bytes[RECORD_HEADER_BYTES..len],
    }
}

/// The records of verified whole batches that start at `position`, without the batch-end records.
pub(crate) fn verified_records(bytes: &[u8], position: Lsn) -> impl Iterator<Item = Record<'_>> {
    let (mut rest, mut position) = (bytes, position);
    let all = std::iter::from_fn(move || {
        let record = (!rest.is_empty()).then(|| decode_verified(rest, position))?;
        rest = &rest[record.occupied_bytes() as usize..];
        position = record.lsn;
        Some(record)
    });
    all.filter(|record| record.kind != RecordKind::BatchEnd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(position: Lsn, payload: &[u8]) -> Vec<u8> {
        let mut space = vec![0xAA; occupied_bytes(payload.len()) as usize];
        let lsn = position.advance(space.len() as u64);
        encode(&mut space, (RecordKind::Whole, false), lsn, 7, b"", payload);
        space
    }

    #[test]
    fn a_record_reads_back_at_its_position_only() {
        let bytes = record(Lsn::new(4096), b"hello");
        let read = decode(&bytes, Lsn::new(4096)).unwrap();
        assert_eq!((read.payload, read.epoch, read.kind), (b"hello".as_slice(), 7, RecordKind::Whole));
        assert_eq!(read.lsn, Lsn::new(4096 + 32));
        assert!(matches!(decode(&bytes, Lsn::new(8192)), Err(Invalid::Position(_))));
    }

    #[test]
    fn a_mark_is_kept() {
        let mut space = vec![0; 32];
        for is_marked in [false, true] {
            encode(&mut space, (RecordKind::Whole, is_marked), Lsn::new(32), 7, b"", b"payload");
            let read = decode(&space, Lsn::ZERO).unwrap();
            assert_eq!((read.is_marked, read.start()), (is_marked, Lsn::ZERO));
            assert_eq!(decode_verified(&space, Lsn::ZERO), read);
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let good = record(Lsn::new(64), b"some payload of odd size");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, Lsn::new(64)).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    #[test]
    fn every_truncation_is_detected() {
        let good = record(Lsn::new(64), b"some payload");
        for len in 0..good.len() {
            assert!(matches!(decode(&good[..len], Lsn::new(64)), Err(Invalid::Short(_))), "length {len}");
        }
    }

    #[test]
    fn zeros_are_not_a_record() {
        assert_eq!(decode(&[0; 64], Lsn::ZERO), Err(Invalid::Blank));
    }
}
