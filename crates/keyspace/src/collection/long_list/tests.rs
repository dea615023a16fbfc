//! Long lists against a deque, and their costs.

use std::mem;

use proptest::prelude::*;

use super::buffer::BODY_BYTES_MAX;
use super::*;
use crate::collection::chunk::tests::remove_matches;
use crate::collection::chunk::{EMPTY, Edit};
use crate::collection::testing::{element, end, twin};
use crate::entry::size_class;

type Model = VecDeque<Vec<u8>>;

impl LongList {
    /// Checks the invariants by a walk over everything.
    fn check(&self) {
        assert_eq!(self.len, self.chunks.iter().map(Buffer::len).sum::<usize>());
        assert_eq!(self.buffer_bytes, self.chunks.iter().map(Buffer::bytes).sum::<usize>());
        for buffer in &self.chunks {
            assert!(buffer.len() > 0);
            assert!(buffer.len() == 1 || buffer.body_len() <= BODY_BYTES_MAX);
            assert_eq!(buffer.bytes(), size_class(buffer.bytes()));
            assert_eq!(buffer.chunk().iter().map(|e| Item::of(&e).len()).sum::<usize>(), buffer.body_len());
        }
    }

    fn body_bytes(&self) -> usize {
        self.chunks.iter().map(Buffer::body_len).sum()
    }
}

fn check(list: &LongList, model: &Model) {
    list.check();
    assert_eq!(list.len(), model.len());
    assert!(list.iter().map(|element| element.to_vec()).eq(model.iter().cloned()));
}

fn text(number: usize) -> Vec<u8> {
    format!("{number:07}x").into_bytes()
}

#[test]
fn an_empty_list_has_nothing_and_takes_nothing() {
    let mut list = LongList::new();
    assert_eq!((list.len(), list.bytes()), (0, 0));
    assert!(list.get(0).is_none());
    assert!(list.pop_front(1).is_none() && list.pop_back(1).is_none() && list.remove(0, 1).is_none());
    assert_eq!((list.iter().len(), list.range(3..7).len(), list.iter().next_back()), (0, 0, None));
}

#[test]
fn elements_that_resemble_integers_keep_their_bytes() {
    let texts =
        ["1", "007", "+1", "-0", "", "9223372036854775807", "-9223372036854775808", "9223372036854775808"];
    let mut list = LongList::new();
    texts.iter().for_each(|text| list.push_back(text.as_bytes()));
    assert!(
        list.iter().map(|element| element.to_vec()).eq(texts.iter().map(|text| text.as_bytes().to_vec()))
    );
    assert_eq!(list.get(5).and_then(|element| element.integer()), Some(i64::MAX));
}

#[test]
fn memory_is_within_three_percent_of_the_elements() {
    let count = if cfg!(miri) { 10_000 } else { 1_000_000 };
    for end in [End::Front, End::Back] {
        let mut list = LongList::new();
        for number in 0..count {
            list.push(end, &Item::of(&text(number)));
        }
        list.check();
        assert_eq!(list.body_bytes(), 10 * count);
        assert!(cfg!(miri) || list.bytes() * 100 <= list.body_bytes() * 103, "{}", list.bytes());
    }
}

#[test]
fn a_queue_that_was_long_gives_its_memory_back() {
    let mut list = LongList::new();
    (0..20_000).for_each(|number| list.push_back(&text(number)));
    for number in 20_000..60_000 {
        list.pop_front(1);
        list.push_back(&text(number));
    }
    list.check();
    assert!(list.bytes() * 10 <= list.body_bytes() * 11, "{} for {}", list.bytes(), list.body_bytes());
    while list.len() > 3 {
        list.pop_front(1);
    }
    assert!(list.get(0).as_deref() == Some(&text(59_997)));
    let one_chunk = size_class(CAPACITY_MIN + size_of::<usize>());
    assert!(list.bytes() <= one_chunk + CHUNKS_ROOM_MIN * size_of::<Buffer>(), "{}", list.bytes());
}

#[test]
fn pushing_at_alternate_ends_neither_splits_nor_moves_much() {
    let mut list = LongList::new();
    let mut moved = 0;
    for number in 0..350 {
        list.push_front(&text(number));
        let first = list.chunks[0].chunk().body().as_ptr();
        list.push_back(&text(number));
        moved += usize::from(list.chunks[0].chunk().body().as_ptr() != first);
    }
    assert_eq!(list.chunks.len(), 1);
    assert!(moved <= 12, "{moved}");
}

