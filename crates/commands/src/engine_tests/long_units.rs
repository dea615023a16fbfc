use engine::{
    Call, EventClass, Flags, LongUnit, Outcome,
    scripts::{Kill, ScriptKind},
};

use crate::{rows, testing::TestServer};

/// The body of a script that takes long enough to be offloaded.
const LONG: &str = "for i = 1, 100000 do end";

/// A server that offloads long units, with keyspace events on.
fn server() -> TestServer {
    let mut server = TestServer::new();
    server.offload_long_units();
    *server.host.event_classes.lock() = EventClass::parse("AKE").expect("known letters");
    server
}

#[test]
fn a_long_script_is_undone_and_runs_on_a_thread_of_its_own() {
    let mut server = server();
    let mut listener = server.connect();
    std::mem::swap(&mut server.session, &mut listener);
    server.run("SUBSCRIBE news");
    let id = listener.client.id().max(server.session.client.id());
    std::mem::swap(&mut server.session, &mut listener);
    server.run("RPUSH l a");
    server.take_messages();
    server.take_events();
    let script = format!(
        "EVAL \"redis.call('RPUSH', 'l', 'b') redis.call('PUBLISH', 'news', 'x') redis.call('SELECT', 2) \
         redis.call('INCR', 'n') {LONG} return redis.call('GET', 'n')\" 1 l"
    );
    assert_eq!(server.run(&script), "\"1\"");
    assert_eq!(server.long_units, 1);
    assert_eq!(server.events(), ["rpush l", "incrby n in 2"], "what was undone was told nobody");
    assert_eq!(server.take_messages().get(&id).map(Vec::len), Some(1));
    server.check(&[
        ("LRANGE l 0 -1", r#"["a", "b"]"#),
        ("GET n", "nil"),
        ("SELECT 2", "+OK"),
        ("GET n", "\"1\""),
    ]);
    server.run("EVAL 'return 1' 0");
    assert_eq!(server.long_units, 1, "what is short stays");
    server.assert_replays();
}

#[test]
fn a_transaction_runs_elsewhere_as_a_whole() {
    let mut server = server();
    let script = format!("EVAL \"{LONG} return redis.call('INCR', 'n')\" 0");
    server.check(&[
        ("MULTI", "+OK"),
        ("INCR n", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("RPUSH l a", "+QUEUED"),
        (&script, "+QUEUED"),
        ("EXEC", "[:1, +OK, :1, :1]"),
        ("LLEN l", ":1"),
        ("SELECT 0", "+OK"),
        ("GET n", "\"1\""),
    ]);
    assert_eq!(server.long_units, 1);
    server.assert_replays();
}

#[test]
fn the_scripts_of_a_transaction_have_the_time_of_one() {
    let mut server = server();
    server.run("MULTI");
    for _ in 0..100 {
        server.run("EVAL \"for i = 1, 5000 do end return redis.call('INCR', 'n')\" 0");
    }
    assert!(server.run("EXEC").ends_with(":100]"));
    assert_eq!((server.long_units, server.run("GET n")), (1, "\"100\"".to_string()));
}

#[test]
fn units_without_undo_begin_on_a_thread_of_their_own() {
    let mut server = server();
    let first = format!(
        "EVAL \"redis.call('SET', 'a', 1) redis.call('FLUSHALL') {LONG} return redis.call('DBSIZE')\" 0"
    );
    server.check(&[("SET k v", "+OK"), (&first, ":0"), ("SET k v", "+OK")]);
    assert_eq!(server.long_units, 1);
    server.check(&[
        ("MULTI", "+OK"),
        ("FLUSHALL", "+QUEUED"),
        ("CLIENT SETNAME me", "+QUEUED"),
        ("EVAL \"return redis.call('DBSIZE')\" 0", "+QUEUED"),
        ("EXEC", "[+OK, +OK, :0]"),
    ]);
    assert_eq!(server.long_units, 2);
    // Undone changes must not break the client's own watches.
    server.check(&[
        ("WATCH a", "+OK"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        (&format!("EVAL '{LONG}' 0"), "+QUEUED"),
        ("EXEC", "[+OK, nil]"),
    ]);
    assert_eq!(server.long_units, 3);
    server.assert_replays();
}

#[test]
fn a_transaction_that_has_to_stay_ends_its_scripts() {
    let mut server = server();
    server.check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("UNSUBSCRIBE", "+QUEUED"),
        ("EVAL \"redis.call('SET', 'a', 2) while true do end\" 0", "+QUEUED"),
        ("EVAL 'return 1' 0", "+QUEUED"),
    ]);
    let replies = server.run("EXEC");
    assert!(replies.contains("-ERR the script has run for too long in a transaction with"), "{replies}");
    assert_eq!((server.long_units, server.run("GET a")), (0, "\"1\"".to_string()));
    server.run(&format!("EVAL \"{LONG}\" 0"));
    assert_eq!(server.long_units, 1, "the next one does not have to");
}

#[test]
fn a_reply_is_kept_once() {
    let mut server = server();
    let idemp = format!("IDEMP key 60000 EVAL \"{LONG} return redis.call('INCR', 'n')\" 1 n");
    assert_eq!((server.run(&idemp), server.long_units), (":1".to_string(), 1));
    assert_eq!((server.run(&idemp), server.long_units), (":1".to_string(), 1));
    server.assert_replays();
}

/// A command that takes long, offloaded.
fn offloaded(server: &mut TestServer, line: &str) -> LongUnit {
    let args = crate::testing::parse(line);
    server.executor.begin_round(server.clock_ms(), &server.services, 1 << 20);
    let call = Call { args: args.as_args(), resolved: server.executor.resolve(args.as_args(), None) };
    let outcome = server.executor.execute(call, &mut server.session, &server.services, &mut Vec::new());
    assert_eq!(outcome, Outcome::Long);
    server.executor.offload(call, &mut server.session)
}

#[test]
fn a_unit_of_a_killed_client_does_not_begin() {
    let mut server = server();
    let unit = offloaded(&mut server, &format!("EVAL \"redis.call('SET', 'a', 1) {LONG}\" 1 a"));
    server.session.client.kill();
    server.executor.own_thread();
    let reply = server.executor.execute_long(unit, &server.services, 1 << 20, || 0, |_| {});
    assert!(reply.session.closing && reply.reply.is_empty());
    assert_eq!(server.host.scripts.kill(0, ScriptKind::Script), Kill::Nothing);
    server.session = server.connect();
    assert_eq!(server.run("GET a"), "nil");
}

#[test]
fn a_script_killed_before_its_thread_begins_stays_killed() {
    for line in [
        "EVAL \"redis.call('SET', 'a', 1) while true do end\" 1 a",
        "IDEMP i 60000 EVAL \"redis.call('SET', 'a', 1) while true do end\" 1 a",
    ] {
        let mut server = server();
        let unit = offloaded(&mut server, line);
        assert_eq!(server.host.scripts.kill(0, ScriptKind::Script), Kill::Done);
        server.executor.own_thread();
        let reply = server.executor.execute_long(unit, &server.services, 1 << 20, || 0, |_| {}).reply;
        assert!(reply.starts_with(b"-ERR Script killed by user with SCRIPT KILL"), "{line}");
        assert_eq!(server.host.scripts.kill(0, ScriptKind::Script), Kill::Nothing);
        assert_eq!(server.run("GET a"), "nil");
    }
}

#[test]
fn functions_run_elsewhere() {
    let mut server = server();
    let library = format!(
        "#!lua name=l\nredis.register_function('f', function(keys) {LONG} return redis.call('INCR', keys[1]) end)"
    );
    assert_eq!(server.run_args(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "\"l\"");
    let loaded = server.long_units;
    assert_eq!((server.run("FCALL f 1 n"), server.long_units), (":1".to_string(), loaded + 1));
    server.assert_replays();
}

#[test]
fn scripts_that_take_long_to_compile_run_elsewhere() {
    let mut server = server();
    let script = format!("local t = {{{}}} return #t", "1,".repeat(200_000));
    assert_eq!(server.run_args(&[b"EVAL", script.as_bytes(), b"0"]), ":200000");
    assert_eq!(server.long_units, 1);
    let sha = server.run_args(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
    assert_eq!(server.long_units, 2);
    assert_eq!(server.run(&format!("EVALSHA {sha} 0")), ":200000");
}

#[test]
fn commands_that_wait_for_a_disk_run_elsewhere() {
    for row in rows().iter().filter(|row| row.flags.has(Flags::AWAITS_DISK)) {
        let line = match row.name {
            "config|set" => "CONFIG SET timeout 7".into(),
            name => name.replace('|', " "),
        };
        let mut server = server();
        server.run(&line);
        assert_eq!(server.long_units, 1, "{line}");
        server.check(&[("MULTI", "+OK"), (&line, "+QUEUED")]);
        server.run("EXEC");
        assert_eq!(server.long_units, 2, "{line} in a transaction");
    }
    // This command only requests work, so it is not offloaded; the answer comes to the worker of the client.
    let mut server = server();
    assert_eq!(server.run("CONFIG SET force-recovery confirmed"), "");
    assert!(server.session.wait.is_some() && server.long_units == 0);
}

/// Elements of a value that makes commands long.
const MANY: usize = 20_000;

#[test]
fn commands_that_walk_over_much_run_elsewhere() {
    let fill = format!(
        "EVAL \"for i = 1, {MANY} do redis.call('RPUSH', 'list', i) redis.call('SADD', 'set', i) redis.call('ZADD', 'zset', i, i) \
         redis.call('HSET', 'hash', i, i) redis.call('XADD', 'stream', i .. '-1', 'f', i) redis.call('SET', 'k' .. i, i) end\" 0"
    );
    let filled = || {
        let mut server = TestServer::new();
        server.run(&fill);
        server
    };
    let (mut here, mut server) = (filled(), filled());
    for server in [&mut here, &mut server] {
        server.run("SETRANGE string 5000000 x");
        server.run("XGROUP CREATE stream g 0");
        ["list", "set", "zset", "stream"]
            .iter()
            .for_each(|key| _ = server.run(&format!("COPY {key} copied-{key}")));
    }
    server.offload_long_units();
    let long = [
        "KEYS *",
        "SMEMBERS set",
        "HGETALL hash",
        "HKEYS hash",
        "LRANGE list 0 -1",
        "LPOS list 20000",
        "ZRANGE zset 0 -1 WITHSCORES",
        "ZRANGEBYSCORE zset -inf +inf",
        "SUNION set none",
        "SDIFFSTORE to set none",
        "ZUNIONSTORE to 1 zset",
        "ZRANGESTORE to zset 0 -1",
        "SORT list DESC",
        "SORT set BY k* GET k* STORE to",
        "XRANGE stream - +",
        "COPY hash to REPLACE",
        "SCAN 0 COUNT 100000",
        "LREM list 0 7",
        "SSCAN set 0 COUNT 100000",
        "HSCAN hash 0 COUNT 100000",
        "ZSCAN zset 0 COUNT 100000",
        "HRANDFIELD hash 1000000",
        "SRANDMEMBER set 1000000",
        "ZRANDMEMBER zset 1000000",
        "GET string",
        "XREAD STREAMS stream 0",
        "XREAD COUNT 17000 STREAMS stream none 5 5",
        "XREADGROUP GROUP g c STREAMS stream >",
        "GEOSEARCH zset FROMLONLAT 0 0 BYRADIUS 30000 KM",
        "LPOP list 17000",
        "LTRIM copied-list 19000 -1",
        "SPOP copied-set 1000000",
        "ZPOPMIN zset 17000",
        "ZREMRANGEBYRANK copied-zset 0 17000",
        "XTRIM copied-stream MINID 19999 ACKED",
    ];
    for (index, line) in long.into_iter().enumerate() {
        assert_eq!(server.run(line), here.run(line), "{line}");
        assert_eq!(server.long_units, index + 1, "{line}");
    }
    let short = [
        "KEYS k1",
        "LRANGE list 0 99",
        "ZRANGE zset 0 99",
        "ZRANGEBYSCORE zset -inf +inf LIMIT 0 9",
        "XRANGE stream - + COUNT 9",
        "XRANGE stream 5 9",
        "SCAN 0 COUNT 1000",
        "SMEMBERS none",
        "HSCAN hash 0 COUNT 9",
        "SRANDMEMBER none -1000",
        "LPOP list 9",
        "LTRIM list 9 -9",
        "XREAD COUNT 9 STREAMS stream 0",
        "XTRIM stream MAXLEN 19000",
        "ZREMRANGEBYSCORE zset 0 17100",
        "LPOP copied-list",
    ];
    for line in short {
        assert_eq!(server.run(line), here.run(line), "{line}");
    }
    assert_eq!(server.long_units, long.len());
    let within = ["MULTI", "SET a 1", "SMEMBERS set", "INCR a", "EXEC", "GET a"];
    within.iter().for_each(|line| assert_eq!(server.run(line), here.run(line)));
    let script = "EVAL \"redis.call('INCR', 'a') return #redis.call('SMEMBERS', 'set')\" 0";
    assert_eq!(server.run(script), here.run(script));
    assert_eq!((server.long_units, server.run("GET a")), (long.len() + 2, "\"3\"".to_string()));
    // Undone changes must not break the client's own watches, so EXEC is offloaded before it begins.
    let watched = ["WATCH a", "MULTI", "INCR a", "HGETALL hash", "EXEC"];
    watched.iter().for_each(|line| assert_eq!(server.run(line), here.run(line)));
    assert_eq!(server.long_units, long.len() + 3);
    let names: Vec<String> = (0..MANY).map(|number| format!("many:{number}")).collect();
    let mset: Vec<&[u8]> =
        ["MSET"].into_iter().chain(names.iter().map(String::as_str)).map(str::as_bytes).collect();
    let mset = &mset[..MANY - 1];
    assert_eq!((server.run_args(mset), server.long_units), ("+OK".to_string(), long.len() + 4));
    server.assert_replays();
}
