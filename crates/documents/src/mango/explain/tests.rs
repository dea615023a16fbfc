use super::*;

fn index(name: &str, fields: &str, filter: &str) -> IndexDefinition {
    let body = format!(
        r#"{{"index":{{"fields":{fields},"partial_filter_selector":{filter}}},"ddoc":"{name}","name":"{name}"}}"#
    );
    IndexDefinition::parse(&Value::parse(&body).expect(&body)).expect(&body)
}

fn explained(request: &str, indexes: &[IndexDefinition]) -> serde_json::Value {
    let request = FindRequest::parse(&Value::parse(request).expect(request)).expect(request);
    let mut out = Vec::new();
    explain(&request, indexes, "db\"", &mut out).expect("an explanation");
    serde_json::from_slice(&out).expect("JSON")
}

/// Name, usable, reason and rank of each index that is not used.
fn candidates_of(request: &str, indexes: &[IndexDefinition]) -> Vec<(String, bool, String, u64)> {
    let explained = explained(request, indexes);
    let candidates = explained["index_candidates"].as_array().expect("a list");
    let told = candidates.iter().map(|candidate| {
        let analysis = &candidate["analysis"];
        let is_all_docs = candidate["index"]["ddoc"].is_null();
        assert_eq!(analysis["covering"].is_null(), is_all_docs);
        (
            candidate["index"]["name"].as_str().expect("a name").to_owned(),
            analysis["usable"].as_bool().expect("yes or no"),
            analysis["reasons"][0]["name"].as_str().expect("a reason").to_owned(),
            analysis["ranking"].as_u64().expect("a rank"),
        )
    });
    told.collect()
}

#[test]
fn an_explanation_has_all_members() {
    let request = r#"{"selector":{"b":1,"c":{"$in":[]}},"fields":["_id"],"limit":3,"sort":[{"b":"desc"}],"use_index":"b"}"#;
    let indexes = [index("b", "[\"b\"]", "{}")];
    let mut out = Vec::new();
    let request = FindRequest::parse(&Value::parse(request).expect("JSON")).expect("a request");
    explain(&request, &indexes, "db\"", &mut out).expect("an explanation");
    let expected = concat!(
        r#"{"dbname":"db\"","index":{"ddoc":"_design/b","name":"b","type":"json","partitioned":false,"#,
        r#""def":{"fields":[{"b":"asc"}]}},"partitioned":false,"#,
        r#""selector":{"$and":[{"b":{"$eq":1}},{"c":{"$in":[]}}]},"opts":{"use_index":["b"],"#,
        r#""bookmark":"nil","limit":3,"skip":0,"sort":{"b":"desc"},"fields":["_id"],"partition":"","r":1,"#,
        r#""conflicts":false,"stale":false,"update":true,"stable":false,"execution_stats":false,"#,
        r#""allow_fallback":true},"limit":3,"skip":0,"fields":["_id"],"index_candidates":[{"index":"#,
        r#"{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}},"#,
        r#""analysis":{"usable":false,"reasons":[{"name":"field_mismatch"}],"ranking":1,"covering":null}}],"#,
        r#""selector_hints":[{"type":"json","indexable_fields":["b"],"unindexable_fields":["c"]}],"#,
        r#""mrargs":{"include_docs":true,"view_type":"map","reduce":false,"partition":null,"#,
        r#""start_key":[1,"<MAX>"],"end_key":[1],"direction":"rev","stable":false,"update":true,"#,
        r#""conflicts":"undefined"},"covering":false}"#,
    );
    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
}

