//! Segment files: the log divided into files of equal size, each completely written before it is needed.
//!
//! ```text
//! log-<start, 16 hex digits>.seg
//!    0  8 bytes  magic "SHEAFSEG"
//!    8  u32      format version, 2 (in version 1, batches did not say when they were closed)
//!   12  u32      crc32c of bytes 16..48
//!   16  16 bytes log id
//!   32  u64      start: position of the first byte it holds, a multiple of segment_bytes
//!   40  u64      segment_bytes
//!   48  zeros up to 4096
//! 4096  segment_bytes of log: position p is at offset 4096 + p - start
//! ```
//!
//! - A segment is filled with zeros (or with older bytes, if it is recycled) and durable, including its
//!   directory entry, before the log may use it. Overwriting it later changes no metadata, so one synchronous
//!   write makes a batch durable, and a flush never hits a full disk.
//! - Records and batches may span two segments.
//! - Names ending in `.tmp` are unfinished segments; they are removed at the next start.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, AlignedBytes, Disk, File};
use lsn::Lsn;

use super::record::BLOCK_BYTES;
use crate::{Control, Error};

const MAGIC: &[u8; 8] = b"SHEAFSEG";
const VERSION: u32 = 2;
const HEADER_USED_BYTES: usize = 48;
/// Offset of the first log byte in a segment file.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = BLOCK_BYTES;
/// The size of the smallest ring. A log is opened only with segments of at least 4 times this.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// Zeros are written durably in pieces of this size. The pieces bypass the page cache, because copying them
/// into the cache would cost more CPU time than the log itself. The pieces are small, so that a flush of the
/// log never waits for tens of megabytes.
const FILL_BYTES: usize = 1 << 20;
/// The bytes of the disk that new segments leave free, so that small files, like the control file or a
/// member's vote, can still be replaced when the log has filled the disk.
const LEFT_BYTES: u64 = 1 << 20;

/// The file name of the segment that starts at `start`.
pub(crate) fn file_name(start: Lsn) -> String {
    format!("log-{:016x}.seg", start.get())
}

/// The start position in the name of a segment file; `None` for other names.
fn parse_file_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    let start = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16 && file_name(Lsn::new(start)) == name).then_some(Lsn::new(start))
}

/// The starts of all segments in `dir`, ascending.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Lsn>, Error> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let mut starts: Vec<Lsn> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    starts.sort_unstable();
    Ok(starts)
}

#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    /// The file offset of a position inside the segment.
    pub(crate) fn offset(&self, position: Lsn) -> u64 {
        SEGMENT_HEADER_BYTES + position.bytes_since(self.start)
    }

    /// Opens the segment that starts at `start` and checks that it belongs to this log.
    pub(crate) fn open(
        disk: &dyn Disk,
        dir: &Path,
        access: Access,
        control: &Control,
        start: Lsn,
    ) -> Result<Segment, Error> {
        let path = dir.join(file_name(start));
        let file = disk.open(&path, access).map_err(Error::io("open", &path))?;
        let (header, wanted) = (read_header(&*file, &path)?, header_bytes(control, start));
        if header != wanted[..HEADER_USED_BYTES] {
            return Err(Error::Inconsistent { path, reason: not_of_this_log(&header, &wanted) });
        }
        Ok(Segment { start, end: start.advance(control.segment_bytes), path, file })
    }

    /// Extends a truncated file with zeros to its full length, so that the log can be written to its end
    /// without new disk space.
    pub(crate) fn restore_length(&self) -> Result<(), Error> {
        let restore = || -> std::io::Result<()> {
            let (length, wanted) =
                (self.file.len()?, SEGMENT_HEADER_BYTES + self.end.bytes_since(self.start));
            if length < wanted {
                // Batches end at block boundaries, so a partial block at the end of the file contains no end
                // of a batch.
                fill_zeros(&*self.file, length, wanted)?;
                self.file.sync_all()?;
            }
            Ok(())
        };
        restore().map_err(Error::io("extend", &self.path))
    }

    /// Creates the segment that starts at `start`, from `recycled` (the path of an old segment) if given. On
    /// return the file has its full length and is durable under its name.
    pub(crate) fn create(
        disk: &dyn Disk,
        dir: &Path,
        control: &Control,
        start: Lsn,
        recycled: Option<&Path>,
    ) -> Result<Segment, Error> {
        let path = dir.join(file_name(start));
        let temporary = path.with_extension("tmp");
        let Some(old) = recycled else {
            let bytes = SEGMENT_HEADER_BYTES + control.segment_bytes;
            require_room(disk, dir, bytes + LEFT_BYTES).map_err(Error::io("create", &temporary))?;
            let file = zero_filled(disk, &temporary, bytes)?;
            return Segment::publish(disk, file, control, start, (&temporary, path));
        };
        disk.rename(old, &temporary).map_err(Error::io("recycle", old))?;
        disk.open(&temporary, Access::ReadWrite)
            .map_err(Error::io("open", &temporary))
            .and_then(|file| Segment::publish(disk, file, control, start, (&temporary, path)))
            .inspect_err(|_| {
                // The first error is the one to report. If the file keeps its temporary name, the next start
                // removes it.
                let _ = disk.rename(&temporary, old);
            })
    }

    /// Gives a file its header and its name.
    fn publish(
        disk: &dyn Disk,
        file: Arc<dyn File>,
        control: &Control,
        start: Lsn,
        (temporary, path): (&Path, PathBuf),
    ) -> Result<Segment, Error> {
        file.write_all_at(&header_bytes(control, start), 0).map_err(Error::io("write", temporary))?;
        file.sync_all().map_err(Error::io("sync", temporary))?;
        env::crashsafe::rename_durably(disk, temporary, &path).map_err(Error::io("rename", temporary))?;
        Ok(Segment { start, end: start.advance(control.segment_bytes), path, file })
    }
}

