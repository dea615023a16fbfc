//! Intersections, unions and differences of sets.
//!
//! What it is: which members they have, in the order that is cheapest to find them.
//! What it is not: aware of keys.

use std::{cmp::Reverse, collections::HashSet};

use keyspace::{Element, SetView};
use smallvec::SmallVec;

/// Sets to be combined; a key that is not there is an empty one.
pub(super) type Sets<'a> = SmallVec<[SetView<'a>; 8]>;

/// How sets are combined.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    /// What all have.
    Intersection,
    /// What any has.
    Union,
    /// What the first has and no other.
    Difference,
}

/// The members of the combination, each once.
pub(super) fn members<'a>(
    operation: Operation,
    sets: Sets<'a>,
) -> Box<dyn Iterator<Item = Element<'a>> + 'a> {
    match operation {
        Operation::Intersection => Box::new(intersection(sets)),
        Operation::Union => Box::new(union(sets)),
        Operation::Difference => difference(sets),
    }
}

/// Looks for the members of the smallest set in the others.
pub(super) fn intersection(mut sets: Sets<'_>) -> impl Iterator<Item = Element<'_>> {
    sets.sort_unstable_by_key(SetView::len);
    let smallest = sets.first().copied().unwrap_or_default();
    smallest.iter().filter(move |member| sets.iter().skip(1).all(|set| set.contains(member)))
}

/// Remembers what others have more than the largest set.
fn union(mut sets: Sets<'_>) -> impl Iterator<Item = Element<'_>> {
    sets.retain(|set| !set.is_empty());
    sets.sort_unstable_by_key(|set| Reverse(set.len()));
    let largest = sets.first().copied().unwrap_or_default();
    let is_pair = sets.len() <= 2;
    let mut seen = HashSet::new();
    let others = sets.into_iter().skip(1).flat_map(|set| set.iter());
    let new = others.filter(move |member| !largest.contains(member) && (is_pair || seen.insert(*member)));
    largest.iter().chain(new)
}

/// Looks for the members of the first set in the others, or for those of the others in the first, whichever are fewer.
fn difference(mut sets: Sets<'_>) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
    if sets.is_empty() || sets[0].is_empty() {
        return Box::new(std::iter::empty());
    }
    let first = sets.remove(0);
    sets.retain(|set| !set.is_empty());
    let lookups_of_first = first.len().saturating_mul(sets.len() + 1);
    let lookups_of_all: usize = first.len() + sets.iter().map(SetView::len).sum::<usize>();
    // Redis' estimate: half of the lookups of the first way find their member early.
    if lookups_of_first / 2 <= lookups_of_all {
        sets.sort_unstable_by_key(|set| Reverse(set.len()));
        return Box::new(first.iter().filter(move |member| !sets.iter().any(|set| set.contains(member))));
    }
    let mut left: HashSet<Element<'_>> = first.iter().collect();
    for member in sets.iter().flat_map(SetView::iter) {
        left.remove(&member);
        if left.is_empty() {
            break;
        }
    }
    Box::new(left.into_iter())
}
