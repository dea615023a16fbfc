//! Bytes of effects. The byte map is documented at the parent module and pinned by a golden test.

use super::listed::Coded;
use super::{Effect, EffectError, Item, Items, ListEnd, Listed, LoggedMessage, ScoredItems};
use crate::collection::{ConsumerTimes, GroupPosition, StreamBlock, StreamHead, StreamId};
use crate::id::DbId;
use crate::value::Value;

const DELETE: u8 = 0x01;
const PERSIST: u8 = 0x02;
const SET_EXPIRY: u8 = 0x03;
const MOVE: u8 = 0x04;
const PUT_STRING: u8 = 0x10;
const PUT_STRING_EXPIRING: u8 = 0x11;
const APPEND: u8 = 0x12;
const SET_RANGE: u8 = 0x13;
const PUT_LIST: u8 = 0x14;
const PUT_LIST_EXPIRING: u8 = 0x15;
const PUT_SET: u8 = 0x16;
const PUT_SET_EXPIRING: u8 = 0x17;
const PUT_ZSET: u8 = 0x18;
const PUT_ZSET_EXPIRING: u8 = 0x19;
const PUT_HASH: u8 = 0x1a;
const PUT_HASH_EXPIRING: u8 = 0x1b;
const PUT_STREAM: u8 = 0x1c;
const PUT_STREAM_EXPIRING: u8 = 0x1d;
const LIST_PUSH_HEAD: u8 = 0x20;
const LIST_PUSH_TAIL: u8 = 0x21;
const LIST_POP_HEAD: u8 = 0x22;
const LIST_POP_TAIL: u8 = 0x23;
const LIST_SET: u8 = 0x24;
const LIST_INSERT: u8 = 0x25;
const LIST_REMOVE_HEAD: u8 = 0x26;
const LIST_REMOVE_TAIL: u8 = 0x27;
const SET_ADD: u8 = 0x30;
const SET_REMOVE: u8 = 0x31;
const ZSET_PUT: u8 = 0x40;
const ZSET_REMOVE: u8 = 0x41;
const ZSET_REMOVE_RANKS: u8 = 0x42;
const HASH_PUT: u8 = 0x50;
const HASH_UPDATE: u8 = 0x51;
const HASH_REMOVE: u8 = 0x52;
const HASH_PERSIST: u8 = 0x53;
const HASH_SET_EXPIRY: u8 = 0x54;
const STREAM_ADD: u8 = 0x60;
const STREAM_ADD_BLOCK: u8 = 0x61;
const STREAM_TRIM: u8 = 0x62;
const STREAM_DELETE: u8 = 0x63;
const STREAM_SET_HEAD: u8 = 0x64;
const STREAM_PUT_GROUP: u8 = 0x65;
const STREAM_DROP_GROUP: u8 = 0x66;
const STREAM_PUT_CONSUMER: u8 = 0x67;
const STREAM_DROP_CONSUMER: u8 = 0x68;
const STREAM_PEND: u8 = 0x69;
const STREAM_UNPEND: u8 = 0x6a;
pub(super) const MESSAGE: u8 = 0x70;
pub(super) const DOCUMENTS: u8 = 0x71;
const PUT_LIBRARY: u8 = 0x78;
const DROP_LIBRARY: u8 = 0x79;
const PUT_SETTING: u8 = 0x7a;
const DROP_SETTING: u8 = 0x7b;
const FLUSH_DB: u8 = 0xf0;
const FLUSH_ALL: u8 = 0xf1;
const SWAP_DB: u8 = 0xf2;