#[test]
fn large_removed_parts_are_returned_to_the_caller() {
    let mut list = LongList::new();
    (0..100_000).for_each(|number| list.push_back(&text(number)));
    let bytes = list.bytes();
    let trimmed = [list.pop_front(30_000), list.pop_back(30_000), list.remove(10_000, 20_000)];
    assert_eq!(list.len(), 20_000);
    list.check();
    for trimmed in trimmed {
        let trimmed = trimmed.expect("hundreds of kilobytes");
        trimmed.check();
        assert!(trimmed.len() > 18_000 && trimmed.bytes() < bytes / 2);
    }
    assert!(list.pop_front(10).is_none());
}

#[test]
fn large_elements_have_chunks_of_their_own() {
    let large = vec![b'x'; 100_000];
    let (mut list, mut model) = (LongList::new(), Model::new());
    for number in 0..50 {
        list.push_back(&text(number));
        model.push_back(text(number));
    }
    for index in [0, 25, 51, 1, 54] {
        list.insert(index, &large);
        list.insert(index, b"before");
        model.insert(index, large.clone());
        model.insert(index, b"before".to_vec());
        check(&list, &model);
    }
    for (index, expected) in model.iter_mut().enumerate() {
        let element = if index % 7 == 0 { &large[..] } else { b"small" };
        list.set(index, element);
        *expected = element.to_vec();
    }
    check(&list, &model);
    let removed = list.remove(7, 1).expect("a large element is not freed on the spot");
    assert_eq!((removed.len(), model.remove(7).map(|element| element.len())), (1, Some(large.len())));
    check(&list, &model);
    (0..model.len()).for_each(|index| list.set(index, b"7"));
    list.check();
    assert_eq!(list.body_bytes(), 2 * model.len());
}

#[test]
fn edits_in_the_middle_leave_chunks_at_least_a_third_full() {
    let mut list = LongList::new();
    (0..50_000).for_each(|number| list.push_back(&text(number)));
    let mut state = 1usize;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for number in 0..50_000 {
        list.insert(random(list.len()), &text(number));
    }
    assert!(list.bytes() <= 2 * list.body_bytes(), "{} for {}", list.bytes(), list.body_bytes());
    while list.len() > 10_000 {
        list.remove(random(list.len()), 1);
    }
    list.check();
    assert!(list.bytes() <= 4 * list.body_bytes(), "{} for {}", list.bytes(), list.body_bytes());
}

#[test]
fn equal_elements_are_found_and_removed_from_either_end() {
    let mut list = LongList::new();
    (0..30_000).for_each(|number| list.push_back(&text(number % 3000)));
    let found = |list: &LongList| -> Vec<usize> {
        list.iter()
            .matches(&text(7))
            .enumerate()
            .filter_map(|(index, matches)| matches.then_some(index))
            .collect()
    };
    assert_eq!(found(&list), (0..10).map(|n| 7 + 3000 * n).collect::<Vec<_>>());
    assert_eq!(list.range(1000..9000).matches(&text(7)).rev().position(|matches| matches), Some(2992));
    assert_eq!(list.remove_matches(&text(7), 2, End::Front), 2);
    assert_eq!(list.remove_matches(&text(7), 1, End::Back), 1);
    assert_eq!(found(&list), (2..9).map(|n| 7 + 3000 * n - 2).collect::<Vec<_>>());
    assert_eq!(list.remove_matches(&text(7), usize::MAX, End::Back), 7);
    assert_eq!(list.remove_matches(&text(7), usize::MAX, End::Back), 0);
    assert_eq!(list.len(), 29_990);
    list.check();
}

#[test]
fn removing_most_elements_gives_their_memory_back() {
    let mut list = LongList::new();
    (0..100_000).for_each(|number| list.push_back(if number % 50 == 0 { b"kept" } else { b"gone" }));
    assert_eq!(list.remove_matches(b"gone", usize::MAX, End::Front), 98_000);
    list.check();
    assert!(list.bytes() * 2 <= list.body_bytes() * 3, "{} for {}", list.bytes(), list.body_bytes());
}

#[derive(Clone, Debug)]
enum Op {
    Push(bool, Vec<u8>, usize),
    Pop(bool, usize),
    Set(usize, Vec<u8>),
    Insert(usize, Vec<u8>, usize),
    Remove(usize, usize),
    RemoveMatches(usize, usize, End),
}

