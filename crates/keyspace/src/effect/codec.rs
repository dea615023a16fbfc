//! Bytes of effects. The byte map is documented at the parent module and pinned by a golden test.

use varint::NumberError;

use super::listed::Coded;
use super::{
    Effect, EffectError, GlobalOp, Item, Items, KeyOp, LibraryContent, ListEnd, Listed, LoggedMessage,
    STRING_BYTES_MAX, ScoredItems,
};
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
    /// The exact number of bytes that `encode_into` adds.
    pub fn encoded_len(&self) -> usize {
        let mut len = Length(0);
        self.write(&mut len);
        len.0
    }

    /// Adds the encoding to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn write(&self, out: &mut impl Writer) {
        match *self {
            Effect::Key { db, key, ref op } => op.write(db, key, out),
            Effect::Move { db, key, to_db, to_key } => out.target(MOVE, db, key).db(to_db).bytes(to_key),
            Effect::Library { name, content: Some(LibraryContent { code, functions }) } => {
                out.byte(PUT_LIBRARY).bytes(name).bytes(code).add(&functions)
            }
            Effect::Library { name, content: None } => out.byte(DROP_LIBRARY).bytes(name),
            Effect::Setting { name, value: Some(value) } => out.byte(PUT_SETTING).bytes(name).bytes(value),
            Effect::Setting { name, value: None } => out.byte(DROP_SETTING).bytes(name),
            Effect::Global(GlobalOp::FlushDb { db }) => out.byte(FLUSH_DB).db(db),
            Effect::Global(GlobalOp::FlushAll) => out.byte(FLUSH_ALL),
            Effect::Global(GlobalOp::SwapDb { a, b }) => out.byte(SWAP_DB).db(a).db(b),
        };
    }

    /// Decodes the first effect of `input` and moves `input` past it; `None` at the end of the input. Skips
    /// items before the effect that are not effects (messages, changes of documents).
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

