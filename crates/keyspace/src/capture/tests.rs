//! A capture, during which effects are applied, holds the content of each slot at its moment.

use std::collections::BTreeMap;

use lsn::Lsn;
use proptest::prelude::*;

use super::{Capture, LoadError, Loader};
use crate::{
    AccessClock, ConsumerTimes, DbId, Delivery, Effect, Freed, GlobalOp, GroupPosition, Items, KeyOp,
    Keyspace, ListEnd, Listed, Options, PackedLimits, ScoredItems, SlotId, StreamId, Value, ValueBuf,
};

/// The only group that the streams have.
const GROUP: &[u8] = b"group";

type Content = BTreeMap<(u8, Vec<u8>), (ValueBuf, Option<u64>)>;

fn keyspace(seed: u64) -> Keyspace {
    let keyspace = Keyspace::new(Options { hash_seed: seed });
    // With limits this low, a collection of more than a few members is big.
    keyspace.set_packed_limits(PackedLimits {
        hash_entries: 4,
        set_entries: 4,
        set_integers: 4,
        zset_entries: 4,
        list_entries: 4,
        ..PackedLimits::DEFAULT
    });
    keyspace
}

fn content(keyspace: &Keyspace) -> Content {
    let mut content = Content::new();
    for slot in SlotId::all() {
        let guard = keyspace.lock(slot);
        for db in DbId::all() {
            for entry in guard.entries(db) {
                let value = (ValueBuf::of(entry), entry.expire_at_ms());
                content.insert((db.get(), entry.key().to_vec()), value);
            }
        }
    }
    content
}

fn db(number: u8) -> DbId {
    DbId::new(number).expect("a database")
}

/// All keys are in one slot, so all are captured as they are when the first piece is filled.
fn key(number: u8) -> Vec<u8> {
    format!("{{one}}{number}").into_bytes()
}

/// The members of a change, in a range that overlaps with the ranges of other changes.
fn members(from: u16, count: u16) -> Vec<Vec<u8>> {
    (from..from + count).map(|number| format!("member:{number}").into_bytes()).collect()
}

#[derive(Clone, Debug)]
enum Change {
    String(u16),
    /// Small strings at the key and at this many further keys.
    Fill(u8),
    Append(u16),
    Push(ListEnd, u16),
    Pop(ListEnd, u16),
    ListSet(u16),
    ListInsert(u16),
    SetAdd(u16, u16),
    SetRemove(u16, u16),
    ZsetPut(u16, u16, i8),
    ZsetRemove(u16, u16),
    ZsetRemoveRanks(u16, u16),
    HashPut(u16, u16),
    HashRemove(u16, u16),
    HashExpire(u16, u16, u64),
    StreamAdd(u16),
    StreamTrim(u16),
    StreamDelete(u16),
    StreamPend(u16),
    StreamUnpend(u16),
    StreamDropGroup,
    Expire(u64),
    Delete,
    MoveTo(u8, u8),
    FlushDb,
    FlushAll,
    Swap(u8, u8),
}

