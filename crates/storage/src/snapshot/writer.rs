//! Writing a snapshot: one [`PartWriter`] per thread, and one [`SnapshotWriter`] that publishes their parts.
//!
//! Parts are written in large aligned pieces past the page cache, because they are not read back soon. A
//! cached write would cost a copy, evict useful pages, and leave the kernel gigabytes to write back in bursts
//! that delay the log's small synchronous writes. A direct write also makes a slow disk slow down the writing
//! thread, as it should. Each part is synced once, at its end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{AlignedBytes, Disk, File};
use lsn::Lsn;

use super::{
    directory,
    format::{
        CHUNK_HEADER_BYTES, CHUNK_RAW_BYTES_MAX, ChunkHeader, ChunkInfo, Footer, PAGE_BYTES, header_page,
        padded_bytes,
    },
    list_begins,
    manifest::{PARTS_MAX, PartSummary, SnapshotInfo, manifest_name, part_name},
    removal::withdraw,
};
use crate::Error;

/// Parts are written in pieces of this size, so that a flush of the log never queues behind tens of
/// megabytes.
const WRITE_BYTES: usize = 1 << 20;

/// How chunks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// LZ4 blocks, for every chunk that becomes more than a tenth smaller.
    #[default]
    Lz4,
    /// No compression.
    None,
}

/// The identification of a snapshot. [`Log::begin_snapshot`](crate::Log::begin_snapshot) creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The id of the log that it belongs to.
    pub log_id: [u8; 16],
    /// The epoch of the run that took the snapshot. With
    /// [`Log::begin_snapshot_at`](crate::Log::begin_snapshot_at), the epoch of the last batch before
    /// `begin_lsn`, or 0 if there is none.
    pub epoch: u32,
    /// The position at which replay will start: a batch boundary, taken before the first slot is captured.
    /// Every record before this position was in memory by then, so the captured slots include it.
    pub begin_lsn: Lsn,
    /// When the snapshot was begun, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// How its chunks are compressed.
    pub compression: Compression,
}

/// An unfinished snapshot. A writer that is dropped before the snapshot is published removes its files as far
/// as possible.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    snapshots: PathBuf,
    meta: SnapshotMeta,
    parts: u32,
    published: bool,
}

impl SnapshotWriter {
    /// Creates the files of a snapshot with `parts` parts in the data directory `dir`. Only one snapshot may
    /// be written at a time.
    ///
    /// # Errors
    /// I/O errors, for example a full disk; [`Error::Inconsistent`] if a snapshot with this `begin_lsn`
    /// exists.
    ///
    /// # Panics
    /// If `parts` is 0 or more than [`PARTS_MAX`], or `begin_lsn` is not a multiple of the page size.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        meta: SnapshotMeta,
        parts: u32,
    ) -> Result<(SnapshotWriter, Vec<PartWriter>), Error> {
        assert!((1..=PARTS_MAX).contains(&parts), "{parts} parts");
        assert!(meta.begin_lsn.is_aligned(PAGE_BYTES as u64), "lsn {} is no batch boundary", meta.begin_lsn);
        let snapshots = directory(dir);
        disk.create_dir_all(&snapshots).map_err(Error::io("create", &snapshots))?;
        if list_begins(&*disk, dir)?.contains(&meta.begin_lsn) {
            let path = snapshots.join(manifest_name(meta.begin_lsn));
            let reason = "a snapshot that begins at this position exists already".into();
            return Err(Error::Inconsistent { path, reason });
        }
        // A failed attempt at the same position may have left files.
        withdraw(&*disk, &snapshots, meta.begin_lsn)?;
        let writer = SnapshotWriter { disk, snapshots, meta, parts, published: false };
        let part_writers =
            (0..parts).map(|part| PartWriter::create(&writer, part)).collect::<Result<_, _>>()?;
        Ok((writer, part_writers))
    }

    /// The position at which replay will start.
    pub fn begin_lsn(&self) -> Lsn {
        self.meta.begin_lsn
    }

    /// Publishes the snapshot durably. `end_lsn` is a position up to which the log is durable and after which
    /// nothing was captured.
    ///
    /// # Errors
    /// I/O errors. The snapshot then does not exist, unless its files cannot be removed either: then a
    /// complete snapshot may exist.
    ///
    /// # Panics
    /// If `parts` is not one summary of each part, or `end_lsn` lies before the LSN of a chunk or before
    /// `begin_lsn`.
    pub fn publish(mut self, mut parts: Vec<PartSummary>, end_lsn: Lsn) -> Result<SnapshotInfo, Error> {
        parts.sort_unstable_by_key(|part| part.part);
        assert!(parts.iter().map(|part| part.part).eq(0..self.parts), "one summary of each part");
        let highest_lsn = parts.iter().map(|part| part.highest_lsn).max();
        assert!(highest_lsn.max(Some(self.meta.begin_lsn)) <= Some(end_lsn), "captured after the end");
        let SnapshotMeta { log_id, epoch, begin_lsn, created_unix_ms, .. } = self.meta;
        let info = SnapshotInfo { log_id, epoch, begin_lsn, end_lsn, created_unix_ms, parts };
        // The names of the parts must be durable before the name of the manifest.
        self.disk.sync_dir(&self.snapshots).map_err(Error::io("sync", &self.snapshots))?;
        let path = self.snapshots.join(manifest_name(begin_lsn));
        env::crashsafe::write_atomically(&*self.disk, &path, &info.encode())
            .map_err(Error::io("write", &path))?;
        self.published = true;
        Ok(info)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = withdraw(&*self.disk, &self.snapshots, self.meta.begin_lsn)
        {
            tracing::warn!(target: "storage", %error, "cannot remove an unfinished snapshot; the next start does");
        }
    }
}