fn op(len_max: usize) -> impl Strategy<Value = Op> {
    let count = || prop_oneof![3 => 0..3usize, 1 => 0..400usize];
    prop_oneof![
        4 => (any::<bool>(), prop_oneof![element(len_max), twin()], count()).prop_map(|(front, element, count)| Op::Push(front, element, count)),
        2 => (any::<bool>(), count()).prop_map(|(front, count)| Op::Pop(front, count)),
        2 => (any::<usize>(), element(len_max)).prop_map(|(at, element)| Op::Set(at, element)),
        4 => (any::<usize>(), element(len_max), count()).prop_map(|(at, element, count)| Op::Insert(at, element, count)),
        2 => (any::<usize>(), count()).prop_map(|(at, count)| Op::Remove(at, count)),
        2 => (any::<usize>(), count(), end()).prop_map(|(at, limit, from)| Op::RemoveMatches(at, limit, from)),
    ]
}

fn do_both(list: &mut LongList, model: &mut Model, op: Op) {
    match op {
        Op::Push(front, element, count) => {
            for _ in 0..count {
                if front {
                    list.push_front(&element);
                    model.push_front(element.clone());
                } else {
                    list.push_back(&element);
                    model.push_back(element.clone());
                }
            }
        }
        Op::Pop(front, count) => {
            let kept = model.len().saturating_sub(count);
            if front {
                list.pop_front(count);
                model.drain(..model.len() - kept);
            } else {
                list.pop_back(count);
                model.truncate(kept);
            }
        }
        Op::Set(at, element) => {
            if !model.is_empty() {
                let at = at % model.len();
                list.set(at, &element);
                model[at] = element;
            }
        }
        Op::Insert(at, element, count) => {
            let at = at % (model.len() + 1);
            for at in at..at + count {
                list.insert(at, &element);
                model.insert(at, element.clone());
            }
        }
        Op::Remove(at, count) => {
            let at = at % (model.len() + 1);
            list.remove(at, count);
            model.drain(at..(at + count).min(model.len()));
        }
        Op::RemoveMatches(at, limit, from) => {
            let Some(element) = model.get(at % model.len().max(1)).cloned() else { return };
            let mut elements = Vec::from(mem::take(model));
            let removed = remove_matches(&mut elements, &element, limit, from);
            *model = elements.into();
            assert_eq!(list.remove_matches(&element, limit, from), removed);
        }
    }
}

proptest! {
    #[test]
    fn a_long_list_is_a_deque(
        first in prop::collection::vec(element(3000), 0..30),
        ops in prop::collection::vec(op(12_000), 0..30),
    ) {
        let mut packed = EMPTY.to_vec();
        Edit::insert(&EMPTY, 0, first.iter().map(Vec::as_slice)).apply_to(&mut packed);
        let (mut list, mut model) = (LongList::from_packed(&packed), Model::from(first));
        for op in ops {
            do_both(&mut list, &mut model, op);
            check(&list, &model);
        }
        for (index, element) in model.iter().enumerate() {
            let found = list.get(index);
            prop_assert_eq!(found.as_deref(), Some(&element[..]));
        }
        prop_assert!(list.get(model.len()).is_none());
    }

    #[test]
    fn a_range_is_walked_from_both_ends(
        elements in prop::collection::vec((element(3000), 0..200usize), 0..20),
        bounds: (usize, usize),
        turns in prop::collection::vec((any::<bool>(), 1..300usize), 0..20),
    ) {
        let (mut list, mut model) = (LongList::new(), Model::new());
        for (element, count) in elements {
            do_both(&mut list, &mut model, Op::Push(false, element, count));
        }
        let start = bounds.0 % (model.len() + 1);
        let end = start + bounds.1 % (model.len() - start + 1);
        let (mut range, mut expected) = (list.range(start..end), model.range(start..end));
        for (from_front, count) in turns {
            for _ in 0..count {
                prop_assert_eq!(range.len(), expected.len());
                let (element, expected) = if from_front {
                    (range.next(), expected.next())
                } else {
                    (range.next_back(), expected.next_back())
                };
                prop_assert_eq!(element.as_deref(), expected.map(Vec::as_slice));
            }
        }
        let len = list.len();
        prop_assert!(list.range(start..len + 5).map(|e| e.to_vec()).eq(model.range(start..).cloned()));
    }
}
