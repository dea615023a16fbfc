//! Field maps against a model, with hashes from spread out to all equal, and scans of maps that change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use prng::Prng;

/// Masks of hashes: spread out; one prefix for all; few prefixes with one position in each; few prefixes and
/// positions; all equal.
const MASKS: [u64; 5] = [u64::MAX, 0xffff, 0xe000_0000_0000_0000, 0xff00_0000_0000_00ff, 0];

/// Fields in the larger tests.
const MANY: u32 = if cfg!(miri) { 150 } else { 20_000 };

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn map(mask: u64) -> FieldMap {
    let mut map = FieldMap::new(7);
    map.hasher.mask = mask;
    map
}

fn field(number: u32) -> Vec<u8> {
    format!("field:{number}").into_bytes()
}

fn filled(numbers: Range<u32>) -> FieldMap {
    let mut map = map(u64::MAX);
    for number in numbers {
        map.insert_new(&field(number), b"value");
    }
    map
}

fn content(map: &FieldMap) -> Model {
    let row = |entry: EntryRef<'_>| {
        let value = entry.string().expect("fields have strings").to_vec();
        (entry.key().to_vec(), (value, entry.expire_at_ms()))
    };
    map.iter().map(row).collect()
}

#[test]
fn an_empty_map_has_nothing_and_takes_nothing() {
    let mut map = map(u64::MAX);
    assert!(map.get(b"f").is_none() && map.remove(b"f").is_none());
    assert_eq!(map.update(b"f", |_| ()), None);
    assert_eq!((map.len(), map.iter().count(), map.expiring_len()), (0, 0, 0));
    assert_eq!(map.scan(0, 10, |_| unreachable!()), 0);
    assert!(map.random(&mut || 0).is_none());
    assert_eq!(map.next_deadline_ms(), None);
    assert!(map.bytes() <= 64, "{}", map.bytes());
    map.check();
}

#[test]
fn put_reports_its_outcome_and_writes_in_place_if_there_is_room() {
    let mut map = map(u64::MAX);
    assert!(matches!(map.put(b"f", b"12345678", None), Put::Added));
    assert!(matches!(map.put(b"f", b"87654321", None), Put::Replaced(None)));
    assert!(matches!(map.put(b"f", &[0; 200], Some(5)), Put::Replaced(Some(_))));
    assert_eq!(content(&map), Model::from([(b"f".to_vec(), (vec![0; 200], Some(5)))]));
    map.check();
}

#[test]
fn segments_stay_small_and_give_everything_back() {
    let mut map = filled(0..MANY);
    map.check();
    assert!(map.segments.len() > 4 && map.directory_depth() > 2);
    assert!(map.segments.iter().all(|segment| segment.len() <= SEGMENT_LEN_MAX));
    let buckets_and_more = map.bytes() - map.len() * 32;
    assert!(cfg!(miri) || buckets_and_more < map.len() * 18, "{buckets_and_more} bytes besides entries");
    for number in 0..MANY {
        assert!(map.remove(&field(number)).is_some(), "{number}");
        if number % (MANY / 20) == 0 {
            map.check();
        }
    }
    map.check();
    assert_eq!((map.len(), map.segments.len(), map.directory.len()), (0, 1, 1));
    assert!(map.bytes() < 1024, "{}", map.bytes());
}

#[test]
fn equal_hashes_do_not_blow_up_the_directory() {
    for mask in MASKS {
        let mut map = map(mask);
        let count = if cfg!(miri) { 60 } else { 3000 };
        (0..count).for_each(|number| drop(map.put(&field(number), b"", None)));
        map.check();
        assert!(map.directory.len() * DIRECTORY_SHARE_MIN <= 2 * map.len(), "mask {mask:x}");
        (0..count).step_by(2).for_each(|number| drop(map.remove(&field(number))));
        map.check();
        assert!((0..count).all(|number| map.get(&field(number)).is_some() == (number % 2 == 1)));
        (1..count).step_by(2).for_each(|number| drop(map.remove(&field(number))));
        assert_eq!((map.len(), map.directory.len()), (0, 1), "mask {mask:x}");
    }
}

#[test]
fn entries_stay_where_they_are_while_others_come_and_go() {
    let mut map = map(u64::MAX);
    let address = |entry: EntryRef<'_>| entry.key().as_ptr().addr();
    let old: Vec<usize> = (0..20).map(|n| address(map.insert_new(&field(n), &[0; 8]))).collect();
    for number in 20..MANY {
        map.insert_new(&field(number), &[0; 8]);
    }
    for number in 0..20 {
        assert!(matches!(
            map.put(&field(number), &number.to_ne_bytes().repeat(2), None),
            Put::Replaced(None)
        ));
    }
    for number in 20..MANY {
        map.remove(&field(number));
    }
    let new: Vec<usize> = (0..20).map(|n| address(map.get(&field(n)).expect("kept"))).collect();
    assert_eq!(old, new);
    assert_eq!(map.segments.len(), 1);
}

