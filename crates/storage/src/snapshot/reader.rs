//! Reading a snapshot back from any number of threads, verifying everything.
//!
//! Opening verifies everything except the payloads: manifest, headers, footers, indexes, lengths.
//! [`SnapshotReader::read`] verifies one payload and may be called from any thread; threads share only the
//! open files and the index.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, File};

use super::{
    directory,
    format::{
        CHUNK_HEADER_BYTES, ChunkHeader, ChunkInfo, Footer, INDEX_ENTRY_BYTES, PAGE_BYTES, Page, header_page,
    },
    manifest::{PartSummary, SnapshotInfo, part_name},
};
use crate::{Error, SnapshotDamage};

/// The read buffers of one thread; they grow to the largest chunk read.
#[derive(Default)]
pub struct ReadBuffers {
    stored: Vec<u8>,
    raw: Vec<u8>,
}

/// A unit of loading: a chunk and the chunks that continue it. Runs are independent of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The chunks of the run, to be applied in this order.
    pub chunks: Range<usize>,
    /// Sum of the `rows` of the chunks.
    pub rows: u64,
    /// Bytes of the payloads of the chunks, uncompressed.
    pub raw_bytes: u64,
    /// The size of the chunks in the file.
    pub file_bytes: u64,
}

/// An open snapshot, verified except for its payloads.
pub struct SnapshotReader {
    info: SnapshotInfo,
    parts: Vec<Part>,
    chunks: Vec<Chunk>,
    runs: Vec<Run>,
}

struct Part {
    path: PathBuf,
    file: Arc<dyn File>,
}

/// The position of a chunk and its index entry.
struct Chunk {
    header: ChunkHeader,
    /// Index into the open parts.
    part: usize,
    offset: u64,
}

impl SnapshotReader {
    /// Opens a snapshot of the data directory `dir` and verifies everything except the payloads.
    ///
    /// # Errors
    /// [`Error::SnapshotCorrupt`] with file and offset; I/O errors.
    pub fn open(disk: &dyn Disk, dir: &Path, info: &SnapshotInfo) -> Result<SnapshotReader, Error> {
        let mut reader =
            SnapshotReader { info: info.clone(), parts: Vec::new(), chunks: Vec::new(), runs: Vec::new() };
        for summary in &info.parts {
            reader.open_part(disk, &directory(dir), summary)?;
        }
        Ok(reader)
    }

    /// Opens the intact parts of a snapshot (payloads are not verified). Also returns the damage of each part
    /// that is not intact.
    ///
    /// # Errors
    /// I/O errors.
    pub fn salvage(
        disk: &dyn Disk,
        dir: &Path,
        info: &SnapshotInfo,
    ) -> Result<(SnapshotReader, Vec<SnapshotDamage>), Error> {
        let mut reader =
            SnapshotReader { info: info.clone(), parts: Vec::new(), chunks: Vec::new(), runs: Vec::new() };
        let mut damages = Vec::new();
        for summary in &info.parts {
            let (parts, chunks, runs) = (reader.parts.len(), reader.chunks.len(), reader.runs.len());
            match reader.open_part(disk, &directory(dir), summary) {
                Err(Error::SnapshotCorrupt(damage)) => {
                    reader.parts.truncate(parts);
                    reader.chunks.truncate(chunks);
                    reader.runs.truncate(runs);
                    damages.push(*damage);
                }
                other => other?,
            }
        }
        Ok((reader, damages))
    }

    /// The contents of the manifest.
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// The units of loading, part by part.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The metadata of a chunk.
    ///
    /// # Panics
    /// If `chunk` is out of range.
    pub fn chunk(&self, chunk: usize) -> ChunkInfo {
        self.chunks[chunk].header.info
    }

