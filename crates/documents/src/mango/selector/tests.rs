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

/// Those of the documents that the selector matches.
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
    assert_eq!(matching(r#"{"a":{"$elemMatch":{}}}"#, &documents), [""; 0], "no element is an empty object");
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
}

#[test]
fn empty_lists_have_the_meaning_of_couchdb() {
    let documents = ["{}", r#"{"a":1}"#, r#"{"a":[]}"#, r#"{"a":[1]}"#, r#"{"a":null}"#, r#"{"a":{}}"#];
    let with_a = &documents[1..];
    for everything in [
        r#"{"$and":[]}"#,
        r#"{"$or":[]}"#,
        r#"{"$nor":[]}"#,
        r#"{"$not":{"$or":[]}}"#,
        r#"{"$not":{"$and":[]}}"#,
        r#"{"a":{"$or":[]}}"#,
        r#"{"a":{"$not":{"$and":[]}}}"#,
        r#"{"$and":[{"$or":[]}]}"#,
    ] {
        assert_eq!(matching(everything, &documents), documents, "{everything}");
    }
    assert_eq!(matching(r#"{"a":1,"$or":[]}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"$or":[{"a":1},{"$or":[]}]}"#, &documents), documents);
    for nothing in [r#"{"a":{"$in":[]}}"#, r#"{"a":{"$all":[]}}"#, r#"{"$or":[],"a":{"$in":[]}}"#] {
        assert_eq!(matching(nothing, &documents), [""; 0], "{nothing}");
    }
    assert_eq!(matching(r#"{"a":{"$nin":[]}}"#, &documents), with_a);
    assert_eq!(matching(r#"{"a":{"$not":{"$in":[]}}}"#, &documents), with_a);
    assert_eq!(matching(r#"{"a":{"$not":{"$all":[]}}}"#, &documents), with_a);
    assert_eq!(matching(r#"{"a":{"$allMatch":{"$eq":1}}}"#, &documents), [documents[3]]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"$or":[]}}}"#, &documents), [documents[3]]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"$not":{"$or":[]}}}}"#, &documents), [""; 0]);
    assert_eq!(matching(r#"{"a":{"$size":0}}"#, &documents), [documents[2]]);
}

#[test]
fn an_empty_object_is_a_value_except_as_the_whole_selector() {
    let documents = ["{}", r#"{"a":{}}"#, r#"{"a":1}"#, r#"{"a":[{}]}"#, r#"{"a":[1,{}]}"#];
    let with_id: Vec<String> = documents
        .iter()
        .map(|document| document.replacen('{', "{\"_id\":\"x\",", 1).replace(",}", "}"))
        .collect();
    let with_id: Vec<&str> = with_id.iter().map(String::as_str).collect();
    assert_eq!(matching("{}", &documents), documents);
    assert_eq!(matching(r#"{"a":{}}"#, &documents), [documents[1]]);
    assert_eq!(matching(r#"{"a":{"$not":{}}}"#, &documents), documents[2..]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{}}}"#, &documents), documents[3..]);
    assert_eq!(matching(r#"{"a":{"$allMatch":{}}}"#, &documents), [documents[3]]);
    // In a list, `{}` is the condition that the document is equal to `{}`, which no document is.
    assert_eq!(matching(r#"{"$and":[{}]}"#, &with_id), [""; 0]);
    assert_eq!(matching(r#"{"$or":[{},{"a":1}]}"#, &with_id), [with_id[2]]);
    assert_eq!(matching(r#"{"$nor":[{}]}"#, &with_id), with_id);
}

#[test]
fn a_condition_without_a_field_is_one_on_the_document() {
    let documents = [r#"{"_id":"x"}"#, r#"{"_id":"y","a":1}"#];
    assert_eq!(matching(r#"{"$and":[{"$gt":1}]}"#, &documents), documents, "objects are behind numbers");
    for nothing in [
        r#"{"$and":[1]}"#,
        r#"{"$or":[null]}"#,
        r#"{"$or":["x",[]]}"#,
        r#"{"$gt":1,"$lt":4}"#,
        r#"{"$and":[{"a":1},{"$type":"array"}]}"#,
    ] {
        assert_eq!(matching(nothing, &documents), [""; 0], "{nothing}");
    }
}

#[test]
fn a_field_is_missing_only_in_an_object() {
    let documents = [
        "{}",
        r#"{"a":null}"#,
        r#"{"a":1}"#,
        r#"{"a":{}}"#,
        r#"{"a":[]}"#,
        r#"{"a":[1]}"#,
        r#"{"a":{"b":null}}"#,
    ];
    let missing = |path: &str| matching(&format!("{{\"{path}\":{{\"$exists\":false}}}}"), &documents);
    assert_eq!(missing("a"), [documents[0]]);
    assert_eq!(missing("a.b"), [documents[0], documents[3]]);
    assert_eq!(missing("a.0"), [documents[0], documents[3], documents[6]]);
    assert_eq!(missing("a.b.c"), [documents[0], documents[3]]);
    assert_eq!(matching(r#"{"a":{"$elemMatch":{"b":{"$exists":false}}}}"#, &documents), [""; 0]);
    assert_eq!(matching(r#"{"$not":{"a.b":{"$exists":true}}}"#, &documents), [documents[0], documents[3]]);
}

#[test]
fn operators_and_values_of_other_types() {
    let documents = [
        "{}",
        r#"{"a":null}"#,
        r#"{"a":true}"#,
        r#"{"a":0}"#,
        r#"{"a":""}"#,
        r#"{"a":[]}"#,
        r#"{"a":{}}"#,
        r#"{"a":[null,1,"x"]}"#,
        r#"{"a":{"x":1}}"#,
    ];
    let of = |condition: &str| -> Vec<usize> {
        let found = matching(&format!("{{\"a\":{condition}}}"), &documents);
        documents
            .iter()
            .enumerate()
            .filter(|(_, one)| found.contains(one))
            .map(|(number, _)| number)
            .collect()
    };
    for (condition, expected) in [
        (r#"{"$eq":null}"#, &[1][..]),
        (r#"{"$ne":null}"#, &[2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$gt":null}"#, &[2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$gte":null}"#, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$lt":null}"#, &[]),
        (r#"{"$lte":null}"#, &[1]),
        (r#"{"$lt":"x"}"#, &[1, 2, 3, 4]),
        (r#"{"$gt":[]}"#, &[6, 7, 8]),
        (r#"{"$gte":{}}"#, &[6, 8]),
        (r#"{"$in":[null]}"#, &[1, 7]),
        (r#"{"$in":[[]]}"#, &[]),
        (r#"{"$in":[{}]}"#, &[6]),
        (r#"{"$nin":[null,0]}"#, &[2, 4, 5, 6, 8]),
        (r#"{"$nin":[[]]}"#, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$all":[null]}"#, &[7]),
        (r#"{"$all":[[]]}"#, &[5]),
        (r#"{"$all":[1.0]}"#, &[]),
        (r#"{"$all":[[null,1.0,"x"]]}"#, &[7]),
        (r#"{"$not":{"$all":[1]}}"#, &[1, 2, 3, 4, 5, 6, 8]),
        (r#"{"$mod":[2,0]}"#, &[3]),
        (r#"{"$not":{"$mod":[2,0]}}"#, &[1, 2, 4, 5, 6, 7, 8]),
        (r#"{"$regex":""}"#, &[4]),
        (r#"{"$not":{"$regex":"x"}}"#, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$beginsWith":""}"#, &[4]),
        (r#"{"$not":{"$beginsWith":"x"}}"#, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$size":3}"#, &[7]),
        (r#"{"$size":99999999999999999999999}"#, &[]),
        (r#"{"$not":{"$size":0}}"#, &[1, 2, 3, 4, 6, 7, 8]),
        (r#"{"$type":"x"}"#, &[]),
        (r#"{"$not":{"$type":"null"}}"#, &[2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$elemMatch":{"$eq":null}}"#, &[7]),
        (r#"{"$elemMatch":{"$exists":true}}"#, &[7]),
        (r#"{"$elemMatch":{"$exists":false}}"#, &[]),
        (r#"{"$not":{"$elemMatch":{"$eq":null}}}"#, &[1, 2, 3, 4, 5, 6, 8]),
        (r#"{"$allMatch":{"$gte":null}}"#, &[7]),
        (r#"{"$not":{"$allMatch":{"$gte":null}}}"#, &[1, 2, 3, 4, 5, 6, 8]),
        (r#"{"$keyMapMatch":{"$eq":"x"}}"#, &[8]),
        (r#"{"$not":{"$keyMapMatch":{"$eq":"x"}}}"#, &[1, 2, 3, 4, 5, 6, 7]),
        (r#"{"$exists":true}"#, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (r#"{"$not":{"$exists":true,"$eq":0}}"#, &[0, 1, 2, 4, 5, 6, 7, 8]),
    ] {
        assert_eq!(of(condition), expected, "{condition}");
    }
}

#[test]
fn the_last_of_equal_members_counts() {
    let documents = [r#"{"a":"x"}"#, r#"{"a":"y"}"#];
    assert_eq!(matching(r#"{"a":{"$regex":"x"},"a":{"$exists":true}}"#, &documents), documents);
}

#[test]
fn selectors_are_shown_as_they_were_understood() {
    let shown = |text: &str| parse(text).expect(text).to_value().to_json();
    assert_eq!(shown("{}"), "{}");
    assert_eq!(shown(r#"{"a":{"b":1},"c":{}}"#), r#"{"$and":[{"a.b":{"$eq":1}},{"c":{"$eq":{}}}]}"#);
    assert_eq!(
        shown(r#"{"$nor":[{"a":{"$gt":1}},{"b":{"$in":[1]}}]}"#),
        r#"{"$and":[{"a":{"$lte":1}},{"b":{"$nin":[1]}}]}"#
    );
    assert_eq!(shown(r#"{"a":{"$not":{"$size":2}}}"#), r#"{"a":{"$not":{"$size":2}}}"#);
    for same in [
        r#"{"a":{"$elemMatch":{"$and":[{"$gt":1},{"b":{"$type":"null"}}]}}}"#,
        r#"{"a":{"$allMatch":{"$not":{"$exists":false}}}}"#,
        r#"{"$or":[{"a":{"$mod":[2,1]}},{"a":{"$regex":"x"}},{"a":{"$keyMapMatch":{"$beginsWith":"y"}}}]}"#,
        r#"{"a\\.b":{"$all":[[1]]}}"#,
    ] {
        assert_eq!(shown(same), same);
    }
    // CouchDB stores a condition on elements in this form.
    assert_eq!(shown(r#"{"a":{"$elemMatch":{"":{"$gt":1}}}}"#), r#"{"a":{"$elemMatch":{"$gt":1}}}"#);
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
    assert_eq!(told(r#"{"$not":{"$gt":1}}"#), missing);
    assert_eq!(told(r#"{"$not":{}}"#), missing);
    for text in [r#"{"a":{"$regex":1}}"#, r#"{"a":{"$regex":null}}"#, r#"{"a":{"$beginsWith":[]}}"#] {
        assert_eq!(told(text).0, "invalid_operator", "{text}");
    }
    assert_eq!(told(r#"{"_id":{"":null}}"#).0, "invalid_field_name");
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
        ("$and", "null"),
        ("$or", "null"),
        ("$not", "[]"),
        ("$in", "null"),
        ("$nin", "null"),
        ("$all", "null"),
        ("$exists", "null"),
        ("$type", "null"),
        ("$size", "null"),
        ("$size", "1.0"),
        ("$mod", "null"),
        ("$mod", "[]"),
        ("$mod", "[2,1,0]"),
        ("$mod", "[\"2\",1]"),
        ("$elemMatch", "null"),
        ("$allMatch", "[]"),
        ("$keyMapMatch", "null"),
        ("$regex", "\"(\""),
        ("$regex", "\"(a)\\\\1\""),
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
/// neither a condition nor its negation, except `$exists`.
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
            // Every document meets an empty list, negated or not.
            "$and" | "$or" | "$nor" if argument.as_array().is_some_and(|list| list.is_empty()) => true,
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
    let mut value = document;
    for name in path {
        let Value::Object(_) = value else { return false };
        match value.get(name) {
            Some(inner) => value = inner,
            None => return operator == "$exists" && (argument == &Value::Bool(false)) == wanted,
        }
    }
    holds(operator, argument, value) == wanted
}

/// Whether a value meets one operator, by CouchDB's documentation.
fn holds(operator: &str, argument: &Value<'_>, value: &Value<'_>) -> bool {
    let list = || argument.as_array().expect("an array");
    let number = |value: &Value<'_>| value.to_json().parse::<i128>().ok();
    // Operators on elements take a condition, of which all operators must hold.
    let element = |element: &Value<'_>| {
        argument.as_object().expect("an object").iter().all(|(operator, argument)| match &**operator {
            "$not" => !argument.as_object().expect("one").iter().all(|(name, one)| holds(name, one, element)),
            name => holds(name, argument, element),
        })
    };
    match operator {
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
        "$nin" => !holds("$in", argument, value),
        "$all" => {
            let Value::Array(elements) = value else { return false };
            let has = |wanted: &Value<'_>| elements.iter().any(|element| element.is_identical(wanted));
            let is_it = matches!(list(), [only @ Value::Array(_)] if only == value);
            is_it || !list().is_empty() && list().iter().all(has)
        }
        "$size" => value.as_array().map(|elements| elements.len().to_string()) == Some(argument.to_json()),
        "$mod" => {
            let [divisor, remainder] = list() else { panic!("two numbers") };
            let (divisor, remainder) = (number(divisor).expect("one"), number(remainder).expect("one"));
            number(value).is_some_and(|number| number % divisor == remainder) && value.type_name() == "number"
        }
        "$beginsWith" => {
            let (Some(text), Some(start)) = (value.as_str(), argument.as_str()) else { return false };
            text.get(..start.len()) == Some(start)
        }
        "$elemMatch" => value.as_array().is_some_and(|elements| elements.iter().any(element)),
        "$allMatch" => value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(element)),
        "$keyMapMatch" => value
            .as_object()
            .is_some_and(|members| members.iter().any(|(key, _)| element(&Value::string(key.to_string())))),
        "$type" => Some(value.type_name()) == argument.as_str(),
        other => panic!("{other}"),
    }
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
        1 => proptest::collection::vec(values(), 0..3).prop_map(|values| member("$nin", Value::Array(values))),
        1 => proptest::collection::vec(values(), 0..3).prop_map(|values| member("$all", Value::Array(values))),
        1 => (0u8..3).prop_map(|size| member("$size", Value::integer(i128::from(size)))),
        1 => (1i128..4, -2i128..3).prop_map(|(divisor, remainder)| {
            member("$mod", Value::Array(vec![Value::integer(divisor), Value::integer(remainder)]))
        }),
        1 => "[ab\0é]{0,2}".prop_map(|start| member("$beginsWith", Value::string(start))),
    ];
    let on_elements = prop::sample::select(vec!["$elemMatch", "$allMatch", "$keyMapMatch"]);
    let of_elements = prop_oneof![
        3 => condition.clone(),
        1 => condition.clone().prop_map(|condition| member("$not", condition)),
    ];
    let condition = prop_oneof![
        8 => condition,
        1 => (on_elements, of_elements).prop_map(|(operator, condition)| member(operator, condition)),
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
    fn selectors_match_as_the_model_does(selector in selectors(), documents in proptest::collection::vec(documents(), 1..6)) {
        let read = Selector::parse(&selector).expect("a selector");
        for document in &documents {
            prop_assert_eq!(read.matches(document), means(&selector, document, &[], true), "{}", document.to_json());
        }
    }
}
