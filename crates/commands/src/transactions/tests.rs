//! Transactions of one client, and of two that get in each other's way.

use std::mem::swap;

use engine::{
    Loading, MemoryLimits, Session,
    demand::Demand,
    replication::{Address, WriteRefusal},
};
use keyspace::EvictionPolicy;
use lsn::Lsn;
use storage::Durability;
use wire::Protocol;

use crate::testing::{TestServer, check};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

/// Runs a command of another client.
fn other(server: &mut TestServer, session: &mut Session, line: &str) -> String {
    swap(&mut server.session, session);
    let reply = server.run(line);
    swap(&mut server.session, session);
    reply
}

#[test]
fn queued_commands_run_at_exec_and_reply_together() {
    check(&[
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("incr a", "+QUEUED"),
        ("get a", "+QUEUED"),
        ("mget a b", "+QUEUED"),
        ("exec", "[+OK, :2, \"2\", [\"2\", nil]]"),
        ("get a", "\"2\""),
        ("multi", "+OK"),
        ("exec", "[]"),
        ("exec", "-ERR EXEC without MULTI"),
        ("discard", "-ERR DISCARD without MULTI"),
        ("multi", "+OK"),
        ("set a 9", "+QUEUED"),
        ("discard", "+OK"),
        ("get a", "\"2\""),
        ("discard", "-ERR DISCARD without MULTI"),
    ]);
}

#[test]
fn a_command_that_fails_undoes_nothing() {
    check(&[
        ("multi", "+OK"),
        ("set a x", "+QUEUED"),
        ("incr a", "+QUEUED"),
        ("set b 1", "+QUEUED"),
        ("rename none c", "+QUEUED"),
        ("exec", "[+OK, -ERR value is not an integer or out of range, +OK, -ERR no such key]"),
        ("mget a b", "[\"x\", \"1\"]"),
    ]);
}

