//! SORT: the elements of a list, a set or a sorted set in another order.
//!
//! What it is: SORT, which may store the result as a list, and SORT_RO, which may not.
//! What it is not: sorting in place.
//!
//! Invariants
//! - A call with a pattern that names keys has locked every slot: the keys that it reads depend on the
//!   elements.

mod options;
mod pattern;

use std::cmp::Ordering;

use engine::{CommandError, Context, EventClass, Unit};
use keyspace::{DbId, Element, ItemsBuf, KeyOp, Value, View};
use wire::{Args, number::parse_f64};

use options::Options;
use pattern::Pattern;
pub(crate) use rows::ROWS;

/// The maximum bytes of the values that GET shows: they are gathered in memory, and the size of the stored
/// data does not bound them.
const SHOWN_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };
/// The approximate memory that one value takes beside its bytes.
const VALUE_HEAD_BYTES: usize = 16;

fn find_first(_: Args<'_>, visit: &mut dyn FnMut(usize)) {
    visit(1);
}

/// Visits the keys of a call. If its options are wrong, only the first key is visited.
fn find_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    visit(1);
    if let Some(at) = Options::parse(args, true).ok().and_then(|options| options.store) {
        visit(at);
    }
}

fn reads_others(args: Args<'_>, stores: bool) -> bool {
    Options::parse(args, stores).is_ok_and(|options| options.reads_keys())
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]`
fn sort(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = options(cx, args, true)?;
    match options.store {
        Some(at) => store(cx, args.at(1), args.at(at), &options),
        None => show(cx, args.at(1), &options),
    }
}

/// `SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]`
fn sort_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, args.at(1), &options(cx, args, false)?)
}

fn options<'a>(cx: &Context<'_, '_>, args: Args<'a>, stores: bool) -> Result<Options<'a>, CommandError> {
    let mut options = Options::parse(args, stores)?;
    if let Some(option) = options.first_that_reads()
        && !cx.may_read_all_keys(args)
    {
        return Err(CommandError::Composed(format!(
            "ERR {option} option of SORT denied due to insufficient ACL permissions"
        )));
    }
    options.reproducible |= cx.in_script;
    Ok(options)
}

fn show(cx: &mut Context<'_, '_>, key: &[u8], options: &Options<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    cx.unit.read(db, key);
    let elements = sorted(&cx.unit, db, key, options)?;
    cx.reply.array(elements.len() * options.gets.len().max(1));
    for_each_shown(&cx.unit, db, &elements, options, |value| cx.reply.bulk_or_null(value))
}

/// Replaces the value of `destination`, of any type, with the result; an empty result deletes the key.
fn store(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    destination: &[u8],
    options: &Options<'_>,
) -> Result<(), CommandError> {
    let db = cx.db();
    cx.unit.read(db, key);
    let elements = sorted(&cx.unit, db, key, options)?;
    let mut items = ItemsBuf::new();
    for_each_shown(&cx.unit, db, &elements, options, |value| items.push(value.unwrap_or_default()))?;
    if items.is_empty() {
        if cx.unit.exists(db, destination) {
            cx.apply(destination, KeyOp::Delete);
            cx.notify(EventClass::GENERIC, "del", destination);
        }
    } else {
        cx.require_room(items.size_bytes() as u64)?;
        let value = Value::List(items.as_items());
        cx.apply(destination, KeyOp::Put { value, expire_at_ms: None });
        cx.notify(EventClass::LIST, "sortstore", destination);
    }
    cx.reply.count(items.len());
    Ok(())
}

/// Visits the values that GET shows for each element, or the elements if there is no GET.
fn for_each_shown(
    unit: &Unit<'_>,
    db: DbId,
    elements: &[Element<'_>],
    options: &Options<'_>,
    mut visit: impl FnMut(Option<&[u8]>),
) -> Result<(), CommandError> {
    let (mut shown_bytes, mut key) = (0, Vec::new());
    for element in elements {
        if options.gets.is_empty() {
            visit(Some(element));
        }
        for pattern in &options.gets {
            let value = pattern.value(unit, db, element, &mut key);
            shown_bytes += VALUE_HEAD_BYTES + value.as_ref().map_or(0, |value| value.len());
            if shown_bytes > SHOWN_BYTES_MAX {
                return Err(CommandError::Text(
                    "ERR the values that GET names are too many bytes for one reply",
                ));
            }
            visit(value.as_deref());
        }
    }
    Ok(())
}

/// The elements at the key that are shown, in their new order.
fn sorted<'u>(
    unit: &'u Unit<'_>,
    db: DbId,
    key: &[u8],
    options: &Options<'_>,
) -> Result<Vec<Element<'u>>, CommandError> {
    let Some(entry) = unit.peek(db, key) else { return Ok(Vec::new()) };
    let view = entry.view();
    let (len, range) = (view.len(), options.range(view.len()));
    let mirrored = len - range.end..len - range.start;
    let mut by = options.by;
    let mut alphabetic = options.alphabetic;
    let elements: Vec<Element<'u>> = match view {
        View::String(_) => return Err(CommandError::WrongType),
        // Lists and sorted sets have an order of their own.
        View::List(list) if options.unsorted && options.descending => {
            return Ok(list.range(mirrored).rev().collect());
        }
        View::List(list) if options.unsorted => return Ok(list.range(range).collect()),
        View::Zset(zset) if options.unsorted && options.descending => {
            return Ok(zset.range(mirrored).rev().map(|(member, _)| member).collect());
        }
        View::Zset(zset) if options.unsorted => {
            return Ok(zset.range(range).map(|(member, _)| member).collect());
        }
        View::Set(set) if options.unsorted && !options.reproducible => {
            return Ok(set.iter().skip(range.start).take(range.len()).collect());
        }
        View::Set(set) => {
            if options.unsorted {
                (by, alphabetic) = (None, true);
            }
            set.iter().collect()
        }
        View::List(list) => list.iter().collect(),
        View::Zset(zset) => zset.iter().map(|(member, _)| member).collect(),
        View::Hash(_) | View::Stream(_) => return Err(CommandError::WrongType),
    };
    let (by, mut name) = (by.unwrap_or(Pattern::Element), Vec::new());
    let weight = |element: &Element<'u>| by.value(unit, db, element, &mut name);
    let mut elements = if alphabetic {
        by_bytes(elements, options.descending, weight)
    } else {
        by_number(elements, options.descending, weight)?
    };
    elements.truncate(range.end);
    elements.drain(..range.start);
    Ok(elements)
}

fn directed(ordering: Ordering, descending: bool) -> Ordering {
    if descending { ordering.reverse() } else { ordering }
}

/// Sorts elements by the bytes of their weights. An element without a weight is less than all that have one.
fn by_bytes<'u>(
    elements: Vec<Element<'u>>,
    descending: bool,
    mut weight: impl FnMut(&Element<'u>) -> Option<Element<'u>>,
) -> Vec<Element<'u>> {
    let mut weighted: Vec<_> = elements.into_iter().map(|element| (weight(&element), element)).collect();
    weighted.sort_by(|(a, _), (b, _)| directed(a.as_deref().cmp(&b.as_deref()), descending));
    weighted.into_iter().map(|(_, element)| element).collect()
}

/// Sorts elements by their weights as numbers. An element without a weight has the weight 0; elements of
/// equal weight are sorted by their bytes.
fn by_number<'u>(
    elements: Vec<Element<'u>>,
    descending: bool,
    mut weight: impl FnMut(&Element<'u>) -> Option<Element<'u>>,
) -> Result<Vec<Element<'u>>, CommandError> {
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let number = weight(&element).map_or(Some(0.0), |weight| parse_weight(&weight));
        let number =
            number.ok_or(CommandError::Text("ERR One or more scores can't be converted into double"))?;
        weighted.push((number, element));
    }
    weighted.sort_by(|(a, one), (b, other)| {
        let by_weight = a.partial_cmp(b).unwrap_or(Ordering::Equal);
        directed(by_weight.then_with(|| one.cmp(other)), descending)
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

/// Reads a weight as Redis 8 does: an empty weight is 0.
fn parse_weight(weight: &Element<'_>) -> Option<f64> {
    if weight.is_empty() {
        return Some(0.0);
    }
    match weight.integer() {
        Some(integer) => Some(integer as f64),
        None => parse_f64(weight).filter(|number| !number.is_subnormal()),
    }
}

mod rows;
#[cfg(test)]
mod tests;
