use super::*;

fn parse(text: &str) -> Result<IndexDefinition, QueryError> {
    IndexDefinition::parse(&Value::parse(text).expect(text))
}

fn listed(definition: &IndexDefinition) -> String {
    let mut out = Vec::new();
    definition.render(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn names_are_made_from_the_definition() {
    let one = parse(r#"{"index":{"fields":["a","b.c"]}}"#).expect("an index");
    assert_eq!(one.design, format!("_design/{}", one.name));
    assert_eq!(one.name.len(), 32);
    assert_eq!(
        parse(r#"{"index":{"fields":[{"a":"asc"},{"b.c":"asc"}]},"type":"json","w":2}"#)
            .expect("an index")
            .name,
        one.name
    );
    let filtered =
        parse(r#"{"index":{"fields":["a","b.c"],"partial_filter_selector":{"x":1}}}"#).expect("an index");
    assert_ne!(filtered.name, one.name);
    let named = parse(r#"{"index":{"fields":["a"]},"ddoc":"d","name":"n"}"#).expect("an index");
    assert_eq!((&*named.design, &*named.name), ("_design/d", "n"));
    assert_eq!(
        parse(r#"{"index":{"fields":["a"]},"ddoc":"_design/d"}"#).expect("an index").design,
        "_design/d"
    );
    assert_eq!(
        listed(&filtered.clone()),
        format!(
            r#"{{"ddoc":"{}","name":"{}","type":"json","partitioned":false,"def":{{"fields":[{{"a":"asc"}},{{"b.c":"asc"}}],"partial_filter_selector":{{"x":1}}}}}}"#,
            filtered.design, filtered.name
        )
    );
}

#[test]
fn each_error_has_its_text() {
    let told = |text: &str| {
        let error = parse(text).expect_err(text);
        (error.row(), error.to_string())
    };
    let invalid = (400, "invalid_index");
    assert_eq!(told("{}"), ((400, "missing_required_key"), "Missing required key: index".into()));
    assert_eq!(
        told(r#"{"index":{}}"#),
        ((400, "missing_required_key"), "Missing required key: fields".into())
    );
    assert_eq!(told(r#"{"index":[]}"#), (invalid, "JSON indexes must be an object, not: []".into()));
    assert_eq!(told(r#"{"index":{"fields":[]}}"#), (invalid, "Index is missing its definition.".into()));
    assert_eq!(
        told(r#"{"index":{"fields":["a"]},"type":"geo"}"#),
        (invalid, "Invalid type for index: geo".into())
    );
    let text = ((503, "required index service unavailable"), "text".to_owned());
    assert_eq!(told(r#"{"index":{"fields":["a"]},"type":"text"}"#), text);
    assert_eq!(
        told(r#"{"index":{"fields":["a"]},"name":1}"#),
        ((400, "invalid_string"), "Invalid string: 1".into())
    );
    assert_eq!(told(r#"{"index":{"fields":["a"]},"foo":1}"#).0, (400, "invalid_key"));
    assert_eq!(told(r#"{"index":{"fields":["a"],"foo":1}}"#).0, (400, "invalid_key"));
    assert_eq!(told(r#"{"index":{"fields":["a"],"selector":{"a":1}}}"#).0, (400, "invalid_key"));
    let empty = ((400, "invalid_empty_string"), "Index name or ddoc cannot be empty string".to_owned());
    assert_eq!(told(r#"{"index":{"fields":["a"]},"name":""}"#), empty);
    assert_eq!(told(r#"{"index":{"fields":["a"]},"ddoc":""}"#), empty);
    for w in ["0", "-1", "1.5", "null", "true", "\"2\"", "[2]"] {
        let reason = format!("{w} is not an integer greater than zero");
        let index = format!("{{\"index\":{{\"fields\":[\"a\"]}},\"w\":{w}}}");
        assert_eq!(told(&index), ((400, "invalid_pos_integer"), reason));
    }
    assert_eq!(told(r#"{"index":{"fields":["a"]},"partitioned":true}"#).0, (400, "query_parse_error"));
    assert_eq!(told(r#"{"index":{"fields":["a"]},"partitioned":1}"#).0, (400, "invalid_boolean"));
    assert!(parse(r#"{"index":{"fields":["a"]},"partitioned":false,"w":3}"#).is_ok());
    assert_eq!(told(r#"{"index":{"fields":"a"}}"#).0, (400, "invalid_sort_json"));
    let filter = r#"{"index":{"fields":["a"],"partial_filter_selector":{"a":{"$x":1}}}}"#;
    assert_eq!(told(filter).0, (400, "invalid_operator"));
}

#[test]
fn design_documents_hold_definitions() {
    let index = |name: &str, more: &str| {
        parse(&format!(r#"{{"index":{{"fields":["a"]{more}}},"ddoc":"d","name":"{name}"}}"#))
            .expect("an index")
    };
    let one = index("one", "");
    let body = one.put_into(None).expect("a new document").expect("a change");
    let text = String::from_utf8(body).expect("UTF-8");
    assert_eq!(
        text,
        r#"{"language":"query","views":{"one":{"map":{"fields":{"a":"asc"},"partial_filter_selector":{}},"reduce":"_count","options":{"def":{"fields":["a"]}}}}}"#
    );
    let body = Value::parse(&text).expect("JSON");
    assert_eq!(one.put_into(Some(&body)), Ok(None), "it is there already");
    let two = index("two", r#","partial_filter_selector":{"b":{"$gt":1}}"#);
    let text =
        String::from_utf8(two.put_into(Some(&body)).expect("a document").expect("a change")).expect("UTF-8");
    let both = Value::parse(&text).expect("JSON");
    let read = IndexDefinition::all_of("_design/d", &both);
    assert_eq!(read.iter().map(listed).collect::<Vec<_>>(), [listed(&one), listed(&two)]);
    assert_eq!((read[0].digest(), read[1].digest()), (one.digest(), two.digest()));

    let Ok(WithoutIndex::Body(left)) = IndexDefinition::remove_from(&both, "two") else {
        panic!("one is left")
    };
    assert_eq!(Value::parse(std::str::from_utf8(&left).expect("UTF-8")).expect("JSON"), body);
    assert_eq!(IndexDefinition::remove_from(&body, "one"), Ok(WithoutIndex::Nothing));
    assert_eq!(IndexDefinition::remove_from(&body, "two"), Err(QueryError::IndexNotFound("two".into())));
}

#[test]
fn other_design_documents_are_left_alone() {
    let script =
        Value::parse(r#"{"language":"javascript","views":{"one":{"map":"function(){}"}}}"#).expect("JSON");
    assert!(IndexDefinition::all_of("_design/d", &script).is_empty());
    let index = parse(r#"{"index":{"fields":["a"]},"ddoc":"d"}"#).expect("an index");
    assert_eq!(index.put_into(Some(&script)), Err(QueryError::InvalidLanguage("\"javascript\"".into())));
    assert_eq!(index.put_into(Some(&object([]))), Err(QueryError::InvalidLanguage("null".into())));
    let odd = r#"{"language":"query","views":{"a":1,"b":{"map":1},"c":{"map":{"fields":{"x":"desc"}}},"d":{"map":{"fields":{}}}}}"#;
    let read = IndexDefinition::all_of("_design/d", &Value::parse(odd).expect("JSON"));
    assert_eq!(
        read.iter().map(|index| (&*index.name, index.columns.descending)).collect::<Vec<_>>(),
        [("c", true)]
    );
}

#[test]
fn the_filter_has_another_key_in_old_design_documents() {
    let read = |map: &str| {
        let body = format!(r#"{{"language":"query","views":{{"v":{{"map":{map},"reduce":"_count"}}}}}}"#);
        let [index] = IndexDefinition::all_of("_design/d", &Value::parse(&body).expect("JSON"))
            .try_into()
            .expect("one index");
        index
    };
    let old = read(r#"{"fields":{"a":"asc"},"selector":{"a":{"$gte":"F"}}}"#);
    let new = read(r#"{"fields":{"a":"asc"},"partial_filter_selector":{"a":{"$gte":"F"}}}"#);
    assert_eq!(old.digest(), new.digest(), "the same contents");
    assert!(listed(&old).ends_with(r#""def":{"fields":[{"a":"asc"}],"selector":{"a":{"$gte":"F"}}}}"#));
    let has =
        |index: &IndexDefinition, text: &str| index.values_of(&Value::parse(text).expect("JSON")).is_some();
    assert!(has(&old, r#"{"a":"G"}"#) && !has(&old, r#"{"a":"E"}"#));
    let both = read(r#"{"fields":{"a":"asc"},"selector":{"a":1},"partial_filter_selector":{}}"#);
    assert!(both.filter.is_none(), "the new key counts");
    assert!(read(r#"{"fields":{"a":"asc"},"selector":{},"other":1}"#).filter.is_none());
}

#[test]
fn documents_with_all_columns_are_in_the_index() {
    let index = parse(r#"{"index":{"fields":["a","b.c"],"partial_filter_selector":{"x":{"$exists":true}}}}"#)
        .expect("an index");
    let values = |text: &str| {
        let document = Value::parse(text).expect("JSON");
        index.values_of(&document).map(|values| values.into_iter().map(Value::to_json).collect::<Vec<_>>())
    };
    assert_eq!(values(r#"{"a":null,"b":{"c":[1]},"x":0}"#), Some(vec!["null".into(), "[1]".into()]));
    assert_eq!(values(r#"{"a":null,"b":{"c":[1]}}"#), None);
    assert_eq!(values(r#"{"a":1,"b":1,"x":0}"#), None);
}
