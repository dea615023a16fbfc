//! Packed lists against a vector.

use proptest::prelude::*;

use super::*;
use crate::collection::testing::{element, end, twin};

fn packed<'e>(elements: impl IntoIterator<Item = &'e [u8]>) -> Vec<u8> {
    let mut packed = EMPTY.to_vec();
    Edit::insert(&EMPTY, 0, elements).apply_to(&mut packed);
    packed
}

fn check(packed: &[u8], model: &[Vec<u8>]) {
    let chunk = Chunk::of_packed(packed);
    assert_eq!(chunk.len(), model.len());
    assert!(chunk.iter().map(|element| element.to_vec()).eq(model.iter().cloned()));
    assert!(chunk.iter().rev().map(|element| element.to_vec()).eq(model.iter().rev().cloned()));
    for (index, element) in model.iter().enumerate() {
        assert_eq!(chunk.get(index).as_deref(), Some(&element[..]));
    }
    assert!(chunk.get(model.len()).is_none());
    // A list has one form, whichever edits led to it.
    assert_eq!(packed, self::packed(model.iter().map(Vec::as_slice)));
}

#[test]
fn a_short_element_takes_one_byte_more_than_its_encoding() {
    assert_eq!(packed([&b"7"[..], b"ab", b""]), [3, 0, 7, 1, 0x82, b'a', b'b', 3, 0x80, 1]);
}

#[test]
fn texts_beside_integers_keep_their_bytes() {
    let texts = [
        "1",
        "007",
        "+1",
        "-0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "",
    ];
    let elements: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    check(&packed(elements.iter().map(Vec::as_slice)), &elements);
}

#[test]
fn long_elements_have_longer_back_lengths() {
    for (encoded_len, back_len_expected) in
        [(1, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (1 << 21, 4)]
    {
        assert_eq!(back_len(encoded_len), back_len_expected, "{encoded_len}");
    }
    let elements: Vec<Vec<u8>> =
        [1, 125, 126, 127, 128, 4095, 16_378, 16_379, 16_380].map(|len| vec![b'x'; len]).into();
    check(&packed(elements.iter().map(Vec::as_slice)), &elements);
}

#[test]
fn an_edit_says_how_long_the_list_becomes() {
    let mut list = packed([&b"a"[..], b"b", b"c"]);
    let edit = Edit::replace(&list, 1..3, [&b"long enough to differ"[..]]);
    let len = edit.packed_len_after(list.len());
    edit.apply_to(&mut list);
    assert_eq!((edit.len, len), (2, list.len()));
}

#[test]
fn a_range_ends_where_the_list_does() {
    let list = packed([&b"a"[..], b"b", b"c"]);
    let chunk = Chunk::of_packed(&list);
    for (range, first, len) in [(1..9, Some(&b"b"[..]), 2), (3..3, None, 0), (7..9, None, 0), (0..0, None, 0)]
    {
        let mut iter = chunk.range(range.clone());
        assert_eq!((iter.len(), iter.next().as_deref()), (len, first), "{range:?}");
    }
}

#[test]
fn a_packed_list_counts_as_far_as_its_header_can() {
    let element = &b"1"[..];
    let list = packed(vec![element; LEN_MAX]);
    assert_eq!((Chunk::of_packed(&list).len(), list.len()), (LEN_MAX, HEADER_LEN + 2 * LEN_MAX));
}

#[test]
#[should_panic(expected = "a list of 65536 elements is not packed")]
fn a_longer_list_is_not_packed() {
    packed(vec![&b"1"[..]; LEN_MAX + 1]);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, Vec<Vec<u8>>),
    Set(usize, Vec<u8>),
    Remove(usize, usize),
    RemoveMatches(usize, usize, End),
}

/// Removes the elements equal to `element`: all of them, or the first `limit` from an end.
pub(in crate::collection) fn remove_matches(
    model: &mut Vec<Vec<u8>>,
    element: &[u8],
    limit: usize,
    from: End,
) -> usize {
    let matching = (0..model.len()).filter(|&index| model[index] == element);
    let removed: Vec<usize> = match from {
        End::Front => matching.take(limit).collect(),
        End::Back => matching.rev().take(limit).collect(),
    };
    let mut index = 0..;
    model.retain(|_| !removed.contains(&index.next().expect("endless")));
    removed.len()
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (any::<usize>(), prop::collection::vec(prop_oneof![element(200), twin()], 0..4)).prop_map(|(at, list)| Op::Insert(at, list)),
        2 => (any::<usize>(), element(200)).prop_map(|(at, element)| Op::Set(at, element)),
        1 => (any::<usize>(), 0..5usize).prop_map(|(at, count)| Op::Remove(at, count)),
        1 => (any::<usize>(), 0..4usize, end()).prop_map(|(at, limit, from)| Op::RemoveMatches(at, limit, from)),
    ]
}

proptest! {
    #[test]
    fn a_packed_list_is_a_vector(ops in prop::collection::vec(op(), 0..40)) {
        let (mut packed, mut model) = (EMPTY.to_vec(), Vec::<Vec<u8>>::new());
        for op in ops {
            match op {
                Op::Insert(at, elements) => {
                    let at = at % (model.len() + 1);
                    Edit::insert(&packed, at, elements.iter().map(Vec::as_slice)).apply_to(&mut packed);
                    model.splice(at..at, elements);
                }
                Op::Set(at, element) if !model.is_empty() => {
                    let at = at % model.len();
                    Edit::set(&packed, at, &element).apply_to(&mut packed);
                    model[at] = element;
                }
                Op::RemoveMatches(at, limit, from) if !model.is_empty() => {
                    let element = model[at % model.len()].clone();
                    let edit = Edit::remove_matches(&packed, &element, limit, from);
                    let removed = remove_matches(&mut model, &element, limit, from);
                    prop_assert_eq!(edit.is_some(), removed > 0);
                    edit.iter().for_each(|edit| edit.apply_to(&mut packed));
                }
                Op::Set(..) | Op::RemoveMatches(..) => {}
                Op::Remove(at, count) => {
                    let at = at % (model.len() + 1);
                    let end = (at + count).min(model.len());
                    Edit::remove(&packed, at..end).apply_to(&mut packed);
                    model.drain(at..end);
                }
            }
            check(&packed, &model);
        }
    }

    #[test]
    fn a_range_is_walked_from_both_ends(
        elements in prop::collection::vec(element(200), 0..40),
        bounds: (usize, usize),
        turns in prop::collection::vec(any::<bool>(), 45),
    ) {
        let packed = packed(elements.iter().map(Vec::as_slice));
        let chunk = Chunk::of_packed(&packed);
        let start = bounds.0 % (elements.len() + 1);
        let end = start + bounds.1 % (elements.len() - start + 1);
        let (mut range, mut model) = (chunk.range(start..end), elements[start..end].iter());
        prop_assert_eq!(chunk.span(start..end).len(), elements[start..end].iter().map(|e| Item::of(e).len()).sum());
        for from_front in turns {
            prop_assert_eq!(range.len(), model.len());
            let (element, expected) = if from_front { (range.next(), model.next()) } else { (range.next_back(), model.next_back()) };
            prop_assert_eq!(element.as_deref(), expected.map(Vec::as_slice));
        }
    }
}
