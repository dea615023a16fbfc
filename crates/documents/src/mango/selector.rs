//! Selectors: the conditions of a query on documents.
//!
//! This module parses `{"age":{"$gt":20},"$or":[...]}` into conditions on fields, and matches documents.
//! `plan` uses the conditions to choose an index.
//!
//! Selectors have the meaning that they have in CouchDB, which is not always the logical one. Every document
//! meets an empty list of conditions, even with `$or`, and even if the list is negated, because the negation
//! of an empty list is an empty list. Below the top level, a condition without a field is a condition on the
//! document itself, and `{}` there means "is equal to `{}`", which no document is.
//!
//! Invariants
//! - A missing field meets no condition except `$exists: false`, and that only if the object that would
//!   contain the field exists. Negations are moved inwards to single conditions, so that this holds for
//!   negated conditions, too. Only inside `$elemMatch`, `$allMatch` and `$keyMapMatch` a negation inverts the
//!   result of its operand.
//! - Regular expressions are matched in linear time; those that cannot be (with back references or
//!   look-around) are rejected.

use regex::Regex;

use super::{FieldPath, QueryError, Reached, Value};

/// The maximum size of a compiled regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// The maximum size of the cache with which a regular expression is matched, in bytes.
const REGEX_CACHE_BYTES_MAX: usize = 256 << 10;
/// The maximum number of regular expressions in a selector.
const REGEXES_MAX: usize = 32;

/// A condition on a document.
#[derive(Debug, Clone)]
pub enum Selector {
    /// `{}`: matches any document.
    Everything,
    /// All of these must match.
    And(Vec<Selector>),
    /// At least one of these must match, if there is any.
    Or(Vec<Selector>),
    /// This selector must not match. Occurs only inside conditions on elements.
    Not(Box<Selector>),
    /// A field must meet a condition.
    Field(FieldPath, Condition),
}

