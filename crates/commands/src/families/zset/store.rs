//! Storing a sorted set as the result of a command.

use keyspace::{Effect, ScoredItemsBuf, Value};

use crate::{CommandError, Context, EventClass};

/// Stores the members at a key, replacing a value of any type, or deletes the key if there are none; replies
/// with their number.
pub(in crate::families) fn store(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    members: &ScoredItemsBuf,
    event: &'static str,
) -> Result<(), CommandError> {
    let db = cx.db();
    if members.is_empty() {
        if cx.unit.exists(db, key) {
            cx.apply(&Effect::Delete { db, key });
            cx.notify(EventClass::GENERIC, "del", key);
        }
    } else {
        cx.require_room((key.len() + members.size_bytes()) as u64)?;
        cx.apply(&Effect::Put { db, key, value: Value::Zset(members.as_items()), expire_at_ms: None });
        cx.notify(EventClass::ZSET, event, key);
    }
    cx.reply.count(members.len());
    Ok(())
}