/// Applies a change to a key as one record, at this position.
fn apply(keyspace: &Keyspace, (db_number, key_number, change): &(u8, u8, Change), lsn: u64) {
    let (db, key) = (db(*db_number), key(*key_number));
    let key = key.as_slice();
    let mut freed = Freed::new();
    let mut run = |effect: Effect<'_>| {
        let mut slot = keyspace.lock(crate::slot_of(key));
        slot.apply(&effect, AccessClock::default(), &mut freed);
        slot.set_last_lsn(Lsn::new(lsn));
    };
    let add = |from: u16, count: u16, visit: &mut dyn FnMut(Items<'_>)| {
        let members = members(from, count);
        visit(Items::Slices(&members.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    };
    match *change {
        Change::String(len) => {
            let bytes = vec![b'x'; len.into()];
            run(KeyOp::Put { value: Value::String(&bytes), expire_at_ms: None }.on(db, key));
        }
        Change::Fill(count) => {
            for number in *key_number..key_number.saturating_add(count) {
                let (key, text) = (self::key(number), lsn.to_string());
                let value = Value::String(text.as_bytes());
                run(KeyOp::Put { value, expire_at_ms: (number % 5 == 0).then_some(lsn) }.on(db, &key));
            }
        }
        Change::Append(count) => {
            let is_string = |entry: crate::EntryRef<'_>| entry.value_type() == crate::ValueType::String;
            let is_possible = {
                let slot = keyspace.lock(crate::slot_of(key));
                slot.get_raw(db, &keyspace.hash(key), key).is_none_or(is_string)
            };
            match is_possible {
                true => run(KeyOp::Append { suffix: &vec![b'y'; count.into()] }.on(db, key)),
                false => run(KeyOp::Delete.on(db, key)),
            }
        }
        Change::Push(end, count) => {
            add(0, count, &mut |items| run(KeyOp::ListPush { end, items }.on(db, key)))
        }
        Change::Pop(end, count) => run(KeyOp::ListPop { end, count: count.into() }.on(db, key)),
        Change::ListSet(index) => run(KeyOp::ListSet { index: index.into(), item: b"another" }.on(db, key)),
        Change::ListInsert(index) => {
            run(KeyOp::ListInsert { index: index.into(), item: b"between" }.on(db, key))
        }
        Change::SetAdd(from, count) => {
            add(from, count, &mut |members| run(KeyOp::SetAdd { members }.on(db, key)))
        }
        Change::SetRemove(from, count) => {
            add(from, count, &mut |members| run(KeyOp::SetRemove { members }.on(db, key)));
        }
        Change::ZsetPut(from, count, score) => {
            let names = members(from, count);
            let scored: Vec<(f64, &[u8])> = names
                .iter()
                .enumerate()
                .map(|(n, name)| (f64::from(score) + n as f64, name.as_slice()))
                .collect();
            run(KeyOp::ZsetPut { members: ScoredItems::Slices(&scored) }.on(db, key));
        }
        Change::ZsetRemove(from, count) => {
            add(from, count, &mut |members| run(KeyOp::ZsetRemove { members }.on(db, key)));
        }
        Change::ZsetRemoveRanks(first, count) => {
            run(KeyOp::ZsetRemoveRanks { first: first.into(), count: count.into() }.on(db, key));
        }
        Change::HashPut(from, count) => {
            add(from, count * 2, &mut |pairs| run(KeyOp::HashPut { pairs }.on(db, key)));
        }
        Change::HashRemove(from, count) => {
            add(from, count, &mut |fields| run(KeyOp::HashRemove { fields }.on(db, key)));
        }
        Change::HashExpire(from, count, at_ms) => add(from, count, &mut |fields| {
            run(KeyOp::HashSetExpiry { fields, expire_at_ms: Some(at_ms) }.on(db, key));
        }),
        Change::StreamAdd(count) => {
            for seq in 0..count.into() {
                let (id, value) = (StreamId::new(lsn, seq), seq.to_string());
                let pairs = Items::Slices(&[b"field", value.as_bytes()]);
                run(KeyOp::StreamAdd { id, pairs }.on(db, key));
            }
        }
        Change::StreamTrim(seq) => {
            run(KeyOp::StreamTrim { through: StreamId::new(lsn / 2, seq.into()) }.on(db, key));
        }
        Change::StreamDelete(step) => {
            let ids: Vec<_> = (0..lsn).map(|ms| StreamId::new(ms, step.into())).collect();
            run(KeyOp::StreamDelete { ids: Listed::Slices(&ids) }.on(db, key));
        }
        Change::StreamPend(count) => {
            let (group, consumer) = (GROUP, if count % 2 == 0 { b"one" } else { b"two" });
            let deliveries: Vec<_> = (0..count.into())
                .map(|seq| Delivery { id: StreamId::new(1, seq), time_ms: lsn, count: 1 })
                .collect();
            let position = GroupPosition { last_id: StreamId::new(lsn, 0), entries_read: Some(lsn) };
            let times = ConsumerTimes { seen_ms: lsn, active_ms: None };
            run(KeyOp::StreamPutGroup { group, position }.on(db, key));
            run(KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key));
            run(KeyOp::StreamPend { group, consumer, deliveries: Listed::Slices(&deliveries) }.on(db, key));
        }
        Change::StreamUnpend(count) => {
            let ids: Vec<_> = (0..count.into()).map(|seq| StreamId::new(1, seq * 2)).collect();
            run(KeyOp::StreamUnpend { group: GROUP, ids: Listed::Slices(&ids) }.on(db, key));
        }
        Change::StreamDropGroup => run(KeyOp::StreamDropGroup { group: GROUP }.on(db, key)),
        Change::Expire(at_ms) => run(KeyOp::SetExpiry { expire_at_ms: Some(at_ms) }.on(db, key)),
        Change::Delete => run(KeyOp::Delete.on(db, key)),
        Change::MoveTo(to_db, other) => {
            let to_key = self::key(other);
            run(Effect::Move { db, key, to_db: self::db(to_db), to_key: &to_key });
        }
        Change::FlushDb => run(Effect::Global(GlobalOp::FlushDb { db })),
        Change::FlushAll => run(Effect::Global(GlobalOp::FlushAll)),
        Change::Swap(a, b) => run(Effect::Global(GlobalOp::SwapDb { a: self::db(a), b: self::db(b) })),
    }
}

