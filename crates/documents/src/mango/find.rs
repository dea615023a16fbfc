//! `FindRequest`: a request to `_find` or `_explain`, with its sort order and bookmark.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{FieldPath, Fields, QueryError, Selector, Value};
use crate::names::DESIGN_PREFIX;

/// The number of documents that a query returns by default.
pub const FIND_LIMIT_DEFAULT: u64 = 25;

/// The allowed members of a request. `r` and `stable` are for clusters: only the reply of `_explain` depends
/// on them.
const KEYS: [&str; 15] = [
    "selector",
    "use_index",
    "bookmark",
    "limit",
    "skip",
    "sort",
    "fields",
    "partition",
    "r",
    "conflicts",
    "stale",
    "update",
    "stable",
    "execution_stats",
    "allow_fallback",
];

/// A parsed query.
#[derive(Debug, Clone)]
pub struct FindRequest {
    /// The condition on documents.
    pub selector: Selector,
    /// The requested index.
    pub use_index: Option<IndexHint>,
    /// The position to continue from.
    pub bookmark: Option<Bookmark>,
    /// The maximum number of documents to return.
    pub limit: u64,
    /// The number of matching documents to skip first.
    pub skip: u64,
    /// The requested order.
    pub sort: Sort,
    /// The fields to return.
    pub fields: Fields,
    /// Whether documents have `_conflicts`.
    pub conflicts: bool,
    /// Whether the index is brought up to date first, as determined by the parameters `update` and `stale`.
    pub update: bool,
    /// `update` as the client sent it.
    pub asks_for_update: bool,
    /// Whether the client sent `"stale":"ok"`.
    pub stale: bool,
    /// `stable` as the client sent it.
    pub stable: bool,
    /// `r`: the copies of a document that a cluster would read.
    pub read_copies: u64,
    /// Whether the reply has statistics of the execution.
    pub execution_stats: bool,
    /// Whether an index other than the one that the request names may be used.
    pub allow_fallback: bool,
}

/// The index requested by `use_index`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexHint {
    /// The id of the design document.
    pub design: String,
    /// The name of the index in it, if given.
    pub name: Option<String>,
    /// Design document and name as `_explain` shows them: as the client sent them. If the client sent one
    /// string instead of an array, the string is split at its slash and loses its prefix `_design/`.
    pub given: Vec<String>,
}

impl std::fmt::Display for IndexHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}, {name}", self.design),
            None => f.write_str(&self.design),
        }
    }
}

/// The order of the documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sort {
    /// The sort keys, the most significant first. Empty: the order of the index.
    pub fields: Vec<FieldPath>,
    /// Whether the order is descending.
    pub descending: bool,
}

/// The position of the last entry of a reply; the next page continues after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// The index of the entry: the digest of its definition, or zeros for all documents by id.
    pub index: [u8; 16],
    /// The key of the entry.
    pub key: Vec<u8>,
}

impl FindRequest {
    /// Parses the body of a request.
    pub fn parse(body: &Value<'_>) -> Result<FindRequest, QueryError> {
        check_keys(body, &KEYS)?;
        let selector = body.get("selector").ok_or(QueryError::MissingKey("selector"))?;
        let bookmark = match body.get("bookmark") {
            None | Some(Value::Null) => None,
            Some(bookmark) => Bookmark::parse(bookmark)?,
        };
        match body.get("partition") {
            None => {}
            Some(Value::String(name)) if name.is_empty() => {}
            Some(_) => return Err(QueryError::NoPartitions),
        }
        let asks_for_update = boolean(body, "update", true)?;
        let stale = is_stale(body)?;
        Ok(FindRequest {
            selector: Selector::parse(selector)?,
            use_index: body.get("use_index").map_or(Ok(None), IndexHint::parse)?,
            bookmark,
            limit: non_negative(body, "limit", FIND_LIMIT_DEFAULT)?,
            skip: non_negative(body, "skip", 0)?,
            sort: body.get("sort").map_or(Ok(Sort::default()), Sort::parse)?,
            fields: body.get("fields").map_or(Ok(Fields::default()), Fields::parse)?,
            conflicts: boolean(body, "conflicts", false)?,
            update: asks_for_update && !stale,
            asks_for_update,
            stale,
            stable: boolean(body, "stable", false)?,
            read_copies: positive(body, "r", 1)?,
            execution_stats: boolean(body, "execution_stats", false)?,
            allow_fallback: boolean(body, "allow_fallback", true)?,
        })
    }
}

