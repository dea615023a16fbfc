//! Finds the checkpoint to open: the last header with intact bytes, searched from the end of the file.
//!
//! The newest header may have been written without a completed sync, so its range is read and hashed. The
//! previous header was durable before anything after it was written, so it is found by its offset in the
//! newer header, and its range is not read. A damaged header, or bytes that only resemble one, is skipped;
//! the search then continues page by page towards the start.

use std::path::Path;

use env::{Access, Disk, File};
use lsn::Lsn;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    PassedOver, TreeError,
    format::{MAGIC, PAGE_BYTES},
    header::{FileId, HEADER_BYTES_MAX, Header, Invalid},
    options::Wanted,
};

/// The maximum size of one read.
pub(crate) const READ_BYTES: usize = 1 << 20;

pub(crate) struct SearchResult {
    pub(crate) header: Header,
    /// A newer checkpoint that was skipped because it is damaged or incomplete.
    pub(crate) passed_over: Option<PassedOver>,
}

/// The newest checkpoint that `wanted` allows.
pub(crate) fn find(file: &dyn File, path: &Path, wanted: Wanted) -> Result<SearchResult, TreeError> {
    let len = file.len().map_err(TreeError::io("read", path))?;
    let mut search = Search { file, path, file_id: [0; 16], passed_over: None };
    let first = search.header_at(0)?.map_err(|invalid| search.error(0, invalid))?;
    search.file_id = first.file_id;
    let mut newest = None;
    let mut candidate = search.newest_before(len)?;
    // Whether a newer intact header has been seen, which proves that the headers before it were durable.
    let mut vouched = false;
    while let Some(header) = candidate {
        let is_wanted = header.has_state && header.applied_lsn <= wanted.at_most;
        if is_wanted && (vouched || search.range_is_whole(&header)?) {
            if header.applied_lsn >= wanted.at_least {
                return Ok(SearchResult { header, passed_over: search.passed_over });
            }
            newest = Some(header.applied_lsn);
            break;
        }
        vouched = true;
        candidate = search.before(&header)?;
    }
    Err(TreeError::NoCheckpoint {
        path: path.to_owned(),
        wanted: (wanted.at_least, wanted.at_most),
        newest,
        passed_over: search.passed_over,
    })
}

/// Verifies the bytes that were appended to a file since the checkpoint that ended at `from`. The file must
/// end with a header, and every byte from `from` on must be covered by the hash of a header. Bytes before
/// `from` are not verified, except for the first header.
///
/// # Errors
/// Damage; another version of the format; I/O errors.
pub fn verify_appended(disk: &dyn Disk, path: &Path, from: u64) -> Result<(), TreeError> {
    let file = disk.open(path, Access::Read).map_err(TreeError::io("open", path))?;
    let len = file.len().map_err(TreeError::io("read", path))?;
    let mut search = Search { file: &*file, path, file_id: [0; 16], passed_over: None };
    let first = search.header_at(0)?.map_err(|invalid| search.error(0, invalid))?;
    search.file_id = first.file_id;
    let mut header = search.newest_before(len)?.filter(|header| header.end() == len);
    let mut end = len;
    while end > from {
        let ends_here = header.take().filter(|header| header.end() == end);
        let Some(found) = ends_here else {
            return Err(TreeError::damaged(path, end, "where a checkpoint should end, none does"));
        };
        if !search.range_is_whole(&found)? {
            let reason = "a checkpoint ends, but some of its bytes are not as they were written";
            return Err(TreeError::damaged(path, found.offset, reason));
        }
        end = found.range_begin;
        if let Some(previous) = found.previous.filter(|_| end > from) {
            let before = search.header_at(previous)?.map_err(|invalid| search.error(previous, invalid))?;
            header = Some(before).filter(|before| before.file_id == search.file_id);
        }
    }
    if end == from { Ok(()) } else { Err(TreeError::damaged(path, from, "no checkpoint ends there")) }
}

