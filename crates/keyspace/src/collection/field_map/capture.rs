//! Capturing a map while it changes: every field as it was when the capture began, in bounded steps.
//!
//! What it is: a walk over the segments in the order of hashes. A segment ahead of the walk is captured as a
//! whole just before it changes. So a change during a capture copies one segment, or the segments that it
//! merges. Each segment is copied once.
//! What it is not: aware of where the copies go (see `capture`).
//!
//! Invariants
//! - The captured part consists of whole segments: all from 0 to `next`, and the ranges in `ahead`.
//! - Segments change, split and merge only after they are captured. So a segment is captured if its first
//!   hash is in the captured part.

use std::collections::BTreeMap;

use super::FieldMap;
use crate::collection::part::Part;

/// A capture in progress.
pub(super) struct Capture {
    /// Copies that `capture_step` has not returned yet.
    part: Part,
    /// The hash at which the walk continues; `None` at the end.
    next: Option<u64>,
    /// The ranges of hashes that were captured ahead of the walk: for each first hash, the end of the range.
    /// An end of 0 is the end of all hashes.
    ahead: BTreeMap<u64, u64>,
}

impl Capture {
    fn has(&self, first: u64) -> bool {
        let is_in = |(_, &end): (&u64, &u64)| end == 0 || first < end;
        self.next.is_none_or(|next| first < next) || self.ahead.range(..=first).next_back().is_some_and(is_in)
    }
}

impl FieldMap {
    /// Begins to capture. `part` is empty and determines the kind of the copies.
    pub(crate) fn begin_capture(&mut self, part: Part) {
        assert!(self.capture.is_none() && part.is_empty());
        self.capture = Some(Box::new(Capture { part, next: Some(0), ahead: BTreeMap::new() }));
    }

    pub(crate) fn is_being_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// Continues the capture for about `bytes`. Returns what was copied since the last call, and whether the
    /// capture is complete.
    ///
    /// # Panics
    /// If the map is not being captured.
    pub(crate) fn capture_step(&mut self, bytes: usize) -> (Part, bool) {
        let mut capture = self.capture.take().expect("a capture was begun");
        while let Some(next) = capture.next
            && capture.part.size_bytes() < bytes
        {
            let segment = self.segment(next);
            if !capture.has(segment.first()) {
                segment.table.entries().for_each(|entry| capture.part.add(entry));
            }
            capture.next = Some(segment.end()).filter(|&end| end > 0);
        }
        let none = capture.part.none_of();
        let part = std::mem::replace(&mut capture.part, none);
        let has_ended = capture.next.is_none();
        if !has_ended {
            self.capture = Some(capture);
        }
        (part, has_ended)
    }

    /// Bytes of the copies that wait for the next step: of entries that were about to change.
    pub(crate) fn captured_ahead_bytes(&self) -> usize {
        self.capture.as_ref().map_or(0, |capture| capture.part.size_bytes())
    }

    /// Gives the capture up before it is complete.
    pub(crate) fn abandon_capture(&mut self) {
        self.capture = None;
    }

    /// Captures a segment that is about to change, if the walk has not captured it.
    #[inline]
    pub(super) fn capture_ahead(&mut self, number: usize) {
        if self.capture.is_some() {
            self.capture_segment(number);
        }
    }

    #[cold]
    fn capture_segment(&mut self, number: usize) {
        let segment = &self.segments[number];
        if let Some(capture) = &mut self.capture
            && !capture.has(segment.first())
        {
            segment.table.entries().for_each(|entry| capture.part.add(entry));
            capture.ahead.insert(segment.first(), segment.end());
        }
    }
}