fn any_change() -> impl Strategy<Value = (u8, u8, Change)> {
    let end = || prop_oneof![Just(ListEnd::Head), Just(ListEnd::Tail)];
    // Several segments of a field map, and several chunks of a list.
    let (at, some) = (|| 0..3000u16, || 1..1500u16);
    let change = prop_oneof![
        2 => some().prop_map(Change::String),
        2 => (1..100u8).prop_map(Change::Fill),
        2 => some().prop_map(Change::Append),
        4 => (end(), some()).prop_map(|(end, count)| Change::Push(end, count)),
        2 => (end(), some()).prop_map(|(end, count)| Change::Pop(end, count)),
        2 => at().prop_map(Change::ListSet),
        2 => at().prop_map(Change::ListInsert),
        4 => (at(), some()).prop_map(|(from, count)| Change::SetAdd(from, count)),
        2 => (at(), some()).prop_map(|(from, count)| Change::SetRemove(from, count)),
        4 => (at(), some(), any::<i8>()).prop_map(|(from, count, score)| Change::ZsetPut(from, count, score)),
        2 => (at(), some()).prop_map(|(from, count)| Change::ZsetRemove(from, count)),
        2 => (at(), some()).prop_map(|(first, count)| Change::ZsetRemoveRanks(first, count)),
        4 => (at(), some()).prop_map(|(from, count)| Change::HashPut(from, count)),
        2 => (at(), some()).prop_map(|(from, count)| Change::HashRemove(from, count)),
        2 => (at(), 1..20u16, 1..100u64).prop_map(|(from, count, ms)| Change::HashExpire(from, count, ms)),
        4 => (1..400u16).prop_map(Change::StreamAdd),
        2 => (0..400u16).prop_map(Change::StreamTrim),
        2 => (0..400u16).prop_map(Change::StreamDelete),
        3 => (1..200u16).prop_map(Change::StreamPend),
        2 => (1..200u16).prop_map(Change::StreamUnpend),
        1 => Just(Change::StreamDropGroup),
        1 => (1..100u64).prop_map(Change::Expire),
        2 => Just(Change::Delete),
        1 => (0..3u8, 0..6u8).prop_map(|(db, key)| Change::MoveTo(db, key)),
        1 => Just(Change::FlushDb),
        1 => Just(Change::FlushAll),
        1 => (0..4u8, 0..4u8).prop_map(|(a, b)| Change::Swap(a, b)),
    ];
    (0..3u8, prop_oneof![0..6u8, 0..120u8], change)
}

fn load(pieces: &[Vec<u8>]) -> Keyspace {
    let loaded = keyspace(9);
    let mut loader = Loader::new(&loaded, AccessClock::default());
    pieces.iter().for_each(|piece| loader.feed(piece).expect("what was captured loads"));
    loader.finish().expect("it is whole");
    loaded
}

