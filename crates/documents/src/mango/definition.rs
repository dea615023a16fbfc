//! `IndexDefinition`: the definition of a JSON index. Definitions are stored in design documents of the
//! language `query`, one per view, in CouchDB's format, so that they are replicated:
//!
//! ```text
//! {"language":"query","views":{"by-age":{"map":{"fields":{"age":"asc"},"partial_filter_selector":{}},
//!                                        "reduce":"_count","options":{"def":{"fields":["age"]}}}}}
//! ```

use std::borrow::Cow;

use super::find::{check_keys, positive};
use super::{FieldPath, QueryError, Selector, Sort, Value};
use crate::digest::Digest;
use crate::names::DESIGN_PREFIX;

/// The allowed members of a request that creates an index; `w`, for clusters, is checked and ignored.
const KEYS: [&str; 6] = ["index", "type", "name", "ddoc", "w", "partitioned"];

/// The version of the meaning of selectors. If a new version of Sheaf has another value here, partial indexes
/// are built again.
const SELECTOR_RULES: &[u8] = b"2";

/// The entry of the list of indexes that every database has: all documents by id.
pub const ALL_DOCS_INDEX: &str =
    r#"{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}}"#;

/// The definition of a JSON index.
#[derive(Debug, Clone)]
pub struct IndexDefinition {
    /// The id of the design document that defines it.
    pub design: String,
    /// Its name within the design document.
    pub name: String,
    /// The fields by which the index is sorted. Only documents that have all of them are in the index.
    pub columns: Sort,
    /// The filter of a partial index; `None` for an index without a filter.
    pub filter: Option<Filter>,
}

/// A selector, parsed and as the client sent it.
#[derive(Debug, Clone)]
pub struct Filter {
    /// The selector as the client sent it.
    pub json: Value<'static>,
    /// The parsed selector.
    pub selector: Selector,
    /// The key of the filter in the definition: `partial_filter_selector`, or the key that old design
    /// documents use.
    pub key: &'static str,
}

/// The keys of the filter of a partial index, in the order of precedence. Design documents of old versions of
/// CouchDB have the second one; requests cannot use it.
const FILTER_KEYS: [&str; 2] = ["partial_filter_selector", "selector"];

/// The outcome of removing an index from its design document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithoutIndex {
    /// The new body of the design document.
    Body(Vec<u8>),
    /// Nothing remains: the design document is to be deleted.
    Nothing,
}

