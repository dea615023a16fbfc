use crate::testing::{TestServer, check, check_protocols};

const SHA_1: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

#[test]
fn scripts_run() {
    check(&[
        ("EVAL 'return 1' 0", ":1"),
        ("EVAL 'return {KEYS[1], KEYS[2], ARGV[1], ARGV[2]}' 2 k1 k2 a1 a2", r#"["k1", "k2", "a1", "a2"]"#),
        ("EVAL \"return redis.call('SET', KEYS[1], ARGV[1])\" 1 k v", "+OK"),
        ("EVAL \"return redis.call('GET', KEYS[1])\" 1 k", "\"v\""),
        ("GET k", "\"v\""),
        ("EVAL \"redis.call('SELECT', 3) return redis.call('SET', 'k', 'other')\" 0", "+OK"),
        ("GET k", "\"v\""),
        ("SELECT 3", "+OK"),
        ("GET k", "\"other\""),
    ]);
}

#[test]
fn what_is_no_call_is_refused() {
    check(&[
        ("EVAL", "-ERR wrong number of arguments for 'eval' command"),
        ("EVAL 'return 1' a", "-ERR value is not an integer or out of range"),
        ("EVAL 'return 1' 3 a", "-ERR Number of keys can't be greater than number of args"),
        ("EVAL 'return 1' -1", "-ERR Number of keys can't be negative"),
        ("EVALSHA abc 0", "-NOSCRIPT No matching script. Please use EVAL."),
        (
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
            "-NOSCRIPT No matching script. Please use EVAL.",
        ),
        ("EVAL 'x x' 0", "-ERR Error compiling script (new function): user_script:1: '=' expected near 'x'"),
        ("EVAL '#!lua' 0", "-ERR Invalid script shebang"),
        (
            "SCRIPT LOAD 'x x'",
            "-ERR Error compiling script (new function): user_script:1: '=' expected near 'x'",
        ),
        ("SCRIPT FLUSH bad", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT SHOW abc", "-NOSCRIPT No matching script. Please use EVAL."),
        ("SCRIPT EXISTS", "-ERR wrong number of arguments for 'script|exists' command"),
    ]);
}

#[test]
fn scripts_are_known_by_name() {
    check(&[
        ("SCRIPT LOAD 'return 1'", &format!("\"{SHA_1}\"")),
        (&format!("SCRIPT EXISTS {SHA_1} abc"), "[:1, :0]"),
        (&format!("EVALSHA {SHA_1} 0"), ":1"),
        (&format!("EVALSHA {} 0", SHA_1.to_uppercase()), ":1"),
        (&format!("SCRIPT SHOW {SHA_1}"), "\"return 1\""),
        ("SCRIPT FLUSH", "+OK"),
        (&format!("EVALSHA {SHA_1} 0"), "-NOSCRIPT No matching script. Please use EVAL."),
        ("EVAL 'return 1' 0", ":1"),
        (&format!("EVALSHA_RO {SHA_1} 0"), ":1"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        (&format!("SCRIPT EXISTS {SHA_1}"), "[:0]"),
    ]);
}

/// The reply of `return <body>` without the name of the script and the line.
fn told(server: &mut TestServer, command: &str, body: &str) -> String {
    let reply = server.run_args(&[command.as_bytes(), body.as_bytes(), b"0"]);
    let end = reply.find(" script: ").unwrap_or(reply.len());
    reply[..end].to_string()
}

#[test]
fn commands_are_refused_to_scripts() {
    let mut server = TestServer::new();
    server.run("LPUSH l 1");
    for (body, expected) in [
        ("return redis.call('nosuch')", "-ERR Unknown Redis command called from script"),
        ("return redis.call('get')", "-ERR Wrong number of args calling Redis command from script"),
        ("return redis.call('blpop', 'a', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('subscribe', 'a')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('multi')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('watch', 'a')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('eval', 'return 1', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('script', 'flush')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('debug', 'sleep', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('config', 'get', '*')", "-ERR This Redis command is not allowed from script"),
        ("return redis.pcall('blpop', 'a', 0)", "-ERR This Redis command is not allowed from script"),
        (
            "return redis.call('incr', 'l')",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "return redis.pcall('incr', 'l')",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ] {
        assert_eq!(told(&mut server, "EVAL", body), expected, "{body}");
    }
    let read_only = "-ERR Write commands are not allowed from read-only scripts.";
    assert_eq!(told(&mut server, "EVAL_RO", "return redis.call('set', 'a', 1)"), read_only);
    assert_eq!(
        told(&mut server, "EVAL", "#!lua flags=no-writes\nreturn redis.call('set', 'a', 1)"),
        read_only
    );
    assert_eq!(told(&mut server, "EVAL_RO", "return redis.call('llen', 'l')"), ":1");
    let flagged = "-ERR Can not execute a script with write flag using *_ro command.";
    assert_eq!(told(&mut server, "EVAL_RO", "#!lua\nreturn 1"), flagged);
}

#[test]
fn replies_differ_by_what_the_script_wants() {
    check_protocols(&[
        ("HSET h f v", ":1", ":1"),
        ("EVAL \"return redis.call('HGETALL', 'h')\" 0", r#"["f", "v"]"#, r#"["f", "v"]"#),
        ("EVAL \"redis.setresp(3) return redis.call('HGETALL', 'h')\" 0", r#"["f", "v"]"#, r#"{"f": "v"}"#),
        ("EVAL 'return true' 0", ":1", ":1"),
        ("EVAL 'redis.setresp(3) return true' 0", ":1", "#true"),
        ("EVAL 'return {double = 1.5}' 0", "\"1.5\"", ",1.5"),
        ("GET none", "nil", "nil"),
    ]);
}

#[test]
fn a_script_is_one_record() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    let before = server.appended_lsn();
    server.run("SET a 1");
    let one = server.appended_lsn().get() - before.get();
    let before = server.appended_lsn();
    server.run("EVAL \"for i = 1, 5 do redis.call('SET', 'a', 1) end\" 1 a");
    assert!(server.appended_lsn().get() - before.get() < 4 * one);
    let before = server.appended_lsn();
    server.run("EVAL \"return redis.call('GET', 'a')\" 1 a");
    assert_eq!(server.appended_lsn(), before, "what only reads is not logged");
    server.assert_replays();
}

#[test]
fn errors_leave_what_was_done_unless_told_otherwise() {
    let script = "EVAL \"redis.call('SET', 'a', 1) redis.call('LPUSH', 'a', 1)\" 1 a";
    let mut server = TestServer::new();
    assert!(server.run(script).starts_with("-WRONGTYPE"));
    assert_eq!(server.run("GET a"), "\"1\"");
    server.assert_replays();
    let mut server = TestServer::new();
    server.host.scripts.settings.set_rolls_back(true);
    assert!(server.run(script).starts_with("-WRONGTYPE"));
    assert_eq!(server.run("GET a"), "nil");
    server.run("EVAL \"redis.call('SET', 'a', 1) return redis.error_reply('no')\" 1 a");
    assert_eq!(server.run("GET a"), "nil", "an error that is returned is one too");
    server.run("EVAL \"redis.call('SET', 'a', 1) return redis.pcall('LPUSH', 'a', 1) and 1\" 1 a");
    assert_eq!(server.run("GET a"), "\"1\"", "an error that is caught is none");
    server.assert_replays();
}

#[test]
fn keys_need_not_be_declared() {
    check(&[
        (
            "EVAL \"for i = 1, 50 do redis.call('SET', 'k' .. i, i) end return redis.call('GET', 'k50')\" 0",
            "\"50\"",
        ),
        ("DBSIZE", ":50"),
        ("EVAL \"redis.call('DEL', 'k1') return #redis.call('KEYS', '*')\" 0", ":49"),
        ("EVAL \"redis.call('SET', 'new', 1) return redis.call('DBSIZE')\" 1 new", ":50"),
        ("EVAL \"redis.call('INCR', 'n') return #redis.call('SCAN', 0, 'COUNT', 1000)[2]\" 0", ":51"),
        ("GET n", "\"1\""),
        ("EVAL \"redis.call('INCR', 'n') redis.call('FLUSHALL') return redis.call('INCR', 'n')\" 0", ":1"),
        ("DBSIZE", ":1"),
    ]);
}

#[test]
fn a_script_whose_slot_is_taken_runs_again_with_all_of_them() {
    let mut server = TestServer::new();
    let keyspace = server.executor.keyspace().clone();
    let slot = keyspace::slot_of(b"other");
    let (locked, is_locked) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        let guard = keyspace.lock(slot);
        locked.send(()).expect("the test listens");
        // Until the script has been undone and waits for this slot, or has it.
        while keyspace.try_lock(keyspace::slot_of(b"first")).is_some() {
            std::thread::yield_now();
        }
        drop(guard);
    });
    is_locked.recv().expect("the slot is locked");
    let script = "EVAL \"redis.call('INCR', KEYS[1]) return redis.call('INCR', 'other')\" 1 first";
    assert_eq!(server.run(script), ":1");
    holder.join().expect("it ends");
    assert_eq!(server.run("GET first"), "\"1\"", "what was undone is not done twice");
    server.assert_replays();
}

#[test]
fn scripts_run_in_transactions() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("EVAL \"redis.call('SET', 'b', 2) return redis.call('GET', 'a')\" 0", "+QUEUED"),
        ("GET b", "+QUEUED"),
        ("EXEC", r#"[+OK, "1", "2"]"#),
    ]);
}

#[test]
fn memory_and_the_log_are_asked_for_before() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    server.host.limits.lock().memory_bytes_max = 1;
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(told(&mut server, "EVAL", "return redis.call('set', 'a', 2)"), oom);
    assert_eq!(told(&mut server, "EVAL", "return redis.call('get', 'a')"), "\"1\"");
    assert_eq!(told(&mut server, "EVAL", "#!lua flags=allow-oom\nreturn redis.call('set', 'a', 2)"), "+OK");
    let flagged =
        "-OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
    assert_eq!(told(&mut server, "EVAL", "#!lua\nreturn 1"), flagged);
}

