//! Capturing a stream while it changes, in bounded steps.
//!
//! What it is: the head, the groups and the consumers are copied at once when the capture begins, in time
//! proportional to the number of groups and consumers. Then a walk copies block after block and, group after
//! group, run after run of pending entries. A block or run ahead of the walk is copied just before it
//! changes. A block that leaves the stream before its turn is kept.
//! What it is not: aware of where the copies go (see `crate::capture`).
//!
//! Invariants
//! - A block or run carries the number of the last capture that has copied it. A block or run that is made
//!   during a capture carries the number of this capture as well, because the capture must not have it. So a
//!   block or run with another number is as it was when the capture began.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::block::Block;
use super::group::{Delivery, Group};
use super::image::StreamImage;
use super::pending::Run;
use super::{Stream, StreamId};

/// A capture in progress.
pub(super) struct Capture {
    /// Copies that `capture_step` has not returned yet.
    pub(super) image: StreamImage,
    next: Option<Cursor>,
}

/// The position at which the walk continues.
enum Cursor {
    Blocks(StreamId),
    /// The walk continues with the pending entries of this group, from this id on.
    Pending(Arc<[u8]>, StreamId),
}

impl Capture {
    /// Copies a block that is about to change, unless it is captured already.
    pub(super) fn block(&mut self, block: &mut Block, number: u32) {
        if block.captured != number {
            block.captured = number;
            self.image.add_block(block.clone());
        }
    }

    /// Keeps a block that has left the stream, unless it is captured already.
    pub(super) fn removed_block(&mut self, block: Block, number: u32) {
        if block.captured != number {
            self.image.add_block(block);
        }
    }

    /// Copies a run of a group that is about to change, unless it is captured already.
    pub(super) fn run(&mut self, name: &Arc<[u8]>, group: &Group, run: &mut Run, number: u32) {
        if run.captured == number {
            return;
        }
        run.captured = number;
        for pending in &run.entries {
            let delivery = Delivery { id: pending.id, time_ms: pending.time_ms, count: pending.count };
            let consumer = group.name_of(pending.consumer).expect("what is pending is pending for somebody");
            self.image.add_pending(name, consumer, delivery);
        }
    }
}

impl Stream {
    pub(crate) fn begin_capture(&mut self) {
        assert!(self.capture.is_none(), "a capture was begun already");
        self.captures = self.captures.wrapping_add(1);
        let mut image = StreamImage::default();
        image.set_head(self.head);
        self.add_groups_to(&mut image);
        self.capture = Some(Box::new(Capture { image, next: Some(Cursor::Blocks(StreamId::ZERO)) }));
    }

    /// A copy of the whole stream, made at once.
    pub(crate) fn image(&self) -> StreamImage {
        let mut image = StreamImage::default();
        image.set_head(self.head);
        self.add_groups_to(&mut image);
        self.blocks.values().for_each(|block| image.add_block(block.clone()));
        for (name, group) in &self.groups {
            for pending in group.pending.range(StreamId::ZERO..=StreamId::MAX) {
                let consumer =
                    group.name_of(pending.consumer).expect("what is pending is pending for somebody");
                let delivery = Delivery { id: pending.id, time_ms: pending.time_ms, count: pending.count };
                image.add_pending(name, consumer, delivery);
            }
        }
        image
    }

    fn add_groups_to(&self, image: &mut StreamImage) {
        for (name, group) in &self.groups {
            image.add_group(name, group.position(), group.named_consumers());
        }
    }

    pub(crate) fn is_being_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// Continues the capture for about `bytes`. Returns what was copied since the last call, and whether the
    /// capture is complete.
    ///
    /// # Panics
    /// If the stream is not being captured.
    pub(crate) fn capture_step(&mut self, bytes: usize) -> (StreamImage, bool) {
        let mut capture = self.capture.take().expect("a capture was begun");
        while capture.image.size_bytes() < bytes
            && let Some(cursor) = capture.next.take()
        {
            capture.next = match cursor {
                Cursor::Blocks(from) => self.capture_block(&mut capture, from),
                Cursor::Pending(name, from) => self.capture_run(&mut capture, name, from),
            };
        }
        let image = std::mem::take(&mut capture.image);
        let has_ended = capture.next.is_none();
        if !has_ended {
            self.capture = Some(capture);
        }
        (image, has_ended)
    }

    fn capture_block(&mut self, capture: &mut Capture, from: StreamId) -> Option<Cursor> {
        if let Some((&id, block)) = self.blocks.range_mut(from..).next() {
            capture.block(block, self.captures);
            if let Some(next) = id.next() {
                return Some(Cursor::Blocks(next));
            }
        }
        self.groups.keys().next().map(|first| Cursor::Pending(first.clone(), StreamId::ZERO))
    }

    fn capture_run(&mut self, capture: &mut Capture, name: Arc<[u8]>, from: StreamId) -> Option<Cursor> {
        let number = self.captures;
        if let Some(group) = self.groups.get_mut(&name)
            && let Some(next) = group.capture_run(from, |group, run| capture.run(&name, group, run, number))
        {
            return Some(Cursor::Pending(name, next));
        }
        let mut behind = self.groups.range::<Arc<[u8]>, _>((Excluded(&name), Unbounded));
        behind.next().map(|(name, _)| Cursor::Pending(name.clone(), StreamId::ZERO))
    }

    /// Bytes of the copies that wait for the next step: of blocks and runs that were about to change and,
    /// before the first step, of the head and the groups.
    pub(crate) fn captured_ahead_bytes(&self) -> usize {
        self.capture.as_ref().map_or(0, |capture| capture.image.size_bytes())
    }

    /// Gives the capture up before it is complete.
    pub(crate) fn abandon_capture(&mut self) {
        self.capture = None;
    }
}
