//! The treatment of groups' references to an entry that is removed (KEEPREF, DELREF, ACKED).

use engine::Context;
use keyspace::{GroupView, KeyOp, Listed, StreamHead, StreamId, StreamView};

use super::stream;

/// The maximum size of an id in a record, in bytes.
const ID_BYTES: usize = 20;
/// The maximum size of an effect besides its key, its group and its ids, in bytes.
const EFFECT_BYTES: usize = 64;

/// The treatment of pending entries when their stream entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum References {
    /// The references stay pending.
    #[default]
    Kept,
    /// The references are removed, too.
    Deleted,
    /// An entry is removed only if all groups have read and acknowledged it.
    Acknowledged,
}

impl References {
    /// Parses a word in lower case. Returns whether the word is one of these options, and none of these
    /// options was given before.
    pub(super) fn take(given: &mut Option<Self>, word: &[u8]) -> bool {
        let option = match word {
            b"keepref" => References::Kept,
            b"delref" => References::Deleted,
            b"acked" => References::Acknowledged,
            _ => return false,
        };
        given.replace(option).is_none()
    }

    /// Whether all groups have read and acknowledged an entry.
    pub(super) fn none_to(stream: StreamView<'_>, id: StreamId) -> bool {
        stream.groups().all(|(_, group)| id <= group.position().last_id && group.pending(id).is_none())
    }

    /// An upper bound of the bytes that the removal of this many entries adds to a record. The bound includes
    /// one more effect on the key, such as setting its head.
    pub(super) fn record_bytes_max(self, stream: StreamView<'_>, key: &[u8], entries: usize) -> u64 {
        let of_group = |(name, group): (&[u8], GroupView<'_>)| match group.pending_len() {
            0 => 0,
            pending => EFFECT_BYTES + key.len() + name.len() + pending.min(entries) * ID_BYTES,
        };
        let of_groups = match self {
            References::Deleted => stream.groups().map(of_group).sum(),
            References::Kept | References::Acknowledged => 0,
        };
        (2 * (EFFECT_BYTES + key.len()) + entries * ID_BYTES + of_groups) as u64
    }

    /// Removes entries from the pending lists of all groups.
    pub(super) fn drop_to(cx: &mut Context<'_, '_>, key: &[u8], ids: &[StreamId]) {
        let db = cx.db();
        let Ok(Some(stream)) = stream(cx.unit.peek(db, key)) else { return };
        // A client may name an id many times; each group lists it once.
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut pending = Vec::new();
        for (name, group) in stream.groups().filter(|(_, group)| group.pending_len() > 0) {
            let ids: Vec<_> = ids.iter().copied().filter(|&id| group.pending(id).is_some()).collect();
            if !ids.is_empty() {
                pending.push((name.to_vec(), ids));
            }
        }
        for (group, ids) in &pending {
            cx.apply(key, KeyOp::StreamUnpend { group, ids: Listed::Slices(ids) });
        }
    }

    /// Removes entries without raising the highest deleted id, as trimming does, and returns their number.
    pub(super) fn delete_silently(cx: &mut Context<'_, '_>, key: &[u8], ids: &[StreamId]) -> usize {
        let db = cx.db();
        let head = |cx: &Context<'_, '_>| match stream(cx.unit.peek(db, key)) {
            Ok(Some(stream)) => stream.head(),
            _ => StreamHead::default(),
        };
        let before = head(cx);
        let removed = cx.apply(key, KeyOp::StreamDelete { ids: Listed::Slices(ids) }).removed;
        if head(cx) != before {
            cx.apply(key, KeyOp::StreamSetHead { head: before });
        }
        removed as usize
    }
}
