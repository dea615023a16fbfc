//! Imports and exports against each other, on a simulated disk that fails and crashes.

use std::sync::{Arc, LazyLock};

use env::{
    Disk, SimClock, SimDisk, SimEntropy,
    sim::{CrashMode, FaultPlan, SimDiskOptions},
};
use keyspace::{
    AccessClock, ConsumerTimes, Delivery, Digest, Effect, Freed, GroupPosition, Items, KeyOp, Listed,
    StreamHead, StreamId, Value, View,
};
use lsn::Lsn;
use prng::sweep::spread_at_least;
use proptest::prelude::*;
use rdb::FileWriter;
use recovery::unfinished::refuse_unfinished;
use storage::LogOptions;

use super::*;
use crate::export::{ExportError, Format, export};

const DIR: &str = "/data";
const FILE: &str = "/dump.rdb";
const NOW_MS: u64 = 1_700_000_000_000;
static ENTROPY: LazyLock<SimEntropy> = LazyLock::new(|| SimEntropy::new(7));

fn disk() -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 3, ..Default::default() });
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

fn place(disk: &Arc<SimDisk>) -> Place<'static> {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        unwritten_bytes_max: 16 << 10,
        appenders_max: 1,
        ..LogOptions::default()
    };
    let clock = Arc::new(SimClock::new(NOW_MS));
    Place { disk: disk.clone(), clock, entropy: &*ENTROPY, dir: Path::new(DIR), options, appliers: 0 }
}

fn imported(disk: &Arc<SimDisk>, existing: Existing) -> Result<Imported, ImportError> {
    imported_from(disk, FILE, existing)
}

fn imported_from(disk: &Arc<SimDisk>, source: &str, existing: Existing) -> Result<Imported, ImportError> {
    import(&place(disk), (Path::new(FILE), source), existing, &|_, _, _| {})
}

fn exported(disk: &Arc<SimDisk>, version: u16, drops_field_expiry: bool) -> Result<Vec<u8>, ExportError> {
    let path = Path::new("/out.rdb");
    export(&place(disk), path, Format { version, drops_field_expiry }, &|_, _, _| {})?;
    Ok(disk.read_file(path).unwrap())
}

fn digest(disk: &Arc<SimDisk>) -> Digest {
    place(disk).load(&|_, _, _| {}).unwrap().0.digest()
}

/// A file with one string per pair of key and value.
fn strings(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = FileWriter::begin(Vec::new(), 10);
    for (key, value) in pairs {
        writer.key(key.as_bytes(), None).string_value(value.as_bytes());
    }
    writer.finish().unwrap()
}

/// Collections of every type in several parts, and small ones, with and without deadlines.
fn all_types() -> Vec<u8> {
    let long = |index: usize| format!("{index}-{}", "x".repeat(300));
    let mut writer = FileWriter::begin(Vec::new(), 12);
    writer.select(0, 8, 2);
    writer.key(b"string", Some(NOW_MS + 5)).string_value(b"text");
    for (count, suffix, deadline_ms) in [(3, "small", None), (2000, "large", Some(NOW_MS + 9))] {
        let name = |kind: &str| format!("{kind}-{suffix}");
        let list = writer.key(name("list").as_bytes(), deadline_ms);
        list.begin_list(count);
        (0..count).for_each(|index| list.string(long(index).as_bytes()));
        let set = writer.key(name("set").as_bytes(), deadline_ms);
        set.begin_set(count);
        (0..count).for_each(|index| set.string(long(index).as_bytes()));
        let zset = writer.key(name("zset").as_bytes(), deadline_ms);
        zset.begin_zset(count);
        (0..count).for_each(|index| zset.scored(long(index).as_bytes(), index as f64 / 3.0));
        let hash = writer.key(name("hash").as_bytes(), deadline_ms);
        hash.begin_expiring_hash(count, NOW_MS);
        for index in 0..count {
            let expire_at_ms = [None, Some(NOW_MS), Some(NOW_MS + 1 + index as u64 % 7)][index % 3];
            hash.expiring_field(long(index).as_bytes(), b"value", expire_at_ms, NOW_MS);
        }
    }
    writer.select(15, 2, 1);
    writer.key(b"expired", Some(NOW_MS)).string_value(b"gone");
    writer.key(b"in 15", None).string_value(b"");
    writer.finish().unwrap()
}

