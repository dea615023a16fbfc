//! Clients that reach each other through their list, or are paused.

use env::Clock;
use lsn::Lsn;

use crate::testing::{START_MS, TestServer};

/// Runs a command while clients are paused for 100 ms; returns its reply and how long it was held.
fn run_paused(pause: &str, before: &[&str], line: &str) -> (String, u64) {
    let mut server = TestServer::new();
    server.run("set a 1");
    before.iter().for_each(|line| _ = server.run(line));
    let other = server.connect();
    let own = std::mem::replace(&mut server.session, other);
    assert_eq!(server.run(&format!("client pause 100 {pause}")), "+OK");
    server.session = own;
    let reply = server.run(line);
    (reply, server.clock.unix_ms() - START_MS)
}

#[test]
fn commands_of_paused_clients_wait_for_the_end_of_the_pause() {
    for (pause, line, reply, held_ms) in [
        ("write", "get a", "\"1\"", 0),
        ("write", "ping", "+PONG", 0),
        ("write", "set a 2", "+OK", 100),
        ("write", "publish c m", ":0", 100),
        ("write", "eval \"return 1\" 0", ":1", 100),
        ("write", "eval_ro \"return 1\" 0", ":1", 0),
        ("write", "eval \"#!lua flags=no-writes\\nreturn 1\" 0", ":1", 0),
        ("all", "eval \"#!lua flags=no-writes\\nreturn 1\" 0", ":1", 100),
        ("write", "flushall", "+OK", 100),
        ("all", "get a", "\"1\"", 100),
        ("all", "ping", "+PONG", 100),
        ("all", "client unpause", "+OK", 0),
        ("write", "client pause 1", "+OK", 0),
        ("all", "client pause 1", "+OK", 100),
        ("all", "set a", "-ERR wrong number of arguments for 'set' command", 0),
    ] {
        assert_eq!(run_paused(pause, &[], line), (reply.to_string(), held_ms), "{pause} {line}");
    }
    assert_eq!(run_paused("write", &["multi", "get a"], "exec"), ("[\"1\"]".into(), 0));
    assert_eq!(run_paused("write", &["multi", "set a 2"], "exec"), ("[+OK]".into(), 100));
    assert_eq!(run_paused("write", &["multi"], "set a 2"), ("+QUEUED".into(), 100));
}

#[test]
fn a_pipelined_run_of_writes_is_held_and_keys_do_not_expire() {
    let mut server = TestServer::new();
    server.check(&[("set a 1 px 10", "+OK"), ("client pause 100 write", "+OK"), ("after 20", "")]);
    server.run("echo x");
    let (from, to) = (keyspace::SlotId::FIRST, keyspace::SlotId::LAST);
    assert_eq!(server.executor.expire_due(from, to, usize::MAX, &server.services), 0);
    server.check(&[("get a", "nil"), ("set a 2", "+OK"), ("get a", "\"2\"")]);
    assert_eq!(server.clock.unix_ms(), START_MS + 100);
}

#[test]
fn another_client_can_be_reached_through_the_list() {
    let server = crate::testing::TestServer::new();
    let (first, second) = (server.session.client.id(), server.connect().client.id());
    let reach = |id, bytes: &[u8], gate| {
        server.host.clients.find(id).expect("connected").push(bytes.into(), Lsn::new(gate));
    };
    reach(second, b"+a\r\n:1\r\n", 3);
    reach(second, b"+b\r\n", 2);
    assert_eq!(server.host.take_pushed(first), (vec![], Lsn::ZERO));
    let expected = ["+a", ":1", "+b"].map(str::to_string).to_vec();
    assert_eq!(server.host.take_pushed(second), (expected, Lsn::new(3)));
}

#[test]
fn an_import_source_dumps_what_it_sees() {
    let mut server = TestServer::new();
    server.check(&[
        ("hset h gone 1 stays 2", ":2"),
        ("hpexpire h 10 fields 1 gone", "[:1]"),
        ("client import-source on", "+OK"),
        ("after 20", ""),
        ("hget h gone", "\"1\""),
    ]);
    let dumped = server.run("dump h");
    server.check(&[("client import-source off", "+OK"), ("hget h gone", "nil")]);
    assert_ne!(server.run("dump h"), dumped, "the field has expired for others");
}

#[test]
fn an_import_source_touches_what_it_sees() {
    TestServer::new().check(&[
        ("set k v px 10", "+OK"),
        ("client import-source on", "+OK"),
        ("after 20", ""),
        ("get k", "\"v\""),
        ("touch k none", ":1"),
        ("client import-source off", "+OK"),
        ("touch k", ":0"),
    ]);
}