#[test]
fn a_command_that_cannot_be_queued_aborts_all() {
    check(&[
        ("multi", "+OK"),
        ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
        ("set a 1", "+QUEUED"),
        ("exec", ABORTED),
        ("exec", "-ERR EXEC without MULTI"),
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("exec", ABORTED),
        ("multi", "+OK"),
        ("client nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
        ("exec", ABORTED),
        ("multi", "+OK"),
        ("shutdown", "-ERR Command not allowed inside a transaction"),
        ("exec", ABORTED),
        ("multi", "+OK"),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("discard", "+OK"),
        ("multi", "+OK"),
        ("discard now", "-ERR wrong number of arguments for 'discard' command"),
        ("exec", ABORTED),
        ("exists a", ":0"),
    ]);
}

#[test]
fn an_exec_that_is_refused_ends_the_transaction() {
    check(&[
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        (
            "exec now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("exec", "-ERR EXEC without MULTI"),
        (
            "exec now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("exists a", ":0"),
    ]);
}

#[test]
fn transactions_do_not_nest_and_watch_comes_before() {
    check(&[
        ("multi", "+OK"),
        ("multi", "-ERR MULTI calls can not be nested"),
        ("watch a", "-ERR WATCH inside MULTI is not allowed"),
        ("set a 1", "+QUEUED"),
        ("unwatch", "+QUEUED"),
        ("exec", "[+OK, +OK]"),
        ("watch", "-ERR wrong number of arguments for 'watch' command"),
        ("unwatch", "+OK"),
        ("multi x", "-ERR wrong number of arguments for 'multi' command"),
        ("get a", "\"1\""),
    ]);
}

#[test]
fn commands_of_the_connection_work_in_a_transaction() {
    let mut server = TestServer::new();
    server.check(&[
        ("multi", "+OK"),
        ("set a 0", "+QUEUED"),
        ("select 2", "+QUEUED"),
        ("set a 2", "+QUEUED"),
        ("select 99", "+QUEUED"),
        ("client setname jobs", "+QUEUED"),
        ("exec", "[+OK, +OK, +OK, -ERR DB index is out of range, +OK]"),
        ("get a", "\"2\""),
        ("client getname", "\"jobs\""),
        ("select 0", "+OK"),
        ("get a", "\"0\""),
        ("multi", "+OK"),
        ("get none", "+QUEUED"),
        ("hello 3", "+QUEUED"),
        ("get none", "+QUEUED"),
    ]);
    let raw = server.raw("exec");
    assert!(raw.starts_with(b"*3\r\n$-1\r\n%7\r\n") && raw.ends_with(b"_\r\n"), "{}", raw.escape_ascii());
    assert_eq!(server.session.protocol, Protocol::Resp3);
}

#[test]
fn quit_and_reset_do_not_wait_for_exec() {
    let mut server = TestServer::new();
    server.check(&[
        ("watch a", "+OK"),
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("reset", "+RESET"),
        ("exec", "-ERR EXEC without MULTI"),
        ("exists a", ":0"),
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("quit", "+OK"),
    ]);
    assert!(server.session.closing);
    assert!(server.content().is_empty());
}

#[test]
fn every_command_has_a_reply_in_the_array() {
    let mut server = TestServer::new();
    server.check(&[
        ("multi", "+OK"),
        ("get a", "+QUEUED"),
        ("client reply skip", "+QUEUED"),
        ("exec", "[nil, nil]"),
        ("get a", ""),
        ("get a", "nil"),
        ("multi", "+OK"),
        ("client reply off", "+QUEUED"),
        ("set a 1", "+QUEUED"),
        ("exec", ""),
        ("multi", ""),
        ("client reply on", ""),
        ("get a", ""),
        ("exec", "[+OK, \"1\"]"),
        ("client reply skip", ""),
        ("multi", ""),
        ("get a", "+QUEUED"),
        ("exec", "[\"1\"]"),
    ]);
}

#[test]
fn the_whole_transaction_is_one_record() {
    let mut server = TestServer::new();
    let commands = ["set {x}a 1", "append {y}b 22", "pexpire {x}a 900000", "del {z}c", "mset {y}d 1 {z}e 2"];
    server.run("multi");
    commands.iter().for_each(|line| assert_eq!(server.run(line), "+QUEUED"));
    assert_eq!(server.appended_lsn(), server.log.durable_lsn(), "nothing is logged before EXEC");
    let before = server.appended_lsn();
    let gate = server.gate("exec");
    assert_eq!(gate, server.appended_lsn());
    let (in_one, mut apart) = (gate.get() - before.get(), 0);
    for line in commands {
        let before = server.appended_lsn();
        server.run(line);
        apart += server.appended_lsn().get() - before.get();
    }
    assert!(in_one < apart * 2 / 3, "{in_one} bytes for one record, {apart} for several");
    for key in ["{x}a", "{y}b", "{z}e"] {
        assert!(server.gate(&format!("get {key}")) >= gate);
    }
    server.assert_replays();
}

#[test]
fn a_transaction_without_changes_logs_nothing_and_waits_for_its_reads() {
    let mut server = TestServer::new();
    let written = server.gate("set {x}a 1");
    server.run("set {y}b 1");
    server.check(&[("multi", "+OK"), ("get {x}a", "+QUEUED"), ("del none", "+QUEUED")]);
    let before = server.appended_lsn();
    assert_eq!(server.gate("exec"), written);
    assert_eq!(server.appended_lsn(), before);
    server.check(&[("multi", "+OK"), ("ping", "+QUEUED")]);
    assert_eq!(server.gate("exec"), Lsn::ZERO);
    server.run("client durability none");
    server.check(&[("multi", "+OK"), ("set a 1", "+QUEUED")]);
    assert_eq!(server.gate("exec"), Lsn::ZERO);
    server.log.set_durability(Durability::None);
}

#[test]
fn walks_and_whole_databases_are_part_of_the_transaction() {
    let mut server = TestServer::new();
    server.run("mset {x}a 1 {x}b 2");
    server.check(&[
        ("multi", "+OK"),
        ("dbsize", "+QUEUED"),
        ("set c 3", "+QUEUED"),
        ("dbsize", "+QUEUED"),
        ("keys {x}a", "+QUEUED"),
        ("keys c*", "+QUEUED"),
        ("scan 0 count 100 match c", "+QUEUED"),
        ("exec", "[:2, +OK, :3, [\"{x}a\"], [\"c\"], [\"0\", [\"c\"]]]"),
        ("multi", "+OK"),
        ("set d 4", "+QUEUED"),
        ("flushall", "+QUEUED"),
        ("randomkey", "+QUEUED"),
        ("set e 5", "+QUEUED"),
        ("randomkey", "+QUEUED"),
        ("swapdb 0 1", "+QUEUED"),
        ("dbsize", "+QUEUED"),
        ("select 1", "+QUEUED"),
        ("get e", "+QUEUED"),
        ("flushdb", "+QUEUED"),
        ("keys *", "+QUEUED"),
        ("exec", "[+OK, +OK, nil, +OK, \"e\", +OK, :0, +OK, \"5\", +OK, []]"),
    ]);
    assert_eq!(*server.host.asked.lock(), [format!("flushing_all {}", server.appended_lsn().get())]);
    assert!(server.content().is_empty());
    server.assert_replays();
}

#[test]
fn values_larger_than_the_log_has_room_for_now_are_copied() {
    let mut server = TestServer::new();
    let value = vec![b'v'; 700_000];
    server.run_args(&[b"set", b"a", &value]);
    server.run("multi");
    for number in 0..8 {
        assert_eq!(server.run(&format!("copy a b{number}")), "+QUEUED");
    }
    // These commands copy values that the transaction itself has made.
    for number in 0..8 {
        assert_eq!(server.run(&format!("copy b{number} c{number}")), "+QUEUED");
        assert_eq!(server.run(&format!("rename b{number} d{number}")), "+QUEUED");
    }
    assert_eq!(
        server.run("exec"),
        format!(
            "[{}]",
            [":1"; 8]
                .iter()
                .chain([":1", "+OK"].iter().cycle().take(16))
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
        )
    );
    assert_eq!(server.content().len(), 17);
    server.assert_replays();
}

#[test]
fn values_of_a_database_that_a_transaction_selects_are_asked_room_for() {
    let mut server = TestServer::new();
    server.run("select 1");
    server.run_args(&[b"set", b"a", &vec![b'v'; 10_000_000]]);
    server.run("select 0");
    let mut copies = |count: usize| {
        for line in ["multi", "select 16", "select 1"] {
            server.run(line);
        }
        for _ in 0..count {
            assert_eq!(server.run("copy a b replace"), "+QUEUED");
        }
        server.run("exec")
    };
    assert!(
        copies(220)
            .starts_with("-EXECABORT Transaction discarded because of: this would write more than 2 GiB")
    );
    assert_eq!(copies(2), "[-ERR DB index is out of range, +OK, :1, :1]");
}

#[test]
fn libraries_that_every_flushall_logs_are_asked_room_for() {
    let mut server = TestServer::new();
    let code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let long = format!("{code} --{}", "-".repeat(1_000_000));
    assert_eq!(server.run_args(&[b"function", b"load", long.as_bytes()]), "\"lib\"");
    let mut flush = |line: &str, count: usize| {
        server.run("set a 1");
        server.run("multi");
        for _ in 0..count {
            assert_eq!(server.run(line), "+QUEUED");
        }
        (server.run("exec"), server.run("exists a"), server.run("exec"))
    };
    let none = || "-ERR EXEC without MULTI".to_string();
    for line in ["flushall", "idemp k 1000 flushall"] {
        let refused = "-EXECABORT Transaction discarded because of: this would write more than 2 GiB to the log at once, \
                       which is not possible";
        assert_eq!(flush(line, 2200), (refused.to_string(), ":1".to_string(), none()), "{line}");
    }
    assert_eq!(flush("flushall", 3), ("[+OK, +OK, +OK]".to_string(), ":0".to_string(), none()));
    assert_eq!(server.run("fcall f 0"), ":1");
    server.assert_replays();
}

/// The command that sets a key to a value so large that RENAME moves the value as it is.
fn set_large(key: char) -> String {
    format!("set {key} {}", "v".repeat(20_000))
}

#[test]
fn a_watched_key_that_changes_stops_exec() {
    let mut server = TestServer::new();
    let mut second = server.connect();
    for (before, change) in [
        ("del a", "set a 1"),
        ("set a 1", "set a 2"),
        ("set a 1", "append a x"),
        ("set a 1", "del a"),
        ("set a 1", "expire a 100"),
        ("set a 1 ex 100", "persist a"),
        ("set a 1", "rename a b"),
        ("set b 1", "rename b a"),
        ("set a 1", "move a 5"),
        (&set_large('a'), "rename a b"),
        (&set_large('b'), "rename b a"),
        (&set_large('a'), "move a 5"),
        ("set a 1", "flushdb"),
        ("set a 1", "flushall"),
        ("set a 1", "swapdb 0 1"),
        ("set a 1", "getdel a"),
        ("set a 1", "expire a -1"),
        // The written value is not compared with the stored one.
        ("set a 1", "set a 1"),
        ("rpush a 1", "lset a 0 1"),
        ("rpush a 1", "lmove a a right right"),
        ("rpush a 1 2", "lmove a a left left"),
        ("hset a f 1", "hset a f 1"),
        ("hset a f 1", "hincrby a f 0"),
    ] {
        server.run("flushall");
        server.run(before);
        server.check(&[("watch x a a y", "+OK"), ("multi", "+OK"), ("set done 1", "+QUEUED")]);
        other(&mut server, &mut second, change);
        server.check(&[("exec", "nil"), ("exec", "-ERR EXEC without MULTI")]);
        server.check(&[("multi", "+OK"), ("exists done", "+QUEUED"), ("exec", "[:0]")]);
    }
}

#[test]
fn the_null_of_exec_is_an_array() {
    for (protocol, null) in [(Protocol::Resp2, &b"*-1\r\n"[..]), (Protocol::Resp3, b"_\r\n")] {
        let mut server = TestServer::new();
        server.session.protocol = protocol;
        server.check(&[("watch a", "+OK"), ("set a 1", "+OK"), ("multi", "+OK")]);
        assert_eq!(server.raw("exec"), null);
    }
}

#[test]
fn commands_that_leave_a_watched_key_unchanged_do_not_abort_exec() {
    let mut server = TestServer::new();
    let mut second = server.connect();
    for (before, harmless) in [
        ("set a 1", "get a"),
        ("set a 1", "set {a}b 1"),
        ("set a 1", "touch a"),
        ("set a 1", "setnx a 2"),
        ("set a x", "incr a"),
        ("set a 1", "persist a"),
        ("del a", "del a"),
        ("del a", "expire a 10"),
        ("del a", "flushall"),
        ("del a", "swapdb 0 1"),
        ("set a 1", "swapdb 1 2"),
        ("set a 1", "copy a b replace"),
    ] {
        server.run("flushall");
        server.run(before);
        server.check(&[("watch a", "+OK"), ("multi", "+OK"), ("ping", "+QUEUED")]);
        other(&mut server, &mut second, harmless);
        assert_eq!(server.run("exec"), "[+PONG]", "{harmless}");
    }
    // The same name in another database is another key.
    server.check(&[("set a 1", "+OK"), ("watch a", "+OK"), ("multi", "+OK"), ("get a", "+QUEUED")]);
    for line in ["select 3", "set a 2", "flushdb", "select 0"] {
        other(&mut server, &mut second, line);
    }
    assert_eq!(server.run("exec"), "[\"1\"]");
}

#[test]
fn own_changes_after_watch_abort_exec_and_later_ones_do_not() {
    check(&[
        ("watch a", "+OK"),
        ("set a 1", "+OK"),
        ("multi", "+OK"),
        ("get a", "+QUEUED"),
        ("exec", "nil"),
        ("watch a", "+OK"),
        ("multi", "+OK"),
        ("set a 2", "+QUEUED"),
        ("incr a", "+QUEUED"),
        ("exec", "[+OK, :3]"),
        ("multi", "+OK"),
        ("get a", "+QUEUED"),
        ("exec", "[\"3\"]"),
    ]);
}

#[test]
fn changes_of_groups_do_not_abort_exec_and_those_of_entries_do() {
    for (line, aborts) in [
        ("xreadgroup group g c count 1 streams x >", false),
        ("xack x g 1", false),
        ("xclaim x g d 0 1", false),
        ("xautoclaim x g d 0 0", false),
        ("xsetid x 9", false),
        ("xgroup create x h 0", false),
        ("xgroup setid x g 1", false),
        ("xgroup createconsumer x g z", false),
        ("xgroup delconsumer x g c", false),
        ("xgroup destroy x g", false),
        ("xgroup create new g 0 mkstream", true),
        ("xdel x 1", true),
        ("xtrim x maxlen 0", true),
        ("xadd x 8 a b", true),
        ("del x", true),
    ] {
        let mut server = TestServer::new();
        let mut second = server.connect();
        for prepared in [
            "xadd x 1 a b",
            "xadd x 2 a b",
            "xgroup create x g 0",
            "xreadgroup group g c count 1 streams x >",
        ] {
            server.run(prepared);
        }
        server.run("watch x new");
        other(&mut server, &mut second, line);
        let outcome = if aborts { "nil" } else { "[]" };
        server.check(&[("multi", "+OK"), ("exec", outcome)]);
    }
}

#[test]
fn watching_ends_with_unwatch_discard_exec_and_reset() {
    for end in ["unwatch", "multi|discard", "multi|exec", "multi|get|exec", "reset"] {
        let mut server = TestServer::new();
        let mut second = server.connect();
        server.run("watch a b");
        end.split('|').for_each(|line| drop(server.run(line)));
        other(&mut server, &mut second, "set a 1");
        server.check(&[("multi", "+OK"), ("get a", "+QUEUED"), ("exec", "[\"1\"]")]);
    }
}

#[test]
fn a_client_that_leaves_watches_nothing() {
    let mut server = TestServer::new();
    let mut second = server.connect();
    for line in ["watch a b c", "select 1", "watch a"] {
        other(&mut server, &mut second, line);
    }
    server.run("watch a");
    assert!(server.executor.interests().any());
    drop(second);
    server.run("unwatch");
    assert!(!server.executor.interests().any());
    server.check(&[("watch a", "+OK"), ("set a 1", "+OK"), ("multi", "+OK"), ("exec", "nil")]);
    assert!(!server.executor.interests().any());
}

#[test]
fn several_clients_watch_one_key() {
    let mut server = TestServer::new();
    let mut second = server.connect();
    server.run("watch a");
    other(&mut server, &mut second, "watch a");
    other(&mut server, &mut second, "multi");
    other(&mut server, &mut second, "set a second");
    server.check(&[("multi", "+OK"), ("set a first", "+QUEUED"), ("exec", "[+OK]")]);
    assert_eq!(other(&mut server, &mut second, "exec"), "nil");
    assert_eq!(server.run("get a"), "\"first\"");
}

#[test]
fn a_watched_key_that_expires_stops_exec_and_one_that_had_expired_does_not() {
    let mut server = TestServer::new();
    let exec = [("multi", "+OK"), ("ping", "+QUEUED")];
    // The key has expired since WATCH, and is still in memory.
    server.check(&[("set a 1 px 10", "+OK"), ("watch a", "+OK"), ("after 10", "")]);
    server.check(&exec);
    assert_eq!(server.run("exec"), "nil");
    // The key had expired before WATCH.
    server.check(&[("watch a", "+OK")]);
    server.check(&exec);
    assert_eq!(server.run("exec"), "[+PONG]");
    // The key had expired before WATCH, and is removed since.
    server.check(&[("watch a", "+OK")]);
    server.check(&exec);
    let (first, last) = (keyspace::SlotId::FIRST, keyspace::SlotId::LAST);
    assert_eq!(server.executor.expire_due(first, last, 10, &server.services), 1);
    assert_eq!(server.run("exec"), "[+PONG]");
    // The key has expired since WATCH, and is removed.
    server.check(&[("set a 1 px 10", "+OK"), ("watch a", "+OK"), ("after 10", "")]);
    server.check(&exec);
    assert_eq!(server.executor.expire_due(first, last, 10, &server.services), 1);
    assert_eq!(server.run("exec"), "nil");
    // The key had expired before WATCH, and is set since.
    server.check(&[("set a 1 px 10", "+OK"), ("after 10", ""), ("watch a", "+OK"), ("set a 2", "+OK")]);
    server.check(&exec);
    assert_eq!(server.run("exec"), "nil");
}

#[test]
fn memory_is_checked_for_the_data_that_a_transaction_adds() {
    const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
    let mut server = TestServer::new();
    let limit = |server: &TestServer, memory_bytes_max| {
        *server.host.limits.lock() =
            MemoryLimits { memory_bytes_max, policy: EvictionPolicy::NoEviction, samples: 5 };
    };
    server.run("set a 1");
    server.check(&[("multi", "+OK"), ("set b 1", "+QUEUED")]);
    limit(&server, 1);
    server.check(&[
        ("get a", "+QUEUED"),
        ("exec", &FULL.replace("-OOM", "-EXECABORT Transaction discarded because of: OOM")),
        ("exec", "-ERR EXEC without MULTI"),
        ("multi", "+OK"),
        ("set b 1", FULL),
        ("del a", "+QUEUED"),
        ("exec", ABORTED),
        ("multi", "+OK"),
        ("get a", "+QUEUED"),
        ("del a", "+QUEUED"),
        ("exec", "[\"1\", :1]"),
        ("multi", "+OK"),
        ("discard", "+OK"),
        ("dbsize", ":0"),
    ]);
}

#[test]
fn commands_of_scripts_in_a_transaction_are_refused_one_by_one() {
    const SET: &str = "eval \"return redis.pcall('set', 'b', 1)\" 0";
    let mut server = TestServer::new();
    server.run("set a 1");
    server.host.limits.lock().memory_bytes_max = 1;
    let full = "-OOM command not allowed when used memory > 'maxmemory'.";
    server.check(&[("multi", "+OK"), (SET, "+QUEUED"), ("del a", "+QUEUED")]);
    let reply = server.run("exec");
    assert!(reply.starts_with(&format!("[{full}")) && reply.ends_with(", :1]"), "{reply}");
    server.check(&[("dbsize", ":0")]);
    server.host.limits.lock().memory_bytes_max = 0;
    let leader = Address { host: "leader".into(), port: 1 };
    *server.host.replication.leader.lock() = Some(leader);
    server.check(&[("multi", "+OK"), (SET, "+QUEUED"), ("get a", "+QUEUED")]);
    let reply = server.run("exec");
    assert!(
        reply.starts_with(&format!("[-{}", WriteRefusal::Replica.error())) && reply.ends_with(", nil]"),
        "{reply}"
    );
    server.check(&[
        ("multi", "+OK"),
        ("del a", &format!("-{}", WriteRefusal::Replica.error())),
        ("exec", ABORTED),
    ]);
}

#[test]
fn only_commands_that_run_while_loading_are_queued_then() {
    let mut server = TestServer::new();
    *server.host.loading.lock() = Some(Loading { percent: 1.0, eta_seconds: None });
    server.check(&[
        ("multi", "+OK"),
        ("echo x", "+QUEUED"),
        ("get a", "-LOADING Redis is loading the dataset in memory"),
        ("exec", ABORTED),
        ("multi", "+OK"),
        ("echo x", "+QUEUED"),
        ("exec", "[\"x\"]"),
    ]);
}

#[test]
fn a_transaction_has_a_limit() {
    let mut server = TestServer::new();
    server.run("multi");
    let transaction = server.session.transaction.as_mut().expect("begun");
    let found = crate::resolve_call(crate::testing::parse("get a").as_args()).expect("a row");
    let args = crate::testing::parse("get a");
    for _ in 0..engine::QUEUED_COMMANDS_MAX {
        transaction.push(found, args.as_args(), None, Demand::default()).expect("within the limit");
    }
    server.check(&[
        ("get a", "-ERR the transaction has too many or too large commands"),
        ("exec", ABORTED),
        ("get a", "nil"),
    ]);
}

#[test]
fn the_list_of_clients_shows_transactions() {
    let mut server = TestServer::new();
    let shows = |server: &mut TestServer, fields: [&str; 2]| {
        let mut line = String::new();
        server.session.client.render(crate::table(), 0, &mut line);
        for field in fields {
            assert!(line.split(' ').any(|shown| shown == field), "{field} is not in {line}");
        }
    };
    shows(&mut server, ["flags=N", "multi=-1"]);
    server.run("multi");
    shows(&mut server, ["flags=x", "multi=0"]);
    server.check(&[("get a", "+QUEUED"), ("client info", "+QUEUED")]);
    shows(&mut server, ["flags=x", "multi=2"]);
    assert!(server.run("exec").contains(" flags=x capa= db=0 sub=0 psub=0 ssub=0 multi=2 watch=0 "));
    shows(&mut server, ["flags=N", "multi=-1"]);
}

#[test]
fn commands_are_counted_when_they_run() {
    let mut server = TestServer::new();
    let calls = |server: &TestServer, name: &str| {
        let totals =
            server.host.stats.totals(crate::table().index_of(crate::resolve(name.as_bytes()).expect(name)));
        (totals.calls, totals.failed, totals.rejected)
    };
    server.check(&[("multi", "+OK"), ("set a x", "+QUEUED"), ("incr a", "+QUEUED")]);
    assert_eq!(calls(&server, "set"), (0, 0, 0));
    server.run("exec");
    assert_eq!((calls(&server, "set"), calls(&server, "incr")), ((1, 0, 0), (1, 1, 0)));
    server.run("multi");
    server.run("incr");
    assert_eq!((calls(&server, "incr"), calls(&server, "exec")), ((1, 1, 1), (1, 0, 0)));
}

#[test]
fn exec_with_a_script_and_a_write_is_admitted_once() {
    let unused = |queued: &[&str]| {
        let mut server = TestServer::new();
        server.run("multi");
        queued.iter().for_each(|line| assert_eq!(server.run(line), "+QUEUED"));
        assert_eq!(server.run("exec").matches("+OK").count(), queued.len());
        server.executor.admitted_bytes
    };
    assert_eq!(unused(&["set k v", "eval \"return redis.call('set', 'l', 'v')\" 0"]), unused(&["set k v"]));
}