/// A list that takes several records of the log, between two strings.
fn several_records() -> Vec<u8> {
    let mut writer = FileWriter::begin(Vec::new(), 10);
    writer.key(b"b", None).string_value(b"3");
    let list = writer.key(b"list", Some(NOW_MS + 7));
    list.begin_list(2200);
    (0..2200).for_each(|index| list.string(format!("{index}-{}", "x".repeat(250)).as_bytes()));
    writer.key(b"c", None).string_value(b"4");
    writer.finish().unwrap()
}

#[test]
fn the_log_before_a_second_import_stays_if_documents_may_be_in_it() {
    for is_served in [false, true] {
        let disk = disk();
        let mut writer = FileWriter::begin(Vec::new(), 10);
        writer.key(b"k", Some(NOW_MS + 5)).string_value(b"v");
        disk.write_file(Path::new(FILE), &writer.finish().unwrap());
        imported(&disk, Existing::Refused).unwrap();
        if is_served {
            disk.create_dir_all(&documents::directory(Path::new(DIR))).unwrap();
        }
        // The only key has expired, so the next import removes it with the log.
        let later = Place { clock: Arc::new(SimClock::new(NOW_MS + 6)), ..place(&disk) };
        disk.write_file(Path::new(FILE), &strings(&[("a", "1")]));
        import(&later, (Path::new(FILE), FILE), Existing::Refused, &|_, _, _| {}).unwrap();
        let (keyspace, recovery) = later.load(&|_, _, _| {}).unwrap();
        assert_eq!(keyspace.len(DbId::all().next().unwrap()), 1);
        assert_eq!(recovery.start() == Lsn::ZERO, is_served, "the log from its beginning");
    }
}

#[test]
fn all_types_arrive_and_leave() {
    let disk = disk();
    disk.write_file(Path::new(FILE), &all_types());
    let done = imported(&disk, Existing::Refused).unwrap();
    assert_eq!(done.keys, [2, 2, 2, 2, 2, 0]);
    assert_eq!((done.expired_keys, done.expired_fields), (1, 1 + 667));
    let (keyspace, _) = place(&disk).load(&|_, _, _| {}).unwrap();
    let hash = keyspace.hash(b"hash-large");
    let slot = keyspace.lock(hash.slot());
    let entry = slot.get(DbId::ZERO, &hash, b"hash-large", NOW_MS).unwrap();
    assert_eq!(entry.expire_at_ms(), Some(NOW_MS + 9));
    let View::Hash(fields) = entry.view() else { panic!("a hash") };
    let name = format!("5-{}", "x".repeat(300));
    assert_eq!(fields.len(), 2000 - 667);
    assert_eq!(fields.field(name.as_bytes()).unwrap().expire_at_ms, Some(NOW_MS + 1 + 5));
    drop(slot);
    // Exported again, and imported into another directory.
    let file = exported(&disk, 12, false).unwrap();
    let other = self::disk();
    other.write_file(Path::new(FILE), &file);
    assert_eq!(imported(&other, Existing::Refused).unwrap().keys_total(), 10);
    assert_eq!(digest(&other), keyspace.digest());
}

#[test]
fn values_unknown_to_the_version_are_refused_or_dropped() {
    let disk = disk();
    disk.write_file(Path::new(FILE), &all_types());
    imported(&disk, Existing::Refused).unwrap();
    let refused = exported(&disk, 10, false).unwrap_err();
    assert!(matches!(refused, ExportError::FieldExpiry { fields: 667, hashes: 2, .. }), "{refused}");
    let file = exported(&disk, 10, true).unwrap();
    assert!(file.starts_with(b"REDIS0010"));
    let other = self::disk();
    other.write_file(Path::new(FILE), &file);
    imported(&other, Existing::Refused).unwrap();
    assert!(exported(&other, 10, false).is_ok(), "no field expires any more");
}