impl KeyOp<'_> {
    fn write<'w, W: Writer>(&self, db: DbId, key: &[u8], out: &'w mut W) -> &'w mut W {
        let begin = move |opcode| {
            // `out` is moved out of the closure, so that the returned writer outlives the closure.
            let out = out;
            out.target(opcode, db, key)
        };
        let at = |end: ListEnd, head, tail| if end == ListEnd::Head { head } else { tail };
        let expiring =
            |deadline: Option<u64>, never, expiring| if deadline.is_some() { expiring } else { never };
        match *self {
            KeyOp::Put { value, expire_at_ms } => {
                let opcode = match value {
                    Value::String(_) => expiring(expire_at_ms, PUT_STRING, PUT_STRING_EXPIRING),
                    Value::List(_) => expiring(expire_at_ms, PUT_LIST, PUT_LIST_EXPIRING),
                    Value::Set(_) => expiring(expire_at_ms, PUT_SET, PUT_SET_EXPIRING),
                    Value::Zset(_) => expiring(expire_at_ms, PUT_ZSET, PUT_ZSET_EXPIRING),
                    Value::Hash(_) => expiring(expire_at_ms, PUT_HASH, PUT_HASH_EXPIRING),
                    Value::Stream(_) => expiring(expire_at_ms, PUT_STREAM, PUT_STREAM_EXPIRING),
                };
                begin(opcode).add(&value).deadline(expire_at_ms)
            }
            KeyOp::Delete => begin(DELETE),
            KeyOp::SetExpiry { expire_at_ms } => {
                begin(expiring(expire_at_ms, PERSIST, SET_EXPIRY)).deadline(expire_at_ms)
            }
            KeyOp::Append { suffix } => begin(APPEND).bytes(suffix),
            KeyOp::SetRange { offset, bytes } => begin(SET_RANGE).number(offset).bytes(bytes),
            KeyOp::ListPush { end, items } => begin(at(end, LIST_PUSH_HEAD, LIST_PUSH_TAIL)).add(&items),
            KeyOp::ListPop { end, count } => begin(at(end, LIST_POP_HEAD, LIST_POP_TAIL)).number(count),
            KeyOp::ListSet { index, item } => begin(LIST_SET).number(index).bytes(item),
            KeyOp::ListInsert { index, item } => begin(LIST_INSERT).number(index).bytes(item),
            KeyOp::ListRemove { end, count, item } => {
                begin(at(end, LIST_REMOVE_HEAD, LIST_REMOVE_TAIL)).number(count).bytes(item)
            }
            KeyOp::SetAdd { members } => begin(SET_ADD).add(&members),
            KeyOp::SetRemove { members } => begin(SET_REMOVE).add(&members),
            KeyOp::ZsetPut { members } => begin(ZSET_PUT).add(&members),
            KeyOp::ZsetRemove { members } => begin(ZSET_REMOVE).add(&members),
            KeyOp::ZsetRemoveRanks { first, count } => begin(ZSET_REMOVE_RANKS).number(first).number(count),
            KeyOp::HashPut { pairs } => begin(HASH_PUT).add(&pairs),
            KeyOp::HashUpdate { pairs } => begin(HASH_UPDATE).add(&pairs),
            KeyOp::HashRemove { fields } => begin(HASH_REMOVE).add(&fields),
            KeyOp::HashSetExpiry { fields, expire_at_ms } => {
                let opcode = expiring(expire_at_ms, HASH_PERSIST, HASH_SET_EXPIRY);
                begin(opcode).add(&fields).deadline(expire_at_ms)
            }
            KeyOp::StreamAdd { id, pairs } => begin(STREAM_ADD).add(&id).add(&pairs),
            KeyOp::StreamAddBlock { block } => begin(STREAM_ADD_BLOCK).bytes(block.bytes()),
            KeyOp::StreamTrim { through } => begin(STREAM_TRIM).add(&through),
            KeyOp::StreamDelete { ids } => begin(STREAM_DELETE).add(&ids),
            KeyOp::StreamSetHead { head } => begin(STREAM_SET_HEAD).add(&head),
            KeyOp::StreamPutGroup { group, position } => begin(STREAM_PUT_GROUP).bytes(group).add(&position),
            KeyOp::StreamDropGroup { group } => begin(STREAM_DROP_GROUP).bytes(group),
            KeyOp::StreamPutConsumer { group, consumer, times } => {
                begin(STREAM_PUT_CONSUMER).bytes(group).bytes(consumer).add(&times)
            }
            KeyOp::StreamDropConsumer { group, consumer } => {
                begin(STREAM_DROP_CONSUMER).bytes(group).bytes(consumer)
            }
            KeyOp::StreamPend { group, consumer, deliveries } => {
                begin(STREAM_PEND).bytes(group).bytes(consumer).add(&deliveries)
            }
            KeyOp::StreamUnpend { group, ids } => begin(STREAM_UNPEND).bytes(group).add(&ids),
        }
    }
}

impl Encode for Value<'_> {
    fn write(&self, out: &mut impl Writer) {
        match self {
            Value::String(bytes) => out.bytes(bytes),
            Value::List(items) | Value::Set(items) | Value::Hash(items) => out.add(items),
            Value::Zset(members) => out.add(members),
            Value::Stream(head) => out.add(head),
        };
    }
}

/// A part of an effect, which writes its own encoding.
pub(super) trait Encode {
    fn write(&self, out: &mut impl Writer);
}

/// Receives the parts of effects: adds them to a record, or counts their bytes.
pub(super) trait Writer: Sized {
    fn byte(&mut self, byte: u8) -> &mut Self;

    fn number(&mut self, number: u64) -> &mut Self;

    /// Bytes without their length.
    fn raw(&mut self, bytes: &[u8]) -> &mut Self;

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64).raw(bytes)
    }

    #[inline]
    fn db(&mut self, db: DbId) -> &mut Self {
        self.byte(db.get())
    }

    /// Writes the beginning of every effect on a key.
    fn target(&mut self, opcode: u8, db: DbId, key: &[u8]) -> &mut Self {
        self.byte(opcode).db(db).bytes(key)
    }

    /// Writes the deadline of an effect, or nothing for `None`. The opcode shows whether a deadline follows.
    fn deadline(&mut self, expire_at_ms: Option<u64>) -> &mut Self {
        match expire_at_ms {
            Some(deadline_ms) => self.number(deadline_ms),
            None => self,
        }
    }

    #[inline]
    fn add(&mut self, part: &impl Encode) -> &mut Self {
        part.write(self);
        self
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.push(byte);
        self
    }

    #[inline]
    fn number(&mut self, number: u64) -> &mut Self {
        varint::put(self, number);
        self
    }

    #[inline]
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }
}

