//! Golden bytes, round trips and hostile bytes.

use proptest::prelude::*;

use super::*;

fn db(number: u8) -> DbId {
    DbId::new(number).expect("a test uses databases 0..16")
}

fn encoded(effect: &Effect<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    effect.encode_into(&mut out);
    assert_eq!(out.len(), effect.encoded_len(), "{effect:?}");
    out
}

#[test]
fn the_bytes_of_every_opcode_are_pinned() {
    let key = b"key";
    let value = Value::String(b"v");
    let deadline_ms = Some(1_700_000_000_000);
    let functions = Items::Slices(&[b"f", b"\x01\x00", b""]);
    let golden: [(Effect<'_>, &[u8]); 15] = [
        (Effect::Delete { db: db(1), key }, b"\x01\x01\x03key"),
        (Effect::SetExpiry { db: db(2), key, expire_at_ms: None }, b"\x02\x02\x03key"),
        (
            Effect::SetExpiry { db: db(0), key, expire_at_ms: deadline_ms },
            b"\x03\x00\x03key\x80\xd0\x95\xff\xbc\x31",
        ),
        (Effect::Move { db: db(1), key, to_db: db(2), to_key: b"new" }, b"\x04\x01\x03key\x02\x03new"),
        (Effect::Put { db: db(0), key, value, expire_at_ms: None }, b"\x10\x00\x03key\x01v"),
        (
            Effect::Put { db: db(15), key, value, expire_at_ms: deadline_ms },
            b"\x11\x0f\x03key\x01v\x80\xd0\x95\xff\xbc\x31",
        ),
        (Effect::Append { db: db(0), key, suffix: b"xy" }, b"\x12\x00\x03key\x02xy"),
        (Effect::SetRange { db: db(0), key, offset: 300, bytes: b"" }, b"\x13\x00\x03key\xac\x02\x00"),
        (
            Effect::PutLibrary { name: b"lib", code: b"xy", functions },
            b"\x78\x03lib\x02xy\x03\x01f\x02\x01\x00\x00",
        ),
        (Effect::DropLibrary { name: b"lib" }, b"\x79\x03lib"),
        (Effect::PutSetting { name: b"name", value: b"x" }, b"\x7a\x04name\x01x"),
        (Effect::DropSetting { name: b"name" }, b"\x7b\x04name"),
        (Effect::FlushDb { db: db(3) }, b"\xf0\x03"),
        (Effect::FlushAll, b"\xf1"),
        (Effect::SwapDb { a: db(4), b: db(5) }, b"\xf2\x04\x05"),
    ];
    for (effect, bytes) in golden.into_iter().chain(collections()).chain(streams()) {
        assert_eq!(encoded(&effect), bytes, "{effect:?}");
        let mut input = bytes;
        assert_eq!(Effect::decode_next(&mut input), Ok(Some(effect)));
        assert_eq!(Effect::decode_next(&mut input), Ok(None));
    }
}

/// Every effect on a collection with its bytes.
fn collections() -> Vec<(Effect<'static>, &'static [u8])> {
    const ITEMS: Items<'static> = Items::Slices(&[b"a", b"bc"]);
    const SCORED: ScoredItems<'static> = ScoredItems::Slices(&[(1.0, b"a")]);
    let (db, key) = (DbId::new(2).expect("a database"), b"k".as_slice());
    let put = |value, expire_at_ms| Effect::Put { db, key, value, expire_at_ms };
    let (head, tail) = (ListEnd::Head, ListEnd::Tail);
    vec![
        (put(Value::List(ITEMS), None), b"\x14\x02\x01k\x02\x01a\x02bc"),
        (put(Value::List(ITEMS), Some(5)), b"\x15\x02\x01k\x02\x01a\x02bc\x05"),
        (put(Value::Set(ITEMS), None), b"\x16\x02\x01k\x02\x01a\x02bc"),
        (put(Value::Set(ITEMS), Some(5)), b"\x17\x02\x01k\x02\x01a\x02bc\x05"),
        (put(Value::Zset(SCORED), None), b"\x18\x02\x01k\x01\0\0\0\0\0\0\xf0\x3f\x01a"),
        (put(Value::Zset(SCORED), Some(5)), b"\x19\x02\x01k\x01\0\0\0\0\0\0\xf0\x3f\x01a\x05"),
        (put(Value::Hash(ITEMS), None), b"\x1a\x02\x01k\x02\x01a\x02bc"),
        (put(Value::Hash(ITEMS), Some(5)), b"\x1b\x02\x01k\x02\x01a\x02bc\x05"),
        (Effect::ListPush { db, key, end: head, items: ITEMS }, b"\x20\x02\x01k\x02\x01a\x02bc"),
        (Effect::ListPush { db, key, end: tail, items: ITEMS }, b"\x21\x02\x01k\x02\x01a\x02bc"),
        (Effect::ListPop { db, key, end: head, count: 3 }, b"\x22\x02\x01k\x03"),
        (Effect::ListPop { db, key, end: tail, count: 300 }, b"\x23\x02\x01k\xac\x02"),
        (Effect::ListSet { db, key, index: 1, item: b"x" }, b"\x24\x02\x01k\x01\x01x"),
        (Effect::ListInsert { db, key, index: 1, item: b"x" }, b"\x25\x02\x01k\x01\x01x"),
        (Effect::ListRemove { db, key, end: head, count: 0, item: b"x" }, b"\x26\x02\x01k\x00\x01x"),
        (Effect::ListRemove { db, key, end: tail, count: 1, item: b"x" }, b"\x27\x02\x01k\x01\x01x"),
        (Effect::SetAdd { db, key, members: ITEMS }, b"\x30\x02\x01k\x02\x01a\x02bc"),
        (Effect::SetRemove { db, key, members: ITEMS }, b"\x31\x02\x01k\x02\x01a\x02bc"),
        (Effect::ZsetPut { db, key, members: SCORED }, b"\x40\x02\x01k\x01\0\0\0\0\0\0\xf0\x3f\x01a"),
        (Effect::ZsetRemove { db, key, members: ITEMS }, b"\x41\x02\x01k\x02\x01a\x02bc"),
        (Effect::ZsetRemoveRanks { db, key, first: 1, count: 2 }, b"\x42\x02\x01k\x01\x02"),
        (Effect::HashPut { db, key, pairs: ITEMS }, b"\x50\x02\x01k\x02\x01a\x02bc"),
        (Effect::HashUpdate { db, key, pairs: ITEMS }, b"\x51\x02\x01k\x02\x01a\x02bc"),
        (Effect::HashRemove { db, key, fields: ITEMS }, b"\x52\x02\x01k\x02\x01a\x02bc"),
        (
            Effect::HashSetExpiry { db, key, fields: ITEMS, expire_at_ms: None },
            b"\x53\x02\x01k\x02\x01a\x02bc",
        ),
        (
            Effect::HashSetExpiry { db, key, fields: ITEMS, expire_at_ms: Some(5) },
            b"\x54\x02\x01k\x02\x01a\x02bc\x05",
        ),
    ]
}

/// Every effect on a stream with its bytes.
fn streams() -> Vec<(Effect<'static>, &'static [u8])> {
    const PAIRS: Items<'static> = Items::Slices(&[b"f", b"12"]);
    const IDS: Listed<'static, StreamId> = Listed::Slices(&[StreamId::new(1, 2), StreamId::new(300, 0)]);
    const DELIVERIES: Listed<'static, Delivery> =
        Listed::Slices(&[Delivery { id: StreamId::new(1, 2), time_ms: 300, count: 4 }]);
    const BLOCK: &[u8] = b"\x05\x01\x01\x01f\x06\x00\x00\x0c\x0f\x02\x03\x01\x01g\x81x";
    let (db, key) = (DbId::new(2).expect("a database"), b"k".as_slice());
    let (group, consumer) = (b"g".as_slice(), b"c".as_slice());
    let head =
        StreamHead { last_id: StreamId::new(7, 8), max_deleted_id: StreamId::new(5, 6), entries_added: 300 };
    let put = |expire_at_ms| Effect::Put { db, key, value: Value::Stream(head), expire_at_ms };
    let id = StreamId::new(300, 1);
    let at = |entries_read| GroupPosition { last_id: id, entries_read };
    let seen = |active_ms| ConsumerTimes { seen_ms: 9, active_ms };
    let block = StreamBlock::verify(BLOCK).expect("a block");
    let put_group = |position| Effect::StreamPutGroup { db, key, group, position };
    let put_consumer = |times| Effect::StreamPutConsumer { db, key, group, consumer, times };
    vec![
        (put(None), b"\x1c\x02\x01k\x07\x08\x05\x06\xac\x02"),
        (put(Some(5)), b"\x1d\x02\x01k\x07\x08\x05\x06\xac\x02\x05"),
        (Effect::StreamAdd { db, key, id, pairs: PAIRS }, b"\x60\x02\x01k\xac\x02\x01\x02\x01f\x0212"),
        (
            Effect::StreamAddBlock { db, key, block },
            b"\x61\x02\x01k\x11\x05\x01\x01\x01f\x06\x00\x00\x0c\x0f\x02\x03\x01\x01g\x81x",
        ),
        (Effect::StreamTrim { db, key, through: id }, b"\x62\x02\x01k\xac\x02\x01"),
        (Effect::StreamDelete { db, key, ids: IDS }, b"\x63\x02\x01k\x02\x01\x02\xac\x02\x00"),
        (Effect::StreamSetHead { db, key, head }, b"\x64\x02\x01k\x07\x08\x05\x06\xac\x02"),
        (put_group(at(None)), b"\x65\x02\x01k\x01g\xac\x02\x01\x00"),
        (put_group(at(Some(0))), b"\x65\x02\x01k\x01g\xac\x02\x01\x01"),
        (Effect::StreamDropGroup { db, key, group }, b"\x66\x02\x01k\x01g"),
        (put_consumer(seen(None)), b"\x67\x02\x01k\x01g\x01c\x09\x00"),
        (put_consumer(seen(Some(9))), b"\x67\x02\x01k\x01g\x01c\x09\x0a"),
        (Effect::StreamDropConsumer { db, key, group, consumer }, b"\x68\x02\x01k\x01g\x01c"),
        (
            Effect::StreamPend { db, key, group, consumer, deliveries: DELIVERIES },
            b"\x69\x02\x01k\x01g\x01c\x01\x01\x02\xac\x02\x04",
        ),
        (Effect::StreamUnpend { db, key, group, ids: IDS }, b"\x6a\x02\x01k\x01g\x02\x01\x02\xac\x02\x00"),
    ]
}

#[test]
fn a_block_that_is_none_is_refused() {
    // No entry; an entry that is longer than it says; ids that do not ascend; one above all ids.
    for block in [
        &b"\x05\x01\x01\x01f"[..],
        b"\x05\x01\x01\x01f\x04\x00\x00\x0c",
        b"\x05\x01\x01\x01f\x06\x00\x00\x0c\x06\x00\x00\x0c",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01\x01f\x06\x01\x00\x0c",
    ] {
        let bytes = [b"\x61\x00\x01k".as_slice(), &[block.len() as u8], block].concat();
        assert_eq!(Effect::decode_next(&mut &bytes[..]), Err(EffectError::MalformedBlock), "{block:02x?}");
    }
}

#[test]
fn items_that_are_no_items_are_refused() {
    let cases: [(&[u8], EffectError); 4] = [
        (b"\x30\x00\x01k\x02\x01a", EffectError::Truncated),
        (b"\x30\x00\x01k\xff\xff\xff\xff\x0f\x01a", EffectError::Truncated),
        (b"\x50\x00\x01k\x01\x01a", EffectError::Truncated),
        (b"\x40\x00\x01k\x01\0\0\0\0\0\0\xf8\x7f\x01a", EffectError::MalformedNumber),
    ];
    for (bytes, error) in cases {
        let mut input = bytes;
        assert_eq!(Effect::decode_next(&mut input), Err(error), "{bytes:?}");
    }
}

#[test]
fn malformed_effects_are_named_and_leave_the_input_alone() {
    let cases: [(&[u8], EffectError); 7] = [
        (b"\x00", EffectError::UnknownOpcode(0)),
        (b"\x7f\x00", EffectError::UnknownOpcode(0x7f)),
        (b"\x01\x10\x00", EffectError::UnknownDb(16)),
        (b"\x01\x00\x05key", EffectError::Truncated),
        (b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", EffectError::Truncated),
        (b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", EffectError::MalformedNumber),
        (b"\x01\x00\x83\x00key", EffectError::MalformedNumber),
    ];
    for (bytes, error) in cases {
        let mut input = bytes;
        assert_eq!(Effect::decode_next(&mut input), Err(error), "{bytes:02x?}");
        assert_eq!(input, bytes);
    }
}

#[test]
fn scopes_name_the_key() {
    assert_eq!(Effect::Delete { db: db(0), key: b"k" }.scope(), Scope::Slot(b"k"));
    assert_eq!(Effect::SwapDb { a: db(0), b: db(1) }.scope(), Scope::Global);
    assert_eq!(Effect::FlushAll.key(), None);
    let drop = Effect::DropLibrary { name: b"lib" };
    assert_eq!((drop.scope(), drop.target()), (Scope::Slot(b""), None));
    let renames = Effect::Move { db: db(0), key: b"a", to_db: db(1), to_key: b"b" };
    assert_eq!((renames.scope(), renames.target()), (Scope::Two(b"a", b"b"), None));
}

/// An owned effect that proptest can make and shrink.
#[derive(Clone, Debug)]
struct Owned {
    kind: u8,
    db: DbId,
    other: DbId,
    key: Vec<u8>,
    bytes: Vec<u8>,
    number: u64,
}

impl Owned {
    fn effect(&self) -> Effect<'_> {
        let (db, key, bytes) = (self.db, &self.key[..], &self.bytes[..]);
        let expire_at_ms = (!self.number.is_multiple_of(3)).then_some(self.number);
        match self.kind {
            0 => Effect::Put { db, key, value: Value::String(bytes), expire_at_ms },
            1 => Effect::Delete { db, key },
            2 => Effect::SetExpiry { db, key, expire_at_ms },
            3 => Effect::Append { db, key, suffix: bytes },
            4 => Effect::SetRange { db, key, offset: self.number, bytes },
            5 => Effect::FlushDb { db },
            6 => Effect::FlushAll,
            7 => Effect::Move { db, key, to_db: self.other, to_key: bytes },
            8 => Effect::PutLibrary { name: key, code: bytes, functions: Items::EMPTY },
            9 => Effect::DropLibrary { name: key },
            10 => Effect::PutSetting { name: key, value: bytes },
            11 => Effect::DropSetting { name: key },
            _ => Effect::SwapDb { a: db, b: self.other },
        }
    }
}

fn owned() -> impl Strategy<Value = Owned> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let number = (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift);
    (0u8..13, 0u8..16, 0u8..16, bytes(), bytes(), number).prop_map(|(kind, a, b, key, bytes, number)| Owned {
        kind,
        db: db(a),
        other: db(b),
        key,
        bytes,
        number,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn a_record_of_effects_round_trips_and_every_cut_is_noticed(
        effects in prop::collection::vec(owned(), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for effect in &effects {
            effect.effect().encode_into(&mut bytes);
            ends.push(bytes.len());
        }
        let mut input = &bytes[..];
        for effect in &effects {
            prop_assert_eq!(Effect::decode_next(&mut input), Ok(Some(effect.effect())));
        }
        prop_assert_eq!(Effect::decode_next(&mut input), Ok(None));

        let cut = cut.index(bytes.len() + 1);
        let mut input = &bytes[..cut];
        let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
        for _ in 0..whole {
            prop_assert!(matches!(Effect::decode_next(&mut input), Ok(Some(_))));
        }
        let expected = if ends.contains(&cut) { Ok(None) } else { Err(EffectError::Truncated) };
        prop_assert_eq!(Effect::decode_next(&mut input), expected);
    }

    #[test]
    fn arbitrary_bytes_decode_to_what_encodes_to_them_or_not_at_all(
        mut bytes in prop::collection::vec(any::<u8>(), 1..64),
        opcode in prop::sample::select(&[1u8, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x78, 0x79, 0xf0, 0xf1, 0xf2][..]),
    ) {
        for start in [bytes[0], opcode] {
            bytes[0] = start;
            let mut input = &bytes[..];
            while let Ok(Some(effect)) = Effect::decode_next(&mut input) {
                let again = encoded(&effect);
                let before = bytes.len() - input.len() - again.len();
                prop_assert_eq!(&bytes[before..][..again.len()], &again[..]);
            }
        }
    }
}
