//! The events that commands cause.

use engine::{EventClass, MemoryLimits};
use keyspace::{EvictionPolicy, SlotId};
use lsn::Lsn;
use storage::Durability;

use crate::testing::TestServer;

fn server(letters: &str) -> TestServer {
    let server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse(letters).expect(letters);
    server
}

/// Runs commands and compares the events of each, separated by commas.
fn check_events(server: &mut TestServer, table: &[(&str, &str)]) {
    for (line, expected) in table {
        server.run(line);
        assert_eq!(server.events().join(", "), *expected, "{line}");
    }
}

#[test]
fn commands_on_lists_notify_their_events() {
    check_events(
        &mut server("EAn"),
        &[
            ("lpush a 1 2 3", "new a, lpush a"),
            ("rpush a 4", "rpush a"),
            ("rpushx a 5", "rpush a"),
            ("lpushx nokey 1", ""),
            ("lset a 0 3", "lset a"),
            ("lset a 9 3", ""),
            ("linsert a before 3 x", "linsert a"),
            ("linsert a before nothing x", ""),
            ("lrem a 0 x", "lrem a"),
            ("lrem a 0 x", ""),
            ("ltrim a 0 -1", "ltrim a"),
            ("ltrim nokey 0 -1", ""),
            ("lpop a 0", ""),
            ("lpop a", "lpop a"),
            ("rpop a 2", "rpop a"),
            ("lmove a a left right", "rpush a, lpop a"),
            ("lmove a b left right", "new b, rpush b, lpop a"),
            ("rpoplpush a b", "lpush b, rpop a, del a"),
            ("rpoplpush a b", ""),
            ("lmpop 2 a b right", "rpop b"),
            ("lmove b b left right", "rpush b, lpop b"),
            ("lmpop 2 a b left count 9", "lpop b, del b"),
            ("rpush a 1 1 1", "new a, rpush a"),
            ("lrem a 1 1", "lrem a"),
            ("lrem a 0 1", "lrem a, del a"),
            ("rpush a 1", "new a, rpush a"),
            ("ltrim a 1 0", "ltrim a, del a"),
        ],
    );
}

#[test]
fn commands_on_strings_notify_their_events() {
    check_events(
        &mut server("EA"),
        &[
            ("set a 1", "set a"),
            ("set a 1 ex 100", "set a, expire a"),
            ("set a 1 nx", ""),
            ("set a 1 pxat 1", "set a, expire a, expired a"),
            ("setnx a 1", "set a"),
            ("setnx a 1", ""),
            ("setex a 100 1", "set a, expire a"),
            ("psetex a 100 1", "set a, expire a"),
            ("getset a 2", "set a"),
            ("mset a 1 c 2", "set a, set c"),
            ("msetnx d 1 e 1", "set d, set e"),
            ("msetnx d 1 f 1", ""),
            ("getdel d", "del d"),
            ("getdel d", ""),
            ("getex a", ""),
            ("getex a ex 100", "expire a"),
            ("getex a persist", "persist a"),
            ("getex a persist", ""),
            ("getex a pxat 1", "del a"),
            ("incr n", "incrby n"),
            ("decr n", "incrby n"),
            ("incrby n 3", "incrby n"),
            ("incrbyfloat n 1.5", "incrbyfloat n"),
            ("incr n", ""),
            ("append s x", "append s"),
            ("append s ''", "append s"),
            ("setrange s 0 ''", ""),
            ("setrange s 0 y", "setrange s"),
            ("get s", ""),
        ],
    );
}

#[test]
fn commands_on_keys_of_any_type_notify_their_events() {
    check_events(
        &mut server("EA"),
        &[
            ("mset a 1 b 2 c 3 d 4", "set a, set b, set c, set d"),
            ("del a none b", "del a, del b"),
            ("unlink none", ""),
            ("expire c 100", "expire c"),
            ("expire c 100 nx", ""),
            ("persist c", "persist c"),
            ("persist c", ""),
            ("pexpireat c 1", "del c"),
            ("copy d e", "copy_to e"),
            ("copy d e", ""),
            ("copy d e db 2", "copy_to e in 2"),
            ("rename d f", "rename_from d, rename_to f"),
            ("renamenx e f", ""),
            ("renamenx e g", "rename_from e, rename_to g"),
            ("rename g g", ""),
            ("move g 3", "move_from g, move_to g in 3"),
            ("move f 0", ""),
            ("touch f", ""),
            ("flushall", ""),
        ],
    );
}

#[test]
fn commands_on_bits_and_hyperloglogs_notify_their_events() {
    check_events(
        &mut server("EAm"),
        &[
            ("setbit b 1 1", "setbit b"),
            ("setbit b 1 1", ""),
            ("bitop and d b b", "set d"),
            ("bitfield b set u8 0 1", "setbit b"),
            ("bitfield b get u8 0", ""),
            ("bitfield b set u8 0 1 incrby u8 0 0", ""),
            ("bitfield b overflow fail incrby u8 0 255", ""),
            ("bitfield f set u8 0 0", "setbit f"),
            ("bitfield f set u8 0 1 set u8 8 2", "setbit f"),
            ("bitop not d none", "keymiss none, del d"),
            ("bitop not d none", "keymiss none"),
            ("pfadd h a", "pfadd h"),
            ("pfadd h a", ""),
            ("pfadd e", "pfadd e"),
            ("pfcount h", ""),
            ("pfmerge e h", "pfadd e"),
            ("pfmerge e h", "pfadd e"),
            ("bitcount none", "keymiss none"),
        ],
    );
}

