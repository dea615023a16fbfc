use proptest::prelude::*;

use crate::testing::TestVm;

/// Returns the result of a script with the functions of this crate, and its result with the functions of Lua.
fn both(subject: &str, pattern: &str) -> (String, String) {
    let lua = mlua::Lua::new();
    let mut vm = TestVm::new();
    let script = "local show = function(...) local t = {...} for i = 1, select('#', ...) do t[i] = tostring(t[i]) end \
                  return table.concat(t, ',') end \
                  local s, p = ARGV[1], ARGV[2] local out = {} \
                  local function try(f) out[#out + 1] = show(pcall(f)) end \
                  try(function() return string.find(s, p) end) \
                  try(function() return string.find(s, p, 3) end) \
                  try(function() return string.match(s, p, -4) end) \
                  try(function() return string.gsub(s, p, '<%0>') end) \
                  try(function() return string.gsub(s, p, '%1', 2) end) \
                  try(function() return (string.gsub(s, p, function(...) return show(...) end)) end) \
                  try(function() local all = {} for a, b in string.gmatch(s, p) do all[#all + 1] = show(a, b) end \
                      return table.concat(all, ';') end) \
                  return (table.concat(out, '|'):gsub('[^|]*:%d+: ', ''))";
    let args = [subject, pattern];
    lua.globals().set("ARGV", args.to_vec()).expect("a table");
    let theirs: String = lua.load(script).eval().expect("the script runs");
    let ours = vm.eval(script, &[], &args);
    (ours, format!("\"{}\"", theirs.escape_default()))
}

#[test]
fn patterns_match_as_in_lua() {
    let table = [
        ("hello world", "o w"),
        ("hello world", "(o)(.)"),
        ("key = value", "(%w+)%s*=%s*(%w+)"),
        ("THE (quick) fox", "%((%a+)%)"),
        ("f(a(b)c)d", "%b()"),
        ("THE (quick) fox", "%f[%a]%a+"),
        ("aaa", "a-"),
        ("aaab", "^a*b$"),
        ("abcabc", "(abc)%1"),
        ("x", "()x()"),
        ("a.b-c", "[%.%-]"),
        ("a]b", "[]]"),
        ("a^b", "[^^]"),
        ("", ".*"),
        ("abc", ""),
        ("  trim  ", "^%s*(.-)%s*$"),
        ("x", "%"),
        ("x", "[a"),
        ("x", "(x"),
        ("x", "x)"),
        ("x", "%1"),
        ("x", "%b"),
        ("x", "%f"),
        ("1,2,,3", "([^,]*)"),
    ];
    for (subject, pattern) in table {
        let (ours, theirs) = both(subject, pattern);
        assert_eq!(ours, theirs, "{pattern:?} in {subject:?}");
    }
}

proptest! {
    #[test]
    fn any_pattern_matches_as_in_lua(subject in "[ab1 ]{0,12}", pattern in "(\\^)?([ab.]|%a|%d|\\[a-b\\]|\\[\\^a\\]|\\(a|a\\)|\\(\\)|%1|%bab){1,4}[*+?-]?\\$?") {
        let (ours, theirs) = both(&subject, &pattern);
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn hostile_patterns_end() {
    let mut vm = TestVm::new();
    let deep = vm.eval("return pcall(string.find, ('a'):rep(100000), ('a?'):rep(100000))", &[], &[]);
    assert_eq!(deep, "nil", "pcall returns false first");
    let text =
        vm.eval("local _, e = pcall(string.find, ('a'):rep(100000), ('a?'):rep(100000)) return e", &[], &[]);
    assert!(text.contains("pattern too complex"), "{text}");
    vm.limits.instructions_max = 500_000;
    let slow = vm.eval("return ('a'):rep(3000):find(('.-'):rep(8) .. 'b')", &[], &[]);
    assert_eq!(slow, "stopped: TooLong");
    let caught =
        vm.eval("while true do pcall(string.find, ('a'):rep(3000), ('.-'):rep(8) .. 'b') end", &[], &[]);
    assert_eq!(caught, "stopped: TooLong");
}

#[test]
fn what_gsub_does_not_replace_counts_for_its_limit() {
    let lua = mlua::Lua::new();
    let string = lua.create_table().expect("a table");
    super::install(&lua, &string, &crate::meter::Meter::default(), 10).expect("a library");
    lua.globals().set("string", string).expect("a table");
    let eval = |script: &str| {
        let script = format!("local ok, text = pcall(string.gsub, {script}) return tostring(text)");
        lua.load(script).eval::<String>().expect("the script runs")
    };
    assert_eq!(eval("'0123456789', 'y', ''"), "0123456789");
    for script in ["'0123456789a', '^y', ''", "'0123456789', '0', 'xx', 1", "'0123456789', '0', '%0%0'"] {
        assert!(eval(script).contains("not enough memory"), "{script}");
    }
}
