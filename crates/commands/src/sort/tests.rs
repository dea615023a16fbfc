//! SORT on all types, with and without patterns.

use crate::testing::{TestServer, check};

#[test]
fn numbers_are_sorted() {
    check(&[
        ("RPUSH l 3 1 -2.5 10 1e1", ":5"),
        ("SORT l", r#"["-2.5", "1", "3", "10", "1e1"]"#),
        ("SORT l DESC", r#"["1e1", "10", "3", "1", "-2.5"]"#),
        ("SORT l desc asc limit 1 2", r#"["1", "3"]"#),
        ("SORT l LIMIT 1 2 LIMIT -3 1", r#"["-2.5"]"#),
        ("SORT l LIMIT 9 1", "[]"),
        ("SORT_RO l LIMIT 3 9", r#"["10", "1e1"]"#),
        ("SORT nokey", "[]"),
        ("SADD s 3 1 2", ":3"),
        ("SORT s DESC", r#"["3", "2", "1"]"#),
        ("ZADD z 1 30 2 20", ":2"),
        ("SORT z", r#"["20", "30"]"#),
        ("LRANGE l 0 -1", r#"["3", "1", "-2.5", "10", "1e1"]"#),
    ]);
}

#[test]
fn weights_are_numbers_without_spaces() {
    let wrong = "-ERR One or more scores can't be converted into double";
    let mut table = vec![
        (r#"RPUSH e "" 1 -1"#, ":3"),
        ("SORT e", r#"["-1", "", "1"]"#),
        (r#"RPUSH f 2 1 inf -INF 1e-300"#, ":5"),
        ("SORT f", r#"["-INF", "1e-300", "1", "2", "inf"]"#),
    ];
    let refused = ["0x1F", "0x+1", r#"" 2""#, "x", "nan", r#""1 ""#, r#"" ""#, "1e400", "4e-320", "--1"];
    let steps: Vec<_> =
        refused.iter().map(|text| (format!("RPUSH k 1 {text}"), format!("RPUSH k2 {text}"))).collect();
    for (both, alone) in &steps {
        table.extend([(both.as_str(), ":2"), ("SORT k", wrong), ("SORT k STORE d", wrong), ("DEL k", ":1")]);
        table.extend([(alone.as_str(), ":1"), ("SORT_RO k2", wrong), ("DEL k2", ":1")]);
    }
    check(&table);
}

#[test]
fn bytes_are_sorted() {
    check(&[
        ("RPUSH l b 10 a 9 A aa", ":6"),
        ("SORT l ALPHA", r#"["10", "9", "A", "a", "aa", "b"]"#),
        ("SORT l ALPHA DESC LIMIT 0 2", r#"["b", "aa"]"#),
        ("SORT l", "-ERR One or more scores can't be converted into double"),
    ]);
}

#[test]
fn other_keys_decide_the_order() {
    check(&[
        ("RPUSH l 3 1 2 10", ":4"),
        ("MSET w_1 3 w_2 2 w_10 -1 w_text x", "+OK"),
        ("SORT l BY w_*", r#"["10", "3", "2", "1"]"#),
        ("SORT l BY w_* DESC LIMIT 0 2", r#"["1", "2"]"#),
        ("SORT l BY w_* ALPHA", r#"["3", "10", "2", "1"]"#),
        ("HSET h_1 f 9", ":1"),
        ("HSET h_2 f 1", ":1"),
        ("SORT l BY h_*->f", r#"["10", "3", "2", "1"]"#),
        ("SORT l BY h_*", r#"["1", "10", "2", "3"]"#),
        ("SORT l BY w_*->f", r#"["1", "10", "2", "3"]"#),
        ("SORT_RO l BY w_*", r#"["10", "3", "2", "1"]"#),
        ("RPUSH l text", ":5"),
        ("SORT l BY w_*", "-ERR One or more scores can't be converted into double"),
        ("SORT l BY w_* ALPHA LIMIT 4 1", r#"["text"]"#),
    ]);
}

#[test]
fn other_values_are_shown() {
    check(&[
        ("RPUSH l 2 1 3", ":3"),
        ("MSET w_1 one w_2 two", "+OK"),
        ("HSET h_1 f 9 g 5", ":2"),
        ("SORT l GET w_*", r#"["one", "two", nil]"#),
        (
            "SORT l GET # GET w_* GET h_*->f GET h_*->x",
            r#"["1", "one", "9", nil, "2", "two", nil, nil, "3", nil, nil, nil]"#,
        ),
        ("SORT l GET w_1 GET h_*-> GET h_*", "[nil, nil, nil, nil, nil, nil, nil, nil, nil]"),
        ("SORT l BY nosort GET w_* GET #", r#"["two", "2", "one", "1", nil, "3"]"#),
        ("SORT l GET w_* STORE d", ":3"),
        ("LRANGE d 0 -1", r#"["one", "two", ""]"#),
        ("PEXPIRE w_1 5", ":1"),
        ("after 5", ""),
        ("SORT l GET w_* LIMIT 0 2", r#"[nil, "two"]"#),
    ]);
}

#[test]
fn without_an_asterisk_nothing_is_sorted() {
    check(&[
        ("RPUSH l 3 1 2 10", ":4"),
        ("SORT l BY nosort", r#"["3", "1", "2", "10"]"#),
        ("SORT l BY nosort DESC", r#"["10", "2", "1", "3"]"#),
        ("SORT l BY nosort DESC LIMIT 1 2", r#"["2", "1"]"#),
        ("SORT l BY nosort LIMIT 1 2", r#"["1", "2"]"#),
        ("SORT l BY nosort BY w_*", r#"["3", "1", "2", "10"]"#),
        ("ZADD z 1 c 2 b 3 a", ":3"),
        ("SORT z BY nosort", r#"["c", "b", "a"]"#),
        ("SORT z BY nosort DESC LIMIT 0 1", r#"["a"]"#),
        ("SORT z BY nosort DESC LIMIT 1 9", r#"["b", "c"]"#),
        ("SORT z BY nosort LIMIT 1 1", r#"["b"]"#),
        ("SADD s 30 4 100", ":3"),
        ("SORT s BY nosort LIMIT 1 1", r#"["30"]"#),
        // For STORE, the members of a set are sorted by bytes.
        ("SORT s BY nosort STORE d", ":3"),
        ("LRANGE d 0 -1", r#"["100", "30", "4"]"#),
        ("SORT s BY nosort DESC LIMIT 0 2 STORE d", ":2"),
        ("LRANGE d 0 -1", r#"["4", "30"]"#),
    ]);
}

#[test]
fn a_script_gets_the_members_of_a_set_in_one_order() {
    let script = |rest: &str| format!("EVAL \"return redis.call('sort', 's', 'by', 'nosort'{rest})\" 0");
    check(&[
        ("SADD s b a c 10 2", ":5"),
        (&script(""), r#"["10", "2", "a", "b", "c"]"#),
        (&script(", 'desc'"), r#"["c", "b", "a", "2", "10"]"#),
        (&script(", 'limit', 1, 2"), r#"["2", "a"]"#),
        (&script(", 'get', '#', 'get', 'w_*'"), r#"["10", nil, "2", nil, "a", nil, "b", nil, "c", nil]"#),
        ("EVAL_RO \"return redis.call('sort_ro', 's', 'by', 'nosort')\" 0", r#"["10", "2", "a", "b", "c"]"#),
    ]);
}

#[test]
fn a_stored_result_replaces_a_value_of_any_type() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = engine::EventClass::parse("KA").expect("letters");
    server.check(&[("RPUSH l 3 1 2", ":3"), ("SET d text EX 10", "+OK")]);
    server.events();
    for (line, reply, events) in [
        ("SORT l STORE d", ":3", "sortstore d"),
        ("SORT l DESC STORE nowhere STORE l", ":3", "sortstore l"),
        ("SORT nokey STORE d", ":0", "del d"),
        ("SORT l LIMIT 9 1 STORE d", ":0", ""),
    ] {
        assert_eq!((server.run(line), server.events().join(", ")), (reply.into(), events.into()), "{line}");
    }
    server.check(&[
        ("LRANGE l 0 -1", r#"["3", "2", "1"]"#),
        ("EXISTS d nowhere", ":0"),
        ("COMMAND GETKEYS SORT l BY w_* STORE x STORE y", r#"["l", "y"]"#),
        ("COMMAND GETKEYS SORT_RO l BY w_*", r#"["l"]"#),
    ]);
    server.assert_replays();
}

#[test]
fn patterns_work_in_transactions() {
    check(&[
        ("MULTI", "+OK"),
        ("MSET w_1 2 w_2 1", "+QUEUED"),
        ("RPUSH l 1 2", "+QUEUED"),
        ("SORT l BY w_* GET w_* STORE d", "+QUEUED"),
        ("LRANGE d 0 -1", "+QUEUED"),
        ("EXEC", r#"[+OK, :2, :2, ["1", "2"]]"#),
    ]);
}

#[test]
fn invalid_calls_are_refused() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    check(&[
        ("SET s x", "+OK"),
        ("HSET h a 1", ":1"),
        ("SORT s", wrong),
        ("SORT h BY nosort", wrong),
        ("SORT s STORE d", wrong),
        ("SORT s FOO", "-ERR syntax error"),
        ("SORT l LIMIT 1", "-ERR syntax error"),
        ("SORT l LIMIT x 2 FOO", "-ERR value is not an integer or out of range"),
        ("SORT l LIMIT 1 x", "-ERR value is not an integer or out of range"),
        ("SORT l GET", "-ERR syntax error"),
        ("SORT l BY", "-ERR syntax error"),
        ("SORT l STORE", "-ERR syntax error"),
        ("SORT_RO l STORE d", "-ERR syntax error"),
        ("SORT", "-ERR wrong number of arguments for 'sort' command"),
        ("EXISTS d", ":0"),
    ]);
}

#[test]
fn the_bytes_that_get_adds_to_a_reply_are_bounded() {
    let mut server = TestServer::new();
    server.run_args(&[b"SET", b"w_1", &[b'x'; 1 << 16]]);
    server.run("RPUSH l 1 1 1 1 1");
    assert_eq!(server.run("SORT l GET w_* GET w_* GET w_* STORE d"), ":15");
    server.check(&[(
        "SORT l GET w_* GET w_* GET w_* GET w_*",
        "-ERR the values that GET names are too many bytes for one reply",
    )]);
    server.assert_replays();
}
