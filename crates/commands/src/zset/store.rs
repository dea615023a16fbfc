//! Storing the result of a command at a key, in place of any value of any type.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, ScoredItemsBuf, Value};

/// Makes members the value of a key, or removes the key if there are none, and replies with their number.
pub(crate) fn store(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    members: &ScoredItemsBuf,
    event: &'static str,
) -> Result<(), CommandError> {
    let db = cx.db();
    if members.is_empty() {
        if cx.unit.exists(db, key) {
            cx.apply(key, KeyOp::Delete);
            cx.notify(EventClass::GENERIC, "del", key);
        }
    } else {
        cx.require_room((key.len() + members.size_bytes()) as u64)?;
        cx.apply(key, KeyOp::Put { value: Value::Zset(members.as_items()), expire_at_ms: None });
        cx.notify(EventClass::ZSET, event, key);
    }
    cx.reply.count(members.len());
    Ok(())
}
