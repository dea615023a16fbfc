//! Sorted sets out of several: ZUNION, ZINTER, ZDIFF, their STORE forms, and ZINTERCARD.
//!
//! What it is: reading the arguments, and replying with the result or storing it. Sets are read as sorted
//! sets whose scores are 1. What it is not: the computation of the result (see `members`). No hash table is
//! needed to compute it: a union of several sorts its members twice, first by their bytes, to find equal
//! ones, and then by score.

mod members;
mod options;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use engine::{CommandError, Context, Unit};
use keyspace::{DbId, ScoredItemsBuf};
use wire::{Args, number::parse_i64};

use members::{Source, Sources, Weighted, combine, intersect};
use options::{Form, Options};

use super::{
    counted,
    reply::{write_members, write_scored},
    store,
};

/// How sorted sets are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    /// The members of the first sorted set that no other sorted set has.
    Difference,
}

/// Reads the keys, whose number is the argument at `at`, and the options. The checks are made in the order in
/// which Redis makes them: types before options.
fn prepare<'a>(
    cx: &mut Context<'_, '_>,
    args: Args<'a>,
    at: usize,
    operation: Operation,
    form: Form,
    name: &str,
) -> Result<(Args<'a>, Options), CommandError> {
    let count = parse_i64(args.at(at)).ok_or(CommandError::NotAnInteger)?;
    if count < 1 {
        return Err(CommandError::Composed(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let (keys, words) = counted(args, at).ok_or(CommandError::Syntax)?;
    let db = cx.db();
    for key in keys {
        Source::of(cx.unit.read(db, key))?;
    }
    Ok((keys, Options::parse(words, keys.len(), operation, form)?))
}

/// The sources at the keys, with their weights.
fn sources<'u>(
    unit: &'u Unit<'_>,
    db: DbId,
    keys: Args<'_>,
    options: &Options,
) -> Result<Sources<'u>, CommandError> {
    let weighted = |(index, key)| {
        let weight = options.weights.get(index).copied().unwrap_or(1.0);
        Ok(Weighted { source: Source::of(unit.peek(db, key))?, weight })
    };
    keys.iter().enumerate().map(weighted).collect()
}

/// `ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]`
pub(super) fn zunion(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, args, Operation::Union, "zunion")
}

/// `ZINTER`, with the arguments of ZUNION.
pub(super) fn zinter(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, args, Operation::Intersection, "zinter")
}

/// `ZDIFF numkeys key [key ...] [WITHSCORES]`
pub(super) fn zdiff(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, args, Operation::Difference, "zdiff")
}

fn show(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    operation: Operation,
    name: &str,
) -> Result<(), CommandError> {
    let (keys, options) = prepare(cx, args, 1, operation, Form::Shows, name)?;
    let sources = sources(&cx.unit, cx.session.db, keys, &options)?;
    let members = combine(sources, operation, options.aggregate).into_iter();
    if options.with_scores {
        write_scored(&mut cx.reply, members);
    } else {
        write_members(&mut cx.reply, members);
    }
    Ok(())
}

/// `ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN |
/// MAX>]`
pub(super) fn zunionstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store_combined(cx, args, Operation::Union, "zunionstore")
}

/// `ZINTERSTORE`, with the arguments of ZUNIONSTORE.
pub(super) fn zinterstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store_combined(cx, args, Operation::Intersection, "zinterstore")
}

/// `ZDIFFSTORE destination numkeys key [key ...]`
pub(super) fn zdiffstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store_combined(cx, args, Operation::Difference, "zdiffstore")
}

fn store_combined(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    operation: Operation,
    name: &'static str,
) -> Result<(), CommandError> {
    let (keys, options) = prepare(cx, args, 2, operation, Form::Stores, name)?;
    let sources = sources(&cx.unit, cx.session.db, keys, &options)?;
    let mut members = ScoredItemsBuf::new();
    for (member, score) in combine(sources, operation, options.aggregate) {
        members.push(score, &member);
    }
    store(cx, args.at(1), &members, name)
}

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) fn zintercard(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let operation = Operation::Intersection;
    let (keys, options) = prepare(cx, args, 1, operation, Form::Counts, "zintercard")?;
    let mut sources = sources(&cx.unit, cx.session.db, keys, &options)?;
    let mut count = 0;
    let _ = intersect(&mut sources, options.aggregate, |_, _| {
        count += 1;
        if count == options.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    cx.reply.count(count);
    Ok(())
}
