use super::*;
use crate::testing::{TestClock, TestVm};

/// Checks scripts against their replies, on one machine.
fn check(table: &[(&str, &str)]) {
    let mut vm = TestVm::new();
    for (script, expected) in table {
        assert_eq!(vm.eval(script, &["k1", "k2"], &["a1"]), *expected, "{script}");
    }
}

/// Checks scripts against parts of their replies.
fn check_parts(table: &[(&str, &str)]) {
    let mut vm = TestVm::new();
    for (script, expected) in table {
        let shown = vm.eval(script, &["k1", "k2"], &["a1"]);
        assert!(shown.contains(expected), "{script}: {shown}");
    }
}

#[test]
fn values_become_replies() {
    check(&[
        ("return 1", ":1"),
        ("return 3.99", ":3"),
        ("return -3.99", ":-3"),
        ("return 1e20", ":-9223372036854775808"),
        ("return 'x'", "\"x\""),
        ("return true", ":1"),
        ("return false", "nil"),
        ("return nil", "nil"),
        ("return", "nil"),
        ("return {1, 2, nil, 3}", "[:1, :2]"),
        ("return {1, {2, {'x'}}}", "[:1, [:2, [\"x\"]]]"),
        ("return {ok = 'fine'}", "+fine"),
        ("return {err = 'FOO bar'}", "-FOO bar"),
        ("return {ok = 'a\\255\\0b'}", "+a\\xff"),
        ("return {err = 'MY a\\0b'}", "-MY a"),
        ("return {err = 'MY a \\r\\n'}", "-MY a "),
        ("return {big_number = 'a\\255\\0b'}", "\"a\\xff\\x00b\""),
        ("return {err = 'bar\\r\\n'}", "-bar"),
        ("return {double = 3.5}", "\"3.5\""),
        ("return {map = {a = 1}}", "[\"a\", :1]"),
        ("return {set = {a = true}}", "[\"a\"]"),
        ("return {big_number = '12345678901234567890'}", "\"12345678901234567890\""),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "\"x\""),
    ]);
    let mut vm = TestVm::new();
    vm.protocol = wire::Protocol::Resp3;
    for (script, expected) in [
        ("return {map = {a = 1}}", "{\"a\": :1}"),
        ("return {set = {a = true}}", "~[\"a\"]"),
        ("return {double = 3.5}", ",3.5"),
        ("return true", ":1"),
        ("redis.setresp(3) return true", "#true"),
        ("redis.setresp(3) return false", "#false"),
        ("return {big_number = '123'}", "(123"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "txt\"x\""),
    ] {
        assert_eq!(vm.eval(script, &[], &[]), expected, "{script}");
    }
}

#[test]
fn tables_within_tables_are_walked_once() {
    let mut vm = TestVm::new();
    vm.limits.instructions_max = 100_000;
    let nested = format!("{}{}", "[".repeat(31), "]".repeat(31));
    for last in ["x = 1", "nil, nil, t"] {
        let script = format!("local t = {{}} for i = 1, 30 do t = {{t, {last}}} end return t");
        assert_eq!(vm.eval(&script, &[], &[]), nested, "{script}");
    }
    // More elements than SHORT_LIST_MAX, without and with other fields.
    let numbers = (1..=100).map(|number| format!(":{number}")).collect::<Vec<_>>().join(", ");
    let script = "local t = {} for i = 1, 100 do t[i] = i end ";
    assert_eq!(vm.eval(&format!("{script} return t"), &[], &[]), format!("[{numbers}]"));
    assert_eq!(vm.eval(&format!("{script} t.x = 1 return t"), &[], &[]), format!("[{numbers}]"));
    assert_eq!(vm.eval(&format!("{script} t.ok = 'fine' return t"), &[], &[]), "+fine");
}

