use super::*;
use proptest::prelude::*;

fn minified(text: &str) -> Result<String, JsonError> {
    let mut reader = Reader::of(text);
    let mut out = Vec::new();
    reader.copy(&mut out)?;
    reader.end()?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn white_space_goes_and_the_rest_stays() {
    let given = " { \"b\" : [ 1.50 , -0 ,\t1E+9, { } , [ ] ] ,\r\n \"a b\" : \" \\u00e9 \" , \"b\":null } ";
    assert_eq!(minified(given).as_deref(), Ok(r#"{"b":[1.50,-0,1E+9,{},[]],"a b":" \u00e9 ","b":null}"#));
    assert_eq!(minified("true").as_deref(), Ok("true"));
}

#[test]
fn invalid_json_is_refused() {
    let texts = [
        "",
        " ",
        "{",
        "[",
        "]",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "[1 2]",
        "nul",
        "nulls",
        "True",
        "01",
        "1.",
        ".5",
        "-",
        "1e",
        "+1",
        "0x1",
        "NaN",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"\\ud800\\n\"",
        "\"a\nb\"",
        "\"\u{1}\"",
        "[1}",
        "1 1",
        "{\"a\" 1}",
    ];
    for text in texts {
        assert_eq!(minified(text), Err(JsonError::Malformed), "{text:?}");
    }
    assert_eq!(Reader::new(b"\"\xff\"").map(drop), Err(JsonError::Malformed));
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(minified(&nested(JSON_DEPTH_MAX as usize)).is_ok());
    assert_eq!(minified(&nested(JSON_DEPTH_MAX as usize + 1)), Err(JsonError::TooDeep));
    assert_eq!(minified(&"{\"a\":".repeat(1_000_000)), Err(JsonError::TooDeep));
    // Adjacent arrays do not add to the depth.
    assert!(minified(&format!("[{}[]]", "[],".repeat(1000))).is_ok());
}

#[test]
fn numbers_that_no_double_holds_are_refused() {
    let long = "9".repeat(309);
    for text in
        ["1e309", "-1e309", "1E+400", "[1.5,2e99999]", "{\"a\":-0.1e310}", &long, &format!("-{long}.5")]
    {
        assert_eq!(minified(text), Err(JsonError::Malformed), "{text}");
        let mut stored = Reader::of_stored(text);
        assert_eq!((stored.raw(), stored.end()), (Ok(text), Ok(())), "it may have been stored");
    }
    let most = "9".repeat(308);
    for text in
        ["1e308", "-1.7976931348623157e308", "1e-400", "0e999", "123456789012345678901234567890", &most]
    {
        assert_eq!(minified(text).as_deref(), Ok(text));
    }
}

#[test]
fn nesting_counts_from_where_a_value_begins() {
    let deep = format!("{}{}", "[".repeat(JSON_DEPTH_MAX as usize), "]".repeat(JSON_DEPTH_MAX as usize));
    let text = format!("[[{deep}],1]");
    assert_eq!(minified(&text), Err(JsonError::TooDeep));
    let mut reader = Reader::of(&text);
    let mut seen = 0;
    let read = reader.array::<JsonError>(|reader| match reader.peek()? {
        Kind::Array => reader.array(|reader| {
            seen += reader.with_depth_of_its_own(|reader| reader.raw())?.len();
            Ok(())
        }),
        _ => reader.raw().map(drop),
    });
    assert_eq!((read, reader.end(), seen), (Ok(()), Ok(()), deep.len()));
}

#[test]
fn a_value_that_breaks_a_rule_is_skipped_as_a_whole() {
    let deep = format!("{}{}", "[{\"a\":".repeat(100_000), "}]".repeat(100_000).replacen('}', "1}", 1));
    for value in [
        "1e999",
        r#""\ud800""#,
        r#"{"\udc00":[1e999,{}, [] ,{"a" : [ ]}],"b":"x"}"#,
        "[ ]",
        "{ }",
        "{\"_id\":\"x\" , \"n\":[1,2e400]}",
        &deep,
    ] {
        let text = format!(" {value} , 7");
        let mut reader = Reader::of(&text);
        assert_eq!(reader.raw_of_any(), Ok(value));
        reader.space();
        assert_eq!((reader.take(b','), reader.raw(), reader.end()), (Ok(()), Ok("7"), Ok(())));
    }
    for text in
        ["", "{", "[1", "{\"a\"}", "[1,]", "{\"a\":1,}", "[}", "{]", "[1 2]", "\"\\ud8\"", "01]", "nul", "]"]
    {
        let mut reader = Reader::of(text);
        assert_eq!(reader.raw_of_any().and_then(|_| reader.end()), Err(JsonError::Malformed), "{text}");
    }
    let mut members = Vec::new();
    let object = r#" { "_id" : "\ud800" , "n":[1e999], "":{} } "#;
    Reader::of(object).raw_members(|key, value| members.push((key, value))).expect("an object");
    assert_eq!(members, [("\"_id\"", "\"\\ud800\""), ("\"n\"", "[1e999]"), ("\"\"", "{}")]);
}

#[test]
fn strings_are_read_as_they_mean() {
    let read = |text: &'static str| Reader::of(text).string();
    assert_eq!(read(r#""plain""#), Ok(Cow::Borrowed("plain")));
    assert_eq!(
        read(r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00""#).as_deref(),
        Ok("\"\\/\u{8}\u{c}\n\r\tAé😀")
    );
    assert_eq!(read("1"), Err(JsonError::Malformed));
}

#[test]
fn members_are_read_one_by_one() {
    let mut reader = Reader::of(r#" { "a" : [ 1 , true ] , "\u0062" : "x" } "#);
    let mut keys = Vec::new();
    let mut raw = Vec::new();
    let read = reader.object::<JsonError>(|reader, key| {
        keys.push(key.into_owned());
        match reader.peek()? {
            Kind::Array => reader.array(|reader| {
                raw.push(reader.raw()?);
                Ok(())
            })?,
            _ => raw.push(reader.raw()?),
        }
        Ok(())
    });
    assert_eq!((read, reader.end()), (Ok(()), Ok(())));
    assert_eq!((keys, raw), (vec!["a".to_owned(), "b".to_owned()], vec!["1", "true", "\"x\""]));
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map(".*", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn output_of_another_writer_is_read(value in values()) {
        let compact = value.to_string();
        prop_assert_eq!(minified(&compact), Ok(compact.clone()));
        let pretty = serde_json::to_string_pretty(&value).expect("text");
        let copied: serde_json::Value = serde_json::from_str(&minified(&pretty).expect("JSON")).expect("JSON");
        prop_assert_eq!(copied, serde_json::from_str::<serde_json::Value>(&compact).expect("JSON"));
    }

    #[test]
    fn another_parser_accepts_the_same_texts(text in r#"[\[\]{}",:0-2.eE+\-\\u ntrl]{0,12}"#) {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        // Members that `serde_json` ignores may be numbers of any size.
        let mut stored = Reader::of_stored(&text);
        prop_assert_eq!(stored.raw().and_then(|_| stored.end()).is_ok(), theirs, "{:?}", text);
        let mut skipped = Reader::of(&text);
        prop_assert_eq!(skipped.raw_of_any().and_then(|_| skipped.end()).is_ok(), theirs, "{:?}", text);
        let is_value = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        prop_assert_eq!(minified(&text).is_ok(), is_value, "{:?}", text);
    }

    #[test]
    fn a_value_is_skipped_exactly_as_it_is_read(value in values(), cut in 0usize..200) {
        let text = value.to_string();
        let mut reader = Reader::of(&text);
        prop_assert_eq!((reader.raw_of_any(), reader.end()), (Ok(&*text), Ok(())));
        // Both parsers refuse a text that is cut off.
        if let Some(part) = text.get(..cut).filter(|part| part.len() < text.len()) {
            let (mut one, mut other) = (Reader::of(part), Reader::of(part));
            prop_assert_eq!(one.raw().is_ok(), other.raw_of_any().is_ok(), "{:?}", part);
        }
    }

    #[test]
    fn written_strings_are_read_back(text in ".*") {
        let mut out = Vec::new();
        put_string(&mut out, &text);
        prop_assert_eq!(Reader::new(&out).expect("UTF-8").string().expect("a string"), text);
    }
}
