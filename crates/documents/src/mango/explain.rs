//! The reply of `_explain`: how a query would be answered, and why other indexes are not used.
//!
//! The reply has the members of CouchDB's reply, and CouchDB's reasons and ranks for the indexes that are not
//! used. One thing differs: this server always reads the documents, so no index covers a query.

use super::plan::{all_docs_is_usable, bounded_prefix, is_considered, merit, unusable_because};
use super::range::{FieldRange, bounded_fields};
use super::{ALL_DOCS_INDEX, Bookmark, FieldPath, FindRequest, IndexDefinition, Plan, QueryError, Value};
use crate::json::put_string;

/// The text for the key after all others.
const LAST_KEY: &str = "<MAX>";

/// Appends the reply.
///
/// # Errors
/// [`QueryError::InvalidBookmark`] and [`QueryError::UnsuitableIndex`].
pub fn explain(
    request: &FindRequest,
    indexes: &[IndexDefinition],
    database: &str,
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
    let plan = match Plan::choose(request, indexes) {
        Ok(plan) => Some(plan),
        Err(QueryError::NoUsableIndex) => None,
        Err(error) => return Err(error),
    };
    out.extend_from_slice(b"{\"dbname\":");
    put_string(out, database);
    out.extend_from_slice(b",\"index\":");
    match &plan {
        None => out.extend_from_slice(b"null"),
        Some(plan) => put_index(out, plan.index.as_ref()),
    }
    let fields = Value::Array(request.fields.names().map(Value::string).collect());
    let members = [
        ("partitioned", Value::Bool(false)),
        ("selector", request.selector.to_value()),
        ("opts", options(request)),
        ("limit", number(request.limit)),
        ("skip", number(request.skip)),
        ("fields", fields),
    ];
    for (key, value) in members {
        put_member(out, key, &value);
    }
    put_candidates(out, request, indexes, plan.as_ref());
    put_member(out, "selector_hints", &hints(request));
    if let Some(plan) = &plan {
        put_member(out, "mrargs", &arguments(request, plan));
        put_member(out, "covering", &Value::Bool(false));
    }
    out.push(b'}');
    Ok(())
}

fn put_member(out: &mut Vec<u8>, key: &str, value: &Value<'_>) {
    out.push(b',');
    put_string(out, key);
    out.push(b':');
    value.render(out);
}

fn put_index(out: &mut Vec<u8>, index: Option<&IndexDefinition>) {
    match index {
        Some(index) => index.render(out),
        None => out.extend_from_slice(ALL_DOCS_INDEX.as_bytes()),
    }
}

fn object<const N: usize>(members: [(&'static str, Value<'static>); N]) -> Value<'static> {
    Value::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn number(number: u64) -> Value<'static> {
    Value::integer(i128::from(number))
}

/// The options of the request, with defaults for those that it does not give.
fn options(request: &FindRequest) -> Value<'static> {
    let hint = request.use_index.iter().flat_map(|hint| hint.given.iter().cloned().map(Value::string));
    let direction = request.sort.direction();
    let sort = request.sort.fields.iter().map(|path| (path.name().into(), Value::string(direction)));
    let bookmark = request.bookmark.as_ref().map_or(Bookmark::NONE.into(), Bookmark::text);
    object([
        ("use_index", Value::Array(hint.collect())),
        ("bookmark", Value::string(bookmark)),
        ("limit", number(request.limit)),
        ("skip", number(request.skip)),
        ("sort", Value::Object(sort.collect())),
        ("fields", Value::Array(request.fields.names().map(Value::string).collect())),
        ("partition", Value::string("")),
        ("r", number(request.read_copies)),
        ("conflicts", Value::Bool(request.conflicts)),
        ("stale", if request.stale { Value::string("ok") } else { Value::Bool(false) }),
        ("update", Value::Bool(request.asks_for_update)),
        ("stable", Value::Bool(request.stable)),
        ("execution_stats", Value::Bool(request.execution_stats)),
        ("allow_fallback", Value::Bool(request.allow_fallback)),
    ])
}

