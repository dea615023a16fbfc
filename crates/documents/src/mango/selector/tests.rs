//! Examples of each operator and error, and random selectors compared with a direct evaluation without
//! normalisation.

use proptest::prelude::*;

use super::*;
use crate::mango::value::tests::values;

fn json(text: &str) -> Value<'_> {
    Value::parse(text).expect(text)
}

fn parse(text: &str) -> Result<Selector, QueryError> {
    Selector::parse(&json(text))
}

/// The matching ones of the documents.
fn matching<'d>(selector: &str, documents: &[&'d str]) -> Vec<&'d str> {
    let selector = parse(selector).expect(selector);
    documents.iter().copied().filter(|document| selector.matches(&json(document))).collect()
}

#[test]
fn comparisons() {
    let documents = ["{}", r#"{"a":null}"#, r#"{"a":1}"#, r#"{"a":2.0}"#, r#"{"a":"1"}"#, r#"{"a":[2]}"#];
    assert_eq!(matching("{}", &documents), documents);
    assert_eq!(matching(r#"{"a":2}"#, &documents), [documents[3]]);
    assert_eq!(matching(r#"{"a":{"$eq":null}}"#, &documents), [documents[1]]);
    assert_eq!(
        matching(r#"{"a":{"$ne":1}}"#, &documents),
        [documents[1], documents[3], documents[4], documents[5]]
    );
    assert_eq!(matching(r#"{"a":{"$lt":2}}"#, &documents), [documents[1], documents[2]]);
    assert_eq!(matching(r#"{"a":{"$lte":2}}"#, &documents), [documents[1], documents[2], documents[3]]);
    assert_eq!(matching(r#"{"a":{"$gt":2}}"#, &documents), [documents[4], documents[5]]);
    assert_eq!(matching(r#"{"a":{"$gte":2,"$lt":[]}}"#, &documents), [documents[3], documents[4]]);
    assert_eq!(matching(r#"{"a":{"$gt":null},"b":1}"#, &documents), [""; 0]);
}

#[test]
fn fields_are_nested() {
    let documents = [
        r#"{"a":{"b":1}}"#,
        r#"{"a.b":1}"#,
        r#"{"a":[{"b":1}]}"#,
        r#"{"a":{"b":{}}}"#,
        r#"{"a":{"b":1,"c":1}}"#,
    ];
    assert_eq!(matching(r#"{"a.b":1}"#, &documents), [documents[0], documents[4]]);
    assert_eq!(matching(r#"{"a":{"b":1}}"#, &documents), [documents[0], documents[4]]);
    assert_eq!(matching(r#"{"a":{"$eq":{"b":1}}}"#, &documents), [documents[0]]);
    assert_eq!(matching(r#"{"a\\.b":1}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"a.0.b":1}"#, &documents), [documents[2]]);
    assert_eq!(matching(r#"{"a.b":{}}"#, &documents), [documents[3]]);
}

#[test]
fn types_and_presence() {
    let documents =
        ["{}", r#"{"a":null}"#, r#"{"a":true}"#, r#"{"a":1}"#, r#"{"a":""}"#, r#"{"a":[]}"#, r#"{"a":{}}"#];
    assert_eq!(matching(r#"{"a":{"$exists":false}}"#, &documents), [documents[0]]);
    assert_eq!(matching(r#"{"a":{"$exists":true}}"#, &documents), documents[1..]);
    for (name, document) in
        ["null", "boolean", "number", "string", "array", "object"].iter().zip(&documents[1..])
    {
        assert_eq!(matching(&format!(r#"{{"a":{{"$type":"{name}"}}}}"#), &documents), [*document]);
    }
    assert_eq!(matching(r#"{"a":{"$type":"number","$not":{"$eq":2}}}"#, &documents), [documents[3]]);
}

#[test]
fn sets_and_arrays() {
    let documents = [r#"{"a":1}"#, r#"{"a":[1,2]}"#, r#"{"a":[3]}"#, r#"{"a":[]}"#, "{}", r#"{"a":[[1,2]]}"#];
    assert_eq!(matching(r#"{"a":{"$in":[1,9]}}"#, &documents), [documents[0], documents[1]]);
    assert_eq!(matching(r#"{"a":{"$nin":[1,9]}}"#, &documents), [documents[2], documents[3], documents[5]]);
    assert_eq!(matching(r#"{"a":{"$all":[2,1]}}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"a":{"$all":[[1,2]]}}"#, &documents), [documents[1], documents[5]]);
    assert_eq!(matching(r#"{"a":{"$size":1}}"#, &documents), [documents[2], documents[5]]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"$gt":1,"$lt":3}}}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"a":{"$allMatch":{"$gt":2}}}"#, &documents), [documents[2], documents[5]]);
    assert_eq!(
        matching(r#"{"a":{"$elemMatch":{}}}"#, &documents),
        [documents[1], documents[2], documents[5]]
    );
    let people = [r#"{"a":[{"n":"x","v":1},{"n":"y","v":2}]}"#, r#"{"a":[{"n":"x","v":2}]}"#];
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"n":"x","v":{"$gt":1}}}}"#, &people), [people[1]]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"$not":{"n":"x"}}}}"#, &people), [people[0]]);
    let maps = [r#"{"a":{"x":1,"extra":2}}"#, r#"{"a":{"x":1}}"#, r#"{"a":["extra"]}"#];
    assert_eq!(matching(r#"{"a":{"$keyMapMatch":{"$eq":"extra"}}}"#, &maps), [maps[0]]);
}

#[test]
fn numbers_and_texts() {
    let documents = [r#"{"a":10}"#, r#"{"a":-7}"#, r#"{"a":10.0}"#, r#"{"a":"abc"}"#, r#"{"a":"é"}"#];
    assert_eq!(matching(r#"{"a":{"$mod":[3,1]}}"#, &documents), [documents[0]]);
    assert_eq!(matching(r#"{"a":{"$mod":[-3,-1]}}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"a":{"$regex":"^a.c$"}}"#, &documents), [documents[3]]);
    assert_eq!(
        matching(r#"{"a":{"$not":{"$regex":"b"}}}"#, &documents),
        [documents[0], documents[1], documents[2], documents[4]]
    );
    assert_eq!(matching(r#"{"a":{"$beginsWith":"a"}}"#, &documents), [documents[3]]);
}

#[test]
fn negations_say_nothing_of_fields_that_are_not_there() {
    let documents = ["{}", r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":2,"b":1}"#];
    assert_eq!(matching(r#"{"$not":{"a":1}}"#, &documents), documents[2..]);
    assert_eq!(matching(r#"{"$nor":[{"a":1},{"b":1}]}"#, &documents), [""; 0]);
    assert_eq!(matching(r#"{"$not":{"$or":[{"a":1},{"b":2}]}}"#, &documents), documents[3..]);
    assert_eq!(matching(r#"{"$not":{"$not":{"a":1}}}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"$not":{"a":{"$exists":true}}}"#, &documents), [documents[0]]);
    assert_eq!(matching(r#"{"$and":[],"a":2}"#, &documents), documents[2..]);
    assert_eq!(matching(r#"{"$or":[]}"#, &documents), [""; 0]);
}

#[test]
fn each_error_has_its_text() {
    let told = |text: &str| {
        let error = parse(text).expect_err(text);
        (error.row().1, error.to_string())
    };
    assert_eq!(told("[]"), ("invalid_selector_json", "Selector must be a JSON object, not: []".into()));
    assert_eq!(told(r#"{"a":{"$foo":1}}"#), ("invalid_operator", "Invalid operator: $foo".into()));
    assert_eq!(told(r#"{"$where":1}"#), ("not_supported", "Unsupported operator: $where".into()));
    let missing = ("invalid_selector", "One or more conditions is missing a field name.".to_owned());
    assert_eq!(told(r#"{"$gt":1}"#), missing);
    assert_eq!(told(r#"{"$and":[{"a":1},{"$gt":1,"$lt":4}]}"#), missing);
    assert_eq!(told(r#"{"a..b":1}"#), ("invalid_field_name", "Invalid field name: a..b".into()));
    let arguments = [
        ("$and", "1"),
        ("$or", "{}"),
        ("$nor", "\"x\""),
        ("$not", "1"),
        ("$in", "1"),
        ("$nin", "{}"),
        ("$all", "1"),
        ("$exists", "1"),
        ("$type", "1"),
        ("$size", "-1"),
        ("$size", "1.5"),
        ("$mod", "[2]"),
        ("$mod", "[0,0]"),
        ("$mod", "[2.5,1]"),
        ("$regex", "1"),
        ("$regex", "\"(\""),
        ("$regex", "\"(a)\\\\1\""),
        ("$beginsWith", "1"),
        ("$elemMatch", "[]"),
        ("$allMatch", "1"),
        ("$keyMapMatch", "1"),
    ];
    for (operator, argument) in arguments {
        let reason = format!("Bad argument for operator {operator}: {argument}");
        assert_eq!(told(&format!("{{\"a\":{{\"{operator}\":{argument}}}}}")), ("bad_arg", reason));
    }
    assert_eq!(told(r#"{"a":{"$regex":"(\\w{1000}){1000}"}}"#).0, "bad_arg");
    let regexes = |count| format!(r#"{{"$or":[{}]}}"#, vec![r#"{"a":{"$regex":"x"}}"#; count].join(","));
    assert!(parse(&regexes(REGEXES_MAX)).is_ok());
    let reason = "Bad argument for operator $regex: more than 32 in one selector";
    assert_eq!(told(&regexes(REGEXES_MAX + 1)), ("bad_arg", reason.into()));
}

/// Evaluates a selector directly as it is written. `wanted` is false within a negation; a missing field meets
/// neither a condition nor its negation.
fn means(selector: &Value<'_>, document: &Value<'_>, path: &[&str], wanted: bool) -> bool {
    let Value::Object(members) = selector else { return compares("$eq", selector, document, path, wanted) };
    if members.is_empty() && !path.is_empty() {
        return compares("$eq", selector, document, path, wanted);
    }
    let one = |(key, argument): &(std::borrow::Cow<'_, str>, Value<'_>)| {
        let all = |wanted| {
            let arguments = argument.as_array().expect("an array");
            arguments.iter().map(move |argument| means(argument, document, path, wanted)).collect::<Vec<_>>()
        };
        match &**key {
            "$and" if wanted => !all(true).contains(&false),
            "$and" => all(false).contains(&true),
            "$or" if wanted => all(true).contains(&true),
            "$or" => !all(false).contains(&false),
            "$nor" if wanted => !all(false).contains(&false),
            "$nor" => all(true).contains(&true),
            "$not" => means(argument, document, path, !wanted),
            operator if operator.starts_with('$') => compares(operator, argument, document, path, wanted),
            name => means(argument, document, &[path, &[name]].concat(), wanted),
        }
    };
    if wanted { members.iter().all(one) } else { members.iter().any(one) }
}

fn compares(operator: &str, argument: &Value<'_>, document: &Value<'_>, path: &[&str], wanted: bool) -> bool {
    let value = path.iter().try_fold(document, |value, name| value.get(name));
    let Some(value) = value else {
        return operator == "$exists" && (argument == &Value::Bool(false)) == wanted;
    };
    let holds = match operator {
        "$eq" => value == argument,
        "$ne" => value != argument,
        "$lt" => value < argument,
        "$lte" => value <= argument,
        "$gt" => value > argument,
        "$gte" => value >= argument,
        "$exists" => argument == &Value::Bool(true),
        "$in" => {
            let mut values = vec![value];
            if let Value::Array(elements) = value {
                values = elements.iter().collect();
            }
            values.iter().any(|value| argument.as_array().expect("an array").contains(value))
        }
        "$type" => Some(value.type_name()) == argument.as_str(),
        other => panic!("{other}"),
    };
    holds == wanted
}

fn member(key: &'static str, value: Value<'static>) -> Value<'static> {
    Value::Object(vec![(key.into(), value)])
}

/// Selectors on the fields a, b and a.b.
pub(crate) fn selectors() -> impl Strategy<Value = Value<'static>> {
    let compare = (prop::sample::select(vec!["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]), values());
    let types = prop::sample::select(vec!["null", "boolean", "number", "string", "array", "object"]);
    let condition = prop_oneof![
        4 => compare.prop_map(|(operator, value)| member(operator, value)),
        1 => any::<bool>().prop_map(|exists| member("$exists", Value::Bool(exists))),
        1 => proptest::collection::vec(values(), 0..3).prop_map(|values| member("$in", Value::Array(values))),
        1 => types.prop_map(|name| member("$type", Value::string(name))),
    ];
    let condition =
        prop_oneof![3 => condition.clone(), 1 => condition.prop_map(|condition| member("$not", condition))];
    let field = (prop::sample::select(vec!["a", "b"]), any::<bool>(), condition).prop_map(
        |(name, nested, condition)| member(name, if nested { member("b", condition) } else { condition }),
    );
    field.prop_recursive(3, 10, 3, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array);
        prop_oneof![
            (prop::sample::select(vec!["$and", "$or", "$nor"]), list)
                .prop_map(|(operator, list)| member(operator, list)),
            inner.clone().prop_map(|selector| member("$not", selector)),
            (inner.clone(), inner).prop_map(|(one, other)| {
                let members =
                    [one, other].iter().filter_map(Value::as_object).flatten().cloned().collect::<Vec<_>>();
                Value::Object(members)
            }),
        ]
    })
}

/// Documents with some of the fields a, b and a.b.
pub(crate) fn documents() -> impl Strategy<Value = Value<'static>> {
    let field = prop_oneof![values(), values().prop_map(|value| member("b", value))];
    proptest::collection::vec((prop::sample::select(vec!["a", "b"]), field), 0..3).prop_map(|mut members| {
        members.dedup_by(|a, b| a.0 == b.0);
        Value::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    })
}

proptest! {
    #[test]
    fn selectors_mean_what_they_say(selector in selectors(), documents in proptest::collection::vec(documents(), 1..6)) {
        let read = Selector::parse(&selector).expect("a selector");
        for document in &documents {
            prop_assert_eq!(read.matches(document), means(&selector, document, &[], true), "{}", document.to_json());
        }
    }
}