impl<'a> Effect<'a> {
    /// The first byte of the encoding.
    fn opcode(&self) -> u8 {
        let at = |end: ListEnd, head, tail| if end == ListEnd::Head { head } else { tail };
        let expiring =
            |deadline: Option<u64>, never, expiring| if deadline.is_some() { expiring } else { never };
        match *self {
            Effect::Put { value, expire_at_ms, .. } => match value {
                Value::String(_) => expiring(expire_at_ms, PUT_STRING, PUT_STRING_EXPIRING),
                Value::List(_) => expiring(expire_at_ms, PUT_LIST, PUT_LIST_EXPIRING),
                Value::Set(_) => expiring(expire_at_ms, PUT_SET, PUT_SET_EXPIRING),
                Value::Zset(_) => expiring(expire_at_ms, PUT_ZSET, PUT_ZSET_EXPIRING),
                Value::Hash(_) => expiring(expire_at_ms, PUT_HASH, PUT_HASH_EXPIRING),
                Value::Stream(_) => expiring(expire_at_ms, PUT_STREAM, PUT_STREAM_EXPIRING),
            },
            Effect::Delete { .. } => DELETE,
            Effect::SetExpiry { expire_at_ms, .. } => expiring(expire_at_ms, PERSIST, SET_EXPIRY),
            Effect::Move { .. } => MOVE,
            Effect::Append { .. } => APPEND,
            Effect::SetRange { .. } => SET_RANGE,
            Effect::ListPush { end, .. } => at(end, LIST_PUSH_HEAD, LIST_PUSH_TAIL),
            Effect::ListPop { end, .. } => at(end, LIST_POP_HEAD, LIST_POP_TAIL),
            Effect::ListSet { .. } => LIST_SET,
            Effect::ListInsert { .. } => LIST_INSERT,
            Effect::ListRemove { end, .. } => at(end, LIST_REMOVE_HEAD, LIST_REMOVE_TAIL),
            Effect::SetAdd { .. } => SET_ADD,
            Effect::SetRemove { .. } => SET_REMOVE,
            Effect::ZsetPut { .. } => ZSET_PUT,
            Effect::ZsetRemove { .. } => ZSET_REMOVE,
            Effect::ZsetRemoveRanks { .. } => ZSET_REMOVE_RANKS,
            Effect::HashPut { .. } => HASH_PUT,
            Effect::HashUpdate { .. } => HASH_UPDATE,
            Effect::HashRemove { .. } => HASH_REMOVE,
            Effect::HashSetExpiry { expire_at_ms, .. } => {
                expiring(expire_at_ms, HASH_PERSIST, HASH_SET_EXPIRY)
            }
            Effect::StreamAdd { .. } => STREAM_ADD,
            Effect::StreamAddBlock { .. } => STREAM_ADD_BLOCK,
            Effect::StreamTrim { .. } => STREAM_TRIM,
            Effect::StreamDelete { .. } => STREAM_DELETE,
            Effect::StreamSetHead { .. } => STREAM_SET_HEAD,
            Effect::StreamPutGroup { .. } => STREAM_PUT_GROUP,
            Effect::StreamDropGroup { .. } => STREAM_DROP_GROUP,
            Effect::StreamPutConsumer { .. } => STREAM_PUT_CONSUMER,
            Effect::StreamDropConsumer { .. } => STREAM_DROP_CONSUMER,
            Effect::StreamPend { .. } => STREAM_PEND,
            Effect::StreamUnpend { .. } => STREAM_UNPEND,
            Effect::PutLibrary { .. } => PUT_LIBRARY,
            Effect::DropLibrary { .. } => DROP_LIBRARY,
            Effect::PutSetting { .. } => PUT_SETTING,
            Effect::DropSetting { .. } => DROP_SETTING,
            Effect::FlushDb { .. } => FLUSH_DB,
            Effect::FlushAll => FLUSH_ALL,
            Effect::SwapDb { .. } => SWAP_DB,
        }
    }