/// An index that the query does not use, with the reason.
struct Candidate<'a> {
    /// `None`: all documents by id.
    index: Option<&'a IndexDefinition>,
    usable: bool,
    reason: &'static str,
    ranking: usize,
}

/// The stage of the choice at which an index is excluded, from the last stage to the first.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// The index was compared with the one that is used.
    Compared,
    /// The index of all documents is not used if there is another usable index.
    Unfavored,
    /// The request names another index.
    Excluded,
    NotUsable(&'static str),
    Partial,
}

fn put_candidates(
    out: &mut Vec<u8>,
    request: &FindRequest,
    indexes: &[IndexDefinition],
    plan: Option<&Plan>,
) {
    out.extend_from_slice(b",\"index_candidates\":[");
    for (position, candidate) in candidates(request, indexes, plan).iter().enumerate() {
        out.extend_from_slice(if position == 0 { b"{\"index\":" } else { b",{\"index\":" });
        put_index(out, candidate.index);
        let covering = candidate.index.map_or(Value::Null, |_| Value::Bool(false));
        let analysis = object([
            ("usable", Value::Bool(candidate.usable)),
            ("reasons", Value::Array(vec![object([("name", Value::string(candidate.reason))])])),
            ("ranking", number(candidate.ranking as u64)),
            ("covering", covering),
        ]);
        put_member(out, "analysis", &analysis);
        out.push(b'}');
    }
    out.push(b']');
}

/// The indexes that are not used, in CouchDB's order: descending by name, all documents last.
fn candidates<'a>(
    request: &FindRequest,
    indexes: &'a [IndexDefinition],
    plan: Option<&Plan>,
) -> Vec<Candidate<'a>> {
    let usable = |index: &IndexDefinition| {
        is_considered(index, request) && unusable_because(&index.columns.fields, request).is_none()
    };
    let is_hinted = indexes.iter().any(|index| request.names(index) && usable(index));
    let has_usable = indexes.iter().any(&usable);
    let stage = |index: &IndexDefinition| match unusable_because(&index.columns.fields, request) {
        _ if !is_considered(index, request) => Stage::Partial,
        Some(reason) => Stage::NotUsable(reason),
        None if is_hinted && !request.names(index) => Stage::Excluded,
        None => Stage::Compared,
    };
    let mut all: Vec<(Option<&IndexDefinition>, Stage)> =
        indexes.iter().map(|index| (Some(index), stage(index))).collect();
    let by_name = |index: &IndexDefinition| (index.design.clone(), index.name.clone());
    all.sort_by_cached_key(|(index, _)| std::cmp::Reverse(index.map(by_name)));
    all.push((None, stage_of_all_docs(request, is_hinted, has_usable)));

    let mut compared: Vec<&IndexDefinition> =
        all.iter().filter(|(_, stage)| *stage == Stage::Compared).filter_map(|(index, _)| *index).collect();
    compared.sort_by_cached_key(|index| merit(index, request));
    let any = |is: fn(&Stage) -> bool| usize::from(all.iter().any(|(_, stage)| is(stage)));
    // An index of an earlier stage ranks after all indexes of later stages.
    let unfavored = compared.len().max(1);
    let excluded = unfavored + any(|stage| *stage == Stage::Unfavored);
    let not_usable = excluded + any(|stage| *stage == Stage::Excluded);
    let partial = not_usable + any(|stage| matches!(stage, Stage::NotUsable(_)));

    let chosen = plan.map(|plan| plan.index.as_ref());
    let identity = |index: &IndexDefinition| (index.design.clone(), index.name.clone());
    let is_chosen = |index: Option<&IndexDefinition>| {
        chosen.is_some_and(|chosen| chosen.map(identity) == index.map(identity))
    };
    let width = chosen.flatten().map_or(0, |chosen| chosen.columns.fields.len());
    let bounded = bounded_fields(&request.selector).len();
    let why_less = |index: &IndexDefinition| {
        if bounded > bounded_prefix(index, request) {
            "less_overlap"
        } else if index.columns.fields.len() > width {
            "too_many_fields"
        } else {
            "alphabetically_comes_after"
        }
    };
    let rest = all.into_iter().filter(|(index, _)| !is_chosen(*index));
    let told = rest.map(|(index, stage)| {
        let (usable, reason, ranking) = match (stage, index) {
            (Stage::Compared, Some(index)) => {
                let place = compared.iter().position(|other| std::ptr::eq(*other, index));
                (true, why_less(index), place.unwrap_or(0))
            }
            (Stage::Compared | Stage::Unfavored, _) => (true, "unfavored_type", unfavored),
            (Stage::Excluded, _) => (true, "excluded_by_user", excluded),
            (Stage::NotUsable(reason), _) => (false, reason, not_usable),
            (Stage::Partial, _) => (false, "is_partial", partial),
        };
        Candidate { index, usable, reason, ranking }
    });
    told.collect()
}