impl IndexDefinition {
    /// Parses a request that creates an index. Missing names are derived from the definition.
    pub fn parse(body: &Value<'_>) -> Result<IndexDefinition, QueryError> {
        check_keys(body, &KEYS)?;
        let text = |key| match body.get(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| QueryError::InvalidString(value.to_json())),
        };
        let name = |key| match text(key)? {
            Some("") => Err(QueryError::InvalidEmptyString),
            name => Ok(name),
        };
        positive(body, "w", 2)?;
        match body.get("partitioned") {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => return Err(QueryError::NoPartitions),
            Some(other) => return Err(QueryError::InvalidBoolean(other.to_json())),
        }
        match text("type")?.unwrap_or("json") {
            "json" => {}
            "text" => return Err(QueryError::NoTextIndexes),
            other => return Err(QueryError::InvalidIndexType(other.to_owned())),
        }
        let map = body.get("index").ok_or(QueryError::MissingKey("index"))?;
        check_keys(map, &["fields", FILTER_KEYS[0]])?;
        let mut definition = IndexDefinition::read(map, String::new(), String::new())?;
        let made = hex::encode(definition.hash(b""));
        let design = name("ddoc")?.unwrap_or(&made);
        definition.design = match design.starts_with(DESIGN_PREFIX) {
            true => design.to_owned(),
            false => format!("{DESIGN_PREFIX}{design}"),
        };
        definition.name = name("name")?.unwrap_or(&made).to_owned();
        Ok(definition)
    }

    /// The indexes in a design document. Invalid definitions and documents of other languages are ignored.
    pub fn all_of(design: &str, body: &Value<'_>) -> Vec<IndexDefinition> {
        if body.get("language").and_then(Value::as_str) != Some("query") {
            return Vec::new();
        }
        let views = body.get("views").and_then(Value::as_object).unwrap_or_default();
        let read = |(name, view): &(Cow<'_, str>, Value<'_>)| {
            IndexDefinition::read(view.get("map")?, design.to_owned(), name.to_string()).ok()
        };
        views.iter().filter_map(read).collect()
    }

    fn read(map: &Value<'_>, design: String, name: String) -> Result<IndexDefinition, QueryError> {
        if map.as_object().is_none() {
            return Err(QueryError::InvalidIndex(map.to_json()));
        }
        let columns = match map.get("fields").ok_or(QueryError::MissingKey("fields"))? {
            // In a design document, the fields are the members of an object.
            Value::Object(fields) => {
                let each = fields.iter().map(|field| Value::Object(vec![field.clone()]));
                Sort::parse(&Value::Array(each.collect()))?
            }
            fields => Sort::parse(fields)?,
        };
        if columns.fields.is_empty() {
            return Err(QueryError::NoIndexDefinition);
        }
        let filter = FILTER_KEYS.iter().find_map(|key| Some((*key, map.get(key)?)));
        let filter = match filter.filter(|(_, json)| json.as_object() != Some(&[])) {
            Some((key, json)) => {
                Some(Filter { selector: Selector::parse(json)?, json: json.clone().into_owned(), key })
            }
            None => None,
        };
        Ok(IndexDefinition { design, name, columns, filter })
    }

    /// A digest that identifies the contents of the index: it depends on the columns and the filter, but not
    /// on the names of the index and of its design document.
    pub fn digest(&self) -> [u8; 16] {
        self.hash(if self.filter.is_some() { SELECTOR_RULES } else { b"" })
    }

    fn hash(&self, rules: &[u8]) -> [u8; 16] {
        let mut json = Vec::new();
        Value::Array(self.columns.fields.iter().map(|path| Value::string(path.name())).collect())
            .render(&mut json);
        if let Some(filter) = &self.filter {
            filter.json.render(&mut json);
        }
        json.extend_from_slice(rules);
        Digest::of(&json).0
    }

    /// Adds this index to `body`, the current body of the design document; returns the new body. The index
    /// replaces an index of the same name. Returns `None` if `body` already has this index.
    pub fn put_into(&self, body: Option<&Value<'_>>) -> Result<Option<Vec<u8>>, QueryError> {
        let mut document = match body {
            None => object([("language", Value::string("query"))]),
            Some(body) => match body.get("language") {
                Some(Value::String(language)) if language == "query" => body.clone().into_owned(),
                other => {
                    return Err(QueryError::InvalidLanguage(other.map_or("null".into(), Value::to_json)));
                }
            },
        };
        let mut views = match document.get("views") {
            Some(views @ Value::Object(_)) => views.clone(),
            _ => object([]),
        };
        let view = self.view();
        // The texts are compared, so the order of members counts: an index with its fields in another order
        // is a different index.
        if views.get(&self.name).is_some_and(|there| there.to_json() == view.to_json()) {
            return Ok(None);
        }
        set(&mut views, &self.name, view);
        set(&mut document, "views", views);
        let mut out = Vec::new();
        document.render(&mut out);
        Ok(Some(out))
    }

    /// Removes the index of this name from a design document.
    pub fn remove_from(body: &Value<'_>, name: &str) -> Result<WithoutIndex, QueryError> {
        let mut document = body.clone().into_owned();
        let views = document.get("views").and_then(Value::as_object).unwrap_or_default();
        let others: Vec<_> = views.iter().filter(|(key, _)| key != name).cloned().collect();
        if others.len() == views.len() {
            return Err(QueryError::IndexNotFound(name.to_owned()));
        }
        if others.is_empty() {
            remove(&mut document, "views");
        } else {
            set(&mut document, "views", Value::Object(others));
        }
        if document.as_object().is_some_and(|members| members.iter().all(|(key, _)| key == "language")) {
            return Ok(WithoutIndex::Nothing);
        }
        let mut out = Vec::new();
        document.render(&mut out);
        Ok(WithoutIndex::Body(out))
    }

    /// Appends the entry of the index in the list of indexes.
    pub fn render(&self, out: &mut Vec<u8>) {
        let fields = self.columns.fields.iter().map(|path| object([(&path.name(), self.direction())]));
        let mut definition = object([("fields", Value::Array(fields.collect()))]);
        if let Some(filter) = &self.filter {
            set(&mut definition, filter.key, filter.json.clone());
        }
        let members = [
            ("ddoc", Value::string(self.design.clone())),
            ("name", Value::string(self.name.clone())),
            ("type", Value::string("json")),
            ("partitioned", Value::Bool(false)),
            ("def", definition),
        ];
        object(members).render(out);
    }

    /// The values of the index's columns in a document; `None` if the document is not in the index.
    pub fn values_of<'v, 'a>(&self, document: &'v Value<'a>) -> Option<Vec<&'v Value<'a>>> {
        let values =
            self.columns.fields.iter().map(|path| path.find(document)).collect::<Option<Vec<_>>>()?;
        self.filter.as_ref().is_none_or(|filter| filter.selector.matches(document)).then_some(values)
    }

    fn direction(&self) -> Value<'static> {
        Value::string(self.columns.direction())
    }

    fn view(&self) -> Value<'static> {
        let names: Vec<String> = self.columns.fields.iter().map(FieldPath::name).collect();
        let fields =
            Value::Object(names.iter().map(|name| (Cow::Owned(name.clone()), self.direction())).collect());
        let given = names.iter().map(|name| match self.columns.descending {
            true => object([(name, self.direction())]),
            false => Value::string(name.clone()),
        });
        let filter = self.filter.as_ref().map_or_else(|| object([]), |filter| filter.json.clone());
        let map = object([("fields", fields), ("partial_filter_selector", filter)]);
        let options = object([("def", object([("fields", Value::Array(given.collect()))]))]);
        object([("map", map), ("reduce", Value::string("_count")), ("options", options)])
    }
}

fn object<const N: usize>(members: [(&str, Value<'static>); N]) -> Value<'static> {
    Value::Object(members.into_iter().map(|(key, value)| (Cow::Owned(key.to_owned()), value)).collect())
}

fn set(object: &mut Value<'static>, key: &str, value: Value<'static>) {
    let Value::Object(members) = object else { return };
    match members.iter().position(|(name, _)| name == key) {
        Some(index) => members[index].1 = value,
        None => members.push((Cow::Owned(key.to_owned()), value)),
    }
}

fn remove(object: &mut Value<'static>, key: &str) {
    if let Value::Object(members) = object {
        members.retain(|(name, _)| name != key);
    }
}

#[cfg(test)]
mod tests;
