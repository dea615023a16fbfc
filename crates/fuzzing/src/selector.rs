//! Arbitrary bytes as a selector and a document: no panic, a document is rendered as an equal one, and double
//! negation does not change the result.
//!
//! Input: the selector, and, after a line feed, the document.

use documents::mango::{Fields, Selector, Value, put_key};

use crate::{Outcome, Seed};

/// Matches a document, and renders it and its key. Accepts a selector.
///
/// # Panics
/// If double negation changes the result, or the document is rendered as another one.
pub fn selector(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let (selector, document) = text.split_once('\n').unwrap_or((text, "{}"));
    let (Ok(selector), Ok(document)) = (Value::parse(selector), Value::parse(document)) else {
        return Outcome::Refused;
    };
    assert_eq!(Value::parse(&document.to_json()).expect("JSON"), document);
    let mut key = Vec::new();
    put_key(&mut key, &document);
    let _ = Fields::parse(&selector).map(|fields| fields.of(document.clone()));

    let Ok(read) = Selector::parse(&selector) else { return Outcome::Refused };
    // Within a negation, `{}` is a value to compare with.
    if selector.as_object() == Some(&[]) {
        return Outcome::Accepted;
    }
    let negated = |selector: Value<'static>| Value::Object(vec![("$not".into(), selector)]);
    let twice = negated(negated(selector.into_owned()));
    assert_eq!(Selector::parse(&twice).expect("a selector").matches(&document), read.matches(&document));
    Outcome::Accepted
}

pub(crate) fn seeds() -> Vec<Seed> {
    let input = |selector: &str, document: &str| format!("{selector}\n{document}").into_bytes();
    let document = r#"{"a":{"b":[1,"x",null]},"n":5,"s":"text","list":[{"k":1},{"k":2}],"é":true}"#;
    vec![
        ("empty", input("{}", document)),
        ("equality", input(r#"{"n":5,"a.b":[1,"x",null]}"#, document)),
        ("ranges", input(r#"{"n":{"$gt":1,"$lte":5.0},"s":{"$gte":"a","$lt":"z"}}"#, document)),
        ("or-nor-not", input(r#"{"$or":[{"n":1},{"$nor":[{"s":"x"}]}],"$not":{"n":{"$ne":5}}}"#, document)),
        ("and-nested", input(r#"{"$and":[{"a":{"b":{"$size":3}}},{"n":{"$mod":[2,1]}}]}"#, document)),
        (
            "lists",
            input(r#"{"list":{"$elemMatch":{"k":{"$gt":1}},"$allMatch":{"k":{"$exists":true}}}}"#, document),
        ),
        ("in-nin-all", input(r#"{"n":{"$in":[1,5],"$nin":[7]},"a.b":{"$all":[1,null]}}"#, document)),
        ("types", input(r#"{"s":{"$type":"string"},"q":{"$exists":false}}"#, document)),
        ("pattern", input(r#"{"s":{"$regex":"^t.*(x|y)t$"}}"#, document)),
        ("keys", input(r#"{"a":{"$keyMapMatch":{"$eq":"b"}}}"#, document)),
        ("refused-operator", input(r#"{"n":{"$unknown":1}}"#, document)),
        ("refused-no-object", input("[1]", document)),
    ]
}
