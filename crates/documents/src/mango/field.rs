//! `FieldPath` and `Fields`: paths to fields of documents, and the projection of documents to some fields.

use std::borrow::Cow;

use super::{QueryError, Value};

/// The path to a value in a document: names of members, separated by dots; `\.` is a dot in a name. In an
/// array, a name is the index of an element, from 0. The empty path leads to the document itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FieldPath {
    parts: Vec<String>,
}

/// The part of a value to which a path leads.
#[derive(Debug, Clone, Copy)]
pub enum Reached<'v, 'a> {
    /// A value.
    Value(&'v Value<'a>),
    /// An object without the next name.
    Missing,
    /// Something that has no members, or an array without that element.
    NoWay,
}

impl FieldPath {
    /// Parses a path such as `a.b\.c`.
    pub fn parse(name: &str) -> Result<FieldPath, QueryError> {
        let mut parts = vec![String::new()];
        let mut characters = name.chars();
        while let Some(character) = characters.next() {
            match character {
                '.' => parts.push(String::new()),
                // A backslash makes the next character literal.
                '\\' => parts.last_mut().expect("one part").extend(characters.next()),
                _ => parts.last_mut().expect("one part").push(character),
            }
        }
        if parts.iter().any(String::is_empty) {
            return Err(QueryError::InvalidFieldName(name.to_owned()));
        }
        Ok(FieldPath { parts })
    }

    /// Whether the path is empty, so that it refers to the value itself.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// This path followed by `other`.
    pub fn join(&self, other: FieldPath) -> FieldPath {
        FieldPath { parts: self.parts.iter().cloned().chain(other.parts).collect() }
    }

    /// The value at the path, if it exists.
    pub fn find<'v, 'a>(&self, value: &'v Value<'a>) -> Option<&'v Value<'a>> {
        match self.reach(value) {
            Reached::Value(value) => Some(value),
            Reached::Missing | Reached::NoWay => None,
        }
    }

    /// The part to which the path leads.
    pub fn reach<'v, 'a>(&self, value: &'v Value<'a>) -> Reached<'v, 'a> {
        let mut value = value;
        for part in &self.parts {
            let next = match value {
                Value::Object(_) => value.get(part).ok_or(Reached::Missing),
                Value::Array(values) => {
                    let index = part.parse::<usize>().ok();
                    index.and_then(|index| values.get(index)).ok_or(Reached::NoWay)
                }
                _ => Err(Reached::NoWay),
            };
            match next {
                Ok(next) => value = next,
                Err(end) => return end,
            }
        }
        Reached::Value(value)
    }

    /// The text form that [`FieldPath::parse`] reads.
    pub fn name(&self) -> String {
        let escaped: Vec<String> =
            self.parts.iter().map(|part| part.replace('\\', "\\\\").replace('.', "\\.")).collect();
        escaped.join(".")
    }

    /// Stores a value at the path, creating missing objects.
    fn put<'a>(&self, target: &mut Vec<(Cow<'a, str>, Value<'a>)>, value: Value<'a>) {
        let Some((last, before)) = self.parts.split_last() else { return };
        let mut members = target;
        for part in before {
            let index = members.iter().position(|(key, _)| key == part).unwrap_or_else(|| {
                members.push((Cow::Owned(part.clone()), Value::Object(Vec::new())));
                members.len() - 1
            });
            match &mut members[index].1 {
                Value::Object(inner) => members = inner,
                // Another field has already included the whole value.
                _ => return,
            }
        }
        match members.iter().position(|(key, _)| key == last) {
            Some(index) => members[index].1 = value,
            None => members.push((Cow::Owned(last.clone()), value)),
        }
    }
}

/// The fields of documents in a reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    /// Empty means all fields.
    paths: Vec<FieldPath>,
}

