use super::*;
use crate::testing::TestVm;

/// The result of loading the code of a library called `lib`.
fn load(vm: &mut TestVm, code: &str) -> std::result::Result<(LibraryId, Vec<Registered>), String> {
    load_until(vm, code, u64::MAX)
}

fn load_until(
    vm: &mut TestVm,
    code: &str,
    deadline_us: u64,
) -> std::result::Result<(LibraryId, Vec<Registered>), String> {
    let code = format!("#!lua name=lib\n{code}");
    let mut calls = std::mem::take(&mut vm.calls);
    vm.vm().meter().reset();
    let loaded = vm.vm().load_library(code.as_bytes(), deadline_us, &mut calls);
    vm.calls = calls;
    loaded.map_err(|problem| String::from_utf8_lossy(&problem.0).into_owned())
}

#[test]
fn functions_are_registered_in_both_forms() {
    let mut vm = TestVm::new();
    let (_, registered) = load(
        &mut vm,
        "redis.register_function('plain', function() end)
         redis.register_function{FUNCTION_NAME='named', callback=function() end, description='does it',
                                 flags={'allow-oom', 'no-writes', 'allow-oom'}}
         redis.register_function(7, function() end)",
    )
    .expect("a library");
    let function = |name: &str, description: Option<&str>, flags: &[&'static str]| Registered {
        name: name.into(),
        description: description.map(Into::into),
        flags: flags.into(),
    };
    assert_eq!(
        registered,
        [
            function("plain", None, &[]),
            function("named", Some("does it"), &["allow-oom", "no-writes"]),
            function("7", None, &[]),
        ]
    );
}

#[test]
fn invalid_libraries_are_refused_with_a_reason() {
    let mut vm = TestVm::new();
    let names = "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                 character long";
    // Each spelling is a different key of the table, but the same argument.
    let case_variants: Vec<String> = (0..17)
        .map(|bits| {
            let of_case = |(index, letter): (usize, char)| {
                if bits >> index & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
            };
            let key: String = "description".chars().enumerate().map(of_case).collect();
            format!("{key}='x'")
        })
        .collect();
    for (code, expected) in [
        ("redis.register_function()", "wrong number of arguments to redis.register_function"),
        ("redis.register_function(1, 2, 3)", "wrong number of arguments to redis.register_function"),
        (
            "redis.register_function('f')",
            "calling redis.register_function with a single argument is only applicable to Lua table (representing \
             named arguments).",
        ),
        (
            "redis.register_function({}, function() end)",
            "first argument to redis.register_function must be a string",
        ),
        ("redis.register_function('f', 1)", "second argument to redis.register_function must be a function"),
        ("redis.register_function('a-b', function() end)", names),
        ("redis.register_function('', function() end)", names),
        (
            "redis.register_function('f', function() end) redis.register_function('F', function() end)",
            "Function already exists in the library",
        ),
        (
            "redis.register_function{function_name='f'}",
            "redis.register_function must get a callback argument",
        ),
        (
            "redis.register_function{callback=function() end}",
            "redis.register_function must get a function name argument",
        ),
        ("redis.register_function{x=1}", "unknown argument given to redis.register_function"),
        (
            "redis.register_function{[{}]=1}",
            "named argument key given to redis.register_function is not a string",
        ),
        (
            "redis.register_function{callback=1}",
            "callback argument given to redis.register_function must be a function",
        ),
        (
            "redis.register_function{description={}}",
            "description argument given to redis.register_function must be a string",
        ),
        (
            "redis.register_function{flags=1}",
            "flags argument to redis.register_function must be a table representing function flags",
        ),
        ("redis.register_function{flags={'nope'}}", "unknown flag given"),
        ("redis.register_function{flags={1}}", "unknown flag given"),
        (
            &format!("redis.register_function{{flags={{{}}}}}", "'no-writes', ".repeat(17)),
            "too many flags given",
        ),
        (
            &format!("redis.register_function{{{}}}", case_variants.join(", ")),
            "too many arguments given to redis.register_function",
        ),
        ("while true do end", "FUNCTION LOAD timeout"),
        ("while true do local s = ('x'):rep(20000) end", "FUNCTION LOAD timeout"),
        ("local s = ('x'):rep(10000000)", "not enough memory"),
        ("x = 1", "user_function:2: Attempt to modify a readonly table"),
        ("redis.x = 1", "user_function:2: Attempt to modify a readonly table"),
        ("local a = {} a.b.c = 1", "user_function:2: attempt to index field 'b' (a nil value)"),
    ] {
        let expected = format!("ERR Error registering functions: ERR {expected}");
        assert_eq!(load(&mut vm, code).expect_err("no library"), expected, "{code}");
    }
    assert_eq!(load(&mut vm, "return 1").expect_err("no library"), "ERR No functions registered");
    assert_eq!(
        load(&mut vm, "syntax error").expect_err("no library"),
        "ERR Error compiling function: user_function:2: '=' expected near 'error'"
    );
}

