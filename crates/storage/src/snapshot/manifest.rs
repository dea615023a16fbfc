//! The manifest: the file whose presence means that a snapshot exists, with a description of its parts.
//!
//! ```text
//! snap-<begin_lsn, 16 hex digits>.manifest             all numbers little-endian
//!   0  8 bytes  magic "SHEAFSNP"
//!   8  u32      format version, 1
//!  12  u32      epoch: see `SnapshotMeta`
//!  16  16 bytes log id
//!  32  u64      begin_lsn
//!  40  u64      end_lsn
//!  48  u64      created, milliseconds since 1970
//!  56  u32      number of parts
//!  60  u32      zero
//!  64  per part, 40 bytes: u64 length of the file; u64 rows; u64 bytes of all payloads, not compressed;
//!      u64 highest lsn; u32 chunks; u32 crc32c of its footer page
//!   +  u32      crc32c of everything before
//! ```

use std::path::{Path, PathBuf};

use env::{Access, Disk};
use lsn::Lsn;

use super::format::{VERSION, u32_at, u64_at};
use crate::{Error, SnapshotDamage};

const MAGIC: &[u8; 8] = b"SHEAFSNP";
const FIXED_BYTES: usize = 64;
const PART_BYTES: usize = 40;
const CRC_BYTES: usize = 4;
/// The maximum number of parts of a snapshot: far more than the threads that one disk can feed.
pub const PARTS_MAX: u32 = 256;
const MANIFEST_BYTES_MAX: usize = FIXED_BYTES + PARTS_MAX as usize * PART_BYTES + CRC_BYTES;

/// The description of a part file in the manifest. Returned by
/// [`PartWriter::finish`](super::PartWriter::finish).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSummary {
    /// The number of the part, from 0.
    pub part: u32,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Sum of the `rows` of the chunks.
    pub rows: u64,
    /// Bytes of all payloads, uncompressed.
    pub raw_bytes: u64,
    /// The highest LSN of a chunk.
    pub highest_lsn: Lsn,
    /// Number of chunks.
    pub chunks: u32,
    pub(super) footer_crc: u32,
}

/// The contents of the manifest of a published snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The id of the log that it belongs to.
    pub log_id: [u8; 16],
    /// See [`SnapshotMeta::epoch`](super::SnapshotMeta).
    pub epoch: u32,
    /// The snapshot contains every record up to this position; replay starts here. A batch boundary.
    pub begin_lsn: Lsn,
    /// The snapshot contains no record after this position. The log was durable up to here when the snapshot
    /// was published.
    pub end_lsn: Lsn,
    /// When the snapshot was begun, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Its parts, by number.
    pub parts: Vec<PartSummary>,
}

impl SnapshotInfo {
    /// Sum of the `rows` of all parts.
    pub fn rows(&self) -> u64 {
        self.sum(|part| part.rows)
    }

    /// Number of chunks in all parts.
    pub fn chunks(&self) -> u64 {
        self.sum(|part| u64::from(part.chunks))
    }

    /// Bytes of all payloads, uncompressed.
    pub fn raw_bytes(&self) -> u64 {
        self.sum(|part| part.raw_bytes)
    }

    /// Bytes of all part files.
    pub fn file_bytes(&self) -> u64 {
        self.sum(|part| part.file_bytes)
    }

    fn sum(&self, of: impl Fn(&PartSummary) -> u64) -> u64 {
        self.parts.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The names of the snapshot's files in the order of copying, the manifest last.
    pub fn file_names(&self) -> impl Iterator<Item = String> + '_ {
        let manifest = std::iter::once(manifest_name(self.begin_lsn));
        self.parts.iter().map(|part| part_name(self.begin_lsn, part.part)).chain(manifest)
    }