impl Fields {
    /// Parses the member `fields` of a request.
    pub fn parse(value: &Value<'_>) -> Result<Fields, QueryError> {
        let names = value.as_array().ok_or_else(|| QueryError::InvalidFields(value.to_json()))?;
        let path = |name: &Value<'_>| {
            FieldPath::parse(name.as_str().ok_or_else(|| QueryError::InvalidField(name.to_json()))?)
        };
        Ok(Fields { paths: names.iter().map(path).collect::<Result<_, _>>()? })
    }

    /// Whether whole documents are returned.
    pub fn is_all(&self) -> bool {
        self.paths.is_empty()
    }

    /// The names of the fields; empty for all fields.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.paths.iter().map(FieldPath::name)
    }

    /// Reduces a document to these fields; missing ones are omitted.
    pub fn of<'a>(&self, document: Value<'a>) -> Value<'a> {
        if self.is_all() {
            return document;
        }
        let mut members = Vec::new();
        for path in &self.paths {
            if let Some(value) = path.find(&document) {
                path.put(&mut members, value.clone());
            }
        }
        Value::Object(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> FieldPath {
        FieldPath::parse(name).expect("a path")
    }

    #[test]
    fn dots_divide_and_backslashes_escape() {
        assert_eq!(path("a").parts, ["a"]);
        assert_eq!(path("a.b.c").parts, ["a", "b", "c"]);
        assert_eq!(path("a\\.b.c").parts, ["a.b", "c"]);
        assert_eq!(path("a\\\\.b").parts, ["a\\", "b"]);
        for name in ["a", "a.b", "a\\.b.c", "a\\\\.b"] {
            assert_eq!(path(name).name(), name);
        }
        for name in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(FieldPath::parse(name), Err(QueryError::InvalidFieldName(name.into())), "{name}");
        }
    }

    #[test]
    fn paths_lead_into_objects_and_arrays() {
        let value = Value::parse(r#"{"a":{"b":[10,{"c":null}]},"d.e":1}"#).expect("JSON");
        let found = |name: &str| path(name).find(&value).map(Value::to_json);
        assert_eq!(found("a.b.0").as_deref(), Some("10"));
        assert_eq!(found("a.b.1.c").as_deref(), Some("null"));
        assert_eq!(found("d\\.e").as_deref(), Some("1"));
        for missing in ["a.c", "a.b.2", "a.b.x", "a.b.-1", "d.e", "a.b.0.c"] {
            assert_eq!(found(missing), None, "{missing}");
        }
        assert_eq!(FieldPath::default().find(&value), Some(&value));
        let is_missing = |name: &str| matches!(path(name).reach(&value), Reached::Missing);
        assert!(is_missing("a.c") && is_missing("z") && is_missing("a.b.1.d"));
        assert!(!is_missing("a.b.2") && !is_missing("a.b.x") && !is_missing("a.b.0.c"));
    }

    #[test]
    fn documents_are_reduced_to_fields() {
        let reduced = |fields: &str| {
            let document = Value::parse(r#"{"_id":"x","a":{"b":1,"c":[1,2],"d":3},"e.f":4}"#).expect("JSON");
            Fields::parse(&Value::parse(fields).expect("JSON")).expect("fields").of(document).to_json()
        };
        assert_eq!(reduced(r#"["_id"]"#), r#"{"_id":"x"}"#);
        assert_eq!(reduced(r#"["a.d","zz","a.b"]"#), r#"{"a":{"d":3,"b":1}}"#);
        assert_eq!(reduced(r#"["a","a.b"]"#), r#"{"a":{"b":1,"c":[1,2],"d":3}}"#);
        assert_eq!(reduced(r#"["a.c.1"]"#), r#"{"a":{"c":{"1":2}}}"#);
        assert_eq!(reduced(r#"["e\\.f"]"#), r#"{"e.f":4}"#);
        assert_eq!(reduced("[]"), r#"{"_id":"x","a":{"b":1,"c":[1,2],"d":3},"e.f":4}"#);
    }

    #[test]
    fn fields_are_strings() {
        let error =
            |text: &str| Fields::parse(&Value::parse(text).expect("JSON")).expect_err("an error").to_string();
        assert_eq!(error("\"a\""), "Fields must be an array of strings, not: \"a\"");
        assert_eq!(error("[1]"), "Invalid JSON for field spec: 1");
    }
}
