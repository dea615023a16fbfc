use std::collections::BTreeMap;

use engine::{EventClass, Flags, context::EFFECT_BYTES_BESIDE_ARGS};
use keyspace::{DbId, KeyOp};
use lsn::Lsn;
use proptest::prelude::*;
use storage::{CHAIN_BYTES_MAX, Durability};
use wire::Protocol;

use super::{
    LONG_REPLIES, REPLY_BYTES_MAX, has_room,
    stored::{Digest, Stored},
};
use crate::{
    resolve,
    testing::{START_MS, TestServer, WRONG_TYPE, check, parse},
};

const NOT_OURS: &str = "-WRONGTYPE the key holds no reply that IDEMP has kept";
const MISMATCH: &str = "-IDEMPMISMATCH the key was used for another command";
const UNDONE: &str = "-ERR the reply is too long for IDEMP to keep; the command is undone";

#[test]
fn a_command_runs_once() {
    check(&[
        ("IDEMP k 1000 INCR c", ":1"),
        ("IDEMP k 1000 INCR c", ":1"),
        ("IDEMP k 5000 incr c", ":1"),
        ("PTTL k", ":1000"),
        ("GET c", "\"1\""),
        ("IDEMP other 1000 INCR c", ":2"),
        ("IDEMP k 1000 INCR d", MISMATCH),
        ("EXISTS d", ":0"),
        ("after 1000", ""),
        ("IDEMP k 1000 INCR c", ":3"),
        ("DEL k", ":1"),
        ("IDEMP k 1000 INCR c", ":4"),
        ("SELECT 1", "+OK"),
        ("IDEMP k 1000 INCR c", ":1"),
    ]);
}

#[test]
fn replies_of_commands_without_a_change_are_kept() {
    check(&[
        ("SET a 1", "+OK"),
        ("IDEMP k 1000 SET a 2 NX", "nil"),
        ("DEL a", ":1"),
        ("IDEMP k 1000 SET a 2 NX", "nil"),
        ("EXISTS a", ":0"),
        ("IDEMP p 1000 BLPOP l 0", "nil"),
        ("RPUSH l a", ":1"),
        ("IDEMP p 1000 BLPOP l 0", "nil"),
        ("IDEMP q 1000 BLPOP l 0", "[\"l\", \"a\"]"),
        ("IDEMP q 1000 BLPOP l 0", "[\"l\", \"a\"]"),
    ]);
}

#[test]
fn errors_without_effects_are_not_kept() {
    check(&[
        ("LPUSH c a", ":1"),
        ("IDEMP k 1000 INCR c", WRONG_TYPE),
        ("EXISTS k", ":0"),
        ("IDEMP k 1000 EVAL \"return redis.error_reply('NO')\" 0", "-ERR NO"),
        ("EXISTS k", ":0"),
        ("DEL c", ":1"),
        ("IDEMP k 1000 INCR c", ":1"),
        // An error after effects is a reply like others.
        ("IDEMP e 1000 EVAL \"redis.call('INCR', 'c') return redis.error_reply('NO')\" 0", "-ERR NO"),
        ("IDEMP e 1000 EVAL \"redis.call('INCR', 'c') return redis.error_reply('NO')\" 0", "-ERR NO"),
        ("GET c", "\"2\""),
    ]);
}

#[test]
fn invalid_calls_of_idemp_are_refused() {
    check(&[
        ("IDEMP k 1000", "-ERR wrong number of arguments for 'idemp' command"),
        ("IDEMP k x INCR c", "-ERR value is not an integer or out of range"),
        ("IDEMP k 0 INCR c", "-ERR invalid expire time in 'idemp' command"),
        ("IDEMP k -5 INCR c", "-ERR invalid expire time in 'idemp' command"),
        ("IDEMP k 9223372036854775807 INCR c", "-ERR invalid expire time in 'idemp' command"),
        ("IDEMP k 1000 INCR", "-ERR wrong number of arguments for 'incr' command"),
        (
            "IDEMP k 1000 GET c",
            "-ERR IDEMP runs commands that write, scripts and PUBLISH, and 'get' is none of them",
        ),
        (
            "IDEMP k 1000 SUBSCRIBE c",
            "-ERR IDEMP runs commands that write, scripts and PUBLISH, and 'subscribe' is none of them",
        ),
        ("IDEMP k 1000 DEL k", "-ERR the key of IDEMP is one of its command's"),
        ("IDEMP k 1000 MSET a 1 k 2", "-ERR the key of IDEMP is one of its command's"),
        ("SET s foreign", "+OK"),
        ("IDEMP s 1000 INCR c", NOT_OURS),
        ("RPUSH l a", ":1"),
        ("IDEMP l 1000 INCR c", WRONG_TYPE),
        ("EXISTS c", ":0"),
    ]);
    let mut server = TestServer::new();
    let nested = server.run("EVAL \"return redis.call('IDEMP', 'k', 1000, 'INCR', 'c')\" 0");
    assert!(nested.starts_with("-ERR This Redis command is not allowed from script"), "{nested}");
    server.run("IDEMP k 1000 INCR c");
    let Some((value, _)) = server.content().remove(&(0, b"k".to_vec())) else { panic!("it is kept") };
    let keyspace::Value::String(value) = value.as_value() else { panic!("a string") };
    assert_eq!(server.run_args(&[b"SET", b"k", &value[..value.len() - 1]]), "+OK");
    assert_eq!(server.run("IDEMP k 1000 INCR c"), NOT_OURS, "cut off");
}

