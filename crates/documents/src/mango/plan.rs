//! `Plan`: the index that answers a query, and the range of its entries to read.
//!
//! The choice is CouchDB's:
//! - An index is usable if it has every matching document that has the fields of the sort, in the requested
//!   order.
//! - If the request names usable indexes, the choice is among these.
//! - The best index has the longest prefix of columns that the selector bounds. Of several such indexes, the
//!   one with the fewest columns is chosen, then the first by design document and name.
//! - Without a usable index, all documents are scanned. If the request wants another order than that of ids,
//!   it is refused.
//! - If `allow_fallback` is false, two more kinds of requests are refused: those whose `use_index` names no
//!   usable index, and those without `use_index` that can be answered in only one way (by one usable index,
//!   or by the scan).
//!
//! `explain` gives the reason why each of the other indexes was not chosen. A plan does not read documents.
//! The document of every entry in the range must still be compared with the selector, because some may not
//! match.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::key::{INDEX_KEY_BYTES_MAX, end_of_prefix, has_key_of_its_own, put_key};
use super::range::{FieldRange, bounded_fields, requires};
use super::{Bookmark, FieldPath, FindRequest, IndexDefinition, QueryError, Value};

/// The execution plan of a query.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The index; `None` for a scan of all documents by id.
    pub index: Option<IndexDefinition>,
    /// The range of entries to read; `None` if the query finds no document.
    pub keys: Option<KeyRange>,
    /// Whether the entries are read from the last to the first.
    pub descending: bool,
    /// The warning for the reply, if any.
    pub warning: Option<String>,
}

/// A range of index keys or ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// The lower bound, inclusive.
    pub from: Vec<u8>,
    /// The upper bound, exclusive; `None` for no bound.
    pub to: Option<Vec<u8>>,
}

impl Plan {
    /// Chooses among the indexes of a database.
    pub fn choose(request: &FindRequest, indexes: &[IndexDefinition]) -> Result<Plan, QueryError> {
        let named = |index: &&IndexDefinition| request.names(index);
        let usable = |index: &&IndexDefinition| {
            is_considered(index, request) && unusable_because(&index.columns.fields, request).is_none()
        };
        let usable: Vec<&IndexDefinition> = indexes.iter().filter(usable).collect();
        let all_docs = all_docs_is_usable(request);
        if usable.is_empty() && !all_docs {
            return Err(QueryError::NoUsableIndex);
        }
        let hinted = best(usable.iter().copied().filter(named), request);
        let has_choice = request.use_index.is_none() && usable.len() + usize::from(all_docs) > 1;
        if hinted.is_none() && !request.allow_fallback && !has_choice {
            return Err(QueryError::UnsuitableIndex(request.use_index.as_ref().map(ToString::to_string)));
        }
        let index = hinted.or_else(|| best(usable.iter().copied(), request));
        let keys = match index {
            _ if request.selector.is_empty_list() => None,
            Some(index) => keys_of_index(index, request),
            None => ids(request),
        };
        let mut plan = Plan {
            index: index.cloned(),
            warning: keys.as_ref().and_then(|_| warning(index, request)),
            keys,
            descending: request.sort.descending,
        };
        plan.go_on(request)?;
        Ok(plan)
    }

    /// A bookmark after the entry with this key.
    pub fn bookmark(&self, key: &[u8]) -> Bookmark {
        Bookmark { index: self.index.as_ref().map_or([0; 16], IndexDefinition::digest), key: key.to_vec() }
    }

    /// Excludes the entry of the bookmark, and all entries that are read before it.
    fn go_on(&mut self, request: &FindRequest) -> Result<(), QueryError> {
        let (Some(bookmark), Some(keys)) = (&request.bookmark, &mut self.keys) else { return Ok(()) };
        if bookmark.index != self.index.as_ref().map_or([0; 16], IndexDefinition::digest) {
            return Err(QueryError::InvalidBookmark(Value::string(bookmark.text()).to_json()));
        }
        if self.descending {
            let end = bookmark.key.clone();
            if keys.to.as_ref().is_none_or(|to| *to > end) {
                keys.to = Some(end);
            }
        } else {
            // The smallest key that is greater than the key of the bookmark.
            let behind = [&bookmark.key[..], &[0]].concat();
            keys.from = std::mem::take(&mut keys.from).max(behind);
        }
        Ok(())
    }
}

/// Whether the index may be chosen. A partial index is used only if the request names it: the client then
/// vouches that the index has all matching documents.
pub(super) fn is_considered(index: &IndexDefinition, request: &FindRequest) -> bool {
    index.filter.is_none() || request.names(index)
}

/// Why an index cannot be used, under the name that CouchDB has for it.
pub(super) type Reason = &'static str;

/// Why an index with these columns is not usable: it may lack matching documents, or has another order than
/// the requested one. `None` if it is usable.
pub(super) fn unusable_because(columns: &[FieldPath], request: &FindRequest) -> Option<Reason> {
    let sort = &request.sort.fields;
    let always = |path: &FieldPath| ["_id", "_rev"].contains(&&*path.name());
    let has_all =
        columns.iter().all(|path| sort.contains(path) || always(path) || requires(&request.selector, path));
    // Columns with only one possible value do not affect the order.
    let constant = columns.iter().take_while(|path| {
        sort.first() != Some(path) && FieldRange::of(&request.selector, path).only().is_some()
    });
    let has_order = sort.is_empty() || columns[constant.count()..].starts_with(sort);
    match (has_all, has_order) {
        (false, _) => Some("field_mismatch"),
        (true, false) => Some("sort_order_mismatch"),
        (true, true) => None,
    }
}

