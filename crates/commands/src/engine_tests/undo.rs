use keyspace::{DbId, Keyspace, Options};
use proptest::prelude::*;

use crate::testing::TestServer;

/// Commands that change their keys by most kinds of effects, on small and large values.
const LINES: &[&str] = &[
    "SET s v",
    "SET s v PX 5000",
    "APPEND s more",
    "SETRANGE s 3 x",
    "APPEND big more",
    "SETRANGE big 3 x",
    "DEL s list hash",
    "DEL big",
    "PEXPIRE s 9000",
    "PEXPIRE biglist 9000",
    "PERSIST bighash",
    "RENAME s t",
    "RENAME biglist list",
    "RENAME list biglist",
    "COPY bigset s REPLACE",
    "RPUSH list a b",
    "LPUSH biglist a b",
    "RPUSH biglist a b",
    "LPOP biglist 3",
    "RPOP biglist 2",
    "RPOP biglist 10000",
    "LSET biglist 4 x",
    "LSET list 0 x",
    "LINSERT biglist BEFORE 7 x",
    "LREM biglist 0 7",
    "RPUSH biglist 7 a 7",
    "LREM biglist 1 7",
    "LREM biglist -2 7",
    "LTRIM biglist 2 5",
    "SADD bigset new 1",
    "SREM bigset 1 2 none",
    "SADD set a",
    "ZADD bigzset 5 new 7 1",
    "ZREM bigzset 1 2 none",
    "ZREMRANGEBYRANK bigzset 3 9",
    "ZPOPMIN bigzset 2",
    "ZADD zset 1 a",
    "HSET bighash new 1 1 2",
    "HDEL bighash 1 2 none",
    "HPEXPIRE bighash 7000 FIELDS 2 3 4",
    "HPERSIST bighash FIELDS 1 5",
    "HSET bighash 5 other",
    "HSET hash f v",
    "SWAPDB 0 1",
    "GETDEL big",
    "SUNIONSTORE s bigset",
    "SORT biglist ALPHA STORE s",
    "XADD bigstream 9-* f v",
    "XADD bigstream MAXLEN 50 9-* f v g w",
    "XTRIM bigstream MAXLEN 130",
    "XTRIM bigstream MAXLEN 0",
    "XDEL bigstream 1-7 1-250",
    "XSETID bigstream 20-0",
    "XGROUP CREATE bigstream new 0",
    "XGROUP SETID bigstream g 1-3",
    "XGROUP DESTROY bigstream g",
    "XGROUP DELCONSUMER bigstream g a",
    "XREADGROUP GROUP g b COUNT 20 STREAMS bigstream >",
    "XREADGROUP GROUP g a STREAMS bigstream 0",
    "XACK bigstream g 1-1 1-2 1-9",
    "XCLAIM bigstream g c 0 1-1 1-4 FORCE",
    "XADD stream 9-* f v",
    "DEL bigstream",
];

/// A server with large and small values.
fn filled() -> TestServer {
    let mut server = TestServer::new();
    let numbers: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let (all, pairs) =
        (numbers.join(" "), numbers.iter().map(|it| format!("{it} {it}")).collect::<Vec<_>>().join(" "));
    for line in [
        format!("RPUSH biglist {all}"),
        format!("SADD bigset {all}"),
        format!("ZADD bigzset {pairs}"),
        format!("HSET bighash {pairs}"),
        "HPEXPIRE bighash 5000 FIELDS 2 5 6".to_string(),
        format!("SET big {}", "x".repeat(3000)),
        "SET s 1".to_string(),
        "RPUSH list 1 2 3".to_string(),
        "SADD set 1".to_string(),
        "ZADD zset 1 1".to_string(),
        "HSET hash 1 1".to_string(),
    ] {
        server.run(&line);
    }
    for seq in 1..=250 {
        server.run(&format!("XADD bigstream 1-{seq} f {seq}"));
    }
    server.run("XGROUP CREATE bigstream g 0");
    server.run("XREADGROUP GROUP g a COUNT 5 STREAMS bigstream >");
    server.run("XADD stream 1-1 f v");
    server
}

/// The part of a script that runs commands, ignoring their replies.
fn calls(lines: &[&str]) -> String {
    let call = |line: &&str| {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        format!("redis.pcall({}) ", words.join(","))
    };
    lines.iter().map(call).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn an_undone_script_leaves_no_change_and_no_record(lines in proptest::collection::vec(proptest::sample::select(LINES), 1..12)) {
        let mut server = filled();
        server.host.scripts.settings.set_rolls_back(true);
        let (content, appended) = (server.content(), server.appended_lsn());
        let script = format!("{} error('undo')", calls(&lines));
        let reply = server.run_args(&[b"EVAL", script.as_bytes(), b"0"]);
        prop_assert!(reply.starts_with("-ERR user_script:1: undo"), "{}", reply);
        prop_assert_eq!(server.content(), content);
        prop_assert_eq!(server.appended_lsn(), appended, "nothing is logged");
        server.assert_replays();
    }

    /// The script itself succeeds; it is undone as a part of the command that runs it.
    #[test]
    fn a_successful_script_inside_an_undone_unit_leaves_no_change(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 1..12),
    ) {
        let mut server = filled();
        let content = server.content();
        let script = format!("{} return string.rep('x', 1048576)", calls(&lines));
        let reply = server.run_args(&[b"IDEMP", b"k", b"1000", b"EVAL", script.as_bytes(), b"0"]);
        prop_assert!(reply.ends_with("the command is undone"), "{}", reply);
        prop_assert_eq!(server.content(), content);
        server.assert_replays();
    }
}

#[test]
fn undo_restores_every_count_of_the_keyspace() {
    let mut server = filled();
    server.host.scripts.settings.set_rolls_back(true);
    let keyspace = server.executor.keyspace().clone();
    let (digest, len, expiring) =
        (keyspace.digest(), keyspace.len(DbId::ZERO), keyspace.expiring_len(DbId::ZERO));
    server.run_args(&[
        b"EVAL",
        b"redis.call('RENAME', 'biglist', 's') redis.call('PEXPIRE', 'hash', 10) error('x')",
        b"0",
    ]);
    assert_eq!(keyspace.digest(), digest);
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.expiring_len(DbId::ZERO)), (len, expiring));
    assert_ne!(Keyspace::new(Options { hash_seed: 1 }).digest(), digest);
}

#[test]
fn an_undone_script_does_not_restore_a_flushed_database() {
    let mut server = filled();
    server.host.scripts.settings.set_rolls_back(true);
    server.run_args(&[b"EVAL", b"redis.call('SET', 'a', 1) redis.call('FLUSHDB') error('x')", b"0"]);
    assert_eq!(server.run("DBSIZE"), ":0");
    server.assert_replays();
}