#[test]
fn a_kept_reply_has_the_protocol_of_the_asking_client() {
    let mut server = TestServer::new();
    server.run("RPUSH l a");
    assert_eq!(server.raw("IDEMP k 1000 BLPOP none 1"), b"*-1\r\n");
    assert_eq!(server.raw("IDEMP k 1000 BLPOP none 1"), b"*-1\r\n");
    server.run("HELLO 3");
    assert_eq!(server.raw("IDEMP k 1000 BLPOP none 1"), b"_\r\n");
    assert_eq!(server.raw("IDEMP m 1000 EVAL 'redis.setresp(3) return {double = 1.5}' 0"), b",1.5\r\n");
    server.run("HELLO 2");
    assert_eq!(server.raw("IDEMP m 1000 EVAL 'redis.setresp(3) return {double = 1.5}' 0"), b"$3\r\n1.5\r\n");
}

#[test]
fn command_and_reply_are_one_record() {
    let mut server = TestServer::new();
    server.run("INCR c");
    let before = server.appended_lsn();
    server.run("INCR c");
    let one = server.appended_lsn().get() - before.get();
    let before = server.appended_lsn();
    let gate = server.gate("IDEMP k 1000 MSET a 1 b 2 c 3");
    assert_eq!(gate, server.appended_lsn());
    assert!(gate.get() - before.get() < 6 * one);
    assert_eq!(server.gate("IDEMP k 1000 MSET a 1 b 2 c 3"), gate, "what is kept waits for its record");
    assert_eq!(server.appended_lsn(), gate, "nothing is logged");
    server.assert_replays();
}

#[test]
fn a_kept_reply_waits_for_its_record_as_a_write_does() {
    let mut server = TestServer::new();
    server.log.set_durability(Durability::Commit);
    server.run("SET other 1");
    let written = server.gate("IDEMP k 1000 INCR c");
    assert_eq!(server.gate("GET c"), Lsn::ZERO, "a read does not wait");
    assert_eq!(server.gate("IDEMP k 1000 INCR c"), written);
    server.run("MULTI");
    server.run("IDEMP k 1000 INCR c");
    assert_eq!(server.gate("EXEC"), written);
    let newest = server.gate("SET other 2");
    server.run("IDEMP k 1000 INCR c");
    assert_eq!(server.session.last_write, newest, "it is not older than what came before");
}

#[test]
fn scripts_run_once() {
    let script = "EVAL \"redis.call('INCR', KEYS[1]) redis.call('INCR', 'undeclared') return redis.call('DBSIZE')\" 1 c";
    let mut server = TestServer::new();
    let line = format!("IDEMP k 1000 {script}");
    assert_eq!(server.run(&line), ":2");
    assert_eq!(server.run(&line), ":2");
    server.check(&[("MGET c undeclared", "[\"1\", \"1\"]"), ("DBSIZE", ":3")]);
    server.host.scripts.settings.set_instructions(1_000_000);
    let endless = "IDEMP e 1000 EVAL \"redis.call('INCR', 'c') while true do end\" 0";
    assert!(server.run(endless).starts_with("-ERR the script has executed more instructions"));
    server.check(&[("GET c", "\"1\""), ("EXISTS e", ":0")]);
    server.assert_replays();
}