#[test]
fn replies_become_values() {
    check(&[
        ("return type(redis.call('set', KEYS[1], ARGV[1]).ok)", "\"string\""),
        ("return redis.call('get', KEYS[1])", "\"a1\""),
        ("return tostring(redis.call('get', 'none'))", "\"false\""),
        ("redis.setresp(3) return tostring(redis.call('get', 'none'))", "\"nil\""),
        ("return redis.call('raw', '*2\\r\\n:1\\r\\n$-1\\r\\n')[2] == false", ":1"),
        ("return redis.call('raw', '%1\\r\\n+a\\r\\n:1\\r\\n').map ~= nil", ":1"),
        ("return redis.call('raw', '~1\\r\\n$1\\r\\na\\r\\n').set.a", ":1"),
        ("return tostring(redis.call('raw', ',1.5\\r\\n').double)", "\"1.5\""),
        ("return redis.call('raw', '#t\\r\\n')", ":1"),
        ("return redis.call('raw', '(123\\r\\n').big_number", "\"123\""),
        ("return redis.call('raw', '=5\\r\\ntxt:x\\r\\n').verbatim_string.string", "\"x\""),
        ("return redis.pcall('raw', '-WRONGTYPE x\\r\\n').err", "\"WRONGTYPE x\""),
        ("redis.call('set', 'n', 0.1) return redis.call('get', 'n')", "\"0.1\""),
        ("redis.call('set', 'n', 10) return redis.call('get', 'n')", "\"10\""),
        ("redis.call('set', 'n', 1e17) return redis.call('get', 'n')", "\"100000000000000000\""),
    ]);
}

#[test]
fn errors_say_where_they_were_raised() {
    let mut vm = TestVm::new();
    let mut told = |script: &str| {
        let shown = vm.eval(script, &[], &[]);
        let name = format!(" script: {}, on @user_script:", Sha::of(script.as_bytes()));
        shown.replace(&name, " @")
    };
    for (script, expected) in [
        (
            "cjson.decode(nil)",
            "-ERR user_script:1: bad argument #1 to 'decode' (string expected, got nil) @1.",
        ),
        (
            "cmsgpack.unpack()",
            "-ERR user_script:1: bad argument #1 to 'unpack' (string expected, got no value) @1.",
        ),
        (
            "\ncoroutine.create(rawequal)",
            "-ERR user_script:2: bad argument #1 to 'create' (Lua function expected) @2.",
        ),
        ("coroutine.wrap()", "-ERR user_script:1: bad argument #1 to 'wrap' (Lua function expected) @1."),
        (
            "table.foreach(5, type)",
            "-ERR user_script:1: bad argument #1 to 'foreach' (table expected, got number) @1.",
        ),
        (
            "table.foreachi({}, 5)",
            "-ERR user_script:1: bad argument #2 to 'foreachi' (function expected, got number) @1.",
        ),
        ("error('x')", "-ERR user_script:1: x @1."),
        ("\nerror('x', 0)", "-ERR x @2."),
        ("error({err = 'FOO bar'})", "-FOO bar @1."),
        ("error()", "-ERR nil @1."),
        ("error({1})", "-ERR unknown error @1."),
        (
            "return foo",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'foo' @1.",
        ),
        ("\n\nfoo = 1", "-ERR user_script:3: Attempt to modify a readonly table @3."),
        ("local x = nil + 1", "-ERR user_script:1: attempt to perform arithmetic on a nil value @1."),
        ("return redis.call('nosuch')", "-ERR Unknown Redis command called from script @1."),
        ("return redis.call()", "-ERR Please specify at least one argument for this redis lib call @1."),
        (
            "return redis.call('set', 'a', {})",
            "-ERR Lua redis lib command arguments must be strings or integers @1.",
        ),
        ("return redis.call('raw', '-WRONGTYPE x\\r\\n')", "-WRONGTYPE x @1."),
        ("return redis.sha1hex()", "-ERR wrong number of arguments @1."),
        ("return redis.log('x')", "-ERR redis.log() requires two arguments or more. @1."),
        ("return redis.log('x', 'y')", "-ERR First argument must be a number (log level). @1."),
        ("return redis.log(9, 'y')", "-ERR Invalid log level. @1."),
        ("return redis.setresp(1)", "-ERR RESP version must be 2 or 3. @1."),
        ("return redis.setresp()", "-ERR redis.setresp() requires one argument. @1."),
        (
            "return redis.set_repl(99)",
            "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE. @1.",
        ),
        (
            "return cjson.decode('x')",
            "-ERR user_script:1: Expected value but found invalid token at character 1 @1.",
        ),
    ] {
        assert_eq!(told(script), expected, "{script}");
    }
    let compiling = "-ERR Error compiling script (new function): user_script:1: '=' expected near 'x'";
    assert_eq!(told("x x"), compiling);
    assert_eq!(
        told("return {err = redis.pcall('nosuch').err}"),
        "-ERR Unknown Redis command called from script"
    );
}