proptest! {
    #[test]
    fn a_slot_is_captured_as_it_was_at_one_moment(
        before in prop::collection::vec(any_change(), 1..25),
        during in prop::collection::vec(any_change(), 0..25),
        aim_bytes in prop_oneof![Just(1usize), 500..20_000usize, Just(1 << 30)],
        max_bytes in prop_oneof![1..60_000usize, Just(1 << 30)],
    ) {
        let keyspace = keyspace(3);
        before.iter().zip(1..).for_each(|(change, lsn)| apply(&keyspace, change, lsn));
        let (expected, lsn) = (content(&keyspace), before.len() as u64);
        let slot = crate::slot_of(&key(0));

        let mut capture = Capture::new(&keyspace, slot, slot);
        let (mut pieces, mut piece, mut changes) = (Vec::new(), Vec::new(), during.iter().zip(lsn + 1..));
        while let Some(captured) = capture.fill(&mut piece, aim_bytes, max_bytes) {
            prop_assert_eq!(captured.continues, !pieces.is_empty());
            prop_assert_eq!((captured.first_slot, captured.lsn), (slot, Lsn::new(lsn)));
            prop_assert!(piece.len() <= max_bytes);
            pieces.push(std::mem::take(&mut piece));
            if let Some((change, lsn)) = changes.next() {
                apply(&keyspace, change, lsn);
                keyspace.lock(slot).check();
            }
        }
        drop(capture);
        keyspace.check();
        let loaded = load(&pieces);
        loaded.check();
        prop_assert_eq!(content(&loaded), expected);
        prop_assert_eq!(loaded.lock(slot).last_lsn(), Lsn::new(lsn));
        // The capture has left nothing in the slot, which can be captured again.
        changes.for_each(|(change, lsn)| apply(&keyspace, change, lsn));
        let mut again = Capture::new(&keyspace, slot, slot);
        prop_assert!(again.fill(&mut piece, usize::MAX, usize::MAX).is_some());
        prop_assert_eq!(content(&load(&[piece])), content(&keyspace));
    }

    #[test]
    fn a_capture_that_is_given_up_leaves_nothing(
        changes in prop::collection::vec(any_change(), 1..25),
        steps in 0..6usize,
    ) {
        let keyspace = keyspace(3);
        changes.iter().zip(1..).for_each(|(change, lsn)| apply(&keyspace, change, lsn));
        let slot = crate::slot_of(&key(0));
        let mut piece = Vec::new();
        let mut capture = Capture::new(&keyspace, slot, slot);
        for _ in 0..steps {
            capture.fill(&mut piece, 1000, usize::MAX);
        }
        drop(capture);
        let mut capture = Capture::new(&keyspace, slot, slot);
        prop_assert!(capture.fill(&mut piece, usize::MAX, usize::MAX).is_some());
        prop_assert_eq!(content(&load(&[piece])), content(&keyspace));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), with_head in any::<bool>()) {
        let keyspace = keyspace(3);
        let mut loader = Loader::new(&keyspace, AccessClock::default());
        if with_head {
            loader.feed(&[&[super::HEAD, 1, 0][..], &[0; 12]].concat()).expect("a head");
        }
        let _ = loader.feed(&bytes);
        let _ = loader.finish();
    }
}

#[test]
fn a_row_of_a_key_that_is_there_is_refused() {
    // The list is packed in the keyspace that is captured; the keyspace that loads it may have lower limits.
    let captured = Keyspace::new(Options { hash_seed: 1 });
    let list = members(0, 8);
    for (name, count) in [(1, 8), (2, 2)] {
        let items: Vec<&[u8]> = list[..count].iter().map(Vec::as_slice).collect();
        let value = Value::List(Items::Slices(&items));
        let name = key(name);
        let effect = KeyOp::Put { value, expire_at_ms: None }.on(db(0), &name);
        let mut guard = captured.lock(crate::slot_of(&name));
        guard.apply(&effect, AccessClock::default(), &mut Freed::new());
        guard.set_last_lsn(Lsn::new(1));
    }
    let slot = crate::slot_of(&key(1));
    let mut piece = Vec::new();
    let captured_at_once = Capture::new(&captured, slot, slot).fill(&mut piece, 4096, 1 << 20);
    assert!(captured_at_once.is_some_and(|captured| captured.keys == 2));
    let rows = &piece[super::HEAD_BYTES..];
    let mut rest = rows;
    while !rest.is_empty() {
        let before = rest;
        super::row::Row::decode_next(&mut rest).expect("a row");
        let row = &before[..before.len() - rest.len()];
        let loaded = keyspace(9);
        let mut loader = Loader::new(&loaded, AccessClock::default());
        assert_eq!(loader.feed(&piece), Ok(()));
        assert_eq!(loader.feed(row), Err(LoadError::KeyInUse(slot)));
    }
}

