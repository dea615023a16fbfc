mod encodings;

use std::io::{self, Read};

use proptest::prelude::*;

use super::*;
use crate::element::{Element, Kind};
use crate::opcodes;
use crate::stream::{Stream, StreamConsumer, StreamGroup, StreamHead};
use crate::testing::{value, write_value};
use crate::value::{HashField, Value};
use crate::{CRC, types};

/// Database, name, deadline, value.
type Entry = (u64, Vec<u8>, Option<u64>, Value);

/// Collects everything it visits.
#[derive(Default)]
struct Kept {
    entries: Vec<Entry>,
    libraries: Vec<Vec<u8>>,
    passed_over: Vec<String>,
    open: bool,
}

impl Visitor for Kept {
    type Error = FileError;

    fn begin(&mut self, key: &Key<'_>) -> Result<(), FileError> {
        assert!(!std::mem::replace(&mut self.open, true));
        self.entries.push((key.db, key.name.to_vec(), key.expire_at_ms, Value::empty(key.kind)));
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), FileError> {
        assert!(self.open);
        self.entries.last_mut().expect("begun").3.add(element);
        Ok(())
    }

    fn end(&mut self) -> Result<(), FileError> {
        assert!(std::mem::replace(&mut self.open, false));
        Ok(())
    }

    fn library(&mut self, source: &[u8]) -> Result<(), FileError> {
        self.libraries.push(source.to_vec());
        Ok(())
    }

    fn passed_over(&mut self, what: PassedOver) -> Result<(), FileError> {
        self.passed_over.push(match what {
            PassedOver::ModuleData => "module data".into(),
            PassedOver::AppendOnlyBase => "append-only base".into(),
        });
        Ok(())
    }
}

fn read(file: &[u8]) -> Result<Kept, FileError> {
    let mut kept = Kept::default();
    read_file(file, &mut kept)?;
    Ok(kept)
}

/// A file with a magic, a body, the end opcode and, if the version has one, the checksum.
fn file(magic: &str, body: &[&[u8]]) -> Vec<u8> {
    let mut file = magic.as_bytes().to_vec();
    body.iter().for_each(|part| file.extend_from_slice(part));
    file.push(opcodes::END);
    if !magic.starts_with("REDIS000") || magic.as_bytes()[8] >= b'5' {
        file.extend_from_slice(&CRC.checksum(&file).to_le_bytes());
    }
    file
}

fn error(file: &[u8]) -> String {
    read(file).err().expect("refused").to_string()
}

fn text(bytes: &str) -> Vec<u8> {
    bytes.as_bytes().to_vec()
}

fn texts(items: &[&str]) -> Vec<Vec<u8>> {
    items.iter().map(|item| text(item)).collect()
}

fn field(name: &str, value: &str, expire_at_ms: Option<u64>) -> HashField {
    HashField { name: text(name), value: text(value), expire_at_ms }
}

/// A string in the encoding of files, up to 63 bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(bytes.len()).expect("short")];
    out.extend_from_slice(bytes);
    out
}

/// A listpack of elements that are encoded except for the length after them.
fn listpack(elements: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for element in elements {
        body.extend_from_slice(element);
        body.push(element.len() as u8);
    }
    let mut out = (body.len() as u32 + 7).to_le_bytes().to_vec();
    out.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    out.extend(body);
    out.push(0xff);
    out
}

/// The file has what servers write: auxiliary fields, hints, databases, deadlines and access times.
#[test]
fn auxiliary_fields_hints_and_deadlines_are_read() {
    let file = file(
        "REDIS0011",
        &[
            b"\xfa\x09redis-ver\x057.2.4\xfa\x0aredis-bits\xc0\x40",
            b"\xfe\x00\xfb\x03\x02\xf4\x05\x03\x02",
            b"\xfd\x0a\x00\x00\x00\x00\x01a\x011",
            b"\xfc\xe8\x03\x00\x00\x00\x00\x00\x00\xf8\x07\x00\x01b\x012",
            b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01c\x013",
            b"\xfe\x42\x00\xf9\xff\x00\x01d\x014",
        ],
    );
    let entry =
        |db, name: &str, deadline_ms, value: &str| (db, text(name), deadline_ms, Value::String(text(value)));
    let expected = [
        entry(0, "a", Some(10_000), "1"),
        entry(0, "b", Some(1000), "2"),
        entry(0, "c", Some(0), "3"),
        entry(512, "d", None, "4"),
    ];
    assert_eq!(read(&file).unwrap().entries, expected);
}

