use keyspace::{
    Delivery, GlobalOp, ItemsBuf, LibraryContent, Listed, LoggedMessage, ScoredItems, StreamHead, StreamId,
};

use super::*;

/// The commands of a record, one a line, words separated by spaces. Scripts are named.
fn rendered(items: &[Item<'_>]) -> String {
    let (mut renderer, mut out) = (Renderer::resumed(Some(DbId::ZERO)), Vec::new());
    items.iter().for_each(|item| renderer.item(item));
    renderer.end_record(&mut out);
    shown_commands(&out)
}

fn shown_commands(mut bytes: &[u8]) -> String {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let (value, read) = wire::decode(bytes, &wire::DecodeLimits::default()).unwrap().unwrap();
        let wire::Value::Array(words) = value else { panic!("no command: {value:?}") };
        let word = |word: &wire::Value| match word {
            wire::Value::Bulk(bytes) => bytes.escape_ascii().to_string(),
            other => panic!("no word: {other:?}"),
        };
        lines.push(words.iter().map(word).collect::<Vec<_>>().join(" "));
        bytes = &bytes[read..];
    }
    let mut text = lines.join("\n");
    for (script, name) in [
        (scripts::LIST_INSERT, "list-insert"),
        (scripts::HASH_UPDATE, "hash-update"),
        (scripts::FIELD_EXPIRE, "field-expire"),
        (scripts::FIELD_PERSIST, "field-persist"),
        (scripts::PUT_GROUP, "put-group"),
        (scripts::DELETE_WITHOUT_TRACE, "delete-without-trace"),
    ] {
        text = text.replace(&script.escape_default().to_string(), name).replace(script, name);
        text = text.replace(&script.as_bytes().escape_ascii().to_string(), name);
    }
    text
}

fn on_k(op: KeyOp<'_>) -> String {
    rendered(&[Item::Effect(op.on(DbId::ZERO, b"k"))])
}

const AB: Items<'static> = Items::Slices(&[b"a", b"b"]);

#[test]
fn strings_and_deadlines() {
    let put = |value, expire_at_ms| on_k(KeyOp::Put { value: Value::String(value), expire_at_ms });
    assert_eq!(put(b"v", None), "SET k v");
    assert_eq!(put(b"", Some(1_000)), "SET k  PXAT 1000");
    assert_eq!(put(b"v", Some(0)), "SET k v PXAT 1", "SET refuses 0");
    assert_eq!(put(b"v", Some(u64::MAX)), format!("SET k v PXAT {}", i64::MAX));
    assert_eq!(on_k(KeyOp::Delete), "DEL k");
    assert_eq!(on_k(KeyOp::SetExpiry { expire_at_ms: None }), "PERSIST k");
    assert_eq!(on_k(KeyOp::SetExpiry { expire_at_ms: Some(7) }), "PEXPIREAT k 7");
    assert_eq!(on_k(KeyOp::Append { suffix: b"x" }), "APPEND k x");
    assert_eq!(on_k(KeyOp::SetRange { offset: 3, bytes: b"xy" }), "SETRANGE k 3 xy");
}

#[test]
fn lists() {
    let (head, tail) = (ListEnd::Head, ListEnd::Tail);
    assert_eq!(
        on_k(KeyOp::Put { value: Value::List(AB), expire_at_ms: Some(5) }),
        "MULTI\nDEL k\nRPUSH k a b\nPEXPIREAT k 5\nEXEC"
    );
    assert_eq!(on_k(KeyOp::ListPush { end: head, items: AB }), "LPUSH k a b");
    assert_eq!(on_k(KeyOp::ListPush { end: tail, items: AB }), "RPUSH k a b");
    assert_eq!(on_k(KeyOp::ListPop { end: head, count: 2 }), "LPOP k 2");
    assert_eq!(on_k(KeyOp::ListPop { end: tail, count: u64::MAX }), format!("RPOP k {}", i64::MAX));
    assert_eq!(on_k(KeyOp::ListSet { index: 4, item: b"x" }), "LSET k 4 x");
    assert_eq!(on_k(KeyOp::ListInsert { index: 0, item: b"x" }), "LPUSHX k x");
    assert_eq!(on_k(KeyOp::ListInsert { index: 2, item: b"x" }), "EVAL list-insert 1 k 2 x");
    assert_eq!(on_k(KeyOp::ListRemove { end: head, count: 0, item: b"x" }), "LREM k 0 x");
    assert_eq!(on_k(KeyOp::ListRemove { end: tail, count: 2, item: b"x" }), "LREM k -2 x");
}

