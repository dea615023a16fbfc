//! The lines that result from rules, and the errors of refused rules. Each was compared with Redis 8.2.3 and
//! Valkey 9.1.2. Redis 7.0.15 differs only where it rewrites rules about commands.

use crate::codec::DecodeError;
use crate::rule_error::RulesError;
use crate::samples::{commands, grammar, user};
use crate::user::User;

/// The line of a user after these rules, without the parts that all lines have; or the error.
fn after(rules: &[&[u8]]) -> String {
    let commands = commands();
    let text = match grammar(commands).apply(&User::initial(false), rules.iter().copied()) {
        Ok(user) => user.line(b"u"),
        Err(error) => error.reply(),
    };
    String::from_utf8(text).unwrap().replacen("user u off sanitize-payload ", "", 1)
}

fn after_words(rules: &str) -> String {
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    after(&rules)
}

#[test]
fn rules_about_commands_are_normalised() {
    for (rules, commands) in [
        ("+get -get", "-@all -get"),
        ("+@all -get +get", "+@all +get"),
        ("+@all -@dangerous +keys", "+@all -@dangerous +keys"),
        ("+@READ +Get", "-@all +@read +get"),
        ("+get +@read", "-@all +get +@read"),
        ("+@all +@read", "+@all +@read"),
        ("+get +@all", "+@all"),
        ("+get -@all", "-@all"),
        ("+@read -get +@read", "-@all -get +@read"),
        ("+@read +@write -@read", "-@all +@write -@read"),
        ("+config|get +config", "-@all +config"),
        ("+config +config|get", "-@all +config +config|get"),
        ("+config -config|get -config", "-@all -config"),
        ("+@all -config +config|GET", "+@all -config +config|get"),
        ("+config|get +@dangerous", "-@all +config|get +@dangerous"),
        ("+select|0 +select|1", "-@all +select|0 +select|1"),
        ("+select|0 +select", "-@all +select"),
        ("+select|0 -select", "-@all -select"),
        ("+select +select|A", "-@all +select +select|a"),
        ("+get|a +set|b +get", "-@all +set|b +get"),
        ("-acl|cat", "-@all -acl|cat"),
        ("+@all -get nocommands +set", "-@all +set"),
        ("+get AllCommands", "+@all"),
    ] {
        assert_eq!(after_words(rules), format!("resetchannels {commands}"), "{rules}");
    }
}

#[test]
fn patterns_are_normalised() {
    for (rules, shown) in [
        ("~", "~ resetchannels -@all"),
        ("~a ~*", "~* resetchannels -@all"),
        ("allkeys AllKeys", "~* resetchannels -@all"),
        ("%R", "%R~ resetchannels -@all"),
        ("%RW~*", "~* resetchannels -@all"),
        ("%R~* %W~*", "~* resetchannels -@all"),
        ("%R~* ~a", "%R~* ~a resetchannels -@all"),
        ("%RW~a %WR~b %r~c", "~a ~b %R~c resetchannels -@all"),
        ("%R~a %R~b %W~a", "~a %R~b resetchannels -@all"),
        ("~b ~a ~b", "~b ~a resetchannels -@all"),
        ("~* resetkeys ~a", "~a resetchannels -@all"),
        ("~a)", "~a) resetchannels -@all"),
        ("&", "resetchannels & -@all"),
        ("&a &*", "&* -@all"),
        ("allchannels resetchannels &a &a &b", "resetchannels &a &b -@all"),
    ] {
        assert_eq!(after_words(rules), shown, "{rules}");
    }
}

#[test]
fn selectors_are_read_from_one_word_or_several() {
    for (rules, shown) in [
        ("()", "(resetchannels -@all)"),
        ("(+get)", "(resetchannels -@all +get)"),
        ("(~a ~b)", "(~a ~b resetchannels -@all)"),
        ("(~a )", "(~a resetchannels -@all)"),
        ("( +get )", "(resetchannels -@all +get)"),
        ("(+get) (+set ~x)", "(resetchannels -@all +get) (~x resetchannels -@all +set)"),
        ("(~a(b)", "(~a(b resetchannels -@all)"),
        ("(allkeys allchannels allcommands)", "(~* &* +@all)"),
        ("(resetkeys ~a nocommands)", "(~a resetchannels -@all)"),
    ] {
        assert_eq!(after_words(rules), format!("resetchannels -@all {shown}"), "{rules}");
    }
    assert_eq!(after(&[b"(~a\t~b)"]), "resetchannels -@all (~a ~b resetchannels -@all)");
    assert_eq!(after_words("(+get) clearselectors"), "resetchannels -@all");
    assert_eq!(after_words("(+get) reset"), "resetchannels -@all");
}

