//! Commands that run another one, which stands among their arguments: IDEMP.
//!
//! What it is: where the other command stands, and which commands may stand there. What it is not: how it is run, which is
//! for the command that runs it.
//!
//! Invariant: what is wrapped wraps nothing itself.

use wire::Args;

use super::{CommandTable, Family, Flags, Found, Keys, Row};
use crate::CommandError;

/// Where the name of the wrapped command stands.
pub const WRAPPED_AT: usize = 3;

/// The command that a call wraps, and its arguments.
///
/// # Errors
/// There is none, it does not take so many arguments, or it is none that can be wrapped.
pub fn wrapped<'b>(table: &'static CommandTable, args: Args<'b>) -> Result<(Found, Args<'b>), CommandError> {
    let call = args.skip(WRAPPED_AT);
    if call.is_empty() {
        return Err(CommandError::Syntax);
    }
    let found = table.resolve_call(call)?;
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

/// The command that a call runs in the end, and its arguments: the one that it wraps, or itself.
#[inline]
pub fn innermost<'b>(found: Found, args: Args<'b>) -> (Found, Args<'b>) {
    let inner = found.row.flags.has(Flags::WRAPS).then(|| wrapped(found.table, args).ok()).flatten();
    inner.unwrap_or((found, args))
}

/// Whether a command has effects that others see, and none on its connection.
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
        // They lock what is no key's.
        && !matches!(row.keys, Keys::Libraries)
}
