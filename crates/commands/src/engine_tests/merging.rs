//! Merged commands: one unit, one record, and each succeeds or fails alone.

use engine::EventClass;
use proptest::prelude::*;

use crate::testing::TestServer;

/// A server on which no command is timed, so that merging does not depend on chance.
fn server() -> TestServer {
    let mut server = TestServer::new();
    server.executor.until_sample = u32::MAX;
    server
}

#[test]
fn a_run_is_one_record() {
    let mut server = server();
    let one = {
        server.run("INCR k");
        server.appended_lsn()
    };
    let before = server.appended_lsn();
    let (runs, replies) = server.run_merged(&["INCR k"; 10]);
    assert_eq!(runs, [10]);
    assert_eq!(replies.last().map(String::as_str), Some(":11"));
    let bytes = server.appended_lsn().get() - before.get();
    assert!(bytes < 10 * one.get(), "{bytes} bytes for ten, {one} for one");
    server.assert_replays();
}

#[test]
fn a_command_that_fails_leaves_the_others_alone() {
    let mut server = server();
    let (runs, replies) = server.run_merged(&["SET k a", "INCR k", "LPUSH k b", "APPEND k c", "GET k"]);
    assert_eq!(runs, [5]);
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let not_integer = "-ERR value is not an integer or out of range";
    assert_eq!(replies, ["+OK", not_integer, wrong_type, ":2", r#""ac""#]);
    server.assert_replays();
}

#[test]
fn only_correct_commands_on_one_key_outside_of_transactions_are_merged() {
    let mut server = server();
    let (runs, replies) =
        server.run_merged(&["SET k 1", "SET k", "INCR k", "PING", "INCR k", "INCR k", "DEL k"]);
    assert_eq!(runs, [0, 0, 0, 0, 2, 0], "none alone, none refused, none without a key, none with many");
    assert_eq!(replies[4..], [":3", ":4", ":1"]);
    server.run("MULTI");
    assert_eq!(
        server.run_merged(&["INCR k", "INCR k"]),
        (vec![0, 0], vec!["+QUEUED".into(), "+QUEUED".into()])
    );
    assert_eq!(server.run("EXEC"), "[:1, :2]");
    server.executor.until_sample = 3;
    assert_eq!(server.run_merged(&["INCR k"; 4]).0[0], 2, "the third is sampled");
}

#[test]
fn a_run_ends_at_a_push_that_serves_a_waiter() {
    let mut server = server();
    let mut waiting = server.connect();
    std::mem::swap(&mut server.session, &mut waiting);
    assert_eq!(server.run("BLPOP k 0"), "");
    assert!(server.session.wait.is_some());
    std::mem::swap(&mut server.session, &mut waiting);
    let (runs, replies) = server.run_merged(&["LPUSH k a", "LLEN k", "LPUSH k b", "LLEN k"]);
    assert_eq!((runs[0], replies), (1, vec![":1".into(), ":0".into(), ":1".into(), ":1".into()]));
    server.assert_replays();
}

const LINES: &[&str] = &[
    "SET k 5",
    "GET k",
    "INCR k",
    "APPEND k 7",
    "STRLEN k",
    "GETDEL k",
    "SETRANGE k 3 x",
    "TYPE k",
    "PEXPIRE k 5",
    "PERSIST k",
    "PTTL k",
    "SET k v PX 5",
    "LPUSH k a b",
    "RPUSH k c",
    "LPOP k",
    "RPOP k 2",
    "LRANGE k 0 -1",
    "SADD k a b",
    "SREM k a",
    "SISMEMBER k b",
    "HSET k f v",
    "HDEL k f",
    "HINCRBY k n 2",
    "HPEXPIRE k 5 FIELDS 1 f",
    "ZADD k 1 a",
    "ZINCRBY k 2 a",
    "ZSCORE k a",
    "ZPOPMIN k",
    "GETEX k PX 5",
    "SETBIT k 9 1",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn replies_and_data_are_those_of_single_commands(
        rounds in prop::collection::vec((prop::collection::vec(0..LINES.len(), 1..40), 0..10u64), 1..6),
    ) {
        let (mut merged, mut single) = (server(), server());
        for server in [&mut merged, &mut single] {
            *server.host.event_classes.lock() = EventClass::parse("AKEmn").expect("known letters");
            server.run("SET k 1");
        }
        for (picks, pause_ms) in rounds {
            let lines: Vec<&str> = picks.iter().map(|&pick| LINES[pick]).collect();
            let replies: Vec<String> = lines.iter().map(|line| single.run(line)).collect();
            prop_assert_eq!(merged.run_merged(&lines).1, replies);
            for server in [&mut merged, &mut single] {
                server.clock.advance_ms(pause_ms);
            }
        }
        let events = merged.events();
        prop_assert!(!events.is_empty());
        prop_assert_eq!(events, single.events());
        prop_assert_eq!(merged.content(), single.content());
        merged.assert_replays();
    }
}
