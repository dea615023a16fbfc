//! Records of the log as commands.
//!
//! An effect says what has changed, and was made only because it changes something; so the command for it
//! finds the same value on the replica, and cannot be refused. Where no command does the same, a short script
//! does (`scripts`).
//!
//! Not rendered, because the replica has no place for them: documents, settings of the data, and the times of
//! consumers (a replica has its own). Nor the audit: on a replica, whoever subscribes would read it.
//!
//! Invariants
//! - A command that a version of Redis or Valkey may not know runs in a script that goes on without it: a
//!   replica reports an unknown command of its master as a fault.
//! - A command has at most [`ITEMS_MAX`] items; more become several commands. Only an XADD has all fields of
//!   its entry, however many they are.

mod commands;
mod scripts;
#[cfg(test)]
mod tests;

use engine::audit::AUDIT_CHANNEL;
use keyspace::{
    DbId, Delivery, Effect, GlobalOp, Item, Items, KeyOp, ListEnd, Listed, StreamBlock, StreamHead, StreamId,
    Value,
};

use self::commands::Commands;

/// The maximum number of items, or of pairs, in one command: an interpreter of Lua takes about 8,000
/// arguments from a table.
const ITEMS_MAX: usize = 1024;

/// Renders records. The state is the database that the replica has selected.
#[derive(Debug, Clone, Default)]
pub struct Renderer {
    /// `None` at the begin of the stream.
    db: Option<DbId>,
    /// The commands of the present record.
    record: Commands,
    /// The stream whose entries are being added, with the head that it gets afterwards: XADD adds no entry at
    /// or below the last id of a stream's head.
    building: Option<(DbId, Vec<u8>, StreamHead)>,
}

impl Renderer {
    /// A renderer at a position at which the replica has selected `db`.
    pub fn resumed(db: Option<DbId>) -> Renderer {
        Renderer { db, ..Renderer::default() }
    }

    /// The database that the replica has selected; `None` at the begin.
    pub fn db(&self) -> Option<DbId> {
        self.db
    }

    /// Adds an item of the present record.
    pub fn item(&mut self, item: &Item<'_>) {
        match item {
            Item::Effect(effect) => self.effect(effect),
            Item::Message(message) if message.channel == AUDIT_CHANNEL => {}
            Item::Message(message) => {
                self.end_building();
                self.record.command(&[b"PUBLISH", message.channel, message.payload]);
            }
            Item::Documents(_) => {}
        }
    }

    /// Ends the present record: appends its commands to `out`, as a transaction if there are several.
    pub fn end_record(&mut self, out: &mut Vec<u8>) {
        self.end_building();
        self.record.end(out);
    }

    /// Sets the deadline of a field of a hash, apart from a record: the file that a replica loads first has
    /// no deadlines of fields.
    pub fn field_deadline(&mut self, db: DbId, key: &[u8], field: &[u8], expire_at_ms: u64) {
        let fields = [field];
        let op = KeyOp::HashSetExpiry { fields: Items::Slices(&fields), expire_at_ms: Some(expire_at_ms) };
        self.effect(&op.on(db, key));
    }