/// Writes one part; used by one thread.
pub struct PartWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    part: u32,
    compression: Compression,
    /// Bytes not yet written; they belong at offset `written` of the file.
    buffer: AlignedBytes,
    written: u64,
    /// The index entries of all chunks.
    index: Vec<u8>,
    compressed: Vec<u8>,
    rows: u64,
    raw_bytes: u64,
    highest_lsn: Lsn,
    chunks: u32,
}

impl PartWriter {
    fn create(writer: &SnapshotWriter, part: u32) -> Result<PartWriter, Error> {
        let path = writer.snapshots.join(part_name(writer.meta.begin_lsn, part));
        let file = writer.disk.create_new(&path).map_err(Error::io("create", &path))?;
        let mut buffer = AlignedBytes::new();
        buffer.extend_from_slice(&header_page(&writer.meta.log_id, writer.meta.begin_lsn, part));
        Ok(PartWriter {
            file,
            path,
            part,
            compression: writer.meta.compression,
            buffer,
            written: 0,
            index: Vec::new(),
            compressed: Vec::new(),
            rows: 0,
            raw_bytes: 0,
            highest_lsn: Lsn::ZERO,
            chunks: 0,
        })
    }

    /// Adds a chunk and returns its size in the file. May block on disk writes.
    ///
    /// # Errors
    /// I/O errors, for example a full disk: the snapshot has failed.
    ///
    /// # Panics
    /// If the payload is larger than [`CHUNK_RAW_BYTES_MAX`], or the first chunk continues another.
    pub fn append(&mut self, info: ChunkInfo, payload: &[u8]) -> Result<u64, Error> {
        assert!(payload.len() <= CHUNK_RAW_BYTES_MAX, "a chunk of {} bytes", payload.len());
        assert!(self.chunks > 0 || !info.continues, "nothing to continue");
        let compressed_len = self.compress(payload);
        let stored = compressed_len.map_or(payload, |length| &self.compressed[..length]);
        let header_at = self.buffer.len();
        let payload_at = header_at + CHUNK_HEADER_BYTES;
        self.buffer.resize(payload_at);
        self.buffer.extend_from_slice(stored);
        self.buffer.resize(payload_at + padded_bytes(stored.len()));
        let header = ChunkHeader {
            info,
            compressed: compressed_len.is_some(),
            raw_len: payload.len() as u32,
            stored_len: stored.len() as u32,
            payload_crc: crc32c::crc32c(&self.buffer[payload_at..]),
        };
        self.buffer[header_at..payload_at].copy_from_slice(&header.encode());
        self.index.extend_from_slice(&header.index_entry());
        self.rows += u64::from(info.rows);
        self.raw_bytes += payload.len() as u64;
        self.highest_lsn = self.highest_lsn.max(info.lsn);
        self.chunks += 1;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_pages()?;
        }
        Ok(header.occupied_bytes() as u64)
    }

    /// Compresses the payload into `self.compressed` if that saves more than a tenth; returns the compressed
    /// length.
    fn compress(&mut self, payload: &[u8]) -> Option<usize> {
        if self.compression == Compression::None {
            return None;
        }
        self.compressed.resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
        let length = lz4_flex::block::compress_into(payload, &mut self.compressed).ok()?;
        (length < payload.len() / 10 * 9).then_some(length)
    }

    /// Writes all whole pages of the buffer and keeps the rest.
    fn write_pages(&mut self) -> Result<(), Error> {
        let whole = self.buffer.len() - self.buffer.len() % PAGE_BYTES;
        for piece in self.buffer[..whole].chunks(WRITE_BYTES) {
            self.file.write_direct_at(piece, self.written).map_err(Error::io("write", &self.path))?;
            self.written += piece.len() as u64;
        }
        self.buffer.copy_within(whole.., 0);
        self.buffer.resize(self.buffer.len() - whole);
        Ok(())
    }

    /// Completes the part and makes it durable.
    ///
    /// # Errors
    /// I/O errors, for example a full disk: the snapshot has failed.
    pub fn finish(mut self) -> Result<PartSummary, Error> {
        let index_at = self.buffer.len();
        let index_offset = self.written + index_at as u64;
        self.buffer.extend_from_slice(&self.index);
        self.buffer.pad_to_block();
        let footer = Footer {
            index_offset,
            rows: self.rows,
            raw_bytes: self.raw_bytes,
            highest_lsn: self.highest_lsn,
            chunks: self.chunks,
            index_crc: crc32c::crc32c(&self.buffer[index_at..]),
        };
        let (page, footer_crc) = footer.encode();
        self.buffer.extend_from_slice(&page);
        self.write_pages()?;
        self.file.sync_all().map_err(Error::io("sync", &self.path))?;
        Ok(PartSummary {
            part: self.part,
            file_bytes: self.written,
            rows: self.rows,
            raw_bytes: self.raw_bytes,
            highest_lsn: self.highest_lsn,
            chunks: self.chunks,
            footer_crc,
        })
    }
}