/// A condition on a value.
#[derive(Debug, Clone)]
pub enum Condition {
    /// `$eq` and the other comparisons.
    Is(Comparison, Value<'static>),
    /// `$exists`
    Exists(bool),
    /// `$type`
    Type(String),
    /// `$in`: the value, or an element if it is an array, is one of these.
    In(Vec<Value<'static>>),
    /// `$nin`
    NotIn(Vec<Value<'static>>),
    /// `$all`: an array that contains all of these values (at least one) in the same form; or, if the only
    /// value is an array, that array itself.
    All(Vec<Value<'static>>),
    /// `$size`: an array with this many elements.
    Size(u64),
    /// `$mod`: divisor and remainder of an integer.
    Mod(i128, i128),
    /// `$regex`
    Regex(Box<Regex>),
    /// `$beginsWith`
    BeginsWith(String),
    /// `$elemMatch`: at least one element of an array.
    ElemMatch(Box<Selector>),
    /// `$allMatch`: all elements of a non-empty array.
    AllMatch(Box<Selector>),
    /// `$keyMapMatch`: at least one key of an object.
    KeyMapMatch(Box<Selector>),
    /// `$not` of a condition that has no opposite.
    Not(Box<Condition>),
}

/// An operator that compares a value of the document with its argument, in the order of [`Value`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `$eq`
    Equal,
    /// `$ne`
    NotEqual,
    /// `$lt`
    Less,
    /// `$lte`
    LessOrEqual,
    /// `$gt`
    Greater,
    /// `$gte`
    GreaterOrEqual,
}

impl Selector {
    /// Parses a selector.
    pub fn parse(value: &Value<'_>) -> Result<Selector, QueryError> {
        let members = value.as_object().ok_or_else(|| QueryError::InvalidSelector(value.to_json()))?;
        if members.is_empty() {
            return Ok(Selector::Everything);
        }
        if count_of("$regex", value) > REGEXES_MAX {
            return Err(QueryError::BadArgument(
                "$regex",
                format!("more than {REGEXES_MAX} in one selector"),
            ));
        }
        match normalized(read(value, &FieldPath::default(), false)?, false) {
            Selector::Field(path, _) if path.is_empty() => Err(QueryError::MissingFieldName),
            selector => Ok(selector),
        }
    }

    /// Whether a document, or another value, matches.
    pub fn matches(&self, value: &Value<'_>) -> bool {
        match self {
            Selector::Everything => true,
            Selector::And(all) => all.iter().all(|selector| selector.matches(value)),
            Selector::Or(any) => any.is_empty() || any.iter().any(|selector| selector.matches(value)),
            Selector::Not(selector) => !selector.matches(value),
            Selector::Field(path, condition) => match path.reach(value) {
                Reached::Value(value) => condition.matches(value),
                Reached::Missing => matches!(condition, Condition::Exists(false)),
                Reached::NoWay => false,
            },
        }
    }

    /// Whether the selector is an empty list of conditions and nothing else. Every document meets such a
    /// selector, but a query with it finds no document.
    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(self, Selector::And(list) | Selector::Or(list) if list.is_empty())
    }

    /// The paths of all conditions in the selector, in order, some more than once.
    pub(crate) fn paths(&self) -> Vec<&FieldPath> {
        match self {
            Selector::Everything => Vec::new(),
            Selector::And(all) | Selector::Or(all) => all.iter().flat_map(Selector::paths).collect(),
            Selector::Not(selector) => selector.paths(),
            Selector::Field(path, _) => vec![path],
        }
    }

    /// The selector in the form in which it is matched: with every operator written out, and negations moved
    /// inwards.
    pub fn to_value(&self) -> Value<'static> {
        let list = |all: &[Selector]| Value::Array(all.iter().map(Selector::to_value).collect());
        match self {
            Selector::Everything => Value::Object(Vec::new()),
            Selector::And(all) => member("$and", list(all)),
            Selector::Or(all) => member("$or", list(all)),
            Selector::Not(selector) => member("$not", selector.to_value()),
            Selector::Field(path, condition) if path.is_empty() => condition.to_value(),
            Selector::Field(path, condition) => member(&path.name(), condition.to_value()),
        }
    }
}

impl Condition {
    /// Whether an existing value meets the condition.
    fn matches(&self, value: &Value<'_>) -> bool {
        match self {
            Condition::Is(comparison, other) => comparison.holds(value, other),
            Condition::Exists(exists) => *exists,
            Condition::Type(name) => value.type_name() == name,
            Condition::In(values) => is_in(value, values),
            Condition::NotIn(values) => !is_in(value, values),
            Condition::All(values) => has_all(value, values),
            Condition::Size(size) => value.as_array().is_some_and(|elements| elements.len() as u64 == *size),
            Condition::Mod(divisor, remainder) => match value {
                Value::Number(number) => {
                    number.integer().is_some_and(|number| number % divisor == *remainder)
                }
                _ => false,
            },
            Condition::Regex(regex) => value.as_str().is_some_and(|text| regex.is_match(text)),
            Condition::BeginsWith(start) => value.as_str().is_some_and(|text| text.starts_with(&**start)),
            Condition::ElemMatch(selector) => value
                .as_array()
                .is_some_and(|elements| elements.iter().any(|element| selector.matches(element))),
            Condition::AllMatch(selector) => value.as_array().is_some_and(|elements| {
                !elements.is_empty() && elements.iter().all(|element| selector.matches(element))
            }),
            Condition::KeyMapMatch(selector) => value.as_object().is_some_and(|members| {
                members.iter().any(|(key, _)| selector.matches(&Value::string(&**key)))
            }),
            Condition::Not(condition) => !condition.matches(value),
        }
    }

    fn to_value(&self) -> Value<'static> {
        let list = |values: &[Value<'static>]| Value::Array(values.to_vec());
        match self {
            Condition::Is(comparison, value) => member(comparison.name(), value.clone()),
            Condition::Exists(exists) => member("$exists", Value::Bool(*exists)),
            Condition::Type(name) => member("$type", Value::string(name.clone())),
            Condition::In(values) => member("$in", list(values)),
            Condition::NotIn(values) => member("$nin", list(values)),
            Condition::All(values) => member("$all", list(values)),
            Condition::Size(size) => member("$size", Value::integer(i128::from(*size))),
            Condition::Mod(divisor, remainder) => {
                member("$mod", Value::Array(vec![Value::integer(*divisor), Value::integer(*remainder)]))
            }
            Condition::Regex(regex) => member("$regex", Value::string(regex.as_str().to_owned())),
            Condition::BeginsWith(start) => member("$beginsWith", Value::string(start.clone())),
            Condition::ElemMatch(selector) => member("$elemMatch", selector.to_value()),
            Condition::AllMatch(selector) => member("$allMatch", selector.to_value()),
            Condition::KeyMapMatch(selector) => member("$keyMapMatch", selector.to_value()),
            Condition::Not(condition) => member("$not", condition.to_value()),
        }
    }

