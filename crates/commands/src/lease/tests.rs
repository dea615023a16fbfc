use engine::{EventClass, Session, leases::LEASES_MAX};

use crate::testing::{TestServer, WRONG_TYPE, check};

fn token(reply: &str) -> u64 {
    reply
        .strip_prefix(':')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no token: {reply}"))
}

/// Closes the connection of a client.
fn close(server: &mut TestServer, mut session: Session) {
    server.executor.begin_round(server.clock_ms(), &server.services, server.bulk_bytes_max);
    assert!(server.executor.release_leases(&mut session, &server.services));
    server.executor.end_round(&server.services);
}

/// The token of the last record.
fn own_token(server: &TestServer) -> u64 {
    server.log.token(server.appended_lsn())
}

/// Runs commands of another client; its connection stays open.
fn elsewhere(server: &mut TestServer, lines: &[&str]) -> Session {
    let mut other = server.connect();
    std::mem::swap(&mut server.session, &mut other);
    lines.iter().for_each(|line| _ = server.run(line));
    std::mem::swap(&mut server.session, &mut other);
    other
}

#[test]
fn a_lease_is_taken_renewed_and_given_back() {
    let mut server = TestServer::new();
    let first = token(&server.run("LEASE k 1000 me"));
    assert_eq!(first, own_token(&server), "the position of its record, in this reign");
    server.check(&[
        ("GET k", "\"me\""),
        ("PTTL k", ":1000"),
        ("LEASE k 1000 you", "nil"),
        ("UNLEASE k you", ":0"),
        ("after 600", ""),
    ]);
    let second = token(&server.run("LEASE k 1000 me"));
    assert!(second > first);
    server.check(&[("PTTL k", ":1000"), ("UNLEASE k me", ":1"), ("UNLEASE k me", ":0"), ("EXISTS k", ":0")]);
    assert!(token(&server.run("LEASE k 10 you")) > second);
    server.check(&[("after 10", "")]);
    assert!(token(&server.run("LEASE k 10 me")) > second, "its time is over");
    server.assert_replays();
}

#[test]
fn invalid_leases_are_refused() {
    check(&[
        ("LEASE k 0 me", "-ERR invalid expire time in 'lease' command"),
        ("LEASE k -1 me", "-ERR invalid expire time in 'lease' command"),
        ("LEASE k 9223372036854775807 me", "-ERR invalid expire time in 'lease' command"),
        ("LEASE k x me", "-ERR value is not an integer or out of range"),
        ("LEASE k 1", "-ERR wrong number of arguments for 'lease' command"),
        ("RPUSH k a", ":1"),
        ("LEASE k 1 me", WRONG_TYPE),
        ("UNLEASE k me", WRONG_TYPE),
        ("SET s other", "+OK"),
        ("LEASE s 1 me", "nil"),
        ("UNLEASE s me", ":0"),
        ("LEASE s x me", "-ERR value is not an integer or out of range"),
    ]);
    let mut server = TestServer::new();
    let refused = "-ERR This Redis command is not allowed from script";
    assert!(server.run("EVAL \"return redis.call('LEASE', 'k', 1000, 'me')\" 0").starts_with(refused));
    assert!(server.run("EVAL \"return redis.call('UNLEASE', 'k', 'me')\" 0").starts_with(refused));
}

#[test]
fn a_closing_connection_releases_its_leases_in_one_record() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse("AKE").expect("known letters");
    let other = elsewhere(&mut server, &["LEASE a 1000 x", "LEASE b 1000 x", "SELECT 3", "LEASE c 1000 x"]);
    server.events();
    let before = server.appended_lsn();
    server.run("LEASE k 1000 me");
    let one = server.appended_lsn().get() - before.get();
    let before = server.appended_lsn();
    close(&mut server, other);
    assert!(server.appended_lsn().get() - before.get() < 2 * one, "one record for all");
    assert_eq!(server.events(), ["lease k", "leaselost a", "leaselost b", "leaselost c in 3"]);
    server.check(&[("EXISTS a b", ":0"), ("GET k", "\"me\""), ("SELECT 3", "+OK"), ("EXISTS c", ":0")]);
    server.assert_replays();
}