#[test]
fn sets_and_sorted_sets() {
    assert_eq!(on_k(KeyOp::SetAdd { members: AB }), "SADD k a b");
    assert_eq!(on_k(KeyOp::SetRemove { members: AB }), "SREM k a b");
    let scores: &[(f64, &[u8])] = &[
        (0.1 + 0.2, b"sum"),
        (-0.0, b"zero"),
        (f64::INFINITY, b"inf"),
        (f64::NEG_INFINITY, b"neg"),
        (9_007_199_254_740_993.0, b"big"),
        (5e-324, b"least"),
    ];
    assert_eq!(
        on_k(KeyOp::ZsetPut { members: ScoredItems::Slices(scores) }),
        "ZADD k 0.30000000000000004 sum -0 zero inf inf -inf neg 9007199254740992 big 5e-324 least"
    );
    assert_eq!(on_k(KeyOp::ZsetRemove { members: AB }), "ZREM k a b");
    assert_eq!(on_k(KeyOp::ZsetRemoveRanks { first: 2, count: 3 }), "ZREMRANGEBYRANK k 2 4");
    let all = on_k(KeyOp::ZsetRemoveRanks { first: 2, count: u64::MAX });
    assert_eq!(all, format!("ZREMRANGEBYRANK k 2 {}", i64::MAX));
}

#[test]
fn hashes_keep_or_lose_the_deadlines_of_fields_as_the_effect_says() {
    assert_eq!(on_k(KeyOp::HashPut { pairs: AB }), "HSET k a b");
    assert_eq!(on_k(KeyOp::HashUpdate { pairs: AB }), "EVAL hash-update 1 k a b");
    assert_eq!(on_k(KeyOp::HashRemove { fields: AB }), "HDEL k a b");
    let expiry = |expire_at_ms| on_k(KeyOp::HashSetExpiry { fields: AB, expire_at_ms });
    assert_eq!(expiry(Some(9)), "EVAL field-expire 1 k 9 a b");
    assert_eq!(expiry(None), "EVAL field-persist 1 k a b");
}

/// The words of the only command, and the stream in a payload of it.
fn restored(items: &[Item<'_>], at: usize) -> (Vec<Vec<u8>>, rdb::Stream) {
    let (mut renderer, mut out) = (Renderer::resumed(Some(DbId::ZERO)), Vec::new());
    items.iter().for_each(|item| renderer.item(item));
    renderer.end_record(&mut out);
    let (value, read) = wire::decode(&out, &wire::DecodeLimits::default()).unwrap().unwrap();
    assert_eq!(read, out.len(), "one command");
    let wire::Value::Array(words) = value else { panic!("no command: {value:?}") };
    let words: Vec<Vec<u8>> = words
        .into_iter()
        .map(|word| match word {
            wire::Value::Bulk(bytes) => bytes.to_vec(),
            other => panic!("no word: {other:?}"),
        })
        .collect();
    match rdb::restore(&words[at]) {
        Ok(rdb::Value::Stream(stream)) => (words, stream),
        other => panic!("no stream: {other:?}"),
    }
}

#[test]
fn a_stream_that_is_made_is_restored_with_all_it_has() {
    let (db, key) = (DbId::ZERO, &b"k"[..]);
    let id = |ms| StreamId::new(ms, 0);
    let head = StreamHead { last_id: id(9), max_deleted_id: id(5), entries_added: 12 };
    let put = KeyOp::Put { value: Value::Stream(StreamHead::default()), expire_at_ms: Some(5) }.on(db, key);
    let set_head = KeyOp::StreamSetHead { head }.on(db, key);
    let add = |ms| KeyOp::StreamAdd { id: id(ms), pairs: AB }.on(db, key);
    let position = keyspace::GroupPosition { last_id: id(7), entries_read: Some(1) };
    let group = KeyOp::StreamPutGroup { group: b"g", position }.on(db, key);
    let times = keyspace::ConsumerTimes { seen_ms: 80, active_ms: Some(80) };
    let consumer = |times| KeyOp::StreamPutConsumer { group: b"g", consumer: b"c", times }.on(db, key);
    // The entry 5-0 is gone and pending.
    let deliveries = [5, 7].map(|ms| Delivery { id: id(ms), time_ms: 77, count: 2 });
    let deliveries = Listed::Slices(&deliveries);
    let pend = KeyOp::StreamPend { group: b"g", consumer: b"c", deliveries }.on(db, key);
    let all = [put, add(3), add(7), set_head, group, consumer(times), pend, add(10)].map(Item::Effect);
    let (words, stream) = restored(&all, 3);
    let around: Vec<&[u8]> = [0, 1, 2, 4, 5].iter().map(|index| &*words[*index]).collect();
    assert_eq!(around, [&b"RESTORE"[..], b"k", b"5", b"REPLACE", b"ABSTTL"]);
    let ids: Vec<rdb::StreamId> = stream.entries.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [(3, 0), (7, 0), (10, 0)]);
    assert_eq!((stream.head.last_id, stream.head.max_deleted_id), ((10, 0), (5, 0)));
    let [restored_group] = &stream.groups[..] else { panic!("one group") };
    let [only] = &restored_group.consumers[..] else { panic!("one consumer") };
    assert_eq!((only.seen_ms, only.active_ms), (80, Some(80)));
    assert_eq!(only.pending, [((5, 0), 77, 2), ((7, 0), 77, 2)]);
    // A consumer whose last call got nothing: a form that not every version reads comes first.
    let idle = keyspace::ConsumerTimes { seen_ms: 80, active_ms: Some(60) };
    let all = [put, group, consumer(idle)].map(Item::Effect);
    let (words, newer) = restored(&all, 5);
    assert_eq!([&*words[0], &*words[1]], [&b"EVAL"[..], scripts::RESTORE.as_bytes()]);
    assert_eq!(newer.groups[0].consumers[0].active_ms, Some(60));
    let (_, older) = restored(&all, 6);
    assert_eq!(older.groups[0].consumers[0].active_ms, Some(80));
}

