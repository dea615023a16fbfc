//! Replies as redis-server 7.0.15 gives them, and which client receives which message.

use engine::{EventClass, Notice, clients::ClientKind};
use lsn::Lsn;
use storage::Durability;
use wire::Protocol;

use crate::testing::{TestServer, check, check_protocols};

const REFUSED: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

/// Runs a command as another client.
fn run_as(server: &mut TestServer, other: &mut engine::Session, line: &str) -> String {
    std::mem::swap(&mut server.session, other);
    let reply = server.run(line);
    std::mem::swap(&mut server.session, other);
    reply
}

#[test]
fn confirmations_are_sent_with_replies_off() {
    for (mode, after) in [("off", ""), ("skip", "+PONG")] {
        for (line, said) in [
            ("subscribe a", ">[\"subscribe\", \"a\", :1]"),
            ("psubscribe a*", ">[\"psubscribe\", \"a*\", :1]"),
            ("ssubscribe a", ">[\"ssubscribe\", \"a\", :1]"),
            ("unsubscribe", ">[\"unsubscribe\", nil, :0]"),
            ("punsubscribe a", ">[\"punsubscribe\", \"a\", :0]"),
            ("xunsubscribe", ">[\"xunsubscribe\", nil, :0]"),
            ("subscribe", ""),
            ("publish a x", ""),
        ] {
            let mut server = TestServer::new();
            server.run("hello 3");
            assert_eq!(server.run(&format!("client reply {mode}")), "");
            assert_eq!(server.run(line), said, "{mode} {line}");
            assert_eq!(server.run("ping"), after, "{mode} {line}");
        }
    }
    let mut server = TestServer::new();
    for line in ["client reply off", "multi", "subscribe a"] {
        assert_eq!(server.run(line), "", "{line}");
    }
    assert_eq!(
        server.run("exec"),
        "[\"subscribe\", \"a\", :1]",
        "without the head of EXEC's reply, as in Redis"
    );
    assert_eq!(server.run("unsubscribe"), "[\"unsubscribe\", \"a\", :0]");
    assert_eq!(server.run("subscribe b"), "[\"subscribe\", \"b\", :1]");
    assert_eq!(server.run("reset"), "+RESET");
    assert_eq!(server.run("client reply off"), "");
    assert_eq!(server.run("unsubscribe"), "[\"unsubscribe\", nil, :0]", "nothing comes again");
}

#[test]
fn subscriptions_are_confirmed_with_how_many_there_are() {
    check_protocols(&[
        ("unsubscribe", "[\"unsubscribe\", nil, :0]", ">[\"unsubscribe\", nil, :0]"),
        ("subscribe a", "[\"subscribe\", \"a\", :1]", ">[\"subscribe\", \"a\", :1]"),
        ("subscribe a", "[\"subscribe\", \"a\", :1]", ">[\"subscribe\", \"a\", :1]"),
        ("psubscribe a*", "[\"psubscribe\", \"a*\", :2]", ">[\"psubscribe\", \"a*\", :2]"),
        ("ssubscribe a", "[\"ssubscribe\", \"a\", :1]", ">[\"ssubscribe\", \"a\", :1]"),
        ("subscribe \"\"", "[\"subscribe\", \"\", :3]", ">[\"subscribe\", \"\", :3]"),
        ("unsubscribe b", "[\"unsubscribe\", \"b\", :3]", ">[\"unsubscribe\", \"b\", :3]"),
        ("unsubscribe \"\"", "[\"unsubscribe\", \"\", :2]", ">[\"unsubscribe\", \"\", :2]"),
        ("unsubscribe", "[\"unsubscribe\", \"a\", :1]", ">[\"unsubscribe\", \"a\", :1]"),
        ("punsubscribe", "[\"punsubscribe\", \"a*\", :0]", ">[\"punsubscribe\", \"a*\", :0]"),
        ("punsubscribe x", "[\"punsubscribe\", \"x\", :0]", ">[\"punsubscribe\", \"x\", :0]"),
        ("sunsubscribe", "[\"sunsubscribe\", \"a\", :0]", ">[\"sunsubscribe\", \"a\", :0]"),
        ("sunsubscribe", "[\"sunsubscribe\", nil, :0]", ">[\"sunsubscribe\", nil, :0]"),
        ("get a", "nil", "nil"),
    ]);
}

#[test]
fn every_name_of_a_command_is_confirmed() {
    let mut server = TestServer::new();
    let shown = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").replace("\r\n", " ");
    let confirmed = "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2 *3 $9 subscribe $1 a :2 ";
    assert_eq!(shown(server.raw("subscribe a b a")), confirmed);
    server.session.protocol = Protocol::Resp3;
    let ended = shown(server.raw("unsubscribe"));
    assert_eq!((ended.matches(">3 $11 unsubscribe").count(), ended.contains(" :1 ")), (2, true), "{ended}");
    assert!(ended.ends_with(" :0 "), "{ended}");
}

