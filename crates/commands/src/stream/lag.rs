//! How far a group is behind, as far as counters tell.
//!
//! What it is: the counter of entries that a group has read, and what is left. It is exact until entries are deleted in the middle of
//! what is not read yet; then nobody knows, until the group has come to the end.

use keyspace::{GroupPosition, StreamId, StreamView};

/// Whether an entry with this id or a higher one was deleted from between others. What was deleted before all that are left does
/// not count, as in Redis.
fn has_deleted_from(stream: StreamView<'_>, id: StreamId) -> bool {
    let deleted = stream.head().max_deleted_id;
    let Some(first) = stream.first() else { return false };
    deleted > StreamId::ZERO && first.id <= deleted && id <= deleted
}

/// How many entries were added up to this id, of all that there ever were; `None` if nobody knows.
fn count_through(stream: StreamView<'_>, id: StreamId) -> Option<u64> {
    let head = stream.head();
    let added = head.entries_added;
    if added == 0 {
        return Some(0);
    }
    let Some(first) = stream.first() else { return (id <= head.last_id).then_some(added) };
    if id >= head.last_id {
        return (id == head.last_id).then_some(added);
    }
    let before = added.checked_sub(stream.len() as u64)?;
    if head.max_deleted_id > StreamId::ZERO && head.max_deleted_id >= first.id {
        return None;
    }
    match id.cmp(&first.id) {
        std::cmp::Ordering::Less => Some(before),
        std::cmp::Ordering::Equal => Some(before + 1),
        std::cmp::Ordering::Greater => None,
    }
}

/// How many entries a group has not read.
pub(super) fn lag(
    stream: StreamView<'_>,
    GroupPosition { last_id, entries_read }: GroupPosition,
) -> Option<i64> {
    let added = stream.head().entries_added;
    if added == 0 {
        return Some(0);
    }
    let read = match entries_read {
        Some(read) if !has_deleted_from(stream, last_id) => Some(read),
        _ => count_through(stream, last_id),
    };
    read.map(|read| (added as i64).wrapping_sub(read as i64))
}

/// Where a group stands that has read an entry after those before.
pub(super) fn read_one(stream: StreamView<'_>, position: &mut GroupPosition, id: StreamId) {
    if id <= position.last_id {
        return;
    }
    position.entries_read = match position.entries_read {
        Some(read) if !has_deleted_from(stream, id) => Some(read + 1),
        read if stream.head().entries_added == 0 => read,
        _ => count_through(stream, id),
    };
    position.last_id = id;
}