    fn effect(&mut self, effect: &Effect<'_>) {
        if !self.continues_building(effect) {
            self.end_building();
        }
        match *effect {
            Effect::Key { db, key, op } => {
                self.select(db);
                self.key_op(db, key, &op);
            }
            Effect::Move { db, key, to_db, to_key } if db == to_db => {
                self.select(db);
                self.record.command(&[b"RENAME", key, to_key]);
            }
            Effect::Move { db, key, to_db, to_key } => {
                self.select(db);
                let to_db = to_db.get().to_string();
                self.record.command(&[b"COPY", key, to_key, b"DB", to_db.as_bytes(), b"REPLACE"]);
                self.record.command(&[b"DEL", key]);
            }
            Effect::Library { content: Some(content), .. } => {
                self.record.command(&[b"FUNCTION", b"LOAD", b"REPLACE", content.code]);
            }
            Effect::Library { name, content: None } => {
                self.record.command(&[b"FUNCTION", b"DELETE", name]);
            }
            Effect::Setting { .. } => {}
            Effect::Global(GlobalOp::FlushDb { db }) => {
                self.select(db);
                self.record.command(&[b"FLUSHDB"]);
            }
            Effect::Global(GlobalOp::FlushAll) => {
                self.record.command(&[b"FLUSHALL"]);
                self.record.command(&[b"FUNCTION", b"FLUSH"]);
            }
            Effect::Global(GlobalOp::SwapDb { a, b }) => {
                let (a, b) = (a.get().to_string(), b.get().to_string());
                self.record.command(&[b"SWAPDB", a.as_bytes(), b.as_bytes()]);
            }
        }
    }

    fn select(&mut self, db: DbId) {
        if self.db != Some(db) {
            self.db = Some(db);
            self.record.select(db);
        }
    }

    fn key_op(&mut self, db: DbId, key: &[u8], op: &KeyOp<'_>) {
        let out = &mut self.record;
        match *op {
            KeyOp::Put { value, expire_at_ms } => self.put(db, key, value, expire_at_ms),
            KeyOp::Delete => out.command(&[b"DEL", key]),
            KeyOp::SetExpiry { expire_at_ms: None } => out.command(&[b"PERSIST", key]),
            KeyOp::SetExpiry { expire_at_ms: Some(at_ms) } => out.expire(key, at_ms),
            KeyOp::Append { suffix } => out.command(&[b"APPEND", key, suffix]),
            KeyOp::SetRange { offset, bytes } => {
                out.command(&[b"SETRANGE", key, offset.to_string().as_bytes(), bytes]);
            }
            KeyOp::ListPush { end: ListEnd::Head, items } => out.items(&[b"LPUSH", key], items, 1),
            KeyOp::ListPush { end: ListEnd::Tail, items } => out.items(&[b"RPUSH", key], items, 1),
            KeyOp::ListPop { end, count } => {
                let name: &[u8] = if end == ListEnd::Head { b"LPOP" } else { b"RPOP" };
                out.command(&[name, key, signed(count).as_bytes()]);
            }
            KeyOp::ListSet { index, item } => {
                out.command(&[b"LSET", key, index.to_string().as_bytes(), item])
            }
            KeyOp::ListInsert { index: 0, item } => out.command(&[b"LPUSHX", key, item]),
            KeyOp::ListInsert { index, item } => {
                out.script(scripts::LIST_INSERT, key, &[index.to_string().as_bytes(), item]);
            }
            KeyOp::ListRemove { end, count, item } => {
                let sign = if end == ListEnd::Head { "" } else { "-" };
                let count = format!("{sign}{}", signed(count));
                out.command(&[b"LREM", key, count.as_bytes(), item]);
            }
            KeyOp::SetAdd { members } => out.items(&[b"SADD", key], members, 1),
            KeyOp::SetRemove { members } => out.items(&[b"SREM", key], members, 1),
            KeyOp::ZsetPut { members } => out.scored(key, members),
            KeyOp::ZsetRemove { members } => out.items(&[b"ZREM", key], members, 1),
            KeyOp::ZsetRemoveRanks { first, count } => {
                let last = first.saturating_add(count).saturating_sub(1);
                out.command(&[b"ZREMRANGEBYRANK", key, signed(first).as_bytes(), signed(last).as_bytes()]);
            }
            KeyOp::HashPut { pairs } => out.items(&[b"HSET", key], pairs, 2),
            KeyOp::HashUpdate { pairs } => out.script_on_items(scripts::HASH_UPDATE, key, &[], pairs, 2),
            KeyOp::HashRemove { fields } => out.items(&[b"HDEL", key], fields, 1),
            KeyOp::HashSetExpiry { fields, expire_at_ms: Some(at_ms) } => {
                let at_ms = signed(at_ms);
                out.script_on_items(scripts::FIELD_EXPIRE, key, &[at_ms.as_bytes()], fields, 1);
            }
            KeyOp::HashSetExpiry { fields, expire_at_ms: None } => {
                out.script_on_items(scripts::FIELD_PERSIST, key, &[], fields, 1);
            }
            _ => self.stream_op(key, op),
        }
    }

