//! Stream commands, as tables of calls and replies.

use engine::EventClass;

use crate::testing::{START_MS, TestServer, WRONG_TYPE, check, check_protocols};

const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument";
const NO_GROUP: &str = "-NOGROUP No such key 'x' or consumer group 'none'";

/// As [`check`], but with RESP2 only: streams are pairs in RESP2 and maps in RESP3.
fn check_one(table: &[(&str, &str)]) {
    let mut server = TestServer::new();
    server.check(table);
    server.assert_replays();
}

#[test]
fn entries_are_added_with_rising_ids() {
    let now = |seq: u32| format!(r#""{START_MS}-{seq}""#);
    check(&[
        ("XADD x * f v", &now(0)),
        ("XADD x * f v", &now(1)),
        ("XLEN x", ":2"),
        (
            "XADD x 1-1 f v",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD y 5-* f v", r#""5-0""#),
        ("XADD y 5-* f v", r#""5-1""#),
        (
            "XADD y 5-1 f v",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD y 7 a 1 b 2", r#""7-0""#),
        ("XADD y 0-0 f v", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD y 8-1 f", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD y 8-1 f v g", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD y MAXLEN 10 f v", INVALID_ID),
        ("XADD y abc f v", INVALID_ID),
        ("XADD none NOMKSTREAM * f v", "nil"),
        ("EXISTS none", ":0"),
        ("XADD z 0-* f v", r#""0-1""#),
        (
            "XADD z 18446744073709551615-18446744073709551615 f v",
            r#""18446744073709551615-18446744073709551615""#,
        ),
        ("XADD z * f v", "-ERR The stream has exhausted the last possible ID, unable to add more items"),
        ("SET s 1", "+OK"),
        ("XADD s * f v", WRONG_TYPE),
        ("XLEN s", WRONG_TYPE),
        ("XLEN none", ":0"),
        ("TYPE x", "+stream"),
        ("OBJECT ENCODING x", r#""stream""#),
    ]);
}

#[test]
fn ranges_are_read_from_either_end() {
    check(&[
        ("XADD x 1-1 a 1", r#""1-1""#),
        ("XADD x 1-2 a 2", r#""1-2""#),
        ("XADD x 2-1 b 3 c 4", r#""2-1""#),
        ("XRANGE x - +", r#"[["1-1", ["a", "1"]], ["1-2", ["a", "2"]], ["2-1", ["b", "3", "c", "4"]]]"#),
        ("XRANGE x 1 1", r#"[["1-1", ["a", "1"]], ["1-2", ["a", "2"]]]"#),
        ("XRANGE x (1-1 + COUNT 1", r#"[["1-2", ["a", "2"]]]"#),
        ("XRANGE x 1-1 (2-1", r#"[["1-1", ["a", "1"]], ["1-2", ["a", "2"]]]"#),
        ("XRANGE x 3 +", "[]"),
        ("XRANGE x + -", "[]"),
        ("XREVRANGE x + - COUNT 2", r#"[["2-1", ["b", "3", "c", "4"]], ["1-2", ["a", "2"]]]"#),
        ("XREVRANGE x (2-1 -", r#"[["1-2", ["a", "2"]], ["1-1", ["a", "1"]]]"#),
        ("XRANGE x - + COUNT 0", "nil"),
        ("XRANGE x - + COUNT -1", "nil"),
        ("XRANGE x - + COUNT", "-ERR syntax error"),
        ("XRANGE x - + COUNT a", "-ERR value is not an integer or out of range"),
        ("XRANGE x (- +", INVALID_ID),
        ("XRANGE x (18446744073709551615-18446744073709551615 +", "-ERR invalid start ID for the interval"),
        ("XRANGE x - (0-0", "-ERR invalid end ID for the interval"),
        ("XRANGE none - +", "[]"),
        ("XRANGE none - + COUNT 0", "[]"),
        ("XDEL x 1-2 9-9 1-2", ":1"),
        ("XDEL x 1-x", INVALID_ID),
        ("XDEL none 1-1", ":0"),
        ("XDEL x 1-1 2-1", ":2"),
        ("XLEN x", ":0"),
        ("EXISTS x", ":1"),
        (
            "XADD x 2-1 f v",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
    ]);
}

/// Long replies are written after the slots are unlocked, except in a transaction; both ways give the same
/// bytes.
#[test]
fn long_ranges_are_shown_as_short_ones() {
    let lines = [
        "XRANGE x - +",
        "XRANGE x 50 9000 COUNT 5000",
        "XREVRANGE x + -",
        "XREVRANGE x 9000 50 COUNT 5000",
        "XRANGE x 9000 50",
        "XREAD STREAMS x 0",
        "XREAD COUNT 2000 STREAMS x few x none y 0 0 50 0 0",
        "XREADGROUP GROUP g c COUNT 2000 STREAMS x few y x > > > >",
        "XREADGROUP GROUP g c STREAMS x few x y > > 0 >",
        "XREADGROUP GROUP g c COUNT 2000 NOACK STREAMS x >",
        "XPENDING x g",
        "XINFO GROUPS x",
    ];
    for hello in ["HELLO 2", "HELLO 3"] {
        let [mut alone, mut within] = [(); 2].map(|()| {
            let mut server = TestServer::new();
            server.run(hello);
            for (key, len) in [("x", 10_000), ("y", 3000), ("few", 3)] {
                (1..=len).for_each(|ms| drop(server.run(&format!("XADD {key} {ms} name value-{ms}"))));
                server.run(&format!("XGROUP CREATE {key} g 0"));
            }
            server
        });
        for line in lines {
            within.run("MULTI");
            within.run(line);
            let reply = within.raw("EXEC");
            let (header, expected) = reply.split_at(b"*1\r\n".len());
            assert_eq!(header, b"*1\r\n");
            let reply = alone.raw(line);
            assert!(reply == expected, "{hello}, {line}: {} and {} bytes", reply.len(), expected.len());
        }
        assert_eq!(alone.content(), within.content());
        alone.assert_replays();
    }
}

#[test]
fn a_long_range_ends_a_run_of_merged_commands() {
    let mut server = TestServer::new();
    (1..=3000).for_each(|ms| drop(server.run(&format!("XADD x {ms} name value-{ms}"))));
    let lines = ["XLEN x", "XRANGE x - +", "XADD x 5000 f v", "XREVRANGE x + - COUNT 1", "XREVRANGE x + -"];
    let expected: Vec<_> = {
        let mut single = TestServer::new();
        (1..=3000).for_each(|ms| drop(single.run(&format!("XADD x {ms} name value-{ms}"))));
        lines.map(|line| single.run(line)).into()
    };
    // Timed commands are not merged. So that none is timed here, sampling and the slow log are switched off.
    server.executor.until_sample = u32::MAX;
    server.host.observer.slow_log.configure(-1, 128);
    let (runs, replies) = server.run_merged(&lines);
    assert_eq!(runs, [2, 3]);
    assert!(replies == expected);
    server.assert_replays();
}

#[test]
fn long_replies_keep_to_client_lsn_and_client_reply() {
    let mut server = TestServer::new();
    (1..=3000).for_each(|ms| drop(server.run(&format!("XADD x {ms} name value-{ms}"))));
    server.run("HELLO 3");
    let reply = server.raw("XRANGE x - +");
    server.run("CLIENT LSN ON");
    server.run("SET k v");
    assert_eq!(server.raw("XRANGE x - +"), reply);
    server.run("CLIENT REPLY SKIP");
    assert_eq!(server.raw("XRANGE x - +"), b"");
    assert_eq!(server.raw("XRANGE x - +"), reply);
}

#[test]
fn streams_are_trimmed_by_length_and_by_id() {
    let mut server = TestServer::new();
    for seq in 1..=350 {
        server.run(&format!("XADD x 1-{seq} f {seq}"));
    }
    server.check(&[
        ("XTRIM x MAXLEN ~ 120", ":200"),
        ("XTRIM x MAXLEN 145", ":5"),
        ("XRANGE x - + COUNT 1", r#"[["1-206", ["f", "206"]]]"#),
        ("XTRIM x MINID = 1-210", ":4"),
        ("XTRIM x MINID ~ 1-299", ":0"),
        ("XTRIM x MINID ~ 1-302 LIMIT 50", ":0"),
        ("XTRIM x MINID ~ 1-302 LIMIT 0", ":91"),
        ("XADD x MAXLEN 2 1-400 f v", r#""1-400""#),
        ("XLEN x", ":2"),
        ("XADD x MINID 1-400 1-401 f v", r#""1-401""#),
        ("XLEN x", ":2"),
        ("XADD x MAXLEN 0 1-402 f v", r#""1-402""#),
        ("XLEN x", ":0"),
        ("XTRIM x MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
        ("XTRIM x MAXLEN a", "-ERR value is not an integer or out of range"),
        ("XTRIM x MAXLEN 1 LIMIT 5", "-ERR syntax error, LIMIT cannot be used without the special ~ option"),
        ("XTRIM x MAXLEN ~ 1 LIMIT -5", "-ERR The LIMIT argument must be >= 0."),
        ("XTRIM x LIMIT 5", "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        (
            "XTRIM x MAXLEN 1 MINID 1",
            "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ),
        ("XTRIM x LEN 1", "-ERR syntax error"),
        ("XADD x LIMIT 0 1-* f v", "-ERR syntax error, LIMIT cannot be used without the special ~ option"),
        (
            "XADD x LIMIT 1 1-* f v",
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        ("XTRIM x KEEPREF LIMIT 0", "-ERR syntax error, XTRIM must be called with a trimming strategy"),
        ("XTRIM none MAXLEN 0", ":0"),
    ]);
    server.assert_replays();
}

#[test]
fn xsetid_sets_the_counters_of_a_stream() {
    check_protocols(&[
        ("XADD x 1-1 f v", r#""1-1""#, r#""1-1""#),
        ("XADD x 1-2 f v", r#""1-2""#, r#""1-2""#),
        ("XDEL x 1-1", ":1", ":1"),
        ("XSETID x 5-0 ENTRIESADDED 7 MAXDELETEDID 4-0", "+OK", "+OK"),
        (
            "XINFO STREAM x",
            r#"["length", :1, "radix-tree-keys", :1, "radix-tree-nodes", :2, "last-generated-id", "5-0", "max-deleted-entry-id", "4-0", "entries-added", :7, "recorded-first-entry-id", "1-2", "groups", :0, "first-entry", ["1-2", ["f", "v"]], "last-entry", ["1-2", ["f", "v"]]]"#,
            r#"{"length": :1, "radix-tree-keys": :1, "radix-tree-nodes": :2, "last-generated-id": "5-0", "max-deleted-entry-id": "4-0", "entries-added": :7, "recorded-first-entry-id": "1-2", "groups": :0, "first-entry": ["1-2", ["f", "v"]], "last-entry": ["1-2", ["f", "v"]]}"#,
        ),
        (
            "XSETID x 3-0",
            "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ),
        ("XSETID none 3-0", "-ERR no such key", "-ERR no such key"),
        (
            "XSETID x 9-0 ENTRIESADDED 0",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length",
        ),
        (
            "XSETID x 9-0 ENTRIESADDED -1",
            "-ERR entries_added must be positive",
            "-ERR entries_added must be positive",
        ),
        ("XSETID x 9-0 NOW 1", "-ERR syntax error", "-ERR syntax error"),
        (
            "XSETID x 1-0 MAXDELETEDID 2-0",
            "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
            "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        ),
        ("XINFO STREAM none", "-ERR no such key", "-ERR no such key"),
    ]);
}

#[test]
fn several_streams_are_read_on() {
    check_protocols(&[
        ("XADD x 1-1 f 1", r#""1-1""#, r#""1-1""#),
        ("XADD x 1-2 f 2", r#""1-2""#, r#""1-2""#),
        ("XADD y 5-0 f 3", r#""5-0""#, r#""5-0""#),
        (
            "XREAD STREAMS x y 1-1 0",
            r#"[["x", [["1-2", ["f", "2"]]]], ["y", [["5-0", ["f", "3"]]]]]"#,
            r#"{"x": [["1-2", ["f", "2"]]], "y": [["5-0", ["f", "3"]]]}"#,
        ),
        ("XREAD COUNT 1 STREAMS x 0", r#"[["x", [["1-1", ["f", "1"]]]]]"#, r#"{"x": [["1-1", ["f", "1"]]]}"#),
        ("XREAD STREAMS x +", r#"[["x", [["1-2", ["f", "2"]]]]]"#, r#"{"x": [["1-2", ["f", "2"]]]}"#),
        ("XREAD STREAMS x $", "nil", "nil"),
        ("XREAD STREAMS none 0", "nil", "nil"),
    ]);
    let unbalanced =
        "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.";
    check(&[
        ("XREAD STREAMS x y 1", unbalanced),
        ("XREAD COUNT 1 STREAMS", "-ERR syntax error"),
        ("XREAD COUNT x STREAMS x 0", "-ERR value is not an integer or out of range"),
        ("XREAD BLOCK x STREAMS x 0", "-ERR timeout is not an integer or out of range"),
        ("XREAD BLOCK -1 STREAMS x 0", "-ERR timeout is negative"),
        ("XREAD NOW 1 STREAMS x 0", "-ERR syntax error"),
        (
            "XREAD GROUP g c STREAMS x 0",
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        (
            "XREAD NOACK STREAMS x 0",
            "-ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        (
            "XREAD STREAMS x >",
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        ),
        ("SET s 1", "+OK"),
        ("XREAD STREAMS s 0", WRONG_TYPE),
    ]);
}

#[test]
fn a_group_delivers_each_entry_once() {
    check(&[
        (
            "XGROUP CREATE x g 0",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
             option to create an empty stream automatically.",
        ),
        ("XGROUP CREATE x g $ MKSTREAM", "+OK"),
        ("XGROUP CREATE x g 0", "-BUSYGROUP Consumer Group name already exists"),
        ("XADD x 1-1 f 1", r#""1-1""#),
        ("XADD x 1-2 f 2", r#""1-2""#),
        ("XADD x 1-3 f 3", r#""1-3""#),
        ("XGROUP CREATECONSUMER x g a", ":1"),
        ("XGROUP CREATECONSUMER x g a", ":0"),
        ("XGROUP CREATECONSUMER x none a", "-NOGROUP No such consumer group 'none' for key name 'x'"),
    ]);
    check_protocols(&[
        ("XADD x 1-1 f 1", r#""1-1""#, r#""1-1""#),
        ("XADD x 1-2 f 2", r#""1-2""#, r#""1-2""#),
        ("XADD x 1-3 f 3", r#""1-3""#, r#""1-3""#),
        ("XGROUP CREATE x g 0", "+OK", "+OK"),
        (
            "XREADGROUP GROUP g a COUNT 2 STREAMS x >",
            r#"[["x", [["1-1", ["f", "1"]], ["1-2", ["f", "2"]]]]]"#,
            r#"{"x": [["1-1", ["f", "1"]], ["1-2", ["f", "2"]]]}"#,
        ),
        (
            "XREADGROUP GROUP g b STREAMS x >",
            r#"[["x", [["1-3", ["f", "3"]]]]]"#,
            r#"{"x": [["1-3", ["f", "3"]]]}"#,
        ),
        ("XREADGROUP GROUP g b STREAMS x >", "nil", "nil"),
        (
            "XPENDING x g",
            r#"[:3, "1-1", "1-3", [["a", "2"], ["b", "1"]]]"#,
            r#"[:3, "1-1", "1-3", [["a", "2"], ["b", "1"]]]"#,
        ),
        ("after 50", "", ""),
        (
            "XPENDING x g - + 2",
            r#"[["1-1", "a", :50, :1], ["1-2", "a", :50, :1]]"#,
            r#"[["1-1", "a", :50, :1], ["1-2", "a", :50, :1]]"#,
        ),
        ("XDEL x 1-2", ":1", ":1"),
        (
            "XREADGROUP GROUP g a STREAMS x 0",
            r#"[["x", [["1-1", ["f", "1"]], ["1-2", nil]]]]"#,
            r#"{"x": [["1-1", ["f", "1"]], ["1-2", nil]]}"#,
        ),
        ("XPENDING x g IDLE 10 - + 5 a", r#"[["1-2", "a", :50, :1]]"#, r#"[["1-2", "a", :50, :1]]"#),
        ("XPENDING x g 1-1 1-1 5", r#"[["1-1", "a", :0, :2]]"#, r#"[["1-1", "a", :0, :2]]"#),
        ("XPENDING x g - + 5 nobody", "[]", "[]"),
        ("XACK x g 1-1 1-1 7-7", ":1", ":1"),
        ("XACK x none 1-1", ":0", ":0"),
        ("XACK none g 1-1", ":0", ":0"),
        (
            "XINFO GROUPS x",
            r#"[["name", "g", "consumers", :2, "pending", :2, "last-delivered-id", "1-3", "entries-read", :3, "lag", :0]]"#,
            r#"[{"name": "g", "consumers": :2, "pending": :2, "last-delivered-id": "1-3", "entries-read": :3, "lag": :0}]"#,
        ),
        (
            "XINFO CONSUMERS x g",
            r#"[["name", "a", "pending", :1, "idle", :50, "inactive", :50], ["name", "b", "pending", :1, "idle", :50, "inactive", :50]]"#,
            r#"[{"name": "a", "pending": :1, "idle": :50, "inactive": :50}, {"name": "b", "pending": :1, "idle": :50, "inactive": :50}]"#,
        ),
        ("XGROUP DELCONSUMER x g a", ":1", ":1"),
        ("XGROUP DELCONSUMER x g a", ":0", ":0"),
        ("XGROUP SETID x g 0 ENTRIESREAD 0", "+OK", "+OK"),
        (
            "XREADGROUP GROUP g b NOACK STREAMS x >",
            r#"[["x", [["1-1", ["f", "1"]], ["1-3", ["f", "3"]]]]]"#,
            r#"{"x": [["1-1", ["f", "1"]], ["1-3", ["f", "3"]]]}"#,
        ),
        ("XPENDING x g", r#"[:1, "1-3", "1-3", [["b", "1"]]]"#, r#"[:1, "1-3", "1-3", [["b", "1"]]]"#),
        ("XGROUP DESTROY x g", ":1", ":1"),
        ("XGROUP DESTROY x g", ":0", ":0"),
        (
            "XREADGROUP GROUP g b STREAMS x >",
            "-NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option",
            "-NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
    ]);
}

#[test]
fn pending_entries_of_other_consumers_can_be_claimed() {
    check_one(&[
        ("XADD x 1-1 f 1", r#""1-1""#),
        ("XADD x 1-2 f 2", r#""1-2""#),
        ("XADD x 1-3 f 3", r#""1-3""#),
        ("XGROUP CREATE x g 0", "+OK"),
        (
            "XREADGROUP GROUP g a STREAMS x >",
            r#"[["x", [["1-1", ["f", "1"]], ["1-2", ["f", "2"]], ["1-3", ["f", "3"]]]]]"#,
        ),
        ("after 100", ""),
        ("XCLAIM x g b 500 1-1", "[]"),
        ("XCLAIM x g b 100 1-1 1-9", r#"[["1-1", ["f", "1"]]]"#),
        ("XCLAIM x g b 0 1-2 JUSTID", r#"["1-2"]"#),
        ("XPENDING x g - + 9", r#"[["1-1", "b", :0, :2], ["1-2", "b", :0, :1], ["1-3", "a", :100, :1]]"#),
        ("XCLAIM x g b 0 1-1 IDLE 70 RETRYCOUNT 9 JUSTID LASTID 1-8", r#"["1-1"]"#),
        ("XPENDING x g 1-1 1-1 9", r#"[["1-1", "b", :70, :9]]"#),
        ("XDEL x 1-3", ":1"),
        ("XCLAIM x g b 0 1-3", "[]"),
        ("XPENDING x g", r#"[:2, "1-1", "1-2", [["b", "2"]]]"#),
        ("XACK x g 1-1", ":1"),
        ("XCLAIM x g c 0 1-1 JUSTID", "[]"),
        ("XCLAIM x g c 0 1-1 FORCE JUSTID", r#"["1-1"]"#),
        ("XAUTOCLAIM x g d 0 0 COUNT 1", r#"["1-2", [["1-1", ["f", "1"]]], []]"#),
        ("XDEL x 1-2", ":1"),
        ("XAUTOCLAIM x g d 0 1-2 JUSTID", r#"["0-0", [], ["1-2"]]"#),
        ("XPENDING x g", r#"[:1, "1-1", "1-1", [["d", "1"]]]"#),
        ("XCLAIM x none d 0 1-1", NO_GROUP),
        ("XAUTOCLAIM x none d 0 0", NO_GROUP),
        ("XPENDING x none", NO_GROUP),
        ("XCLAIM x g d a 1-1", "-ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM x g d 0 1-1 NOW", "-ERR Unrecognized XCLAIM option 'NOW'"),
        ("XCLAIM x g d 0 1-1 IDLE a", "-ERR Invalid IDLE option argument for XCLAIM"),
        ("XAUTOCLAIM x g d a 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM x g d 0 0 COUNT 0", "-ERR COUNT must be > 0"),
        ("XAUTOCLAIM x g d 0 0 NOW", "-ERR syntax error"),
        ("XPENDING x g - +", "-ERR syntax error"),
        ("XPENDING x g - + x", "-ERR value is not an integer or out of range"),
    ]);
}

#[test]
fn xdelex_keeps_or_deletes_the_references_of_groups() {
    check_one(&[
        ("XADD x 1-1 f 1", r#""1-1""#),
        ("XADD x 1-2 f 2", r#""1-2""#),
        ("XADD x 1-3 f 3", r#""1-3""#),
        ("XADD x 1-4 f 4", r#""1-4""#),
        ("XGROUP CREATE x g 0", "+OK"),
        (
            "XREADGROUP GROUP g a COUNT 2 STREAMS x >",
            r#"[["x", [["1-1", ["f", "1"]], ["1-2", ["f", "2"]]]]]"#,
        ),
        ("XDELEX x ACKED IDS 3 1-1 1-3 9-9", "[:2, :2, :2]"),
        ("XACK x g 1-1", ":1"),
        ("XTRIM x MAXLEN 1 ACKED", ":1"),
        ("XRANGE x - + COUNT 1", r#"[["1-2", ["f", "2"]]]"#),
        ("XDELEX x DELREF IDS 2 1-2 1-2", "[:1, :-1]"),
        ("XPENDING x g", "[:0, nil, nil, nil]"),
        ("XREADGROUP GROUP g a STREAMS x >", r#"[["x", [["1-3", ["f", "3"]], ["1-4", ["f", "4"]]]]]"#),
        ("XGROUP CREATE x h 0", "+OK"),
        ("XACKDEL x g ACKED IDS 1 1-3", "[:2]"),
        ("XACKDEL x g IDS 2 1-4 1-3", "[:1, :-1]"),
        ("XLEN x", ":1"),
        ("XADD x DELREF MAXLEN 1 1-5 f 5", r#""1-5""#),
        ("XDELEX x IDS 0 1-5", "-ERR Number of IDs must be a positive integer"),
        ("XDELEX x IDS 2 1-5", "-ERR The `numids` parameter must match the number of arguments"),
        ("XDELEX x KEEPREF 1 2", "-ERR syntax error"),
        ("XDELEX x ACKED ACKED IDS 1 9-9", "-ERR syntax error"),
        ("XDELEX x ACKED DELREF IDS 1 9-9", "-ERR syntax error"),
        ("XDELEX x IDS 1 9-9 KEEPREF KEEPREF", "-ERR syntax error"),
        ("XDELEX x IDS 1 8-8 IDS 2 9-9 9-8", "[:-1, :-1]"),
        ("XACKDEL x g KEEPREF ACKED IDS 1 9-9", "-ERR syntax error"),
        ("XTRIM x MAXLEN 100 ACKED ACKED", "-ERR syntax error"),
        ("XADD x KEEPREF KEEPREF * a b", "-ERR Invalid stream ID specified as stream command argument"),
        ("XDELEX none IDS 1 1-1", "[:-1]"),
        ("XACKDEL x none IDS 1 1-1", "[:-1]"),
    ]);
}

#[test]
fn xreadgroup_claims_entries_that_are_idle_for_long() {
    check_one(&[
        ("XADD x 1-1 f 1", r#""1-1""#),
        ("XGROUP CREATE x g 0", "+OK"),
        ("XREADGROUP GROUP g a STREAMS x >", r#"[["x", [["1-1", ["f", "1"]]]]]"#),
        ("XADD x 1-2 f 2", r#""1-2""#),
        ("after 100", ""),
        (
            "XREADGROUP GROUP g b CLAIM 100 STREAMS x >",
            r#"[["x", [["1-1", ["f", "1"], :100, :1], ["1-2", ["f", "2"], :0, :0]]]]"#,
        ),
        ("XPENDING x g - + 9", r#"[["1-1", "b", :0, :2], ["1-2", "b", :0, :1]]"#),
        ("XREADGROUP GROUP g b CLAIM 100 STREAMS x >", "nil"),
        ("XREADGROUP GROUP g b CLAIM -1 STREAMS x >", "-ERR min-idle-time must be a positive integer"),
    ]);
}

#[test]
fn everything_about_a_stream_is_shown_at_once() {
    let mut server = TestServer::new();
    server.check(&[
        ("XADD x 1-1 f 1", r#""1-1""#),
        ("XGROUP CREATE x g 0", "+OK"),
        ("XREADGROUP GROUP g a STREAMS x >", r#"[["x", [["1-1", ["f", "1"]]]]]"#),
    ]);
    let now = START_MS;
    let group = format!(
        r#"["name", "g", "last-delivered-id", "1-1", "entries-read", :1, "lag", :0, "pel-count", :1, "pending", [["1-1", "a", :{now}, :1]], "consumers", [["name", "a", "seen-time", :{now}, "active-time", :{now}, "pel-count", :1, "pending", [["1-1", :{now}, :1]]]]]"#
    );
    let expected = format!(
        r#"["length", :1, "radix-tree-keys", :1, "radix-tree-nodes", :2, "last-generated-id", "1-1", "max-deleted-entry-id", "0-0", "entries-added", :1, "recorded-first-entry-id", "1-1", "entries", [["1-1", ["f", "1"]]], "groups", [{group}]]"#
    );
    server.check(&[
        ("XINFO STREAM x FULL", &expected),
        ("XINFO STREAM x FULL COUNT 1", &expected),
        ("XINFO STREAM x FULL NOW 1", "-ERR syntax error"),
        ("XINFO GROUPS none", "-ERR no such key"),
        ("XINFO CONSUMERS x none", "-NOGROUP No such consumer group 'none' for key name 'x'"),
    ]);
}

#[test]
fn a_copied_consumer_has_its_times_and_pending_entries() {
    let mut server = TestServer::new();
    let (seen, active) = (START_MS - 500, START_MS - 700);
    server.run("XADD x 5-1 f v");
    server.run("XGROUP CREATE x g 5-1");
    server.check(&[
        (&format!("XGROUP RESTORECONSUMER x g a {seen} {active} 3-1 {active} 2 5-1 {seen} 1"), ":2"),
        (&format!("XGROUP RESTORECONSUMER x g b {seen} -1"), ":0"),
        ("XPENDING x g - + 9", r#"[["3-1", "a", :700, :2], ["5-1", "a", :500, :1]]"#),
        (
            "XINFO CONSUMERS x g",
            r#"[["name", "a", "pending", :2, "idle", :500, "inactive", :700], ["name", "b", "pending", :0, "idle", :500, "inactive", :-1]]"#,
        ),
        // More pending entries of the same consumer.
        (&format!("XGROUP RESTORECONSUMER x g a {seen} {active} 4-1 {seen} 9"), ":1"),
        ("XPENDING x g", r#"[:3, "3-1", "5-1", [["a", "3"]]]"#),
        (
            "XGROUP RESTORECONSUMER x g a 1 1 4-1 1",
            "-ERR unknown subcommand or wrong number of arguments for 'RESTORECONSUMER'. Try XGROUP HELP.",
        ),
        ("XGROUP RESTORECONSUMER x g a 1 1 4-1 x 1", "-ERR value is not an integer or out of range"),
        ("XGROUP RESTORECONSUMER x none a 1 1", "-NOGROUP No such consumer group 'none' for key name 'x'"),
    ]);
    server.assert_replays();
}

#[test]
fn a_count_of_read_entries_ends_at_the_largest_that_the_log_can_hold() {
    let mut writer = rdb::Writer::new();
    let mut node = rdb::StreamNode::new((1, 0), [&b"f"[..]].into_iter());
    for ms in 1..4 {
        node.add((ms, 0), [("f", "v")].into_iter());
    }
    writer.begin_stream(1);
    writer.stream_node(&node);
    let head = rdb::StreamHead { last_id: (3, 0), entries_added: u64::MAX, ..rdb::StreamHead::default() };
    writer.stream_head(head, 3, (1, 0), 1);
    writer.stream_group(b"g", (1, 0), Some(u64::MAX - 1), 0);
    writer.number(0);
    let mut server = TestServer::new();
    assert_eq!(server.run_args(&[b"RESTORE", b"x", b"0", &rdb::dump(writer.into_bytes())]), "+OK");
    server.check(&[
        ("XREADGROUP GROUP g a COUNT 1 STREAMS x >", r#"[["x", [["2-0", ["f", "v"]]]]]"#),
        ("XREADGROUP GROUP g a COUNT 1 STREAMS x >", r#"[["x", [["3-0", ["f", "v"]]]]]"#),
    ]);
    server.assert_replays();
}

#[test]
fn a_consumer_that_asks_in_vain_is_logged_as_seen_once_a_second() {
    let mut server = TestServer::new();
    server.run("XGROUP CREATE x g $ MKSTREAM");
    server.run("XREADGROUP GROUP g a STREAMS x >");
    let before = server.appended_lsn();
    server.check(&[("after 999", ""), ("XREADGROUP GROUP g a STREAMS x >", "nil")]);
    assert_eq!(server.appended_lsn(), before);
    server.check(&[("after 1", ""), ("XREADGROUP GROUP g a STREAMS x >", "nil")]);
    assert!(server.appended_lsn() > before);
    server
        .check(&[("XINFO CONSUMERS x g", r#"[["name", "a", "pending", :0, "idle", :0, "inactive", :-1]]"#)]);
    server.assert_replays();
}

#[test]
fn commands_on_streams_notify_each_event_once() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse("EA").expect("letters");
    for (command, expected) in [
        ("XADD x 1-1 f v", "xadd x"),
        ("XADD x MAXLEN 1 1-2 f v", "xadd x, xtrim x"),
        ("XADD x MAXLEN 5 1-3 f v", "xadd x"),
        ("XDEL x 9-9", ""),
        ("XDEL x 1-3", "xdel x"),
        ("XTRIM x MAXLEN 5", ""),
        ("XTRIM x MAXLEN 0", "xtrim x"),
        ("XSETID x 2-0", "xsetid x"),
        ("XGROUP CREATE x g 0", "xgroup-create x"),
        ("XGROUP SETID x g 0", "xgroup-setid x"),
        ("XREADGROUP GROUP g a STREAMS x >", "xgroup-createconsumer x"),
        ("XREADGROUP GROUP g a STREAMS x >", ""),
        ("XGROUP CREATECONSUMER x g b", "xgroup-createconsumer x"),
        ("XGROUP DELCONSUMER x g b", "xgroup-delconsumer x"),
        ("XGROUP DESTROY x g", "xgroup-destroy x"),
        ("XGROUP DESTROY x g", ""),
    ] {
        server.run(command);
        assert_eq!(server.events().join(", "), expected, "{command}");
    }
}

#[test]
fn the_lag_stays_known_if_only_the_oldest_entries_are_deleted() {
    let mut server = TestServer::new();
    for ms in 1..=4 {
        server.run(&format!("XADD s {ms}-1 f v"));
    }
    server.run("XGROUP CREATE s g 0-0 ENTRIESREAD 0");
    server.run("XDEL s 2-1");
    assert!(server.run("XINFO GROUPS s").ends_with(r#""lag", nil]]"#), "one is missing between others");
    server.run("XTRIM s MINID 3");
    assert!(server.run("XINFO GROUPS s").ends_with(r#""lag", :2]]"#), "what is missing is before all others");
    let invalid = "-ERR Invalid stream ID specified as stream command argument";
    server.check(&[("XTRIM s MINID -", invalid), ("XADD s MINID + 9-1 f v", invalid)]);
}

/// The replies are those of Redis 8.2.
#[test]
fn what_was_trimmed_or_deleted_is_not_waited_for() {
    let groups = |server: &mut TestServer| server.run("XINFO GROUPS s");
    let mut server = TestServer::new();
    for ms in 1..=5 {
        server.run(&format!("XADD s {ms} f v"));
    }
    server.run("XGROUP CREATE s g 0");
    server.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    server.run("XTRIM s MAXLEN 1");
    assert!(groups(&mut server).ends_with(r#""entries-read", :1, "lag", :1]]"#));
    server.run("XREADGROUP GROUP g c STREAMS s >");
    assert!(groups(&mut server).ends_with(r#""entries-read", :5, "lag", :0]]"#));

    server.run("XADD s 6 f v");
    server.run("XADD s 7 f v");
    server.run("XADD s 8 f v");
    server.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    server.run("XDEL s 7");
    server.run("XREADGROUP GROUP g c STREAMS s >");
    assert!(groups(&mut server).ends_with(r#""entries-read", :8, "lag", :0]]"#));

    server.run("XADD s 9 f v");
    server.run("XTRIM s MAXLEN 0");
    assert!(groups(&mut server).ends_with(r#""entries-read", :8, "lag", :0]]"#), "nothing is left to read");
    server.run("XGROUP SETID s g 9 ENTRIESREAD 100");
    assert!(groups(&mut server).ends_with(r#""entries-read", :9, "lag", :0]]"#));
}

#[test]
fn references_to_deleted_entries_count() {
    check_one(&[
        ("XADD s 1 f v", r#""1-0""#),
        ("XADD s 2 f v", r#""2-0""#),
        ("XGROUP CREATE s g 0", "+OK"),
        ("XREADGROUP GROUP g c STREAMS s >", r#"[["s", [["1-0", ["f", "v"]], ["2-0", ["f", "v"]]]]]"#),
        ("XDEL s 2", ":1"),
        ("XDELEX s ACKED IDS 3 1 2 9", "[:2, :2, :2]"),
        ("XACK s g 1 2", ":2"),
        ("XDELEX s ACKED IDS 2 1 2", "[:1, :-1]"),
        ("XDELEX none IDS 1 x", "[:-1]"),
        ("XACKDEL s none IDS 1 x", "[:-1]"),
        ("SET t x", "+OK"),
        ("XDELEX t IDS 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("XACKDEL t g IDS 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn options_of_groups_are_given_once() {
    let wrong =
        |name| format!("-ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP.");
    check(&[
        ("XGROUP CREATE s g 0 MKSTREAM MKSTREAM ENTRIESREAD 3", &wrong("CREATE")),
        ("EXISTS s", ":0"),
        ("XGROUP CREATE s g 0 MKSTREAM ENTRIESREAD 3", "+OK"),
        ("XGROUP SETID s g 0 ENTRIESREAD 3 ENTRIESREAD 4", &wrong("SETID")),
        ("XGROUP SETID s g 0 ENTRIESREAD 4", "+OK"),
    ]);
}

/// All remaining entries are after the position of the group, regardless of deletions before it.
#[test]
fn a_group_before_all_entries_lags_by_their_number() {
    let mut server = TestServer::new();
    server.check(&[
        ("XADD s 5-0 f v", r#""5-0""#),
        ("XGROUP CREATE s g 0-4", "+OK"),
        ("XADD s 16-3 f v", r#""16-3""#),
        ("XDEL s 5-0", ":1"),
    ]);
    assert!(server.run("XINFO GROUPS s").ends_with(r#""entries-read", nil, "lag", :1]]"#));
    server.run("XADD s 17-0 f v");
    server.run("XADD s 18-0 f v");
    assert!(server.run("XINFO GROUPS s").ends_with(r#""entries-read", nil, "lag", :3]]"#));
    server.run("XDEL s 17-0");
    assert!(server.run("XINFO GROUPS s").ends_with(r#""entries-read", nil, "lag", nil]]"#));
}

#[test]
fn streams_are_copied_and_moved_with_their_groups() {
    let mut server = TestServer::new();
    server.check(&[
        ("XADD x 5-1 a 1 b two", r#""5-1""#),
        ("XADD x 5-2 a 1 b 2", r#""5-2""#),
        ("XADD x 5-3 c 3", r#""5-3""#),
        ("XDEL x 5-2", ":1"),
        ("XGROUP CREATE x g 0", "+OK"),
        ("XREADGROUP GROUP g me COUNT 1 STREAMS x >", r#"[["x", [["5-1", ["a", "1", "b", "two"]]]]]"#),
        ("COPY x copy", ":1"),
    ]);
    let wire::Value::Bulk(payload) = server.value("DUMP x") else { panic!("a payload") };
    assert_eq!(server.run_args(&[b"RESTORE", b"restored", b"0", &payload]), "+OK");
    let content = server.content();
    let at = |key: &str| content[&(0, key.as_bytes().to_vec())].0.clone();
    assert_eq!(at("x"), at("copy"));
    assert_eq!(at("x"), at("restored"));
    server.check(&[("RENAME x moved", "+OK")]);
    assert_eq!(server.content()[&(0, b"moved".to_vec())].0, at("x"));
    server.assert_replays();
}
