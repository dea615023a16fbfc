//! Every kind of value in both versions, as bytes, and decoded again.

use proptest::prelude::*;

use super::*;
use crate::decode::{DecodeLimits, Value, decode};

fn written(protocol: Protocol, write: impl FnOnce(&mut ReplyWriter<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut ReplyWriter::new(&mut out, protocol));
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check(write: impl Fn(&mut ReplyWriter<'_>), resp2: &str, resp3: &str) {
    assert_eq!(written(Protocol::Resp2, &write), resp2);
    assert_eq!(written(Protocol::Resp3, &write), resp3);
}

#[test]
fn replies_known_to_both_versions_are_equal() {
    let same = |write: &dyn Fn(&mut ReplyWriter<'_>), text: &str| check(write, text, text);
    same(&|reply| reply.ok(), "+OK\r\n");
    same(&|reply| reply.simple("PONG"), "+PONG\r\n");
    same(&|reply| reply.integer(7), ":7\r\n");
    same(&|reply| reply.integer(i64::MIN), ":-9223372036854775808\r\n");
    same(&|reply| reply.count(12_345), ":12345\r\n");
    same(&|reply| reply.bulk(b""), "$0\r\n\r\n");
    same(&|reply| reply.bulk(b"0123456789"), "$10\r\n0123456789\r\n");
    same(&|reply| reply.bulk_integer(-42), "$3\r\n-42\r\n");
    same(&|reply| reply.bulk_display(format_args!("{}-{}", 15, 0)), "$4\r\n15-0\r\n");
    same(&|reply| reply.bulk_double(0.5), "$3\r\n0.5\r\n");
    same(&|reply| reply.bulk_or_null(Some(b"v")), "$1\r\nv\r\n");
    same(&|reply| reply.array(0), "*0\r\n");
    same(&|reply| reply.array(1000), "*1000\r\n");
}

#[test]
fn replies_unknown_to_resp2_take_the_form_of_redis() {
    check(|reply| reply.null(), "$-1\r\n", "_\r\n");
    check(|reply| reply.bulk_or_null(None), "$-1\r\n", "_\r\n");
    check(|reply| reply.null_array(), "*-1\r\n", "_\r\n");
    check(|reply| reply.map(6), "*12\r\n", "%6\r\n");
    check(|reply| reply.set(3), "*3\r\n", "~3\r\n");
    check(|reply| reply.push(3), "*3\r\n", ">3\r\n");
    check(|reply| reply.double(3.0), "$1\r\n3\r\n", ",3\r\n");
    check(|reply| reply.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    check(|reply| reply.boolean(true), ":1\r\n", "#t\r\n");
    check(|reply| reply.boolean(false), ":0\r\n", "#f\r\n");
    check(
        |reply| reply.big_number("123456789012345678901"),
        "$21\r\n123456789012345678901\r\n",
        "(123456789012345678901\r\n",
    );
    check(|reply| reply.verbatim(*b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
    let with_attribute = |reply: &mut ReplyWriter<'_>| {
        if reply.attribute(1) {
            reply.simple("ttl");
            reply.integer(5);
        }
        reply.ok();
    };
    check(with_attribute, "+OK\r\n", "|1\r\n+ttl\r\n:5\r\n+OK\r\n");
}

#[test]
fn a_line_end_within_a_line_becomes_spaces() {
    let both = |write: &dyn Fn(&mut ReplyWriter<'_>), text: &str| check(write, text, text);
    both(&|reply| reply.error("ERR a\r\nb"), "-ERR a  b\r\n");
    both(&|reply| reply.error(b"ERR \n"), "-ERR  \r\n");
    both(&|reply| reply.simple("a\nb"), "+a b\r\n");
}

#[test]
fn a_bulk_string_can_come_in_parts() {
    let parts = |reply: &mut ReplyWriter<'_>| {
        reply.bulk_header(5);
        reply.raw(b"ab");
        reply.raw(b"cde");
        reply.bulk_end();
    };
    check(parts, "$5\r\nabcde\r\n", "$5\r\nabcde\r\n");
}

#[test]
fn a_header_can_come_last() {
    let nested = |reply: &mut ReplyWriter<'_>| {
        reply.ok();
        let outer = reply.begin_deferred();
        for name in ["a", "b"] {
            reply.simple(name);
            let inner = reply.begin_deferred();
            (0..11).for_each(|value| reply.integer(value));
            reply.end_deferred(inner, Aggregate::Set, 11);
        }
        reply.end_deferred(outer, Aggregate::Map, 2);
    };
    let integers: String = (0..11).map(|value| format!(":{value}\r\n")).collect();
    check(
        nested,
        &format!("+OK\r\n*4\r\n+a\r\n*11\r\n{integers}+b\r\n*11\r\n{integers}"),
        &format!("+OK\r\n%2\r\n+a\r\n~11\r\n{integers}+b\r\n~11\r\n{integers}"),
    );
}

#[test]
fn a_reply_half_written_can_be_taken_back() {
    let failing = |reply: &mut ReplyWriter<'_>| {
        reply.ok();
        let begin = reply.position();
        reply.array(2);
        reply.bulk(b"first");
        reply.truncate(begin);
        reply.error("OOM");
    };
    check(failing, "+OK\r\n-OOM\r\n", "+OK\r\n-OOM\r\n");
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let scalar = prop_oneof![
        "[ -~]{0,20}".prop_map(|text| Value::Simple(text.into_bytes())),
        "[ -~]{0,20}".prop_map(|text| Value::Error(text.into_bytes())),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        (proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::INFINITE)
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,30}".prop_map(|text| Value::BigNumber(text.into_bytes())),
        bytes().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        let values = || prop::collection::vec(inner.clone(), 0..5);
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            values().prop_map(Value::Array),
            values().prop_map(Value::Set),
            values().prop_map(Value::Push),
            pairs().prop_map(Value::Map),
            (pairs(), inner.clone())
                .prop_map(|(attributes, value)| Value::Attributed { attributes, value: Box::new(value) }),
        ]
    })
}