#[test]
fn functions_run_once() {
    let mut server = TestServer::new();
    let library = "#!lua name=lib\nredis.register_function('add', function(keys) return redis.call('INCR', keys[1]) end)";
    assert_eq!(server.run_args(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "\"lib\"");
    server.check(&[
        ("IDEMP k 1000 FCALL add 1 c", ":1"),
        ("IDEMP k 1000 FCALL add 1 c", ":1"),
        ("MULTI", "+OK"),
        ("IDEMP k 1000 FCALL add 1 c", "+QUEUED"),
        ("IDEMP m 1000 FCALL add 1 c", "+QUEUED"),
        ("EXEC", "[:1, :2]"),
    ]);
    server.assert_replays();
}

#[test]
fn idemp_in_a_transaction_belongs_to_its_record() {
    check(&[
        ("MULTI", "+OK"),
        ("IDEMP k 1000 INCR c", "+QUEUED"),
        ("IDEMP k 1000 INCR c", "+QUEUED"),
        ("IDEMP m 1000 INCR c", "+QUEUED"),
        ("IDEMP s 1000 EVAL \"return redis.call('INCR', 'undeclared')\" 0", "+QUEUED"),
        ("IDEMP l 1000 LPUSH c a", "+QUEUED"),
        ("GET c", "+QUEUED"),
        ("EXEC", &format!("[:1, :1, :2, :1, {WRONG_TYPE}, \"2\"]")),
        ("EXISTS k m s l", ":3"),
        ("MULTI", "+OK"),
        (
            "IDEMP n 1000 EXEC",
            "-ERR IDEMP runs commands that write, scripts and PUBLISH, and 'exec' is none of them",
        ),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
}

#[test]
fn a_reply_that_is_too_long_undoes_its_command() {
    let mut server = TestServer::new();
    let long = vec![b'x'; REPLY_BYTES_MAX];
    server.run_args(&[b"SET", b"long", &long]);
    server.run("RPUSH list a");
    server.run_args(&[b"RPUSH", b"list", &long]);
    let content = server.content();
    for line in [
        "IDEMP k 1000 GETDEL long",
        "IDEMP k 1000 SET long other GET",
        "IDEMP k 1000 LPOP list 2",
        "IDEMP k 1000 EVAL \"redis.call('SET', 'a', 1) return redis.call('GETDEL', 'long')\" 0",
    ] {
        assert_eq!(server.run(line), UNDONE, "{line}");
        assert_eq!(server.content(), content, "{line}");
    }
    server.assert_replays();
    server.run("MULTI");
    server.run("SET before 1");
    server.run("IDEMP k 1000 GETDEL long");
    server.run("SET after 1");
    assert_eq!(server.run("EXEC"), format!("[+OK, {UNDONE}, +OK]"));
    assert_eq!(server.run("EXISTS before long after k"), ":3");
    let flushing =
        "IDEMP k 1000 EVAL \"local v = redis.call('GET', 'long') redis.call('FLUSHALL') return v\" 0";
    let lost = "-ERR the command has run, but its reply was too long for IDEMP to keep";
    assert_eq!(server.run(flushing), lost, "what cannot be undone stays");
    server.run("SET long x");
    assert_eq!(server.run(flushing), lost);
    assert_eq!(server.run("GET long"), "\"x\"", "and is not done twice");
    server.assert_replays();
}

#[test]
fn a_number_for_each_of_very_many_arguments_is_undone_if_it_is_too_long() {
    let mut server = TestServer::new();
    let count = REPLY_BYTES_MAX / 4;
    server.check(&[("HSET h f 1", ":1"), ("XADD s 1-1 f v", "\"1-1\""), ("XGROUP CREATE s g 0", "+OK")]);
    server.run("XREADGROUP GROUP g c STREAMS s >");
    server.run("HPEXPIRE h 5000 FIELDS 1 f");
    let content = server.content();
    let number = count.to_string();
    for (words, element) in [
        (&["HPEXPIRE", "h", "7000", "FIELDS", &number][..], "f"),
        (&["HPERSIST", "h", "FIELDS", &number], "f"),
        (&["XDELEX", "s", "IDS", &number], "1-1"),
    ] {
        let mut args = vec![&b"IDEMP"[..], b"k", b"1000"];
        args.extend(words.iter().map(|word| word.as_bytes()));
        args.resize(args.len() + count, element.as_bytes());
        assert_eq!(server.run_args(&args), UNDONE, "{words:?}");
        assert_eq!(server.content(), content, "{words:?}");
    }
    server.assert_replays();
}

#[test]
fn a_script_within_is_undone_as_a_whole() {
    let mut server = TestServer::new();
    let long = vec![b'x'; REPLY_BYTES_MAX];
    server.run_args(&[b"SET", b"long", &long]);
    for line in ["SET a 1", "RPUSH list 1 2 3", "SET s 1 PX 500", "HSET hash f v"] {
        server.run(line);
    }
    let content = server.content();
    let script = "redis.call('RENAME', 'a', 'b') redis.call('SET', 'a', 2) redis.call('APPEND', 'b', 'x') \
                  redis.call('LPOP', 'list', 2) redis.call('SWAPDB', 0, 1) redis.call('SET', 's', 3) \
                  redis.call('SWAPDB', 0, 1) redis.call('HDEL', 'hash', 'f') return redis.call('GETDEL', 'long')";
    assert_eq!(server.run_args(&[b"IDEMP", b"k", b"1000", b"EVAL", script.as_bytes(), b"0"]), UNDONE);
    assert_eq!(server.content(), content);
    server.assert_replays();
}

#[test]
fn a_reply_that_cannot_be_read_is_not_kept() {
    let mut server = TestServer::new();
    server.run("HELLO 3");
    let line = |digits: &str| {
        let script = format!("redis.call('INCR', 'c') return {{big_number = '{digits}'}}");
        format!("IDEMP k 1000 EVAL \"{script}\" 0")
    };
    let undone = b"-ERR the reply is none that IDEMP could tell again; the command is undone\r\n";
    for _ in 0..2 {
        assert_eq!(server.raw(&line("12x")), undone);
        assert_eq!(server.run("EXISTS k c"), ":0");
    }
    for _ in 0..2 {
        assert_eq!(server.raw(&line("12")), b"(12\r\n");
        assert_eq!(server.run("GET c"), "\"1\"");
    }
    server.assert_replays();
}

#[test]
fn a_record_has_room_for_the_key_beside_the_reply() {
    let (key, reply) = (vec![b'k'; 1 << 20], vec![b'r'; 1000]);
    let digest = Digest::of(parse("INCR c").as_args());
    let value = Stored::encode(digest, Protocol::Resp2, &reply);
    let value = keyspace::Value::String(&value);
    let put = KeyOp::Put { value, expire_at_ms: Some(u64::MAX) }.on(DbId::ZERO, &key);
    let most = CHAIN_BYTES_MAX - put.encoded_len();
    assert!(!has_room(most + 1, &key, &reply), "it would be longer than a record can be");
    assert!(has_room(most - EFFECT_BYTES_BESIDE_ARGS, &key, &reply));
}

#[test]
fn long_replies_come_from_commands_that_write() {
    for name in LONG_REPLIES {
        let row = resolve(name.as_bytes()).unwrap_or_else(|| panic!("{name} is no command"));
        assert!(row.flags.has(Flags::WRITE), "{name}");
    }
}

#[test]
fn kept_replies_are_sent_while_writes_are_refused() {
    let mut server = TestServer::new();
    server.run("IDEMP k 1000 INCR c");
    server.host.limits.lock().memory_bytes_max = 1;
    server.check(&[
        ("IDEMP k 1000 INCR c", ":1"),
        ("IDEMP m 1000 INCR c", "-OOM command not allowed when used memory > 'maxmemory'."),
        ("IDEMP m 1000 DEL c", "-OOM command not allowed when used memory > 'maxmemory'."),
        ("GET c", "\"1\""),
    ]);
}

#[test]
fn documents_and_messages_are_in_the_record_of_idemp() {
    let mut server = TestServer::new();
    server.create_database("orders");
    let first = server.run("IDEMP k 1000 DOC.PUT orders a {}");
    assert!(first.starts_with("\"1-"), "{first}");
    assert_eq!(server.run("IDEMP k 1000 DOC.PUT orders a {}"), first);
    assert!(server.run("IDEMP m 1000 DOC.PUT orders a {}").starts_with("-CONFLICT"));
    assert_eq!(server.run("EXISTS k m"), ":1");
    server.run("MULTI");
    server.run("IDEMP n 1000 DOC.PUT orders b {}");
    server.run("IDEMP n 1000 DOC.PUT orders b {}");
    server.run("EXEC");
    for _ in 0..2 {
        server.run("IDEMP p 1000 PUBLISH durable:a hello");
    }
    assert_eq!(server.logged_messages(), ["durable:a hello"]);
    let (documents, records) = server.logged_documents();
    assert_eq!(records, 3, "the database and two documents");
    let database = documents.database("orders").expect("it was created");
    assert!(database.snapshot().document("b").expect("it can be read").is_some());
}

#[test]
fn idemp_shows_in_events_and_in_monitor() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse("AKE").expect("known letters");
    let mut watcher = server.connect();
    std::mem::swap(&mut server.session, &mut watcher);
    server.run("MONITOR");
    std::mem::swap(&mut server.session, &mut watcher);
    server.run("IDEMP k 1000 INCR c");
    server.run("IDEMP k 1000 INCR c");
    assert_eq!(server.events(), ["incrby c", "idemp k"]);
    let (lines, _) = server.host.take_pushed(watcher.client.id());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with("\"IDEMP\" \"k\" \"1000\" \"INCR\" \"c\"")), "{lines:?}");
    server.check(&[
        ("COMMAND GETKEYS IDEMP k 1000 MSET a 1 b 2", "[\"k\", \"a\", \"b\"]"),
        ("COMMAND GETKEYS IDEMP k 1000 EVAL x 1 a b", "[\"k\", \"a\"]"),
        ("COMMAND GETKEYS IDEMP k 1000 FLUSHALL", "[\"k\"]"),
    ]);
    let row = |name: &str| crate::table().index_of(resolve(name.as_bytes()).expect("a command"));
    let calls = |name: &str| server.host.stats.totals(row(name)).calls;
    assert_eq!((calls("idemp"), calls("incr")), (2, 1));
}

