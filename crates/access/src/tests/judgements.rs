//! Verdicts and their texts, as ACL DRYRUN of Redis 8.2.3 and Valkey 9.1.2 gives them.

use crate::command_list::CommandList;
use crate::denial_log::Reason;
use crate::denied::Denied;
use crate::judge::{Call, ChannelUse, KeyUse};
use crate::patterns::KeyAccess;
use crate::rights::Rights;
use crate::samples::{commands, user};
use crate::user::User;

/// The verdict about a call `NAME ARGUMENT ...`. The keys and channels of the call are found as the table of
/// commands would find them.
fn verdict(rights: &Rights, commands: &CommandList, call: &str) -> String {
    let words: Vec<&str> = call.split(' ').collect();
    let args = &words[1..];
    let sub = args.first().map(|sub| format!("{}|{sub}", words[0]));
    let command = sub
        .and_then(|name| commands.find(name.as_bytes()))
        .or_else(|| commands.find(words[0].as_bytes()))
        .unwrap();
    let access = match words[0] {
        "get" | "mget" | "hget" => Some(KeyAccess::READ),
        "set" | "del" => Some(KeyAccess::WRITE),
        "getset" => Some(KeyAccess::BOTH),
        "exists" => Some(KeyAccess::NONE),
        _ => None,
    };
    let is_first_only = matches!(words[0], "set" | "getset" | "publish");
    let named = if is_first_only { &args[..1] } else { args };
    let keys: Vec<KeyUse<'_>> = access
        .into_iter()
        .flat_map(|access| named.iter().map(move |key| KeyUse { key: key.as_bytes(), access }))
        .collect();
    let channels: Vec<ChannelUse<'_>> = if ["subscribe", "psubscribe", "publish"].contains(&words[0]) {
        let is_pattern = words[0] == "psubscribe";
        named.iter().map(|name| ChannelUse { name: name.as_bytes(), is_pattern }).collect()
    } else {
        Vec::new()
    };
    let first_arg = args.first().map(|argument| argument.as_bytes());
    match rights.judge(&Call { command, first_arg, keys: &keys, channels: &channels }) {
        Ok(()) => "OK".into(),
        Err(denied) => String::from_utf8(denied.verdict(b"u", commands)).unwrap(),
    }
}

fn denied(what: &str) -> String {
    if what == "OK" {
        return what.into();
    }
    match what.split_once(' ') {
        Some((name, kind)) => format!("User u has no permissions to access the '{name}' {kind}"),
        None => format!("User u has no permissions to run the '{what}' command"),
    }
}

#[test]
fn verdicts_are_those_of_redis() {
    let commands = commands();
    for (rules, calls) in [
        (
            "+get ~a*",
            &[
                ("get ab", "OK"),
                ("get b", "b key"),
                ("set a 1", "set"),
                ("config get x", "config|get"),
                ("quit", "OK"),
                ("auth a b", "OK"),
                ("hello", "OK"),
                ("reset", "OK"),
            ][..],
        ),
        (
            "+@all %R~r* %W~w*",
            &[
                ("set w 1", "OK"),
                ("set r 1", "r key"),
                ("get r", "OK"),
                ("get w", "w key"),
                ("exists r", "OK"),
                ("exists w", "OK"),
                ("exists x", "x key"),
                ("getset w 1", "w key"),
                ("del w", "OK"),
                ("keys *", "OK"),
            ],
        ),
        ("+@all %R~a %W~ab* %R~ab", &[("getset ab 1", "ab key")]),
        (
            "+@all allkeys &foo*",
            &[
                ("subscribe foobar", "OK"),
                ("subscribe bar", "bar channel"),
                ("psubscribe foo*", "OK"),
                ("psubscribe foobar", "foobar channel"),
                ("psubscribe f*", "f* channel"),
                ("publish foo 1", "OK"),
                ("publish bar 1", "bar channel"),
                ("subscribe foo bar baz", "bar channel"),
            ],
        ),
        (
            "+get ~a (+set ~b)",
            &[
                ("get b", "b key"),
                ("set a 1", "a key"),
                ("set b 1", "OK"),
                ("del a", "del"),
                ("mget a b", "mget"),
            ],
        ),
        (
            "+get +subscribe ~a &x (+set ~b +subscribe +publish +get &y)",
            &[
                ("set c 1", "c key"),
                ("subscribe z", "z channel"),
                ("publish x 1", "x channel"),
                ("subscribe x y", "y channel"),
            ],
        ),
        ("+mget ~a (+mget ~b) (+mget ~a ~b)", &[("mget a b c", "c key"), ("mget a b", "OK")]),
        ("+mget ~b (+mget ~a)", &[("mget a c", "c key"), ("mget b c", "c key"), ("mget a b", "b key")]),
        ("+select|0", &[("select 0", "OK"), ("select 1", "select"), ("select", "select")]),
        ("+get|Foo ~*", &[("get FOO", "OK"), ("get x", "get")]),
        ("+select +select|0", &[("select 1", "OK")]),
        ("+select|0 +select -select", &[("select 0", "select")]),
        ("+get|a ~* -@read", &[("get a", "get")]),
        ("+get|a ~* -@hash", &[("get a", "OK")]),
        (
            "+config|get",
            &[("config get x", "OK"), ("config set x", "config|set"), ("config help", "config|help")],
        ),
        ("+config -config|get", &[("config get x", "config|get"), ("config set x", "OK")]),
        ("+@dangerous -config", &[("config get x", "config|get"), ("info", "OK")]),
        ("+@admin", &[("config get a", "OK"), ("config help", "config|help"), ("acl whoami", "acl|whoami")]),
        ("+@read", &[("object help", "object|help"), ("object encoding x", "OK")]),
        ("+@all -@dangerous", &[("keys *", "keys"), ("ping", "OK"), ("acl setuser", "acl|setuser")]),
    ] {
        let rights = Rights::new(&user(rules), commands);
        for (call, expected) in calls {
            assert_eq!(verdict(&rights, commands, call), denied(expected), "{rules}: {call}");
        }
    }
}

