//! Clients that wait, clients that serve them, and other ends of a wait.

use std::mem::swap;

use engine::{MemoryLimits, Session};
use keyspace::{DbId, EvictionPolicy, SlotId};
use lsn::Lsn;
use storage::Durability;
use wire::Protocol;

use crate::testing::{TestServer, check, check_protocols};

/// A server with the client that runs tables, and others that block.
struct Clients {
    server: TestServer,
    others: Vec<Session>,
}

impl Clients {
    fn new(others: usize) -> Clients {
        let server = TestServer::new();
        let others = (0..others).map(|_| server.connect()).collect();
        Clients { server, others }
    }

    /// Runs a command of another client; returns the reply.
    fn run(&mut self, client: usize, line: &str) -> String {
        swap(&mut self.server.session, &mut self.others[client]);
        let reply = self.server.run(line);
        swap(&mut self.server.session, &mut self.others[client]);
        reply
    }

    /// Runs a command of another client, which must block.
    fn block(&mut self, client: usize, line: &str) {
        assert_eq!(self.run(client, line), "", "{line} is to block");
        assert!(self.others[client].wait.is_some(), "{line} is to block");
    }

    /// The answer to a blocked client, with its gate; empty text if it still waits. Ends the wait, as the
    /// client's worker does.
    fn answer(&mut self, client: usize) -> (String, Lsn) {
        let session = &mut self.others[client];
        let Some(answer) = self.server.host.take_answer(session.client.id()) else {
            return (String::new(), Lsn::ZERO);
        };
        assert!(session.wait.take().is_some(), "only a client that waits is answered");
        answer
    }

    fn answered(&mut self, client: usize) -> String {
        self.answer(client).0
    }

    /// The timeout of a blocked client passes.
    fn time_out(&mut self, client: usize) -> Option<Vec<u8>> {
        let session = &mut self.others[client];
        let reply = session.wait.as_ref().expect("it is blocked").time_out(&self.server.services);
        if reply.is_some() {
            session.wait = None;
        }
        reply
    }

    fn check(&mut self, table: &[(&str, &str)]) {
        self.server.check(table);
    }
}

