//! Arbitrary bytes as a selector and a document: no panic, at most linear time, and double negation does not
//! change the result.

#![no_main]

use documents::mango::{Fields, Selector, Value, put_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (selector, document) = text.split_once('\n').unwrap_or((text, "{}"));
    let (Ok(selector), Ok(document)) = (Value::parse(selector), Value::parse(document)) else { return };
    assert_eq!(Value::parse(&document.to_json()).expect("JSON"), document);
    let mut key = Vec::new();
    put_key(&mut key, &document);
    let _ = Fields::parse(&selector).map(|fields| fields.of(document.clone()));

    let Ok(read) = Selector::parse(&selector) else { return };
    let negated = |selector: Value<'static>| Value::Object(vec![("$not".into(), selector)]);
    let twice = negated(negated(selector.into_owned()));
    assert_eq!(Selector::parse(&twice).expect("a selector").matches(&document), read.matches(&document));
});
