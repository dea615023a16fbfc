//! Arguments without passwords, as SLOWLOG and MONITOR show them.

use wire::Args;

use crate::Row;

const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a call, the name first, with every password replaced.
pub fn shown_args<'a>(row: &'static Row, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
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