#[test]
fn what_follows_a_stream_that_is_made_does_not_go_into_it() {
    let (db, key) = (DbId::ZERO, &b"k"[..]);
    let put = KeyOp::Put { value: Value::Stream(StreamHead::default()), expire_at_ms: None }.on(db, key);
    let delete = KeyOp::Delete.on(db, b"other");
    let text = rendered(&[put, delete, put].map(Item::Effect));
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["MULTI", "RESTORE", "DEL", "RESTORE", "EXEC"]);
}

#[test]
fn entries_that_are_trimmed_between_others_leave_no_trace() {
    let (db, key) = (DbId::ZERO, &b"k"[..]);
    let ids = [StreamId::new(1, 2), StreamId::new(3, 4)];
    let delete = KeyOp::StreamDelete { ids: Listed::Slices(&ids) }.on(db, key);
    let set_head = |max_deleted_id| {
        let head = StreamHead { last_id: StreamId::new(9, 0), max_deleted_id, entries_added: 12 };
        KeyOp::StreamSetHead { head }.on(db, key)
    };
    let text = |max_deleted_id| rendered(&[delete, set_head(max_deleted_id)].map(Item::Effect));
    assert_eq!(text(StreamId::ZERO), "EVAL delete-without-trace 1 k 9-0 12 1-2 3-4");
    assert_eq!(
        text(StreamId::new(1, 1)),
        "MULTI\nXDEL k 1-2 3-4\nXSETID k 9-0 ENTRIESADDED 12 MAXDELETEDID 1-1\nEXEC"
    );
    let other = KeyOp::Delete.on(db, b"other");
    assert_eq!(
        rendered(&[delete, other, set_head(StreamId::ZERO)].map(Item::Effect)),
        "MULTI\nXDEL k 1-2 3-4\nDEL other\nXSETID k 9-0 ENTRIESADDED 12 MAXDELETEDID 0-0\nEXEC"
    );
}

