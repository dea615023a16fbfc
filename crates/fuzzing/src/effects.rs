//! Arbitrary records, as decoded by recovery: an item that decodes encodes to the same bytes. Messages change
//! nothing. Effects apply without a panic to the slots that they name and to no others, and leave a
//! consistent keyspace.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use keyspace::{
    AccessClock, ConsumerTimes, DbId, Delivery, Effect, Freed, GlobalOp, GroupPosition, Item, Items,
    ItemsBuf, KeyOp, Keyspace, LibraryContent, ListEnd, Listed, LoggedMessage, Options, Scope, ScoredItems,
    ScoredItemsBuf, StreamHead, StreamId, Value, slot_of,
};

use crate::{Outcome, Seed};

/// The maximum offset, in bytes, at which an input may set a range of a string: a longer string would only
/// cost memory.
const RANGE_BEGIN_MAX: u64 = 1 << 20;

fn is_long_range(effect: &Effect<'_>) -> bool {
    matches!(effect, Effect::Key { op: KeyOp::SetRange { offset, .. }, .. } if *offset > RANGE_BEGIN_MAX)
}

/// The keyspace of all runs, because creating one takes longer than a run. Each run empties the slots that it
/// has touched.
static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| Keyspace::new(Options { hash_seed: 1 }));

/// Decodes and applies the items of a record. Accepts a record that is decoded to its end.
///
/// # Panics
/// If an item has two encodings, or the keyspace becomes inconsistent. Two runs at a time disturb each other.
pub fn effects(input: &[u8]) -> Outcome {
    let (clock, mut freed) = (AccessClock::default(), Freed::new());
    let mut touched = BTreeSet::new();
    let mut rest = input;
    loop {
        let before = rest;
        let Ok(Some(item)) = Item::decode_next(&mut rest) else { break };
        let mut again = Vec::new();
        match &item {
            Item::Effect(effect) => effect.encode_into(&mut again),
            Item::Message(message) => message.encode_into(&mut again),
            Item::Documents(change) => keyspace::encode_documents_into(change, &mut again),
        }
        assert_eq!(again, before[..before.len() - rest.len()], "{item:?}");
        let Item::Effect(effect) = item else { continue };
        if is_long_range(&effect) {
            continue;
        }
        match effect.scope() {
            Scope::Slot(key) => {
                touched.insert(slot_of(key));
                KEYSPACE.lock(slot_of(key)).apply(&effect, clock, &mut freed);
            }
            Scope::Two(from, to) => {
                touched.extend([from, to].map(slot_of));
                KEYSPACE.lock_many([from, to].map(slot_of)).apply(&effect, clock, &mut freed);
            }
            // Only the touched slots need the effect: the others are empty, so it would not change them.
            Scope::Global => touched.iter().for_each(|&slot| {
                KEYSPACE.lock(slot).apply(&effect, clock, &mut freed);
            }),
        }
        touched.iter().for_each(|&slot| KEYSPACE.lock(slot).check());
    }
    for slot in touched {
        KEYSPACE.lock(slot).apply(&Effect::Global(GlobalOp::FlushAll), clock, &mut freed);
    }
    assert!(KEYSPACE.is_empty() && KEYSPACE.bytes() == 0, "something was changed that no effect has named");
    Outcome::accepted_if(rest.is_empty() && !input.is_empty())
}