/// Fails if less than `bytes` are free in `dir`, as far as the file system reports that.
pub(super) fn require_room(disk: &dyn Disk, dir: &Path, bytes: u64) -> std::io::Result<()> {
    match disk.free_bytes(dir) {
        Ok(free) if free < bytes => Err(std::io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

/// Creates `path` with `bytes` zeros, all of which are really written. (The first write to a hole or an
/// unwritten extent would cost a commit of the file system's journal.)
fn zero_filled(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<Arc<dyn File>, Error> {
    let fill = || -> std::io::Result<Arc<dyn File>> {
        let file = disk.create_new(path)?;
        fill_zeros(&*file, 0, bytes)?;
        Ok(file)
    };
    fill().map_err(|error| {
        // On a full disk, free the space of the incomplete segment. If the removal fails as well, the first
        // error is still the one to report, and the next start removes the file.
        let _ = disk.remove(path);
        Error::io("create", path)(error)
    })
}

/// Writes zeros from the beginning of the block that contains `from` up to `to`, a multiple of the block
/// size.
fn fill_zeros(file: &dyn File, from: u64, to: u64) -> std::io::Result<()> {
    let mut offset = from - from % BLOCK_BYTES;
    let zeros = AlignedBytes::zeroed(FILL_BYTES.min((to - offset) as usize));
    while offset < to {
        let length = zeros.len().min((to - offset) as usize);
        file.write_durable_at(&zeros[..length], offset)?;
        offset += length as u64;
    }
    Ok(())
}

/// The result of checking a header that may be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// The header of this segment of this log.
    Intact,
    /// The header is damaged or of another version. Records are bound to their positions, so the segment can
    /// still be read.
    Damaged,
    /// The intact header of another segment or log.
    Foreign,
}

/// The fields of a segment header that identify the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) log_id: [u8; 16],
    pub(super) start: Lsn,
    pub(super) segment_bytes: u64,
}

/// The identity in the header of the segment file named after `start`; `None` if the header is damaged.
pub(super) fn identity(disk: &dyn Disk, dir: &Path, start: Lsn) -> Result<Option<Identity>, Error> {
    let path = dir.join(file_name(start));
    let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
    let header = read_header(&*file, &path)?;
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));
    let identity = Identity {
        log_id: std::array::from_fn(|index| header[16 + index]),
        start: Lsn::new(u64_at(32)),
        segment_bytes: u64_at(40),
    };
    let is_possible = identity.segment_bytes.is_power_of_two() && identity.segment_bytes >= SEGMENT_BYTES_MIN;
    Ok((is_possible && is_protected(&header)).then_some(identity))
}

pub(super) fn header_state(
    file: &dyn File,
    path: &Path,
    control: &Control,
    start: Lsn,
) -> Result<HeaderState, Error> {
    let (header, wanted) = (read_header(file, path)?, header_bytes(control, start));
    Ok(match header {
        _ if header == wanted[..HEADER_USED_BYTES] => HeaderState::Intact,
        // The checksum is right for other fields, so the header belongs to another segment or log.
        _ if is_protected(&header) && header[16..] != wanted[16..HEADER_USED_BYTES] => HeaderState::Foreign,
        _ => HeaderState::Damaged,
    })
}

fn is_protected(header: &[u8; HEADER_USED_BYTES]) -> bool {
    header[12..16] == crc32c::crc32c(&header[16..]).to_le_bytes()
}

/// The header of a file; zeros if the file is too short to have one.
fn read_header(file: &dyn File, path: &Path) -> Result<[u8; HEADER_USED_BYTES], Error> {
    let mut header = [0; HEADER_USED_BYTES];
    let length = file.len().map_err(Error::io("measure", path))?;
    if length >= SEGMENT_HEADER_BYTES {
        file.read_exact_at(&mut header, 0).map_err(Error::io("read", path))?;
    }
    Ok(header)
}

/// The reason why a header is not the expected one.
fn not_of_this_log(header: &[u8; HEADER_USED_BYTES], wanted: &[u8]) -> String {
    if header[..8] == wanted[..8] && header[12..] == wanted[12..HEADER_USED_BYTES] {
        let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        return format!("format version {found}, this server reads version {VERSION}");
    }
    "the segment header is damaged or belongs to another log; restore the file from a backup".into()
}

fn header_bytes(control: &Control, start: Lsn) -> Vec<u8> {
    let mut out = vec![0; SEGMENT_HEADER_BYTES as usize];
    out[0..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&control.log_id);
    out[32..40].copy_from_slice(&start.get().to_le_bytes());
    out[40..48].copy_from_slice(&control.segment_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&out[16..HEADER_USED_BYTES]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_start_and_nothing_else_is_a_segment() {
        let start = Lsn::new(0x4000000);
        assert_eq!(file_name(start), "log-0000000004000000.seg");
        assert_eq!(parse_file_name(&file_name(start)), Some(start));
        for name in ["log-4000000.seg", "log-0000000004000000.tmp", "log-000000000400000G.seg", "control"] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