#[test]
fn replies_name_the_command_and_neither_key_nor_channel() {
    let commands = commands();
    let config_get = commands.find(b"config|get").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    for (denied, brief, entry) in [
        (
            Denied::Command(config_get),
            "User u has no permissions to run the 'config|get' command",
            (Reason::Command, &b"config|get"[..]),
        ),
        (Denied::Key(b"k"), "No permissions to access a key", (Reason::Key, b"k")),
        (Denied::Channel(b"c"), "No permissions to access a channel", (Reason::Channel, b"c")),
    ] {
        assert_eq!(text(denied.reply(b"u", commands)), format!("NOPERM {brief}"));
        let in_script = text(denied.reply_in_script(b"u", commands));
        assert_eq!(in_script, format!("ERR ACL failure in script: {brief}"));
        assert_eq!(denied.entry(commands), entry);
    }
}

#[test]
fn the_all_powerful_user_is_known_by_one_flag() {
    let commands = commands();
    let rights = Rights::new(&User::all_powerful(), commands);
    assert!(rights.are_unrestricted());
    assert!(commands.iter().all(|(id, _)| rights.allow_freely(id)));
    for rules in ["+@all ~*", "+@all ~* &* -get", "+@all &* %R~*"] {
        assert!(!Rights::new(&user(rules), commands).are_unrestricted(), "{rules}");
    }
    assert!(Rights::new(&user("(+@all ~* &*)"), commands).are_unrestricted());
}

#[test]
fn all_keys_are_permitted_by_a_star_for_that_access() {
    let commands = commands();
    let sort = commands.find(b"sort").unwrap();
    let allow =
        |rules: &str| Rights::new(&user(rules), commands).allow_all_keys(sort, Some(b"k"), KeyAccess::READ);
    assert!(allow("+sort ~*") && allow("+sort %R~*") && allow("(+sort %R~*)") && allow("+@all ~* &*"));
    assert!(!allow("+sort %W~*") && !allow("+sort ~a*") && !allow("%R~*") && !allow("+sort (%R~*)"));
}

#[test]
fn a_subscription_goes_on_while_any_selector_permits_its_channel() {
    let commands = commands();
    let rights = Rights::new(&user("&a* (&b)"), commands);
    let goes_on =
        |name: &str, is_pattern| rights.allow_subscription(ChannelUse { name: name.as_bytes(), is_pattern });
    assert!(goes_on("ab", false) && goes_on("b", false) && goes_on("a*", true));
    assert!(!goes_on("c", false) && !goes_on("ab", true));
}

#[test]
fn rules_of_another_version_never_allow_more() {
    let commands = commands();
    let mut user = user("+@all ~* &*");
    let rule = |allows, target: &[u8]| crate::CommandRule { allows, target: target.into() };
    let get = commands.find(b"get").unwrap();
    for (unknown, allows_get) in [
        (rule(true, b"@later"), true),
        (rule(false, b"@later"), false),
        (rule(true, b"later"), true),
        (rule(false, b"later"), true),
        (rule(true, b"later|0"), true),
    ] {
        user.root.commands.rules = vec![unknown.clone()];
        assert_eq!(Rights::new(&user, commands).allow_freely(get), allows_get, "{unknown:?}");
        user.root.commands.rules.push(rule(true, b"@read"));
        assert!(Rights::new(&user, commands).allow_freely(get), "allowed after it: {unknown:?}");
    }
}