#[test]
fn commands_on_sets_notify_their_events() {
    check_events(
        &mut server("EA"),
        &[
            ("sadd a 1 2 3", "sadd a"),
            ("sadd a 1", ""),
            ("srem a 9", ""),
            ("srem a 1 9", "srem a"),
            ("smove a b 9", ""),
            ("smove a a 2", ""),
            ("smove a b 2", "srem a, sadd b"),
            ("sadd b 3", "sadd b"),
            ("smove a b 3", "srem a, del a"),
            ("sunionstore c b b", "sunionstore c"),
            ("sinterstore d b c", "sinterstore d"),
            ("sdiffstore d b nokey", "sdiffstore d"),
            ("sdiffstore d b c", "del d"),
            ("sdiffstore d b c", ""),
            ("spop b 0", ""),
            ("spop b", "spop b"),
            ("spop b", "spop b, del b"),
            ("spop b", ""),
            ("spop c 1", "spop c"),
            ("spop c 5", "spop c, del c"),
            ("sadd c 1", "sadd c"),
            ("srem c 1", "srem c, del c"),
        ],
    );
}

#[test]
fn new_and_missed_keys_are_notified_if_their_classes_are_on() {
    check_events(
        &mut server("Knm$g"),
        &[
            ("set a 1", "new a, set a"),
            ("set a 1", "set a"),
            ("get none", "keymiss none"),
            ("mget none a other", "keymiss none, keymiss other"),
            ("exists none", "keymiss none"),
            ("type none", "keymiss none"),
            ("ttl none", "keymiss none"),
            ("touch none", "keymiss none"),
            ("object encoding none", ""),
            ("set x 1 get", "keymiss x, new x, set x"),
            ("set none 1 xx", ""),
            ("incr n", "new n, incrby n"),
            ("copy a z", "new z, copy_to z"),
            ("copy a z replace", "new z, copy_to z"),
            ("copy none z", "keymiss none"),
            ("rename a s", "new s, rename_from a, rename_to s"),
            ("rename s z", "new z, rename_from s, rename_to z"),
            ("move z 3", "new z in 3, move_from z, move_to z in 3"),
        ],
    );
}

#[test]
fn moves_of_large_values_are_told_as_those_of_small_ones() {
    let mut server = server("EAnm");
    for text in ["small".to_owned(), "v".repeat(20_000)] {
        for line in ["flushall", &format!("set a {text}"), "set t 1", "set u 1 px 5"] {
            server.run(line);
        }
        server.clock.advance_ms(5);
        server.events();
        check_events(
            &mut server,
            &[
                ("rename a s", "new s, rename_from a, rename_to s"),
                ("rename s t", "new t, rename_from s, rename_to t"),
                ("rename t u", "expired u, new u, rename_from t, rename_to u"),
                ("renamenx u u", ""),
                ("move u 3", "new u in 3, move_from u, move_to u in 3"),
            ],
        );
        server.assert_replays();
    }
}

#[test]
fn only_enabled_classes_are_notified() {
    check_events(&mut server(""), &[("set a 1", ""), ("del a", ""), ("get a", "")]);
    check_events(&mut server("A"), &[("set a 1", "")]);
    check_events(&mut server("Kg"), &[("set a 1 ex 10", "expire a"), ("del a", "del a")]);
    let mut server = server("K$");
    server.run("set a 1");
    let classes: Vec<_> = server.take_events().iter().map(|event| event.classes.to_string()).collect();
    assert_eq!(classes, ["$K"]);
}

#[test]
fn expired_keys_are_told_when_they_are_removed() {
    let mut server = server("EAn");
    let expire = |server: &mut TestServer| {
        server.executor.expire_due(SlotId::FIRST, SlotId::LAST, 100, &server.services)
    };
    server.check(&[("mset a 1 b 2 c 3", "+OK"), ("set d 1 px 10", "+OK")]);
    for key in ["a", "b", "c"] {
        server.run(&format!("pexpire {key} 10"));
    }
    server.events();
    server.clock.advance_ms(10);
    check_events(
        &mut server,
        &[
            ("get a", ""),
            ("set a 2", "expired a, new a, set a"),
            ("append b 2", "expired b, new b, append b"),
            ("del c", ""),
        ],
    );
    assert_eq!(expire(&mut server), 2);
    let mut events = server.events();
    events.sort();
    assert_eq!(events, ["expired c", "expired d"]);
    server.assert_replays();
}