#[test]
fn random_entries_are_nearly_even() {
    let count = if cfg!(miri) { 60 } else { 3000u32 };
    let tries = if cfg!(miri) { 1 } else { 400 };
    let map = filled(0..count);
    assert!(map.segments.len() > 3);
    let mut sequence = Prng::new(3);
    let mut hits = BTreeMap::<&[u8], u32>::new();
    for _ in 0..count * tries {
        let entry = map.random(&mut || sequence.next_u64()).expect("not empty");
        *hits.entry(entry.key()).or_default() += 1;
    }
    // Each field is expected to be hit 400 times, with a standard deviation of 20. A distance of six
    // deviations does not happen.
    let are_even = hits.len() == count as usize && hits.values().all(|hits| (280..520).contains(hits));
    assert!(cfg!(miri) || are_even, "{:?} {:?}", hits.values().min(), hits.values().max());
}

#[test]
fn scans_visit_about_as_many_entries_as_they_were_asked_for() {
    let map = filled(0..MANY);
    let (mut cursor, mut calls) = (0, 0);
    loop {
        let mut seen = 0;
        cursor = map.scan(cursor, 10, |_| seen += 1);
        assert!(seen < 40, "{seen}");
        assert!(cursor < 1 << 48);
        calls += 1;
        if cursor == 0 {
            break;
        }
        assert!(seen >= 10);
    }
    assert!(calls <= MANY.div_ceil(10));
    assert_eq!(map.scan(1 << 48, 10, |_| unreachable!()), 0);
    assert_eq!(map.scan(u64::MAX, 10, |_| unreachable!()), 0);
}

#[test]
fn a_scan_starts_at_its_cursor_and_not_before_within_a_segment() {
    // Cursors that a deeper segment returned lie between the positions of these few fields.
    for count in [40, MANY / 8] {
        let map = filled(0..count);
        for number in (0..count).step_by(7) {
            let hash = map.hasher.hash(&field(number));
            for (cursor, is_visited) in [(hash >> 16, true), ((hash >> 16) + 1, false)] {
                let mut visited = false;
                map.scan(cursor, 1, |entry| visited |= entry.key() == field(number));
                assert_eq!(visited, is_visited, "{number} of {count} from {cursor:x}");
            }
        }
    }
}

#[test]
fn due_fields_are_listed_once_and_the_next_deadline_is_corrected() {
    let mut map = map(u64::MAX);
    let count = MANY / 4;
    for number in 0..count {
        map.put(&field(number), b"", (number % 2 == 0).then(|| 1000 + u64::from(number)));
    }
    assert_eq!((map.next_deadline_ms(), map.expiring_len()), (Some(1000), count as usize / 2));
    map.put(&field(0), b"", Some(9_000_000));
    assert_eq!(map.next_deadline_ms(), Some(1000), "too early");
    let mut due = Vec::new();
    map.expired_fields(1000, 10, &mut due);
    assert_eq!((due.len(), map.next_deadline_ms()), (0, Some(1002)));
    let (mut listed, end_ms) = (BTreeSet::new(), 1000 + u64::from(count) / 2);
    while map.next_deadline_ms().is_some_and(|first_ms| first_ms <= end_ms) {
        map.expired_fields(end_ms, 10, &mut due);
        assert!(due.len() <= 10);
        for field in due.drain(..) {
            assert!(map.remove(&field).is_some_and(|entry| entry.as_ref().is_expired(end_ms)));
            assert!(listed.insert(field));
        }
    }
    map.check();
    assert_eq!(listed.len(), count as usize / 4);
    assert!(!map.iter().any(|entry| entry.is_expired(end_ms)));
    for number in 0..count {
        map.update(&field(number), |entry| entry.set_expiry(None));
    }
    assert_eq!((map.next_deadline_ms(), map.expiring_len()), (None, 0));
    map.check();
}

#[test]
fn the_index_of_deadlines_shrinks_with_the_map() {
    let mut map = map(u64::MAX);
    for number in 0..MANY {
        map.put(&field(number), b"", None);
    }
    // Earlier and earlier deadlines, as many as the heap takes before it is made anew.
    let is_full = |map: &FieldMap| {
        let items = map.deadlines.as_ref().map_or(0, |deadlines| deadlines.heap.items().len());
        items == 2 * map.segments.len() + 16
    };
    let mut numbers = (0..MANY).cycle().enumerate();
    while !is_full(&map) {
        let (step, number) = numbers.next().expect("without an end");
        map.update(&field(number), |entry| drop(entry.set_expiry(Some(1_000_000 - step as u64))));
    }
    for number in 1..MANY {
        map.update(&field(number), |entry| drop(entry.set_expiry(None)));
    }
    // The other half of all hashes has no deadline any more.
    let half_of = |map: &FieldMap, number: u32| map.hasher.hash(&field(number)) >> 63;
    let half = half_of(&map, 0);
    for number in 1..MANY {
        if half_of(&map, number) != half {
            map.remove(&field(number));
        }
    }
    assert_eq!(map.expiring_len(), 1);
    map.check();
}