/// Something that a client does.
#[derive(Debug, Clone)]
enum Step {
    /// IDEMP with one of a few keys and one of a few commands.
    Idemp {
        key: usize,
        command: usize,
        in_transaction: bool,
    },
    /// One of the commands alone.
    Direct(usize),
    Forget(usize),
    Pass(u64),
}

const COMMANDS: &[&str] = &["INCR a", "INCR b", "LPUSH a x", "EVAL \"return redis.call('INCR', 'a')\" 0"];
const TTL_MS: u64 = 100;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 0..COMMANDS.len(), any::<bool>())
            .prop_map(|(key, command, in_transaction)| Step::Idemp { key, command, in_transaction }),
        1 => (0..COMMANDS.len()).prop_map(Step::Direct),
        1 => (0..3usize).prop_map(Step::Forget),
        1 => (0..60u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Compares the server with one that runs a command only if the model says that it has not run under its
    /// key.
    #[test]
    fn no_command_under_one_key_runs_twice(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut server, mut plain) = (TestServer::new(), TestServer::new());
        let mut kept: BTreeMap<usize, (usize, String, u64)> = BTreeMap::new();
        let mut now_ms = START_MS;
        for step in steps {
            match step {
                Step::Idemp { key, command, in_transaction } => {
                    let line = format!("IDEMP k{key} {TTL_MS} {}", COMMANDS[command]);
                    let reply = if in_transaction {
                        server.run("MULTI");
                        server.run(&line);
                        let replies = server.run("EXEC");
                        replies[1..replies.len() - 1].to_string()
                    } else {
                        server.run(&line)
                    };
                    kept.retain(|_, (_, _, deadline_ms)| *deadline_ms > now_ms);
                    let expected = match kept.get(&key) {
                        Some((known, _, _)) if *known != command => MISMATCH.to_string(),
                        Some((_, reply, _)) => reply.clone(),
                        None => {
                            let reply = plain.run(COMMANDS[command]);
                            if !reply.starts_with('-') {
                                kept.insert(key, (command, reply.clone(), now_ms + TTL_MS));
                            }
                            reply
                        }
                    };
                    prop_assert_eq!(reply, expected);
                }
                Step::Direct(command) => {
                    prop_assert_eq!(server.run(COMMANDS[command]), plain.run(COMMANDS[command]));
                }
                Step::Forget(key) => {
                    server.run(&format!("DEL k{key}"));
                    kept.remove(&key);
                }
                Step::Pass(ms) => {
                    now_ms += ms;
                    server.clock.advance_ms(ms);
                    plain.clock.advance_ms(ms);
                }
            }
            prop_assert_eq!(server.run("MGET a b"), plain.run("MGET a b"));
            prop_assert_eq!(server.run("LRANGE a 0 -1"), plain.run("LRANGE a 0 -1"));
        }
        server.assert_replays();
    }
}
