use documents::Pick;

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
fn what_is_wrong_is_told_with_the_names_of_couchdb() {
    let mut server = server();
    server.check(&[
        ("DOC.GET nothing a", "-NOTFOUND Database does not exist."),
        ("DOC.PUT nothing a {}", "-NOTFOUND Database does not exist."),
        ("DOC.PUT orders a 7", "-BADREQUEST Document must be a JSON object"),
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
        (r#"DOC.PUT orders o1 '{"item":"y"}'"#, "+QUEUED"),
        ("DOC.PUT nothing o1 {}", "+QUEUED"),
    ]);
    let before = server.appended_lsn();
    let reply = server.run("EXEC");
    assert!(
        reply.contains(r#"\"item\":\"x\""#) || reply.contains(r#""item":"x""#),
        "it sees what it wrote: {reply}"
    );
    assert!(reply.contains("CONFLICT") && reply.contains("NOTFOUND"), "{reply}");
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
fn a_reply_waits_for_what_it_shows() {
    let mut server = server();
    let written = server.gate("DOC.PUT orders a {}");
    assert_eq!(written, server.appended_lsn());
    server.run("SET other 1");
    assert_eq!(server.gate("DOC.GET orders a"), written);
    assert_eq!(server.gate("DOC.PUT orders a {}"), written, "a conflict shows what is there");
    assert!(server.gate("DOC.GET nothing a") <= server.appended_lsn());
}
