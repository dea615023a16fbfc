//! Commands that run another command given among their arguments: IDEMP.
//!
//! This module defines the position of the wrapped command, and which commands can be wrapped. The wrapping
//! command decides how to run it.
//!
//! Invariant: a wrapped command does not wrap another one.

use wire::Args;

use super::{Family, Flags, Found, Keys, Row, resolve_call};
use crate::CommandError;

/// Index of the wrapped command's name.
pub(crate) const WRAPPED_AT: usize = 3;

/// The wrapped command of a call, and its arguments.
///
/// # Errors
/// No command follows, it does not take so many arguments, or it cannot be wrapped.
pub(crate) fn wrapped(args: Args<'_>) -> Result<(Found, Args<'_>), CommandError> {
    let call = args.skip(WRAPPED_AT);
    if call.is_empty() {
        return Err(CommandError::Syntax);
    }
    let found = resolve_call(call)?;
    if !found.row.accepts(call.len()) {
        return Err(CommandError::WrongArity(found.row.name));
    }
    if !may_be_wrapped(found.row) {
        return Err(CommandError::Composed(format!(
            "ERR IDEMP runs commands that write, scripts and PUBLISH, and '{}' is none of them",
            found.row.name
        )));
    }
    Ok((found, call))
}

/// The command that a call finally runs, and its arguments: the wrapped command, or itself.
#[inline]
pub(crate) fn innermost<'b>(found: Found, args: Args<'b>) -> (Found, Args<'b>) {
    let inner = found.row.flags.has(Flags::WRAPS).then(|| wrapped(args).ok()).flatten();
    inner.unwrap_or((found, args))
}

/// Whether a command changes data or publishes, without effects on its connection.
fn may_be_wrapped(row: &Row) -> bool {
    let acts = [Flags::WRITE, Flags::RUNS_SCRIPTS, Flags::LOGS_MESSAGES];
    let is_barred = [
        Flags::READONLY,
        Flags::CONTAINER,
        Flags::IMMEDIATE,
        Flags::NO_MULTI,
        Flags::PROTECTED,
        Flags::WRAPS,
    ];
    acts.into_iter().any(|flag| row.flags.has(flag))
        && !is_barred.into_iter().any(|flag| row.flags.has(flag))
        && row.family != Family::Connection
        // They lock a slot that is not that of a key.
        && !matches!(row.keys, Keys::Libraries)
}

#[cfg(test)]
mod tests {
    use crate::testing::parse;

    fn wrapped(line: &str) -> Result<String, String> {
        let args = parse(line);
        let wrapped = super::wrapped(args.as_args());
        wrapped.map(|(found, _)| found.row.name.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_writes_can_be_wrapped() {
        for name in ["incr c", "set a b", "eval x 0", "evalsha x 0", "publish c m", "flushall", "blpop k 0"] {
            let first = name.split(' ').next().unwrap_or_default();
            assert_eq!(wrapped(&format!("IDEMP k 1 {name}")).as_deref(), Ok(first));
        }
        assert_eq!(wrapped("IDEMP k 1 XGROUP DESTROY s g").as_deref(), Ok("xgroup|destroy"));
    }

    #[test]
    fn what_does_not_is_refused() {
        for name in [
            "get k",
            "eval_ro x 0",
            "multi",
            "exec",
            "watch k",
            "subscribe c",
            "spublish c m",
            "hello",
            "auth secret",
            "select 1",
            "monitor",
            "debug sleep 0",
            "config set a b",
            "client list",
            "idemp k 1 idemp k 1 incr c",
            "lease k 1 me",
            "unlease k me",
            "wait 1 1",
            "save",
            "xgroup help",
            "function flush",
        ] {
            let error = wrapped(&format!("IDEMP k 1 {name}")).expect_err(name);
            assert!(
                error.starts_with("ERR IDEMP runs commands that write, scripts and PUBLISH, and "),
                "{error}"
            );
        }
        assert_eq!(wrapped("IDEMP k 1").expect_err("no command"), "ERR syntax error");
        let arity = wrapped("IDEMP k 1 incr").expect_err("no key");
        assert_eq!(arity, "ERR wrong number of arguments for 'incr' command");
        assert!(
            wrapped("IDEMP k 1 nosuch a")
                .expect_err("no command")
                .starts_with("ERR unknown command 'nosuch'")
        );
    }
}