    /// Reads the manifest of the snapshot that begins at `begin_lsn`, in the directory of the snapshots.
    pub(super) fn load(disk: &dyn Disk, snapshots: &Path, begin_lsn: Lsn) -> Result<SnapshotInfo, Error> {
        let path = snapshots.join(manifest_name(begin_lsn));
        let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
        let length = file.len().map_err(Error::io("measure", &path))?;
        // The buffer has one byte more than the maximum, so that a longer file is detected.
        let mut bytes = vec![0; length.min(MANIFEST_BYTES_MAX as u64 + 1) as usize];
        let read = file.read_at(&mut bytes, 0).map_err(Error::io("read", &path))?;
        match Self::decode(&bytes[..read]) {
            Ok(info) if info.begin_lsn == begin_lsn => Ok(info),
            Ok(_) => Err(damaged(path, begin_lsn, "the manifest is that of another snapshot".into())),
            Err(Invalid::Damaged(reason)) => Err(damaged(path, begin_lsn, reason.into())),
            Err(Invalid::Version(version)) => {
                let reason = format!("format version {version}, this server reads version {VERSION}");
                Err(Error::Inconsistent { path, reason })
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.parts.len() * PART_BYTES + CRC_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.log_id);
        out.extend_from_slice(&self.begin_lsn.get().to_le_bytes());
        out.extend_from_slice(&self.end_lsn.get().to_le_bytes());
        out.extend_from_slice(&self.created_unix_ms.to_le_bytes());
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for part in &self.parts {
            out.extend_from_slice(&part.file_bytes.to_le_bytes());
            out.extend_from_slice(&part.rows.to_le_bytes());
            out.extend_from_slice(&part.raw_bytes.to_le_bytes());
            out.extend_from_slice(&part.highest_lsn.get().to_le_bytes());
            out.extend_from_slice(&part.chunks.to_le_bytes());
            out.extend_from_slice(&part.footer_crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<SnapshotInfo, Invalid> {
        if bytes.len() < FIXED_BYTES + CRC_BYTES || &bytes[0..8] != MAGIC {
            return Err(Invalid::Damaged("this is not the manifest of a snapshot"));
        }
        let (content, crc) = bytes.split_at(bytes.len() - CRC_BYTES);
        if u32_at(crc, 0) != crc32c::crc32c(content) {
            return Err(Invalid::Damaged("the checksum of the manifest does not match"));
        }
        if u32_at(content, 8) != VERSION {
            return Err(Invalid::Version(u32_at(content, 8)));
        }
        let parts = content[FIXED_BYTES..].chunks_exact(PART_BYTES);
        let count = u32_at(content, 56);
        if !parts.remainder().is_empty() || parts.len() != count as usize || count > PARTS_MAX {
            return Err(Invalid::Damaged("the manifest does not have the length of its parts"));
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&content[16..32]);
        let part = |(part, bytes): (u32, &[u8])| PartSummary {
            part,
            file_bytes: u64_at(bytes, 0),
            rows: u64_at(bytes, 8),
            raw_bytes: u64_at(bytes, 16),
            highest_lsn: Lsn::new(u64_at(bytes, 24)),
            chunks: u32_at(bytes, 32),
            footer_crc: u32_at(bytes, 36),
        };
        Ok(SnapshotInfo {
            log_id,
            epoch: u32_at(content, 12),
            begin_lsn: Lsn::new(u64_at(content, 32)),
            end_lsn: Lsn::new(u64_at(content, 40)),
            created_unix_ms: u64_at(content, 48),
            parts: (0..count).zip(parts).map(part).collect(),
        })
    }
}

/// Why bytes are not a manifest.
#[derive(Debug, PartialEq, Eq)]
enum Invalid {
    Damaged(&'static str),
    Version(u32),
}

fn damaged(path: PathBuf, begin_lsn: Lsn, reason: String) -> Error {
    SnapshotDamage { path, offset: 0, begin_lsn, slots: None, reason }.into()
}

pub(super) fn manifest_name(begin_lsn: Lsn) -> String {
    format!("snap-{:016x}.manifest", begin_lsn.get())
}

pub(super) fn part_name(begin_lsn: Lsn, part: u32) -> String {
    format!("snap-{:016x}.{part}.part", begin_lsn.get())
}

/// Parses the name of a manifest or part; `None` for other names.
pub(super) fn parse_file_name(name: &str) -> Option<FileName> {
    let (digits, kind) = name.strip_prefix("snap-")?.split_once('.')?;
    let begin_lsn = Lsn::new(u64::from_str_radix(digits, 16).ok()?);
    let parsed = match kind.strip_suffix(".part") {
        Some(part) => FileName::Part(begin_lsn, part.parse().ok()?),
        None => FileName::Manifest(begin_lsn),
    };
    let expected = match parsed {
        FileName::Manifest(begin_lsn) => manifest_name(begin_lsn),
        FileName::Part(begin_lsn, part) => part_name(begin_lsn, part),
    };
    (expected == name).then_some(parsed)
}

/// A file of a snapshot, identified by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileName {
    Manifest(Lsn),
    Part(Lsn, u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> SnapshotInfo {
        let part = |part| PartSummary {
            part,
            file_bytes: 12288,
            rows: 5,
            raw_bytes: 100,
            highest_lsn: Lsn::new(8000),
            chunks: 2,
            footer_crc: 7 + part,
        };
        SnapshotInfo {
            log_id: [3; 16],
            epoch: 4,
            begin_lsn: Lsn::new(4096),
            end_lsn: Lsn::new(8000),
            created_unix_ms: 1_700_000_000_000,
            parts: vec![part(0), part(1)],
        }
    }

    #[test]
    fn reads_back_and_detects_every_flipped_bit_and_every_cut() {
        let bytes = info().encode();
        assert_eq!(SnapshotInfo::decode(&bytes), Ok(info()));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(SnapshotInfo::decode(&bad), Err(Invalid::Damaged(_))), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(SnapshotInfo::decode(&bytes[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn a_later_version_is_named_in_the_error() {
        let mut bytes = info().encode();
        bytes[8] = 9;
        let content = bytes.len() - CRC_BYTES;
        let crc = crc32c::crc32c(&bytes[..content]);
        bytes[content..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SnapshotInfo::decode(&bytes), Err(Invalid::Version(9)));
    }

    #[test]
    fn names_are_read_back_and_nothing_else_is_a_snapshot() {
        let begin = Lsn::new(0xABC000);
        assert_eq!(manifest_name(begin), "snap-0000000000abc000.manifest");
        assert_eq!(part_name(begin, 12), "snap-0000000000abc000.12.part");
        assert_eq!(parse_file_name(&manifest_name(begin)), Some(FileName::Manifest(begin)));
        assert_eq!(parse_file_name(&part_name(begin, 12)), Some(FileName::Part(begin, 12)));
        let foreign = [
            "snap-abc000.manifest",
            "snap-0000000000ABC000.manifest",
            "snap-0000000000abc000.manifest.tmp",
            "snap-0000000000abc000.012.part",
            "snap-0000000000abc000.part",
            "log-0000000000abc000.seg",
        ];
        for name in foreign {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