#[test]
fn keys_that_exist_are_refused_replaced_or_kept() {
    let cases: [(_, &[(&str, &str)]); 2] = [
        (Existing::Replaced, &[("a", "old"), ("b", "new"), ("c", "new")]),
        (Existing::Kept, &[("a", "old"), ("b", "old"), ("c", "new")]),
    ];
    for (existing, expected) in cases {
        let disk = disk();
        disk.write_file(Path::new(FILE), &strings(&[("a", "old"), ("b", "old")]));
        imported(&disk, Existing::Refused).unwrap();
        disk.write_file(Path::new(FILE), &strings(&[("b", "new"), ("c", "new")]));
        let before = digest(&disk);
        let refused = imported(&disk, Existing::Refused).unwrap_err();
        assert!(matches!(refused, ImportError::HoldsKeys { keys: 2, .. }), "{refused}");
        assert_eq!(digest(&disk), before);
        refuse_unfinished(&*disk, Path::new(DIR)).unwrap();
        let done = imported(&disk, existing).unwrap();
        assert_eq!(done.replaced + done.kept, 1);
        let other = self::disk();
        other.write_file(Path::new(FILE), &strings(expected));
        imported(&other, Existing::Refused).unwrap();
        assert_eq!(digest(&disk), digest(&other), "{existing:?}");
    }
}

#[test]
fn an_unsuitable_file_is_refused_before_anything_is_written() {
    let mut in_database_16 = FileWriter::begin(Vec::new(), 10);
    in_database_16.select(16, 1, 0);
    in_database_16.key(b"k", None).string_value(b"v");
    let mut damaged = all_types();
    let at = damaged.len() - 9;
    damaged[at] ^= 1;
    let mut with_a_key_twice = FileWriter::begin(Vec::new(), 10);
    for (db, name) in [(0, "a"), (1, "b"), (1, "a"), (1, "b")] {
        with_a_key_twice.select(db, 1, 0);
        with_a_key_twice.key(name.as_bytes(), None).string_value(b"v");
    }
    let mut with_a_library_twice = FileWriter::begin(Vec::new(), 10);
    for function in ["f", "g"] {
        let code = format!("#!lua name=a\nredis.register_function('{function}', function() end)");
        with_a_library_twice.library(code.as_bytes());
    }
    for (file, expected) in [
        (in_database_16.finish().unwrap(), "key \"k\" is in database 16, and there are 16 here"),
        (damaged, "the file cannot be imported: "),
        (with_a_key_twice.finish().unwrap(), "holds the key \"b\" of database 1 twice"),
        (with_a_library_twice.finish().unwrap(), "holds the library of functions \"a\" twice"),
        (
            b"REDIS0010\x07\x02bf\x00".to_vec(),
            "in the value of key \"bf\" of database 0: a value of a module",
        ),
        (Vec::new(), "this is no RDB file"),
    ] {
        let disk = disk();
        disk.write_file(Path::new(FILE), &file);
        let before = disk.io_count();
        let error = imported(&disk, Existing::Refused).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(disk.io_count(), before, "nothing was written");
    }
}

#[test]
fn a_disk_that_is_too_small_is_told_before_or_can_be_made_larger() {
    let disk = disk();
    disk.write_file(Path::new(FILE), &all_types());
    disk.set_space_limit(Some(100 << 20));
    let used = (100 << 20) - disk.free_bytes(Path::new(DIR)).unwrap();
    disk.set_space_limit(Some(used + 1_000_000));
    let error = imported(&disk, Existing::Refused).unwrap_err();
    let ImportError::TooLarge { needed, .. } = error else { panic!("{error}") };
    // Room for the changes, but not for the framing of the log.
    disk.set_space_limit(Some(used + needed));
    let error = imported(&disk, Existing::Refused).unwrap_err();
    let ImportError::Interrupted { cause, .. } = &error else { panic!("{error}") };
    assert!(!matches!(**cause, ImportError::File(_)), "{error}");
    assert!(refuse_unfinished(&*disk, Path::new(DIR)).is_err());
    disk.set_space_limit(None);
    assert_eq!(imported(&disk, Existing::Refused).unwrap().keys_total(), 10);
    refuse_unfinished(&*disk, Path::new(DIR)).unwrap();
}

