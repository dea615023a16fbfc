use lsn::Lsn;

use crate::testing::{TestServer, check, check_protocols};

/// A library with functions that return their own names, or run the body after `=`.
fn code(name: &str, functions: &[&str]) -> String {
    let mut code = format!("#!lua name={name}\n");
    for function in functions {
        let (name, body) = function.split_once('=').unwrap_or((function, ""));
        let body = if body.is_empty() { format!("return '{name}'") } else { body.to_string() };
        code += &format!("redis.register_function('{name}', function(keys, args) {body} end)\n");
    }
    code
}

fn load(server: &mut TestServer, name: &str, functions: &[&str]) -> String {
    server.run_args(&[b"FUNCTION", b"LOAD", code(name, functions).as_bytes()])
}

fn replace(server: &mut TestServer, name: &str, functions: &[&str]) -> String {
    server.run_args(&[b"FUNCTION", b"LOAD", b"REPLACE", code(name, functions).as_bytes()])
}

/// The names of all libraries.
fn names(server: &TestServer) -> Vec<String> {
    let published = server.executor.keyspace().libraries();
    published.libraries.iter().map(|it| String::from_utf8_lossy(&it.name).into_owned()).collect()
}

fn dump(server: &mut TestServer) -> Vec<u8> {
    match server.value("FUNCTION DUMP") {
        wire::Value::Bulk(payload) => payload.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn functions_are_loaded_called_and_removed() {
    let mut server = TestServer::new();
    let functions =
        ["f", "Set=return redis.call('SET', keys[1], args[1])", "words=return {#keys, keys[1], args[1]}"];
    assert_eq!(load(&mut server, "lib", &functions), "\"lib\"");
    server.check(&[
        ("FCALL f 0", "\"f\""),
        ("FCALL F 0", "\"f\""),
        ("FCALL set 1 k v", "+OK"),
        ("GET k", "\"v\""),
        ("FCALL words 2 a b c", "[:2, \"a\", \"c\"]"),
        ("FUNCTION DELETE LIB", "-ERR Library not found"),
        ("FUNCTION DELETE lib", "+OK"),
        ("FCALL f 0", "-ERR Function not found"),
        ("FUNCTION DELETE lib", "-ERR Library not found"),
    ]);
    server.assert_replays();
}

#[test]
fn invalid_libraries_are_refused_without_a_change() {
    let mut server = TestServer::new();
    load(&mut server, "lib", &["f"]);
    let before = server.appended_lsn();
    for (code, expected) in [
        (code("lib", &["g"]), "-ERR Library 'lib' already exists"),
        (code("other", &["g", "F"]), "-ERR Function F already exists"),
        (code("other", &[]), "-ERR No functions registered"),
        ("return 1".into(), "-ERR Missing library metadata"),
        (
            "#!lua name=other\nredis.call('SET', 'a', 1)".into(),
            "-ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable 'call'",
        ),
        (code("other", &["g"]) + &"-".repeat(1 << 20), "-ERR the library is larger than 1 MiB"),
    ] {
        assert_eq!(server.run_args(&[b"FUNCTION", b"LOAD", code.as_bytes()]), expected);
    }
    server.check(&[
        ("FUNCTION LOAD REPLACE", "-ERR Missing library metadata"),
        ("FUNCTION LOAD nope x", "-ERR Unknown option given: nope"),
        ("FUNCTION LOAD REPLACE nope x", "-ERR Unknown option given: nope"),
        ("FUNCTION FLUSH nope", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        (
            "FUNCTION FLUSH SYNC SYNC",
            "-ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.",
        ),
        ("FUNCTION nope", "-ERR unknown subcommand 'nope'. Try FUNCTION HELP."),
    ]);
    assert_eq!((server.appended_lsn(), names(&server)), (before, vec!["lib".to_string()]));
    assert_eq!(server.run("FCALL f 0"), "\"f\"");
}

#[test]
fn a_library_is_replaced_with_all_its_functions() {
    let mut server = TestServer::new();
    load(&mut server, "lib", &["f", "g"]);
    assert_eq!(server.run("FCALL g 0"), "\"g\"");
    assert_eq!(replace(&mut server, "lib", &["f=return 'new'", "h"]), "\"lib\"");
    server.check(&[
        ("FCALL f 0", "\"new\""),
        ("FCALL g 0", "-ERR Function not found"),
        ("FCALL h 0", "\"h\""),
    ]);
    let before = server.appended_lsn();
    assert_eq!(replace(&mut server, "lib", &["f=return 'new'", "h"]), "\"lib\"");
    assert_eq!(server.appended_lsn(), before, "the same library is no change");
    load(&mut server, "other", &["i"]);
    assert_eq!(replace(&mut server, "lib", &["i"]), "-ERR Function i already exists");
    assert_eq!(server.run("FCALL h 0"), "\"h\"");
    server.assert_replays();
}

#[test]
fn invalid_calls_of_functions_are_refused() {
    let mut server = TestServer::new();
    load(&mut server, "lib", &["f"]);
    server.check(&[
        ("FCALL nosuch x", "-ERR Function not found"),
        ("FCALL f x", "-ERR Bad number of keys provided"),
        ("FCALL f -1", "-ERR Number of keys can't be negative"),
        ("FCALL f 1", "-ERR Number of keys can't be greater than number of args"),
        ("FCALL f", "-ERR wrong number of arguments for 'fcall' command"),
        ("FCALL_RO f 0", "-ERR Can not execute a script with write flag using *_ro command."),
        (
            "EVAL \"return redis.pcall('FCALL', 'f', 0)\" 0",
            "-ERR This Redis command is not allowed from script",
        ),
        (
            "EVAL \"return redis.pcall('FUNCTION', 'FLUSH')\" 0",
            "-ERR This Redis command is not allowed from script",
        ),
    ]);
}

#[test]
fn flags_of_a_function_limit_its_commands() {
    let mut server = TestServer::new();
    let code = "#!lua name=lib
        redis.register_function{function_name='reads', flags={'no-writes'},
            callback=function(keys) return redis.call('GET', keys[1]) end}
        redis.register_function{function_name='lies', flags={'no-writes'},
            callback=function(keys) return redis.call('SET', keys[1], 1) end}
        redis.register_function{function_name='grows', flags={'allow-oom'},
            callback=function(keys) return redis.call('SET', keys[1], 1) end}
        redis.register_function('plain', function() return 1 end)";
    assert_eq!(server.run_args(&[b"FUNCTION", b"LOAD", code.as_bytes()]), "\"lib\"");
    let refused =
        "-ERR Write commands are not allowed from read-only scripts. script: lies, on @user_function:5.";
    server.check(&[
        ("SET a 1", "+OK"),
        ("FCALL_RO reads 1 a", "\"1\""),
        ("FCALL reads 1 a", "\"1\""),
        ("FCALL lies 1 a", refused),
        ("FCALL_RO lies 1 a", refused),
    ]);
    server.assert_replays();
    server.host.limits.lock().memory_bytes_max = 1;
    const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
    server.check(&[
        ("FCALL grows 1 a", "+OK"),
        ("FCALL reads 1 a", "\"1\""),
        ("FCALL plain 0", OOM),
        ("FCALL_RO plain 0", OOM),
        ("FUNCTION LOAD x", OOM),
        ("MULTI", "+OK"),
        ("FCALL reads 1 a", "+QUEUED"),
        ("FCALL plain 0", OOM),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
}

#[test]
fn libraries_are_described() {
    const LOAD: &str = "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function{function_name='f', description='d', \
                        callback=function() end, flags={'allow-stale', 'no-writes'}}\"";
    const CODE: &str = "\"#!lua name=lib\\nredis.register_function{function_name=\\'f\\', description=\\'d\\', \
                        callback=function() end, flags={\\'allow-stale\\', \\'no-writes\\'}}\"";
    let resp2 = format!(
        "[[\"library_name\", \"lib\", \"engine\", \"LUA\", \"functions\", [[\"name\", \"f\", \"description\", \"d\", \
         \"flags\", [+no-writes, +allow-stale]]], \"library_code\", {CODE}]]"
    );
    let resp3 = format!(
        "[{{\"library_name\": \"lib\", \"engine\": \"LUA\", \"functions\": [{{\"name\": \"f\", \"description\": \"d\", \
         \"flags\": ~[+no-writes, +allow-stale]}}], \"library_code\": {CODE}}}]"
    );
    let stats = "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :1, \"functions_count\", :1]]]";
    check_protocols(&[
        (LOAD, "\"lib\"", "\"lib\""),
        ("FUNCTION LIST LIBRARYNAME L* WITHCODE", &resp2, &resp3),
        (
            "FUNCTION STATS",
            stats,
            "{\"running_script\": nil, \"engines\": {\"LUA\": {\"libraries_count\": :1, \"functions_count\": :1}}}",
        ),
        ("FUNCTION DELETE lib", "+OK", "+OK"),
    ]);
    check(&[
        ("FUNCTION LIST", "[]"),
        ("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given"),
        ("FUNCTION LIST nope", "-ERR Unknown argument nope"),
        ("FUNCTION LIST WITHCODE withcode", "-ERR Unknown argument withcode"),
        ("FUNCTION LIST LIBRARYNAME a LIBRARYNAME b", "-ERR Unknown argument LIBRARYNAME"),
        ("FUNCTION KILL", "-NOTBUSY No scripts in execution right now."),
    ]);
    let mut server = TestServer::new();
    load(&mut server, "b", &["f"]);
    load(&mut server, "a", &["g"]);
    let list = server.run("FUNCTION LIST LIBRARYNAME B");
    assert!(list.contains("\"f\"") && !list.contains("\"g\""), "{list}");
}

#[test]
fn a_dump_of_libraries_is_restored_completely_or_not_at_all() {
    let mut server = TestServer::new();
    load(&mut server, "a", &["f"]);
    load(&mut server, "b", &["g"]);
    let payload = dump(&mut server);
    let restore = |server: &mut TestServer, policy: &str| match policy {
        "" => server.run_args(&[b"FUNCTION", b"RESTORE", &payload]),
        policy => server.run_args(&[b"FUNCTION", b"RESTORE", &payload, policy.as_bytes()]),
    };
    assert_eq!(restore(&mut server, ""), "-ERR Library a already exists");
    assert_eq!(restore(&mut server, "append"), "-ERR Library a already exists");
    assert_eq!(restore(&mut server, "REPLACE"), "+OK");
    assert_eq!(
        restore(&mut server, "nope"),
        "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
    );
    server.check(&[("FUNCTION DELETE a", "+OK"), ("FUNCTION DELETE b", "+OK")]);
    load(&mut server, "c", &["g"]);
    assert_eq!(restore(&mut server, ""), "-ERR Function g already exists");
    assert_eq!(restore(&mut server, "REPLACE"), "-ERR Function g already exists");
    assert_eq!(
        (names(&server), server.run("FCALL f 0")),
        (vec!["c".into()], "-ERR Function not found".into())
    );
    assert_eq!(restore(&mut server, "FLUSH"), "+OK");
    assert_eq!((names(&server), server.run("FCALL g 0")), (vec!["a".into(), "b".into()], "\"g\"".into()));
    for (payload, expected) in [
        (payload[1..].to_vec(), "-ERR DUMP payload version or checksum are wrong"),
        (vec![], "-ERR DUMP payload version or checksum are wrong"),
        (rdb::dump(b"\xf4\x01a".to_vec()), "-ERR given type is not a function"),
        (rdb::dump(b"\xf5\x05a".to_vec()), "-ERR Failed loading library payload"),
        (
            rdb::dump_libraries([code("x", &["h"]).as_bytes(), b"return 1"].into_iter()),
            "-ERR Missing library metadata",
        ),
        (
            rdb::dump_libraries([code("x", &["h"]).as_bytes(), code("x", &["i"]).as_bytes()].into_iter()),
            "-ERR Library 'x' already exists",
        ),
        (
            rdb::dump_libraries([code("x", &["h"]).as_bytes(), code("y", &["H"]).as_bytes()].into_iter()),
            "-ERR Function H already exists",
        ),
    ] {
        assert_eq!(server.run_args(&[b"FUNCTION", b"RESTORE", &payload, b"FLUSH"]), expected);
    }
    assert_eq!(names(&server), ["a", "b"]);
    server.assert_replays();
}

#[test]
fn flushall_keeps_libraries_and_function_flush_removes_them() {
    let mut server = TestServer::new();
    load(&mut server, "a", &["f"]);
    load(&mut server, "b", &["g"]);
    server.check(&[
        ("SET k v", "+OK"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("FCALL f 0", "\"f\""),
        ("MULTI", "+OK"),
        ("FUNCTION DELETE a", "+QUEUED"),
        ("FLUSHALL", "+QUEUED"),
        ("EXEC", "[+OK, +OK]"),
        ("EVAL \"redis.call('FLUSHALL') return redis.call('DBSIZE')\" 0", ":0"),
        ("FCALL f 0", "-ERR Function not found"),
        ("FCALL g 0", "\"g\""),
    ]);
    server.assert_replays();
    server.check(&[("FUNCTION FLUSH ASYNC", "+OK"), ("FCALL g 0", "-ERR Function not found")]);
    assert!(names(&server).is_empty());
    server.assert_replays();
}

#[test]
fn a_transaction_sees_its_own_libraries_and_is_one_record() {
    let mut server = TestServer::new();
    load(&mut server, "old", &["f"]);
    let line = "FUNCTION LOAD \"#!lua name=new\\nredis.register_function('g', function() return 5 end)\"";
    server.check(&[
        ("MULTI", "+OK"),
        (line, "+QUEUED"),
        ("FCALL g 0", "+QUEUED"),
        ("FUNCTION DELETE new", "+QUEUED"),
        ("FCALL g 0", "+QUEUED"),
        ("FUNCTION DELETE old", "+QUEUED"),
        (line, "+QUEUED"),
        ("EXEC", "[\"new\", :5, +OK, -ERR Function not found, +OK, \"new\"]"),
        ("FCALL g 0", ":5"),
        ("FCALL f 0", "-ERR Function not found"),
    ]);
    // Failed and undone scripts leave libraries alone.
    server.host.scripts.settings.set_rolls_back(true);
    server.check(&[
        ("MULTI", "+OK"),
        ("FUNCTION DELETE new", "+QUEUED"),
        ("EVAL \"redis.call('SET', 'a', 1) return redis.error_reply('no way')\" 0", "+QUEUED"),
        ("FUNCTION STATS", "+QUEUED"),
        (
            "EXEC",
            "[+OK, -no way, [\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :0, \
             \"functions_count\", :0]]]]",
        ),
        ("EXISTS a", ":0"),
        ("FCALL g 0", "-ERR Function not found"),
    ]);
    server.assert_replays();
}

#[test]
fn replies_wait_for_the_record_of_the_library_that_they_depend_on() {
    let mut server = TestServer::new();
    let before = server.appended_lsn();
    load(&mut server, "lib", &["f"]);
    let loaded = server.appended_lsn();
    assert!(loaded > before);
    assert_eq!(server.gate("FCALL f 0"), loaded);
    assert_eq!(server.gate("FUNCTION LIST"), loaded);
    server.run("FUNCTION DELETE lib");
    let deleted = server.appended_lsn();
    assert_eq!(server.gate("FCALL f 0"), deleted, "that there is none depends on it, too");
    assert_eq!(server.gate("PING"), Lsn::ZERO);
}

#[test]
fn loading_ends_when_it_takes_long_or_the_server_ends() {
    let slow = |name: &str, function: &str| {
        format!("{}for i = 1, 600000 do local j = i end", code(name, &[function]))
    };
    let (first, second) = (slow("a", "f"), slow("b", "g"));
    let late = "-ERR Error registering functions: ERR FUNCTION LOAD timeout";
    let mut server = TestServer::new();
    let takes = |server: &TestServer, us: u64| {
        server.host.command_us.store(us, std::sync::atomic::Ordering::Relaxed);
    };
    let load = |server: &mut TestServer, code: &str| {
        server.run_args(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()])
    };
    let restore = |server: &mut TestServer, payload: &[u8]| {
        server.run_args(&[b"FUNCTION", b"RESTORE", payload, b"REPLACE"])
    };
    // Each reading of the clock takes this many microseconds. Loading one of these libraries reads the clock
    // some thousand times, and more often if a reading takes more than 100 us.
    takes(&server, 100_000);
    assert_eq!(load(&mut server, &first), late);
    takes(&server, 10);
    assert_eq!((load(&mut server, &first), load(&mut server, &second)), ("\"a\"".into(), "\"b\"".into()));
    let payload = dump(&mut server);
    takes(&server, 90);
    let single = rdb::dump_libraries([&*first].into_iter().map(str::as_bytes));
    assert_eq!(restore(&mut server, &single), "+OK");
    assert_eq!(restore(&mut server, &payload), late, "all of them have one deadline");
    takes(&server, 0);
    assert_eq!(server.run("FUNCTION KILL"), "-NOTBUSY No scripts in execution right now.");
    assert_eq!(restore(&mut server, &payload), "+OK");
    // From now on, everything that is registered as running is stopped when it begins.
    server.host.scripts.close();
    let ended = "-ERR Error registering functions: ERR the server stops, or changes its role";
    assert_eq!(load(&mut server, &first), ended);
    assert_eq!(restore(&mut server, &payload), ended);
}

#[test]
fn failed_functions_keep_their_changes_unless_scripts_roll_back() {
    let mut server = TestServer::new();
    load(&mut server, "lib", &["f=redis.call('SET', keys[1], 1) redis.call('LPUSH', keys[1], 1)"]);
    let wrong =
        "-WRONGTYPE Operation against a key holding the wrong kind of value script: f, on @user_function:2.";
    server.check(&[("FCALL f 1 a", wrong), ("GET a", "\"1\"")]);
    server.host.scripts.settings.set_rolls_back(true);
    server.check(&[("FCALL f 1 b", wrong), ("GET b", "nil")]);
    load(
        &mut server,
        "wide",
        &["w=for i = 1, 50 do redis.call('SET', 'k' .. i, i) end return redis.call('DBSIZE')"],
    );
    assert_eq!(server.run("FCALL w 0"), ":51");
    server.assert_replays();
}

#[test]
fn a_function_that_does_not_end_is_shown_and_ended() {
    let mut server = TestServer::new();
    load(&mut server, "lib", &["endless=redis.call('SET', keys[1], 1) while true do end"]);
    let TestServer { host: settings, services: host, .. } = TestServer::new();
    host.scripts.settings.set_busy_after(1);
    // Each reading of the clock takes 2 ms.
    settings.command_us.store(2000, std::sync::atomic::Ordering::Relaxed);
    let (keyspace, interests) = (server.executor.keyspace().clone(), server.executor.interests().clone());
    let appender = server.log.appender();
    let (shared, client) = (host.clone(), server.session.client.clone());
    let function = crate::testing::ScriptThread::spawn(&host.clone(), move || {
        let mut other = engine::Executor::new(crate::table(), keyspace, interests, shared.stats.worker(0), 2);
        other.attach(appender);
        other.own_thread();
        execute(&mut other, &mut engine::Session::new(client, true), &shared, "FCALL endless 1 a b")
    });
    let mut session = engine::Session::new(server.session.client.clone(), true);
    let mut run = |line: &str| execute(&mut server.executor, &mut session, &host, line);
    let shown = loop {
        let stats = run("FUNCTION STATS");
        if stats.contains("endless") {
            break stats;
        }
        function.assert_runs();
    };
    assert!(
        shown.contains("*5\r\n$5\r\nFCALL\r\n$7\r\nendless\r\n$1\r\n1\r\n$1\r\na\r\n$1\r\nb\r\n"),
        "{shown}"
    );
    let busy =
        "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.\r\n";
    // Until the function has locked the slot, this is an ordinary GET.
    while run("GET a") != busy {
        function.assert_runs();
    }
    assert_eq!(run("SCRIPT KILL"), busy);
    assert_eq!(run("FUNCTION KILL"), "+OK\r\n");
    let reply = function.join();
    assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL... script: endless"), "{reply}");
    assert_eq!(run("GET a"), "$-1\r\n");
    server.assert_replays();
}

/// Runs a command on any worker; the result is empty if it must be retried after a pause.
fn execute(
    executor: &mut engine::Executor,
    session: &mut engine::Session,
    host: &engine::Host,
    line: &str,
) -> String {
    let args = crate::testing::parse(line);
    executor.begin_round(crate::testing::START_MS, host, 512 << 20);
    let call = engine::Call { args: args.as_args(), resolved: executor.resolve(args.as_args(), None) };
    let mut out = Vec::new();
    let outcome = executor.execute(call, session, host, &mut out);
    executor.end_round(host);
    if outcome == engine::Outcome::Wait {
        assert!(std::mem::take(&mut session.pause_ms) > 0, "the log has room");
    }
    String::from_utf8(out).expect("text")
}

#[test]
fn libraries_have_limits() {
    let mut server = TestServer::new();
    let many: Vec<String> =
        (0..1001).map(|number| code(&format!("l{number}"), &[&format!("f{number}")])).collect();
    let payload = |count: usize| rdb::dump_libraries(many.iter().take(count).map(|code| code.as_bytes()));
    let too_many = "-ERR there would be more than 1000 libraries, 10000 functions or 16 MiB of them";
    assert_eq!(server.run_args(&[b"FUNCTION", b"RESTORE", &payload(1001)]), too_many);
    assert!(names(&server).is_empty());
    assert_eq!(server.run_args(&[b"FUNCTION", b"RESTORE", &payload(1000)]), "+OK");
    assert_eq!(load(&mut server, "more", &["more"]), too_many);
    assert_eq!(server.run("FCALL f999 0"), "\"f999\"");
    server.assert_replays();
}
