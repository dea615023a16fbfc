//! Removing entries and changing the metadata of streams: XDEL, XDELEX, XSETID.

use engine::{CommandError, Context, EventClass, row::counted_keys};
use keyspace::{KeyOp, Listed, StreamHead, StreamId};
use wire::{Args, number::parse_i64};

use super::{id, references::References, stream};

/// `XDEL key id [id ...]`
pub(super) fn xdel(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let mut removed = 0;
    if stream(cx.unit.get(db, key))?.is_some() {
        let ids = parse_ids(args.skip(2))?;
        removed = cx.apply(key, KeyOp::StreamDelete { ids: Listed::Slices(&ids) }).removed;
    }
    if removed > 0 {
        cx.notify(EventClass::STREAM, "xdel", key);
    }
    cx.reply.count(removed as usize);
    Ok(())
}

pub(super) fn parse_ids(words: Args<'_>) -> Result<Vec<StreamId>, CommandError> {
    words.iter().map(|word| id::parse_id(word, 0)).collect()
}

/// Parses `[KEEPREF | DELREF | ACKED] IDS numids id [id ...]`, in any order, except that the ids follow their
/// number. The last IDS counts, as in Redis.
pub(super) fn parse_referred(words: Args<'_>) -> Result<(References, Args<'_>), CommandError> {
    let (mut references, mut ids, mut at) = (None, None, 0);
    while let Some(word) = words.get(at) {
        if word.eq_ignore_ascii_case(b"ids") {
            let number = words.get(at + 1).ok_or(CommandError::Syntax)?;
            if parse_i64(number).is_none_or(|number| number <= 0) {
                return Err(CommandError::Text("ERR Number of IDs must be a positive integer"));
            }
            let found = counted_keys(words, at + 1)
                .ok_or(CommandError::Text("ERR The `numids` parameter must match the number of arguments"))?;
            at = found.end;
            ids = Some(words.skip(found.start).take(found.len()));
        } else if References::take(&mut references, &word.to_ascii_lowercase()) {
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((references.unwrap_or_default(), ids.ok_or(CommandError::Syntax)?))
}

/// The outcome of removing an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// There was no such entry, or the call has named it before. With XACKDEL: the entry was not pending, or
    /// the call has named it before.
    Absent = -1,
    /// The entry was deleted. With XACKDEL, also: it had been deleted before.
    Deleted = 1,
    /// A group has not read or not acknowledged the entry, so the entry stays if it is there.
    Kept = 2,
}

/// `XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`
pub(super) fn xdelex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let exists = stream(cx.unit.get(db, key))?.is_some();
    let (references, ids) = parse_referred(args.skip(2))?;
    let fates = match stream(cx.unit.peek(db, key))?.filter(|_| exists) {
        Some(stream) => {
            let ids = parse_ids(ids)?;
            cx.require_room(references.record_bytes_max(stream, key, ids.len()))?;
            delete_referred(cx, key, references, &ids)
        }
        None => vec![Fate::Absent; ids.len()],
    };
    write_fates(cx, &fates);
    Ok(())
}

pub(super) fn write_fates(cx: &mut Context<'_, '_>, fates: &[Fate]) {
    cx.reply.array(fates.len());
    fates.iter().for_each(|&fate| cx.reply.integer(fate as i64));
}

/// Removes entries as far as references allow, and returns the fate of each.
pub(super) fn delete_referred(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    references: References,
    ids: &[StreamId],
) -> Vec<Fate> {
    let db = cx.db();
    let Ok(Some(stream)) = stream(cx.unit.peek(db, key)) else { return vec![Fate::Absent; ids.len()] };
    let mut going = Vec::new();
    let fate = |&id: &StreamId| {
        // References to an entry that was deleted before count as well.
        if references == References::Acknowledged && !References::none_to(stream, id) {
            return Fate::Kept;
        }
        if stream.get(id).is_none() || going.contains(&id) {
            return Fate::Absent;
        }
        going.push(id);
        Fate::Deleted
    };
    let fates = ids.iter().map(fate).collect();
    if references == References::Deleted {
        References::drop_to(cx, key, ids);
    }
    if cx.apply(key, KeyOp::StreamDelete { ids: Listed::Slices(&going) }).removed > 0 {
        cx.notify(EventClass::STREAM, "xdel", key);
    }
    fates
}

/// `XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]`
pub(super) fn xsetid(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let last_id = id::parse_id(args.at(2), 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::ZERO);
    let mut words = args.skip(3);
    while !words.is_empty() {
        let value = words.get(1).ok_or(CommandError::Syntax)?;
        match words.at(0).to_ascii_lowercase().as_slice() {
            b"entriesadded" => {
                let number = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                let number = u64::try_from(number);
                entries_added =
                    Some(number.map_err(|_| CommandError::Text("ERR entries_added must be positive"))?);
            }
            b"maxdeletedid" => {
                max_deleted_id = id::parse_id(value, 0)?;
                if last_id < max_deleted_id {
                    return Err(CommandError::Text(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(CommandError::Syntax),
        }
        words = words.skip(2);
    }
    let stream = stream(cx.unit.get(db, key))?.ok_or(CommandError::NoSuchKey)?;
    let mut head = stream.head();
    if last_id < head.max_deleted_id {
        return Err(CommandError::Text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if stream.last().is_some_and(|last| last_id < last.id) {
        return Err(CommandError::Text(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if entries_added.is_some_and(|added| added < stream.len() as u64) {
        return Err(CommandError::Text(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    head = StreamHead { last_id, entries_added: entries_added.unwrap_or(head.entries_added), ..head };
    if max_deleted_id > StreamId::ZERO {
        head.max_deleted_id = max_deleted_id;
    }
    cx.apply(key, KeyOp::StreamSetHead { head });
    cx.notify(EventClass::STREAM, "xsetid", key);
    cx.reply.ok();
    Ok(())
}