#[test]
fn a_changed_key_is_not_released() {
    for (line, value) in [
        ("SET k x", "\"x\""),
        ("SET k other", "\"other\""),
        ("LEASE k 5000 x", "\"x\""),
        ("PEXPIRE k 5000", "\"x\""),
        ("PERSIST k", "\"x\""),
        ("EVAL \"redis.call('DEL', 'k') return redis.call('SET', 'k', 'x')\" 1 k", "\"x\""),
    ] {
        let mut server = TestServer::new();
        let other = elsewhere(&mut server, &["LEASE k 1000 x"]);
        server.run(line);
        close(&mut server, other);
        assert_eq!(server.run("GET k"), value, "{line}");
        server.assert_replays();
    }
}

#[test]
fn a_key_that_has_gone_is_not_released_twice() {
    for line in ["DEL k", "UNLEASE k x", "RENAME k other", "FLUSHALL", "SWAPDB 0 1"] {
        let mut server = TestServer::new();
        let other = elsewhere(&mut server, &["LEASE k 1000 x"]);
        server.run(line);
        let before = server.appended_lsn();
        close(&mut server, other);
        assert_eq!(server.appended_lsn(), before, "{line}");
        server.assert_replays();
    }
    let mut server = TestServer::new();
    let other = elsewhere(&mut server, &["LEASE k 1000 x"]);
    server.clock.advance_ms(1000);
    let before = server.appended_lsn();
    close(&mut server, other);
    assert_eq!(server.appended_lsn(), before, "it has expired");
}

#[test]
fn a_lease_that_was_renewed_elsewhere_ends_with_that_connection() {
    let mut server = TestServer::new();
    let first = elsewhere(&mut server, &["LEASE k 1000 x"]);
    let second = elsewhere(&mut server, &["LEASE k 1000 x"]);
    close(&mut server, first);
    assert_eq!(server.run("GET k"), "\"x\"");
    close(&mut server, second);
    assert_eq!(server.run("GET k"), "nil");
}

#[test]
fn leases_work_in_transactions() {
    let mut server = TestServer::new();
    let other = elsewhere(
        &mut server,
        &["MULTI", "LEASE a 1000 x", "SET s 1", "LEASE b 1000 x", "UNLEASE b x", "EXEC"],
    );
    server.run("MULTI");
    server.run("LEASE a 1000 me");
    server.run("LEASE b 1000 me");
    server.run("LEASE c 1000 me");
    server.run("GET s");
    let reply = server.run("EXEC");
    let own = own_token(&server);
    assert_eq!(reply, format!("[nil, :{own}, :{own}, \"1\"]"));
    close(&mut server, other);
    server.check(&[("GET a", "nil"), ("GET b", "\"me\""), ("GET c", "\"me\"")]);
    server.assert_replays();
}

#[test]
fn tokens_come_with_any_form_of_reply() {
    let mut server = TestServer::new();
    server.run("HELLO 3");
    server.run("CLIENT LSN ON");
    let reply = server.run("LEASE k 1000 me");
    let (lsn, token) = (server.appended_lsn(), own_token(&server));
    assert_eq!(reply, format!("|{{\"lsn\": :{lsn}}} :{token}"));
    server.run("CLIENT REPLY OFF");
    assert_eq!(server.run("LEASE k 1000 me"), "");
    server.run("CLIENT REPLY ON");
    assert_eq!(server.run("GET k"), "\"me\"");
}

#[test]
fn leases_of_a_connection_are_limited() {
    let mut server = TestServer::new();
    for number in 0..LEASES_MAX {
        token(&server.run(&format!("LEASE k{number} 1000 me")));
    }
    let refused = "-ERR this connection holds too many leases";
    assert_eq!(server.run("LEASE more 1000 me"), refused);
    token(&server.run("LEASE k0 1000 me"));
    server.run("DEL k1");
    token(&server.run("LEASE more 1000 me"));
    assert_eq!(server.run("LEASE k1 1000 me"), refused);
    let next = server.connect();
    let all = std::mem::replace(&mut server.session, next);
    close(&mut server, all);
    assert_eq!(server.run("DBSIZE"), ":0");
    assert!(!server.executor.interests().any(), "nothing is watched any more");
    server.assert_replays();
}
