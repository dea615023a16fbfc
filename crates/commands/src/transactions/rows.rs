//! The rows of the commands on transactions.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{discard, exec, multi, watch};

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 1,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::ALLOW_BUSY),
    keys: Keys::None,
    family: Family::Transactions,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: multi,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};
const IMMEDIATE: Flags = ROW.flags.or(Flags::IMMEDIATE);

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "discard",
        flags: IMMEDIATE,
        since: "2.0.0",
        complexity: "O(N) where N is the number of queued commands and watched keys.",
        summary: "Discards the commands queued since MULTI and all watches.",
        handler: discard,
        ..ROW
    },
    Row {
        name: "exec",
        flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::IMMEDIATE),
        keys: Keys::Queued,
        complexity: "That of the queued commands.",
        summary: "Runs the commands queued since MULTI as one unit, unless a watched key has changed.",
        handler: exec::exec,
        ..ROW
    },
    Row {
        name: "multi",
        flags: IMMEDIATE,
        summary: "Begins a transaction: the commands that follow are queued until EXEC.",
        handler: multi,
        ..ROW
    },
    Row {
        name: "unwatch",
        since: "2.2.0",
        complexity: "O(N) where N is the number of watched keys.",
        summary: "Removes all watches.",
        handler: watch::unwatch,
        ..ROW
    },
    Row {
        name: "watch",
        needs: Needs::each(KeyUsage::EXISTENCE),
        treatment: Treatment { is_never_busy: true, ..Treatment::DEFAULT },
        arity: -2,
        flags: IMMEDIATE,
        keys: Keys::Range { first: 1, last: -1, step: 1 },
        since: "2.2.0",
        complexity: "O(N log N) where N is the number of watched keys.",
        summary: "Makes the next EXEC depend on keys: it does nothing if one of them has changed by then.",
        syntax: "key [key ...]",
        handler: watch::watch,
        ..ROW
    },
];
