//! Every encoding of every type, as written by some version of Redis or Valkey.

use super::*;

/// A ziplist of elements that are encoded except for the length before them.
fn ziplist(elements: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut previous_len, mut last) = (Vec::new(), 0, 10);
    for element in elements {
        last = 10 + body.len();
        body.push(previous_len);
        body.extend_from_slice(element);
        previous_len = element.len() as u8 + 1;
    }
    let mut out = (body.len() as u32 + 11).to_le_bytes().to_vec();
    out.extend_from_slice(&(last as u32).to_le_bytes());
    out.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    out.extend(body);
    out.push(0xff);
    out
}

#[test]
fn every_encoding_is_understood() {
    let hash = |fields: &[(&str, &str)]| {
        Value::Hash(fields.iter().map(|(name, value)| field(name, value, None)).collect())
    };
    let expiring = || Value::Hash(vec![field("a", "1", Some(1005)), field("b", "2", None)]);
    let first_ms = 1000u64.to_le_bytes();
    let valkey = [&b"\x02\x01a\x011"[..], &1005u64.to_le_bytes(), b"\x01b\x012", &[0xff; 8]].concat();
    let metadata = [&first_ms[..], b"\x02\x06\x01a\x011\x00\x01b\x012"].concat();
    let integers = ziplist(&[
        b"\xfe\xff",
        b"\xc0\xe8\x03",
        b"\xf0\x00\x00\x80",
        b"\xd0\xff\xff\xff\x7f",
        b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xfd",
        b"\x40\x01x",
        b"\x80\x00\x00\x00\x01y",
    ]);
    let integers_in_listpack = listpack(&[
        b"\x7f",
        b"\xdf\xff",
        b"\xf1\x00\x80",
        b"\xf2\x00\x00\x80",
        b"\xf3\x00\x00\x00\x80",
        b"\xf4\x00\x00\x00\x00\x00\x00\x00\x80",
        b"\xe0\x01x",
        b"\xf0\x01\x00\x00\x00y",
    ]);
    let quicklist = [&[2][..], &string(&ziplist(&[b"\x01a"])), &string(&ziplist(&[b"\x01b"]))].concat();
    let quicklist_2 = [&b"\x02\x01\x05plain\x02"[..], &string(&listpack(&[b"\x81a"]))].concat();
    let pairs = listpack(&[b"\x81a", b"\x82-1", b"\x81b", b"\x05"]);
    let ex = listpack(&[b"\x81a", b"\x01", b"\xf1\xed\x03", b"\x81b", b"\x02", b"\x00"]);
    let small = |width: u8, bytes: &[u8]| string(&[&[width, 0, 0, 0, 2, 0, 0, 0], bytes].concat());
    let cases: Vec<(&str, u8, Vec<u8>, Value)> = vec![
        ("REDIS0001", types::STRING, b"\x05hello".to_vec(), Value::String(text("hello"))),
        ("REDIS0001", types::STRING, b"\xc0\x80".to_vec(), Value::String(text("-128"))),
        ("REDIS0001", types::STRING, b"\xc1\x00\x80".to_vec(), Value::String(text("-32768"))),
        ("REDIS0001", types::STRING, b"\xc2\xff\xff\xff\x7f".to_vec(), Value::String(text("2147483647"))),
        ("REDIS0001", types::STRING, b"\xc3\x04\x06\x00a\x60\x00".to_vec(), Value::String(text("aaaaaa"))),
        ("REDIS0001", types::STRING, b"\x80\x00\x00\x00\x01x".to_vec(), Value::String(text("x"))),
        ("REDIS0009", types::STRING, b"\x81\0\0\0\0\0\0\0\x01x".to_vec(), Value::String(text("x"))),
        ("REDIS0001", types::LIST, b"\x02\x01a\xc0\x07".to_vec(), Value::List(texts(&["a", "7"]))),
        ("REDIS0001", types::SET, b"\x01\x01a".to_vec(), Value::Set(texts(&["a"]))),
        (
            "REDIS0001",
            types::ZSET,
            b"\x03\x01a\x031.5\x01b\xfe\x01c\xff".to_vec(),
            Value::Zset(vec![(1.5, text("a")), (f64::INFINITY, text("b")), (f64::NEG_INFINITY, text("c"))]),
        ),
        ("REDIS0001", types::HASH, b"\x01\x01a\x01b".to_vec(), hash(&[("a", "b")])),
        (
            "REDIS0003",
            types::HASH_ZIPMAP,
            string(b"\x02\x01a\x01\x00b\x01c\x01\x02d??\xff"),
            hash(&[("a", "b"), ("c", "d")]),
        ),
        (
            "REDIS0004",
            types::LIST_ZIPLIST,
            string(&integers),
            Value::List(texts(&[
                "-1",
                "1000",
                "-8388608",
                "2147483647",
                "9223372036854775807",
                "12",
                "x",
                "y",
            ])),
        ),
        ("REDIS0004", types::SET_INTSET, small(2, b"\xff\xff\x07\x00"), Value::Set(texts(&["-1", "7"]))),
        (
            "REDIS0004",
            types::SET_INTSET,
            small(4, b"\xff\xff\xff\xff\x07\0\0\0"),
            Value::Set(texts(&["-1", "7"])),
        ),
        (
            "REDIS0004",
            types::SET_INTSET,
            small(8, b"\0\0\0\0\0\0\0\x80\x07\0\0\0\0\0\0\0"),
            Value::Set(texts(&["-9223372036854775808", "7"])),
        ),
        (
            "REDIS0004",
            types::ZSET_ZIPLIST,
            string(&ziplist(&[b"\x01a", b"\x032.5", b"\x01b", b"\xfe\xff"])),
            Value::Zset(vec![(2.5, text("a")), (-1.0, text("b"))]),
        ),
        ("REDIS0004", types::HASH_ZIPLIST, string(&ziplist(&[b"\x01a", b"\x01b"])), hash(&[("a", "b")])),
        ("REDIS0007", types::LIST_QUICKLIST, quicklist, Value::List(texts(&["a", "b"]))),
        (
            "REDIS0008",
            types::ZSET_2,
            [&b"\x01\x01a"[..], &1.25f64.to_le_bytes()].concat(),
            Value::Zset(vec![(1.25, text("a"))]),
        ),
        ("REDIS0010", types::HASH_LISTPACK, string(&pairs), hash(&[("a", "-1"), ("b", "5")])),
        (
            "REDIS0010",
            types::ZSET_LISTPACK,
            string(&pairs),
            Value::Zset(vec![(-1.0, text("a")), (5.0, text("b"))]),
        ),
        ("REDIS0010", types::LIST_QUICKLIST_2, quicklist_2, Value::List(texts(&["plain", "a"]))),
        (
            "REDIS0011",
            types::SET_LISTPACK,
            string(&integers_in_listpack),
            Value::Set(texts(&[
                "127",
                "-1",
                "-32768",
                "-8388608",
                "-2147483648",
                "-9223372036854775808",
                "x",
                "y",
            ])),
        ),
        ("REDIS0012", types::HASH_METADATA, metadata, expiring()),
        (
            "REDIS0012",
            types::HASH_METADATA_PRE_GA,
            b"\x02\x43\xed\x01a\x011\x00\x01b\x012".to_vec(),
            expiring(),
        ),
        ("REDIS0012", types::HASH_LISTPACK_EX, [&first_ms[..], &string(&ex)].concat(), expiring()),
        ("REDIS0012", types::HASH_LISTPACK_EX_PRE_GA, string(&ex), expiring()),
        ("VALKEY080", types::VALKEY_HASH_2, valkey, expiring()),
    ];
    for (magic, value_type, bytes, expected) in cases {
        let file = file(magic, &[&[value_type], b"\x01k", &bytes]);
        let kept = read(&file).unwrap_or_else(|error| panic!("type {value_type}: {error}"));
        assert_eq!(kept.entries, [(0, text("k"), None, expected)], "type {value_type}");
        // A truncated file is an error, even if it is cut within the checksum.
        for cut in 0..file.len() {
            assert!(read(&file[..cut]).is_err(), "type {value_type} cut at {cut}");
        }
    }
}
