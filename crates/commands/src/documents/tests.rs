use documents::Pick;
use engine::EventClass;
use wire::Protocol;

use crate::testing::TestServer;

fn server() -> TestServer {
    let server = TestServer::new();
    server.create_database("orders");
    server.create_database("stock");
    server
}

fn rev(reply: &str) -> &str {
    reply.trim_matches('"')
}

#[test]
fn documents_are_written_read_replaced_and_deleted() {
    let mut server = server();
    let first = server.run(r#"DOC.PUT orders a '{"n": 1, "_id": "a"}'"#);
    assert!(rev(&first).starts_with("1-") && rev(&first).len() == 34, "{first}");
    let shown = server.raw("DOC.GET orders a");
    let expected = format!(r#"{{"_id":"a","_rev":"{}","n":1}}"#, rev(&first));
    assert_eq!(shown, format!("${}\r\n{expected}\r\n", expected.len()).into_bytes());
    let second = server.run(&format!("DOC.PUT orders a '{{\"n\":2}}' {}", rev(&first)));
    assert!(rev(&second).starts_with("2-"), "{second}");
    server.check(&[
        (r#"DOC.PUT orders a '{"n":3}'"#, "-CONFLICT Document update conflict."),
        (&format!("DOC.DEL orders a {}", rev(&first)), "-CONFLICT Document update conflict."),
        ("DOC.GET orders b", "nil"),
        (&format!("DOC.GET orders a {}", rev(&first)), "nil"),
    ]);
    let third = server.run(&format!("DOC.DEL orders a {}", rev(&second)));
    assert!(rev(&third).starts_with("3-"), "{third}");
    server.check(&[("DOC.GET orders a", "nil")]);
    let (logged, records) = server.logged_documents();
    assert_eq!(records, 2 + 3, "what was refused is not logged");
    let found = logged
        .database("orders")
        .expect("it is there")
        .snapshot()
        .open("a", Pick::Rev(rev(&third).parse().expect("a rev")));
    assert!(found.expect("it is there").leaf().deleted);
}

#[test]
fn errors_have_the_names_and_texts_of_couchdb() {
    let mut server = server();
    server.check(&[
        ("DOC.GET nothing a", "-NOTFOUND Database does not exist."),
        (
            "DOC.GET _users org.couchdb.user:a",
            "-FORBIDDEN Documents of _users are read over HTTP alone, which shows users only their own: they hold hashes \
             of passwords.",
        ),
        ("DOC.PUT nothing a {}", "-NOTFOUND Database does not exist."),
        ("DOC.PUT orders a 7", "-BADREQUEST Document must be a JSON object"),
        (r#"DOC.PUT orders a '{"n": 1e310}'"#, "-BADREQUEST invalid UTF-8 JSON"),
        (r#"DOC.PUT orders a '{"n": "\ud800"}'"#, "-BADREQUEST invalid UTF-8 JSON"),
        (r#"DOC.PUT orders a '{"_x": 1}'"#, "-DOCVALIDATION Bad special document member: _x"),
        ("DOC.PUT orders _a {}", "-ILLEGALDOCID Only reserved document ids may start with underscore."),
        ("DOC.PUT orders _local/a {}", "-BADREQUEST _local documents are written over HTTP"),
        ("DOC.PUT orders a {} x", "-BADREQUEST Invalid rev format"),
        ("DOC.DEL orders a 0-1", "-BADREQUEST Invalid rev format"),
        (r#"DOC.GET "\xff" a"#, "-BADREQUEST names of databases and documents are UTF-8"),
        ("DOC.GET orders a b c", "-ERR syntax error"),
    ]);
    assert_eq!(server.logged_documents().1, 2);
}

#[test]
fn a_transaction_writes_documents_keys_and_messages_as_one_record() {
    let mut server = server();
    server.check(&[
        ("SET kept 1", "+OK"),
        ("MULTI", "+OK"),
        (r#"DOC.PUT orders o1 '{"item":"x"}'"#, "+QUEUED"),
        ("DECR stock:x", "+QUEUED"),
        (r#"DOC.PUT stock x '{"left":9}'"#, "+QUEUED"),
        ("PUBLISH durable:orders o1", "+QUEUED"),
        ("DOC.GET orders o1", "+QUEUED"),
    ]);
    let before = server.appended_lsn();
    let reply = server.run("EXEC");
    assert!(
        reply.contains(r#"\"item\":\"x\""#) || reply.contains(r#""item":"x""#),
        "it sees what it wrote: {reply}"
    );
    let appended = server.appended_lsn();
    assert!(appended > before);
    let (logged, records) = server.logged_documents();
    assert_eq!(records, 2 + 2, "one change per database");
    for (database, id) in [("orders", "o1"), ("stock", "x")] {
        let snapshot = logged.database(database).expect("it is there").snapshot();
        snapshot.open(id, Pick::Winner).expect("it is there");
        let live = server.host.documents.database(database).expect("it is there").snapshot();
        assert_eq!(snapshot.last_lsn(), live.last_lsn());
        assert_eq!(live.last_lsn(), appended, "of the same record");
    }
    assert_eq!(server.logged_messages(), ["durable:orders o1"]);
    server.check(&[("GET stock:x", "\"-1\"")]);
    server.assert_replays();
}

#[test]
fn a_transaction_that_does_not_run_changes_no_document() {
    let mut server = server();
    server.check(&[("WATCH k", "+OK")]);
    let mut other = server.connect();
    std::mem::swap(&mut server.session, &mut other);
    server.check(&[("SET k 1", "+OK")]);
    std::mem::swap(&mut server.session, &mut other);
    server.check(&[("MULTI", "+OK"), ("DOC.PUT orders a {}", "+QUEUED"), ("EXEC", "nil")]);
    server.check(&[
        ("DOC.GET orders a", "nil"),
        ("DOC.PUT orders", "-ERR wrong number of arguments for 'doc.put' command"),
    ]);
    assert_eq!(server.logged_documents().1, 2);
}

#[test]
fn a_reply_waits_for_the_newest_change_that_it_shows() {
    let mut server = server();
    let written = server.gate("DOC.PUT orders a {}");
    assert_eq!(written, server.appended_lsn());
    server.run("SET other 1");
    assert_eq!(server.gate("DOC.GET orders a"), written);
    assert_eq!(server.gate("DOC.PUT orders a {}"), written, "a conflict shows what is there");
    assert!(server.gate("DOC.GET nothing a") <= server.appended_lsn());
}

/// Failing last commands of a transaction, and the error of EXEC.
const FAILING: &[(&str, &str)] = &[
    (r#"DOC.PUT orders taken '{"n":2}'"#, "DOC.PUT (command 6): CONFLICT Document update conflict."),
    ("DOC.PUT nothing a {}", "DOC.PUT (command 6): NOTFOUND Database does not exist."),
    ("DOC.GET nothing a", "DOC.GET (command 6): NOTFOUND Database does not exist."),
    ("DOC.PUT orders a 7", "DOC.PUT (command 6): BADREQUEST Document must be a JSON object"),
    (
        "doc.del orders taken 1-00000000000000000000000000000000",
        "DOC.DEL (command 6): CONFLICT Document update conflict.",
    ),
    ("IDEMP once 60000 DOC.PUT nothing a {}", "DOC.PUT (command 6): NOTFOUND Database does not exist."),
];

#[test]
fn a_command_on_documents_that_fails_undoes_the_whole_transaction() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        for (failing, told) in FAILING {
            let mut server = server();
            *server.host.event_classes.lock() = EventClass::parse("KEA").expect("letters");
            server.session.protocol = protocol;
            server.run(r#"DOC.PUT orders taken '{"n":1}'"#);
            server.check(&[("SET stock:x 5", "+OK"), ("RPUSH jobs a b c", ":3"), ("SET gone 1 PX 5", "+OK")]);
            server.events();
            let (content, documents) = (server.content(), server.logged_documents().1);
            let before = server.appended_lsn();
            server.check(&[
                ("WATCH stock:x", "+OK"),
                ("MULTI", "+OK"),
                ("DECR stock:x", "+QUEUED"),
                (r#"DOC.PUT orders o1 '{"item":"x"}'"#, "+QUEUED"),
                ("EVAL \"redis.call('rpop', 'jobs') redis.call('set', 'made', 1)\" 0", "+QUEUED"),
                ("PUBLISH durable:orders o1", "+QUEUED"),
                ("SELECT 3", "+QUEUED"),
                (failing, "+QUEUED"),
                ("INCR late", "+QUEUED"),
                ("EXEC", &format!("-EXECABORT Transaction discarded because of: {told}")),
            ]);
            assert_eq!(server.appended_lsn(), before, "nothing is logged: {failing}");
            assert_eq!(server.content(), content, "{failing}");
            assert_eq!(server.logged_documents().1, documents, "{failing}");
            assert!(server.events().is_empty(), "{failing}");
            assert!(server.logged_messages().is_empty(), "{failing}");
            server.check(&[
                ("GET stock:x", "\"5\""),
                ("DOC.GET orders o1", "nil"),
                ("EXISTS late made once", ":0"),
                // The watches are gone, and the next transaction works.
                ("SET stock:x 6", "+OK"),
                ("MULTI", "+OK"),
                (r#"DOC.PUT stock x '{"left":6}' "#, "+QUEUED"),
                ("DECR stock:x", "+QUEUED"),
            ]);
            let reply = server.run("EXEC");
            assert!(reply.starts_with("[\"1-") && reply.ends_with("\", :5]"), "{reply}");
            server.assert_replays();
        }
    }
}

#[test]
fn a_command_on_keys_that_fails_undoes_nothing_beside_documents() {
    let mut server = server();
    server.check(&[
        ("SET text x", "+OK"),
        ("MULTI", "+OK"),
        ("DOC.PUT orders a {}", "+QUEUED"),
        ("INCR text", "+QUEUED"),
        ("SET made 1", "+QUEUED"),
    ]);
    let reply = server.run("EXEC");
    assert!(reply.contains("-ERR value is not an integer") && reply.ends_with("+OK]"), "{reply}");
    assert_ne!(server.run("DOC.GET orders a"), "nil");
    server.assert_replays();
}

#[test]
fn undone_changes_wake_and_invalidate_no_client() {
    let mut server = server();
    let mut other = server.connect();
    std::mem::swap(&mut server.session, &mut other);
    server.run("HELLO 3");
    server.check(&[("CLIENT TRACKING ON", "+OK"), ("GET a", "nil"), ("GET b", "nil"), ("BLPOP jobs 0", "")]);
    let id = server.session.client.id();
    std::mem::swap(&mut server.session, &mut other);
    server.check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("RPUSH jobs 1", "+QUEUED"),
        ("SET a 2", "+QUEUED"),
        ("DOC.PUT nothing a {}", "+QUEUED"),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of: DOC.PUT (command 4): NOTFOUND Database does not exist.",
        ),
    ]);
    assert!(server.host.take_pushed(id).0.is_empty(), "nothing has changed");
    assert_eq!(server.host.take_answer(id), None, "nothing was pushed");
    server.check(&[("SET a 3", "+OK")]);
    assert_eq!(server.host.take_pushed(id).0, [r#">["invalidate", ["a"]]"#], "it is still tracked");
    server.check(&[("RPUSH jobs 2", ":1")]);
    assert!(server.host.take_answer(id).is_some(), "it waits still");
}

#[test]
fn commands_without_undo_are_refused_in_transactions_with_documents() {
    let refused = |name: &str| {
        format!("-ERR {name} cannot be undone: it cannot be in one transaction with DOC commands")
    };
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    let mut server = server();
    server.check(&[("SET kept 1", "+OK")]);
    for (line, name) in [
        ("FLUSHALL", "FLUSHALL"),
        ("FLUSHDB", "FLUSHDB"),
        ("CONFIG SET maxmemory 1", "CONFIG SET"),
        ("CLIENT SETNAME x", "CLIENT SETNAME"),
        ("LEASE k 1000 me", "LEASE"),
        ("SUBSCRIBE c", "SUBSCRIBE"),
        ("IDEMP k 1000 FLUSHALL", "FLUSHALL"),
    ] {
        server.check(&[
            ("MULTI", "+OK"),
            ("DOC.GET orders a", "+QUEUED"),
            (line, &refused(name)),
            ("EXEC", aborted),
            ("MULTI", "+OK"),
            (line, "+QUEUED"),
            ("DOC.GET orders a", &refused(name)),
            ("EXEC", aborted),
        ]);
    }
    server.check(&[
        ("MULTI", "+OK"),
        ("DOC.PUT orders a {}", "+QUEUED"),
        ("EVAL \"return redis.pcall('flushall').err\" 0", "+QUEUED"),
        ("DOC.PUT orders a {}", "+QUEUED"),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of: DOC.PUT (command 3): CONFLICT Document update conflict.",
        ),
        ("GET kept", "\"1\""),
        ("MULTI", "+OK"),
        ("EVAL \"redis.call('flushall')\" 0", "+QUEUED"),
        ("SET other 1", "+QUEUED"),
        ("EXEC", "[nil, +OK]"),
        ("EXISTS kept", ":0"),
    ]);
    server.assert_replays();
}
