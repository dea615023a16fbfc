//! Lists of tuples of numbers that an effect on a stream carries: ids, deliveries.
//!
//! What it is: lists that, like [`Items`](super::Items), are borrowed either as slices or encoded; and the
//! encoding of a tuple, which is its numbers one after the other. What it is not: a list of byte strings.

use std::fmt;

use super::EffectError;
use super::codec::{Encode, Reader, Writer};
use super::items::EncodedItems;
use crate::collection::{ConsumerTimes, Delivery, GroupPosition, StreamHead, StreamId};

/// A tuple of numbers.
pub trait Listable: Copy + Eq + fmt::Debug {
    /// Calls `visit` with the numbers of the tuple, in order.
    fn visit(&self, visit: &mut dyn FnMut(u64));

    /// Makes the tuple from the numbers that `next` returns.
    ///
    /// # Errors
    /// The error of `next`, or an error if the numbers do not form a tuple.
    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError>;
}

/// Reading a tuple.
pub(crate) trait Coded: Listable {
    fn read(reader: &mut Reader<'_>) -> Result<Self, EffectError> {
        Self::make(&mut || reader.number())
    }
}

impl<T: Listable> Coded for T {}

impl<T: Listable> Encode for T {
    fn write(&self, out: &mut impl Writer) {
        self.visit(&mut |number| _ = out.number(number));
    }
}

impl Listable for StreamId {
    #[inline]
    fn visit(&self, visit: &mut dyn FnMut(u64)) {
        visit(self.ms);
        visit(self.seq);
    }

    #[inline]
    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError> {
        Ok(StreamId { ms: next()?, seq: next()? })
    }
}

impl Listable for Delivery {
    fn visit(&self, visit: &mut dyn FnMut(u64)) {
        self.id.visit(visit);
        visit(self.time_ms);
        visit(self.count.into());
    }

    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError> {
        let (id, time_ms) = (StreamId::make(next)?, next()?);
        let count = u32::try_from(next()?).map_err(|_| EffectError::MalformedNumber)?;
        Ok(Delivery { id, time_ms, count })
    }
}

impl Listable for StreamHead {
    fn visit(&self, visit: &mut dyn FnMut(u64)) {
        self.last_id.visit(visit);
        self.max_deleted_id.visit(visit);
        visit(self.entries_added);
    }

    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError> {
        let (last_id, max_deleted_id) = (StreamId::make(next)?, StreamId::make(next)?);
        Ok(StreamHead { last_id, max_deleted_id, entries_added: next()? })
    }
}

impl Listable for GroupPosition {
    fn visit(&self, visit: &mut dyn FnMut(u64)) {
        self.last_id.visit(visit);
        visit(one_more(self.entries_read));
    }

    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError> {
        Ok(GroupPosition { last_id: StreamId::make(next)?, entries_read: next()?.checked_sub(1) })
    }
}

impl Listable for ConsumerTimes {
    fn visit(&self, visit: &mut dyn FnMut(u64)) {
        visit(self.seen_ms);
        visit(one_more(self.active_ms));
    }

    fn make(next: &mut dyn FnMut() -> Result<u64, EffectError>) -> Result<Self, EffectError> {
        Ok(ConsumerTimes { seen_ms: next()?, active_ms: next()?.checked_sub(1) })
    }
}

/// The encoding of a number that may be absent: 0 stands for `None`, other numbers are stored plus 1.
/// `u64::MAX` must not occur in an effect: its encoding is that of the number below it, so memory would
/// differ from the log (see [`ENTRIES_READ_MAX`](crate::ENTRIES_READ_MAX)).
fn one_more(number: Option<u64>) -> u64 {
    number.map_or(0, |number| number.saturating_add(1))
}

/// Tuples, one after the other.
#[derive(Clone, Copy)]
pub enum Listed<'a, T> {
    /// The tuples where they lie, such as in a command.
    Slices(&'a [T]),
    /// Encoded tuples one after the other, as a log record holds them.
    Encoded(EncodedItems<'a>),
}

impl<'a, T: Listable> Listed<'a, T> {
    /// The number of tuples.
    pub const fn len(&self) -> usize {
        match self {
            Listed::Slices(slices) => slices.len(),
            Listed::Encoded(encoded) => encoded.count,
        }
    }

    /// Whether there is no tuple.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tuples in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (slices, mut encoded): (&'a [T], _) = match *self {
            Listed::Slices(slices) => (slices, EncodedItems { count: 0, bytes: &[] }),
            Listed::Encoded(encoded) => (&[], encoded),
        };
        slices.iter().copied().chain(std::iter::from_fn(move || encoded.take(T::read)))
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, EffectError> {
        EncodedItems::decode(reader, |reader| T::read(reader).map(drop)).map(Listed::Encoded)
    }
}

impl<T: Listable> Encode for Listed<'_, T> {
    fn write(&self, out: &mut impl Writer) {
        out.number(self.len() as u64);
        match self {
            Listed::Slices(slices) => slices.iter().for_each(|record| _ = out.add(record)),
            Listed::Encoded(encoded) => _ = out.raw(encoded.bytes),
        }
    }
}

impl<T: Listable> PartialEq for Listed<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Listable> Eq for Listed<'_, T> {}

impl<T: Listable> fmt::Debug for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