#[derive(Clone, Debug)]
enum Step {
    Put(Range<u32>, usize, Option<u64>),
    Remove(Range<u32>),
    SetExpiry(u32, Option<u64>),
    Append(u32, usize),
    Expire(u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (fields, longest) = if cfg!(miri) { (80u32, 30u32) } else { (3000, 1200) };
    let range = move || {
        prop_oneof![2 => 1..2u32, 1 => 1..longest]
            .prop_flat_map(move |len| (0..fields).prop_map(move |start| start..start + len))
    };
    let deadline = || prop_oneof![2 => Just(None), 1 => (0..500u64).prop_map(Some)];
    let len = || prop_oneof![9 => 0..50usize, 1 => 65_000..70_000usize];
    let step = prop_oneof![
        8 => (range(), 0..50usize, deadline()).prop_map(|(range, len, at)| Step::Put(range, len, at)),
        6 => range().prop_map(Step::Remove),
        3 => (0..fields, deadline()).prop_map(|(field, at)| Step::SetExpiry(field, at)),
        1 => (0..fields, len()).prop_map(|(field, len)| Step::Append(field, len)),
        2 => (0..500u64, 0..800usize).prop_map(|(now_ms, max)| Step::Expire(now_ms, max)),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 12 } else { 60 })
}

fn run(step: &Step, map: &mut FieldMap, model: &mut Model) {
    match step.clone() {
        Step::Put(range, len, expire_at_ms) => {
            for number in range {
                let (field, value) = (field(number), vec![number as u8; len]);
                let put = map.put(&field, &value, expire_at_ms);
                let old = model.insert(field, (value, expire_at_ms));
                assert_eq!(old.is_none(), matches!(put, Put::Added));
            }
        }
        Step::Remove(range) => {
            for field in range.map(field) {
                let removed = map.remove(&field);
                let expected = model.remove(&field);
                assert_eq!(removed.is_some(), expected.is_some());
                assert!(removed.is_none_or(|entry| entry.as_ref().key() == field));
            }
        }
        Step::SetExpiry(number, expire_at_ms) => {
            let known = model.get_mut(&field(number)).map(|row| row.1 = expire_at_ms);
            let updated = map.update(&field(number), |entry| drop(entry.set_expiry(expire_at_ms)));
            assert_eq!(updated, known);
        }
        Step::Append(number, len) => {
            let known = model.get_mut(&field(number)).map(|row| row.0.extend(vec![1; len]));
            let append = |entry: &mut Entry| drop(entry.append(&vec![1; len], AccessStamp::default()));
            assert_eq!(map.update(&field(number), append), known);
        }
        Step::Expire(now_ms, max) => {
            let mut due = Vec::new();
            map.expired_fields(now_ms, max, &mut due);
            assert!(due.len() <= max);
            for field in due {
                assert!(map.remove(&field).is_some());
                let row = model.remove(&field).expect("listed once");
                assert!(row.1.is_some_and(|deadline_ms| deadline_ms <= now_ms));
            }
            let first_ms = model.values().filter_map(|row| row.1).min();
            assert_eq!(map.next_deadline_ms().is_some(), first_ms.is_some());
            assert!(map.next_deadline_ms() <= first_ms);
        }
    }
}

proptest! {
    #[test]
    fn a_field_map_is_a_map(mask in prop::sample::select(&MASKS[..]), steps in steps()) {
        // Fields with equal hashes are searched one after the other, which takes long; a few steps show as
        // much as many.
        let few = steps.len() / if mask == u64::MAX { 1 } else { 8 };
        let (mut map, mut model) = (map(mask), Model::new());
        for step in &steps[..few] {
            run(step, &mut map, &mut model);
            prop_assert_eq!(map.len(), model.len());
        }
        map.check();
        prop_assert_eq!(&content(&map), &model);
        for (field, row) in &model {
            let entry = map.get(field).expect("in the model");
            prop_assert_eq!((entry.string(), entry.expire_at_ms()), (Some(&row.0[..]), row.1));
        }
    }

    #[test]
    fn lasting_fields_are_scanned_once_while_others_change(
        mask in prop::sample::select(&MASKS[..]),
        stable in 0..if cfg!(miri) { 60u32 } else { 1500 },
        // After each call, fields are added or removed, so that the fields up to this number exist.
        others in prop::collection::vec(0..if cfg!(miri) { 100u32 } else { 4000 }, 1..20),
        count in 1..200usize,
    ) {
        let few = if mask == u64::MAX { 1 } else { 4 };
        let (mut map, stable) = (map(mask), stable / few);
        (0..stable).for_each(|number| drop(map.put(&field(number), b"", None)));
        let mut seen = BTreeMap::<Vec<u8>, u32>::new();
        let (mut cursor, mut present) = (0, stable);
        for wanted in others.iter().map(|others| stable + others / few).cycle() {
            cursor = map.scan(cursor, count, |entry| *seen.entry(entry.key().to_vec()).or_default() += 1);
            if cursor == 0 {
                break;
            }
            (present..wanted).for_each(|number| drop(map.put(&field(number), b"", None)));
            (wanted..present).for_each(|number| drop(map.remove(&field(number))));
            present = wanted;
        }
        map.check();
        for number in 0..stable {
            prop_assert_eq!(seen.get(&field(number)), Some(&1), "field {}", number);
        }
    }
}