/// At any crash point the directory is marked as partial or complete; repeating the import has the same
/// result as without a crash.
#[test]
fn a_crash_at_any_io_leaves_a_directory_that_says_so() {
    let small = strings(&[("a", "1"), ("b", "2")]);
    for existing in [Existing::Refused, Existing::Replaced, Existing::Kept] {
        let start = disk();
        if existing != Existing::Refused {
            start.write_file(Path::new(FILE), &small);
            imported(&start, Existing::Refused).unwrap();
        }
        start.write_file(Path::new(FILE), &several_records());
        let before = digest(&start.clone_state());
        let complete = start.clone_state();
        let first_io = complete.io_count();
        imported(&complete, existing).unwrap();
        let io_count = complete.io_count();
        let expected = digest(&complete);
        assert!(io_count > first_io + 20);
        for crash_at_io in spread_at_least(10, io_count - first_io).map(|io| first_io + io) {
            for mode in [CrashMode::LoseAll, CrashMode::Random] {
                let disk = start.clone_state();
                disk.reseed(crash_at_io);
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(crash_at_io), ..FaultPlan::default() });
                assert!(imported(&disk, existing).is_err(), "io {crash_at_io}");
                disk.crash(mode);
                disk.set_fault_plan(FaultPlan::default());
                if refuse_unfinished(&*disk, Path::new(DIR)).is_ok() {
                    let now = digest(&disk);
                    assert!(now == before || now == expected, "io {crash_at_io}, {mode:?}");
                    if now == expected {
                        continue;
                    }
                }
                imported(&disk, existing).unwrap();
                assert_eq!(digest(&disk), expected, "io {crash_at_io}, {mode:?}, {existing:?}");
                refuse_unfinished(&*disk, Path::new(DIR)).unwrap();
            }
        }
    }
}

#[test]
fn an_interrupted_import_goes_on_only_with_its_source() {
    for existing in [Existing::Refused, Existing::Kept] {
        let disk = disk();
        if existing == Existing::Kept {
            disk.write_file(Path::new(FILE), &strings(&[("old", "1")]));
            imported_from(&disk, "/earlier.rdb", Existing::Refused).unwrap();
        }
        disk.write_file(Path::new(FILE), &several_records());
        let used = (100 << 20) - {
            disk.set_space_limit(Some(100 << 20));
            disk.free_bytes(Path::new(DIR)).unwrap()
        };
        let needed = imported(&disk.clone_state(), existing).unwrap().log_bytes;
        disk.set_space_limit(Some(used + needed));
        let error = imported(&disk, existing).unwrap_err();
        assert!(matches!(error, ImportError::Interrupted { .. }), "{error}");
        disk.set_space_limit(None);
        let error = imported_from(&disk, "/other\n.rdb", existing).unwrap_err();
        assert!(
            error.to_string().starts_with("an import of \"/dump.rdb\" into /data did not finish"),
            "{error}"
        );
        assert!(refuse_unfinished(&*disk, Path::new(DIR)).is_err(), "the marker stays");
        imported(&disk, existing).unwrap();
        refuse_unfinished(&*disk, Path::new(DIR)).unwrap();
    }
}

#[test]
fn a_marker_of_an_earlier_version_names_no_source() {
    let disk = disk();
    let text = Mark::new(Before::Nothing, FILE).text();
    let earlier = text.lines().next().unwrap().to_owned() + "\n";
    unfinished::begin(&*disk, Path::new(DIR), Work::Import, &earlier).unwrap();
    let found = Mark::find(&*disk, Path::new(DIR)).unwrap().unwrap();
    assert_eq!((found.before, found.other_source(FILE)), (Before::Nothing, None));
    unfinished::begin(&*disk, Path::new(DIR), Work::Import, &text).unwrap();
    let found = Mark::find(&*disk, Path::new(DIR)).unwrap().unwrap();
    assert_eq!((found.before, found.other_source("x")), (Before::Nothing, Some("\"/dump.rdb\"")));
}

#[test]
fn a_failed_export_leaves_the_file_that_was_there() {
    let disk = disk();
    disk.write_file(Path::new(FILE), &strings(&[("a", "1")]));
    imported(&disk, Existing::Refused).unwrap();
    let old = exported(&disk, 10, false).unwrap();
    disk.set_space_limit(Some(0));
    assert!(matches!(exported(&disk, 11, false), Err(ExportError::Write { .. })));
    assert_eq!(disk.read_file(Path::new("/out.rdb")).unwrap(), old);
    assert!(disk.list(Path::new("/")).unwrap().iter().all(|name| !name.ends_with(".tmp")));
}