#[test]
fn every_slot_comes_once_with_its_keys() {
    let keyspace = keyspace(3);
    for number in 0..2000u64 {
        let key = format!("key:{number}").into_bytes();
        let mut slot = keyspace.lock(crate::slot_of(&key));
        let effect = KeyOp::Put { value: Value::String(b"v"), expire_at_ms: None }.on(DbId::ZERO, &key);
        slot.apply(&effect, AccessClock::default(), &mut Freed::new());
        slot.set_last_lsn(slot.last_lsn().max(Lsn::new(number + 1)));
    }
    let expected = content(&keyspace);
    let middle = SlotId::new(8000).expect("a slot");
    let ranges = [(SlotId::FIRST, middle), (middle.next().expect("not the last"), SlotId::LAST)];
    for aim_bytes in [1, 20, 4096] {
        let (mut pieces, mut keys) = (Vec::new(), 0);
        for (first, last) in ranges {
            let mut capture = Capture::new(&keyspace, first, last);
            let mut piece = Vec::new();
            while let Some(captured) = capture.fill(&mut piece, aim_bytes, 1 << 20) {
                assert!(first <= captured.first_slot && captured.first_slot <= last);
                assert!(!captured.continues || aim_bytes < 4096, "a small slot is not torn");
                keys += captured.keys;
                pieces.push(std::mem::take(&mut piece));
            }
            assert_eq!(capture.next_slot(), None);
        }
        assert!(pieces.len() > 10);
        assert_eq!(keys, 2000);
        let loaded = load(&pieces);
        assert_eq!(content(&loaded), expected);
        for slot in SlotId::all() {
            assert_eq!(loaded.lock(slot).last_lsn(), keyspace.lock(slot).last_lsn());
        }
    }
}

#[test]
fn a_move_must_not_go_where_the_snapshot_has_been_already() {
    let keyspace = keyspace(3);
    let (a, b) = (SlotId::FIRST, SlotId::LAST);
    assert!(keyspace.may_move(a, b) && keyspace.may_move(b, a));
    Capture::new(&keyspace, a, a).fill(&mut Vec::new(), 1, 1);
    assert!(keyspace.may_move(a, b) && !keyspace.may_move(b, a));
    keyspace.forget_captured();
    assert!(keyspace.may_move(b, a));
}

/// A replica applies records with Moves; the slot that is already captured is below the others.
#[test]
fn a_value_that_moves_to_where_the_snapshot_has_been_is_captured_before() {
    let mut keys: Vec<_> = (0..200).map(|it| format!("value:{it}").into_bytes()).collect();
    keys.sort_by_key(|key| crate::slot_of(key));
    keys.dedup_by_key(|key| crate::slot_of(key));
    assert!(keys.len() >= 3, "slots apart");
    let [first, second, third] = [0, 1, keys.len() - 1].map(|at| keys[at].clone());
    let [to, from, before] = [&first, &second, &third].map(|key| crate::slot_of(key));
    let large = |name: &[u8]| (0..3000).map(|it| [name, b":", it.to_string().as_bytes()].concat()).collect();
    for is_abandoned in [false, true] {
        let keyspace = keyspace(3);
        let set = |key: &[u8], lsn| {
            let members: Vec<Vec<u8>> = large(key);
            let members: Vec<&[u8]> = members.iter().map(|it| &**it).collect();
            let mut guard = keyspace.lock(crate::slot_of(key));
            let add = KeyOp::SetAdd { members: Items::Slices(&members) }.on(DbId::ZERO, key);
            guard.apply(&add, AccessClock::default(), &mut Freed::new());
            guard.set_last_lsn(Lsn::new(lsn));
        };
        set(&second, 1);
        set(&third, 2);
        let expected = content(&keyspace);
        let mut pieces = Vec::new();
        let mut walk = |first, last| {
            let (mut capture, mut piece) = (Capture::new(&keyspace, first, last), Vec::new());
            while capture.fill(&mut piece, 2000, usize::MAX).is_some() {
                pieces.push(std::mem::take(&mut piece));
            }
        };
        walk(to, to);
        // The second value makes room for the third one, in one record.
        let move_to = |key, to_key| Effect::Move { db: DbId::ZERO, key, to_db: DbId::ZERO, to_key };
        let mut slots = keyspace.lock_many([to, from, before]);
        slots.capture_before_moves(&[(before, from), (from, to)]);
        assert!(keyspace.may_move(from, to) && keyspace.may_move(before, from));
        for effect in [move_to(&second, &first), move_to(&third, &second)] {
            slots.apply(&effect, AccessClock::default(), &mut Freed::new());
        }
        slots.iter_mut().for_each(|slot| slot.set_last_lsn(Lsn::new(3)));
        drop(slots);
        let moved = content(&keyspace);
        assert_ne!(moved, expected);
        if is_abandoned {
            keyspace.forget_captured();
            assert!([to, from, before].iter().all(|&slot| keyspace.lock(slot).state.capture_mut().is_none()));
        }
        walk(from, before);
        let loaded = load(&pieces);
        if is_abandoned {
            let remaining = |slot: SlotId| loaded.lock(slot).last_lsn();
            assert_eq!((remaining(from), remaining(before)), (Lsn::new(3), Lsn::new(3)), "nothing stale");
        } else {
            assert_eq!(content(&loaded), expected, "as before the record");
            assert_eq!(loaded.lock(from).last_lsn(), Lsn::new(1));
        }
        assert_eq!(content(&keyspace), moved);
    }
}

