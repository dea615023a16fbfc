//! Commands that run another command given among their arguments: IDEMP.
//!
//! This module defines the position of the wrapped command, and which commands can be wrapped. The wrapping
//! command decides how to run it.
//!
//! Invariant: a wrapped command does not wrap another one.

use wire::Args;

use super::{CommandTable, Family, Flags, Keys, ResolvedCommand, Row};
use crate::CommandError;

/// Index of the wrapped command's name.
pub const WRAPPED_AT: usize = 3;

/// The wrapped command of a call, and its arguments.
///
/// # Errors
/// No command follows, or the command is unknown, does not take this number of arguments, or cannot be
/// wrapped.
pub fn wrapped<'b>(
    table: &'static CommandTable,
    args: Args<'b>,
) -> Result<(ResolvedCommand, Args<'b>), CommandError> {
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

/// The command that a call finally runs, and its arguments: the wrapped command, or the called command
/// itself.
#[inline]
pub fn innermost<'b>(found: ResolvedCommand, args: Args<'b>) -> (ResolvedCommand, Args<'b>) {
    let inner = found.row.flags.has(Flags::WRAPS).then(|| wrapped(found.table, args).ok()).flatten();
    inner.unwrap_or((found, args))
}

/// Whether a command may be wrapped: it changes data, publishes or runs a script, has no effects on its
/// connection, and is none of the exceptions below.
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
        // Commands on libraries lock a slot that no key names.
        && !matches!(row.keys, Keys::Libraries)
}