/// A writer that counts bytes instead of writing them.
struct Length(usize);

impl Writer for Length {
    fn byte(&mut self, _: u8) -> &mut Self {
        self.0 += 1;
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0 += varint::len(number);
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0 += bytes.len();
        self
    }
}

/// Reads the parts of effects.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next item, if it is not an effect.
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
        Ok(match opcode {
            MOVE => {
                let (db, key) = (self.db()?, self.bytes()?);
                Effect::Move { db, key, to_db: self.db()?, to_key: self.bytes()? }
            }
            DELETE..=STREAM_UNPEND => {
                let (db, key) = (self.db()?, self.bytes()?);
                Effect::Key { db, key, op: self.key_op(opcode)? }
            }
            PUT_LIBRARY => {
                let (name, code, functions) = (self.bytes()?, self.bytes()?, self.items()?);
                Effect::Library { name, content: Some(LibraryContent { code, functions }) }
            }
            DROP_LIBRARY => Effect::Library { name: self.bytes()?, content: None },
            PUT_SETTING => Effect::Setting { name: self.bytes()?, value: Some(self.bytes()?) },
            DROP_SETTING => Effect::Setting { name: self.bytes()?, value: None },
            FLUSH_DB => Effect::Global(GlobalOp::FlushDb { db: self.db()? }),
            FLUSH_ALL => Effect::Global(GlobalOp::FlushAll),
            SWAP_DB => Effect::Global(GlobalOp::SwapDb { a: self.db()?, b: self.db()? }),
            _ => return Err(EffectError::UnknownOpcode(opcode)),
        })
    }

    #[inline]
    fn key_op(&mut self, opcode: u8) -> Result<KeyOp<'a>, EffectError> {
        Ok(match opcode {
            DELETE => KeyOp::Delete,
            PERSIST => KeyOp::SetExpiry { expire_at_ms: None },
            SET_EXPIRY => KeyOp::SetExpiry { expire_at_ms: Some(self.number()?) },
            PUT_STRING | PUT_LIST | PUT_SET | PUT_ZSET | PUT_HASH | PUT_STREAM => {
                KeyOp::Put { value: self.value(opcode)?, expire_at_ms: None }
            }
            PUT_STRING_EXPIRING | PUT_LIST_EXPIRING | PUT_SET_EXPIRING | PUT_ZSET_EXPIRING
            | PUT_HASH_EXPIRING | PUT_STREAM_EXPIRING => {
                KeyOp::Put { value: self.value(opcode - 1)?, expire_at_ms: Some(self.number()?) }
            }
            APPEND => KeyOp::Append { suffix: self.bytes()? },
            SET_RANGE => {
                let (offset, bytes) = (self.number()?, self.bytes()?);
                let end = offset.checked_add(bytes.len() as u64);
                if end.is_none_or(|end| end > STRING_BYTES_MAX) {
                    return Err(EffectError::MalformedNumber);
                }
                KeyOp::SetRange { offset, bytes }
            }
            LIST_PUSH_HEAD => KeyOp::ListPush { end: ListEnd::Head, items: self.items()? },
            LIST_PUSH_TAIL => KeyOp::ListPush { end: ListEnd::Tail, items: self.items()? },
            LIST_POP_HEAD => KeyOp::ListPop { end: ListEnd::Head, count: self.number()? },
            LIST_POP_TAIL => KeyOp::ListPop { end: ListEnd::Tail, count: self.number()? },
            LIST_SET => KeyOp::ListSet { index: self.number()?, item: self.bytes()? },
            LIST_INSERT => KeyOp::ListInsert { index: self.number()?, item: self.bytes()? },
            LIST_REMOVE_HEAD | LIST_REMOVE_TAIL => {
                let end = if opcode == LIST_REMOVE_HEAD { ListEnd::Head } else { ListEnd::Tail };
                KeyOp::ListRemove { end, count: self.number()?, item: self.bytes()? }
            }
            SET_ADD => KeyOp::SetAdd { members: self.items()? },
            SET_REMOVE => KeyOp::SetRemove { members: self.items()? },
            ZSET_PUT => KeyOp::ZsetPut { members: ScoredItems::decode(self)? },
            ZSET_REMOVE => KeyOp::ZsetRemove { members: self.items()? },
            ZSET_REMOVE_RANKS => KeyOp::ZsetRemoveRanks { first: self.number()?, count: self.number()? },
            HASH_PUT => KeyOp::HashPut { pairs: self.pairs()? },
            HASH_UPDATE => KeyOp::HashUpdate { pairs: self.pairs()? },
            HASH_REMOVE => KeyOp::HashRemove { fields: self.items()? },
            HASH_PERSIST => KeyOp::HashSetExpiry { fields: self.items()?, expire_at_ms: None },
            HASH_SET_EXPIRY => {
                KeyOp::HashSetExpiry { fields: self.items()?, expire_at_ms: Some(self.number()?) }
            }
            STREAM_ADD => KeyOp::StreamAdd { id: StreamId::read(self)?, pairs: self.pairs()? },
            STREAM_ADD_BLOCK => {
                let block = StreamBlock::verify(self.bytes()?).ok_or(EffectError::MalformedBlock)?;
                KeyOp::StreamAddBlock { block }
            }
            STREAM_TRIM => KeyOp::StreamTrim { through: StreamId::read(self)? },
            STREAM_DELETE => KeyOp::StreamDelete { ids: Listed::decode(self)? },
            STREAM_SET_HEAD => KeyOp::StreamSetHead { head: StreamHead::read(self)? },
            STREAM_PUT_GROUP => {
                KeyOp::StreamPutGroup { group: self.bytes()?, position: GroupPosition::read(self)? }
            }
            STREAM_DROP_GROUP => KeyOp::StreamDropGroup { group: self.bytes()? },
            STREAM_PUT_CONSUMER => {
                let (group, consumer) = (self.bytes()?, self.bytes()?);
                KeyOp::StreamPutConsumer { group, consumer, times: ConsumerTimes::read(self)? }
            }
            STREAM_DROP_CONSUMER => {
                KeyOp::StreamDropConsumer { group: self.bytes()?, consumer: self.bytes()? }
            }
            STREAM_PEND => {
                let (group, consumer) = (self.bytes()?, self.bytes()?);
                KeyOp::StreamPend { group, consumer, deliveries: Listed::decode(self)? }
            }
            STREAM_UNPEND => KeyOp::StreamUnpend { group: self.bytes()?, ids: Listed::decode(self)? },
            _ => return Err(EffectError::UnknownOpcode(opcode)),
        })
    }

    /// The value of a Put. `opcode` is the opcode of the form that never expires.
    fn value(&mut self, opcode: u8) -> Result<Value<'a>, EffectError> {
        let (value, len) = match opcode {
            PUT_LIST | PUT_SET => {
                let items = self.items()?;
                (if opcode == PUT_LIST { Value::List(items) } else { Value::Set(items) }, items.len())
            }
            PUT_ZSET => {
                let members = ScoredItems::decode(self)?;
                (Value::Zset(members), members.len())
            }
            PUT_HASH => {
                let pairs = self.pairs()?;
                (Value::Hash(pairs), pairs.len())
            }
            PUT_STREAM => return Ok(Value::Stream(StreamHead::read(self)?)),
            _ => return Ok(Value::String(self.bytes()?)),
        };
        if len == 0 { Err(EffectError::EmptyCollection) } else { Ok(value) }
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
        varint::read(&mut self.rest).map_err(|error| match error {
            NumberError::Truncated => EffectError::Truncated,
            NumberError::Malformed => EffectError::MalformedNumber,
        })
    }
}