#[test]
fn libraries_of_functions_come_and_go_with_the_file() {
    let code = |name: &str, function: &str| {
        format!("#!lua name={name}\nredis.register_function('{function}', function() end)")
    };
    let disk = disk();
    let write = |codes: &[&str]| {
        let mut writer = FileWriter::begin(Vec::new(), 10);
        codes.iter().for_each(|code| writer.library(code.as_bytes()));
        disk.write_file(Path::new(FILE), &writer.finish().unwrap());
    };
    write(&[&code("a", "f"), &code("b", "g"), "#!lua name=c\nreturn"]);
    let done = imported(&disk, Existing::Refused).unwrap();
    assert_eq!((done.libraries, done.refused_libraries), (2, 1));
    assert_eq!(done.first_refusal.as_deref(), Some("No functions registered"));
    let before = digest(&disk);
    disk.write_file(Path::new(FILE), &exported(&disk, 10, false).unwrap());
    let done = imported(&disk, Existing::Kept).unwrap();
    assert_eq!((done.libraries, done.kept_libraries, digest(&disk)), (0, 2, before));
    write(&[&code("a", "h"), &code("c", "G")]);
    let done = imported(&disk, Existing::Replaced).unwrap();
    assert_eq!((done.libraries, done.refused_libraries), (1, 1));
    assert_eq!(done.first_refusal.as_deref(), Some("its function G is in another library"));
    assert_ne!(digest(&disk), before);
    // Expired keys are removed together with their log; libraries are written again.
    let mut writer = FileWriter::begin(Vec::new(), 10);
    writer.key(b"k", Some(NOW_MS + 1)).string_value(b"v");
    disk.write_file(Path::new(FILE), &writer.finish().unwrap());
    imported(&disk, Existing::Refused).unwrap();
    let later = Place { clock: Arc::new(SimClock::new(NOW_MS + 5)), ..place(&disk) };
    disk.write_file(Path::new(FILE), &strings(&[("a", "1")]));
    import(&later, (Path::new(FILE), FILE), Existing::Refused, &|_, _, _| {}).unwrap();
    let (keyspace, _) = place(&disk).load(&|_, _, _| {}).unwrap();
    let names: Vec<_> = keyspace.libraries().libraries.iter().map(|it| it.name.to_vec()).collect();
    assert_eq!((names, keyspace.len(DbId::ZERO)), (vec![b"a".to_vec(), b"b".to_vec()], 1));
}

#[test]
fn the_summary_names_missing_parts() {
    let imported = Imported {
        header: Some(Header { server: "Redis", version: 10 }),
        keys: [3, 0, 0, 1, 0, 2],
        libraries: 2,
        refused_libraries: 1,
        first_refusal: Some("no".into()),
        expired_keys: 4,
        is_append_only_base: true,
        ..Imported::default()
    };
    assert_eq!(
        summary(&imported, "dump.rdb"),
        "imported     6 keys from dump.rdb, Redis RDB version 10: strings 3, sorted sets 1, streams 2\n\
         log          0 bytes written, durable\n\
         expired      4 keys, left out\n\
         functions    2 libraries\n\
         NOT IMPORTED 1 library of functions, the first one: no\n\
         NOT IMPORTED later writes: the file is the base of an append-only file, and they are in the .incr.aof beside \
         it. `redis-cli --rdb FILE` makes a file of everything, `sheaf import --from` copies a running server\n"
    );
}

/// A random key: database, name, deadline, type, elements.
type Drawn = (u8, Vec<u8>, Option<u16>, u8, Vec<(Vec<u8>, i16)>);

fn drawn() -> impl Strategy<Value = Drawn> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let elements = prop::collection::vec((bytes(), any::<i16>()), 1..30);
    (0..16u8, bytes(), prop::option::of(1u16..), 0..6u8, elements)
}

