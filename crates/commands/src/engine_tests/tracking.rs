//! The clients that get invalidations, and their gates.

use std::mem::swap;

use engine::Session;
use lsn::Lsn;
use storage::Durability;

use crate::testing::TestServer;

/// A server with two clients: the one in use (id 1), and another (id 2) that has sent these commands.
fn tracked(lines: &[&str]) -> (TestServer, Session) {
    let mut server = TestServer::new();
    let mut other = server.connect();
    for line in lines {
        assert!(!by_other(&mut server, &mut other, line).starts_with('-'), "{line}");
    }
    (server, other)
}

fn by_other(server: &mut TestServer, other: &mut Session, line: &str) -> String {
    swap(&mut server.session, other);
    let reply = server.run(line);
    swap(&mut server.session, other);
    reply
}

fn told(server: &TestServer, client: u64) -> Vec<String> {
    server.host.take_pushed(client).0
}

fn message(keys: &str) -> String {
    format!(">[\"invalidate\", [{keys}]]")
}

const ALL: &str = ">[\"invalidate\", nil]";

#[test]
fn a_reader_gets_one_invalidation_per_read() {
    let (mut server, mut other) =
        tracked(&["hello 3", "client tracking on", "get a", "mget b c", "exists d", "set e 1", "get e"]);
    server.check(&[("get a", "nil"), ("dbsize", ":1")]);
    assert!(told(&server, 2).is_empty(), "reads change nothing");
    let gate = server.gate("set a 1");
    assert_eq!(server.host.take_pushed(2), (vec![message("\"a\"")], gate));
    server.check(&[("set a 2", "+OK"), ("set other 1", "+OK")]);
    assert!(told(&server, 2).is_empty(), "not read again");
    server.check(&[("mset b 1 c 2", "+OK"), ("expire e 100", ":1"), ("del d", ":0")]);
    assert_eq!(told(&server, 2), [message("\"b\""), message("\"c\""), message("\"e\"")]);
    by_other(&mut server, &mut other, "get a");
    by_other(&mut server, &mut other, "set a 3");
    assert_eq!(told(&server, 2), [message("\"a\"")], "also of its own changes");
    assert!(told(&server, 1).is_empty());
}

#[test]
fn an_invalidation_waits_as_a_read_of_the_key_does() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on"]);
    for (durability, waits) in [
        (Durability::Strict, true),
        (Durability::Commit, false),
        (Durability::Interval, false),
        (Durability::None, false),
    ] {
        server.log.set_durability(durability);
        by_other(&mut server, &mut other, "get a");
        server.run("client durability none");
        server.run("incr a");
        let (messages, gate) = server.host.take_pushed(2);
        assert_eq!(messages, [message("\"a\"")]);
        let expected = if waits { server.appended_lsn() } else { Lsn::ZERO };
        assert_eq!(gate, expected, "{durability:?}: whatever the writer itself has asked for");
    }
}

#[test]
fn expired_and_evicted_keys_are_told_like_changed_ones() {
    let (mut server, _other) = tracked(&[
        "hello 3",
        "client tracking on noloop",
        "set a 1 px 10",
        "set b 1 px 10",
        "get a",
        "get b",
    ]);
    server.check(&[("after 11", "")]);
    server.executor.begin_round(server.clock_ms(), &server.services, 1 << 20);
    let all = (keyspace::SlotId::FIRST, keyspace::SlotId::LAST);
    assert_eq!(server.executor.expire_due(all.0, all.1, 10, &server.services), 2);
    server.executor.end_round(&server.services);
    let mut messages = told(&server, 2);
    messages.sort();
    assert_eq!(messages, [message("\"a\""), message("\"b\"")]);
}

#[test]
fn a_flush_concerns_every_key() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on", "get a"]);
    for line in ["flushall", "flushdb", "swapdb 0 1"] {
        server.run(line);
        assert_eq!(told(&server, 2), [ALL], "{line}");
    }
    server.check(&[("set a 1", "+OK")]);
    assert!(told(&server, 2).is_empty(), "nothing is remembered any more");
    by_other(&mut server, &mut other, "get a");
    by_other(&mut server, &mut other, "client tracking off");
    assert_eq!(server.executor.interests().tracking().totals().keys, 1);
    server.check(&[("flushall", "+OK")]);
    assert!(told(&server, 2).is_empty());
    assert_eq!(server.executor.interests().tracking().totals().keys, 0, "of who has stopped, too");
}

#[test]
fn opting_in_and_out_holds_for_one_command_or_transaction() {
    let (mut server, mut other) = tracked(&[
        "hello 3",
        "client tracking on optin",
        "get a",
        "client caching yes",
        "client id",
        "get b",
        "get c",
        "client caching yes",
        "multi",
        "get d",
        "get e",
        "exec",
        "get f",
    ]);
    server.check(&[("mset a 1 b 1 c 1 d 1 e 1 f 1", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"b\""), message("\"d\""), message("\"e\"")]);
    for line in
        ["client tracking off", "client tracking on optout", "get a", "client caching no", "get b", "get c"]
    {
        by_other(&mut server, &mut other, line);
    }
    server.check(&[("mset a 2 b 2 c 2", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"a\""), message("\"c\"")]);
}

#[test]
fn noloop_suppresses_invalidations_of_own_changes() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on noloop", "get a", "set a 1"]);
    assert!(told(&server, 2).is_empty());
    server.check(&[("set a 2", "+OK")]);
    assert!(told(&server, 2).is_empty(), "it is not known to have read what it wrote");
    by_other(&mut server, &mut other, "get a");
    server.check(&[("set a 3", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"a\"")]);
}

