//! Changes of keys and documents as a person reads them: shortened, and with escapes.

use documents::change::Operation;
use engine::users::{OF_HTTP, OF_USERS};
use keyspace::{Effect, GlobalOp, Items, KeyOp, ListEnd, Listed, ScoredItems, StreamHead, StreamId, Value};

pub(super) fn shown_operation(operation: &Operation) -> String {
    let shown = |id: &str| quoted(id.as_bytes());
    match operation {
        Operation::Edit(edit) if edit.deleted => format!("delete {}", shown(&edit.id)),
        Operation::Edit(edit) => format!("put {}", shown(&edit.id)),
        Operation::PutLocal { id, .. } => format!("put {}", shown(&format!("_local/{id}"))),
        Operation::RemoveLocal { id } => format!("remove {}", shown(&format!("_local/{id}"))),
        Operation::Purge { id, .. } => format!("purge {}", shown(id)),
        Operation::SetSecurity(_) => "set the security object".into(),
        Operation::SetRevsLimit(limit) => format!("set the limit of revisions to {limit}"),
        Operation::Chunk { bytes, .. } => format!("{} bytes of an attachment", bytes.len()),
        Operation::Discard { .. } => "discard unfinished attachments".into(),
    }
}

/// An effect in readable form.
pub(super) struct Readable<'a>(pub(super) &'a Effect<'a>);

impl std::fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self.0 {
            Effect::Key { db, key, ref op } => {
                write!(f, "db{db} ")?;
                write_op(f, &quoted(key), op)
            }
            Effect::Move { db, key, to_db, to_key } => {
                write!(f, "db{db} move {} to db{to_db} {}", quoted(key), quoted(to_key))
            }
            Effect::Library { name, content: Some(content) } => {
                write!(f, "library {} = {}", quoted(name), quoted(content.code))
            }
            Effect::Library { name, content: None } => write!(f, "drop library {}", quoted(name)),
            Effect::Setting { name, value: Some(_) } if is_secret(name) => {
                write!(f, "setting {} = (not shown)", quoted(name))
            }
            Effect::Setting { name, value: Some(value) } => {
                write!(f, "setting {} = {}", quoted(name), quoted(value))
            }
            Effect::Setting { name, value: None } => write!(f, "drop setting {}", quoted(name)),
            Effect::Global(GlobalOp::FlushAll) => f.write_str("flush all"),
            Effect::Global(GlobalOp::FlushDb { db }) => write!(f, "db{db} flush"),
            Effect::Global(GlobalOp::SwapDb { a, b }) => write!(f, "swap db{a} db{b}"),
        }
    }
}

/// Whether the value of a setting is not shown: the hashes of passwords of a user, or the key of sessions.
fn is_secret(setting: &[u8]) -> bool {
    [OF_USERS, OF_HTTP].iter().any(|prefix| setting.starts_with(prefix.as_bytes()))
}