#[test]
fn a_library_can_only_register_functions_while_it_loads() {
    let mut vm = TestVm::new();
    for (code, name) in [
        ("redis.call('ping')", "call"),
        ("redis.setresp(3)", "setresp"),
        ("local x = redis.sha1hex", "sha1hex"),
        ("local x = redis.REPL_ALL", "REPL_ALL"),
        ("math.random()", "math"),
        ("pcall(function() end)", "pcall"),
        ("local x = KEYS", "KEYS"),
        ("local x = _G", "_G"),
    ] {
        let expected = format!(
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable '{name}'"
        );
        assert_eq!(load(&mut vm, code).expect_err("no library"), expected, "{code}");
    }
    load(
        &mut vm,
        "redis.log(redis.LOG_WARNING, redis.REDIS_VERSION, redis.REDIS_VERSION_NUM)
         redis.register_function('f', function() end)",
    )
    .expect("a library");
    assert_eq!(vm.calls.logged, [(crate::LogLevel::Warning, "7.2.4 459268".to_string())]);
}

#[test]
fn functions_that_are_too_many_or_too_long_are_refused() {
    let mut vm = TestVm::new();
    let expected = "ERR Error registering functions: ERR the library has too many functions, or describes them at \
                    too great a length";
    for code in [
        "for i = 1, 1001 do redis.register_function('f' .. i, function() end) end",
        "redis.register_function{function_name='f', callback=function() end, description=('x'):rep(2000000)}",
    ] {
        assert_eq!(load(&mut vm, code).expect_err("no library"), expected);
    }
    load(&mut vm, "for i = 1, 1000 do redis.register_function('f' .. i, function() end) end")
        .expect("a library");
}

