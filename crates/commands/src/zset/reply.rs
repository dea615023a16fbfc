//! Writes members and scores as replies.

use keyspace::{Element, ZsetRange};
use wire::{Protocol, ReplyWriter};

/// The members of a range, in ascending or descending order.
pub(super) struct Directed<'a> {
    pub(super) range: ZsetRange<'a>,
    /// Whether the members come from the highest score down.
    pub(super) is_reverse: bool,
}

impl<'a> Iterator for Directed<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_reverse { self.range.next_back() } else { self.range.next() }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Directed<'_> {}

/// Writes members without their scores.
pub(super) fn write_members<'m>(
    reply: &mut ReplyWriter<'_>,
    members: impl ExactSizeIterator<Item = (Element<'m>, f64)>,
) {
    reply.array(members.len());
    for (member, _) in members {
        reply.bulk(&member);
    }
}

/// Writes members with their scores: in turn in RESP2, as pairs in RESP3.
pub(super) fn write_scored<'m>(
    reply: &mut ReplyWriter<'_>,
    members: impl ExactSizeIterator<Item = (Element<'m>, f64)>,
) {
    match reply.protocol() {
        Protocol::Resp2 => write_flat(reply, members),
        Protocol::Resp3 => write_pairs(reply, members),
    }
}

/// Writes members and scores in turn.
pub(super) fn write_flat<'m>(
    reply: &mut ReplyWriter<'_>,
    members: impl ExactSizeIterator<Item = (Element<'m>, f64)>,
) {
    reply.array(members.len() * 2);
    for (member, score) in members {
        reply.bulk(&member);
        reply.double(score);
    }
}

/// Writes each member in an array with its score.
pub(super) fn write_pairs<'m>(
    reply: &mut ReplyWriter<'_>,
    members: impl ExactSizeIterator<Item = (Element<'m>, f64)>,
) {
    reply.array(members.len());
    for (member, score) in members {
        reply.array(2);
        reply.bulk(&member);
        reply.double(score);
    }
}