#[test]
fn modules_are_skipped_and_reported() {
    let module =
        b"\xf7\x81\x01\x02\x03\x04\x05\x06\x07\x08\x02\x01\x01\x02\x02\x03\x03abcd\x04abcdefgh\x05\x01s\x00";
    let file = file("VALKEY080", &[b"\xf5\x03lib", b"\xf3\x03job\x01\x00\x05", module, b"\x00\x01k\x01v"]);
    let kept = read(&file).unwrap();
    assert_eq!((kept.libraries, kept.passed_over), (vec![text("lib")], vec!["module data".to_string()]));
    assert_eq!(kept.entries, [(0, text("k"), None, Value::String(text("v")))]);
    for cut in 0..file.len() {
        assert!(read(&file[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn streams_of_all_versions_are_understood() {
    let mut id = [0u8; 16];
    id[15] = 1;
    let time = [1, 0, 0, 0, 0, 0, 0, 0];
    // A node with three entries: two with the field of the node, one of them deleted, and a third with a
    // field of its own.
    let node = listpack(&[
        &[2],
        &[1],
        &[1],
        b"\x81f",
        &[0],
        &[2],
        &[0],
        &[0],
        b"\x81v",
        &[4],
        &[3],
        &[0],
        &[1],
        b"\x81w",
        &[4],
        &[0],
        &[4],
        &[5],
        &[1],
        b"\x81g",
        &[9],
        &[6],
    ]);
    // One node; length, last id.
    let head = [&b"\x01"[..], &string(&id), &string(&node), b"\x02\x05\x06"].concat();
    // First id, last deleted id, entries added.
    let offsets = b"\x00\x01\x00\x02\x03";
    // One group with one pending entry, and one consumer that owns it.
    let pending = [&b"\x01"[..], &id, &time, b"\x01"].concat();
    let owned = [&b"\x01"[..], &id].concat();
    let old = [&head[..], b"\x01\x01g\x05\x06", &pending, b"\x01\x01c", &time, &owned].concat();
    let newer =
        [&head[..], offsets, b"\x01\x01g\x05\x06\x01", &pending, b"\x01\x01c", &time, &owned].concat();
    let newest =
        [&head[..], offsets, b"\x01\x01g\x05\x06\x01", &pending, b"\x01\x01c", &time, &[0xff; 8], &owned]
            .concat();
    let file = file("REDIS0011", &[b"\x0f\x01x", &old, b"\x13\x01y", &newer, b"\x15\x01z", &newest]);
    let stream = |max_deleted_id, entries_added, entries_read, active_ms| {
        let pending = vec![((0, 1), 1, 1)];
        let consumers = vec![StreamConsumer { name: text("c"), seen_ms: 1, active_ms, pending }];
        Value::Stream(Stream {
            entries: vec![((0, 1), texts(&["f", "v"])), ((4, 6), texts(&["g", "9"]))],
            head: StreamHead { last_id: (5, 6), max_deleted_id, entries_added },
            groups: vec![StreamGroup { name: text("g"), last_id: (5, 6), entries_read, consumers }],
        })
    };
    let values: Vec<Value> = read(&file).unwrap().entries.into_iter().map(|entry| entry.3).collect();
    let expected = [
        stream((0, 0), 2, Some(2), Some(1)),
        stream((0, 2), 3, Some(1), Some(1)),
        stream((0, 2), 3, Some(1), None),
    ];
    assert_eq!(values, expected);
    for cut in 0..file.len() {
        assert!(read(&file[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn errors_name_their_position() {
    for (bytes, expected) in [
        (
            text("hello, world"),
            "this is no RDB file: it does not begin with REDIS or VALKEY and a version".to_string(),
        ),
        (
            text("REDIS"),
            "this is no RDB file: it does not begin with REDIS or VALKEY and a version".to_string(),
        ),
        (
            text("*2\r\n$6\r\nSELECT\r\n"),
            "this is no RDB file. Is it an append only file? Use dump.rdb, or copy the running server with --from"
                .to_string(),
        ),
        (
            text("REDIS0x11"),
            "this is no RDB file: it does not begin with REDIS or VALKEY and a version".to_string(),
        ),
        (
            text("REDIS0013"),
            "the file is of Redis RDB version 13; up to 12 of Redis and 80 of Valkey can be read".to_string(),
        ),
        (
            text("VALKEY081"),
            "the file is of Valkey RDB version 81; up to 12 of Redis and 80 of Valkey can be read"
                .to_string(),
        ),
        (
            file("REDIS0010", &[b"\xfe\x03\x02\x03key\x02\x01a"]),
            "at byte 20, in the value of key \"key\" of database 3: malformed string encoding".to_string(),
        ),
        (
            file("REDIS0010", &[b"\x0b\x02a\"\x01x"]),
            "at byte 15, in the value of key \"a\\\"\" of database 0: the bytes end inside a value"
                .to_string(),
        ),
        (file("REDIS0010", &[b"\x1a\x01k"]), "at byte 10: unknown value type 26".to_string()),
        (file("VALKEY080", &[b"\x18\x01k"]), "at byte 10: unknown value type 24".to_string()),
        (
            file("REDIS0010", &[b"\x07\x02bf\x00"]),
            "at byte 13, in the value of key \"bf\" of database 0: a value of a module, which only that module \
             understands"
                .to_string(),
        ),
        (
            file("REDIS0010", &[b"\x00\x01k\x81\x00\x00\x01\x00\x00\x00\x00\x00"]),
            "at byte 21, in the value of key \"k\" of database 0: a string of 1099511627776 bytes; at most 512 MiB \
             are possible"
                .to_string(),
        ),
        (
            [&file("REDIS0010", &[])[..], b"*2\r\n$6\r\nSELECT"].concat(),
            "more bytes follow the end of the RDB data at byte 18 (an append only file with an RDB file at its \
             start?)"
                .to_string(),
        ),
    ] {
        assert_eq!(error(&bytes), expected);
    }
}

#[test]
fn no_checksum_is_none_and_a_wrong_one_is_noticed() {
    let mut bytes = file("REDIS0010", &[b"\x00\x01k\x01v"]);
    let at = bytes.len() - 8;
    bytes[at] ^= 1;
    let expected =
        format!("the checksum at the end of the file (byte {at}) is of other bytes: the file was damaged");
    assert_eq!(error(&bytes), expected);
    bytes[at..].fill(0);
    assert_eq!(read(&bytes).unwrap().entries.len(), 1);
}

#[test]
fn lengths_are_not_believed() {
    // Each payload claims gigabytes but has no content. It must be refused quickly and without allocating
    // gigabytes.
    for value_type in [types::LIST, types::SET, types::ZSET_2, types::HASH, types::LIST_QUICKLIST_2] {
        let bytes = file("REDIS0010", &[&[value_type], b"\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff"]);
        assert!(read(&bytes).is_err());
    }
    let compressed = file("REDIS0010", &[b"\x00\x01k\xc3\x02\x80\x1f\xff\xff\xff\x00a"]);
    assert!(error(&compressed).contains("malformed compressed string"));
}

#[test]
fn failures_of_the_disk_are_told_as_such() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no such luck"))
        }
    }
    let begin = file("REDIS0010", &[b"\x00\x01k\x01v"]);
    let error = read_file((&begin[..12]).chain(Broken), &mut Kept::default()).unwrap_err();
    assert_eq!(error.to_string(), "at byte 12: no such luck");
}

#[test]
fn an_old_reader_gets_fields_that_do_not_expire() {
    let mut writer = FileWriter::begin(Vec::new(), 11);
    let hash = Value::Hash(vec![field("a", "1", Some(5)), field("b", "2", None)]);
    write_value(&hash, writer.key(b"h", None));
    let kept = read(&writer.finish().unwrap()).unwrap();
    let plain = Value::Hash(vec![field("a", "1", None), field("b", "2", None)]);
    assert_eq!(kept.entries, [(0, text("h"), None, plain)]);
}

#[test]
fn a_writer_tells_the_first_failure_at_the_end() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = FileWriter::begin(Full, 10);
    write_value(&Value::String(vec![7; 1 << 20]), writer.key(b"k", None));
    let error = writer.finish().map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::String(_) => Kind::String,
        Value::List(_) => Kind::List,
        Value::Set(_) => Kind::Set,
        Value::Zset(_) => Kind::Zset,
        Value::Hash(_) => Kind::Hash,
        Value::Stream(_) => Kind::Stream,
    }
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = FileWriter::begin(Vec::new(), 12);
    writer.note("ctime", "0");
    for (db, name, deadline_ms, value) in entries {
        writer.select(*db, 1, 0);
        write_value(value, writer.key(name, *deadline_ms));
    }
    writer.finish().unwrap()
}

/// Returns a few bytes per read.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let few = buffer.len().min(self.1);
        self.0.read(&mut buffer[..few])
    }
}

proptest! {
    #[test]
    fn written_files_are_read_back(
        entries in prop::collection::vec(
            (0..16u64, prop::collection::vec(any::<u8>(), 0..100), prop::option::of(0..u64::MAX >> 1), value()),
            0..8,
        ),
        step in 1..9usize,
    ) {
        let bytes = written(&entries);
        let mut kept = Kept::default();
        read_file(Trickle(&bytes, step), &mut kept).unwrap();
        prop_assert!(kept.entries.iter().zip(&entries).all(|(one, other)| kind(&one.3) == kind(&other.3)));
        prop_assert_eq!(kept.entries, entries);
    }

    #[test]
    fn one_changed_bit_is_noticed(value in value(), at: prop::sample::Index, bit in 0..8u8) {
        let mut bytes = written(&[(1, b"key".to_vec(), Some(7), value)]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&[b"REDIS0011", bytes.as_slice()].concat());
        let _ = read(&[b"VALKEY080", bytes.as_slice()].concat());
        let _ = read(&bytes);
    }
}