#[test]
fn streams_and_their_groups() {
    let (group, consumer) = (&b"g"[..], &b"c"[..]);
    let ids = [StreamId::new(1, 2), StreamId::new(3, 4)];
    assert_eq!(on_k(KeyOp::StreamTrim { through: StreamId::new(1, 2) }), "XTRIM k MINID 1-3");
    let past = StreamId::new(1, u64::MAX);
    assert_eq!(on_k(KeyOp::StreamTrim { through: past }), "XTRIM k MINID 2-0");
    assert_eq!(on_k(KeyOp::StreamTrim { through: StreamId::MAX }), "XTRIM k MAXLEN 0");
    assert_eq!(on_k(KeyOp::StreamDelete { ids: Listed::Slices(&ids) }), "XDEL k 1-2 3-4");
    let put = |entries_read| {
        let position = keyspace::GroupPosition { last_id: ids[0], entries_read };
        on_k(KeyOp::StreamPutGroup { group, position })
    };
    assert_eq!(put(Some(3)), "EVAL put-group 1 k g 1-2 3");
    assert_eq!(put(None), "EVAL put-group 1 k g 1-2 -1");
    assert_eq!(on_k(KeyOp::StreamDropGroup { group }), "XGROUP DESTROY k g");
    let times = keyspace::ConsumerTimes::default();
    let put = KeyOp::StreamPutConsumer { group, consumer, times };
    assert_eq!(on_k(put), "XGROUP CREATECONSUMER k g c");
    assert_eq!(on_k(KeyOp::StreamDropConsumer { group, consumer }), "XGROUP DELCONSUMER k g c");
    let delivery = |index: usize, count| Delivery { id: ids[index], time_ms: 77, count };
    let pend = |deliveries: &[Delivery]| {
        on_k(KeyOp::StreamPend { group, consumer, deliveries: Listed::Slices(deliveries) })
    };
    assert_eq!(
        pend(&[delivery(0, 5), delivery(1, 5)]),
        "XCLAIM k g c 0 1-2 3-4 TIME 77 RETRYCOUNT 5 FORCE JUSTID"
    );
    assert_eq!(
        pend(&[delivery(0, 1), delivery(1, 2)]),
        "MULTI\nXCLAIM k g c 0 1-2 TIME 77 RETRYCOUNT 1 FORCE JUSTID\n\
         XCLAIM k g c 0 3-4 TIME 77 RETRYCOUNT 2 FORCE JUSTID\nEXEC"
    );
    assert_eq!(on_k(KeyOp::StreamUnpend { group, ids: Listed::Slices(&ids) }), "XACK k g 1-2 3-4");
}

#[test]
fn whole_databases_functions_messages_and_what_a_replica_has_no_place_for() {
    let global = |op| rendered(&[Item::Effect(Effect::Global(op))]);
    let (one, two) = (DbId::new(1).unwrap(), DbId::new(2).unwrap());
    assert_eq!(global(GlobalOp::FlushAll), "MULTI\nFLUSHALL\nFUNCTION FLUSH\nEXEC");
    assert_eq!(global(GlobalOp::FlushDb { db: one }), "SELECT 1\nFLUSHDB");
    assert_eq!(global(GlobalOp::SwapDb { a: one, b: two }), "SWAPDB 1 2");
    let moved = |to_db| rendered(&[Item::Effect(Effect::Move { db: one, key: b"k", to_db, to_key: b"new" })]);
    assert_eq!(moved(one), "SELECT 1\nRENAME k new");
    assert_eq!(
        moved(two),
        "SELECT 1\nMULTI\nCOPY k new DB 2 REPLACE\nDEL k\nEXEC".replace("SELECT 1\nMULTI", "MULTI\nSELECT 1")
    );
    let content = LibraryContent { code: b"#!lua name=lib", functions: Items::EMPTY };
    let library = |content| rendered(&[Item::Effect(Effect::Library { name: b"lib", content })]);
    assert_eq!(library(Some(content)), "FUNCTION LOAD REPLACE #!lua name=lib");
    assert_eq!(library(None), "FUNCTION DELETE lib");
    let message = LoggedMessage { channel: b"news", payload: b"x" };
    assert_eq!(rendered(&[Item::Message(message)]), "PUBLISH news x");
    let audited = LoggedMessage { channel: AUDIT_CHANNEL, payload: b"x" };
    assert_eq!(rendered(&[Item::Message(audited)]), "");
    let setting = Effect::Setting { name: b"maxmemory", value: Some(b"1") };
    assert_eq!(rendered(&[Item::Documents(b"x"), Item::Effect(setting)]), "");
}

#[test]
fn many_items_become_several_commands_and_pairs_stay_together() {
    let mut items = ItemsBuf::new();
    (0..2 * ITEMS_MAX + 2).for_each(|number| items.push(number.to_string().as_bytes()));
    let lines = |op| {
        let text = on_k(op);
        text.lines().map(|line| line.split(' ').count()).collect::<Vec<_>>()
    };
    let push = KeyOp::ListPush { end: ListEnd::Tail, items: items.as_items() };
    assert_eq!(lines(push), [1, 2 + ITEMS_MAX, 2 + ITEMS_MAX, 2 + 2, 1]);
    assert_eq!(lines(KeyOp::HashPut { pairs: items.as_items() }), [1, 2 + 2 * ITEMS_MAX, 2 + 2, 1]);
}

#[test]
fn a_database_is_selected_once() {
    let (mut renderer, mut out) = (Renderer::default(), Vec::new());
    for db in [0, 0, 3] {
        let effect = KeyOp::Delete.on(DbId::new(db).unwrap(), b"k");
        renderer.item(&Item::Effect(effect));
        renderer.end_record(&mut out);
    }
    assert_eq!(shown_commands(&out), "SELECT 0\nDEL k\nDEL k\nSELECT 3\nDEL k");
}