#[test]
fn passwords_and_flags_are_kept() {
    let [a, b] = [b"a", b"b"].map(|password| crate::PasswordHash::of(password).to_hex());
    for (rules, shown) in [
        ("ON >a >b >a", format!("user u on sanitize-payload #{a} #{b} resetchannels -@all")),
        ("on off ON", "user u on sanitize-payload resetchannels -@all".into()),
        ("on >a nopass", "user u on nopass sanitize-payload resetchannels -@all".into()),
        ("on nopass >a", format!("user u on sanitize-payload #{a} resetchannels -@all")),
        ("on nopass resetpass", "user u on sanitize-payload resetchannels -@all".into()),
        ("on >a <a", "user u on sanitize-payload resetchannels -@all".into()),
        ("on skip-sanitize-payload", "user u on skip-sanitize-payload resetchannels -@all".into()),
    ] {
        assert_eq!(String::from_utf8(user(rules).line(b"u")).unwrap(), shown, "{rules}");
    }
    assert_eq!(after_words(&format!("#{a} >b !{a}")), format!("#{b} resetchannels -@all"));
    let default = User::all_powerful().line(b"default");
    assert_eq!(default, b"user default on nopass sanitize-payload ~* &* +@all");
}

#[test]
fn roles_and_derived_passwords_are_rules() {
    let key = "4b007901b765489abead49d926f721d065a429c1";
    let derived = format!("#pbkdf2-sha$4096$73616c74${key}");
    let rest = "resetchannels -@all";
    for (rules, shown) in [
        (derived.clone(), format!("{derived} {rest}")),
        (format!("{derived} >a <a"), format!("{derived} {rest}")),
        (format!("{derived} resetpass"), rest.into()),
        (format!("{derived} !{}", &derived[1..]), rest.into()),
        ("role:a ROLE:two%20words role:a".into(), format!("role:a role:two%20words {rest}")),
        ("role:a resetroles role:b".into(), format!("role:b {rest}")),
        ("role:a reset".into(), rest.into()),
    ] {
        assert_eq!(after_words(&rules), shown, "{rules}");
    }
    let user = user(&format!("on >quick {derived}"));
    assert_eq!(user.accepts_at_once(b"quick"), Some(true));
    assert_eq!(user.accepts_at_once(b"password"), None, "that takes long");
    assert!(user.accepts(b"password") && !user.accepts(b"wrong"));
    let off = User { is_enabled: false, ..user.clone() };
    assert_eq!(off.accepts_at_once(b"password"), Some(false));
    assert_eq!(User::decode(&user.encode()).as_ref(), Ok(&user));
    let other = User { derived_password: None, ..user.clone() };
    assert_ne!(other.login_digest(), user.login_digest());
}

#[test]
fn a_user_has_its_birth_until_another_one_has_its_name() {
    let of_earlier_version = user("on >pw ~a*");
    let record = of_earlier_version.encode();
    assert_eq!(record[0], 1, "read by earlier versions, too");
    let changed = user("on >pw ~b*").succeeding(Some(&of_earlier_version), 7);
    assert_eq!((changed.birth, changed.login_digest()), (0, of_earlier_version.login_digest()));
    let born = of_earlier_version.clone().succeeding(None, 7);
    assert_eq!((born.birth, User::decode(&born.encode())), (7, Ok(born.clone())));
    assert_eq!(born.encode().len(), record.len() + 8);
    let again = of_earlier_version.clone().succeeding(None, 8);
    let digests = [of_earlier_version, born.clone(), again].map(|user| user.login_digest());
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
    assert_eq!(user("off").succeeding(Some(&born), 9).birth, 7);
    assert_eq!(born.clone().succeeding(None, 0).birth, 1, "0 means that there is none");
    let unborn = [&born.encode()[..born.encode().len() - 8], &[0; 8]].concat();
    assert_eq!(User::decode(&unborn), Err(DecodeError::Malformed));
}

