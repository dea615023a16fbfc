//! Combinations, compared with the replies of Redis.

use crate::testing::{TestServer, WRONG_TYPE, check, check_protocols};

const ABC: (&str, &str) = ("ZADD x 1 a 2 b 3 c", ":3");
const SYNTAX: &str = "-ERR syntax error";

#[test]
fn unions_add_scores_or_choose_among_them() {
    check_protocols(&[
        ("ZADD x 1 a 2 b 3 c", ":3", ":3"),
        ("ZADD y 10 b 20 c 30 d", ":3", ":3"),
        ("ZUNION 2 x y", r#"["a", "b", "c", "d"]"#, r#"["a", "b", "c", "d"]"#),
        ("ZUNIONSTORE d 2 x y", ":4", ":4"),
        ("ZMSCORE d a b c d", r#"["1", "12", "23", "30"]"#, "[,1, ,12, ,23, ,30]"),
        ("ZUNIONSTORE d 2 x y AGGREGATE MIN", ":4", ":4"),
        ("ZMSCORE d a b c d", r#"["1", "2", "3", "30"]"#, "[,1, ,2, ,3, ,30]"),
        ("ZUNIONSTORE d 2 x y aggregate max weights 20 1", ":4", ":4"),
        ("ZMSCORE d a b c d", r#"["20", "40", "60", "30"]"#, "[,20, ,40, ,60, ,30]"),
        ("ZUNION 2 x none", r#"["a", "b", "c"]"#, r#"["a", "b", "c"]"#),
        ("ZUNION 1 x WEIGHTS -1", r#"["c", "b", "a"]"#, r#"["c", "b", "a"]"#),
        (
            "ZUNION 1 x WITHSCORES",
            r#"["a", "1", "b", "2", "c", "3"]"#,
            r#"[["a", ,1], ["b", ,2], ["c", ,3]]"#,
        ),
        ("ZUNION 1 none", "[]", "[]"),
        ("ZUNIONSTORE x 2 x x", ":3", ":3"),
        ("ZSCORE x c", r#""6""#, ",6"),
        ("ZUNIONSTORE d 1 none", ":0", ":0"),
        ("EXISTS d", ":0", ":0"),
    ]);
}

#[test]
fn intersections_and_differences() {
    check_protocols(&[
        ("ZADD x 1 a 2 b 3 c", ":3", ":3"),
        ("ZADD y 10 b 20 c 30 d", ":3", ":3"),
        ("ZINTER 2 x y WITHSCORES", r#"["b", "12", "c", "23"]"#, r#"[["b", ,12], ["c", ,23]]"#),
        ("ZINTER 2 x y WEIGHTS 2 0.5 WITHSCORES", r#"["b", "9", "c", "16"]"#, r#"[["b", ,9], ["c", ,16]]"#),
        ("ZINTER 2 x none", "[]", "[]"),
        ("ZINTERSTORE d 2 x y AGGREGATE MAX", ":2", ":2"),
        ("ZRANGE d 0 -1 WITHSCORES", r#"["b", "10", "c", "20"]"#, r#"[["b", ,10], ["c", ,20]]"#),
        ("ZINTERCARD 2 x y", ":2", ":2"),
        ("ZINTERCARD 2 x y LIMIT 1", ":1", ":1"),
        ("ZINTERCARD 2 x y LIMIT 0", ":2", ":2"),
        ("ZINTERCARD 2 x none", ":0", ":0"),
        ("ZDIFF 2 x y WITHSCORES", r#"["a", "1"]"#, r#"[["a", ,1]]"#),
        ("ZDIFF 2 none x", "[]", "[]"),
        ("ZDIFF 3 x none y", r#"["a"]"#, r#"["a"]"#),
        ("ZDIFF 2 x x", "[]", "[]"),
        ("ZDIFFSTORE d 2 y x", ":1", ":1"),
        ("ZRANGE d 0 -1 WITHSCORES", r#"["d", "30"]"#, r#"[["d", ,30]]"#),
        ("ZDIFFSTORE d 2 x x", ":0", ":0"),
        ("EXISTS d", ":0", ":0"),
    ]);
}

#[test]
fn sets_are_sorted_sets_of_score_one() {
    check(&[
        ABC,
        ("SADD s b c 5 b", ":3"),
        ("ZUNIONSTORE d 2 x s WEIGHTS 1 10", ":4"),
        ("ZRANGEBYSCORE d 10 10", r#"["5"]"#),
        ("ZRANGEBYSCORE d 12 13", r#"["b", "c"]"#),
        ("ZINTER 2 s x", r#"["b", "c"]"#),
        ("ZDIFF 2 x s", r#"["a"]"#),
        ("ZDIFF 2 s x", r#"["5"]"#),
        ("ZINTERCARD 2 s x", ":2"),
        ("ZUNIONSTORE s 1 s", ":3"),
        ("TYPE s", "+zset"),
    ]);
}

#[test]
fn infinities_that_cancel_each_other_out_are_zero() {
    check_protocols(&[
        ("ZADD x inf a 1 b", ":2", ":2"),
        ("ZADD y -inf a inf c", ":2", ":2"),
        ("ZINTER 2 x y WITHSCORES", r#"["a", "0"]"#, r#"[["a", ,0]]"#),
        ("ZUNIONSTORE d 2 x y", ":3", ":3"),
        ("ZSCORE d a", r#""0""#, ",0"),
        ("ZUNIONSTORE d 1 x WEIGHTS 0", ":2", ":2"),
        ("ZSCORE d a", r#""0""#, ",0"),
        ("ZINTERSTORE d 2 x y WEIGHTS 1 0 AGGREGATE MAX", ":1", ":1"),
        ("ZSCORE d a", r#""inf""#, ",inf"),
    ]);
}

#[test]
fn combinations_refuse_the_arguments_that_redis_refuses() {
    check(&[
        ABC,
        ("SET s 1", "+OK"),
        ("ZUNION x x", "-ERR value is not an integer or out of range"),
        ("ZUNION 0 x", "-ERR at least 1 input key is needed for 'zunion' command"),
        ("ZUNIONSTORE d -1 x", "-ERR at least 1 input key is needed for 'zunionstore' command"),
        ("ZINTERCARD 0 x", "-ERR at least 1 input key is needed for 'zintercard' command"),
        ("ZUNION 2 x", SYNTAX),
        ("ZUNION 9223372036854775807 x", SYNTAX),
        ("ZUNION 1 x WEIGHTS", SYNTAX),
        ("ZUNION 2 x x WEIGHTS 1", SYNTAX),
        ("ZUNION 1 x WEIGHTS x", "-ERR weight value is not a float"),
        ("ZUNION 1 x WEIGHTS nan", "-ERR weight value is not a float"),
        ("ZUNION 1 x AGGREGATE", SYNTAX),
        ("ZUNION 1 x AGGREGATE AVG", SYNTAX),
        ("ZUNION 1 x LIMIT 1", SYNTAX),
        ("ZUNIONSTORE d 1 x WITHSCORES", SYNTAX),
        ("ZDIFF 1 x WEIGHTS 1", SYNTAX),
        ("ZDIFFSTORE d 1 x AGGREGATE SUM", SYNTAX),
        ("ZINTERCARD 1 x WITHSCORES", SYNTAX),
        ("ZINTERCARD 1 x LIMIT", SYNTAX),
        ("ZINTERCARD 1 x LIMIT -1", "-ERR LIMIT can't be negative"),
        ("ZINTERCARD 1 x LIMIT x", "-ERR LIMIT can't be negative"),
        ("ZUNION 2 x s WEIGHTS", WRONG_TYPE),
        ("ZINTERSTORE d 2 none s", WRONG_TYPE),
        ("ZDIFF 2 x s", WRONG_TYPE),
        ("ZINTERCARD 2 none s", WRONG_TYPE),
        ("ZUNIONSTORE s 1 x", ":3"),
        ("TYPE s", "+zset"),
    ]);
}

#[test]
fn both_algorithms_find_the_same_difference() {
    let mut server = TestServer::new();
    for number in 0..500 {
        server.run(&format!("ZADD large {number} m{number}"));
    }
    server.check(&[
        ("ZADD few 0 m1 0 m2 0 nobody", ":3"),
        ("SADD others m3 m499", ":2"),
        ("ZDIFFSTORE d 3 large few others", ":496"),
        ("ZMSCORE d m1 m2 m3 m499 m4", r#"[nil, nil, nil, nil, "4"]"#),
        ("ZDIFFSTORE e 2 few large", ":1"),
        ("ZRANGE e 0 -1", r#"["nobody"]"#),
    ]);
    server.assert_replays();
}

#[test]
fn a_result_larger_than_the_arguments_finds_room_in_the_log() {
    let mut server = TestServer::new();
    for number in 0..60 {
        let member = format!("{number:02}").repeat(20_000).into_bytes();
        server.run_args(&[b"ZADD", b"x", b"1", &member]);
    }
    server.check(&[("ZUNIONSTORE d 2 x x", ":60"), ("ZCARD d", ":60")]);
    server.assert_replays();
}