#[test]
fn evicted_keys_are_told() {
    let mut server = server("EA");
    server.run("set old 1");
    server.events();
    *server.host.limits.lock() =
        MemoryLimits { memory_bytes_max: 1, policy: EvictionPolicy::AllKeysLru, samples: 5 };
    server.run("set a 1");
    assert_eq!(server.events(), ["evicted old", "set a"]);
}

#[test]
fn a_key_that_is_gone_before_its_eviction_is_not_evicted() {
    let mut server = server("EAx");
    server.run("set old 1");
    server.run("set late 1 px 10");
    let keyspace = server.executor.keyspace().clone();
    let mut victims = Vec::new();
    for seed in 0..100 {
        let lock = |slot| Ok::<_, ()>(keyspace.lock(slot));
        let sampled =
            keyspace.sample_for_eviction(lock, seed, 1, EvictionPolicy::AllKeysRandom, server.clock_ms());
        victims.extend(sampled.expect("no lock fails"));
    }
    server.check(&[("del old", ":1"), ("after 10", "")]);
    server.events();
    for (key, events, counts) in [("old", "", (0, 0)), ("late", "expired late", (0, 1)), ("late", "", (0, 1))]
    {
        let victim = victims.iter().find(|victim| victim.key == key.as_bytes()).expect("sampled");
        assert!(!server.evict(victim), "{key}");
        assert_eq!(server.events().join(", "), events, "{key}");
        let totals = server.host.stats.keyspace_totals();
        assert_eq!((totals.evicted_keys, totals.expired_keys), counts, "{key}");
    }
}

#[test]
fn keys_and_fields_count_as_expired_whoever_removes_them() {
    let mut server = TestServer::new();
    for (line, keys, fields) in [
        ("set a 2", 1, 0),
        ("append b x", 1, 0),
        ("get c", 0, 0),
        ("set new 1", 0, 0),
        ("hset h f 2", 0, 1),
        ("hdel h f g", 0, 2),
        ("hget h f", 0, 0),
        ("eval \"redis.call('append', 'a', 'x')\" 1 a", 1, 0),
    ] {
        for key in ["a", "b", "c"] {
            server.run(&format!("set {key} 1 px 10"));
        }
        server.run("hset h f 1 g 1 other 1");
        server.run("hpexpire h 10 fields 2 f g");
        server.check(&[("after 10", "")]);
        let before = server.host.stats.keyspace_totals();
        server.run(line);
        let after = server.host.stats.keyspace_totals();
        let counted =
            (after.expired_keys - before.expired_keys, after.expired_fields - before.expired_fields);
        assert_eq!(counted, (keys, fields), "{line}");
    }
    let before = server.host.stats.keyspace_totals();
    let expired = server.executor.expire_due(SlotId::FIRST, SlotId::LAST, 100, &server.services);
    assert!(expired >= 2);
    let after = server.host.stats.keyspace_totals();
    assert!(
        after.expired_keys >= before.expired_keys + 2 && after.expired_fields == before.expired_fields + 2
    );
    server.assert_replays();
}

#[test]
fn a_transaction_notifies_at_its_end_and_failed_commands_notify_nothing() {
    let mut server = server("EAm");
    server.run("set s x");
    server.run("rename s t");
    server.events();
    for line in ["multi", "set a 1", "incr t", "get none", "select 3", "set a 1", "del a"] {
        server.run(line);
        assert_eq!(server.events(), [""; 0], "{line}");
    }
    let gate = server.gate("exec");
    let events = server.take_events();
    assert!(events.iter().all(|event| event.gate == gate));
    let names: Vec<_> = events.iter().map(|event| (event.name, event.db.get())).collect();
    assert_eq!(names, [("set", 0), ("keymiss", 0), ("set", 3), ("del", 3)]);
}

#[test]
fn events_wait_for_the_disk_even_if_their_client_does_not() {
    let mut server = server("EAm");
    server.run("client durability none");
    assert_eq!(server.gate("set a 1"), Lsn::ZERO);
    assert_eq!(server.take_events()[0].gate, server.appended_lsn());
    server.run("del a");
    server.take_events();
    server.run("get a");
    assert_eq!(server.take_events()[0].gate, server.appended_lsn(), "that it is gone is not durable");
    server.log.set_durability(Durability::Interval);
    server.run("set a 1");
    assert_eq!(server.take_events()[0].gate, Lsn::ZERO);
}

#[test]
fn a_command_that_runs_twice_tells_once() {
    let mut server = server("KEAm");
    server.run_args(&[b"set", b"a", &vec![b'v'; 300_000]]);
    server.run("del b");
    server.events();
    check_events(&mut server, &[("copy a b", "copy_to b"), ("copy b c replace", "copy_to c")]);
}

#[test]
fn a_restored_key_counts_as_new_also_if_it_replaces_another() {
    let mut server = server("EAn");
    for line in ["set a 1", "rpush a2 x"] {
        server.run(line);
    }
    let wire::Value::Bulk(payload) = server.value("dump a") else { panic!("no payload") };
    server.events();
    for key in ["a", "a2", "b"] {
        assert_eq!(server.run_args(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]), "+OK");
        assert_eq!(server.events(), [format!("new {key}"), format!("restore {key}")]);
    }
    server.assert_replays();
}