    /// The condition that an existing value meets exactly if it does not meet this one.
    fn negated(self) -> Condition {
        match self {
            Condition::Is(comparison, value) => Condition::Is(comparison.opposite(), value),
            Condition::Exists(exists) => Condition::Exists(!exists),
            Condition::In(values) => Condition::NotIn(values),
            Condition::NotIn(values) => Condition::In(values),
            Condition::Not(condition) => *condition,
            other => Condition::Not(Box::new(other)),
        }
    }
}

impl Comparison {
    fn holds(self, value: &Value<'_>, other: &Value<'_>) -> bool {
        let order = value.cmp(other);
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Comparison::Equal => "$eq",
            Comparison::NotEqual => "$ne",
            Comparison::Less => "$lt",
            Comparison::LessOrEqual => "$lte",
            Comparison::Greater => "$gt",
            Comparison::GreaterOrEqual => "$gte",
        }
    }

    fn opposite(self) -> Comparison {
        match self {
            Comparison::Equal => Comparison::NotEqual,
            Comparison::NotEqual => Comparison::Equal,
            Comparison::Less => Comparison::GreaterOrEqual,
            Comparison::LessOrEqual => Comparison::Greater,
            Comparison::Greater => Comparison::LessOrEqual,
            Comparison::GreaterOrEqual => Comparison::Less,
        }
    }
}

fn is_in(value: &Value<'_>, values: &[Value<'static>]) -> bool {
    match value {
        Value::Array(elements) => elements.iter().any(|element| values.iter().any(|other| element == other)),
        _ => values.iter().any(|other| value == other),
    }
}

fn has_all(value: &Value<'_>, values: &[Value<'static>]) -> bool {
    let Value::Array(elements) = value else { return false };
    let whole = matches!(values, [only @ Value::Array(_)] if value == only);
    let has = |wanted: &Value<'_>| elements.iter().any(|element| element.is_identical(wanted));
    whole || !values.is_empty() && values.iter().all(has)
}

