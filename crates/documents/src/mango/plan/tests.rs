//! Examples of CouchDB's choice, and random queries compared with a scan of all documents.

use proptest::prelude::*;

use super::*;
use crate::mango::selector::tests::{documents, selectors};

fn index(name: &str, fields: &str, filter: &str) -> IndexDefinition {
    let body = format!(
        r#"{{"index":{{"fields":{fields},"partial_filter_selector":{filter}}},"ddoc":"{name}","name":"{name}"}}"#
    );
    IndexDefinition::parse(&Value::parse(&body).expect(&body)).expect(&body)
}

fn request(text: &str) -> FindRequest {
    FindRequest::parse(&Value::parse(text).expect(text)).expect(text)
}

fn indexes() -> Vec<IndexDefinition> {
    vec![
        index("a", r#"["a"]"#, "{}"),
        index("ab", r#"["a","b"]"#, "{}"),
        index("abc", r#"["a","b","c"]"#, "{}"),
        index("b", r#"["b"]"#, "{}"),
        index("b2", r#"["b"]"#, "{}"),
        index("p", r#"["p"]"#, r#"{"q":1}"#),
    ]
}

/// The name of the chosen index.
fn chosen(text: &str) -> Result<String, QueryError> {
    let indexes = indexes();
    let plan = Plan::choose(&request(text), &indexes)?;
    Ok(plan.index.map_or("_all_docs".into(), |index| index.name.clone()))
}

#[test]
fn the_index_that_the_selector_bounds_most_is_best() {
    let chosen = |selector: &str| chosen(&format!("{{\"selector\":{selector}}}")).expect("an index");
    assert_eq!(chosen("{}"), "_all_docs");
    assert_eq!(chosen(r#"{"a":1}"#), "a");
    assert_eq!(chosen(r#"{"a":1,"b":{"$gt":2}}"#), "ab");
    assert_eq!(chosen(r#"{"a":1,"b":2,"c":{"$exists":true}}"#), "abc");
    assert_eq!(chosen(r#"{"a":1,"b":{"$beginsWith":"x"}}"#), "ab");
    assert_eq!(chosen(r#"{"a":1,"b":{"$regex":"x"}}"#), "a");
    assert_eq!(chosen(r#"{"a":1,"b":2,"c":3}"#), "abc");
    assert_eq!(chosen(r#"{"b":1}"#), "b");
    assert_eq!(chosen(r#"{"b":{"$ne":1}}"#), "b");
    assert_eq!(chosen(r#"{"b":{"$exists":false}}"#), "_all_docs");
    assert_eq!(chosen(r#"{"$or":[{"a":1},{"b":1}]}"#), "_all_docs");
    assert_eq!(chosen(r#"{"$or":[{"b":1},{"b":2}]}"#), "b");
    assert_eq!(chosen(r#"{"p":1,"q":1}"#), "_all_docs", "an index of some documents is not chosen");
}

#[test]
fn an_order_needs_an_index_that_has_it() {
    let sorted = |selector: &str, sort: &str| chosen(&format!("{{\"selector\":{selector},\"sort\":{sort}}}"));
    assert_eq!(sorted("{}", r#"["a"]"#).as_deref(), Ok("a"));
    assert_eq!(sorted("{}", r#"["a","b"]"#).as_deref(), Ok("ab"));
    assert_eq!(sorted(r#"{"a":1}"#, r#"["b"]"#).as_deref(), Ok("ab"));
    assert_eq!(sorted(r#"{"a":{"$gt":1}}"#, r#"["b"]"#).as_deref(), Ok("b"));
    assert_eq!(sorted("{}", r#"[{"_id":"desc"}]"#).as_deref(), Ok("_all_docs"));
    assert_eq!(sorted("{}", r#"["c"]"#), Err(QueryError::NoUsableIndex));
    assert_eq!(sorted(r#"{"c":1}"#, r#"["b","a"]"#), Err(QueryError::NoUsableIndex));
}

#[test]
fn an_index_that_is_named_is_used_if_it_can_be() {
    let indexes = indexes();
    let told = |text: &str| {
        let plan = Plan::choose(&request(text), &indexes).expect("a plan");
        (plan.index.map(|index| index.name.clone()), plan.warning)
    };
    assert_eq!(told(r#"{"selector":{"a":1,"b":1},"use_index":"b2"}"#), (Some("b2".into()), None));
    assert_eq!(told(r#"{"selector":{"p":1},"use_index":["p","p"]}"#), (Some("p".into()), None));
    let warning = "_design/b2 was not used because it does not contain a valid index for this query.";
    assert_eq!(told(r#"{"selector":{"a":1},"use_index":"b2"}"#), (Some("a".into()), Some(warning.into())));
    let warning = "_design/b, x was not used because it is not a valid index for this query.\n\
                   No matching index found, create an index to optimize query time.";
    assert_eq!(told(r#"{"selector":{"c":1},"use_index":["b","x"]}"#), (None, Some(warning.into())));
}

#[test]
fn ids_bound_all_documents() {
    let keys = |selector: &str| {
        let plan = Plan::choose(&request(&format!("{{\"selector\":{selector}}}")), &[]).expect("a plan").keys;
        plan.map(|keys| (keys.from, keys.to))
    };
    assert_eq!(keys(r#"{"_id":"x"}"#), Some((b"x".to_vec(), Some(b"x\0".to_vec()))));
    assert_eq!(keys(r#"{"_id":{"$gt":null}}"#), Some((vec![], None)));
    assert_eq!(keys(r#"{"_id":{"$gt":"a","$lt":{}}}"#), Some((b"a".to_vec(), None)));
    assert_eq!(keys(r#"{"_id":{"$lt":5}}"#), None);
    assert_eq!(keys(r#"{"_id":{"$gt":[]}}"#), None);
    assert_eq!(keys(r#"{"_id":{"$gt":"b","$lt":"a"}}"#), None);
}

#[test]
fn keys_of_values_that_are_excluded_are_left_out() {
    let indexes = indexes();
    let keys = |selector: &str| {
        let request = request(&format!("{{\"selector\":{selector}}}"));
        Plan::choose(&request, &indexes).expect("a plan").keys.expect("keys")
    };
    let key = |text: &str| {
        let mut key = Vec::new();
        put_key(&mut key, &Value::parse(text).expect("JSON"));
        key
    };
    assert_eq!(
        keys(r#"{"b":{"$gt":1,"$lt":5}}"#),
        KeyRange { from: end_of_prefix(key("1")).expect("an end"), to: Some(key("5")) }
    );
    assert_eq!(
        keys(r#"{"b":{"$gte":1,"$lte":5}}"#),
        KeyRange { from: key("1"), to: end_of_prefix(key("5")) }
    );
    // 2^53 + 1 has the same key as 2^53.
    let range = keys(r#"{"b":{"$gt":9007199254740992,"$lt":9007199254740993}}"#);
    assert_eq!(range, KeyRange { from: key("9007199254740992"), to: end_of_prefix(key("9007199254740993")) });
    let long = format!("\"{}\"", "x".repeat(2 * INDEX_KEY_BYTES_MAX));
    assert_eq!(keys(&format!("{{\"b\":{{\"$gt\":{long}}}}}")).from, key(&long));
}

#[test]
fn a_bookmark_is_of_its_index() {
    let indexes = indexes();
    let plan = |more: &str| Plan::choose(&request(&format!("{{\"selector\":{{\"a\":1}}{more}}}")), &indexes);
    let bookmark = plan("").expect("a plan").bookmark(b"k").text();
    let on = plan(&format!(",\"bookmark\":\"{bookmark}\"")).expect("a plan").keys.expect("keys");
    assert_eq!(on.from, b"k\0");
    let down = plan(&format!(",\"sort\":[{{\"a\":\"desc\"}}],\"bookmark\":\"{bookmark}\"")).expect("a plan");
    assert!(down.descending && down.keys.expect("keys").to.expect("an end") < b"k".to_vec());
    let other = format!(",\"use_index\":\"ab\",\"b\":1,\"bookmark\":\"{bookmark}\"").replace(",\"b\":1", "");
    assert!(plan(&other).is_ok(), "the index that is named cannot be used");
    let other = format!("{{\"selector\":{{\"b\":1}},\"bookmark\":\"{bookmark}\"}}");
    assert!(matches!(Plan::choose(&request(&other), &indexes), Err(QueryError::InvalidBookmark(_))));
}

#[test]
fn an_empty_list_alone_finds_nothing() {
    let indexes = indexes();
    let keys = |selector: &str| {
        let request = request(&format!("{{\"selector\":{selector}}}"));
        Plan::choose(&request, &indexes).expect("a plan").keys
    };
    for nothing in [r#"{"$or":[]}"#, r#"{"$and":[]}"#, r#"{"$nor":[]}"#, r#"{"a":{"$or":[]}}"#] {
        assert_eq!(keys(nothing), None, "{nothing}");
    }
    for all in ["{}", r#"{"$or":[],"$and":[]}"#, r#"{"$and":[{"$or":[]}]}"#] {
        assert_eq!(keys(all), Some(KeyRange::default()), "{all}");
    }
    assert_eq!(keys(r#"{"a":22,"$or":[]}"#), keys(r#"{"a":22}"#));
}

#[test]
fn only_the_named_index_may_be_used_if_the_client_wants_so() {
    let indexes = indexes();
    let told = |more: &str| {
        let request = request(&format!("{{\"selector\":{{\"a\":1}},\"allow_fallback\":false{more}}}"));
        Plan::choose(&request, &indexes).map_err(|error| error.to_string())
    };
    let name = |plan: Plan| plan.index.map(|index| index.name);
    assert_eq!(told(r#","use_index":"a""#).map(name), Ok(Some("a".into())));
    assert_eq!(told("").map(name), Ok(Some("a".into())), "there is more than one to choose from");
    let unsuitable = "specified by `use_index` could not be found or it is not suitable.";
    assert_eq!(told(r#","use_index":"b""#).map(name), Err(format!("_design/b {unsuitable}")));
    assert_eq!(told(r#","use_index":["x","y"]"#).map(name), Err(format!("_design/x, y {unsuitable}")));
    let alone = request(r#"{"selector":{"zz":1},"allow_fallback":false}"#);
    let reason = "You must specify an index with the `use_index` parameter.";
    assert_eq!(
        Plan::choose(&alone, &indexes).map_err(|error| error.to_string()).map(name),
        Err(reason.into())
    );
}

/// The numbers of the documents that a plan finds: the entries of its range in order, filtered by the
/// selector.
fn found(plan: &Plan, request: &FindRequest, documents: &[Value<'static>]) -> Vec<usize> {
    let Some(keys) = &plan.keys else { return Vec::new() };
    let entry = |(number, document): (usize, &Value<'static>)| {
        let mut key = Vec::new();
        match &plan.index {
            None => key = document.get("_id")?.as_str()?.as_bytes().to_vec(),
            Some(index) => {
                index.values_of(document)?.into_iter().for_each(|value| put_key(&mut key, value));
                key.push(number as u8);
            }
        }
        Some((key, number))
    };
    let mut entries: Vec<_> = documents.iter().enumerate().filter_map(entry).collect();
    entries.sort();
    entries.retain(|(key, _)| *key >= keys.from && keys.to.as_ref().is_none_or(|to| key < to));
    if plan.descending {
        entries.reverse();
    }
    entries
        .into_iter()
        .map(|(_, number)| number)
        .filter(|number| request.selector.matches(&documents[*number]))
        .collect()
}

proptest! {
    #[test]
    fn an_index_finds_the_same_documents_as_a_full_scan(
        selector in selectors(),
        bodies in proptest::collection::vec(documents(), 0..12),
        sort in prop::sample::select(vec!["[]", r#"["a"]"#, r#"[{"b":"desc"}]"#, r#"["a","b"]"#, r#"[{"_id":"desc"}]"#]),
    ) {
        let text = format!(r#"{{"selector":{},"sort":{sort}}}"#, selector.to_json());
        let request = request(&text);
        let documents: Vec<Value<'static>> = bodies.into_iter().enumerate().map(|(number, body)| {
            let id = ("_id".into(), Value::string(format!("{number:02}")));
            Value::Object(std::iter::once(id).chain(body.as_object().expect("an object").iter().cloned()).collect())
        }).collect();
        let indexes = [index("a", r#"["a"]"#, "{}"), index("ab", r#"["a","b"]"#, "{}"), index("b", r#"["b"]"#, "{}"), index("a.b", r#"["a.b","b"]"#, "{}")];
        let sorted: Vec<_> = request.sort.fields.iter().collect();
        for usable in indexes.iter().map(std::slice::from_ref).chain([&indexes[..], &[]]) {
            let Ok(plan) = Plan::choose(&request, usable) else { continue };
            let numbers = found(&plan, &request, &documents);
            // In CouchDB, a selector that is only an empty list of conditions finds nothing.
            if request.selector.is_empty_list() {
                prop_assert!(numbers.is_empty());
                continue;
            }
            let mut expected: Vec<usize> = (0..documents.len())
                .filter(|number| request.selector.matches(&documents[*number]))
                // Documents without a sort field are not found.
                .filter(|number| sorted.iter().all(|path| path.find(&documents[*number]).is_some()))
                .collect();
            let mut all = numbers.clone();
            all.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&all, &expected, "{} {:?}", text, plan);
            let by = |number: usize| {
                let mut key = Vec::new();
                sorted.iter().filter_map(|path| path.find(&documents[number])).for_each(|value| put_key(&mut key, value));
                key
            };
            let in_order = numbers.is_sorted_by(|a, b| if plan.descending { by(*a) >= by(*b) } else { by(*a) <= by(*b) });
            prop_assert!(in_order, "{} {:?}", text, numbers);
        }
    }
}
