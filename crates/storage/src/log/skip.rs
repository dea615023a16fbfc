//! Skips damage, for cursors that would rather lose a damaged part of the log than all records after it.
//!
//! This module finds the beginning of the next readable batch. It restores nothing.

use lsn::Lsn;

use super::{
    CursorRead, Log,
    footer::{FOOTER_BYTES, Footer},
    record::BLOCK_BYTES,
    segment::Segment,
};

impl Log {
    /// The start of the first readable batch after `from`; the shippable position if there is none.
    pub fn readable_behind(&self, from: Lsn) -> Lsn {
        let shippable = self.shippable_lsn();
        let mut end = from.advance(1).align_up(BLOCK_BYTES);
        let mut segment: Option<Segment> = None;
        while end <= shippable {
            let footer_start = Lsn::new(end.get() - FOOTER_BYTES as u64);
            if segment.as_ref().is_none_or(|segment| segment.end < end) {
                segment = self.shared.open_segment(footer_start).ok().flatten();
            }
            let Some(file) = &segment else {
                // The segment cannot be opened, so the next readable footer is in the following segment or
                // later.
                end = footer_start.align_up(self.segment_bytes()).advance(BLOCK_BYTES);
                continue;
            };
            let mut footer = [0; FOOTER_BYTES];
            let read = file.file.read_at(&mut footer, file.offset(footer_start)).unwrap_or(0);
            if let Some(footer) = Footer::decode(&footer[..read], end) {
                let next = if footer.start > from { footer.start } else { footer.end };
                if next > from && self.is_readable_at(next) {
                    return next;
                }
            }
            end = end.advance(BLOCK_BYTES);
        }
        shippable
    }

    fn is_readable_at(&self, start: Lsn) -> bool {
        start >= self.shippable_lsn() || matches!(self.cursor(start).read(1), Ok(CursorRead::Chunk(_)))
    }
}