#[test]
fn a_document_changes_roles_and_its_own_password_alone() {
    let before = user("on >pw ~a* +get role:old");
    let after = User::of_document(Some(before.clone()), vec![b"new"[..].into()], None);
    assert_eq!(after, User { roles: vec![b"new"[..].into()], ..before });
    let new = User::of_document(None, Vec::new(), None);
    let line = String::from_utf8(new.line(b"u")).unwrap();
    let rights = "resetchannels -@all +@connection -@admin -@dangerous";
    assert_eq!(line, format!("user u on sanitize-payload {rights}"));
}

#[test]
fn a_user_with_the_password_of_a_document_does_not_log_in_without_it() {
    let derived =
        user("on #pbkdf2-sha$4096$73616c74$4b007901b765489abead49d926f721d065a429c1").derived_password;
    let role = || b"writers"[..].into();
    let after = User::of_document(Some(user("on nopass ~a*")), vec![role(), role()], derived);
    assert!(after.accepts(b"password") && !after.accepts(b"any"));
    // The text of the user, which ACL SAVE writes, gives an equal user again.
    let line = String::from_utf8(after.line(b"u")).unwrap();
    assert_eq!(user(line.strip_prefix("user u ").unwrap()), after);
}

const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";
const FIRST_ARG: &str = "Allowing first-arg of a subcommand is not supported";
const HASH: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const AFTER_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
                          have any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                              does not have any effect. Try 'resetchannels' to start with an empty list of \
                              channels";

#[test]
fn rules_are_refused_with_the_texts_of_redis() {
    let unowned = format!("!{}", "a".repeat(64));
    let upper = format!("#{}", "A".repeat(64));
    for (rules, error) in [
        (&["foo"][..], SYNTAX),
        (&["nopass2"], SYNTAX),
        (&["@all"], SYNTAX),
        (&["*"], SYNTAX),
        (&[")"], SYNTAX),
        (&["allchannels "], SYNTAX),
        (&["+nosuch"], UNKNOWN),
        (&["-nosuch"], UNKNOWN),
        (&["+@nosuch"], UNKNOWN),
        (&["+"], UNKNOWN),
        (&["-@"], UNKNOWN),
        (&["+@all "], UNKNOWN),
        (&["+get)"], UNKNOWN),
        (&["+a b"], UNKNOWN),
        (&["-get|foo"], UNKNOWN),
        (&["+config|nosuch"], UNKNOWN),
        (&["-config|nosuch"], UNKNOWN),
        (&["+config||get"], UNKNOWN),
        (&["+select|0|1"], UNKNOWN),
        (&["+select||"], UNKNOWN),
        (&["+|get"], UNKNOWN),
        (&["+nosuch|"], UNKNOWN),
        (&["-config|get|x"], UNKNOWN),
        (&["+config|get|x"], FIRST_ARG),
        (&["+client|id|"], FIRST_ARG),
        (&["+config|"], SYNTAX),
        (&["+get|"], SYNTAX),
        (&["#zz"], HASH),
        (&["#"], HASH),
        (&[&upper], HASH),
        (&["!zz"], HASH),
        (&[&unowned], NO_PASSWORD),
        (&["%X~a"], SYNTAX),
        (&["%~a"], SYNTAX),
        (&["%"], SYNTAX),
        (&["%RR~a"], SYNTAX),
        (&["%RRW~a"], SYNTAX),
        (&["%RWa"], SYNTAX),
        (&["~a b"], SYNTAX),
        (&["%R~a\tb"], SYNTAX),
        (&["& b"], SYNTAX),
        (&["~*", "~a"], AFTER_KEYS),
        (&["~*", "%RW~*"], AFTER_KEYS),
        (&["~*", "%X"], AFTER_KEYS),
        (&["&*", "&a"], AFTER_CHANNELS),
        (&["(foo)"], SYNTAX),
        (&["(on)"], SYNTAX),
        (&["(nopass)"], SYNTAX),
        (&["(clearselectors)"], SYNTAX),
        (&["((+get))"], SYNTAX),
        (&["(~* ~a)"], AFTER_KEYS),
        (&["( %X~a )"], SYNTAX),
    ] {
        let given: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        let refused = rules.last().unwrap();
        assert_eq!(
            after(&given),
            format!("ERR Error in ACL SETUSER modifier '{refused}': {error}"),
            "{rules:?}"
        );
    }
    let merged = "ERR Error in ACL SETUSER modifier '(~a on ~b)': Syntax error";
    assert_eq!(after_words("(~a on ~b)"), merged);
    assert_eq!(after(&[b"~a\0b"]), "ERR Error in ACL SETUSER modifier '~a': Syntax error");
    for (rules, from) in [("(", "("), ("(+get", "(+get"), ("(~a ~b", "(~a"), ("(&a) (", "(")] {
        let error = format!("ERR Unmatched parenthesis in acl selector starting at '{from}'.");
        assert_eq!(after_words(rules), error, "{rules}");
    }
    assert_eq!(
        after(&[b"( +get ) x"]),
        "ERR Unmatched parenthesis in acl selector starting at '( +get ) x'."
    );
}

