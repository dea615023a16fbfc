//! Analysis of a selector for one field: the range of values that it allows, and whether it requires the
//! field.

use super::selector::{Comparison, Condition, Selector};
use super::{FieldPath, Value};

/// The range of values that a selector allows for a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldRange<'s> {
    /// The lower bound, and whether it is inclusive.
    pub(crate) low: Option<(&'s Value<'static>, bool)>,
    /// The upper bound, and whether it is inclusive.
    pub(crate) high: Option<(&'s Value<'static>, bool)>,
}

impl<'s> FieldRange<'s> {
    /// Intersects all mandatory conditions on the field; conditions within `$or` are ignored.
    pub(crate) fn of(selector: &'s Selector, path: &FieldPath) -> FieldRange<'s> {
        let mut range = FieldRange::default();
        range.narrow_by(selector, path);
        range
    }

    /// The only allowed value, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&'s Value<'static>> {
        match (self.low, self.high) {
            (Some((low, true)), Some((high, true))) if low == high => Some(low),
            _ => None,
        }
    }

    /// Whether no value is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        match (self.low, self.high) {
            (Some((low, with_low)), Some((high, with_high))) => {
                low > high || low == high && !(with_low && with_high)
            }
            _ => false,
        }
    }

    fn narrow_by(&mut self, selector: &'s Selector, path: &FieldPath) {
        match selector {
            Selector::And(all) => all.iter().for_each(|selector| self.narrow_by(selector, path)),
            Selector::Field(field, Condition::Is(comparison, value)) if field == path => {
                self.narrow(*comparison, value);
            }
            _ => {}
        }
    }

    fn narrow(&mut self, comparison: Comparison, value: &'s Value<'static>) {
        let (low, high) = match comparison {
            Comparison::Equal => (Some((value, true)), Some((value, true))),
            Comparison::Greater => (Some((value, false)), None),
            Comparison::GreaterOrEqual => (Some((value, true)), None),
            Comparison::Less => (None, Some((value, false))),
            Comparison::LessOrEqual => (None, Some((value, true))),
            Comparison::NotEqual => (None, None),
        };
        if let Some((value, with)) = low
            && self
                .low
                .is_none_or(|(least, with_least)| value > least || value == least && with_least && !with)
        {
            self.low = Some((value, with));
        }
        if let Some((value, with)) = high
            && self.high.is_none_or(|(most, with_most)| value < most || value == most && with_most && !with)
        {
            self.high = Some((value, with));
        }
    }
}

/// Whether every matching document must have the field.
pub(crate) fn requires(selector: &Selector, path: &FieldPath) -> bool {
    match selector {
        Selector::And(all) => all.iter().any(|selector| requires(selector, path)),
        Selector::Or(any) => !any.is_empty() && any.iter().all(|selector| requires(selector, path)),
        Selector::Field(field, condition) => field == path && !matches!(condition, Condition::Exists(false)),
        Selector::Not(_) => false,
    }
}

/// The fields with a bound in a mandatory condition.
pub(crate) fn bounded_fields(selector: &Selector) -> Vec<&FieldPath> {
    let mut fields = match selector {
        Selector::And(all) => all.iter().flat_map(bounded_fields).collect(),
        Selector::Field(field, Condition::Is(comparison, _)) if *comparison != Comparison::NotEqual => {
            vec![field]
        }
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
        let low = range.low.map_or("(".into(), |(value, with)| {
            format!("{}{}", if with { "[" } else { "(" }, value.to_json())
        });
        let high = range.high.map_or(")".into(), |(value, with)| {
            format!("{}{}", value.to_json(), if with { "]" } else { ")" })
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
