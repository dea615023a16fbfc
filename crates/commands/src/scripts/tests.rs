use std::sync::atomic::Ordering::Relaxed;

use engine::replication::{MASTER_DOWN, WriteRefusal};

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
fn invalid_calls_of_eval_are_refused() {
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

/// The reply of a script without keys; an error is cut before the name of the script.
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
        ("return redis.call('subscribe', 'a')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('multi')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('cluster', 'reset')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('client', 'nosuch')", "-ERR Unknown Redis command called from script"),
        ("return redis.call('watch', 'a')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('eval', 'return 1', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('script', 'flush')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('debug', 'sleep', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('config', 'get', '*')", "-ERR This Redis command is not allowed from script"),
        ("return redis.pcall('multi')", "-ERR This Redis command is not allowed from script"),
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
    for publish in ["publish", "spublish"] {
        let script = format!("return redis.call('{publish}', 'a', 'b')");
        assert_eq!(told(&mut server, "EVAL_RO", &script), read_only);
        assert_eq!(told(&mut server, "EVAL", &format!("#!lua flags=no-writes\n{script}")), read_only);
        assert_eq!(told(&mut server, "EVAL", &script), ":0");
    }
    assert_eq!(told(&mut server, "EVAL_RO", "return redis.call('llen', 'l')"), ":1");
    let flagged = "-ERR Can not execute a script with write flag using *_ro command.";
    assert_eq!(told(&mut server, "EVAL_RO", "#!lua\nreturn 1"), flagged);
}

