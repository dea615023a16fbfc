//! Intersections, unions and differences of sets, without access to keys. The members of a result come in no
//! particular order.

use std::{cmp::Reverse, collections::HashSet};

use keyspace::{Element, SetView};
use smallvec::SmallVec;

/// The sets to combine; an absent key is an empty set.
pub(super) type Sets<'a> = SmallVec<[SetView<'a>; 8]>;

#[derive(Clone, Copy)]
pub(super) enum Operation {
    /// Members of all sets.
    Intersection,
    /// Members of any set.
    Union,
    /// Members of the first set that are in no other.
    Difference,
}

/// The members of the combination, without duplicates.
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

/// Looks up the members of the smallest set in the others.
pub(super) fn intersection(mut sets: Sets<'_>) -> impl Iterator<Item = Element<'_>> {
    sets.sort_unstable_by_key(SetView::len);
    let smallest = sets.first().copied().unwrap_or_default();
    smallest.iter().filter(move |member| sets.iter().skip(1).all(|set| set.contains(member)))
}

/// Iterates the largest set, and then the members of the others that are not in it. With more than two sets,
/// the members of the others are remembered, so that none comes twice.
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

/// Looks up the members of the first set in the others, or removes the members of the others from a copy of
/// the first, whichever is cheaper.
fn difference(mut sets: Sets<'_>) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
    if sets.is_empty() || sets[0].is_empty() {
        return Box::new(std::iter::empty());
    }
    let first = sets.remove(0);
    sets.retain(|set| !set.is_empty());
    let lookups_of_first = first.len().saturating_mul(sets.len() + 1);
    let lookups_of_all: usize = first.len() + sets.iter().map(SetView::len).sum::<usize>();
    // As in Redis, the first method is estimated at half of its lookups, because the lookups of a member end
    // at the first set that has it.
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