#[test]
fn scripts_catch_errors() {
    check(&[
        ("return ({pcall(redis.call, 'nosuch')})[2]", "\"ERR Unknown Redis command called from script\""),
        ("local _, e = pcall(cjson.decode, 'x') return type(e)", "\"string\""),
        (
            "local _, e = xpcall(function() cjson.decode('x') end, function(e) return type(e) end) return e",
            "\"string\"",
        ),
        (
            "local co = coroutine.create(function() cjson.decode('x') end) return type(({coroutine.resume(co)})[2])",
            "\"string\"",
        ),
        (
            "local co = coroutine.wrap(function() coroutine.yield(redis.call('raw', ':7\\r\\n')) end) return co()",
            ":7",
        ),
    ]);
}

#[test]
fn the_table_of_the_server_is_complete() {
    check(&[
        ("return redis.sha1hex('')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""),
        ("return redis.error_reply('x')", "-ERR x"),
        ("return redis.error_reply('-MY error')", "-MY error"),
        ("return redis.error_reply()", "-ERR wrong number or type of arguments"),
        ("return redis.status_reply('PONG')", "+PONG"),
        ("return redis.status_reply(1)", "-ERR wrong number or type of arguments"),
        ("return redis.replicate_commands()", ":1"),
        ("return redis.breakpoint()", "nil"),
        ("return redis.acl_check_cmd('get')", ":1"),
        ("return {redis.LOG_DEBUG, redis.LOG_WARNING, redis.REPL_ALL, redis.REPL_NONE}", "[:0, :3, :3, :0]"),
        ("return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}", "[\"k1\", \"k2\", \"a1\", :2, :1]"),
        ("return os.clock() > 1", ":1"),
        ("return {bit.band(7, 3), bit.bor(1, 4), bit.tohex(255, 4)}", "[:3, :5, \"00ff\"]"),
        ("return loadstring('return KEYS[1]')()", "\"k1\""),
        ("return tostring(cjson.null)", "\"userdata: (nil)\""),
    ]);
    let mut vm = TestVm::new();
    assert_eq!(vm.eval("redis.log(redis.LOG_WARNING, 'a', 1) return 1", &[], &[]), ":1");
    assert_eq!(vm.calls.logged, [(crate::LogLevel::Warning, "a 1".to_string())]);
}

#[test]
fn globals_do_not_outlive_a_script() {
    let mut vm = TestVm::new();
    for script in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "redis.call = nil",
        "string.rep = nil",
        "rawset(string, 'rep', nil)",
        "getmetatable('').__index = nil",
        "getmetatable('').__index.x = 1",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "table.insert(_G, 1)",
        "table.insert(redis, 1)",
        "getmetatable(_G).__index = nil",
        "cjson.encode = 1",
        "math.pi = 3",
        "coroutine.resume = nil",
        "loadstring('x = 1')()",
        "setmetatable({}, {__index = _G, __newindex = _G}).x = 1",
        "return load(function() return nil end, nil, nil, {}) == dofile",
    ] {
        let shown = vm.eval(script, &[], &[]);
        assert!(shown.starts_with("-ERR"), "{script}: {shown}");
    }
    for script in ["getmetatable(_G).__index = {}", "x = 1", "setmetatable(_G, {})", "redis.call = 1"] {
        let shown = vm.eval(script, &[], &[]);
        assert!(shown.contains("Attempt to modify a readonly table"), "{script}: {shown}");
    }
    // `pairs` of a library returns a copy.
    vm.eval("local _, t = pairs(string) t.rep = nil t.evil = 1", &[], &[]);
    vm.eval(
        "for k, v in pairs(_G) do if type(v) == 'table' then pcall(function() v.evil = 1 end) end end",
        &[],
        &[],
    );
    vm.eval("math.randomseed(5)", &[], &[]);
    vm.eval("KEYS[1] = 'changed'", &["k"], &[]);
    let probe = "return {tostring(rawget(_G, 'x')), ('x'):rep(2), type(redis.call), tostring(string.evil), \
                 tostring(redis.evil), KEYS[1], #_G}";
    assert_eq!(vm.eval(probe, &["k"], &[]), r#"["nil", "xx", "function", "nil", "nil", "k", :0]"#);
    let random = "return tostring(math.random())";
    assert_eq!(vm.eval(random, &[], &[]), vm.eval(random, &[], &[]));
}

#[test]
fn scripts_cannot_leave_the_machine() {
    check_parts(&[
        ("return dofile('/etc/passwd')", "nonexistent global variable 'dofile'"),
        ("return loadfile('/etc/passwd')", "nonexistent global variable 'loadfile'"),
        ("return require('os')", "nonexistent global variable 'require'"),
        ("return io.open('/etc/passwd')", "nonexistent global variable 'io'"),
        ("return os.execute('true')", "attempt to call field 'execute' (a nil value)"),
        ("return debug.getregistry()", "nonexistent global variable 'debug'"),
        ("return getfenv(0)", "nonexistent global variable 'getfenv'"),
        ("return setfenv(1, {})", "nonexistent global variable 'setfenv'"),
        ("return newproxy(true)", "nonexistent global variable 'newproxy'"),
        ("return package.loaded", "nonexistent global variable 'package'"),
        ("local f, e = loadstring(string.dump(function() end)) return e", "binary"),
        ("return loadstring('\\27Lua')", "nil"),
    ]);
    let mut vm = TestVm::new();
    let bytecode = [b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00".as_slice(), &[0; 64]].concat();
    assert!(vm.vm().load(Sha::of(&bytecode), &bytecode).is_err());
}

#[test]
fn scripts_beyond_the_limits_of_memory_or_stack_fail() {
    check_parts(&[
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("return ('x'):rep(1e9)", "not enough memory"),
        ("return ('x'):rep(1e18)", "not enough memory"),
        (
            "local s, t = ('x'):rep(1e6), {} for i = 1, 5000 do t[i] = s end return redis.call('set', unpack(t))",
            "ERR the command is larger than 512 MiB",
        ),
        ("return (''):rep(1e18)", "\"\""),
        ("local t = {} for i = 1, 1e9 do t[i] = i end", "not enough memory"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("return unpack({}, 1, 1e7)", "too many results to unpack"),
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("return loadstring('return ' .. ('('):rep(1000) .. '1' .. (')'):rep(1000))", "nil"),
        ("local function f(s) return (s:gsub('.', f)) end return f('x')", "stack overflow"),
        ("local s = ('x'):rep(1e6) return (s:gsub('x', s))", "not enough memory"),
    ]);
    // The machine still works.
    let mut vm = TestVm::new();
    vm.limits.instructions_max = 100_000;
    assert_eq!(
        vm.eval("local t = {} for i = 1, 60 do t = {t, t} end return t", &[], &[]),
        "stopped: TooLong",
        "while the reply is written"
    );
    vm.limits.instructions_max = 0;
    for _ in 0..3 {
        assert!(
            vm.eval("local t = {} for i = 1, 1e9 do t[i] = i end", &[], &[]).contains("not enough memory")
        );
        assert_eq!(vm.eval("return #('x'):rep(1000000)", &[], &[]), ":1000000");
    }
}

#[test]
fn endless_scripts_end() {
    let mut vm = TestVm::new();
    vm.limits.instructions_max = 1_000_000;
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do local co = coroutine.create(function() while true do end end) coroutine.resume(co) end",
        "local co = coroutine.wrap(function() while true do end end) co()",
        "local function f() return f() end return f()",
        "table.sort({3, 2, 1}, function() while true do end end)",
        "return (('x'):gsub('x', function() while true do end end))",
        "setmetatable({}, {__index = function() while true do end end}).x = nil return setmetatable({}, {__index = \
         function() while true do end end}).x",
        "load(function() return ' ' end)()",
        "while true do pcall(table.sort, {}, 5) pcall(table.sort) end",
    ] {
        assert_eq!(vm.eval(script, &[], &[]), "stopped: TooLong", "{script}");
    }
    assert_eq!(vm.eval("return 1", &[], &[]), ":1");
}

#[test]
fn functions_that_take_long_ask_whether_to_go_on() {
    let mut vm = TestVm::new();
    vm.limits = Limits { memory_bytes_max: 64 << 20, instructions_max: 400_000 };
    let shared = "local t = {1} for i = 1, 40 do t = {t, t} end ";
    let often = |call: &str| format!("local x = ('x'):rep(10000000) for i = 1, 10 do {call} end");
    for script in [
        // Every pair is in the wrong order: Lua's own sort would make 10^10 comparisons.
        "local t, n = {}, 100000 for i = 1, n, 2 do t[i] = i t[i + 1] = n - i end pcall(table.sort, t)",
        &format!("{shared} pcall(cjson.encode, t)"),
        "pcall(cjson.decode, '[' .. ('1,'):rep(1000000) .. '1]')",
        "local t = {} for i = 1, 50000 do t[i] = {} end for i = 1, 20 do pcall(cmsgpack.pack, t) end",
        "pcall(cmsgpack.unpack, '\\221\\0\\15\\66\\64' .. ('\\1'):rep(1000000))",
        "return (('x'):rep(10000):find('.-.-.-.-y'))",
        "return (('x'):rep(1000000):gsub('.', ''))",
        // Each empty match is replaced by 100,000 copies of itself, which are empty, too.
        "return (('x'):rep(100):gsub('', ('%0'):rep(100000)))",
        "pcall(struct.size, (' '):rep(1000000))",
        "pcall(struct.size, 'i' .. ('0'):rep(1000000) .. '1')",
        "pcall(struct.pack, ('<'):rep(1000000))",
        "pcall(struct.unpack, ('x'):rep(1000000), ('x'):rep(1000000))",
        // Each of these reads or writes 10 million bytes.
        &often("redis.sha1hex(x)"),
        &often("redis.error_reply(x)"),
        &often("redis.pcall('nosuch', x)"),
        &often("x:find('y', 1, true)"),
        &often("cjson.encode(x)"),
        &often("pcall(cjson.decode, x)"),
        &often("cmsgpack.pack(x)"),
        &often("struct.pack('c0', x)"),
        &often("struct.unpack('c10000000', x)"),
        // Lua's own functions that call other functions.
        "local t = {} for i = 1, 20000 do t[i] = i end table.sort(t, rawequal)",
        "local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 10 do table.foreach(t, redis.debug) end",
        "local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 10 do table.foreachi(t, redis.debug) end",
        // None of these coroutines executes many instructions itself.
        "local function f(n) for i = 1, n do coroutine.wrap(f)(n - 1) end end f(40)",
        "local function f(n) for i = 1, n do coroutine.resume(coroutine.create(f), n - 1) end end f(40)",
    ] {
        assert_eq!(vm.eval(script, &[], &[]), "stopped: TooLong", "{script}");
    }
    // These are bounded by the size of their results.
    for script in [
        "return #table.concat(t, ('x'):rep(1000))",
        "return #(('x'):rep(1e9))",
        "return #(('x'):rep(1e7):gsub('x', ('y'):rep(100)))",
    ] {
        vm.limits.instructions_max = 0;
        let script = format!("local t = {{}} for i = 1, 100000 do t[i] = i end {script}");
        assert!(vm.eval(&script, &[], &[]).contains("not enough memory"), "{script}");
    }
}

#[test]
fn tables_are_sorted_as_lua_sorts_them() {
    let mut vm = TestVm::new();
    for len in [0, 5, SORTED_ALONE_MAX, SORTED_ALONE_MAX + 1, 1000] {
        let sorted = format!(
            "local t = {{}} for i = 1, {len} do t[i] = i * 7919 % 1009 end table.sort(t) \
             for i = 2, #t do if t[i - 1] > t[i] then return i end end \
             table.sort(t, function(a, b) return a > b end) \
             for i = 2, #t do if t[i - 1] < t[i] then return i end end return #t"
        );
        assert_eq!(vm.eval(&sorted, &[], &[]), format!(":{len}"), "{len}");
        let mixed = format!(
            "local t = {{}} for i = 1, {len} do t[i] = i end t[{len} + 1] = 'x' t[{len} + 2] = 'y' \
                             return ({{pcall(table.sort, t)}})[2]"
        );
        if len > 0 {
            assert!(vm.eval(&mixed, &[], &[]).starts_with("\"attempt to compare "), "{len}");
        }
    }
    check(&[
        (
            "local meta = {__lt = function(a, b) return a.n < b.n end} local t = {} for i = 1, 100 do t[i] = \
             setmetatable({n = i * 31 % 100}, meta) end table.sort(t) return t[1].n + t[100].n",
            ":99",
        ),
        (
            "return ({pcall(table.sort)})[2]",
            "\"bad argument #1 to \\'sort\\' (table expected, got no value)\"",
        ),
        (
            "return ({pcall(table.sort, {}, 1)})[2]",
            "\"bad argument #2 to \\'sort\\' (function expected, got number)\"",
        ),
    ]);
}

/// The longest table that the prelude sorts with Lua's own sort; the same constant as in the prelude.
const SORTED_ALONE_MAX: usize = 64;

/// Each look of the script at the clock stands for a call that takes a millisecond.
#[test]
fn a_slow_script_asks_after_fewer_instructions() {
    for script in [
        "while true do os.clock() end",
        "while true do for i = 1, 10 do os.clock() end end",
        "coroutine.wrap(function() end)() while true do os.clock() end",
    ] {
        let mut vm = TestVm::new();
        vm.limits.instructions_max = 0;
        vm.calls.clock =
            TestClock { us_per_look: 1000, looks: 0.into(), kills_at: Some((2000, vm.vm().meter().clone())) };
        assert_eq!(vm.eval(script, &[], &[]), "stopped: Killed");
        let looks = vm.calls.clock.looks.get();
        assert!(looks <= 2000 + 4, "{script}: it looked {looks} times");
    }
}

#[test]
fn coroutines_ask_after_fewer_instructions() {
    let mut vm = TestVm::new();
    vm.limits.instructions_max = 0;
    vm.calls.clock.kills_at = Some((2000, vm.vm().meter().clone()));
    let script = "coroutine.wrap(function() while true do os.clock() end end)()";
    assert_eq!(vm.eval(script, &[], &[]), "stopped: Killed");
    let looks = vm.calls.clock.looks.get();
    assert!(looks <= 2000 + 256, "it looked {looks} times");
}

#[test]
fn another_thread_stops_a_script() {
    let mut vm = TestVm::new();
    vm.limits.instructions_max = 0;
    let meter = vm.vm().meter().clone();
    let (done, stopped) = std::sync::mpsc::channel();
    let killer = std::thread::spawn(move || {
        // A stop before the script runs is cleared by the reset at its start, so this is repeated until the
        // script has ended. If the test fails, it drops the channel, which ends the loop, too.
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            meter.stop(Stop::Killed);
            std::thread::yield_now();
        }
    });
    assert_eq!(
        vm.eval("while true do pcall(function() while true do end end) end", &[], &[]),
        "stopped: Killed"
    );
    done.send(()).expect("the thread listens");
    killer.join().expect("it ends");
    assert_eq!(vm.eval("pcall(redis.call, 'again') return 1", &[], &[]), "stopped: Retry");
}

#[test]
fn compiled_scripts_are_forgotten_before_they_are_too_many() {
    let mut vm = TestVm::new();
    for number in 0..PROGRAMS_MAX + 10 {
        assert_eq!(vm.eval(&format!("return {number}"), &[], &[]), format!(":{number}"));
    }
    assert!(vm.vm().programs.len() <= PROGRAMS_MAX);
}