fn write(value: &Value, reply: &mut ReplyWriter<'_>) {
    let write_all =
        |values: &[Value], reply: &mut ReplyWriter<'_>| values.iter().for_each(|v| write(v, reply));
    let write_pairs = |pairs: &[(Value, Value)], reply: &mut ReplyWriter<'_>| {
        for (key, value) in pairs {
            write(key, reply);
            write(value, reply);
        }
    };
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    match value {
        Value::Simple(bytes) => reply.simple(&text(bytes)),
        Value::Error(bytes) => reply.error(bytes),
        Value::Integer(integer) => reply.integer(*integer),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Null => reply.null(),
        Value::Double(double) => reply.double(*double),
        Value::Boolean(boolean) => reply.boolean(*boolean),
        Value::BigNumber(digits) => reply.big_number(&text(digits)),
        Value::Verbatim { format, text } => reply.verbatim(*format, text),
        Value::Array(values) => {
            let deferred = reply.begin_deferred();
            write_all(values, reply);
            reply.end_deferred(deferred, Aggregate::Array, values.len());
        }
        Value::Set(values) => {
            reply.set(values.len());
            write_all(values, reply);
        }
        Value::Push(values) => {
            reply.push(values.len());
            write_all(values, reply);
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            write_pairs(pairs, reply);
        }
        Value::Attributed { attributes, value } => {
            assert!(reply.attribute(attributes.len()));
            write_pairs(attributes, reply);
            write(value, reply);
        }
    }
}

proptest! {
    #[test]
    fn every_value_reads_back_once_all_of_it_is_there(value in value()) {
        let mut out = Vec::new();
        write(&value, &mut ReplyWriter::new(&mut out, Protocol::Resp3));
        for end in 0..out.len() {
            prop_assert_eq!(decode(&out[..end], &DecodeLimits::DEFAULT), Ok(None));
        }
        let size = out.len();
        out.extend_from_slice(b"+next\r\n");
        prop_assert_eq!(decode(&out, &DecodeLimits::DEFAULT), Ok(Some((value, size))));
    }

    #[test]
    fn resp2_replies_read_back_whole(value in value().prop_filter("no attributes", |v| !format!("{v:?}").contains("Attributed"))) {
        let mut out = Vec::new();
        write(&value, &mut ReplyWriter::new(&mut out, Protocol::Resp2));
        let (_, size) = decode(&out, &DecodeLimits::DEFAULT).unwrap().unwrap();
        prop_assert_eq!(size, out.len());
        prop_assert!(!matches!(out[0], b'%' | b'~' | b'>' | b'_' | b',' | b'#' | b'(' | b'=' | b'|'));
    }
}
