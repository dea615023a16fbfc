//! Arguments without passwords, as SLOWLOG and MONITOR show them.

use wire::Args;

use crate::Row;

const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a call, the name first, with every password replaced.
pub(crate) fn shown_args<'a>(row: &'static Row, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let secret: fn(Args<'_>, usize) -> bool = match row.name {
        "auth" => |_, index| index > 0,
        "hello" => hello_secret,
        "config|set" => config_secret,
        _ => |_, _| false,
    };
    (0..args.len()).map(move |index| if secret(args, index) { REDACTED } else { args.at(index) })
}

/// `HELLO version [AUTH username password] ...`: the two arguments after AUTH.
fn hello_secret(args: Args<'_>, index: usize) -> bool {
    let follows_auth =
        |distance: usize| index >= 2 + distance && args.at(index - distance).eq_ignore_ascii_case(b"auth");
    follows_auth(1) || follows_auth(2)
}

/// Settings whose values are secret.
const PASSWORDS: [&[u8]; 3] = [b"requirepass", b"masterauth", b"admin-password"];

/// `CONFIG SET parameter value ...`: the value of a password.
fn config_secret(args: Args<'_>, index: usize) -> bool {
    let is_password = |name: &[u8]| PASSWORDS.iter().any(|password| name.eq_ignore_ascii_case(password));
    index >= 3 && index % 2 == 1 && is_password(args.at(index - 1))
}

#[cfg(test)]
mod tests {
    use crate::{row::resolve_call, testing::parse};

    fn shown(line: &str) -> String {
        let args = parse(line);
        let row = resolve_call(args.as_args()).expect("a command").row;
        let shown: Vec<_> = super::shown_args(row, args.as_args()).map(String::from_utf8_lossy).collect();
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
}