#[test]
fn a_subscriber_of_the_older_protocol_may_do_little_else() {
    let mut server = TestServer::new();
    server.check(&[("subscribe a", "[\"subscribe\", \"a\", :1]")]);
    for (line, name) in [
        ("get a", "get"),
        ("publish a x", "publish"),
        ("client list", "client|list"),
        ("hello 3", "hello"),
        ("multi", "multi"),
    ] {
        assert_eq!(server.run(line), format!("-ERR Can't execute '{name}': {REFUSED}"));
    }
    server.check(&[
        ("subscribe", "-ERR wrong number of arguments for 'subscribe' command"),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
        ("ping", "[\"pong\", \"\"]"),
        ("ping x", "[\"pong\", \"x\"]"),
        ("ping x y", "-ERR wrong number of arguments for 'ping' command"),
        ("unsubscribe a", "[\"unsubscribe\", \"a\", :0]"),
        ("ping", "+PONG"),
        ("ssubscribe a", "[\"ssubscribe\", \"a\", :1]"),
    ]);
    assert_eq!(server.run("get a"), format!("-ERR Can't execute 'get': {REFUSED}"));
    server.check(&[("reset", "+RESET"), ("get a", "nil"), ("pubsub shardchannels", "[]")]);
    server.run("hello 3");
    server.check(&[
        ("psubscribe *", ">[\"psubscribe\", \"*\", :1]"),
        ("get a", "nil"),
        ("ping", "+PONG"),
        ("quit", "+OK"),
    ]);
}

#[test]
fn merged_commands_of_a_subscriber_are_refused_as_well() {
    let mut server = TestServer::new();
    server.run("subscribe a");
    let refused = format!("-ERR Can't execute 'incr': {REFUSED}");
    assert_eq!(server.run_merged(&["INCR k"; 3]).1, vec![refused; 3]);
}

#[test]
fn messages_reach_all_subscribers() {
    let mut server = TestServer::new();
    let (mut old, mut new) = (server.connect(), server.connect());
    new.protocol = Protocol::Resp3;
    for client in [&mut old, &mut new] {
        run_as(&mut server, client, "subscribe a");
        run_as(&mut server, client, "psubscribe ?");
        run_as(&mut server, client, "ssubscribe a");
    }
    server.check(&[("publish a hello", ":4"), ("publish b \"\"", ":2"), ("publish cc x", ":0")]);
    server.check(&[("spublish a s", ":2"), ("spublish b s", ":0")]);
    let messages = server.take_messages();
    let frames = [
        "[\"message\", \"a\", \"hello\"]",
        "[\"pmessage\", \"?\", \"a\", \"hello\"]",
        "[\"pmessage\", \"?\", \"b\", \"\"]",
        "[\"smessage\", \"a\", \"s\"]",
    ];
    assert_eq!(messages[&old.client.id()], frames);
    assert_eq!(messages[&new.client.id()], frames.map(|frame| format!(">{frame}")));
    assert_eq!(run_as(&mut server, &mut old, "reset"), "+RESET");
    server.check(&[("publish a x", ":2")]);
    while !server.executor.end_subscriptions(&mut new) {}
    server.check(&[("publish a x", ":0"), ("pubsub channels", "[]"), ("pubsub numpat", ":0")]);
}

#[test]
fn a_message_never_stands_behind_the_end_of_its_subscription() {
    let mut server = TestServer::new();
    server.session.protocol = Protocol::Resp3;
    server.run("subscribe a");
    server.check(&[("publish a 1", ":1")]);
    let shown = String::from_utf8(server.raw("unsubscribe a")).expect("text").replace("\r\n", " ");
    assert_eq!(shown, ">3 $7 message $1 a $1 1 >3 $11 unsubscribe $1 a :0 ");
    server.check(&[("publish a 2", ":0"), ("subscribe a", ">[\"subscribe\", \"a\", :1]")]);
    assert!(server.take_messages().is_empty(), "published before the subscription");
}

