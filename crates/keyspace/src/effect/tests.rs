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
        (KeyOp::Delete.on(db(1), key), b"\x01\x01\x03key"),
        (KeyOp::SetExpiry { expire_at_ms: None }.on(db(2), key), b"\x02\x02\x03key"),
        (
            KeyOp::SetExpiry { expire_at_ms: deadline_ms }.on(db(0), key),
            b"\x03\x00\x03key\x80\xd0\x95\xff\xbc\x31",
        ),
        (Effect::Move { db: db(1), key, to_db: db(2), to_key: b"new" }, b"\x04\x01\x03key\x02\x03new"),
        (KeyOp::Put { value, expire_at_ms: None }.on(db(0), key), b"\x10\x00\x03key\x01v"),
        (
            KeyOp::Put { value, expire_at_ms: deadline_ms }.on(db(15), key),
            b"\x11\x0f\x03key\x01v\x80\xd0\x95\xff\xbc\x31",
        ),
        (KeyOp::Append { suffix: b"xy" }.on(db(0), key), b"\x12\x00\x03key\x02xy"),
        (KeyOp::SetRange { offset: 300, bytes: b"" }.on(db(0), key), b"\x13\x00\x03key\xac\x02\x00"),
        (
            Effect::Library { name: b"lib", content: Some(LibraryContent { code: b"xy", functions }) },
            b"\x78\x03lib\x02xy\x03\x01f\x02\x01\x00\x00",
        ),
        (Effect::Library { name: b"lib", content: None }, b"\x79\x03lib"),
        (Effect::Setting { name: b"name", value: Some(b"x") }, b"\x7a\x04name\x01x"),
        (Effect::Setting { name: b"name", value: None }, b"\x7b\x04name"),
        (Effect::Global(GlobalOp::FlushDb { db: db(3) }), b"\xf0\x03"),
        (Effect::Global(GlobalOp::FlushAll), b"\xf1"),
        (Effect::Global(GlobalOp::SwapDb { a: db(4), b: db(5) }), b"\xf2\x04\x05"),
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
    let put = |value, expire_at_ms| KeyOp::Put { value, expire_at_ms }.on(db, key);
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
        (KeyOp::ListPush { end: head, items: ITEMS }.on(db, key), b"\x20\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::ListPush { end: tail, items: ITEMS }.on(db, key), b"\x21\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::ListPop { end: head, count: 3 }.on(db, key), b"\x22\x02\x01k\x03"),
        (KeyOp::ListPop { end: tail, count: 300 }.on(db, key), b"\x23\x02\x01k\xac\x02"),
        (KeyOp::ListSet { index: 1, item: b"x" }.on(db, key), b"\x24\x02\x01k\x01\x01x"),
        (KeyOp::ListInsert { index: 1, item: b"x" }.on(db, key), b"\x25\x02\x01k\x01\x01x"),
        (KeyOp::ListRemove { end: head, count: 0, item: b"x" }.on(db, key), b"\x26\x02\x01k\x00\x01x"),
        (KeyOp::ListRemove { end: tail, count: 1, item: b"x" }.on(db, key), b"\x27\x02\x01k\x01\x01x"),
        (KeyOp::SetAdd { members: ITEMS }.on(db, key), b"\x30\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::SetRemove { members: ITEMS }.on(db, key), b"\x31\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::ZsetPut { members: SCORED }.on(db, key), b"\x40\x02\x01k\x01\0\0\0\0\0\0\xf0\x3f\x01a"),
        (KeyOp::ZsetRemove { members: ITEMS }.on(db, key), b"\x41\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::ZsetRemoveRanks { first: 1, count: 2 }.on(db, key), b"\x42\x02\x01k\x01\x02"),
        (KeyOp::HashPut { pairs: ITEMS }.on(db, key), b"\x50\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::HashUpdate { pairs: ITEMS }.on(db, key), b"\x51\x02\x01k\x02\x01a\x02bc"),
        (KeyOp::HashRemove { fields: ITEMS }.on(db, key), b"\x52\x02\x01k\x02\x01a\x02bc"),
        (
            KeyOp::HashSetExpiry { fields: ITEMS, expire_at_ms: None }.on(db, key),
            b"\x53\x02\x01k\x02\x01a\x02bc",
        ),
        (
            KeyOp::HashSetExpiry { fields: ITEMS, expire_at_ms: Some(5) }.on(db, key),
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
    let put = |expire_at_ms| KeyOp::Put { value: Value::Stream(head), expire_at_ms }.on(db, key);
    let id = StreamId::new(300, 1);
    let at = |entries_read| GroupPosition { last_id: id, entries_read };
    let seen = |active_ms| ConsumerTimes { seen_ms: 9, active_ms };
    let block = StreamBlock::verify(BLOCK).expect("a block");
    let put_group = |position| KeyOp::StreamPutGroup { group, position }.on(db, key);
    let put_consumer = |times| KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key);
    vec![
        (put(None), b"\x1c\x02\x01k\x07\x08\x05\x06\xac\x02"),
        (put(Some(5)), b"\x1d\x02\x01k\x07\x08\x05\x06\xac\x02\x05"),
        (KeyOp::StreamAdd { id, pairs: PAIRS }.on(db, key), b"\x60\x02\x01k\xac\x02\x01\x02\x01f\x0212"),
        (
            KeyOp::StreamAddBlock { block }.on(db, key),
            b"\x61\x02\x01k\x11\x05\x01\x01\x01f\x06\x00\x00\x0c\x0f\x02\x03\x01\x01g\x81x",
        ),
        (KeyOp::StreamTrim { through: id }.on(db, key), b"\x62\x02\x01k\xac\x02\x01"),
        (KeyOp::StreamDelete { ids: IDS }.on(db, key), b"\x63\x02\x01k\x02\x01\x02\xac\x02\x00"),
        (KeyOp::StreamSetHead { head }.on(db, key), b"\x64\x02\x01k\x07\x08\x05\x06\xac\x02"),
        (put_group(at(None)), b"\x65\x02\x01k\x01g\xac\x02\x01\x00"),
        (put_group(at(Some(0))), b"\x65\x02\x01k\x01g\xac\x02\x01\x01"),
        (KeyOp::StreamDropGroup { group }.on(db, key), b"\x66\x02\x01k\x01g"),
        (put_consumer(seen(None)), b"\x67\x02\x01k\x01g\x01c\x09\x00"),
        (put_consumer(seen(Some(9))), b"\x67\x02\x01k\x01g\x01c\x09\x0a"),
        (KeyOp::StreamDropConsumer { group, consumer }.on(db, key), b"\x68\x02\x01k\x01g\x01c"),
        (
            KeyOp::StreamPend { group, consumer, deliveries: DELIVERIES }.on(db, key),
            b"\x69\x02\x01k\x01g\x01c\x01\x01\x02\xac\x02\x04",
        ),
        (KeyOp::StreamUnpend { group, ids: IDS }.on(db, key), b"\x6a\x02\x01k\x01g\x02\x01\x02\xac\x02\x00"),
    ]
}

#[test]
fn a_block_that_is_none_is_refused() {
    // A block without entries; an entry that is longer than its length field says; ids that do not ascend; an
    // id that exceeds the highest possible one.
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
fn a_value_without_elements_is_refused() {
    let none = Items::Slices(&[]);
    let members = ScoredItems::Slices(&[]);
    for value in [Value::List(none), Value::Set(none), Value::Hash(none), Value::Zset(members)] {
        for expire_at_ms in [None, Some(5)] {
            let bytes = encoded(&KeyOp::Put { value, expire_at_ms }.on(db(0), b"key"));
            let error = Effect::decode_next(&mut &bytes[..]).map(|_| ()).expect_err("no value");
            assert_eq!(error, EffectError::EmptyCollection);
        }
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
    assert_eq!(KeyOp::Delete.on(db(0), b"k").scope(), Scope::Slot(b"k"));
    assert_eq!(Effect::Global(GlobalOp::SwapDb { a: db(0), b: db(1) }).scope(), Scope::Global);
    assert_eq!(Effect::Global(GlobalOp::FlushAll).key(), None);
    let drop = Effect::Library { name: b"lib", content: None };
    assert_eq!((drop.scope(), drop.target()), (Scope::Slot(b""), None));
    let renames = Effect::Move { db: db(0), key: b"a", to_db: db(1), to_key: b"b" };
    assert_eq!((renames.scope(), renames.target()), (Scope::Two(b"a", b"b"), None));
}

#[test]
fn a_range_beyond_the_longest_string_is_refused() {
    let decoded = |offset, bytes| {
        let mut encoded = Vec::new();
        KeyOp::SetRange { offset, bytes }.on(db(0), b"key").encode_into(&mut encoded);
        Effect::decode_next(&mut &encoded[..]).map(|effect| effect.is_some())
    };
    assert_eq!(decoded(STRING_BYTES_MAX - 1, b"x"), Ok(true));
    for (offset, bytes) in [(STRING_BYTES_MAX - 1, &b"xy"[..]), (u64::MAX, b""), (u64::MAX, b"x")] {
        assert_eq!(decoded(offset, bytes), Err(EffectError::MalformedNumber), "{offset}");
    }
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
            0 => KeyOp::Put { value: Value::String(bytes), expire_at_ms }.on(db, key),
            1 => KeyOp::Delete.on(db, key),
            2 => KeyOp::SetExpiry { expire_at_ms }.on(db, key),
            3 => KeyOp::Append { suffix: bytes }.on(db, key),
            4 => KeyOp::SetRange { offset: self.number % (STRING_BYTES_MAX / 2), bytes }.on(db, key),
            5 => Effect::Global(GlobalOp::FlushDb { db }),
            6 => Effect::Global(GlobalOp::FlushAll),
            7 => Effect::Move { db, key, to_db: self.other, to_key: bytes },
            8 => Effect::Library {
                name: key,
                content: Some(LibraryContent { code: bytes, functions: Items::EMPTY }),
            },
            9 => Effect::Library { name: key, content: None },
            10 => Effect::Setting { name: key, value: Some(bytes) },
            11 => Effect::Setting { name: key, value: None },
            _ => Effect::Global(GlobalOp::SwapDb { a: db, b: self.other }),
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
    fn arbitrary_bytes_are_refused_or_encode_to_themselves(
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