impl IndexHint {
    fn parse(value: &Value<'_>) -> Result<Option<IndexHint>, QueryError> {
        let invalid = || QueryError::InvalidIndexName(value.to_json());
        let hint = |given: &str, name: Option<&str>| {
            let design = given;
            let design = if design.starts_with(DESIGN_PREFIX) {
                design.into()
            } else {
                format!("{DESIGN_PREFIX}{design}")
            };
            let given = [given].into_iter().chain(name).map(str::to_owned).collect();
            Ok(Some(IndexHint { design, name: name.map(str::to_owned), given }))
        };
        match value {
            Value::Null => Ok(None),
            Value::String(text) => {
                let rest = text.strip_prefix(DESIGN_PREFIX).unwrap_or(text);
                match rest.split_once('/') {
                    Some((_, name)) if name.contains('/') => Err(invalid()),
                    Some((design, name)) => hint(design, Some(name)),
                    None => hint(rest, None),
                }
            }
            Value::Array(parts) => match &parts[..] {
                [] => Ok(None),
                [design] => hint(design.as_str().ok_or_else(invalid)?, None),
                [design, name] => {
                    hint(design.as_str().ok_or_else(invalid)?, Some(name.as_str().ok_or_else(invalid)?))
                }
                _ => Err(invalid()),
            },
            _ => Err(invalid()),
        }
    }
}

impl Sort {
    /// Parses the member `sort`, or the fields of an index.
    pub fn parse(value: &Value<'_>) -> Result<Sort, QueryError> {
        let specs = value.as_array().ok_or_else(|| QueryError::InvalidSort(value.to_json()))?;
        let mut sort = Sort::default();
        for (index, spec) in specs.iter().enumerate() {
            let (name, descending) = match (spec.as_str(), spec.as_object()) {
                (Some(name), _) if !name.is_empty() => (name, false),
                (_, Some([(name, direction)])) => match direction.as_str() {
                    Some("asc") => (&**name, false),
                    Some("desc") => (&**name, true),
                    _ => return Err(QueryError::InvalidSortDirection(direction.to_json())),
                },
                _ => return Err(QueryError::InvalidSortField(spec.to_json())),
            };
            if index > 0 && descending != sort.descending {
                return Err(QueryError::MixedSort);
            }
            sort.descending = descending;
            sort.fields.push(FieldPath::parse(name)?);
        }
        Ok(sort)
    }

    /// The direction as text, `asc` or `desc`.
    pub fn direction(&self) -> &'static str {
        if self.descending { "desc" } else { "asc" }
    }
}

impl Bookmark {
    /// The bookmark of a reply without documents to a request without a bookmark.
    pub const NONE: &str = "nil";

    fn parse(value: &Value<'_>) -> Result<Option<Bookmark>, QueryError> {
        let invalid = || QueryError::InvalidBookmark(value.to_json());
        match value.as_str().ok_or_else(invalid)? {
            "" | Bookmark::NONE => Ok(None),
            text => {
                let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
                let (index, key) = bytes.split_first_chunk().ok_or_else(invalid)?;
                Ok(Some(Bookmark { index: *index, key: key.to_vec() }))
            }
        }
    }

    /// The text form in replies.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode([&self.index, &self.key[..]].concat())
    }
}

/// Rejects an object that has members other than `keys`.
pub(super) fn check_keys(body: &Value<'_>, keys: &[&str]) -> Result<(), QueryError> {
    let mut members = body.as_object().unwrap_or_default().iter();
    match members.find(|(key, _)| !keys.contains(&&**key)) {
        Some((key, _)) => Err(QueryError::InvalidKey(key.to_string())),
        None => Ok(()),
    }
}

fn non_negative(body: &Value<'_>, key: &str, otherwise: u64) -> Result<u64, QueryError> {
    let Some(value) = body.get(key) else { return Ok(otherwise) };
    value.as_u64().ok_or_else(|| QueryError::InvalidNonNegative(value.to_json()))
}

pub(super) fn positive(body: &Value<'_>, key: &str, otherwise: u64) -> Result<u64, QueryError> {
    let Some(value) = body.get(key) else { return Ok(otherwise) };
    value.as_u64().filter(|number| *number > 0).ok_or_else(|| QueryError::InvalidPositive(value.to_json()))
}

/// Parses `stale`: `"ok"`, or false, also as a string.
fn is_stale(body: &Value<'_>) -> Result<bool, QueryError> {
    match body.get("stale") {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(value) => match value.as_str() {
            Some("ok") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(QueryError::InvalidStale(value.to_json())),
        },
    }
}