    /// Exactly how many bytes `encode_into` adds.
    pub fn encoded_len(&self) -> usize {
        let deadline_len = |deadline: Option<u64>| deadline.map_or(0, number_len);
        let fields = match *self {
            Effect::Put { value, expire_at_ms, .. } => value.encoded_len() + deadline_len(expire_at_ms),
            Effect::Delete { .. } => 0,
            Effect::SetExpiry { expire_at_ms, .. } => deadline_len(expire_at_ms),
            Effect::Append { suffix, .. } => bytes_len(suffix),
            Effect::SetRange { offset, bytes, .. } => number_len(offset) + bytes_len(bytes),
            Effect::ListPop { count, .. } => number_len(count),
            Effect::ListSet { index, item, .. } | Effect::ListInsert { index, item, .. } => {
                number_len(index) + bytes_len(item)
            }
            Effect::ListRemove { count, item, .. } => number_len(count) + bytes_len(item),
            Effect::ListPush { items, .. }
            | Effect::SetAdd { members: items, .. }
            | Effect::SetRemove { members: items, .. }
            | Effect::ZsetRemove { members: items, .. }
            | Effect::HashPut { pairs: items, .. }
            | Effect::HashUpdate { pairs: items, .. }
            | Effect::HashRemove { fields: items, .. } => items.encoded_len(),
            Effect::ZsetPut { members, .. } => members.encoded_len(),
            Effect::ZsetRemoveRanks { first, count, .. } => number_len(first) + number_len(count),
            Effect::HashSetExpiry { fields, expire_at_ms, .. } => {
                fields.encoded_len() + deadline_len(expire_at_ms)
            }
            Effect::StreamAdd { id, pairs, .. } => id.encoded_len() + pairs.encoded_len(),
            Effect::StreamAddBlock { block, .. } => bytes_len(block.bytes()),
            Effect::StreamTrim { through, .. } => through.encoded_len(),
            Effect::StreamDelete { ids, .. } => ids.encoded_len(),
            Effect::StreamSetHead { head, .. } => head.encoded_len(),
            Effect::StreamPutGroup { group, position, .. } => bytes_len(group) + position.encoded_len(),
            Effect::StreamDropGroup { group, .. } => bytes_len(group),
            Effect::StreamPutConsumer { group, consumer, times, .. } => {
                bytes_len(group) + bytes_len(consumer) + times.encoded_len()
            }
            Effect::StreamDropConsumer { group, consumer, .. } => bytes_len(group) + bytes_len(consumer),
            Effect::StreamPend { group, consumer, deliveries, .. } => {
                bytes_len(group) + bytes_len(consumer) + deliveries.encoded_len()
            }
            Effect::StreamUnpend { group, ids, .. } => bytes_len(group) + ids.encoded_len(),
            Effect::Move { key, to_key, .. } => return 3 + bytes_len(key) + bytes_len(to_key),
            Effect::PutLibrary { name, code, functions } => {
                return 1 + bytes_len(name) + bytes_len(code) + functions.encoded_len();
            }
            Effect::PutSetting { name, value } => return 1 + bytes_len(name) + bytes_len(value),
            Effect::DropLibrary { name } | Effect::DropSetting { name } => return 1 + bytes_len(name),
            Effect::FlushDb { .. } => return 2,
            Effect::FlushAll => return 1,
            Effect::SwapDb { .. } => return 3,
        };
        2 + self.key().map_or(0, bytes_len) + fields
    }