pub(super) fn all_docs_is_usable(request: &FindRequest) -> bool {
    match &request.sort.fields[..] {
        [] => true,
        [path] => path.name() == "_id",
        _ => false,
    }
}

/// The best of several usable indexes, by [`merit`]; `None` if there is none.
fn best<'a>(
    indexes: impl Iterator<Item = &'a IndexDefinition>,
    request: &FindRequest,
) -> Option<&'a IndexDefinition> {
    indexes.min_by_key(|index| merit(index, request))
}

/// The sort key of indexes; the best is the smallest.
pub(super) fn merit<'a>(
    index: &'a IndexDefinition,
    request: &FindRequest,
) -> (Reverse<usize>, usize, &'a str, &'a str) {
    let prefix = bounded_prefix(index, request);
    (Reverse(prefix), index.columns.fields.len(), &index.design, &index.name)
}

/// The number of leading columns that the selector bounds.
pub(super) fn bounded_prefix(index: &IndexDefinition, request: &FindRequest) -> usize {
    let bounded = bounded_fields(&request.selector);
    index.columns.fields.iter().take_while(|path| bounded.contains(path)).count()
}

/// The range of keys: a prefix of columns with one possible value each, then the range of the next column;
/// `None` if no document can match.
fn keys_of_index(index: &IndexDefinition, request: &FindRequest) -> Option<KeyRange> {
    let ranges: Vec<_> =
        index.columns.fields.iter().map(|path| FieldRange::of(&request.selector, path)).collect();
    if ranges.iter().any(FieldRange::is_empty) {
        return None;
    }
    let mut prefix = Vec::new();
    let constant = ranges.iter().map_while(|range| range.only());
    constant.clone().for_each(|value| put_key(&mut prefix, value));
    let range = ranges.get(constant.count());
    // Unequal values may have equal keys, so a bound that excludes such a value must not exclude its key.
    let bound = |(value, with): &(Cow<'_, Value<'static>>, bool)| {
        let mut key = prefix.clone();
        put_key(&mut key, value);
        let is_in = *with || !has_key_of_its_own(value) || key.len() == INDEX_KEY_BYTES_MAX;
        (key, is_in)
    };
    let low = range.and_then(|range| range.low.as_ref()).map(bound);
    let high = range.and_then(|range| range.high.as_ref()).map(bound);
    let from = match low {
        None => prefix.clone(),
        Some((key, true)) => key,
        // Always `Some`: the first byte of a key is a tag.
        Some((key, false)) => end_of_prefix(key).unwrap_or_default(),
    };
    let to = match high {
        None => end_of_prefix(prefix),
        Some((key, true)) => end_of_prefix(key),
        Some((key, false)) => Some(key),
    };
    Some(KeyRange { from, to })
}

/// A range with all ids that the selector allows; `None` if it allows none.
fn ids(request: &FindRequest) -> Option<KeyRange> {
    let id = FieldPath::parse("_id").ok()?;
    let range = FieldRange::of(&request.selector, &id);
    if range.is_empty() {
        return None;
    }
    let (least, most) = (Value::string(""), Value::Array(Vec::new()));
    let from = match range.low.as_ref().map(|(low, _)| &**low) {
        Some(Value::String(id)) => id.as_bytes().to_vec(),
        Some(other) if *other >= most => return None,
        _ => Vec::new(),
    };
    let to = match range.high.as_ref().map(|(high, _)| &**high) {
        // The bound is after the id itself, because the id may be in the range.
        Some(Value::String(id)) => Some([id.as_bytes(), &[0]].concat()),
        Some(other) if *other < least => return None,
        _ => None,
    };
    Some(KeyRange { from, to })
}

fn warning(index: Option<&IndexDefinition>, request: &FindRequest) -> Option<String> {
    let mut warnings = Vec::new();
    if let Some(hint) =
        request.use_index.as_ref().filter(|hint| !index.is_some_and(|index| hint.names(index)))
    {
        warnings.push(match &hint.name {
            Some(name) => {
                format!(
                    "{}, {name} was not used because it is not a valid index for this query.",
                    hint.design
                )
            }
            None => format!(
                "{} was not used because it does not contain a valid index for this query.",
                hint.design
            ),
        });
    }
    if index.is_none() {
        warnings.push("No matching index found, create an index to optimize query time.".to_owned());
    }
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}

impl FindRequest {
    /// Whether `use_index` refers to this index.
    pub(super) fn names(&self, index: &IndexDefinition) -> bool {
        self.use_index.as_ref().is_some_and(|hint| hint.names(index))
    }
}

impl super::IndexHint {
    /// Whether the hint refers to this index.
    fn names(&self, index: &IndexDefinition) -> bool {
        self.design == index.design && self.name.as_ref().is_none_or(|name| *name == index.name)
    }
}

#[cfg(test)]
mod tests;