fn boolean(body: &Value<'_>, key: &str, otherwise: bool) -> Result<bool, QueryError> {
    let Some(value) = body.get(key) else { return Ok(otherwise) };
    value.as_bool().ok_or_else(|| QueryError::InvalidBoolean(value.to_json()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FindRequest, QueryError> {
        FindRequest::parse(&Value::parse(text).expect(text))
    }

    #[test]
    fn only_the_selector_is_needed() {
        let request = parse(r#"{"selector":{"a":1}}"#).expect("a request");
        assert_eq!((request.limit, request.skip, request.update), (25, 0, true));
        assert_eq!(request.selector.to_value().to_json(), r#"{"a":{"$eq":1}}"#);
        assert!(request.use_index.is_none() && request.bookmark.is_none() && request.fields.is_all());
        let request = r#"{"selector":{},"limit":0,"skip":7,"r":1,"stable":true,"bookmark":"nil","execution_stats":true}"#;
        let request = parse(request).expect("a request");
        assert_eq!((request.limit, request.skip, request.execution_stats), (0, 7, true));
    }

    #[test]
    fn indexes_are_named_in_several_ways() {
        let hint = |text: &str| {
            let request = parse(&format!("{{\"selector\":{{}},\"use_index\":{text}}}")).expect(text);
            request.use_index.map(|hint| (hint.design, hint.name))
        };
        let design = ("_design/d".to_owned(), None);
        let both = ("_design/d".to_owned(), Some("n".to_owned()));
        assert_eq!(hint("\"d\""), Some(design.clone()));
        assert_eq!(hint("\"_design/d\""), Some(design.clone()));
        assert_eq!(hint("\"_design/d/n\""), Some(both.clone()));
        assert_eq!(hint("\"d/n\""), Some(both.clone()));
        assert_eq!(hint("[\"d\"]"), Some(design));
        assert_eq!(hint("[\"_design/d\",\"n\"]"), Some(both));
        assert_eq!((hint("[]"), hint("null")), (None, None));
        for text in ["\"a/b/c\"", "\"_design/a/b/c\"", "[1]", "[\"a\",\"b\",\"c\"]", "{}"] {
            let request = format!("{{\"selector\":{{}},\"use_index\":{text}}}");
            assert!(matches!(parse(&request), Err(QueryError::InvalidIndexName(_))), "{text}");
        }
    }

    #[test]
    fn members_for_clusters_are_checked_too() {
        let request = |members: &str| parse(&format!("{{\"selector\":{{}},{members}}}"));
        let known = request(r#""r":3,"stale":"ok","stable":true,"partition":"","allow_fallback":false"#);
        let known = known.expect("a request");
        assert_eq!((known.read_copies, known.stale, known.stable), (3, true, true));
        assert_eq!((known.update, known.asks_for_update, known.allow_fallback), (false, true, false));
        for value in ["null", "true", "false", "1.2", "1.0", "0", "-1", "\"1\"", "{}", "[2]"] {
            let reason = format!("{value} is not an integer greater than zero");
            assert_eq!(request(&format!("\"r\":{value}")).expect_err(value).to_string(), reason);
        }
        for member in ["\"stale\":true", "\"stale\":null", "\"stable\":1", "\"allow_fallback\":null"] {
            assert!(request(member).is_err(), "{member}");
        }
        for partition in ["\"x\"", "1", "null"] {
            let refused = request(&format!("\"partition\":{partition}"));
            assert_eq!(refused.expect_err(partition), QueryError::NoPartitions);
        }
    }

    #[test]
    fn orders_have_one_direction() {
        let sort = |text: &str| Sort::parse(&Value::parse(text).expect(text));
        let sorted = sort(r#"[{"a":"desc"},{"b.c":"desc"}]"#).expect("an order");
        assert_eq!((sorted.fields.len(), sorted.descending, sorted.direction()), (2, true, "desc"));
        assert_eq!(sort(r#"["a",{"b":"asc"}]"#).map(|sort| sort.descending), Ok(false));
        assert_eq!(sort(r#"["a",{"b":"desc"}]"#), Err(QueryError::MixedSort));
        assert_eq!(sort("{}"), Err(QueryError::InvalidSort("{}".into())));
        assert_eq!(sort("[\"\"]"), Err(QueryError::InvalidSortField("\"\"".into())));
        assert_eq!(sort("[{\"a\":\"up\"}]"), Err(QueryError::InvalidSortDirection("\"up\"".into())));
    }

    #[test]
    fn shown_bookmarks_are_parsed() {
        let bookmark = Bookmark { index: [7; 16], key: vec![1, 255, 0] };
        let request = format!(r#"{{"selector":{{}},"bookmark":"{}"}}"#, bookmark.text());
        assert_eq!(parse(&request).expect("a request").bookmark, Some(bookmark));
    }

    #[test]
    fn each_error_has_its_text() {
        let told = |text: &str| parse(text).expect_err(text).to_string();
        assert_eq!(told("{}"), "Missing required key: selector");
        assert_eq!(told(r#"{"selector":{},"foo":1}"#), "Invalid key foo for this request.");
        assert_eq!(told(r#"{"selector":1}"#), "Selector must be a JSON object, not: 1");
        assert_eq!(
            told(r#"{"selector":{},"limit":-1}"#),
            "-1 is not an integer greater than or equal to zero"
        );
        assert_eq!(
            told(r#"{"selector":{},"skip":"1"}"#),
            "\"1\" is not an integer greater than or equal to zero"
        );
        assert_eq!(told(r#"{"selector":{},"conflicts":1}"#), "Invalid boolean value: 1");
        assert_eq!(told(r#"{"selector":{},"use_index":1}"#), "Invalid index name: 1");
        assert_eq!(told(r#"{"selector":{},"bookmark":"%"}"#), "Invalid bookmark value: \"%\"");
        assert_eq!(told(r#"{"selector":{},"bookmark":"YQ"}"#), "Invalid bookmark value: \"YQ\"");
    }
}
