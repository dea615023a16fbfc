//! The lag of a group, estimated from counters.
//!
//! A group counts the entries that it has read. The count can become unknown, as when unread entries are
//! deleted.

use keyspace::{ENTRIES_READ_MAX, GroupPosition, StreamHead, StreamId, StreamView};

/// Whether an entry at or after this id was deleted. As in Redis, deletions before all remaining entries do
/// not count.
fn has_deleted_from(stream: StreamView<'_>, id: StreamId) -> bool {
    let deleted = stream.head().max_deleted_id;
    let Some(first) = stream.first() else { return false };
    deleted > StreamId::ZERO && first.id <= deleted && id <= deleted
}

/// The number of entries ever added up to this id; `None` if unknown.
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

/// The number of entries that a group has not read; `None` if unknown.
pub(super) fn lag(
    stream: StreamView<'_>,
    GroupPosition { last_id, entries_read }: GroupPosition,
) -> Option<i64> {
    let StreamHead { entries_added, max_deleted_id, .. } = stream.head();
    let Some(first) = stream.first() else { return Some(0) };
    if entries_added == 0 {
        return Some(0);
    }
    // The group has read none of the entries that are left, and no entry among them was deleted.
    if last_id < first.id && max_deleted_id < first.id {
        return Some(stream.len() as i64);
    }
    let read = match entries_read {
        Some(read) if !has_deleted_from(stream, last_id) => Some(read),
        _ => count_through(stream, last_id),
    };
    read.map(|read| (entries_added as i64).wrapping_sub(read as i64))
}

/// Advances the position of a group by one entry.
pub(super) fn read_one(stream: StreamView<'_>, position: &mut GroupPosition, id: StreamId) {
    if id <= position.last_id {
        return;
    }
    // The counter continues only if the group is within the stream, and no entry from its position on was
    // deleted.
    let is_gapless = stream.first().is_some_and(|first| position.last_id >= first.id)
        && !has_deleted_from(stream, position.last_id);
    position.entries_read = match position.entries_read {
        // A number that RESTORE has brought may be the largest one that a record of the log can hold.
        Some(read) if is_gapless => Some(read.saturating_add(1).min(ENTRIES_READ_MAX)),
        read if stream.head().entries_added == 0 => read,
        _ => count_through(stream, id),
    };
    position.last_id = id;
}