#[test]
fn each_index_that_is_not_used_has_a_reason_and_a_rank() {
    let indexes = [
        index("a", r#"["a"]"#, "{}"),
        index("a2", r#"["a"]"#, "{}"),
        index("ab", r#"["a","b"]"#, "{}"),
        index("c", r#"["c"]"#, "{}"),
        index("p", r#"["a"]"#, r#"{"q":1}"#),
    ];
    let row = |name: &str, usable, reason: &str, rank| (name.to_owned(), usable, reason.to_owned(), rank);
    assert_eq!(
        candidates_of(r#"{"selector":{"a":1}}"#, &indexes),
        [
            row("p", false, "is_partial", 4),
            row("c", false, "field_mismatch", 3),
            row("ab", false, "field_mismatch", 3),
            row("a2", true, "alphabetically_comes_after", 1),
            row("_all_docs", true, "unfavored_type", 2),
        ]
    );
    assert_eq!(
        candidates_of(r#"{"selector":{"a":1,"b":{"$ne":2},"d":{"$gt":0}}}"#, &indexes)[2..],
        [
            row("ab", true, "less_overlap", 2),
            row("a2", true, "less_overlap", 1),
            row("_all_docs", true, "unfavored_type", 3)
        ]
    );
    assert_eq!(
        candidates_of(r#"{"selector":{"a":1,"b":{"$ne":2}}}"#, &indexes)[2],
        row("ab", true, "too_many_fields", 2)
    );
    assert_eq!(
        candidates_of(r#"{"selector":{"a":1},"use_index":"a2"}"#, &indexes)[2..],
        [
            row("ab", false, "field_mismatch", 2),
            row("a", true, "excluded_by_user", 1),
            row("_all_docs", true, "excluded_by_user", 1)
        ]
    );
    assert_eq!(
        candidates_of(r#"{"selector":{"a":1,"b":1},"sort":["b","a"]}"#, &indexes)[1..],
        [
            row("c", false, "field_mismatch", 1),
            row("ab", false, "sort_order_mismatch", 1),
            row("a2", false, "sort_order_mismatch", 1),
            row("a", false, "sort_order_mismatch", 1),
            row("_all_docs", false, "field_mismatch", 1),
        ]
    );
    assert_eq!(candidates_of(r#"{"selector":{"_id":"x"},"sort":["c"]}"#, &[])[0].2, "sort_order_mismatch");
    assert!(candidates_of(r#"{"selector":{"a":1}}"#, &[]).is_empty());
}

#[test]
fn a_query_that_no_index_serves_is_explained_too() {
    let explained = explained(r#"{"selector":{"age":23},"sort":["company"]}"#, &[]);
    assert!(explained["index"].is_null());
    assert!(explained.get("mrargs").is_none() && explained.get("covering").is_none());
}

#[test]
fn keys_are_shown_as_couchdb_asks_its_views_for_them() {
    let indexes = [index("ab", r#"["a","b"]"#, "{}")];
    let keys = |selector: &str, more: &str| {
        let explained = explained(&format!("{{\"selector\":{selector}{more}}}"), &indexes);
        (explained["mrargs"]["start_key"].to_string(), explained["mrargs"]["end_key"].to_string())
    };
    let told = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(keys(r#"{"a":1,"b":2}"#, ""), told("[1,2]", r#"[1,2,"<MAX>"]"#));
    assert_eq!(keys(r#"{"a":{"$gt":0},"b":2}"#, ""), told("[0,2]", r#"["<MAX>"]"#));
    assert_eq!(keys(r#"{"a":{"$lt":5},"b":{"$ne":2}}"#, ""), told("[]", r#"[5,"<MAX>"]"#));
    assert_eq!(
        keys(r#"{"a":"E","b":{"$beginsWith":"A"}}"#, ""),
        told(r#"["E","A"]"#, "[\"E\",\"A\u{ffff}\",\"<MAX>\"]")
    );
    let down = r#","sort":[{"a":"desc"},{"b":"desc"}]"#;
    assert_eq!(keys(r#"{"a":1,"b":2}"#, down), told(r#"[1,2,"<MAX>"]"#, "[1,2]"));
    assert_eq!(keys(r#"{"a":{"$gt":1,"$lt":1},"b":2}"#, ""), told("null", "null"));
    assert_eq!(keys("{}", ""), told("null", "\"<MAX>\""));
    assert_eq!(keys(r#"{"_id":"x"}"#, ""), told("\"x\"", "\"x\""));
    assert_eq!(keys(r#"{"_id":{"$gt":"a"}}"#, ""), told("\"a\"", "\"<MAX>\""));
    assert_eq!(keys(r#"{"_id":{"$lt":"x"}}"#, ""), told("\"\"", "\"x\""));
    for nothing in [r#"{"$or":[]}"#, r#"{"$and":[]}"#, r#"{"$nor":[]}"#, r#"{"$not":{"$or":[]}}"#] {
        assert_eq!(keys(nothing, ""), told("null", "null"), "{nothing}");
    }
}

#[test]
fn options_change_the_arguments() {
    let told =
        |more: &str| explained(&format!("{{\"selector\":{{\"_id\":\"x\"}}{more}}}"), &[])["mrargs"].clone();
    let plain = told("");
    assert_eq!(
        (&plain["stable"], &plain["update"], &plain["direction"]),
        (&false.into(), &true.into(), &"fwd".into())
    );
    let stale = told(r#","stale":"ok""#);
    assert_eq!((&stale["stable"], &stale["update"]), (&true.into(), &false.into()));
    assert_eq!(told(r#","r":2"#)["include_docs"], false);
    assert_eq!(told(r#","conflicts":true"#)["conflicts"], true);
    assert_eq!(told(r#","stable":true,"update":false"#)["update"], false);
}
