//! Records of the log as commands.
//!
//! An effect says which change was made; the replica executes the command for this effect on the same value.
//! Where no command makes the same change, a short script does (`scripts`).
//!
//! Documents and settings of the data are not rendered, because the replica has no place for them. Times of
//! consumers are rendered only in a stream that is made as a whole: a replica keeps its own times. The audit
//! is not rendered, because every subscriber of a replica could read it.
//!
//! Invariants
//! - A command that Redis 7.0 does not know (HSETEX, HPEXPIREAT) runs in a script, which continues if the
//!   server does not know the command: a replica reports an unknown command of its master as a fault.
//! - A command has at most [`ITEMS_MAX`] items; more become several commands. Only an XADD has all fields of
//!   its entry, however many they are.

mod building;
mod commands;
mod scripts;
mod stream;
#[cfg(test)]
mod tests;

use engine::audit::AUDIT_CHANNEL;
use keyspace::{DbId, Effect, GlobalOp, Item, Items, KeyOp, ListEnd, Value};

use self::building::{Building, Workbench};
use self::commands::Commands;
use self::stream::Deleting;

/// The maximum number of items, or of pairs, in one command: an interpreter of Lua takes about 8,000
/// arguments from a table.
const ITEMS_MAX: usize = 1024;

/// Renders records. The state is the database that the replica has selected.
#[derive(Debug, Default)]
pub struct Renderer {
    /// `None` at the beginning of the stream.
    db: Option<DbId>,
    /// The commands of the present record.
    record: Commands,
    /// The stream that the record makes as a whole, on `bench`.
    building: Option<Building>,
    bench: Workbench,
    /// Entries that are removed from a stream. The next effect shows whether their removal leaves a trace.
    deleting: Option<Deleting>,
}

impl Renderer {
    /// A renderer at a position at which the replica has selected `db`.
    pub fn resumed(db: Option<DbId>) -> Renderer {
        Renderer { db, ..Renderer::default() }
    }

    /// The database that the replica has selected; `None` at the beginning of the stream.
    pub fn db(&self) -> Option<DbId> {
        self.db
    }

    /// Adds an item of the present record.
    pub fn item(&mut self, item: &Item<'_>) {
        match item {
            Item::Effect(effect) => self.effect(effect),
            Item::Message(message) if message.channel == AUDIT_CHANNEL => {}
            Item::Message(message) => {
                self.settle();
                self.record.command(&[b"PUBLISH", message.channel, message.payload]);
            }
            Item::Documents(_) => {}
        }
    }

    /// Ends the present record: appends its commands to `out`, as a transaction if there are several.
    pub fn end_record(&mut self, out: &mut Vec<u8>) {
        self.settle();
        self.record.end(out);
    }

    /// Sets the deadline of a field of a hash, outside of any record: the file that a replica loads first has
    /// no deadlines of fields.
    pub fn field_deadline(&mut self, db: DbId, key: &[u8], field: &[u8], expire_at_ms: u64) {
        let fields = [field];
        let op = KeyOp::HashSetExpiry { fields: Items::Slices(&fields), expire_at_ms: Some(expire_at_ms) };
        self.effect(&op.on(db, key));
    }

    fn effect(&mut self, effect: &Effect<'_>) {
        if self.building.as_ref().is_some_and(|building| building.takes(&mut self.bench, effect)) {
            return;
        }
        if let Some(deleting) = self.deleting.take_if(|deleting| deleting.leaves_no_trace(effect)) {
            self.select(deleting.db);
            return deleting.render_without_trace(effect, &mut self.record);
        }
        self.settle();
        match *effect {
            Effect::Key { db, key, op: KeyOp::StreamDelete { ids } } => {
                self.deleting = Some(Deleting::new(db, key, ids));
            }
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
            _ => stream::render(out, key, op),
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
        if let Value::Stream(head) = value {
            self.building = Some(Building::begin(&mut self.bench, (db, key), head, expire_at_ms));
            return;
        }
        out.command(&[b"DEL", key]);
        match value {
            Value::String(_) | Value::Stream(_) => {}
            Value::List(items) => out.items(&[b"RPUSH", key], items, 1),
            Value::Set(members) => out.items(&[b"SADD", key], members, 1),
            Value::Zset(members) => out.scored(key, members),
            Value::Hash(pairs) => out.items(&[b"HSET", key], pairs, 2),
        }
        if let Some(at_ms) = expire_at_ms {
            self.record.expire(key, at_ms);
        }
    }

    /// Renders the stream, or the removal of entries, that waits for further effects.
    fn settle(&mut self) {
        if let Some(building) = self.building.take() {
            self.select(building.db);
            building.finish(&mut self.bench, &mut self.record);
        }
        if let Some(deleting) = self.deleting.take() {
            self.select(deleting.db);
            deleting.render(&mut self.record);
        }
    }
}

/// A number for Redis, which takes none above `i64::MAX`: greater numbers become `i64::MAX`.
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
}