    fn put(&mut self, db: DbId, key: &[u8], value: Value<'_>, expire_at_ms: Option<u64>) {
        let out = &mut self.record;
        if let Value::String(bytes) = value {
            return match expire_at_ms {
                None => out.command(&[b"SET", key, bytes]),
                Some(at_ms) => out.command(&[b"SET", key, bytes, b"PXAT", deadline(at_ms).as_bytes()]),
            };
        }
        out.command(&[b"DEL", key]);
        match value {
            Value::String(_) => {}
            Value::List(items) => out.items(&[b"RPUSH", key], items, 1),
            Value::Set(members) => out.items(&[b"SADD", key], members, 1),
            Value::Zset(members) => out.scored(key, members),
            Value::Hash(pairs) => out.items(&[b"HSET", key], pairs, 2),
            Value::Stream(head) => {
                // Only a group makes a stream without entries.
                out.command(&[b"XGROUP", b"CREATE", key, b"sheaf", b"0", b"MKSTREAM"]);
                out.command(&[b"XGROUP", b"DESTROY", key, b"sheaf"]);
                // Set before the groups: a group may not have read more entries than were added.
                let added = signed(head.entries_added);
                out.command(&[b"XSETID", key, b"0-0", b"ENTRIESADDED", added.as_bytes()]);
                self.building = Some((db, key.to_vec(), head));
            }
        }
        if let Some(at_ms) = expire_at_ms {
            self.record.expire(key, at_ms);
        }
    }

    fn stream_op(&mut self, key: &[u8], op: &KeyOp<'_>) {
        let out = &mut self.record;
        match *op {
            KeyOp::StreamAdd { id, pairs } => {
                out.begin(3 + pairs.len());
                [b"XADD", key, shown(id).as_bytes()].into_iter().for_each(|word| out.word(word));
                pairs.iter().for_each(|word| out.word(word));
            }
            KeyOp::StreamAddBlock { block } => add_block(out, key, &block),
            KeyOp::StreamTrim { through } => match through.next() {
                Some(next) => out.command(&[b"XTRIM", key, b"MINID", shown(next).as_bytes()]),
                None => out.command(&[b"XTRIM", key, b"MAXLEN", b"0"]),
            },
            KeyOp::StreamDelete { ids } => out.ids(&[b"XDEL", key], ids),
            KeyOp::StreamSetHead { head } => set_head(out, key, &head),
            KeyOp::StreamPutGroup { group, position } => {
                let read = position.entries_read.map_or("-1".into(), signed);
                let words = [group, shown(position.last_id).as_bytes(), read.as_bytes()].map(<[u8]>::to_vec);
                out.script(scripts::PUT_GROUP, key, &[&words[0], &words[1], &words[2]]);
            }
            KeyOp::StreamDropGroup { group } => out.command(&[b"XGROUP", b"DESTROY", key, group]),
            KeyOp::StreamPutConsumer { group, consumer, .. } => {
                out.command(&[b"XGROUP", b"CREATECONSUMER", key, group, consumer]);
            }
            KeyOp::StreamDropConsumer { group, consumer } => {
                out.command(&[b"XGROUP", b"DELCONSUMER", key, group, consumer]);
            }
            KeyOp::StreamPend { group, consumer, deliveries } => {
                let deliveries: Vec<Delivery> = deliveries.iter().collect();
                // Usually one chunk: entries are delivered together.
                let alike = deliveries.chunk_by(|a, b| (a.time_ms, a.count) == (b.time_ms, b.count));
                alike.for_each(|alike| claim(out, &[key, group, consumer], alike));
            }
            KeyOp::StreamUnpend { group, ids } => out.ids(&[b"XACK", key, group], ids),
            _ => unreachable!("the operations on other types have been rendered"),
        }
    }