#[test]
fn a_rule_that_redis_takes_and_cannot_show_again_is_refused() {
    for rule in ["+select|a b", "(\"+get\" ~b)", "(~\"a)", "('+get')", "(+get ~a) &x)", "(&x))"] {
        assert_eq!(
            after(&[rule.as_bytes()]),
            format!("ERR Error in ACL SETUSER modifier '{rule}': {SYNTAX}")
        );
    }
    assert_eq!(after(&[b"+get\0"]), format!("ERR Error in ACL SETUSER modifier '+get': {UNKNOWN}"));
    assert_eq!(after_words("%RW~* ~a"), format!("ERR Error in ACL SETUSER modifier '~a': {AFTER_KEYS}"));
}

#[test]
fn no_error_shows_a_password() {
    let commands = commands();
    for rules in
        [&["<secret"][..], &["(+get >secret)"], &["( <secret", "+get)"], &["(>secret"], &["(+get >secret)"]]
    {
        let given = rules.iter().map(|rule| rule.as_bytes());
        let error = grammar(commands).apply(&User::initial(false), given).unwrap_err();
        let reply = String::from_utf8(error.reply()).unwrap();
        assert!(!reply.contains("secret") && reply.contains("(redacted)"), "{reply}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[test]
fn rules_are_applied_all_or_none() {
    let commands = commands();
    let before = user("on >a ~a +get");
    let error = grammar(commands).apply(&before, [&b"reset"[..], b"+set", b"foo"]).unwrap_err();
    assert!(matches!(error, RulesError::Rule { .. }));
    assert_eq!(before, user("on >a ~a +get"));
}

#[test]
fn all_channels_can_be_the_beginning() {
    let commands = commands();
    let grammar = crate::Grammar { all_channels: true, ..grammar(commands) };
    let user = grammar.apply(&User::initial(true), [&b"(+get)"[..]]).unwrap();
    assert_eq!(user.line(b"u"), b"user u off sanitize-payload &* -@all (&* -@all +get)");
    let reset = grammar.apply(&user, [&b"reset"[..]]).unwrap();
    assert_eq!(reset.line(b"u"), b"user u off sanitize-payload &* -@all");
}

#[test]
fn a_description_has_the_fields_of_getuser() {
    let described = user("on >a ~a %R~b &c +get -set (+get ~*) (&x ~y %W~z)").describe();
    assert_eq!(described.flags, ["on", "sanitize-payload"]);
    assert_eq!(described.passwords, [crate::PasswordHash::of(b"a").to_hex()]);
    let selectors: Vec<_> = std::iter::once(&described.root)
        .chain(&described.selectors)
        .map(|of| {
            [&of.commands, &of.keys, &of.channels].map(|text| String::from_utf8_lossy(text).into_owned())
        })
        .collect();
    let expected =
        [["-@all +get -set", "~a %R~b", "&c"], ["-@all +get", "~*", ""], ["-@all", "~y %W~z", "&x"]];
    assert_eq!(selectors, expected);
    assert_eq!(User::all_powerful().describe().flags, ["on", "nopass", "sanitize-payload"]);
}

#[test]
fn names_of_users_are_words() {
    for name in ["", "a", "ü", "a|b"] {
        assert!(crate::is_user_name(name.as_bytes()), "{name}");
    }
    for name in ["a b", "a\0", "\t"] {
        assert!(!crate::is_user_name(name.as_bytes()), "{name}");
    }
}

#[test]
fn only_an_enabled_user_with_its_password_is_accepted() {
    let accepts = |rules: &str, password: &str| user(rules).accepts(password.as_bytes());
    assert!(accepts("on >a >b", "a") && accepts("on >a >b", "b"));
    assert!(!accepts("on >a >b", "c") && !accepts("on >a", "") && !accepts("on", ""));
    assert!(accepts("on nopass", "anything"));
    assert!(!accepts("off >a", "a") && !accepts("nopass", "a"));
}