fn write_op(f: &mut std::fmt::Formatter<'_>, key: &str, op: &KeyOp<'_>) -> std::fmt::Result {
    let until = |deadline: &Option<u64>| deadline.map_or(String::new(), |ms| format!(" expires {ms}"));
    match op {
        KeyOp::Put { value: Value::String(value), expire_at_ms, .. } => {
            write!(f, "put {key} = {}{}", quoted(value), until(expire_at_ms))
        }
        KeyOp::Put { value, expire_at_ms } => {
            let type_name = value.value_type().name();
            write!(f, "put {key} = {type_name} {}{}", shown_value(value), until(expire_at_ms))
        }
        KeyOp::Delete => write!(f, "delete {key}"),
        KeyOp::SetExpiry { expire_at_ms: None } => write!(f, "persist {key}"),
        KeyOp::SetExpiry { expire_at_ms } => write!(f, "expiry of {key}:{}", until(expire_at_ms)),
        KeyOp::Append { suffix } => write!(f, "append to {key}: {}", quoted(suffix)),
        KeyOp::SetRange { offset, bytes } => {
            write!(f, "overwrite {key} at {offset}: {}", quoted(bytes))
        }
        KeyOp::ListPush { end, items } => {
            write!(f, "push at {} of {key}: {}", end_name(*end), shown(*items))
        }
        KeyOp::ListPop { end, count } => write!(f, "pop {count} at {} of {key}", end_name(*end)),
        KeyOp::ListSet { index, item } => write!(f, "set {key}[{index}] = {}", quoted(item)),
        KeyOp::ListInsert { index, item } => write!(f, "insert {key}[{index}] = {}", quoted(item)),
        KeyOp::ListRemove { end, count, item } => {
            write!(f, "remove {count} (0: all) from {} of {key}: {}", end_name(*end), quoted(item))
        }
        KeyOp::SetAdd { members } => write!(f, "add to {key}: {}", shown(*members)),
        KeyOp::SetRemove { members }
        | KeyOp::ZsetRemove { members }
        | KeyOp::HashRemove { fields: members } => {
            write!(f, "remove from {key}: {}", shown(*members))
        }
        KeyOp::ZsetPut { members } => write!(f, "add to {key}: {}", shown_scored(*members)),
        KeyOp::ZsetRemoveRanks { first, count } => {
            write!(f, "remove from {key} {count} by rank from {first}")
        }
        KeyOp::HashPut { pairs } => write!(f, "set in {key}: {}", shown(*pairs)),
        KeyOp::HashUpdate { pairs } => write!(f, "set in {key}, keeping expiry: {}", shown(*pairs)),
        KeyOp::HashSetExpiry { fields, expire_at_ms: None } => {
            write!(f, "persist in {key}: {}", shown(*fields))
        }
        KeyOp::HashSetExpiry { fields, expire_at_ms } => {
            write!(f, "expiry in {key}: {}{}", shown(*fields), until(expire_at_ms))
        }
        KeyOp::StreamAdd { id, pairs } => write!(f, "add to {key}: {id} {}", shown(*pairs)),
        KeyOp::StreamAddBlock { block } => {
            let entries = block.entries().map(|entry| entry.id.to_string());
            write!(f, "add to {key}: {}", joined(block.entries().count(), entries))
        }
        KeyOp::StreamTrim { through } => write!(f, "trim {key} through {through}"),
        KeyOp::StreamDelete { ids } => write!(f, "delete from {key}: {}", shown_ids(*ids)),
        KeyOp::StreamSetHead { head } => write!(f, "head of {key}: {}", shown_head(head)),
        KeyOp::StreamPutGroup { group, position } => {
            let read = position.entries_read.map_or(String::new(), |read| format!(", {read} read"));
            write!(f, "group {} of {key} at {}{read}", quoted(group), position.last_id)
        }
        KeyOp::StreamDropGroup { group } => write!(f, "drop group {} of {key}", quoted(group)),
        KeyOp::StreamPutConsumer { group, consumer, times } => {
            let active = times.active_ms.map_or(String::new(), |ms| format!(", active {ms}"));
            let (consumer, group) = (quoted(consumer), quoted(group));
            write!(f, "consumer {consumer} in {group} of {key}: seen {}{active}", times.seen_ms)
        }
        KeyOp::StreamDropConsumer { group, consumer } => {
            write!(f, "drop consumer {} in {} of {key}", quoted(consumer), quoted(group))
        }
        KeyOp::StreamPend { group, consumer, deliveries } => {
            let ids = joined(deliveries.len(), deliveries.iter().map(|delivery| delivery.id.to_string()));
            write!(f, "pending for {} in {} of {key}: {ids}", quoted(consumer), quoted(group))
        }
        KeyOp::StreamUnpend { group, ids } => {
            write!(f, "pending no more in {} of {key}: {}", quoted(group), shown_ids(*ids))
        }
    }
}

/// Maximum number of items printed per effect.
const SHOWN_ITEMS_MAX: usize = 16;

fn end_name(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Head => "the head",
        ListEnd::Tail => "the tail",
    }
}

fn shown_value(value: &Value<'_>) -> String {
    match value {
        Value::String(bytes) => quoted(bytes),
        Value::List(items) | Value::Set(items) | Value::Hash(items) => shown(*items),
        Value::Zset(members) => shown_scored(*members),
        Value::Stream(head) => shown_head(head),
    }
}

fn shown_head(head: &StreamHead) -> String {
    let StreamHead { last_id, max_deleted_id, entries_added } = head;
    format!("last {last_id}, deleted up to {max_deleted_id}, {entries_added} added")
}

fn shown_ids(ids: Listed<'_, StreamId>) -> String {
    joined(ids.len(), ids.iter().map(|id| id.to_string()))
}

fn shown(items: Items<'_>) -> String {
    joined(items.len(), items.iter().map(quoted))
}

fn shown_scored(members: ScoredItems<'_>) -> String {
    joined(members.len(), members.iter().map(|(score, member)| format!("{score} {}", quoted(member))))
}

pub(super) fn joined(len: usize, items: impl Iterator<Item = String>) -> String {
    let mut text = items.take(SHOWN_ITEMS_MAX).collect::<Vec<_>>().join(", ");
    if len > SHOWN_ITEMS_MAX {
        text.push_str(&format!(" and {} more", len - SHOWN_ITEMS_MAX));
    }
    text
}

/// Maximum bytes printed of one byte string: of a key, of a name, of each item of a value.
const SHOWN_BYTES_MAX: usize = 128;

pub(super) fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let rest = bytes.len() - shown.len();
    let more = if rest > 0 { format!("... and {rest} bytes") } else { String::new() };
    format!("\"{}\"{more}", shown.escape_ascii())
}