#[test]
fn present_elements_are_popped_without_blocking() {
    check(&[
        ("RPUSH l a b c d", ":4"),
        ("BLPOP none l 0", r#"["l", "a"]"#),
        ("BRPOP l none 0.5", r#"["l", "d"]"#),
        ("BLMOVE l m RIGHT LEFT 0", r#""c""#),
        ("BRPOPLPUSH l m 0", r#""b""#),
        ("LRANGE m 0 -1", r#"["b", "c"]"#),
        ("BLMPOP 0 2 l m LEFT COUNT 5", r#"["m", ["b", "c"]]"#),
        ("DBSIZE", ":0"),
    ]);
    check_protocols(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4", ":4"),
        (
            "BZMPOP 0 2 y z MIN COUNT 2",
            r#"["z", [["a", "1"], ["b", "2"]]]"#,
            r#"["z", [["a", ,1], ["b", ,2]]]"#,
        ),
        ("BZPOPMAX y z 0", r#"["z", "d", "4"]"#, r#"["z", "d", ,4]"#),
        ("BZPOPMIN z 1", r#"["z", "c", "3"]"#, r#"["z", "c", ,3]"#),
        ("DBSIZE", ":0", ":0"),
    ]);
}

#[test]
fn invalid_calls_do_not_block() {
    const NO_FLOAT: &str = "-ERR timeout is not a float or out of range";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    check(&[
        ("BLPOP l x", NO_FLOAT),
        ("BRPOP l -1", "-ERR timeout is negative"),
        ("BLMOVE a b LEFT UP x", "-ERR syntax error"),
        ("BLMOVE a b LEFT LEFT x", NO_FLOAT),
        ("BRPOPLPUSH a b 1e400", "-ERR timeout is out of range"),
        ("BLMPOP x 0 a LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMPOP x 1 a LEFT", NO_FLOAT),
        ("BZMPOP x 1 z MIN COUNT 0", "-ERR count should be greater than 0"),
        ("BLMPOP 0 0 a LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMPOP 0 2 a LEFT", "-ERR syntax error"),
        ("BZPOPMIN z inf", "-ERR timeout is out of range"),
        ("BZPOPMAX z", "-ERR wrong number of arguments for 'bzpopmax' command"),
        ("BZMPOP 0 1 z UP", "-ERR syntax error"),
        ("SET s v", "+OK"),
        ("BLPOP none s 0", WRONG_TYPE),
        ("BRPOPLPUSH s d 0", WRONG_TYPE),
        ("BZPOPMIN s 0", WRONG_TYPE),
        ("RPUSH l a", ":1"),
        ("BZMPOP 0 1 l MIN", WRONG_TYPE),
        ("BLMOVE l s LEFT LEFT 0", WRONG_TYPE),
        ("BLPOP l s 0", r#"["l", "a"]"#),
    ]);
}

#[test]
fn a_push_and_the_pop_that_it_serves_are_one_record() {
    let mut clients = Clients::new(1);
    clients.block(0, "BLPOP other l 0");
    let before = clients.server.appended_lsn();
    clients.check(&[("RPUSH l a b", ":2"), ("LRANGE l 0 -1", r#"["b"]"#)]);
    let (reply, gate) = clients.answer(0);
    assert_eq!(reply, r#"["l", "a"]"#);
    assert!(
        gate > before && gate == clients.server.appended_lsn(),
        "the answer waits for the record of the push"
    );
    clients.block(0, "BLPOP other 0");
    clients.check(&[("RPUSH l c", ":2")]);
    assert_eq!(clients.answered(0), "", "who was served does not wait for the other keys any more");
    clients.server.assert_replays();
}

#[test]
fn a_write_by_which_a_waiter_is_served_is_its_last_one() {
    let mut clients = Clients::new(1);
    clients.check(&[("SET other 1", "+OK")]);
    assert_eq!(clients.run(0, "CLIENT LSN"), ":0");
    clients.block(0, "BLMOVE l taken LEFT LEFT 0");
    clients.check(&[("RPUSH l a", ":1")]);
    let (_, gate) = clients.answer(0);
    assert_eq!(clients.run(0, "CLIENT LSN"), format!(":{gate}"), "WAIT counts from there");
    clients.run(0, "GET other");
    assert_eq!(clients.run(0, "CLIENT LSN"), format!(":{gate}"));
}

#[test]
fn waiters_are_served_in_the_order_of_their_arrival() {
    let mut clients = Clients::new(4);
    clients.block(0, "BLPOP l 0");
    clients.block(1, "BRPOP x l 0");
    clients.block(2, "BLMPOP 0 1 l LEFT COUNT 2");
    clients.block(3, "BRPOPLPUSH l l 0");
    clients.check(&[("RPUSH l a b", ":2")]);
    assert_eq!(
        [0, 1, 2, 3].map(|client| clients.answered(client)),
        [r#"["l", "a"]"#, r#"["l", "b"]"#, "", ""]
    );
    clients.block(0, "BLPOP l 0");
    clients.check(&[("RPUSH l c d e f", ":4"), ("LLEN l", ":1")]);
    assert_eq!(
        [2, 3, 0].map(|client| clients.answered(client)),
        [r#"["l", ["c", "d"]]"#, r#""f""#, r#"["l", "f"]"#]
    );
    assert_eq!(clients.run(1, "LPOP l"), r#""e""#);
    clients.server.assert_replays();
}

#[test]
fn a_waiter_is_answered_in_its_own_protocol() {
    let mut clients = Clients::new(3);
    clients.others[1].protocol = Protocol::Resp3;
    clients.block(0, "BZPOPMIN z 0");
    clients.block(1, "BZPOPMAX z 0");
    clients.block(2, "BZMPOP 0 1 z MAX COUNT 9");
    clients.check(&[("ZADD z 1 a 2 b 3.5 c 4 d", ":4")]);
    assert_eq!(clients.answered(0), r#"["z", "a", "1"]"#);
    assert_eq!(clients.answered(1), r#"["z", "d", ,4]"#);
    assert_eq!(clients.answered(2), r#"["z", [["c", "3.5"], ["b", "2"]]]"#);
    clients.check(&[("EXISTS z", ":0")]);
    clients.server.assert_replays();
}

#[test]
fn an_element_of_another_type_serves_no_waiter() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLPOP k 0");
    clients.block(1, "BZPOPMIN k 0");
    clients.check(&[("SET k v", "+OK"), ("DEL k", ":1"), ("SADD k m", ":1"), ("DEL k", ":1")]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), ["", ""]);
    clients.check(&[("ZADD k 1 a", ":1"), ("EXISTS k", ":0")]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), ["", r#"["k", "a", "1"]"#]);
    clients.check(&[("RPUSH k x", ":1")]);
    assert_eq!(clients.answered(0), r#"["k", "x"]"#);
}

#[test]
fn large_values_that_come_under_another_name_serve_too() {
    let mut clients = Clients::new(2);
    let long = "x".repeat(20_000);
    clients.check(&[(&format!("RPUSH a 1 2 {long}"), ":3"), (&format!("ZADD z 1 m 2 {long}"), ":2")]);
    clients.block(0, "BLPOP b 0");
    clients.check(&[("RENAME a b", "+OK")]);
    assert_eq!(clients.answered(0), r#"["b", "1"]"#);
    clients.block(0, "BLPOP z2 0");
    clients.block(1, "BZPOPMIN z2 0");
    clients.check(&[("RENAME z z2", "+OK"), ("ZCARD z2", ":1")]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), ["", r#"["z2", "m", "1"]"#]);
    clients.others[1].db = DbId::new(1).expect("in range");
    clients.block(1, "BLPOP b 0");
    clients.check(&[("MOVE b 1", ":1")]);
    assert_eq!(clients.answered(1), r#"["b", "2"]"#);
}

#[test]
fn keys_that_come_from_elsewhere_serve_too() {
    let mut clients = Clients::new(2);
    clients.others[1].db = DbId::new(1).expect("in range");
    clients.check(&[("RPUSH a 1 2 3", ":3")]);
    clients.block(0, "BLPOP b 0");
    clients.check(&[("RENAME a b", "+OK")]);
    assert_eq!(clients.answered(0), r#"["b", "1"]"#);
    clients.block(0, "BLPOP c 0");
    clients.check(&[("COPY b c", ":1"), ("LLEN c", ":1")]);
    assert_eq!(clients.answered(0), r#"["c", "2"]"#);
    clients.block(1, "BRPOP b 0");
    clients.check(&[("MOVE b 1", ":1")]);
    assert_eq!(clients.answered(1), r#"["b", "3"]"#);
    clients.block(1, "BRPOP c 0");
    clients.check(&[("SWAPDB 0 1", "+OK")]);
    assert_eq!(clients.answered(1), r#"["c", "3"]"#);
    clients.check(&[("RPUSH unsorted 2 1", ":2")]);
    clients.block(0, "BLPOP sorted 0");
    clients.check(&[("SET sorted text", "+OK"), ("SORT unsorted STORE sorted", ":2"), ("LLEN sorted", ":1")]);
    assert_eq!(clients.answered(0), r#"["sorted", "1"]"#);
    clients.block(0, "BZPOPMAX z 0");
    clients.check(&[("SELECT 1", "+OK"), ("ZADD z 1 m", ":1"), ("SWAPDB 0 1", "+OK")]);
    assert_eq!(clients.answered(0), r#"["z", "m", "1"]"#);
    clients.server.assert_replays();
}

#[test]
fn a_transaction_serves_waiters_at_its_end() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLPOP a b 0");
    clients.check(&[
        ("MULTI", "+OK"),
        ("RPUSH b 1", "+QUEUED"),
        ("RPUSH a 2", "+QUEUED"),
        ("LPUSH b 3", "+QUEUED"),
        ("EXEC", "[:1, :1, :2]"),
    ]);
    assert_eq!(
        clients.answered(0),
        r#"["b", "3"]"#,
        "from the key that was ready first, as it is at the end"
    );
    clients.check(&[("LRANGE b 0 -1", r#"["1"]"#), ("DEL a b", ":2")]);
    clients.block(0, "BLPOP a 0");
    clients.check(&[("MULTI", "+OK"), ("RPUSH a 1", "+QUEUED"), ("DEL a", "+QUEUED"), ("EXEC", "[:1, :1]")]);
    assert_eq!(clients.answered(0), "");
    clients.server.assert_replays();
}

#[test]
fn a_transaction_does_not_block() {
    let mut server = TestServer::new();
    server.check(&[("MULTI", "+OK"), ("BLPOP a 0", "+QUEUED"), ("BLMOVE a b LEFT LEFT 0", "+QUEUED")]);
    server.check(&[("BZMPOP 0 1 z MIN", "+QUEUED"), ("RPUSH a x", "+QUEUED"), ("BRPOP a 0", "+QUEUED")]);
    assert_eq!(server.raw("EXEC"), b"*5\r\n*-1\r\n$-1\r\n*-1\r\n:1\r\n*2\r\n$1\r\na\r\n$1\r\nx\r\n");
    assert!(server.session.wait.is_none());
    server.assert_replays();
}

#[test]
fn a_moved_element_serves_the_waiter_of_its_new_list() {
    let mut clients = Clients::new(4);
    clients.block(0, "BLMOVE a b LEFT RIGHT 0");
    clients.block(1, "BRPOPLPUSH b c 0");
    clients.block(2, "BLPOP c 0");
    // This client waits behind client 0, which needs the slot of another key. Once client 0 blocks again,
    // this client is before it.
    clients.block(3, "BLPOP a 0");
    clients.check(&[("RPUSH a x", ":1"), ("DBSIZE", ":0")]);
    let replies = [0, 1, 2, 3].map(|client| clients.answered(client));
    assert_eq!(replies, [r#""x""#, r#""x""#, r#"["c", "x"]"#, ""]);
    clients.block(0, "BLMOVE a a LEFT RIGHT 0");
    clients.check(&[("RPUSH a y z", ":2")]);
    assert_eq!(clients.answered(3), r#"["a", "y"]"#);
    assert_eq!(clients.answered(0), r#""z""#);
    clients.check(&[("LRANGE a 0 -1", r#"["z"]"#)]);
    clients.server.assert_replays();
}

#[test]
fn keys_are_served_in_the_order_in_which_they_were_made_ready() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLMOVE a b LEFT RIGHT 0");
    clients.block(1, "BLPOP c a 0");
    // The first waiter needs the lock of `b`, so it is served after the transaction. Until then the second
    // waiter, which waits for `a` behind the first one, must not be served from `c` either.
    clients.check(&[
        ("MULTI", "+OK"),
        ("RPUSH a 1 2", "+QUEUED"),
        ("RPUSH c 3", "+QUEUED"),
        ("EXEC", "[:2, :1]"),
    ]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), [r#""1""#, r#"["a", "2"]"#]);
    clients.check(&[("LRANGE c 0 -1", r#"["3"]"#)]);
    clients.server.assert_replays();
}

#[test]
fn a_key_is_ready_from_when_it_was_filled_not_from_when_it_was_overwritten() {
    let mut clients = Clients::new(1);
    clients.block(0, "BLPOP a b 0");
    clients.check(&[
        ("MULTI", "+OK"),
        ("SET b text", "+QUEUED"),
        ("RPUSH a 1", "+QUEUED"),
        ("DEL b", "+QUEUED"),
        ("RPUSH b 2", "+QUEUED"),
        ("EXEC", "[+OK, :1, :1, :1]"),
    ]);
    assert_eq!(clients.answered(0), r#"["a", "1"]"#);
    clients.server.assert_replays();
}

#[test]
fn a_disconnected_waiter_is_skipped() {
    let mut clients = Clients::new(3);
    clients.block(0, "BLMOVE a b LEFT RIGHT 0");
    clients.block(1, "BLMOVE a c LEFT RIGHT 0");
    clients.block(2, "BLPOP a 0");
    // The worker of client 2 has not seen the signal yet.
    clients.check(&[("CLIENT KILL ID 2", ":1"), ("RPUSH a 1 2", ":2")]);
    assert_eq!([0, 1, 2].map(|client| clients.answered(client)), ["", r#""1""#, r#"["a", "2"]"#]);
}

#[test]
fn a_move_to_another_type_fails_and_leaves_the_element_to_others() {
    let mut clients = Clients::new(2);
    clients.check(&[("SET s v", "+OK")]);
    clients.block(0, "BLMOVE a s LEFT RIGHT 0");
    clients.block(1, "BLPOP a 0");
    clients.check(&[("RPUSH a x", ":1")]);
    assert_eq!(clients.answered(0), "-WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(clients.answered(1), r#"["a", "x"]"#);
}

#[test]
fn keys_in_one_slot_are_moved_in_the_record_of_the_push() {
    let mut clients = Clients::new(1);
    clients.block(0, "BLMOVE {t}a {t}b LEFT RIGHT 0");
    let gate = clients.server.gate("RPUSH {t}a x");
    assert_eq!(clients.answer(0), (r#""x""#.to_string(), gate));
    clients.server.assert_replays();
}

#[test]
fn a_timeout_ends_a_wait_once() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLPOP l 0.25");
    clients.block(1, "BLMOVE l m LEFT LEFT 0");
    assert_eq!(clients.others[0].wait.as_ref().and_then(|wait| wait.timeout_ms()), Some(250));
    assert_eq!(clients.others[1].wait.as_ref().and_then(|wait| wait.timeout_ms()), None);
    assert_eq!(clients.time_out(0).as_deref(), Some(&b"*-1\r\n"[..]));
    clients.check(&[("RPUSH l a", ":1")]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), ["", r#""a""#]);
    clients.block(0, "BRPOPLPUSH l m 1");
    clients.check(&[("RPUSH l b", ":1")]);
    assert_eq!(clients.time_out(0), None, "it was served: the answer is on its way");
    assert_eq!(clients.answered(0), r#""b""#);
    clients.block(0, "BRPOPLPUSH l m 1");
    assert_eq!(clients.time_out(0).as_deref(), Some(&b"*-1\r\n"[..]));
    clients.others[0].protocol = Protocol::Resp3;
    clients.block(0, "BZPOPMIN l z 1");
    assert_eq!(clients.time_out(0).as_deref(), Some(&b"_\r\n"[..]));
}

#[test]
fn client_unblock_ends_a_wait() {
    let mut clients = Clients::new(2);
    clients.check(&[("CLIENT UNBLOCK 2", ":0")]);
    clients.block(0, "BLPOP l 0");
    clients.block(1, "BLMOVE l m LEFT LEFT 0");
    clients.check(&[
        ("CLIENT UNBLOCK 2 ERROR", ":1"),
        ("CLIENT UNBLOCK 2", ":0"),
        ("CLIENT UNBLOCK 3 timeout", ":1"),
    ]);
    assert_eq!(clients.answer(0), ("-UNBLOCKED client unblocked via CLIENT UNBLOCK".to_string(), Lsn::ZERO));
    assert_eq!(clients.answered(1), "nil");
    clients.check(&[("RPUSH l a", ":1"), ("LLEN l", ":1")]);
    assert_eq!([0, 1].map(|client| clients.answered(client)), ["", ""]);
}

#[test]
fn a_disconnected_client_gets_no_element() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLPOP l 0");
    clients.block(1, "BLPOP l 0");
    let interests = clients.server.executor.interests().clone();
    assert_eq!((interests.awaited_keys(), clients.server.host.clients.blocked()), (1, 2));
    clients.others[0].wait = None;
    clients.check(&[("CLIENT KILL ID 3", ":1")]);
    assert_eq!(clients.server.host.clients.blocked(), 0);
    clients.check(&[("RPUSH l a", ":1"), ("LLEN l", ":1")]);
    clients.others.clear();
    assert_eq!(interests.awaited_keys(), 0);
    assert!(!interests.any(), "writes cost nothing more than before");
}

#[test]
fn blocked_clients_are_listed() {
    let mut clients = Clients::new(1);
    clients.block(0, "BLPOP l k l 0");
    let shown = |clients: &Clients| {
        let mut line = String::new();
        clients.others[0].client.render(crate::table(), 0, &mut line);
        line
    };
    assert!(shown(&clients).contains(" flags=b ") && shown(&clients).contains(" cmd=blpop "));
    assert_eq!(clients.server.executor.interests().awaited_keys(), 2);
    clients.check(&[("RPUSH l a", ":1")]);
    assert_eq!(clients.answered(0), r#"["l", "a"]"#);
    assert!(shown(&clients).contains(" flags=N "));
}

#[test]
fn replies_that_are_off_are_not_sent() {
    let mut clients = Clients::new(1);
    assert_eq!(clients.run(0, "CLIENT REPLY OFF"), "");
    clients.block(0, "BLPOP l 0");
    clients.check(&[("RPUSH l a", ":1"), ("LLEN l", ":0")]);
    let answer = clients.server.host.take_answer(clients.others[0].client.id());
    assert_eq!(answer.map(|(reply, _)| reply).as_deref(), Some(""), "its next command may run");
}

#[test]
fn an_answer_waits_by_the_durability_of_its_waiter() {
    let mut clients = Clients::new(1);
    assert_eq!(clients.run(0, "CLIENT DURABILITY NONE"), "+OK");
    assert_eq!(clients.others[0].durability, Some(Durability::None));
    clients.block(0, "BLPOP l 0");
    assert!(clients.server.gate("RPUSH l a") > Lsn::ZERO);
    assert_eq!(clients.answer(0), (r#"["l", "a"]"#.to_string(), Lsn::ZERO));
}

#[test]
fn serving_breaks_watches_of_the_key() {
    let mut clients = Clients::new(2);
    clients.block(0, "BLPOP l 0");
    assert_eq!(clients.run(1, "WATCH l"), "+OK");
    clients.check(&[("RPUSH l a", ":1")]);
    clients.answer(0);
    assert_eq!(clients.run(1, "MULTI"), "+OK");
    assert_eq!(clients.run(1, "EXEC"), "nil");
}

#[test]
fn readers_of_streams_wait_for_entries_behind_theirs() {
    let mut clients = Clients::new(3);
    clients.server.check(&[("XADD x 5-0 f v", r#""5-0""#)]);
    clients.block(0, "XREAD BLOCK 0 STREAMS x none $ $");
    clients.block(1, "XREAD BLOCK 0 COUNT 1 STREAMS x 6-0");
    clients.block(2, "XREAD BLOCK 0 STREAMS x y $ 0");
    clients.server.check(&[("XADD x 6-0 f v", r#""6-0""#)]);
    assert_eq!(clients.answered(0), r#"[["x", [["6-0", ["f", "v"]]]]]"#);
    assert_eq!(clients.answered(1), "", "what it has seen is not new");
    assert_eq!(clients.answered(2), r#"[["x", [["6-0", ["f", "v"]]]]]"#);
    clients.server.check(&[
        ("MULTI", "+OK"),
        ("XADD x 7-0 f v", "+QUEUED"),
        ("XADD x 8-0 f v", "+QUEUED"),
        ("EXEC", r#"["7-0", "8-0"]"#),
    ]);
    assert_eq!(clients.answered(1), r#"[["x", [["7-0", ["f", "v"]]]]]"#);
    clients.server.assert_replays();
}

#[test]
fn a_client_that_reads_several_streams_gets_all_that_one_transaction_has_filled() {
    let mut clients = Clients::new(1);
    clients.block(0, "XREAD BLOCK 0 COUNT 1 STREAMS x none y text $ $ $ $");
    for line in ["MULTI", "XADD y 1-0 f w", "XADD x 1-0 f v", "XADD x 2-0 f v", "SET text 1", "EXEC"] {
        clients.server.run(line);
    }
    assert_eq!(clients.answered(0), r#"[["x", [["1-0", ["f", "v"]]]], ["y", [["1-0", ["f", "w"]]]]]"#);
}

#[test]
fn entries_go_to_the_consumers_that_wait_in_turn() {
    let mut clients = Clients::new(2);
    clients.server.check(&[("XGROUP CREATE x g $ MKSTREAM", "+OK")]);
    clients.block(0, "XREADGROUP GROUP g a BLOCK 0 COUNT 1 STREAMS x >");
    clients.block(1, "XREADGROUP GROUP g b BLOCK 0 STREAMS x >");
    clients.server.check(&[("XADD x 1-0 f v", r#""1-0""#)]);
    assert_eq!(clients.answered(0), r#"[["x", [["1-0", ["f", "v"]]]]]"#);
    assert_eq!(clients.answered(1), "");
    clients.server.check(&[("XADD x 2-0 f v", r#""2-0""#)]);
    assert_eq!(clients.answered(1), r#"[["x", [["2-0", ["f", "v"]]]]]"#);
    clients.server.check(&[("XPENDING x g", r#"[:2, "1-0", "2-0", [["a", "1"], ["b", "1"]]]"#)]);
    clients.server.assert_replays();
}

#[test]
fn consumers_hear_that_their_group_has_gone() {
    let gone = "-NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option";
    for end in ["XGROUP DESTROY x g", "DEL x", "SET x 1", "FLUSHALL", "RENAME x y"] {
        let mut clients = Clients::new(2);
        clients.server.check(&[("XGROUP CREATE x g $ MKSTREAM", "+OK")]);
        clients.block(0, "XREADGROUP GROUP g a BLOCK 0 STREAMS x >");
        clients.block(1, "XREAD BLOCK 0 STREAMS x $");
        clients.server.run(end);
        let expected = if end.starts_with("SET") { crate::testing::WRONG_TYPE } else { gone };
        assert_eq!(clients.answered(0), expected, "{end}");
        assert_eq!(clients.answered(1), "", "{end}: who reads alone goes on waiting");
        clients.server.assert_replays();
    }
}

const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn a_served_client_is_admitted_again() {
    let mut clients = Clients::new(2);
    clients.check(&[("RPUSH full a", ":1")]);
    clients.block(0, "BLMOVE l d LEFT LEFT 0");
    clients.block(1, "BLPOP l 0");
    clients.server.host.limits.lock().memory_bytes_max = 1;
    clients.check(&[("RENAME full l", "+OK")]);
    assert_eq!([clients.answered(0), clients.answered(1)], [FULL, r#"["l", "a"]"#]);
    clients.server.host.limits.lock().memory_bytes_max = 0;
    clients.check(&[("RPUSH full a", ":1")]);
    clients.block(0, "BRPOPLPUSH l l 0");
    clients.server.host.limits.lock().memory_bytes_max = 1;
    clients.check(&[("RENAME full l", "+OK")]);
    assert_eq!(clients.answered(0), FULL);
    clients.check(&[("LRANGE l 0 -1", r#"["a"]"#)]);
    assert_eq!(clients.server.executor.interests().awaited_keys(), 0);
    clients.server.assert_replays();
}

#[test]
fn room_is_made_for_a_client_that_is_served_where_keys_may_be_evicted() {
    for (volatile, expected) in [("PX 100000", r#""a""#), ("", FULL)] {
        let mut clients = Clients::new(1);
        clients
            .check(&[("RPUSH full a", ":1"), (&format!("SET large {} {volatile}", "x".repeat(9000)), "+OK")]);
        clients.block(0, "BLMOVE l d LEFT LEFT 0");
        let memory_bytes_max = clients.server.executor.keyspace().bytes() - 5000;
        *clients.server.host.limits.lock() =
            MemoryLimits { memory_bytes_max, policy: EvictionPolicy::VolatileTtl, samples: 5 };
        clients.check(&[("RENAME full l", "+OK")]);
        assert_eq!(clients.answered(0), expected);
        let left = if volatile.is_empty() { ":1" } else { ":0" };
        clients.check(&[("LLEN l", left), ("EXISTS large", left)]);
        clients.server.assert_replays();
    }
}

#[test]
fn a_consumer_is_told_that_its_stream_has_expired() {
    let mut clients = Clients::new(1);
    clients.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK"), ("PEXPIRE s 100", ":1")]);
    clients.block(0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    clients.check(&[("after 200", "")]);
    let server = &mut clients.server;
    server.executor.begin_round(server.clock_ms(), &server.services, 1 << 20);
    server.executor.expire_due(SlotId::FIRST, SlotId::LAST, 10, &server.services);
    server.executor.end_round(&server.services);
    let reply = clients.answered(0);
    assert!(reply.starts_with("-NOGROUP No such key 's' or consumer group 'g'"), "{reply}");
    clients.server.assert_replays();
}

#[test]
fn a_demotion_ends_all_waits_for_keys() {
    let mut clients = Clients::new(3);
    clients.block(0, "BLPOP a b 0");
    clients.block(1, "XREAD BLOCK 0 STREAMS s $");
    clients.block(2, "BLMOVE a b LEFT LEFT 0");
    clients.server.executor.interests().end_waits();
    for client in 0..3 {
        let reply = clients.answered(client);
        assert_eq!(
            reply,
            "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
        );
    }
    clients.check(&[("RPUSH a x", ":1"), ("LLEN a", ":1")]);
    assert_eq!(clients.server.executor.interests().awaited_keys(), 0);
}

#[test]
fn a_blocked_command_is_slow_by_its_own_time_and_once_it_has_ended() {
    let mut clients = Clients::new(4);
    clients.server.host.observer.slow_log.configure(0, 128);
    clients.server.host.command_us.store(1500, std::sync::atomic::Ordering::Relaxed);
    // The clock advances by 1.5 ms whenever it is read. The push reads it twice.
    let logged = |clients: &Clients| -> Vec<(u64, String)> {
        let entries = clients.server.host.observer.slow_log.newest(9);
        entries.iter().map(|entry| (entry.usec, entry.args[0].escape_ascii().to_string())).collect()
    };
    let entry = |usec: u64, name: &str| (usec, name.to_string());
    for (client, line) in
        ["BLPOP a 0", "BRPOP b 1", "BZPOPMIN c 0", "BLMOVE d e LEFT LEFT 0"].iter().enumerate()
    {
        clients.block(client, line);
    }
    clients.check(&[("after 60000", "")]);
    assert!(logged(&clients).is_empty());
    clients.check(&[("RPUSH a 1", ":1")]);
    assert_eq!(logged(&clients), [entry(4500, "RPUSH"), entry(3000, "BLPOP")]);
    assert!(clients.time_out(1).is_some());
    let id = clients.others[2].client.id();
    clients.check(&[(&format!("CLIENT UNBLOCK {id}"), ":1")]);
    let expected = [entry(1500, "CLIENT"), entry(1500, "BZPOPMIN"), entry(1500, "BRPOP")];
    assert_eq!(logged(&clients)[..3], expected);
}

#[test]
fn errors_of_clients_that_waited_are_counted() {
    let mut clients = Clients::new(2);
    clients.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    clients.block(0, "XREADGROUP GROUP g me BLOCK 0 STREAMS s >");
    clients.block(1, "BLPOP l 0");
    clients.check(&[("XGROUP DESTROY s g", ":1")]);
    assert!(clients.answered(0).starts_with("-NOGROUP"));
    let id = clients.others[1].client.id();
    clients.check(&[(&format!("CLIENT UNBLOCK {id} ERROR"), ":1")]);
    let stats = &clients.server.host.stats;
    let errors: Vec<_> =
        stats.errors().into_iter().map(|(code, count)| (code.into_string(), count)).collect();
    assert_eq!(errors, [("NOGROUP".to_string(), 1), ("UNBLOCKED".to_string(), 1)]);
    for name in ["xreadgroup", "blpop"] {
        let row = crate::table().index_of(crate::table().resolve(name.as_bytes()).unwrap());
        let totals = stats.totals(row);
        assert_eq!((totals.calls, totals.failed, totals.rejected), (1, 1, 0), "{name}");
    }
    assert_eq!(stats.served(), 0, "nothing was taken");
}
