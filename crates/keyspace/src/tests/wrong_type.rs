//! Effects that meet a value of another type, as in a forged snapshot or log: they change nothing and say so,
//! and a snapshot with one is refused.

use super::{apply, clock, db, keyspace};
use crate::{
    Applied, ConsumerTimes, Delivery, Digest, Freed, GroupPosition, Items, ItemsBuf, KeyOp, Keyspace,
    ListEnd, Listed, LoadError, Loader, ScoredItems, ScoredItemsBuf, StreamHead, StreamId, Value, ValueType,
    slot_of,
};

const KEY: &[u8] = b"key";
const ITEMS: Items<'static> = Items::Slices(&[b"a", b"1", b"c", b"2"]);
const SCORED: ScoredItems<'static> = ScoredItems::Slices(&[(1.5, b"a"), (2.5, b"b")]);
const ID: StreamId = StreamId::new(1, 2);
const HEAD: StreamHead = StreamHead { last_id: ID, max_deleted_id: StreamId::ZERO, entries_added: 0 };
const DELIVERIES: [Delivery; 1] = [Delivery { id: ID, time_ms: 1, count: 1 }];

/// Every operation on a value of one type, except StreamAddBlock, whose block only a stream can make. The
/// same code applies StreamAddBlock and the other operations on streams.
fn operations() -> Vec<(ValueType, KeyOp<'static>)> {
    let (end, group, consumer) = (ListEnd::Tail, b"group", b"consumer");
    let position = GroupPosition { last_id: ID, entries_read: None };
    let times = ConsumerTimes { seen_ms: 1, active_ms: None };
    let (ids, deliveries) = (Listed::Slices(&[ID]), Listed::Slices(&DELIVERIES));
    let of = |value_type, operations: &[KeyOp<'static>]| {
        operations.iter().map(|&op| (value_type, op)).collect::<Vec<_>>()
    };
    [
        of(
            ValueType::String,
            &[
                KeyOp::Append { suffix: &[b'x'; 300] },
                KeyOp::Append { suffix: b"" },
                KeyOp::SetRange { offset: 0, bytes: &[b'x'; 300] },
                KeyOp::SetRange { offset: 100_000, bytes: b"end" },
            ],
        ),
        of(
            ValueType::List,
            &[
                KeyOp::ListPush { end, items: ITEMS },
                KeyOp::ListPop { end, count: 1 },
                KeyOp::ListSet { index: 0, item: b"x" },
                KeyOp::ListInsert { index: 0, item: b"x" },
                KeyOp::ListRemove { end, count: 0, item: b"a" },
            ],
        ),
        of(ValueType::Set, &[KeyOp::SetAdd { members: ITEMS }, KeyOp::SetRemove { members: ITEMS }]),
        of(
            ValueType::Zset,
            &[
                KeyOp::ZsetPut { members: SCORED },
                KeyOp::ZsetRemove { members: ITEMS },
                KeyOp::ZsetRemoveRanks { first: 0, count: 1 },
            ],
        ),
        of(
            ValueType::Hash,
            &[
                KeyOp::HashPut { pairs: ITEMS },
                KeyOp::HashUpdate { pairs: ITEMS },
                KeyOp::HashRemove { fields: ITEMS },
                KeyOp::HashSetExpiry { fields: ITEMS, expire_at_ms: Some(9) },
            ],
        ),
        of(
            ValueType::Stream,
            &[
                KeyOp::StreamAdd { id: StreamId::new(2, 0), pairs: ITEMS },
                KeyOp::StreamTrim { through: StreamId::MAX },
                KeyOp::StreamDelete { ids },
                KeyOp::StreamSetHead { head: HEAD },
                KeyOp::StreamPutGroup { group, position },
                KeyOp::StreamDropGroup { group },
                KeyOp::StreamPutConsumer { group, consumer, times },
                KeyOp::StreamDropConsumer { group, consumer },
                KeyOp::StreamPend { group, consumer, deliveries },
                KeyOp::StreamUnpend { group, ids },
            ],
        ),
    ]
    .concat()
}

/// Calls `visit` with values of all types, small and big.
fn for_each_value(mut visit: impl FnMut(Value<'_>)) {
    let (mut many, mut many_scored) = (ItemsBuf::new(), ScoredItemsBuf::new());
    for number in 0..600u16 {
        many.push(format!("item {number}").as_bytes());
        many_scored.push(number.into(), &number.to_be_bytes());
    }
    for items in [ITEMS, many.as_items()] {
        [Value::List(items), Value::Set(items), Value::Hash(items)].into_iter().for_each(&mut visit);
    }
    [Value::Zset(SCORED), Value::Zset(many_scored.as_items())].into_iter().for_each(&mut visit);
    let long = [b'v'; 70_000];
    [Value::String(b"v"), Value::String(&long), Value::Stream(HEAD)].into_iter().for_each(visit);
}

fn with(value: Value<'_>) -> Keyspace {
    let keyspace = keyspace();
    apply(&keyspace, &KeyOp::Put { value, expire_at_ms: Some(9) }.on(db(0), KEY), 0);
    keyspace
}

/// The content of the key, as far as it must not change.
fn content(keyspace: &Keyspace) -> (Digest, u64) {
    (keyspace.digest(), keyspace.bytes())
}

#[test]
fn an_effect_on_a_value_of_another_type_changes_nothing_and_says_so() {
    for_each_value(|value| {
        let keyspace = with(value);
        let before = content(&keyspace);
        for (value_type, op) in operations().into_iter().filter(|(it, _)| *it != value.value_type()) {
            let mut guard = keyspace.lock(slot_of(KEY));
            let applied = guard.apply(&op.on(db(0), KEY), clock(0), &mut Freed::new());
            assert_eq!(applied, Applied { wrong_type: true, ..Applied::default() }, "{value_type:?}: {op:?}");
            guard.check();
            drop(guard);
            assert!(content(&keyspace) == before, "{op:?} has changed a value of {:?}", value.value_type());
        }
    });
}

#[test]
fn a_snapshot_with_an_effect_on_a_value_of_another_type_is_refused() {
    let slot = slot_of(KEY);
    for_each_value(|value| {
        for (value_type, op) in operations() {
            let mut stream = vec![crate::capture::HEAD];
            stream.extend(slot.get().to_le_bytes());
            stream.extend([0; 12]);
            KeyOp::Put { value, expire_at_ms: None }.on(db(0), KEY).encode_into(&mut stream);
            op.on(db(0), KEY).encode_into(&mut stream);
            let keyspace = keyspace();
            let loaded = Loader::new(&keyspace, clock(0)).feed(&stream);
            let fits = value_type == value.value_type();
            let expected = if fits { Ok(()) } else { Err(LoadError::Payload(slot)) };
            assert_eq!(loaded, expected, "{op:?} on a value of {:?}", value.value_type());
            keyspace.lock(slot).check();
        }
    });
}