    /// Reads and verifies the payload of a chunk.
    ///
    /// # Errors
    /// [`Error::SnapshotCorrupt`] with file and offset; I/O errors.
    ///
    /// # Panics
    /// If `chunk` is out of range.
    pub fn read<'b>(&self, chunk: usize, buffers: &'b mut ReadBuffers) -> Result<&'b [u8], Error> {
        let Chunk { header, part, offset } = &self.chunks[chunk];
        let part = &self.parts[*part];
        let damaged = |reason: &str| self.damaged(chunk, reason);
        let bytes = front(&mut buffers.stored, header.occupied_bytes());
        read_exact(part, bytes, *offset, damaged)?;
        let (found, payload) = bytes.split_at(CHUNK_HEADER_BYTES);
        if found != header.encode() {
            return Err(damaged("the chunk is not the one that the index names"));
        }
        if crc32c::crc32c(payload) != header.payload_crc {
            return Err(damaged("the checksum of the chunk does not match"));
        }
        let stored = &payload[..header.stored_len as usize];
        if !header.compressed {
            return Ok(stored);
        }
        let raw = front(&mut buffers.raw, header.raw_len as usize);
        match lz4_flex::block::decompress_into(stored, raw) {
            Ok(length) if length == header.raw_len as usize => Ok(raw),
            _ => Err(damaged("the chunk cannot be decompressed")),
        }
    }

    /// The error for a damaged chunk, or for a payload whose bytes are intact but whose contents the caller
    /// cannot decode.
    ///
    /// # Panics
    /// If `chunk` is out of range.
    pub fn damaged(&self, chunk: usize, reason: &str) -> Error {
        let Chunk { header, part, offset } = &self.chunks[chunk];
        let slots = Some((header.info.first_slot, header.info.last_slot));
        let path = self.parts[*part].path.clone();
        let (begin_lsn, reason) = (self.info.begin_lsn, reason.to_owned());
        SnapshotDamage { path, offset: *offset, begin_lsn, slots, reason }.into()
    }

    fn open_part(&mut self, disk: &dyn Disk, snapshots: &Path, summary: &PartSummary) -> Result<(), Error> {
        let path = snapshots.join(part_name(self.info.begin_lsn, summary.part));
        let begin_lsn = self.info.begin_lsn;
        let damaged = |offset: u64, reason: &str| {
            let (path, reason) = (path.clone(), reason.to_owned());
            Error::from(SnapshotDamage { path, offset, begin_lsn, slots: None, reason })
        };
        let file = match disk.open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(0, "the file is missing"));
            }
            other => other.map_err(Error::io("open", &path))?,
        };
        let part = Part { path: path.clone(), file };
        let length = part.file.len().map_err(Error::io("measure", &path))?;
        if length != summary.file_bytes {
            let reason = format!("the file has {length} bytes, {} were written to it", summary.file_bytes);
            return Err(damaged(length.min(summary.file_bytes), &reason));
        }
        let mut page: Page = [0; PAGE_BYTES];
        read_exact(&part, &mut page, 0, |reason| damaged(0, reason))?;
        if page != header_page(&self.info.log_id, begin_lsn, summary.part) {
            return Err(damaged(0, "the header is damaged or that of another snapshot"));
        }
        let Some(footer_offset) = length.checked_sub(PAGE_BYTES as u64) else {
            return Err(damaged(0, "the file is too short to be part of a snapshot"));
        };
        read_exact(&part, &mut page, footer_offset, |reason| damaged(footer_offset, reason))?;
        let footer =
            Footer::decode(&page, summary.footer_crc).map_err(|reason| damaged(footer_offset, reason))?;
        let index = read_index(&part, &footer, footer_offset, damaged)?;
        self.parts.push(part);
        self.add_chunks(summary, &footer, &index, damaged)
    }

    /// Adds the chunks of a part from its index.
    fn add_chunks(
        &mut self,
        summary: &PartSummary,
        footer: &Footer,
        index: &[u8],
        damaged: impl Fn(u64, &str) -> Error,
    ) -> Result<(), Error> {
        let (mut offset, mut rows, mut raw_bytes) = (PAGE_BYTES as u64, 0, 0);
        let part = self.parts.len() - 1;
        let (headers, _) = index.as_chunks::<INDEX_ENTRY_BYTES>();
        for (number, bytes) in headers.iter().enumerate() {
            let header = ChunkHeader::decode(bytes).map_err(|reason| damaged(footer.index_offset, reason))?;
            let chunk = self.chunks.len();
            match self.runs.last_mut() {
                Some(run) if header.info.continues && number > 0 => run.add(chunk, &header),
                _ if header.info.continues => {
                    return Err(damaged(footer.index_offset, "the first chunk continues another"));
                }
                _ => self.runs.push(Run::of(chunk, &header)),
            }
            self.chunks.push(Chunk { header, part, offset });
            offset += header.occupied_bytes() as u64;
            rows += u64::from(header.info.rows);
            raw_bytes += u64::from(header.raw_len);
        }
        let sums = (offset, headers.len(), rows, raw_bytes);
        let footer_sums = (footer.index_offset, footer.chunks as usize, footer.rows, footer.raw_bytes);
        let summary_sums = (footer.index_offset, summary.chunks as usize, summary.rows, summary.raw_bytes);
        if sums != footer_sums || sums != summary_sums {
            return Err(damaged(footer.index_offset, "index, footer and manifest do not agree"));
        }
        Ok(())
    }
}

impl Run {
    fn of(chunk: usize, header: &ChunkHeader) -> Run {
        let mut run = Run { chunks: chunk..chunk, rows: 0, raw_bytes: 0, file_bytes: 0 };
        run.add(chunk, header);
        run
    }

    fn add(&mut self, chunk: usize, header: &ChunkHeader) {
        self.chunks.end = chunk + 1;
        self.rows += u64::from(header.info.rows);
        self.raw_bytes += u64::from(header.raw_len);
        self.file_bytes += header.occupied_bytes() as u64;
    }
}

/// Reads and verifies the index of a part, after checking that its length fits the length of the file.
fn read_index(
    part: &Part,
    footer: &Footer,
    footer_offset: u64,
    damaged: impl Fn(u64, &str) -> Error,
) -> Result<Vec<u8>, Error> {
    let at = footer.index_offset;
    let index_bytes = u64::from(footer.chunks) * INDEX_ENTRY_BYTES as u64;
    let space = footer_offset.checked_sub(at).filter(|_| at >= PAGE_BYTES as u64);
    let Some(space) = space.filter(|&space| index_bytes <= space && space - index_bytes < PAGE_BYTES as u64)
    else {
        return Err(damaged(footer_offset, "the footer does not match the length of the file"));
    };
    let mut index = vec![0; space as usize];
    read_exact(part, &mut index, at, |reason| damaged(at, reason))?;
    if crc32c::crc32c(&index) != footer.index_crc {
        return Err(damaged(at, "the checksum of the index does not match"));
    }
    index.truncate(index_bytes as usize);
    Ok(index)
}

fn read_exact(
    part: &Part,
    bytes: &mut [u8],
    offset: u64,
    damaged: impl Fn(&str) -> Error,
) -> Result<(), Error> {
    match part.file.read_exact_at(bytes, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged("the file ends here")),
        other => other.map_err(Error::io("read", &part.path)),
    }
}

/// The first `length` bytes of a buffer that grows as needed and is never cleared.
fn front(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}