fn put(keyspace: &Keyspace, (db, key, deadline, kind, elements): &Drawn) {
    let db = DbId::new(*db).unwrap();
    let deadline_ms = deadline.map(|ms| NOW_MS + u64::from(ms));
    let names: Vec<&[u8]> = elements.iter().map(|(name, _)| name.as_slice()).collect();
    let doubled: Vec<&[u8]> = names.iter().flat_map(|name| [*name, *name]).collect();
    let scored: Vec<(f64, &[u8])> =
        elements.iter().map(|(name, score)| (f64::from(*score) / 7.0, name.as_slice())).collect();
    let value = match kind {
        0 => Value::String(names[0]),
        1 => Value::List(Items::Slices(&names)),
        2 => Value::Set(Items::Slices(&names)),
        3 => Value::Zset(keyspace::ScoredItems::Slices(&scored)),
        4 => Value::Hash(Items::Slices(&doubled)),
        _ => Value::Stream(StreamHead::default()),
    };
    let mut effects = vec![KeyOp::Put { value, expire_at_ms: deadline_ms }.on(db, key)];
    let expiring: Vec<_> = elements.iter().filter(|(_, number)| *number > 0).collect();
    let fields: Vec<Vec<&[u8]>> = expiring.iter().map(|(name, _)| vec![name.as_slice()]).collect();
    for (fields, (_, number)) in fields.iter().zip(&expiring).filter(|_| *kind == 4) {
        let expire_at_ms = Some(NOW_MS + *number as u64);
        effects.push(KeyOp::HashSetExpiry { fields: Items::Slices(fields), expire_at_ms }.on(db, key));
    }
    let pairs: Vec<[&[u8]; 2]> = names.iter().map(|name| [*name, *name]).collect();
    if *kind == 5 {
        stream_effects(db, key, &pairs, &mut effects);
    }
    let mut slot = keyspace.lock(keyspace.hash(key).slot());
    for effect in &effects {
        slot.apply(effect, AccessClock { now_ms: NOW_MS, ..AccessClock::default() }, &mut Freed::new());
    }
}

/// Adds entries, one of which is deleted, and a group with a pending entry.
fn stream_effects<'a>(db: DbId, key: &'a [u8], pairs: &'a [[&'a [u8]; 2]], effects: &mut Vec<Effect<'a>>) {
    const DELETED: &[StreamId] = &[StreamId::new(1, 0)];
    const DELIVERED: &[Delivery] = &[Delivery { id: StreamId::new(1, 1), time_ms: 77, count: 2 }];
    let id = |number: usize| StreamId::new(1 + number as u64 / 3, number as u64 % 3);
    let (group, consumer) = (&b"group"[..], &b"consumer"[..]);
    effects.extend(
        pairs.iter().enumerate().map(|(number, pair)| {
            KeyOp::StreamAdd { id: id(number), pairs: Items::Slices(pair) }.on(db, key)
        }),
    );
    let position = GroupPosition { last_id: id(1), entries_read: Some(2) };
    let times = ConsumerTimes { seen_ms: 78, active_ms: None };
    effects.extend([
        KeyOp::StreamDelete { ids: Listed::Slices(DELETED) }.on(db, key),
        KeyOp::StreamPutGroup { group, position }.on(db, key),
        KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key),
        KeyOp::StreamPend { group, consumer, deliveries: Listed::Slices(DELIVERED) }.on(db, key),
    ]);
}

/// Makes a keyspace from these keys, and writes effects that create it to the log of a directory. Returns the
/// digest of the keyspace.
fn store(disk: &Arc<SimDisk>, drawn: &[Drawn]) -> Digest {
    let keyspace = Keyspace::new(keyspace::Options { hash_seed: 1 });
    drawn.iter().for_each(|drawn| put(&keyspace, drawn));
    let recovery = place(disk).load(&|_, _, _| {}).unwrap().1;
    let log = recovery.finish(Arc::new(SimClock::new(NOW_MS))).unwrap();
    let mut writer = LogWriter::new(log.clone());
    for db in DbId::all() {
        for slot in SlotId::all() {
            let slot = keyspace.lock(slot);
            for entry in slot.entries(db) {
                keyspace::ValueBuf::of(entry).for_each_effect(
                    db,
                    entry.key(),
                    entry.expire_at_ms(),
                    |effect| {
                        writer.put(effect);
                    },
                );
            }
        }
    }
    writer.sync().unwrap();
    log.close().unwrap();
    keyspace.digest()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_exported_and_imported_keyspace_is_the_same(drawn in prop::collection::vec(drawn(), 0..12)) {
        let (from, to) = (disk(), disk());
        let before = store(&from, &drawn);
        prop_assert_eq!(digest(&from), before);
        let file = exported(&from, 12, false).unwrap();
        to.write_file(Path::new(FILE), &file);
        imported(&to, Existing::Refused).unwrap();
        prop_assert_eq!(digest(&to), before);
    }
}
