//! `Appender`: sequential writes after the end of a file's last checkpoint, in pieces of 1 MiB, with a
//! running hash over the written bytes.
//!
//! An appender assigns offsets to blobs and nodes, and hands a full piece to the OS. Only [`Appender::flush`]
//! and [`Appender::finish`] make bytes durable.
//!
//! Invariants
//! - Bytes are contiguous, in the order in which they were put, and written once.
//! - After a failed write or sync nothing more is written.

use std::{path::PathBuf, sync::Arc};

use env::File;
use xxhash_rust::xxh3::Xxh3;

use crate::{Pointer, TreeError, Written, format::PAGE_BYTES, header::Header, reader::FileReader};

/// The maximum size of one write.
const PIECE_BYTES: usize = 1 << 20;

pub(crate) struct Appender {
    file: Arc<dyn File>,
    path: PathBuf,
    begin: u64,
    /// Bytes that are not written yet; they belong at `piece_offset`.
    piece: Vec<u8>,
    piece_offset: u64,
    hash: Box<Xxh3>,
    written: Written,
    /// The reason of the first failed write or sync.
    failure: Option<String>,
}

impl Appender {
    /// Appends from offset `begin` on, which must be a multiple of [`PAGE_BYTES`].
    pub(crate) fn new(reader: &FileReader, begin: u64, written: &Written) -> Appender {
        Appender {
            file: reader.file.clone(),
            path: reader.path.clone(),
            begin,
            piece: Vec::new(),
            piece_offset: begin,
            hash: Box::new(Xxh3::new()),
            written: written.clone(),
            failure: None,
        }
    }

    /// The offset of the first byte of the range.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// The offset of the next byte.
    pub(crate) fn end(&self) -> u64 {
        self.piece_offset + self.piece.len() as u64
    }

    /// The first failed write or sync, if any.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Appends a node or blob.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<Pointer, TreeError> {
        let pointer = Pointer::new(self.end(), bytes);
        self.extend(bytes)?;
        Ok(pointer)
    }

    fn extend(&mut self, mut bytes: &[u8]) -> Result<(), TreeError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            if self.piece.len() == PIECE_BYTES {
                self.write_piece()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Pads the range with zeros to the next page, because a header must begin at a page; returns the hash of
    /// the range.
    pub(crate) fn end_range(&mut self) -> Result<u128, TreeError> {
        let zeros = self.end().next_multiple_of(PAGE_BYTES as u64) - self.end();
        self.extend(&[0; PAGE_BYTES][..zeros as usize])?;
        // `write_piece` adds a whole piece to the hash. The pending piece will also have the header, which is
        // not in the range, so its bytes so far are added to a copy of the hash.
        let mut hash = self.hash.clone();
        hash.update(&self.piece);
        Ok(hash.digest128())
    }

    /// Appends the header that ends the range, and makes everything durable.
    pub(crate) fn finish(&mut self, header: &Header) -> Result<(), TreeError> {
        self.extend(&header.encode())?;
        self.write_piece()?;
        self.sync()
    }

    /// Makes all bytes appended so far durable.
    pub(crate) fn flush(&mut self) -> Result<(), TreeError> {
        self.write_piece()?;
        self.sync()
    }

    fn write_piece(&mut self) -> Result<(), TreeError> {
        self.require_intact()?;
        let written = self.file.write_all_at(&self.piece, self.piece_offset);
        written.map_err(|error| self.failed("write", error))?;
        self.written.count(self.piece.len());
        self.hash.update(&self.piece);
        self.piece_offset += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), TreeError> {
        self.file.sync_data().map_err(|error| self.failed("sync", error))
    }

    fn require_intact(&self) -> Result<(), TreeError> {
        match &self.failure {
            Some(reason) => Err(TreeError::Poisoned { path: self.path.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn failed(&mut self, operation: &'static str, source: std::io::Error) -> TreeError {
        let error = TreeError::Io { operation, path: self.path.clone(), source };
        self.failure.get_or_insert_with(|| error.to_string());
        error
    }
}