fn record(effects: &[Effect<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    effects.iter().for_each(|effect| effect.encode_into(&mut out));
    out
}

/// An input that applies these operations, in order, to one key.
fn on_key(operations: &[KeyOp<'_>]) -> Vec<u8> {
    let effects: Vec<Effect<'_>> = operations.iter().map(|op| op.on(DbId::ZERO, b"key")).collect();
    record(&effects)
}

const ITEMS: Items<'static> = Items::Slices(&[b"a", b"-17", b"c", b"a longer element"]);
const DEADLINE_MS: Option<u64> = Some(1_700_000_000_000);

fn put(value: Value<'_>) -> KeyOp<'_> {
    KeyOp::Put { value, expire_at_ms: None }
}

fn streams() -> Vec<u8> {
    let (group, consumer) = (b"group".as_slice(), b"consumer".as_slice());
    let ids = [StreamId::new(1, 2), StreamId::new(300, 0)];
    let head = StreamHead { last_id: StreamId::ZERO, max_deleted_id: StreamId::ZERO, entries_added: 0 };
    let deliveries = ids.map(|id| Delivery { id, time_ms: 300, count: 4 });
    let pairs = Items::Slices(&[b"field", b"12"]);
    let position = GroupPosition { last_id: ids[1], entries_read: Some(2) };
    let times = ConsumerTimes { seen_ms: 9, active_ms: Some(9) };
    on_key(&[
        put(Value::Stream(head)),
        KeyOp::StreamAdd { id: ids[0], pairs },
        KeyOp::StreamAdd { id: ids[1], pairs: ITEMS },
        KeyOp::StreamPutGroup { group, position },
        KeyOp::StreamPutConsumer { group, consumer, times },
        KeyOp::StreamPend { group, consumer, deliveries: Listed::Slices(&deliveries) },
        KeyOp::StreamUnpend { group, ids: Listed::Slices(&ids[..1]) },
        KeyOp::StreamDelete { ids: Listed::Slices(&ids[1..]) },
        KeyOp::StreamTrim { through: ids[0] },
        KeyOp::StreamSetHead {
            head: StreamHead { last_id: ids[1], max_deleted_id: ids[0], entries_added: 7 },
        },
        KeyOp::StreamDropConsumer { group, consumer },
        KeyOp::StreamDropGroup { group },
        KeyOp::SetExpiry { expire_at_ms: DEADLINE_MS },
    ])
}

pub(crate) fn seeds() -> Vec<Seed> {
    let (head, tail) = (ListEnd::Head, ListEnd::Tail);
    let scored = ScoredItems::Slices(&[(1.5, b"a"), (f64::NEG_INFINITY, b"b"), (0.0, b"c")]);
    // More elements than a packed collection holds, and one that is too long for it.
    let (mut many, mut many_scored) = (ItemsBuf::new(), ScoredItemsBuf::new());
    for number in 0..600u32 {
        many.push(number.to_string().as_bytes());
        many_scored.push(f64::from(number), number.to_string().as_bytes());
    }
    many.push(b"field");
    many.push(&[b'x'; 5000]);
    let name = b"lib".as_slice();
    let functions = Items::Slices(&[b"f", b"\x01\x00", b""]);
    let content = Some(LibraryContent { code: b"return 1", functions });
    let db = |number| DbId::new(number).expect("a database");
    let key = b"key".as_slice();
    let mut with_messages = Vec::new();
    LoggedMessage { channel: b"news", payload: b"hello" }.encode_into(&mut with_messages);
    keyspace::encode_documents_into(&documents::change::encode_create("db"), &mut with_messages);
    put(Value::String(b"v")).on(DbId::ZERO, key).encode_into(&mut with_messages);
    vec![
        (
            "strings",
            on_key(&[
                put(Value::String(b"value")),
                KeyOp::Append { suffix: b" and more" },
                KeyOp::SetRange { offset: 300, bytes: b"end" },
                KeyOp::SetExpiry { expire_at_ms: DEADLINE_MS },
                KeyOp::SetExpiry { expire_at_ms: None },
                KeyOp::Delete,
            ]),
        ),
        (
            "lists",
            on_key(&[
                put(Value::List(ITEMS)),
                KeyOp::ListPush { end: head, items: ITEMS },
                KeyOp::ListPush { end: tail, items: ITEMS },
                KeyOp::ListSet { index: 1, item: b"x" },
                KeyOp::ListInsert { index: 2, item: b"x" },
                KeyOp::ListRemove { end: tail, count: 1, item: b"x" },
                KeyOp::ListRemove { end: head, count: 0, item: b"a" },
                KeyOp::ListPop { end: head, count: 3 },
                KeyOp::ListPop { end: tail, count: 300 },
            ]),
        ),
        ("sets", on_key(&[KeyOp::SetAdd { members: ITEMS }, KeyOp::SetRemove { members: ITEMS }])),
        (
            "sorted-sets",
            on_key(&[
                put(Value::Zset(scored)),
                KeyOp::ZsetPut { members: scored },
                KeyOp::ZsetRemoveRanks { first: 1, count: 1 },
                KeyOp::ZsetRemove { members: ITEMS },
            ]),
        ),
        (
            "hashes",
            on_key(&[
                put(Value::Hash(ITEMS)),
                KeyOp::HashPut { pairs: ITEMS },
                KeyOp::HashSetExpiry { fields: ITEMS, expire_at_ms: DEADLINE_MS },
                KeyOp::HashUpdate { pairs: ITEMS },
                KeyOp::HashSetExpiry { fields: ITEMS, expire_at_ms: None },
                KeyOp::HashRemove { fields: ITEMS },
            ]),
        ),
        ("streams", streams()),
        (
            "wrong-types",
            on_key(&[
                put(Value::Set(many.as_items())),
                KeyOp::Append { suffix: b" and more" },
                KeyOp::SetRange { offset: 300, bytes: b"end" },
                KeyOp::ListPush { end: tail, items: ITEMS },
                KeyOp::HashPut { pairs: ITEMS },
                KeyOp::StreamTrim { through: StreamId::MAX },
            ]),
        ),
        ("large-hash", on_key(&[put(Value::Hash(many.as_items())), KeyOp::HashRemove { fields: ITEMS }])),
        (
            "large-list",
            on_key(&[put(Value::List(many.as_items())), KeyOp::ListPop { end: head, count: 599 }]),
        ),
        ("large-set", on_key(&[put(Value::Set(many.as_items())), KeyOp::SetRemove { members: ITEMS }])),
        (
            "large-sorted-set",
            on_key(&[
                put(Value::Zset(many_scored.as_items())),
                KeyOp::ZsetRemoveRanks { first: 3, count: 590 },
                KeyOp::ZsetRemove { members: ITEMS },
            ]),
        ),
        (
            "moves",
            record(&[
                put(Value::List(ITEMS)).on(db(1), key),
                Effect::Move { db: db(1), key, to_db: db(2), to_key: b"new" },
                Effect::Move { db: db(2), key: b"new", to_db: db(15), to_key: b"new" },
            ]),
        ),
        (
            "whole-databases",
            record(&[
                put(Value::Set(ITEMS)).on(db(4), key),
                Effect::Global(GlobalOp::SwapDb { a: db(4), b: db(5) }),
                Effect::Global(GlobalOp::FlushDb { db: db(5) }),
                Effect::Global(GlobalOp::FlushAll),
            ]),
        ),
        (
            "libraries-and-settings",
            record(&[
                Effect::Library { name, content },
                Effect::Library { name, content: None },
                Effect::Setting { name: b"maxmemory-policy", value: Some(b"noeviction") },
                Effect::Setting { name: b"maxmemory-policy", value: None },
            ]),
        ),
        ("messages-and-documents", with_messages),
        ("refused-zeros", vec![0; 16]),
        ("refused-cut", b"\x10\x00\x03ke".to_vec()),
    ]
}