#[test]
fn a_script_chooses_the_protocol_of_its_values() {
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
fn failed_scripts_keep_their_changes_unless_scripts_roll_back() {
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
fn a_script_runs_again_with_all_slots_if_one_is_locked() {
    let mut server = TestServer::new();
    let keyspace = server.executor.keyspace().clone();
    let slot = keyspace::slot_of(b"other");
    let (locked, is_locked) = std::sync::mpsc::channel();
    // A test that fails drops this end of the channel, which the holder notices.
    let (_goes_on, ended) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let guard = keyspace.lock(slot);
        locked.send(()).expect("the test listens");
        // Waits until the script holds `first` again. The script was then undone, and waits for this slot.
        let goes_on = || ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty);
        while keyspace.try_lock(keyspace::slot_of(b"first")).is_some() && goes_on() {
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
fn commands_that_block_do_not_wait_in_scripts_and_functions() {
    let mut server = TestServer::new();
    server.run("XGROUP CREATE s g $ MKSTREAM");
    for (call, expected) in [
        ("'blpop', 'l', 0", "nil"),
        ("'brpop', 'l', 0", "nil"),
        ("'blmpop', 0, 1, 'l', 'left'", "nil"),
        ("'blmove', 'l', 'm', 'left', 'left', 0", "nil"),
        ("'brpoplpush', 'l', 'm', 0", "nil"),
        ("'bzpopmin', 'z', 0", "nil"),
        ("'bzpopmax', 'z', 0", "nil"),
        ("'bzmpop', 0, 1, 'z', 'min'", "nil"),
        ("'xread', 'block', 0, 'streams', 's', '$'", "nil"),
        ("'xreadgroup', 'group', 'g', 'c', 'block', 0, 'streams', 's', '>'", "nil"),
        ("'wait', 1, 0", ":0"),
        ("'waitaof', 0, 1, 0", "[:0, :0]"),
        ("'waitlsn', 99999999, 0", ":1"),
    ] {
        let body = format!("return redis.call({call})");
        assert_eq!(told(&mut server, "EVAL", &body), expected, "{call}");
        let code = format!("#!lua name=lib\nredis.register_function('f', function() {body} end)");
        server.run_args(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]);
        assert_eq!(server.run("FCALL f 0"), expected, "{call}");
    }
    assert!(server.session.wait.is_none());
    server.check(&[
        ("RPUSH l a b", ":2"),
        ("EVAL \"return redis.call('blpop', 'l', 0)\" 0", r#"["l", "a"]"#),
        ("EVAL \"return redis.call('blmove', 'l', 'm', 'left', 'left', 0)\" 0", r#""b""#),
        ("LRANGE m 0 -1", r#"["b"]"#),
    ]);
    let info = server.run("COMMAND INFO blpop blmove bzpopmin wait");
    for flags in
        ["[+write, +blocking]", "[+write, +denyoom, +blocking]", "[+write, +blocking, +fast]", "[+blocking]"]
    {
        assert!(info.contains(flags), "{flags} {info}");
    }
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
    // A script that has written may go on to write.
    let moves = "redis.call('del', 'a') return redis.call('set', 'b', 2)";
    assert_eq!(told(&mut server, "EVAL", moves), "+OK");
    assert_eq!(told(&mut server, "EVAL", "return redis.call('set', 'a', 1)"), oom);
    // Declared flags count for the whole script, also when it is queued.
    for command in ["EVAL", "EVAL_RO"] {
        assert_eq!(told(&mut server, command, "#!lua\nreturn 1"), oom);
        assert_eq!(told(&mut server, command, "#!lua flags=no-writes\nreturn 1"), ":1");
        server.run("MULTI");
        assert_eq!(told(&mut server, command, "#!lua flags=no-writes\nreturn 1"), "+QUEUED");
        assert_eq!(told(&mut server, command, "return 1"), "+QUEUED");
        assert_eq!(server.run("EXEC"), "[:1, :1]");
        server.run("MULTI");
        assert_eq!(told(&mut server, command, "#!lua\nreturn 1"), oom);
        assert_eq!(server.run("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    }
}

#[test]
fn a_script_beyond_its_limit_of_instructions_is_undone() {
    let mut server = TestServer::new();
    server.host.scripts.settings.set_instructions(1_000_000);
    let reply = server.run("EVAL \"redis.call('SET', 'a', 1) while true do end\" 1 a");
    assert!(reply.starts_with("-ERR the script has executed more instructions"), "{reply}");
    assert_eq!(server.run("GET a"), "nil");
    server.assert_replays();
}

/// Two workers of one server. One of them runs a script until it is killed.
struct Endless {
    script: crate::testing::ScriptThread<String>,
    server: TestServer,
    host: engine::Host,
    settings: std::sync::Arc<crate::testing::TestHost>,
    session: engine::Session,
}

impl Endless {
    /// Starts the script. Each reading of the clock takes `us` microseconds.
    fn begin(server: TestServer, us: u64, script: &'static str) -> Endless {
        let TestServer { host: settings, services: host, .. } = TestServer::new();
        settings.command_us.store(us, std::sync::atomic::Ordering::Relaxed);
        let (keyspace, interests) = (server.executor.keyspace().clone(), server.executor.interests().clone());
        let appender = server.log.appender();
        let session = || engine::Session::new(server.session.client.clone(), true);
        let (mine, mut theirs) = (session(), session());
        let shared = host.clone();
        let script = crate::testing::ScriptThread::spawn(&host, move || {
            let mut other =
                engine::Executor::new(crate::table(), keyspace, interests, shared.stats.worker(0), 2);
            other.attach(appender);
            other.own_thread();
            execute(&mut other, &mut theirs, &shared, script).expect("it has all it needs")
        });
        Endless { script, server, host, settings, session: mine }
    }

    /// Runs a command on the worker without a script; `None` if it must be retried.
    fn execute(&mut self, line: &str) -> Option<String> {
        execute(&mut self.server.executor, &mut self.session, &self.host, line)
    }

    /// Repeats a command while its reply is `told`.
    fn execute_while(&mut self, line: &str, told: &str) -> Option<String> {
        loop {
            let reply = self.execute(line);
            if reply.as_deref() != Some(told) {
                return reply;
            }
            self.script.assert_runs();
        }
    }

    /// Kills the script, which may be registered only after it has taken its slot.
    fn kill(&mut self) {
        let kill = || self.host.scripts.kill(0, engine::scripts::ScriptKind::Script);
        while kill() != engine::scripts::Kill::Done {
            self.script.assert_runs();
        }
    }

    fn end(self) -> TestServer {
        let reply = self.script.join();
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL"), "{reply}");
        self.server
    }
}

/// Runs a command with this executor; `None` if it must be retried after a pause.
fn execute(
    executor: &mut engine::Executor,
    session: &mut engine::Session,
    host: &engine::Host,
    line: &str,
) -> Option<String> {
    let args = crate::testing::parse(line);
    executor.begin_round(crate::testing::START_MS, host, 512 << 20);
    let call = engine::Call { args: args.as_args(), resolved: executor.resolve(args.as_args(), None) };
    let mut out = Vec::new();
    let outcome = executor.execute(call, session, host, &mut out);
    executor.end_round(host);
    if outcome == engine::Outcome::Wait {
        assert!(std::mem::take(&mut session.pause_ms) > 0, "the log has room");
        return None;
    }
    Some(String::from_utf8(out).expect("text"))
}

#[test]
fn a_script_that_does_not_end_is_ended_and_has_done_nothing() {
    assert_eq!(TestServer::new().run("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    // The second script has ended, but writing its result takes long.
    for script in [
        "EVAL \"redis.call('SET', KEYS[1], 1) while true do end\" 1 a",
        "EVAL \"redis.call('SET', KEYS[1], 1) local t = {} for i = 1, 60 do t = {t, t} end return t\" 1 a",
    ] {
        let mut endless = Endless::begin(TestServer::new(), 2000, script);
        endless.host.scripts.settings.set_busy_after(1);
        // Until the script has locked the slot, this is an ordinary GET.
        let busy = loop {
            // A command gets no reply, and is to be retried, as long as the script is not registered: nobody
            // could kill the script yet.
            if let Some(reply) = endless.execute_while("GET a", "$-1\r\n") {
                break reply;
            }
        };
        assert!(busy.starts_with("-BUSY Redis is busy running a script."), "{busy}");
        assert_eq!(endless.execute("GET b").as_deref(), Some("$-1\r\n"), "others go on");
        assert!(endless.execute("DBSIZE").is_some_and(|reply| reply.starts_with(':')));
        assert_eq!(endless.execute("SCRIPT KILL").as_deref(), Some("+OK\r\n"));
        let mut server = endless.end();
        assert_eq!(server.run("GET a"), "nil");
        server.assert_replays();
    }
}

#[test]
fn commands_on_slots_of_an_endless_script_are_retried_and_the_worker_goes_on() {
    let mut server = TestServer::new();
    server.check(&[("SET a 1", "+OK"), ("SET b 1", "+OK")]);
    let mut endless =
        Endless::begin(server, 20_000, "EVAL \"redis.call('SET', KEYS[1], 1) while true do end\" 1 a");
    endless.host.scripts.settings.set_busy_after(0);
    assert_eq!(endless.execute_while("GET a", "$1\r\n1\r\n"), None);
    let walks = ["SCAN 0 COUNT 100", "KEYS *", "KEYS a", "DEBUG DIGEST", "MGET b a", "FLUSHALL"];
    for line in walks.into_iter().cycle().take(100) {
        assert_eq!(endless.execute(line), None, "{line}");
    }
    assert_eq!(endless.execute("KEYS b").as_deref(), Some("*1\r\n$1\r\nb\r\n"));
    for (line, told) in [("MULTI", "+OK\r\n"), ("INCR b", "+QUEUED\r\n"), ("INCR a", "+QUEUED\r\n")] {
        assert_eq!(endless.execute(line).as_deref(), Some(told));
    }
    assert_eq!(endless.execute("EXEC"), None);
    // Eviction needs the slot as well.
    *endless.settings.limits.lock() = engine::MemoryLimits {
        memory_bytes_max: 1,
        policy: keyspace::EvictionPolicy::AllKeysLru,
        samples: 50,
    };
    assert_eq!(endless.execute("EXEC"), None);
    endless.settings.limits.lock().memory_bytes_max = 0;
    endless.kill();
    let reply = loop {
        if let Some(reply) = endless.execute("EXEC") {
            break reply;
        }
    };
    assert_eq!(reply, "*2\r\n:2\r\n:2\r\n");
    endless.end().assert_replays();
}

#[test]
fn a_waiter_with_a_target_slot_of_an_endless_script_is_served_after_it() {
    let mut server = TestServer::new();
    let mut waiting = server.connect();
    std::mem::swap(&mut server.session, &mut waiting);
    assert_eq!(server.run("BLMOVE from to LEFT LEFT 0"), "");
    std::mem::swap(&mut server.session, &mut waiting);
    let mut endless =
        Endless::begin(server, 20_000, "EVAL \"redis.call('SET', KEYS[1], 1) while true do end\" 1 to");
    endless.host.scripts.settings.set_busy_after(0);
    assert_eq!(endless.execute_while("EXISTS to", ":0\r\n"), None);
    let id = waiting.client.id();
    for len in 1..=3 {
        assert_eq!(endless.execute("RPUSH from x"), Some(format!(":{len}\r\n")));
    }
    assert_eq!(endless.server.executor.later.len(), 1, "one key is noted once");
    assert_eq!(endless.server.host.take_answer(id), None);
    endless.kill();
    let mut server = endless.end();
    assert_eq!(server.run("PING"), "+PONG", "the end of any round serves who waits");
    assert_eq!(server.host.take_answer(id).map(|(reply, _)| reply).as_deref(), Some("\"x\""));
    assert_eq!(server.run("LLEN from"), ":2");
    server.assert_replays();
}

#[test]
fn flushed_scripts_are_compiled_again() {
    let mut server = TestServer::new();
    server.run("EVAL 'return 1' 0");
    let compiled = |server: &mut TestServer| {
        let scripts = &server.host.scripts;
        let vm = server.executor.scripting.take_vm(scripts);
        let count = vm.compiled();
        server.executor.scripting.put_vm(vm);
        count
    };
    assert_eq!(compiled(&mut server), 1);
    server.run("SCRIPT FLUSH");
    assert_eq!(compiled(&mut server), 0);
    assert_eq!(server.run("EVAL 'return 1' 0"), ":1");
}

#[test]
fn monitors_see_the_script_and_then_its_commands() {
    let mut server = TestServer::new();
    let mut watcher = server.connect();
    std::mem::swap(&mut server.session, &mut watcher);
    server.run("MONITOR");
    std::mem::swap(&mut server.session, &mut watcher);
    // DBSIZE needs every slot: the script is undone and runs again, but is shown once.
    server.run("EVAL \"redis.call('INCR', KEYS[1]) return redis.call('DBSIZE')\" 1 a");
    let (lines, _) = server.host.take_pushed(watcher.client.id());
    let lines: Vec<&str> =
        lines.iter().map(|line| line.split_once('[').map_or("", |(_, rest)| rest)).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("EVAL") && lines[1].starts_with("0 lua] \"INCR\" \"a\""), "{lines:?}");
    assert!(lines[2].starts_with("0 lua] \"DBSIZE\""), "{lines:?}");
}

#[test]
fn a_script_writes_to_the_log_of_the_server() {
    let mut server = TestServer::new();
    server.run("EVAL \"redis.log(redis.LOG_NOTICE, 'hello')\" 0");
    assert_eq!(*server.host.asked.lock(), ["log Notice hello"]);
}

#[test]
fn a_stale_replica_shows_nothing_through_scripts() {
    let mut server = TestServer::new();
    server.run("SET k v");
    let library = "#!lua name=lib\n\
         redis.register_function{function_name = 'reads', flags = {'no-writes'}, \
                                 callback = function() return redis.call('GET', 'k') end} \
         redis.register_function{function_name = 'any', flags = {'no-writes', 'allow-stale'}, \
                                 callback = function() return redis.pcall('GET', 'k') end} \
         redis.register_function{function_name = 'says', flags = {'allow-stale', 'no-writes'}, \
                                 callback = function() return redis.call('ECHO', 'here') end}";
    assert_eq!(server.run_args(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "\"lib\"");
    server.host.replication.is_stale.store(true, Relaxed);
    let refused = format!("-{MASTER_DOWN}");
    let write_refused = format!("-{}", WriteRefusal::Replica.error());
    let undeclared = "-MASTERDOWN Link with MASTER is down, what of the data here is committed is not known and 'allow-stale' \
                      flag is not set on the script.";
    for (script, refused) in [
        ("return redis.pcall('GET', KEYS[1])", &refused),
        ("return redis.pcall('SET', KEYS[1], 'new')", &write_refused),
        ("return redis.pcall('DBSIZE')", &refused),
        ("#!lua flags=no-writes,allow-stale\nreturn redis.pcall('GET', KEYS[1])", &refused),
    ] {
        assert_eq!(server.run_args(&[b"EVAL", script.as_bytes(), b"1", b"k"]), *refused, "{script}");
    }
    for script in ["#!lua\nreturn 1", "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])"] {
        assert_eq!(server.run_args(&[b"EVAL", script.as_bytes(), b"1", b"k"]), undeclared, "{script}");
        assert_eq!(server.run_args(&[b"EVAL_RO", script.as_bytes(), b"1", b"k"]), undeclared, "{script}");
    }
    server.check(&[
        ("FCALL reads 0", undeclared),
        ("FCALL_RO reads 0", undeclared),
        ("FCALL_RO any 0", &refused),
        ("FCALL_RO says 0", "\"here\""),
        ("EVAL 'return 1' 0", ":1"),
    ]);
    server.host.replication.is_stale.store(false, Relaxed);
    assert_eq!(server.run("FCALL reads 0"), "\"v\"", "once the leader has committed it");
}

/// The numbers of errors by code, and for each of these commands the numbers of calls, of rejected calls and
/// of failed calls.
fn counted(server: &TestServer, names: &[&str]) -> (String, Vec<(u64, u64, u64)>) {
    let stats = &server.host.stats;
    let errors: Vec<String> = stats.errors().iter().map(|(code, count)| format!("{code}={count}")).collect();
    let of = |name: &&str| {
        let row = crate::table().resolve(name.as_bytes()).expect("a command");
        let totals = stats.totals(crate::table().index_of(row));
        (totals.calls, totals.rejected, totals.failed)
    };
    (errors.join(" "), names.iter().map(of).collect())
}

#[test]
fn an_error_is_counted_once_wherever_a_script_got_it() {
    let failing = "redis.call('select', 99)";
    let protected = "redis.pcall('select', 99)";
    for (body, errors, select, eval) in [
        (format!("return {failing}"), "ERR=1", (1, 0, 1), (1, 0, 1)),
        (format!("return {protected}"), "ERR=1", (1, 0, 1), (1, 0, 1)),
        (format!("{protected} return 1"), "ERR=1", (1, 0, 1), (1, 0, 0)),
        (format!("redis.call('set', 'k', '1') return {failing}"), "ERR=1", (1, 0, 1), (1, 0, 1)),
        (format!("redis.call('set', 'k', '1') return {protected}"), "ERR=1", (1, 0, 1), (1, 0, 1)),
        ("return redis.call('select')".to_string(), "ERR=1", (0, 1, 0), (1, 0, 1)),
        ("redis.pcall('select') return 1".to_string(), "ERR=1", (0, 1, 0), (1, 0, 0)),
        ("redis.pcall('nosuch') return 1".to_string(), "ERR=1", (0, 0, 0), (1, 0, 0)),
        ("return redis.error_reply('MINE own')".to_string(), "MINE=1", (0, 0, 0), (1, 0, 1)),
        ("redis.call('set', 'k', '1') error('own')".to_string(), "ERR=1", (0, 0, 0), (1, 0, 1)),
        ("redis.pcall()  return 1".to_string(), "", (0, 0, 0), (1, 0, 0)),
    ] {
        let mut server = TestServer::new();
        server.run_args(&[b"EVAL", body.as_bytes(), b"0"]);
        assert_eq!(counted(&server, &["select", "eval"]), (errors.to_string(), vec![select, eval]), "{body}");
    }
}

#[test]
fn the_commands_of_scripts_and_transactions_are_slow_by_themselves_if_all_are_timed() {
    let mut server = TestServer::new();
    server.check(&[("CLIENT SETNAME jobs", "+OK")]);
    let logged = |server: &TestServer| -> Vec<Vec<u8>> {
        let entries = server.host.observer.slow_log.newest(9);
        assert!(entries.iter().all(|entry| entry.client_name == "jobs"));
        entries.iter().map(|entry| entry.args[0].clone()).collect()
    };
    server.host.observer.slow_log.configure(0, 128);
    server.check(&[("EVAL \"return redis.call('PING')\" 0", "+PONG")]);
    assert_eq!(logged(&server), [&b"EVAL"[..], b"PING"]);
    server.host.observer.slow_log.reset();
    server.check(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED"), ("EXEC", "[+OK]")]);
    assert_eq!(logged(&server), [&b"SET"[..], b"MULTI"]);
}
