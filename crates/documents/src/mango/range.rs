//! Analysis of a selector for one field: the range of values that it allows, and whether it requires the
//! field.

use std::borrow::Cow;

use super::selector::{Comparison, Condition, Selector};
use super::{FieldPath, Value};

/// The range of values that a selector allows for a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldRange<'s> {
    /// The lower bound, and whether it is inclusive.
    pub(crate) low: Option<Bound<'s>>,
    /// The upper bound, and whether it is inclusive.
    pub(crate) high: Option<Bound<'s>>,
}

type Bound<'s> = (Cow<'s, Value<'static>>, bool);

impl<'s> FieldRange<'s> {
    /// Intersects the comparisons and the `$beginsWith` conditions on the field that every match must meet;
    /// all other conditions are ignored, also those within `$or`.
    pub(crate) fn of(selector: &'s Selector, path: &FieldPath) -> FieldRange<'s> {
        let mut range = FieldRange::default();
        range.narrow_by(selector, path, end_of_texts);
        range
    }

    /// The range as CouchDB shows it: in CouchDB, the last text with a prefix is the prefix followed by
    /// U+FFFF.
    pub(crate) fn shown(selector: &'s Selector, path: &FieldPath) -> FieldRange<'s> {
        let mut range = FieldRange::default();
        range.narrow_by(selector, path, |prefix| (Value::string(format!("{prefix}\u{ffff}")), true));
        range
    }

    /// The only allowed value, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&Value<'static>> {
        match (&self.low, &self.high) {
            (Some((low, true)), Some((high, true))) if low == high => Some(low),
            _ => None,
        }
    }

    /// Whether the bounds contradict each other, so that no value is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Some((low, with_low)), Some((high, with_high))) => {
                low > high || low == high && !(*with_low && *with_high)
            }
            _ => false,
        }
    }

    /// Intersects the range with the conditions of `selector`, as [`FieldRange::of`] says. `end` returns the
    /// upper bound of texts with a prefix.
    fn narrow_by(
        &mut self,
        selector: &'s Selector,
        path: &FieldPath,
        end: fn(&str) -> (Value<'static>, bool),
    ) {
        match selector {
            Selector::And(all) => all.iter().for_each(|selector| self.narrow_by(selector, path, end)),
            Selector::Field(field, condition) if field == path => match condition {
                Condition::Is(comparison, value) => self.narrow(*comparison, value),
                Condition::BeginsWith(prefix) => {
                    let (last, with_last) = end(prefix);
                    self.raise((Cow::Owned(Value::string(prefix.clone())), true));
                    self.lower((Cow::Owned(last), with_last));
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn narrow(&mut self, comparison: Comparison, value: &'s Value<'static>) {
        let bound = |with| (Cow::Borrowed(value), with);
        match comparison {
            Comparison::Equal => {
                self.raise(bound(true));
                self.lower(bound(true));
            }
            Comparison::Greater => self.raise(bound(false)),
            Comparison::GreaterOrEqual => self.raise(bound(true)),
            Comparison::Less => self.lower(bound(false)),
            Comparison::LessOrEqual => self.lower(bound(true)),
            Comparison::NotEqual => {}
        }
    }

    fn raise(&mut self, (value, with): Bound<'s>) {
        let is_higher =
            |(least, with_least): &Bound<'_>| value > *least || value == *least && *with_least && !with;
        if self.low.as_ref().is_none_or(is_higher) {
            self.low = Some((value, with));
        }
    }

    fn lower(&mut self, (value, with): Bound<'s>) {
        let is_lower = |(most, with_most): &Bound<'_>| value < *most || value == *most && *with_most && !with;
        if self.high.as_ref().is_none_or(is_lower) {
            self.high = Some((value, with));
        }
    }
}

/// The upper bound of texts with a prefix, in the order of code points.
fn end_of_texts(prefix: &str) -> (Value<'static>, bool) {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // The code points between U+D7FF and U+E000 are surrogates, not characters.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            end.push(next);
            return (Value::string(end), false);
        }
    }
    // The first value after all texts.
    (Value::Array(Vec::new()), false)
}

/// Whether every matching document certainly has the field.
pub(crate) fn requires(selector: &Selector, path: &FieldPath) -> bool {
    match selector {
        Selector::And(all) => all.iter().any(|selector| requires(selector, path)),
        Selector::Or(any) => !any.is_empty() && any.iter().all(|selector| requires(selector, path)),
        Selector::Field(field, condition) => field == path && !matches!(condition, Condition::Exists(false)),
        Selector::Not(_) | Selector::Everything => false,
    }
}

/// The fields with a mandatory condition that CouchDB counts: a range of values, or whether the field exists.
pub(crate) fn bounded_fields(selector: &Selector) -> Vec<&FieldPath> {
    let is_range = |condition: &Condition| match condition {
        Condition::Is(comparison, _) => *comparison != Comparison::NotEqual,
        Condition::BeginsWith(_) | Condition::Exists(_) => true,
        _ => false,
    };
    let mut fields = match selector {
        Selector::And(all) => all.iter().flat_map(bounded_fields).collect(),
        Selector::Field(field, condition) if is_range(condition) => vec![field],
        _ => Vec::new(),
    };
    fields.sort_unstable();
    fields.dedup();
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(&Value::parse(text).expect(text)).expect(text)
    }

    fn range(text: &str) -> String {
        let selector = selector(text);
        let range = FieldRange::of(&selector, &FieldPath::parse("a").expect("a path"));
        if range.is_empty() {
            return "empty".into();
        }
        let low = range.low.as_ref().map_or("(".into(), |(value, with)| {
            format!("{}{}", if *with { "[" } else { "(" }, value.to_json())
        });
        let high = range.high.as_ref().map_or(")".into(), |(value, with)| {
            format!("{}{}", value.to_json(), if *with { "]" } else { ")" })
        });
        format!("{low},{high}")
    }

    #[test]
    fn conditions_that_must_be_met_narrow_the_range() {
        assert_eq!(range(r#"{"a":{"$gt":1}}"#), "(1,)");
        assert_eq!(range(r#"{"a":{"$gte":1,"$lt":5,"$gt":0}}"#), "[1,5)");
        assert_eq!(
            range(r#"{"$and":[{"a":{"$gte":1}},{"a":{"$gt":1}},{"a":{"$lte":3}},{"a":{"$lt":3}}]}"#),
            "(1,3)"
        );
        assert_eq!(range(r#"{"a":7,"b":{"$gt":1}}"#), "[7,7]");
        assert_eq!(range(r#"{"a":7,"$or":[{"a":8}]}"#), "[7,7]");
        assert_eq!(range(r#"{"$or":[{"a":8}]}"#), "(,)");
        assert_eq!(range(r#"{"a":{"$ne":1,"$in":[1]},"a.b":1}"#), "(,)");
        assert_eq!(range(r#"{"$not":{"a":{"$gt":5}}}"#), "(,5]");
        assert_eq!(range(r#"{"a":{"$beginsWith":"ab"}}"#), "[\"ab\",\"ac\")");
        assert_eq!(range(r#"{"a":{"$beginsWith":"ab","$gt":"abc","$lt":"abz"}}"#), "(\"abc\",\"abz\")");
        assert_eq!(range("{\"a\":{\"$beginsWith\":\"a\u{d7ff}\"}}"), "[\"a\u{d7ff}\",\"a\u{e000}\")");
        assert_eq!(range("{\"a\":{\"$beginsWith\":\"a\u{10ffff}\"}}"), "[\"a\u{10ffff}\",\"b\")");
        assert_eq!(range(r#"{"a":{"$beginsWith":""}}"#), "[\"\",[])");
        assert_eq!(range(r#"{"a":{"$beginsWith":"a","$gt":5,"$lt":"a"}}"#), "empty");
        assert_eq!(range(r#"{"a":{"$gt":5,"$lt":5}}"#), "empty");
        assert_eq!(range(r#"{"a":{"$gte":5,"$lt":5}}"#), "empty");
        assert_eq!(range(r#"{"$and":[{"a":1},{"a":2}]}"#), "empty");
        assert_eq!(range(r#"{"a":{"$gt":"x","$lt":5}}"#), "empty");
    }

    #[test]
    fn fields_are_required_by_all_but_one_condition() {
        let requires = |text: &str| super::requires(&selector(text), &FieldPath::parse("a").expect("a path"));
        for text in [
            r#"{"a":1}"#,
            r#"{"a":{"$ne":1}}"#,
            r#"{"b":1,"a":{"$exists":true}}"#,
            r#"{"$or":[{"a":1},{"a":2,"b":1}]}"#,
        ] {
            assert!(requires(text), "{text}");
        }
        for text in [
            "{}",
            r#"{"a":{"$exists":false}}"#,
            r#"{"$or":[{"a":1},{"b":1}]}"#,
            r#"{"a.b":1}"#,
            r#"{"$or":[]}"#,
        ] {
            assert!(!requires(text), "{text}");
        }
    }
}
