//! The members and scores that a combination gives.
//!
//! What it is: unions, intersections and differences of sorted sets and sets. What it is not: access to keys.

use std::ops::ControlFlow;

use engine::CommandError;
use keyspace::{Element, EntryRef, SetView, View, ZsetView};
use smallvec::SmallVec;

use super::Operation;

/// The rule that makes one score of a member's scores in several sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// Makes one score of two. Infinities that cancel each other out give 0, as in Redis.
    fn combine(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(score + other),
            Aggregate::Min if other < score => other,
            Aggregate::Max if other > score => other,
            Aggregate::Min | Aggregate::Max => score,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A sorted set, or a set, that is combined with others.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Nothing,
    Zset(ZsetView<'a>),
    Set(SetView<'a>),
}

impl<'a> Source<'a> {
    pub(super) fn of(entry: Option<EntryRef<'a>>) -> Result<Source<'a>, CommandError> {
        match entry.map(|entry| entry.view()) {
            None => Ok(Source::Nothing),
            Some(View::Zset(zset)) => Ok(Source::Zset(zset)),
            Some(View::Set(set)) => Ok(Source::Set(set)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    fn len(&self) -> usize {
        match self {
            Source::Nothing => 0,
            Source::Zset(zset) => zset.len(),
            Source::Set(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Nothing => None,
            Source::Zset(zset) => zset.score(member),
            Source::Set(set) => set.contains(member).then_some(1.0),
        }
    }

    fn try_for_each(&self, mut visit: impl FnMut(Element<'a>, f64) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Source::Nothing => ControlFlow::Continue(()),
            Source::Zset(zset) => zset.iter().try_for_each(|(member, score)| visit(member, score)),
            Source::Set(set) => set.iter().try_for_each(|member| visit(member, 1.0)),
        }
    }

    fn for_each(&self, mut visit: impl FnMut(Element<'a>, f64)) {
        let _ = self.try_for_each(|member, score| {
            visit(member, score);
            ControlFlow::Continue(())
        });
    }
}

/// A source and the factor that multiplies its scores.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    pub(super) source: Source<'a>,
    pub(super) weight: f64,
}

pub(super) type Sources<'a> = SmallVec<[Weighted<'a>; 4]>;
pub(super) type Members<'a> = Vec<(Element<'a>, f64)>;

/// The members that the operation gives, in the order of a sorted set: by score, then by their bytes.
pub(super) fn combine<'u>(
    mut sources: Sources<'u>,
    operation: Operation,
    aggregate: Aggregate,
) -> Members<'u> {
    let mut members = match operation {
        Operation::Union => union(&mut sources, aggregate),
        Operation::Intersection => {
            let mut members = Members::new();
            let _ = intersect(&mut sources, aggregate, |member, score| {
                members.push((member, score));
                ControlFlow::Continue(())
            });
            members
        }
        Operation::Difference => difference(&sources),
    };
    members.sort_unstable_by(|(member, score), (other, other_score)| {
        let by_score = score.partial_cmp(other_score).expect("no score is NaN");
        by_score.then_with(|| member[..].cmp(other))
    });
    members
}

/// Sorts the sources from the smallest on, as Redis does: the order in which scores are added shows in their
/// last digits.
fn sort_by_len(sources: &mut Sources<'_>) {
    sources.sort_by_key(|weighted| weighted.source.len());
}

fn union<'u>(sources: &mut Sources<'u>, aggregate: Aggregate) -> Members<'u> {
    sort_by_len(sources);
    let mut members = Members::with_capacity(sources.iter().map(|weighted| weighted.source.len()).sum());
    for Weighted { source, weight } in sources.iter() {
        source.for_each(|member, score| members.push((member, number_or_zero(weight * score))));
    }
    if sources.len() > 1 {
        // Equal members stay in the order of their sources.
        members.sort_by(|(member, _), (other, _)| member[..].cmp(other));
        members.dedup_by(|(member, score), (kept, kept_score)| {
            let is_equal = member == kept;
            if is_equal {
                *kept_score = aggregate.combine(*kept_score, *score);
            }
            is_equal
        });
    }
    members
}

/// Visits the members that all sources have, in no particular order, until `visit` breaks.
pub(super) fn intersect<'u>(
    sources: &mut Sources<'u>,
    aggregate: Aggregate,
    mut visit: impl FnMut(Element<'u>, f64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    sort_by_len(sources);
    let Some((smallest, others)) = sources.split_first() else { return ControlFlow::Continue(()) };
    smallest.source.try_for_each(|member, score| {
        let mut combined = number_or_zero(smallest.weight * score);
        for other in others {
            let Some(score) = other.source.score(&member) else { return ControlFlow::Continue(()) };
            combined = aggregate.combine(combined, other.weight * score);
        }
        visit(member, combined)
    })
}

/// The members of the first source that no other has.
fn difference<'u>(sources: &Sources<'u>) -> Members<'u> {
    let mut members = Members::new();
    let Some((first, others)) = sources.split_first() else { return members };
    let others_len: usize = others.iter().map(|other| other.source.len()).sum();
    if first.source.len() * others.len() / 2 <= others_len {
        first.source.for_each(|member, score| {
            if others.iter().all(|other| other.source.score(&member).is_none()) {
                members.push((member, score));
            }
        });
        return members;
    }
    // Looking up each member of the first source in each other source would cost more. So the members of the
    // others are gathered, and each member of the first source is searched there once.
    let mut excluded: Vec<Element<'_>> = Vec::with_capacity(others_len);
    others.iter().for_each(|other| other.source.for_each(|member, _| excluded.push(member)));
    excluded.sort_unstable_by(|member, other| member[..].cmp(other));
    first.source.for_each(|member, score| {
        if excluded.binary_search_by(|other| other[..].cmp(&member)).is_err() {
            members.push((member, score));
        }
    });
    members
}