    /// Adds the encoding to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(self.opcode());
        if let Some((db, key)) = self.target() {
            out.push(db.get());
            put_bytes(out, key);
        }
        match *self {
            Effect::Put { value, expire_at_ms, .. } => {
                value.encode_into(out);
                put_deadline(out, expire_at_ms);
            }
            Effect::Delete { .. } | Effect::FlushAll => {}
            Effect::SetExpiry { expire_at_ms, .. } => put_deadline(out, expire_at_ms),
            Effect::Move { db, key, to_db, to_key } => {
                for (db, key) in [(db, key), (to_db, to_key)] {
                    out.push(db.get());
                    put_bytes(out, key);
                }
            }
            Effect::Append { suffix, .. } => put_bytes(out, suffix),
            Effect::SetRange { offset, bytes, .. } => {
                put_number(out, offset);
                put_bytes(out, bytes);
            }
            Effect::ListPop { count, .. } => put_number(out, count),
            Effect::ListSet { index, item, .. } | Effect::ListInsert { index, item, .. } => {
                put_number(out, index);
                put_bytes(out, item);
            }
            Effect::ListRemove { count, item, .. } => {
                put_number(out, count);
                put_bytes(out, item);
            }
            Effect::ListPush { items, .. }
            | Effect::SetAdd { members: items, .. }
            | Effect::SetRemove { members: items, .. }
            | Effect::ZsetRemove { members: items, .. }
            | Effect::HashPut { pairs: items, .. }
            | Effect::HashUpdate { pairs: items, .. }
            | Effect::HashRemove { fields: items, .. } => items.encode_into(out),
            Effect::ZsetPut { members, .. } => members.encode_into(out),
            Effect::ZsetRemoveRanks { first, count, .. } => {
                put_number(out, first);
                put_number(out, count);
            }
            Effect::HashSetExpiry { fields, expire_at_ms, .. } => {
                fields.encode_into(out);
                put_deadline(out, expire_at_ms);
            }
            Effect::StreamAdd { id, pairs, .. } => {
                id.put(out);
                pairs.encode_into(out);
            }
            Effect::StreamAddBlock { block, .. } => put_bytes(out, block.bytes()),
            Effect::StreamTrim { through, .. } => through.put(out),
            Effect::StreamDelete { ids, .. } => ids.encode_into(out),
            Effect::StreamSetHead { head, .. } => head.put(out),
            Effect::StreamPutGroup { group, position, .. } => {
                put_bytes(out, group);
                position.put(out);
            }
            Effect::StreamDropGroup { group, .. } => put_bytes(out, group),
            Effect::StreamPutConsumer { group, consumer, times, .. } => {
                put_bytes(out, group);
                put_bytes(out, consumer);
                times.put(out);
            }
            Effect::StreamDropConsumer { group, consumer, .. } => {
                put_bytes(out, group);
                put_bytes(out, consumer);
            }
            Effect::StreamPend { group, consumer, deliveries, .. } => {
                put_bytes(out, group);
                put_bytes(out, consumer);
                deliveries.encode_into(out);
            }
            Effect::StreamUnpend { group, ids, .. } => {
                put_bytes(out, group);
                ids.encode_into(out);
            }
            Effect::PutLibrary { name, code, functions } => {
                put_bytes(out, name);
                put_bytes(out, code);
                functions.encode_into(out);
            }
            Effect::PutSetting { name, value } => {
                put_bytes(out, name);
                put_bytes(out, value);
            }
            Effect::DropLibrary { name } | Effect::DropSetting { name } => put_bytes(out, name),
            Effect::FlushDb { db } => out.push(db.get()),
            Effect::SwapDb { a, b } => out.extend_from_slice(&[a.get(), b.get()]),
        }
    }

    /// Decodes the first effect of `input` and moves `input` past it; `None` at the end of the input. What is no effect
    /// before it is passed over.
    ///
    /// # Errors
    /// If the bytes are not an effect. `input` is then unchanged.
    pub fn decode_next(input: &mut &'a [u8]) -> Result<Option<Effect<'a>>, EffectError> {
        let mut reader = Reader { rest: input };
        while reader.aside()?.is_some() {}
        let effect = if reader.rest.is_empty() { None } else { Some(reader.effect()?) };
        *input = reader.rest;
        Ok(effect)
    }
}

impl Value<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            Value::String(bytes) => bytes_len(bytes),
            Value::List(items) | Value::Set(items) | Value::Hash(items) => items.encoded_len(),
            Value::Zset(members) => members.encoded_len(),
            Value::Stream(head) => head.encoded_len(),
        }
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Value::String(bytes) => put_bytes(out, bytes),
            Value::List(items) | Value::Set(items) | Value::Hash(items) => items.encode_into(out),
            Value::Zset(members) => members.encode_into(out),
            Value::Stream(head) => head.put(out),
        }
    }
}

#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_deadline(out: &mut Vec<u8>, expire_at_ms: Option<u64>) {
    if let Some(deadline_ms) = expire_at_ms {
        put_number(out, deadline_ms);
    }
}

#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes of a LEB128 number: one for each started group of seven bits.
#[inline]
pub(crate) fn number_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

pub(super) fn bytes_len(bytes: &[u8]) -> usize {
    number_len(bytes.len() as u64) + bytes.len()
}

