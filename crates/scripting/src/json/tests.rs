use proptest::prelude::*;

use crate::testing::TestVm;

#[test]
fn values_become_json() {
    let mut vm = TestVm::new();
    let table = [
        ("{1, 2, 3}", "[1,2,3]"),
        ("{a = 1}", r#"{"a":1}"#),
        ("{}", "{}"),
        ("{[1] = 'a', [3] = 'c'}", r#"["a",null,"c"]"#),
        ("{{}, {1}, {a = {b = true}}}", r#"[{},[1],{"a":{"b":true}}]"#),
        ("'a/b\"c\\\\\\n\\1'", r#""a\/b\"c\\\n\u0001""#),
        ("1.5", "1.5"),
        ("10000000000", "10000000000"),
        ("1/3", "0.33333333333333"),
        ("cjson.null", "null"),
        ("nil", "null"),
        ("{[1.5] = 1}", r#"{"1.5":1}"#),
    ];
    for (value, expected) in table {
        let shown = format!("\"{}\"", expected.escape_default());
        assert_eq!(vm.eval(&format!("return cjson.encode({value})"), &[], &[]), shown, "{value}");
    }
}

#[test]
fn cjson_encode_refuses_values_without_a_json_form() {
    let mut vm = TestVm::new();
    let table = [
        ("0/0", "Cannot serialise number: must not be NaN or Inf"),
        ("{[100] = 1}", "Cannot serialise table: excessively sparse array"),
        ("{[{}] = 1}", "Cannot serialise table: table key must be a number or string"),
        ("{[true] = 1}", "Cannot serialise boolean: table key must be a number or string"),
        ("print_", "Cannot serialise function: type not supported"),
    ];
    for (value, expected) in table {
        let script =
            format!("local print_ = function() end local ok, e = pcall(cjson.encode, {value}) return e");
        assert!(vm.eval(&script, &[], &[]).contains(expected), "{value}");
    }
    let deep = "local t = {} for i = 1, 2000 do t = {t} end local ok, e = pcall(cjson.encode, t) return e";
    assert!(vm.eval(deep, &[], &[]).contains("Cannot serialise, excessive depth (1001)"));
    let own = "local t = {} t[1] = t local ok, e = pcall(cjson.encode, t) return e";
    assert!(vm.eval(own, &[], &[]).contains("excessive depth"));
}

#[test]
fn a_changed_copy_of_cjson_is_not_what_other_scripts_see() {
    let mut vm = TestVm::new();
    let change = "local own = cjson.new() own.encode = function() return 'mine' end own.decode = nil \
                  return {own.encode(1), cjson.encode(1), own.new().encode == cjson.encode}";
    assert_eq!(vm.eval(change, &[], &[]), "[\"mine\", \"1\", :1]");
    assert_eq!(vm.eval("return cjson.encode(cjson.decode('[1]'))", &[], &[]), "\"[1]\"");
}

#[test]
fn json_becomes_values() {
    let mut vm = TestVm::new();
    let table = [
        (r#"[1, 2.5, "x", true, null]"#, "[1,2.5,\"x\",true,null]"),
        (r#" { "a" : [ ] , "b" : { } } "#, r#"{"a":{},"b":{}}"#),
        (r#""\u00e9\ud83d\ude00\n""#, "\"é😀\\n\""),
        ("0x1F", "31"),
        ("-12e2", "-1200"),
    ];
    for (text, expected) in table {
        // The keys of a table have no order, so the script shows them in alphabetical order.
        let script = "local v = cjson.decode(ARGV[1]) \
                      if type(v) == 'table' and v.a then return '{\"a\":' .. cjson.encode(v.a) .. ',\"b\":' .. cjson.encode(v.b) .. '}' end \
                      return cjson.encode(v)";
        let shown = format!("\"{}\"", expected.as_bytes().escape_ascii());
        assert_eq!(vm.eval(script, &[], &[text]), shown, "{text}");
    }
}

#[test]
fn cjson_decode_refuses_invalid_json() {
    let mut vm = TestVm::new();
    let table = [
        ("", "Expected value but found T_END at character 1"),
        ("x", "Expected value but found invalid token at character 1"),
        ("[1", "Expected comma or array end but found T_END at character 3"),
        ("[1 2]", "Expected comma or array end but found T_NUMBER at character 4"),
        ("{\"a\" 1}", "Expected colon but found T_NUMBER at character 6"),
        ("{1}", "Expected object key string but found T_NUMBER at character 2"),
        ("{\"a\":1]", "Expected comma or object end but found T_ARR_END at character 7"),
        ("1 2", "Expected the end but found T_NUMBER at character 3"),
        ("\"abc", "Expected value but found unexpected end of string at character 5"),
        ("[1,]", "Expected value but found T_ARR_END at character 4"),
    ];
    for (text, expected) in table {
        let script = "local ok, e = pcall(cjson.decode, ARGV[1]) return e";
        let shown = vm.eval(script, &[], &[text]);
        assert!(shown.contains(expected), "{text}: {shown}");
    }
    let deep = "[".repeat(5000);
    let script = "local ok, e = pcall(cjson.decode, ARGV[1]) return e";
    assert!(vm.eval(script, &[], &[&deep]).contains("Found too many nested data structures (1001)"));
}

#[test]
fn settings_hold_for_one_script() {
    let mut vm = TestVm::new();
    assert_eq!(vm.eval("cjson.encode_number_precision(3) return cjson.encode(1/3)", &[], &[]), "\"0.333\"");
    assert_eq!(vm.eval("return cjson.encode_number_precision()", &[], &[]), ":14");
}

proptest! {
    #[test]
    fn no_text_does_harm(text in "[\\[\\]{}\",:0-9eE+\\-.tfnul\\\\x ]{0,40}") {
        super::check(text.as_bytes());
    }
}