#[test]
fn a_message_of_a_transaction_is_delivered_at_its_commit_and_in_order() {
    let mut server = TestServer::new();
    let mut listener = server.connect();
    run_as(&mut server, &mut listener, "psubscribe *");
    server.check(&[("multi", "+OK"), ("set k 1", "+QUEUED"), ("publish a 1", "+QUEUED")]);
    server.check(&[("spublish a 1", "+QUEUED"), ("subscribe own", "+QUEUED")]);
    // EXEC does not run through the helper, which publishes the executor's notices at once.
    let gate = {
        let args = crate::testing::parse("exec");
        server.executor.begin_round(server.clock_ms(), &server.services, server.bulk_bytes_max);
        let call = engine::Call { args: args.as_args(), resolved: engine::Resolved::UNKNOWN };
        let outcome = server.executor.execute(call, &mut server.session, &server.services, &mut Vec::new());
        let engine::Outcome::Done { gate } = outcome else { panic!("the log has room") };
        gate
    };
    assert!(gate > Lsn::ZERO);
    assert!(server.take_messages().is_empty(), "nobody hears of what is not durable");
    let notices = server.executor.take_notices();
    let gates: Vec<Lsn> = notices.iter().map(Notice::gate).collect();
    assert_eq!(gates, [gate, gate]);
    notices.iter().for_each(|notice| server.executor.publish(notice));
    assert_eq!(server.take_messages()[&listener.client.id()], ["[\"pmessage\", \"*\", \"a\", \"1\"]"]);
    server.check(&[("unsubscribe own", "[\"unsubscribe\", \"own\", :0]"), ("publish b 2", ":1")]);
    let told = server.take_messages();
    assert_eq!(told[&listener.client.id()], ["[\"pmessage\", \"*\", \"b\", \"2\"]"]);
    assert!(server.session.publishes_in_turn, "later ones wait behind what is held");
}

#[test]
fn events_and_messages_of_a_transaction_keep_their_order() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse("KE$").expect("letters");
    let mut listener = server.connect();
    run_as(&mut server, &mut listener, "psubscribe *");
    for line in ["multi", "set k 1", "publish a x", "set k 2", "exec"] {
        server.run(line);
    }
    let told = server.take_messages().remove(&listener.client.id()).expect("told");
    let set = ["__keyspace@0__:k\", \"set", "__keyevent@0__:set\", \"k"];
    let expected: Vec<String> = [set[0], set[1], "a\", \"x", set[0], set[1]]
        .iter()
        .map(|rest| format!("[\"pmessage\", \"*\", \"{rest}\"]"))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn a_transaction_runs_subscribe_and_refuses_ssubscribe() {
    check(&[("multi", "+OK"), ("ssubscribe a", "+QUEUED"), ("get a", "+QUEUED")]);
    let mut server = TestServer::new();
    for line in ["multi", "ssubscribe a", "subscribe a", "get a"] {
        server.run(line);
    }
    assert_eq!(
        server.run("exec"),
        "[-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client, [\"subscribe\", \"a\", :1], nil]"
    );
    assert_eq!(
        server.run("exec"),
        format!("-EXECABORT Transaction discarded because of: Can't execute 'exec': {REFUSED}")
    );
}

#[test]
fn pubsub_lists_channels_and_counts_subscribers() {
    let mut server = TestServer::new();
    let mut other = server.connect();
    for line in ["subscribe news", "subscribe other", "psubscribe n*", "psubscribe x?", "ssubscribe shard"] {
        run_as(&mut server, &mut other, line);
    }
    server.check(&[
        ("pubsub channels n*", "[\"news\"]"),
        ("pubsub channels x", "[]"),
        ("pubsub numsub news nobody shard", "[\"news\", :1, \"nobody\", :0, \"shard\", :0]"),
        ("pubsub numsub", "[]"),
        ("pubsub numpat", ":2"),
        ("pubsub shardchannels", "[\"shard\"]"),
        ("pubsub shardnumsub shard news", "[\"shard\", :1, \"news\", :0]"),
        (
            "pubsub channels a b",
            "-ERR unknown subcommand or wrong number of arguments for 'channels'. Try PUBSUB HELP.",
        ),
        ("pubsub numpat x", "-ERR wrong number of arguments for 'pubsub|numpat' command"),
        ("pubsub foo", "-ERR unknown subcommand 'foo'. Try PUBSUB HELP."),
        ("pubsub", "-ERR wrong number of arguments for 'pubsub' command"),
    ]);
    assert_eq!(server.run("pubsub channels").matches('"').count(), 4);
    assert_eq!(other.client.kind(), ClientKind::PubSub);
    assert_eq!(other.client.subscriptions(), [2, 2, 1, 0]);
    assert!(server.run("client list").contains(" flags=P capa= db=0 sub=2 psub=2 ssub=1 "));
}

#[test]
fn commands_are_described_as_in_redis() {
    let mut server = TestServer::new();
    let info = server.run("command info subscribe publish");
    assert!(info.contains("[\"subscribe\", :-2, [+pubsub, +noscript, +loading, +stale], "), "{info}");
    assert!(info.contains("[\"publish\", :3, [+pubsub, +loading, +stale, +fast], "), "{info}");
    assert!(info.contains("[+@pubsub, +@slow]") && info.contains("[+@pubsub, +@fast]"), "{info}");
    server.run("hello 3");
    for (name, last, last_from_first) in
        [("spublish", 1, 0), ("ssubscribe", -1, -1), ("sunsubscribe", -1, -1)]
    {
        let info = server.run(&format!("command info {name}"));
        let found = format!("{{\"lastkey\": :{last_from_first}, \"keystep\": :1, \"limit\": :0}}");
        assert!(info.contains(&format!(" :1, :{last}, :1, ")) && info.contains(&found), "{info}");
        assert!(info.contains("{\"flags\": ~[+not_key], "), "{info}");
    }
    server.check(&[
        ("command getkeys ssubscribe a b", "-ERR The command has no key arguments"),
        ("command getkeys spublish a b", "-ERR The command has no key arguments"),
    ]);
}