/// Reads what effects are made of.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// What comes next, if it is no effect.
    #[inline]
    pub(super) fn aside(&mut self) -> Result<Option<Item<'a>>, EffectError> {
        let Some((&opcode @ (MESSAGE | DOCUMENTS), rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let first = self.bytes()?;
        Ok(Some(match opcode {
            MESSAGE => Item::Message(LoggedMessage { channel: first, payload: self.bytes()? }),
            _ => Item::Documents(first),
        }))
    }

    pub(super) fn effect(&mut self) -> Result<Effect<'a>, EffectError> {
        let opcode = self.byte()?;
        match opcode {
            PUT_LIBRARY => {
                let (name, code, functions) = (self.bytes()?, self.bytes()?, self.items()?);
                return Ok(Effect::PutLibrary { name, code, functions });
            }
            DROP_LIBRARY => return Ok(Effect::DropLibrary { name: self.bytes()? }),
            PUT_SETTING => return Ok(Effect::PutSetting { name: self.bytes()?, value: self.bytes()? }),
            DROP_SETTING => return Ok(Effect::DropSetting { name: self.bytes()? }),
            FLUSH_DB => return Ok(Effect::FlushDb { db: self.db()? }),
            FLUSH_ALL => return Ok(Effect::FlushAll),
            SWAP_DB => return Ok(Effect::SwapDb { a: self.db()?, b: self.db()? }),
            DELETE..=STREAM_UNPEND => {}
            _ => return Err(EffectError::UnknownOpcode(opcode)),
        }
        let (db, key) = (self.db()?, self.bytes()?);
        let effect = match opcode {
            DELETE => Effect::Delete { db, key },
            PERSIST => Effect::SetExpiry { db, key, expire_at_ms: None },
            SET_EXPIRY => Effect::SetExpiry { db, key, expire_at_ms: Some(self.number()?) },
            PUT_STRING | PUT_LIST | PUT_SET | PUT_ZSET | PUT_HASH | PUT_STREAM => {
                Effect::Put { db, key, value: self.value(opcode)?, expire_at_ms: None }
            }
            PUT_STRING_EXPIRING | PUT_LIST_EXPIRING | PUT_SET_EXPIRING | PUT_ZSET_EXPIRING
            | PUT_HASH_EXPIRING | PUT_STREAM_EXPIRING => {
                let value = self.value(opcode - 1)?;
                Effect::Put { db, key, value, expire_at_ms: Some(self.number()?) }
            }
            MOVE => Effect::Move { db, key, to_db: self.db()?, to_key: self.bytes()? },
            APPEND => Effect::Append { db, key, suffix: self.bytes()? },
            SET_RANGE => Effect::SetRange { db, key, offset: self.number()?, bytes: self.bytes()? },
            LIST_PUSH_HEAD => Effect::ListPush { db, key, end: ListEnd::Head, items: self.items()? },
            LIST_PUSH_TAIL => Effect::ListPush { db, key, end: ListEnd::Tail, items: self.items()? },
            LIST_POP_HEAD => Effect::ListPop { db, key, end: ListEnd::Head, count: self.number()? },
            LIST_POP_TAIL => Effect::ListPop { db, key, end: ListEnd::Tail, count: self.number()? },
            LIST_SET => Effect::ListSet { db, key, index: self.number()?, item: self.bytes()? },
            LIST_INSERT => Effect::ListInsert { db, key, index: self.number()?, item: self.bytes()? },
            LIST_REMOVE_HEAD | LIST_REMOVE_TAIL => {
                let end = if opcode == LIST_REMOVE_HEAD { ListEnd::Head } else { ListEnd::Tail };
                Effect::ListRemove { db, key, end, count: self.number()?, item: self.bytes()? }
            }
            SET_ADD => Effect::SetAdd { db, key, members: self.items()? },
            SET_REMOVE => Effect::SetRemove { db, key, members: self.items()? },
            ZSET_PUT => Effect::ZsetPut { db, key, members: ScoredItems::decode(self)? },
            ZSET_REMOVE => Effect::ZsetRemove { db, key, members: self.items()? },
            ZSET_REMOVE_RANKS => {
                Effect::ZsetRemoveRanks { db, key, first: self.number()?, count: self.number()? }
            }
            HASH_PUT => Effect::HashPut { db, key, pairs: self.pairs()? },
            HASH_UPDATE => Effect::HashUpdate { db, key, pairs: self.pairs()? },
            HASH_REMOVE => Effect::HashRemove { db, key, fields: self.items()? },
            HASH_PERSIST => Effect::HashSetExpiry { db, key, fields: self.items()?, expire_at_ms: None },
            HASH_SET_EXPIRY => {
                let fields = self.items()?;
                Effect::HashSetExpiry { db, key, fields, expire_at_ms: Some(self.number()?) }
            }
            STREAM_ADD..=STREAM_UNPEND => self.stream_effect(opcode, db, key)?,
            _ => return Err(EffectError::UnknownOpcode(opcode)),
        };
        Ok(effect)
    }

    fn stream_effect(&mut self, opcode: u8, db: DbId, key: &'a [u8]) -> Result<Effect<'a>, EffectError> {
        Ok(match opcode {
            STREAM_ADD => Effect::StreamAdd { db, key, id: StreamId::read(self)?, pairs: self.pairs()? },
            STREAM_ADD_BLOCK => {
                let block = StreamBlock::verify(self.bytes()?).ok_or(EffectError::MalformedBlock)?;
                Effect::StreamAddBlock { db, key, block }
            }
            STREAM_TRIM => Effect::StreamTrim { db, key, through: StreamId::read(self)? },
            STREAM_DELETE => Effect::StreamDelete { db, key, ids: Listed::decode(self)? },
            STREAM_SET_HEAD => Effect::StreamSetHead { db, key, head: StreamHead::read(self)? },
            STREAM_PUT_GROUP => {
                let (group, position) = (self.bytes()?, GroupPosition::read(self)?);
                Effect::StreamPutGroup { db, key, group, position }
            }
            STREAM_DROP_GROUP => Effect::StreamDropGroup { db, key, group: self.bytes()? },
            STREAM_PUT_CONSUMER => {
                let (group, consumer, times) = (self.bytes()?, self.bytes()?, ConsumerTimes::read(self)?);
                Effect::StreamPutConsumer { db, key, group, consumer, times }
            }
            STREAM_DROP_CONSUMER => {
                Effect::StreamDropConsumer { db, key, group: self.bytes()?, consumer: self.bytes()? }
            }
            STREAM_PEND => {
                let (group, consumer, deliveries) = (self.bytes()?, self.bytes()?, Listed::decode(self)?);
                Effect::StreamPend { db, key, group, consumer, deliveries }
            }
            STREAM_UNPEND => {
                Effect::StreamUnpend { db, key, group: self.bytes()?, ids: Listed::decode(self)? }
            }
            _ => return Err(EffectError::UnknownOpcode(opcode)),
        })
    }

    /// The value of a Put with this opcode, the one that never expires.
    fn value(&mut self, opcode: u8) -> Result<Value<'a>, EffectError> {
        Ok(match opcode {
            PUT_LIST => Value::List(self.items()?),
            PUT_SET => Value::Set(self.items()?),
            PUT_ZSET => Value::Zset(ScoredItems::decode(self)?),
            PUT_HASH => Value::Hash(self.pairs()?),
            PUT_STREAM => Value::Stream(StreamHead::read(self)?),
            _ => Value::String(self.bytes()?),
        })
    }

    fn items(&mut self) -> Result<Items<'a>, EffectError> {
        Items::decode(self)
    }

    fn pairs(&mut self) -> Result<Items<'a>, EffectError> {
        let items = self.items()?;
        if items.len().is_multiple_of(2) { Ok(items) } else { Err(EffectError::Truncated) }
    }

    pub(super) fn score(&mut self) -> Result<f64, EffectError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(EffectError::Truncated)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, EffectError> {
        let (&byte, rest) = self.rest.split_first().ok_or(EffectError::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn db(&mut self) -> Result<DbId, EffectError> {
        let number = self.byte()?;
        DbId::new(number).ok_or(EffectError::UnknownDb(number))
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], EffectError> {
        let len = usize::try_from(self.number()?).map_err(|_| EffectError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(EffectError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, EffectError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let fits = bits << shift >> shift == bits;
            // A last byte of zero would be a second encoding of the same number.
            if !fits || (byte == 0 && shift > 0) {
                return Err(EffectError::MalformedNumber);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(EffectError::MalformedNumber)
    }
}