#[test]
fn a_script_that_takes_too_much_has_done_nothing() {
    let mut server = TestServer::new();
    server.host.scripts.settings.set_instructions(1_000_000);
    let reply = server.run("EVAL \"redis.call('SET', 'a', 1) while true do end\" 1 a");
    assert!(reply.starts_with("-ERR the script has executed more instructions"), "{reply}");
    assert_eq!(server.run("GET a"), "nil");
    server.assert_replays();
}

#[test]
fn a_script_that_does_not_end_is_ended_and_has_done_nothing() {
    let mut server = TestServer::new();
    assert_eq!(server.run("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    // Another worker: the same keyspace and process, its own executor.
    let host = std::sync::Arc::new(TestServer::new().host);
    let (keyspace, interests) = (server.executor.keyspace().clone(), server.executor.interests().clone());
    let appender = server.log.appender();
    host.scripts.settings.set_busy_after(1);
    let session = |client| crate::Session::new(client, true);
    let (mut mine, mut theirs) =
        (session(server.session.client.clone()), session(server.session.client.clone()));
    let shared = host.clone();
    let script = std::thread::spawn(move || {
        let mut other = crate::Executor::new(keyspace, interests, shared.stats.worker(0), 2);
        other.attach(appender);
        let script = "EVAL \"redis.call('SET', KEYS[1], 1) while true do end\" 1 a";
        execute(&mut other, &mut theirs, &*shared, script)
    });
    // Until the script has the slot this is an ordinary GET.
    let busy = loop {
        let reply = execute(&mut server.executor, &mut mine, &*host, "GET a");
        if reply != "$-1\r\n" {
            break reply;
        }
    };
    assert!(busy.starts_with("-BUSY Redis is busy running a script."), "{busy}");
    assert_eq!(execute(&mut server.executor, &mut mine, &*host, "GET b"), "$-1\r\n", "others go on");
    assert!(execute(&mut server.executor, &mut mine, &*host, "DBSIZE").starts_with(':'));
    assert_eq!(execute(&mut server.executor, &mut mine, &*host, "SCRIPT KILL"), "+OK\r\n");
    let reply = script.join().expect("it ends");
    assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL"), "{reply}");
    assert_eq!(execute(&mut server.executor, &mut mine, &*host, "GET a"), "$-1\r\n");
    server.assert_replays();
}

/// The bytes of a reply on any worker.
fn execute(
    executor: &mut crate::Executor,
    session: &mut crate::Session,
    host: &dyn crate::Host,
    line: &str,
) -> String {
    let args = crate::testing::parse(line);
    executor.begin_round(crate::testing::START_MS, host, 512 << 20);
    let call = crate::Call { args: args.as_args(), resolved: executor.resolve(args.as_args(), None) };
    let mut out = Vec::new();
    assert_ne!(executor.execute(call, session, host, &mut out), crate::Outcome::Wait);
    executor.end_round(host);
    String::from_utf8(out).expect("text")
}

#[test]
fn monitors_see_the_script_and_then_its_commands() {
    let mut server = TestServer::new();
    let mut watcher = server.connect();
    std::mem::swap(&mut server.session, &mut watcher);
    server.run("MONITOR");
    std::mem::swap(&mut server.session, &mut watcher);
    // The last one needs every slot: all are undone and run again, and shown once.
    server.run("EVAL \"redis.call('INCR', KEYS[1]) return redis.call('DBSIZE')\" 1 a");
    let (lines, _) = server.host.take_pushed(watcher.client.id());
    let lines: Vec<&str> =
        lines.iter().map(|line| line.split_once('[').map_or("", |(_, rest)| rest)).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("EVAL") && lines[1].starts_with("0 lua] \"INCR\" \"a\""), "{lines:?}");
    assert!(lines[2].starts_with("0 lua] \"DBSIZE\""), "{lines:?}");
}

#[test]
fn messages_to_the_log_of_the_server() {
    let mut server = TestServer::new();
    server.run("EVAL \"redis.log(redis.LOG_NOTICE, 'hello')\" 0");
    assert_eq!(*server.host.asked.lock(), ["log Notice hello"]);
}