fn member(key: &str, value: Value<'static>) -> Value<'static> {
    Value::Object(vec![(key.to_owned().into(), value)])
}

/// Moves negations inwards to single conditions. `negate` is true if the selector is within an odd number of
/// negations.
fn normalized(selector: Selector, negate: bool) -> Selector {
    let each = |all: Vec<Selector>| all.into_iter().map(|selector| normalized(selector, negate)).collect();
    match selector {
        Selector::And(all) if negate => Selector::Or(each(all)),
        Selector::Or(all) if negate => Selector::And(each(all)),
        Selector::And(all) => Selector::And(each(all)),
        Selector::Or(all) => Selector::Or(each(all)),
        Selector::Everything => Selector::Everything,
        Selector::Not(selector) => normalized(*selector, !negate),
        Selector::Field(path, condition) if negate => Selector::Field(path, condition.negated()),
        field => field,
    }
}

/// Parses the condition on the value at `path` in a document or, with `is_in_element`, in an element of an
/// array or a key of an object.
fn read(value: &Value<'_>, path: &FieldPath, is_in_element: bool) -> Result<Selector, QueryError> {
    match value.as_object() {
        Some([(key, argument)]) => read_member(key, argument, path, is_in_element),
        Some(members) if !members.is_empty() => {
            let each = members.iter().map(|(key, argument)| read_member(key, argument, path, is_in_element));
            each.collect::<Result<_, _>>().map(Selector::And)
        }
        _ => Ok(Selector::Field(path.clone(), Condition::Is(Comparison::Equal, value.clone().into_owned()))),
    }
}

fn read_member(
    key: &str,
    argument: &Value<'_>,
    path: &FieldPath,
    is_in_element: bool,
) -> Result<Selector, QueryError> {
    let each = |operator| {
        let arguments = argument.as_array().ok_or_else(|| bad_argument(operator, argument))?;
        arguments.iter().map(|argument| read(argument, path, is_in_element)).collect::<Result<Vec<_>, _>>()
    };
    match key {
        "$and" => each("$and").map(Selector::And),
        "$or" => each("$or").map(Selector::Or),
        "$nor" => Ok(Selector::Not(Box::new(Selector::Or(each("$nor")?)))),
        // CouchDB writes conditions on elements into design documents in this form.
        "" if is_in_element && path.is_empty() => read(argument, path, true),
        "$not" if argument.as_object().is_none() => Err(bad_argument("$not", argument)),
        "$not" => Ok(Selector::Not(Box::new(read(argument, path, is_in_element)?))),
        _ if key.starts_with('$') => Ok(Selector::Field(path.clone(), read_condition(key, argument)?)),
        _ => read(argument, &path.join(FieldPath::parse(key)?), is_in_element),
    }
}

fn read_condition(operator: &str, argument: &Value<'_>) -> Result<Condition, QueryError> {
    let bad = |operator| bad_argument(operator, argument);
    let text = |operator| argument.as_str().ok_or_else(|| bad(operator));
    let list = |operator| {
        let values = argument.as_array().ok_or_else(|| bad(operator))?;
        Ok(values.iter().map(|value| value.clone().into_owned()).collect())
    };
    let elements = |operator| match argument {
        Value::Object(_) => read(argument, &FieldPath::default(), true).map(Box::new),
        _ => Err(bad(operator)),
    };
    let is = |comparison| Ok(Condition::Is(comparison, argument.clone().into_owned()));
    match operator {
        "$eq" => is(Comparison::Equal),
        "$ne" => is(Comparison::NotEqual),
        "$lt" => is(Comparison::Less),
        "$lte" => is(Comparison::LessOrEqual),
        "$gt" => is(Comparison::Greater),
        "$gte" => is(Comparison::GreaterOrEqual),
        "$exists" => argument.as_bool().map(Condition::Exists).ok_or_else(|| bad("$exists")),
        "$type" => text("$type").map(|name| Condition::Type(name.to_owned())),
        "$in" => list("$in").map(Condition::In),
        "$nin" => list("$nin").map(Condition::NotIn),
        "$all" => list("$all").map(Condition::All),
        "$size" => read_size(argument).ok_or_else(|| bad("$size")),
        "$mod" => read_mod(argument).ok_or_else(|| bad("$mod")),
        // CouchDB knows these two only with a string.
        "$regex" | "$beginsWith" if argument.as_str().is_none() => {
            Err(QueryError::InvalidOperator(operator.to_owned()))
        }
        "$regex" => read_regex(text("$regex")?).ok_or_else(|| bad("$regex")),
        "$beginsWith" => text("$beginsWith").map(|start| Condition::BeginsWith(start.to_owned())),
        "$elemMatch" => elements("$elemMatch").map(Condition::ElemMatch),
        "$allMatch" => elements("$allMatch").map(Condition::AllMatch),
        "$keyMapMatch" => elements("$keyMapMatch").map(Condition::KeyMapMatch),
        "$text" | "$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere" => {
            Err(QueryError::NotSupported(operator.to_owned()))
        }
        _ => Err(QueryError::InvalidOperator(operator.to_owned())),
    }
}

/// Parses the argument of `$size`. A number beyond a `u64` becomes the largest one: no array has so many
/// elements.
fn read_size(argument: &Value<'_>) -> Option<Condition> {
    let Value::Number(number) = argument else { return None };
    let size = number.integer().filter(|size| *size >= 0)?;
    Some(Condition::Size(u64::try_from(size).unwrap_or(u64::MAX)))
}

fn read_mod(argument: &Value<'_>) -> Option<Condition> {
    let [Value::Number(divisor), Value::Number(remainder)] = argument.as_array()? else { return None };
    // The smallest number modulo -1 would overflow. The absolute value of the divisor gives the same
    // remainders.
    let divisor = divisor.integer()?.checked_abs().filter(|divisor| *divisor != 0)?;
    Some(Condition::Mod(divisor, remainder.integer()?))
}

fn read_regex(text: &str) -> Option<Condition> {
    let mut regex = regex::RegexBuilder::new(text);
    regex.size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_CACHE_BYTES_MAX);
    Some(Condition::Regex(Box::new(regex.build().ok()?)))
}

/// The number of members with this name in a value, at any depth.
fn count_of(name: &str, value: &Value<'_>) -> usize {
    match value {
        Value::Array(values) => values.iter().map(|value| count_of(name, value)).sum(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| usize::from(key == name) + count_of(name, value)).sum()
        }
        _ => 0,
    }
}

fn bad_argument(operator: &'static str, argument: &Value<'_>) -> QueryError {
    QueryError::BadArgument(operator, argument.to_json())
}

#[cfg(test)]
pub(super) mod tests;
