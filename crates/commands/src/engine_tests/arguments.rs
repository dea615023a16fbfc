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
        ("config get requirepass", "config get requirepass"),
        ("set auth secret", "set auth secret"),
    ] {
        assert_eq!(shown(line), expected);
    }
}