fn stage_of_all_docs(request: &FindRequest, is_hinted: bool, has_usable: bool) -> Stage {
    if !all_docs_is_usable(request) {
        let has_id = bounded_fields(&request.selector).iter().any(|path| path.name() == "_id");
        return Stage::NotUsable(if has_id { "sort_order_mismatch" } else { "field_mismatch" });
    }
    match (is_hinted, has_usable) {
        (true, _) => Stage::Excluded,
        (false, true) => Stage::Unfavored,
        (false, false) => Stage::Compared,
    }
}

/// The fields of the selector, grouped by whether an index can serve the conditions on them.
fn hints(request: &FindRequest) -> Value<'static> {
    let names = |paths: Vec<&FieldPath>| {
        let mut names: Vec<String> = paths.into_iter().map(FieldPath::name).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let indexable = names(bounded_fields(&request.selector));
    let mut others = names(request.selector.paths());
    others.retain(|name| !indexable.contains(name));
    let list = |names: Vec<String>| Value::Array(names.into_iter().map(Value::string).collect());
    Value::Array(vec![object([
        ("type", Value::string("json")),
        ("indexable_fields", list(indexable)),
        ("unindexable_fields", list(others)),
    ])])
}

/// The range that is read, in the form of CouchDB's arguments for a view.
fn arguments(request: &FindRequest, plan: &Plan) -> Value<'static> {
    let (first, last) = match (&plan.keys, &plan.index) {
        (None, _) => (Value::Null, Value::Null),
        (Some(_), None) => ids(request),
        (Some(_), Some(index)) => keys(request, index),
    };
    let (first, last) = if plan.descending { (last, first) } else { (first, last) };
    let conflicts = if request.conflicts { Value::Bool(true) } else { Value::string("undefined") };
    object([
        // With more than one copy, CouchDB reads the documents in a later step.
        ("include_docs", Value::Bool(request.read_copies == 1)),
        ("view_type", Value::string("map")),
        ("reduce", Value::Bool(false)),
        ("partition", Value::Null),
        ("start_key", first),
        ("end_key", last),
        ("direction", Value::string(if plan.descending { "rev" } else { "fwd" })),
        ("stable", Value::Bool(request.stable || request.stale)),
        ("update", Value::Bool(request.update)),
        ("conflicts", conflicts),
    ])
}

fn ids(request: &FindRequest) -> (Value<'static>, Value<'static>) {
    let bounded = bounded_fields(&request.selector);
    let Some(path) = bounded.into_iter().find(|path| path.name() == "_id") else {
        return (Value::Null, Value::string(LAST_KEY));
    };
    let range = FieldRange::shown(&request.selector, path);
    let low = range.low.map_or_else(|| Value::string(""), |(low, _)| low.into_owned());
    let high = range.high.map_or_else(|| Value::string(LAST_KEY), |(high, _)| high.into_owned());
    (low, high)
}

fn keys(request: &FindRequest, index: &IndexDefinition) -> (Value<'static>, Value<'static>) {
    let columns = &index.columns.fields[..bounded_prefix(index, request)];
    let ranges = || columns.iter().map(|path| FieldRange::shown(&request.selector, path));
    let first = ranges().map_while(|range| range.low.map(|(low, _)| low.into_owned()));
    let last = ranges().map_while(|range| range.high.map(|(high, _)| high.into_owned()));
    (Value::Array(first.collect()), Value::Array(last.chain([Value::string(LAST_KEY)]).collect()))
}

#[cfg(test)]
mod tests;