    /// Whether an effect adds to the stream that is being built.
    fn continues_building(&self, effect: &Effect<'_>) -> bool {
        let Some((building_db, building_key, head)) = &self.building else { return false };
        let Effect::Key { db, key, op } = *effect else { return false };
        let adds = match op {
            KeyOp::StreamAddBlock { .. }
            | KeyOp::StreamPutGroup { .. }
            | KeyOp::StreamPutConsumer { .. }
            | KeyOp::StreamPend { .. } => true,
            // An entry above the last id of the head was added after the stream was put.
            KeyOp::StreamAdd { id, .. } => id <= head.last_id,
            _ => false,
        };
        adds && db == *building_db && key == building_key.as_slice()
    }

    /// Gives the stream that was built its head.
    fn end_building(&mut self) {
        if let Some((db, key, head)) = self.building.take() {
            self.select(db);
            set_head(&mut self.record, &key, &head);
        }
    }
}

fn add_block(out: &mut Commands, key: &[u8], block: &StreamBlock<'_>) {
    for entry in block.entries() {
        let fields = entry.fields();
        out.begin(3 + 2 * fields.len());
        [b"XADD", key, shown(entry.id).as_bytes()].into_iter().for_each(|word| out.word(word));
        for (name, value) in fields {
            out.word(name);
            out.word(&value);
        }
    }
}

/// Makes entries pending that were delivered at the same time, and equally often.
fn claim(out: &mut Commands, names: &[&[u8]; 3], deliveries: &[Delivery]) {
    for deliveries in deliveries.chunks(ITEMS_MAX) {
        let (time, count) = (signed(deliveries[0].time_ms), deliveries[0].count.to_string());
        let options: [&[u8]; 6] =
            [b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes(), b"FORCE", b"JUSTID"];
        out.begin(2 + names.len() + deliveries.len() + options.len());
        out.word(b"XCLAIM");
        names.iter().for_each(|name| out.word(name));
        out.word(b"0");
        deliveries.iter().for_each(|delivery| out.word(shown(delivery.id).as_bytes()));
        options.iter().for_each(|word| out.word(word));
    }
}

fn set_head(out: &mut Commands, key: &[u8], head: &StreamHead) {
    let (last, added) = (shown(head.last_id), signed(head.entries_added));
    let deleted = shown(head.max_deleted_id);
    let counters: &[&[u8]] = &[b"ENTRIESADDED", added.as_bytes(), b"MAXDELETEDID", deleted.as_bytes()];
    out.command(&[&[b"XSETID", key, last.as_bytes()], counters].concat());
}

fn shown(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

/// A number for Redis, which takes none above the largest signed one: greater numbers become that one.
fn signed(number: u64) -> String {
    number.min(i64::MAX as u64).to_string()
}

/// A deadline of at least 1: SET refuses 0.
fn deadline(at_ms: u64) -> String {
    signed(at_ms.max(1))
}

impl Commands {
    fn expire(&mut self, key: &[u8], at_ms: u64) {
        self.command(&[b"PEXPIREAT", key, deadline(at_ms).as_bytes()]);
    }

    fn ids(&mut self, words: &[&[u8]], ids: Listed<'_, StreamId>) {
        let ids: Vec<String> = ids.iter().map(shown).collect();
        for ids in ids.chunks(ITEMS_MAX) {
            self.begin(words.len() + ids.len());
            words.iter().for_each(|word| self.word(word));
            ids.iter().for_each(|id| self.word(id.as_bytes()));
        }
    }
}
