//! Whether a command can leave its worker: a long unit moves to a thread of its own.

use super::{Flags, ResolvedCommand, Row, innermost};

/// Whether a unit with this command can be offloaded, from the easiest to the hardest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mobility {
    /// At any time: all changes of the command can be undone.
    #[default]
    AtAnyTime,
    /// Only before the command has begun: its changes cannot be undone, or must not be made twice.
    BeforeItBegins,
    /// Never: the command depends on the worker of its client, or other clients wait for its locks.
    Never,
}

impl Mobility {
    /// The mobility of a command and of one that it wraps.
    pub fn of(found: ResolvedCommand, args: wire::Args<'_>) -> Mobility {
        Mobility::of_row(found.row).max(Mobility::of_row(innermost(found, args).0.row))
    }

    pub(crate) fn of_row(row: &Row) -> Mobility {
        row.treatment.mobility.unwrap_or_else(|| Mobility::of_flags(row))
    }

    fn of_flags(row: &Row) -> Mobility {
        let is_any = |flags: &[Flags]| flags.iter().any(|&flag| row.flags.has(flag));
        if is_any(&[Flags::DOCUMENTS, Flags::PUBSUB]) {
            Mobility::Never
        } else if !is_final(row) && is_any(&[Flags::READONLY, Flags::WRITE, Flags::RUNS_SCRIPTS]) {
            Mobility::AtAnyTime
        } else {
            Mobility::BeforeItBegins
        }
    }
}

/// Whether a command empties databases, which cannot be undone.
pub fn is_final(row: &Row) -> bool {
    row.flags.has(Flags::FLUSHES)
}