#[test]
fn a_message_to_a_durable_channel_is_in_the_log_before_anybody_hears_of_it() {
    // With both durabilities, the publisher's reply says that the message is on disk.
    for durability in [Durability::Strict, Durability::Commit] {
        publish_to_a_durable_channel(durability);
    }
}

fn publish_to_a_durable_channel(durability: Durability) {
    let mut server = TestServer::new();
    server.log.set_durability(durability);
    let mut listener = server.connect();
    run_as(&mut server, &mut listener, "psubscribe *");
    assert_eq!(server.gate("publish fleeting 1"), Lsn::ZERO);
    server.executor.begin_round(server.clock_ms(), &server.services, server.bulk_bytes_max);
    let args = crate::testing::parse("publish durable:a 2");
    let call = engine::Call { args: args.as_args(), resolved: engine::Resolved::UNKNOWN };
    let mut reply = Vec::new();
    let outcome = server.executor.execute(call, &mut server.session, &server.services, &mut reply);
    assert_eq!(reply, b":1\r\n");
    assert_eq!(outcome, engine::Outcome::Done { gate: server.appended_lsn() });
    assert!(server.executor.take_wrote() && server.appended_lsn() > Lsn::ZERO);
    let told = server.take_messages();
    assert_eq!(told[&listener.client.id()], ["[\"pmessage\", \"*\", \"fleeting\", \"1\"]"]);
    let notices = server.executor.take_notices();
    assert_eq!(notices.iter().map(Notice::gate).collect::<Vec<_>>(), [server.appended_lsn()]);
    notices.iter().for_each(|notice| server.executor.publish(notice));
    let told = server.take_messages();
    assert_eq!(told[&listener.client.id()], ["[\"pmessage\", \"*\", \"durable:a\", \"2\"]"]);
    assert!(server.session.publishes_in_turn, "later ones wait behind it");
    server.check(&[("publish other 3", ":1"), ("publish durable \"\"", ":1"), ("spublish durable 4", ":0")]);
    assert_eq!(server.logged_messages(), ["durable:a 2", "durable "], "shard channels are not durable");
    server.assert_replays();
}

#[test]
fn messages_of_a_transaction_are_in_its_record_in_order() {
    let mut server = TestServer::new();
    for line in ["multi", "set k 1", "publish durable 1", "publish other 2", "incr k", "publish durable 3"] {
        server.run(line);
    }
    let before = server.log.stats().records.load(std::sync::atomic::Ordering::Relaxed);
    server.check(&[("exec", "[+OK, :0, :0, :2, :0]"), ("get k", "\"2\"")]);
    assert_eq!(server.logged_messages(), ["durable 1", "durable 3"]);
    let records = server.log.stats().records.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(records - before, 1);
    server.assert_replays();
}

#[test]
fn a_transaction_publishes_no_more_than_its_record_has_positions_for() {
    let mut server = TestServer::new();
    server.run("multi");
    (0..=16 << 10).for_each(|_| _ = server.run("publish durable x"));
    let replies = server.run("exec");
    assert!(replies.ends_with(", :0, -ERR too many messages to durable channels in one transaction]"));
    assert_eq!(server.logged_messages().len(), 16 << 10);
}

#[test]
fn a_large_message_asks_for_room_and_is_logged_once() {
    let mut server = TestServer::new();
    let payload = vec![b'x'; 3 << 20];
    assert_eq!(server.run_args(&[b"publish", b"durable", &payload]), ":0");
    let logged = server.logged_messages();
    assert_eq!((logged.len(), logged[0].len()), (1, "durable ".len() + payload.len()));
}

#[test]
fn no_message_is_taken_before_the_durable_channels_are_known() {
    let mut server = TestServer::new();
    *server.host.loading.lock() = Some(engine::Loading { percent: 1.0, eta_seconds: None });
    server.check(&[
        ("publish other x", "-LOADING Redis is loading the dataset in memory"),
        ("publish durable x", "-LOADING Redis is loading the dataset in memory"),
        ("spublish durable x", ":0"),
    ]);
    *server.host.loading.lock() = None;
    server.check(&[("publish other x", ":0"), ("publish durable x", ":0")]);
    assert_eq!(server.logged_messages(), ["durable x"]);
}