/// Segments split and merge in the middle of a capture.
#[test]
fn a_collection_may_grow_and_shrink_meanwhile() {
    for (before, during) in [
        (Change::SetAdd(0, 6000), Change::SetRemove(3, 5990)),
        (Change::ZsetPut(0, 6000, 1), Change::ZsetRemoveRanks(3, 5990)),
        (Change::HashPut(0, 3000), Change::HashRemove(3, 5990)),
        (Change::SetAdd(0, 600), Change::SetAdd(600, 9000)),
        (Change::StreamAdd(3000), Change::StreamTrim(2000)),
        (Change::StreamAdd(3000), Change::Delete),
    ] {
        let keyspace = keyspace(3);
        apply(&keyspace, &(0, 0, before), 1);
        let (expected, slot) = (content(&keyspace), crate::slot_of(&key(0)));
        let mut capture = Capture::new(&keyspace, slot, slot);
        let (mut pieces, mut piece) = (Vec::new(), Vec::new());
        let mut lsn = 1;
        while capture.fill(&mut piece, 2000, usize::MAX).is_some() {
            pieces.push(std::mem::take(&mut piece));
            lsn += 1;
            if lsn == 2 {
                apply(&keyspace, &(0, 0, during.clone()), lsn);
            }
        }
        assert!(pieces.len() >= 2);
        assert_eq!(content(&load(&pieces)), expected);
    }
}

/// When a large value is deleted, replaced or renamed, or gets a deadline, nothing is captured ahead of the
/// walk.
#[test]
fn a_large_value_that_leaves_its_key_is_kept_as_it_is() {
    let values = [
        Change::String(50_000),
        Change::SetAdd(0, 6000),
        Change::ZsetPut(0, 6000, 1),
        Change::HashPut(0, 3000),
        Change::StreamAdd(3000),
        Change::Push(ListEnd::Tail, 6000),
    ];
    let leaving = [
        Change::Delete,
        Change::String(5),
        Change::String(50_000),
        Change::MoveTo(0, 1),
        Change::MoveTo(2, 0),
        Change::FlushDb,
        Change::Expire(7),
    ];
    // After how many pieces the value leaves: in most of these cases before the walk comes to it.
    for (value, leaves, pieces_before) in values.iter().flat_map(|value| {
        leaving.iter().flat_map(move |leaves| [1, 2, 5, 9].map(|pieces| (value, leaves, pieces)))
    }) {
        let keyspace = keyspace(3);
        apply(&keyspace, &(0, 2, Change::Fill(60)), 1);
        apply(&keyspace, &(0, 0, value.clone()), 2);
        let (expected, slot) = (content(&keyspace), crate::slot_of(&key(0)));
        let mut capture = Capture::new(&keyspace, slot, slot);
        let (mut pieces, mut piece) = (Vec::new(), Vec::new());
        while capture.fill(&mut piece, 1, usize::MAX).is_some() {
            pieces.push(std::mem::take(&mut piece));
            if pieces.len() == pieces_before {
                apply(&keyspace, &(0, 0, leaves.clone()), 3);
                keyspace.lock(slot).check();
            }
        }
        assert!(pieces.len() >= pieces_before);
        assert_eq!(content(&load(&pieces)), expected, "{value:?} {leaves:?} after {pieces_before}");
        // Only the head of a stream is copied: when its capture begins.
        let copied_bytes = capture.take_copied_bytes();
        assert!(copied_bytes < 100, "{value:?} {leaves:?} after {pieces_before}: {copied_bytes} bytes");
    }
}
