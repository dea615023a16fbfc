//! Which arguments are shown to people: no passwords.

use crate::{resolve_call, testing::parse};

fn shown(line: &str) -> String {
    let args = parse(line);
    let row = resolve_call(args.as_args()).expect("a command").row;
    let shown: Vec<_> =
        engine::shown_args::shown_args(row, args.as_args()).map(String::from_utf8_lossy).collect();
    shown.join(" ")
}

#[test]
fn passwords_are_not_shown() {
    for (line, expected) in [
        ("AUTH secret", "AUTH (redacted)"),
        ("auth user secret", "auth (redacted) (redacted)"),
        ("auth a b c", "auth (redacted) (redacted) (redacted)"),
        ("hello", "hello"),
        ("hello 3 AUTH u p SETNAME n", "hello 3 AUTH (redacted) (redacted) SETNAME n"),
        ("hello 3 setname n auth u p", "hello 3 setname n auth (redacted) (redacted)"),
        ("config set maxmemory 1 RequirePass x", "config set maxmemory 1 RequirePass (redacted)"),
        ("config set primaryauth x", "config set primaryauth (redacted)"),
        (
            "config set masterauth a admin-password b",
            "config set masterauth (redacted) admin-password (redacted)",
        ),
        ("config set tls-key-file-pass p", "config set tls-key-file-pass (redacted)"),
        ("config set maxmemory 1 masterauht p", "config set maxmemory 1 masterauht (redacted)"),
        ("config set force-recovery no", "config set force-recovery no"),
        ("sentinel set m auth-pass p quorum 2", "sentinel set m auth-pass (redacted) quorum (redacted)"),
        ("config get requirepass", "config get requirepass"),
        ("set auth secret", "set auth secret"),
        ("command getkeys AUTH u p", "command getkeys AUTH (redacted) (redacted)"),
        ("command getkeys acl setuser u >p", "command getkeys acl setuser u (redacted)"),
        (
            "command GetKeysAndFlags hello 3 auth u p",
            "command GetKeysAndFlags hello 3 auth (redacted) (redacted)",
        ),
        ("command getkeys set k v", "command getkeys set k v"),
        ("command getkeys nosuch p", "command getkeys nosuch p"),
        ("command getkeys idemp k 1 auth p", "command getkeys idemp k 1 auth (redacted)"),
        ("idemp k 1 config set requirepass p", "idemp k 1 config set requirepass (redacted)"),
        ("doc.put _users org.couchdb.user:a {} 1-a", "doc.put _users org.couchdb.user:a (redacted) 1-a"),
        ("doc.put notes a {}", "doc.put notes a {}"),
    ] {
        assert_eq!(shown(line), expected);
    }
}
