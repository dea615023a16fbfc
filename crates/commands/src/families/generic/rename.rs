//! Other names and other places for a value: RENAME, RENAMENX, COPY, MOVE.
//!
//! A value that moves is put in its new place and removed from the old one, in one record. Putting it by reference would
//! need effects on two slots, which replay could not split by slot.

use keyspace::{DbId, Effect, EntryRef, Value};
use wire::Args;

use super::database::parse_db;
use crate::{CommandError, Context};

/// A value and its expiry, taken out of its slot.
struct Copied {
    value: Vec<u8>,
    expire_at_ms: Option<u64>,
}

impl Copied {
    fn of(entry: EntryRef<'_>) -> Copied {
        let Value::String(bytes) = entry.value();
        Copied { value: bytes.to_vec(), expire_at_ms: entry.expire_at_ms() }
    }

    fn put(&self, cx: &mut Context<'_, '_>, db: DbId, key: &[u8]) {
        let (value, expire_at_ms) = (Value::String(&self.value), self.expire_at_ms);
        cx.apply(&Effect::Put { db, key, value, expire_at_ms });
    }
}

/// `RENAME key newkey`
pub(super) fn rename(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    rename_key(cx, args, true)?;
    cx.reply.ok();
    Ok(())
}

/// `RENAMENX key newkey`
pub(super) fn renamenx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let renamed = rename_key(cx, args, false)?;
    cx.reply.integer(renamed.into());
    Ok(())
}

/// Returns whether the key has got its new name: not if a key had it and may not be replaced, nor if it is the old one.
fn rename_key(cx: &mut Context<'_, '_>, args: Args<'_>, replaces: bool) -> Result<bool, CommandError> {
    let (db, key, new_key) = (cx.db(), args.at(1), args.at(2));
    if cx.unit.get(db, key).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    if key == new_key || (!replaces && cx.unit.exists(db, new_key)) {
        return Ok(false);
    }
    Ok(move_value(cx, (db, key), (db, new_key)))
}

/// Moves what is at `from` to `to`. Returns whether there was anything.
fn move_value(cx: &mut Context<'_, '_>, from: (DbId, &[u8]), to: (DbId, &[u8])) -> bool {
    let Some(copied) = cx.unit.peek(from.0, from.1).map(Copied::of) else {
        return false;
    };
    copied.put(cx, to.0, to.1);
    cx.apply(&Effect::Delete { db: from.0, key: from.1 });
    true
}

/// `COPY source destination [DB destination-db] [REPLACE]`
pub(super) fn copy(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, source, destination) = (cx.db(), args.at(1), args.at(2));
    let (mut destination_db, mut replaces) = (db, false);
    let mut words = args.skip(3).iter();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if word.eq_ignore_ascii_case(b"db") {
            destination_db = parse_db(words.next().ok_or(CommandError::Syntax)?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if (db, source) == (destination_db, destination) {
        return Err(CommandError::SameObject);
    }
    let found = cx.unit.read(db, source).is_some();
    let copies = found && (replaces || !cx.unit.exists(destination_db, destination));
    if copies && let Some(copied) = cx.unit.peek(db, source).map(Copied::of) {
        copied.put(cx, destination_db, destination);
    }
    cx.reply.integer(copies.into());
    Ok(())
}

/// `MOVE key db`
pub(super) fn move_key(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let destination_db = parse_db(args.at(2))?;
    if db == destination_db {
        return Err(CommandError::SameObject);
    }
    let moved = !cx.unit.exists(destination_db, key) && move_value(cx, (db, key), (destination_db, key));
    cx.reply.integer(moved.into());
    Ok(())
}
