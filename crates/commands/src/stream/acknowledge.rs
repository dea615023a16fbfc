//! Acknowledging deliveries: XACK, XACKDEL.

use engine::{CommandError, Context};
use keyspace::{KeyOp, Listed};
use wire::Args;

use super::{
    edit::{Fate, delete_referred, parse_ids, parse_referred, write_fates},
    references::References,
    stream,
};

/// `XACK key group id [id ...]`
pub(super) fn xack(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group) = (cx.db(), args.at(1), args.at(2));
    let mut removed = 0;
    if stream(cx.unit.get(db, key))?.is_some_and(|stream| stream.group(group).is_some()) {
        let ids = parse_ids(args.skip(3))?;
        removed = cx.apply(key, KeyOp::StreamUnpend { group, ids: Listed::Slices(&ids) }).removed;
    }
    cx.reply.count(removed as usize);
    Ok(())
}

/// `XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`
pub(super) fn xackdel(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group) = (cx.db(), args.at(1), args.at(2));
    let stream = stream(cx.unit.get(db, key))?;
    let (references, ids) = parse_referred(args.skip(3))?;
    let mut fates = vec![Fate::Absent; ids.len()];
    let Some((stream, found)) = stream.and_then(|stream| Some((stream, stream.group(group)?))) else {
        write_fates(cx, &fates);
        return Ok(());
    };
    let ids = parse_ids(ids)?;
    // The pending ids among the arguments, each at its first occurrence.
    let mut pending = Vec::new();
    for (at, &id) in ids.iter().enumerate() {
        if found.pending(id).is_some() && !ids[..at].contains(&id) {
            pending.push((at, id));
        }
    }
    // The ids are in two effects: the removal, and the acknowledgement, which is at most as large as a
    // removal and the group's name together.
    let removal_bytes = references.record_bytes_max(stream, key, ids.len());
    cx.require_room(2 * removal_bytes + group.len() as u64)?;
    let acknowledged: Vec<_> = pending.iter().map(|(_, id)| *id).collect();
    cx.apply(key, KeyOp::StreamUnpend { group, ids: Listed::Slices(&acknowledged) });
    let deleted = delete_referred(cx, key, references, &acknowledged);
    for ((at, _), fate) in pending.iter().zip(deleted) {
        // Acknowledged entries that no longer exist count as deleted.
        fates[*at] = if fate == Fate::Kept { Fate::Kept } else { Fate::Deleted };
    }
    debug_assert!(references == References::Acknowledged || !fates.contains(&Fate::Kept));
    write_fates(cx, &fates);
    Ok(())
}
