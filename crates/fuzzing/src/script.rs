//! Arbitrary bytes to the libraries of scripts: no panic, memory in proportion to their length, and a decoded
//! value that can be encoded decodes again.

use scripting::decoders;

use crate::{Outcome, Seed};

/// Bytes to `cjson.decode`. Accepts a document.
///
/// # Panics
/// If an encoded result does not decode.
pub fn script_json(bytes: &[u8]) -> Outcome {
    Outcome::accepted_if(decoders::json(bytes))
}

/// Bytes to `cmsgpack.unpack`. Accepts whole values.
///
/// # Panics
/// If unpacked values cannot be packed and unpacked again.
pub fn script_msgpack(bytes: &[u8]) -> Outcome {
    Outcome::accepted_if(decoders::msgpack(bytes))
}

/// A format, a line feed, and bytes to `struct.unpack`: the values are packed again or refused. Accepts bytes
/// that the format fits.
pub fn script_struct(input: &[u8]) -> Outcome {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (format, bytes) = input.split_at(end);
    let fits = decoders::structs(format, bytes.strip_prefix(b"\n").unwrap_or(bytes));
    Outcome::accepted_if(fits)
}

pub(crate) fn json_seeds() -> Vec<Seed> {
    let deep = "[".repeat(900) + &"]".repeat(900);
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("object", text(r#"{"a":[1,2.5,-3e10,true,false,null],"b":{"c":"text"},"":[]}"#)),
        ("strings", text(r#"["\"\\\/\b\f\n\r\t","\u00e9\ud83d\ude00","é😀"]"#)),
        ("numbers", text("[0,-0,1e308,-1E-5,9007199254740993,0.1,123456789012345678901234567890]")),
        ("deep", text(&deep)),
        ("sparse", text(r#"{"1":1,"2":2,"1000000":3}"#)),
        ("white-space", text(" \n\t\r{ \"a\" : [ ] , \"b\" : { } }\n")),
        ("refused-open", text(r#"{"a":["#)),
        ("refused-too-deep", text(&"[".repeat(1001))),
    ]
}

pub(crate) fn msgpack_seeds() -> Vec<Seed> {
    let bytes = |bytes: &[u8]| bytes.to_vec();
    vec![
        ("map", bytes(b"\x82\xa1a\x93\x01\x02\xc0\xa1b\x81\xa1c\xcb\x3f\xf8\0\0\0\0\0\0")),
        ("integers", bytes(b"\x9a\x7f\xe0\xcc\xff\xcd\xff\xff\xce\xff\xff\xff\xff\xd0\x80\xd1\x80\0\xd2\x80\0\0\0\xcf\0\0\0\x01\0\0\0\0\xd3\xff\xff\xff\xff\xff\xff\xff\xff")),
        ("strings", bytes(b"\x94\xa3abc\xd9\x03abc\xda\0\x03abc\xdb\0\0\0\x03abc")),
        ("binaries", bytes(b"\x93\xc4\x01a\xc5\0\x01b\xc6\0\0\0\x01c")),
        ("wide-arrays-and-maps", bytes(b"\x93\xdc\0\x02\x01\x02\xdd\0\0\0\x01\x03\xdf\0\0\0\x01\xa1k\xc3")),
        ("several-values", bytes(b"\x01\xa1a\xc2\xca\x3f\x80\0\0\x90\x80")),
        ("deep", [vec![0x91; 15], vec![0x90]].concat()),
        ("refused-cut", bytes(b"\xdb\xff\xff\xff\xffabc")),
        ("refused-type", bytes(b"\xc1")),
    ]
}

pub(crate) fn struct_seeds() -> Vec<Seed> {
    let input = |format: &str, bytes: &[u8]| [format.as_bytes(), b"\n", bytes].concat();
    vec![
        (
            "integers",
            input(">bBhHlL", b"\xff\xff\xff\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfd\0\0\0\0\0\0\0\x04"),
        ),
        ("sized-integers", input("<I3i16", &[0x7f; 19])),
        ("floats", input("<fd", b"\0\0\x80\x3f\0\0\0\0\0\0\xf0\x3f")),
        ("strings", input(">sc3I1c0", b"ab\0abc\x02xy")),
        ("aligned", input(">!4I1I4x", b"\x01\0\0\0\0\0\0\x02\0")),
        ("refused-short", input(">I4", b"abc")),
        ("refused-size", input("i99999999999", b"abc")),
    ]
}