#[test]
fn functions_run_with_all_that_scripts_have_but_keys_and_argv() {
    let mut vm = TestVm::new();
    let (id, _) = load(
        &mut vm,
        "local count = 0
         local function add(name, run) redis.register_function(name, run) end
         add('words', function(keys, args) return {keys, args} end)
         add('set', function(keys, args) return redis.call('set', keys[1], args[1]) end)
         add('fails', function() error('boom') end)
         add('raises', function() error({err='MY bad'}) end)
         add('replies', function() return redis.error_reply('MY bad') end)
         add('old', function() return KEYS[1] end)
         add('compiled', function() return loadstring('return KEYS')() end)
         add('global', function() x = 1 end)
         add('all', function() return _G.redis == redis and rawget(_G, 'string') == string end)
         add('changes', function() _G.redis = nil end)
         add('registers', function() redis.register_function('x', function() end) end)
         local kept = redis
         add('keeps', function() kept.register_function('x', function() end) end)
         add('counts', function() count = count + 1 return count end)
         add('protocol', function() redis.setresp(3) return redis.call('raw', '#t\\r\\n') end)
         add('again', function() return redis.call('again') end)
         add('endless', function() while true do end end)",
    )
    .expect("a library");
    // Globals set for scripts, such as KEYS, are not visible to functions.
    assert_eq!(vm.eval("return KEYS[1]", &["k"], &[]), "\"k\"");
    vm.limits.instructions_max = 1_000_000;
    for (name, expected) in [
        ("words", "[[\"k1\", \"k2\"], [\"a1\"]]"),
        ("set", "+OK"),
        ("fails", "-ERR user_function:6: boom script: fails, on @user_function:6."),
        ("raises", "-MY bad script: raises, on @user_function:7."),
        ("replies", "-MY bad"),
        (
            "old",
            "-ERR user_function:9: Script attempted to access nonexistent global variable 'KEYS' script: old, on \
             @user_function:9.",
        ),
        (
            "global",
            "-ERR user_function:11: Attempt to modify a readonly table script: global, on @user_function:11.",
        ),
        ("all", ":1"),
        (
            "changes",
            "-ERR user_function:13: Attempt to modify a readonly table script: changes, on @user_function:13.",
        ),
        (
            "registers",
            "-ERR user_function:14: attempt to call field 'register_function' (a nil value) script: registers, on \
             @user_function:14.",
        ),
        (
            "keeps",
            "-ERR redis.register_function can only be called on FUNCTION LOAD command script: keeps, on \
             @user_function:16.",
        ),
        ("counts", ":1"),
        ("counts", ":2"),
        ("protocol", ":1"),
        ("again", "stopped: Retry"),
        ("endless", "stopped: TooLong"),
        ("nosuch", "-ERR the library does not register it script: nosuch"),
    ] {
        assert_eq!(vm.call(id, name, &["k1", "k2"], &["a1"]), expected, "{name}");
    }
    let compiled = vm.call(id, "compiled", &["k1"], &[]);
    assert!(compiled.contains("nonexistent global variable 'KEYS'"), "{compiled}");
    assert_eq!(vm.eval("return loadstring('return KEYS[1]')()", &["k"], &[]), "\"k\"");
    assert_eq!(vm.calls.strings.get(&b"k1"[..]), Some(&b"a1".to_vec()));
}

#[test]
fn libraries_go_when_they_are_dropped_or_memory_is_short() {
    let mut vm = TestVm::new();
    let known = "return #('x'):rep(12000000)";
    assert_eq!(vm.eval(known, &[], &[]), ":12000000");
    let code = "redis.register_function('f', function() return 1 end)";
    let (first, _) = load(&mut vm, code).expect("a library");
    let (second, _) = load(&mut vm, code).expect("a library");
    assert_ne!(first, second);
    vm.vm().drop_library(first);
    assert!(!vm.vm().has_library(first) && vm.vm().has_library(second));
    assert_eq!(vm.call(second, "f", &[], &[]), ":1");
    let hoards = "local kept = {} redis.register_function('f', function(keys)
                      kept[#kept + 1] = ('x'):rep(3000000) .. #kept return #kept end)";
    let (third, _) = load(&mut vm, hoards).expect("a library");
    for count in 1..=3 {
        assert_eq!(vm.call(third, "f", &[], &[]), format!(":{count}"));
    }
    assert!(vm.vm().has_library(second) && vm.vm().has_library(third));
    // This time, running a script that is already compiled takes the memory, not loading a library.
    assert_eq!(vm.eval(known, &[], &[]), ":12000000");
    assert!(!vm.vm().has_library(second) && !vm.vm().has_library(third));
    assert!(vm.vm().memory_bytes() < 8 << 20);
}

#[test]
fn a_library_that_is_late_or_ended_is_not_loaded() {
    let mut vm = TestVm::new();
    let code = "for i = 1, 1000 do end redis.register_function('f', function() return redis.sha1hex('') end)";
    let now_us = vm.calls.clock_us();
    let late = "ERR Error registering functions: ERR FUNCTION LOAD timeout";
    assert_eq!(load_until(&mut vm, code, now_us).expect_err("late"), late);
    let (id, _) = load_until(&mut vm, code, now_us + 1).expect("in time");
    // The stopped library has left nothing behind.
    assert!(vm.call(id, "f", &[], &[]).starts_with("\"da39a3ee"));
    vm.vm().meter().stop(Stop::Killed);
    let mut calls = crate::testing::TestCalls::default();
    let ended = vm.vm().load_library(format!("#!lua name=lib\n{code}").as_bytes(), u64::MAX, &mut calls);
    let text = ended.expect_err("ended").0;
    assert_eq!(text, b"ERR Error registering functions: ERR killed by user with FUNCTION KILL");
}