struct Search<'a> {
    file: &'a dyn File,
    path: &'a Path,
    file_id: FileId,
    passed_over: Option<PassedOver>,
}

impl Search<'_> {
    /// The last intact header before `header`.
    fn before(&mut self, header: &Header) -> Result<Option<Header>, TreeError> {
        let Some(previous) = header.previous else { return Ok(None) };
        match self.header_at(previous)? {
            Ok(found) if found.file_id == self.file_id => Ok(Some(found)),
            _ => {
                let reason = "the header that a later one points to is damaged";
                self.pass_over(previous, Lsn::ZERO, reason);
                self.newest_before(previous)
            }
        }
    }

    /// The last intact header that begins before `end`, searched page by page.
    fn newest_before(&mut self, end: u64) -> Result<Option<Header>, TreeError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut piece_end = end.next_multiple_of(PAGE_BYTES as u64);
        while piece_end > 0 {
            let piece_begin = piece_end.saturating_sub(READ_BYTES as u64);
            let piece = &mut buffer[..(piece_end.min(end) - piece_begin) as usize];
            self.file.read_exact_at(piece, piece_begin).map_err(TreeError::io("read", self.path))?;
            for (page, bytes) in piece.chunks(PAGE_BYTES).enumerate().rev() {
                let offset = piece_begin + (page * PAGE_BYTES) as u64;
                if self.looks_like_header(bytes, offset)
                    && let Some(header) = self.intact_header(offset)?
                {
                    return Ok(Some(header));
                }
            }
            piece_end = piece_begin;
        }
        Ok(None)
    }

    fn looks_like_header(&self, page: &[u8], offset: u64) -> bool {
        page.get(..16) == Some(MAGIC)
            && page.get(16..32) == Some(&self.file_id)
            && page.get(32..40) == Some(&offset.to_le_bytes())
    }

    fn intact_header(&mut self, offset: u64) -> Result<Option<Header>, TreeError> {
        match self.header_at(offset)? {
            Ok(header) => Ok(Some(header)),
            Err(Invalid::Damaged(reason)) => {
                self.pass_over(offset, Lsn::ZERO, reason);
                Ok(None)
            }
            Err(invalid) => Err(self.error(offset, invalid)),
        }
    }

    fn header_at(&self, offset: u64) -> Result<Result<Header, Invalid>, TreeError> {
        let mut bytes = vec![0; HEADER_BYTES_MAX];
        let read = self.file.read_at(&mut bytes, offset).map_err(TreeError::io("read", self.path))?;
        Ok(Header::decode(&bytes[..read], offset))
    }

    /// Whether the bytes of the header's range have the hash that the header stores.
    fn range_is_whole(&mut self, header: &Header) -> Result<bool, TreeError> {
        let mut hash = Xxh3::new();
        let mut buffer = vec![0; READ_BYTES];
        let mut at = header.range_begin;
        while at < header.offset {
            let piece = &mut buffer[..(header.offset - at).min(READ_BYTES as u64) as usize];
            self.file.read_exact_at(piece, at).map_err(TreeError::io("read", self.path))?;
            hash.update(piece);
            at += piece.len() as u64;
        }
        let whole = hash.digest128() == header.range_hash;
        if !whole {
            let reason = "a checkpoint ends, but some of its bytes are not as they were written";
            self.pass_over(header.offset, header.applied_lsn, reason);
        }
        Ok(whole)
    }

    /// Notes a damaged checkpoint. Only the first call counts, because it is for the newest one.
    fn pass_over(&mut self, offset: u64, applied_lsn: Lsn, reason: &'static str) {
        self.passed_over.get_or_insert(PassedOver { offset, applied_lsn, reason });
    }

    fn error(&self, offset: u64, invalid: Invalid) -> TreeError {
        match invalid {
            Invalid::Damaged(reason) => TreeError::damaged(self.path, offset, reason),
            Invalid::Version(version) => TreeError::Version { path: self.path.to_owned(), version },
        }
    }
}