#[test]
fn broadcast_tells_of_prefixes_whether_read_or_not() {
    let (mut server, _other) =
        tracked(&["hello 3", "client tracking on bcast prefix user: prefix job: noloop", "set user:own 1"]);
    server.check(&[("mset user:2 1 user:1 1 job:1 1 else 1", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"user:1\", \"user:2\""), message("\"job:1\"")]);
    server.check(&[("flushdb", "+OK")]);
    assert_eq!(told(&server, 2), [ALL]);
    drop(_other);
    server.check(&[("set user:1 1", "+OK")]);
    assert!(told(&server, 2).is_empty());
    assert_eq!(server.executor.interests().tracking().totals(), engine::TrackingTotals::default());
}

#[test]
fn another_client_can_be_told_in_its_place() {
    let (mut server, mut other) = tracked(&["client tracking on redirect 1", "get a", "get b", "get c"]);
    server.check(&[("set a 1", "+OK")]);
    assert!(told(&server, 1).is_empty(), "in the older protocol only who has subscribed takes messages");
    server.session.client.set_subscriptions([1, 0, 0, 0]);
    server.check(&[("set b 1", "+OK"), ("flushall", "+OK")]);
    let expected =
        ["[\"message\", \"__redis__:invalidate\", [\"b\"]]", "[\"message\", \"__redis__:invalidate\", nil]"];
    assert_eq!(told(&server, 1), expected);
    server.run("hello 3");
    by_other(&mut server, &mut other, "get c");
    server.check(&[("set c 1", "+OK")]);
    assert_eq!(told(&server, 1), [message("\"c\"")]);
    assert!(told(&server, 2).is_empty());
}

#[test]
fn a_client_learns_that_its_redirection_is_broken() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on redirect 1", "get a"]);
    server.host.clients.remove(1);
    server.check(&[("set a 1", "+OK")]);
    assert_eq!(told(&server, 2), [">[\"tracking-redir-broken\", :1]"]);
    assert!(by_other(&mut server, &mut other, "client trackinginfo").contains("\"broken_redirect\""));
    assert!(by_other(&mut server, &mut other, "client info").contains(" flags=tR "));
}

#[test]
fn a_full_table_forgets_and_tells() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on noloop"]);
    server.executor.interests().tracking().set_keys_max(2);
    for key in ["{x}1", "{x}2", "{x}3"] {
        by_other(&mut server, &mut other, &format!("get {key}"));
    }
    let forgotten = told(&server, 2);
    assert!(forgotten == [message("\"{x}1\"")] || forgotten == [message("\"{x}2\"")], "{forgotten:?}");
    assert_eq!(server.executor.interests().tracking().totals().keys, 2);
}

#[test]
fn a_lower_limit_forgets_what_is_beyond_it() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on noloop"]);
    for key in ["a", "b", "c"] {
        by_other(&mut server, &mut other, &format!("get {key}"));
    }
    let interests = server.executor.interests().clone();
    interests.tracking().set_keys_max(1);
    interests.tracking().trim(&server.host.clients);
    assert_eq!(told(&server, 2).len(), 2);
    assert_eq!(interests.tracking().totals().keys, 1);
    by_other(&mut server, &mut other, "get d");
    assert_eq!((told(&server, 2).len(), interests.tracking().totals().keys), (1, 1), "of any slot");
}

#[test]
fn a_script_reads_what_its_commands_read() {
    let (mut server, mut other) = tracked(&["hello 3", "client tracking on"]);
    let read = "redis.call('get', KEYS[2])";
    for (line, expected) in [
        (format!(r#"eval_ro "{read}" 2 a b"#), vec![message("\"b\"")]),
        (format!(r#"eval "{read}" 2 a b"#), vec![message("\"b\"")]),
        ("eval_ro \"return 1\" 2 a b".to_string(), vec![]),
    ] {
        by_other(&mut server, &mut other, &line);
        server.check(&[("mset a 1 b 1", "+OK")]);
        assert_eq!(told(&server, 2), expected, "{line}");
    }
    for line in [
        "client tracking off",
        "client tracking on optin",
        "client caching yes",
        &format!(r#"eval_ro "{read}" 2 a b"#),
        &format!(r#"eval_ro "{read}" 2 b a"#),
    ] {
        by_other(&mut server, &mut other, line);
    }
    server.check(&[("mset a 2 b 2", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"b\"")], "CACHING holds for one script");
}

#[test]
fn keys_that_were_read_before_are_not_told_to_who_follows_prefixes() {
    let (mut server, _other) = tracked(&[
        "hello 3",
        "client tracking on",
        "get a",
        "client tracking off",
        "client tracking on bcast prefix b",
    ]);
    server.check(&[("mset a 1 b 1", "+OK")]);
    assert_eq!(told(&server, 2), [message("\"b\"")]);
}

#[test]
fn no_invalidation_follows_the_end_of_tracking() {
    for end in ["client tracking off", "reset"] {
        let (mut server, mut other) = tracked(&["hello 3", "client tracking on", "get a"]);
        by_other(&mut server, &mut other, end);
        server.check(&[("set a 1", "+OK")]);
        assert!(told(&server, 2).is_empty(), "{end}");
        assert!(!server.executor.interests().any(), "{end}: writers pay nothing");
    }
}
