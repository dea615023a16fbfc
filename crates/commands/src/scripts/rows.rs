//! The rows of the commands on scripts and functions.

use engine::{Callee, Family, Flags, Keys, Needs, Row, Treatment};

use super::{eval, fcall, function, script};
use crate::help::{help, no_subcommand};

/// Shared fields of the rows that run scripts.
const RUNS: Row = Row {
    name: "",
    arity: -3,
    flags: Flags::NOSCRIPT.or(Flags::STALE).or(Flags::RUNS_SCRIPTS),
    keys: Keys::Counted { at: 2, before: None },
    family: Family::Scripting,
    since: "2.6.0",
    complexity: "That of the script.",
    summary: "",
    syntax: "script numkeys [key [key ...]] [arg [arg ...]]",
    handler: eval::eval,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the subcommands of SCRIPT.
const SCRIPT: Row = Row {
    flags: Flags::NOSCRIPT,
    keys: Keys::None,
    complexity: "O(N) where N is the length of the script.",
    ..RUNS
};

/// Shared fields of the subcommands of FUNCTION.
const FUNCTION: Row = Row {
    arity: -2,
    keys: Keys::Libraries,
    since: "7.0.0",
    complexity: "O(N) where N is the number of functions.",
    syntax: "",
    ..SCRIPT
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "eval",
        summary: "Runs a script.",
        handler: eval::eval,
        treatment: Treatment::of_callee(Callee::Source),
        ..RUNS
    },
    Row {
        name: "eval_ro",
        flags: RUNS.flags.or(Flags::READONLY),
        since: "7.0.0",
        summary: "Runs a script that may not change anything.",
        handler: eval::eval_ro,
        treatment: Treatment::of_callee(Callee::Source),
        ..RUNS
    },
    Row {
        name: "evalsha",
        summary: "Runs a script that is known by its SHA-1.",
        syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        handler: eval::evalsha,
        treatment: Treatment::of_callee(Callee::Sha),
        ..RUNS
    },
    Row {
        name: "evalsha_ro",
        flags: RUNS.flags.or(Flags::READONLY),
        since: "7.0.0",
        summary: "Runs a script that is known by its SHA-1 and may not change anything.",
        syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        handler: eval::evalsha_ro,
        treatment: Treatment::of_callee(Callee::Sha),
        ..RUNS
    },
    Row {
        name: "fcall",
        since: "7.0.0",
        complexity: "That of the function.",
        summary: "Calls a function.",
        syntax: "function numkeys [key [key ...]] [arg [arg ...]]",
        handler: fcall::fcall,
        treatment: Treatment::of_callee(Callee::Function),
        ..RUNS
    },
    Row {
        name: "fcall_ro",
        flags: RUNS.flags.or(Flags::READONLY),
        since: "7.0.0",
        complexity: "That of the function.",
        summary: "Calls a function that changes nothing.",
        syntax: "function numkeys [key [key ...]] [arg [arg ...]]",
        handler: fcall::fcall_ro,
        treatment: Treatment::of_callee(Callee::Function),
        ..RUNS
    },
    Row {
        name: "function",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "7.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for the commands about functions.",
        syntax: "",
        handler: no_subcommand,
        subcommands: &[
            Row {
                name: "function|delete",
                arity: 3,
                flags: FUNCTION.flags.or(Flags::WRITE).or(Flags::AUDITED),
                complexity: "O(N) where N is the number of libraries.",
                summary: "Removes a library and its functions.",
                syntax: "library-name",
                handler: function::delete,
                ..FUNCTION
            },
            Row {
                name: "function|dump",
                arity: 2,
                summary: "Replies with all libraries as a payload for FUNCTION RESTORE.",
                handler: function::dump,
                ..FUNCTION
            },
            Row {
                name: "function|flush",
                flags: FUNCTION.flags.or(Flags::WRITE).or(Flags::AUDITED),
                summary: "Removes all libraries.",
                syntax: "[ASYNC | SYNC]",
                handler: function::flush,
                ..FUNCTION
            },
            Row {
                name: "function|help",
                arity: 2,
                flags: Flags::LOADING.or(Flags::STALE),
                keys: Keys::None,
                complexity: "O(1)",
                summary: "Describes the subcommands.",
                handler: help,
                ..FUNCTION
            },
            Row {
                name: "function|kill",
                arity: 2,
                flags: FUNCTION.flags.or(Flags::STALE).or(Flags::ALLOW_BUSY),
                keys: Keys::None,
                complexity: "O(1)",
                summary: "Ends the function that has run for longest, and undoes its changes.",
                handler: function::kill,
                ..FUNCTION
            },
            Row {
                name: "function|list",
                summary: "Describes libraries and their functions.",
                syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
                handler: function::list,
                ..FUNCTION
            },
            Row {
                name: "function|load",
                arity: -3,
                flags: FUNCTION.flags.or(Flags::WRITE).or(Flags::DENYOOM).or(Flags::AUDITED),
                complexity: "O(N) where N is the length of the library, and the number of libraries.",
                summary: "Keeps a library of functions.",
                syntax: "[REPLACE] function-code",
                handler: function::load,
                ..FUNCTION
            },
            Row {
                name: "function|restore",
                arity: -3,
                flags: FUNCTION.flags.or(Flags::WRITE).or(Flags::DENYOOM).or(Flags::AUDITED),
                complexity: "O(N) where N is the length of the payload, and the number of libraries.",
                summary: "Keeps the libraries of a payload of FUNCTION DUMP.",
                syntax: "serialized-value [FLUSH | APPEND | REPLACE]",
                handler: function::restore,
                ..FUNCTION
            },
            Row {
                name: "function|stats",
                arity: 2,
                flags: FUNCTION.flags.or(Flags::STALE).or(Flags::ALLOW_BUSY),
                keys: Keys::None,
                complexity: "O(1)",
                summary: "Shows the function that has run for longest, and counts libraries and functions.",
                handler: function::stats,
                ..FUNCTION
            },
        ],
        ..FUNCTION
    },
    Row {
        name: "script",
        arity: -2,
        flags: Flags::CONTAINER,
        complexity: "Depends on subcommand.",
        summary: "A container for the commands about scripts.",
        syntax: "",
        handler: no_subcommand,
        subcommands: &[
            Row {
                name: "script|debug",
                arity: 3,
                since: "3.2.0",
                complexity: "O(1)",
                summary: "Accepted for clients that send it; scripts are not debugged here.",
                syntax: "<YES | SYNC | NO>",
                handler: script::debug,
                ..SCRIPT
            },
            Row {
                name: "script|exists",
                arity: -3,
                summary: "Tells of each SHA-1 whether its script is known.",
                syntax: "sha1 [sha1 ...]",
                handler: script::exists,
                ..SCRIPT
            },
            Row {
                name: "script|flush",
                arity: -2,
                summary: "Forgets all scripts.",
                syntax: "[ASYNC | SYNC]",
                handler: script::flush,
                ..SCRIPT
            },
            Row {
                name: "script|help",
                arity: 2,
                flags: Flags::LOADING.or(Flags::STALE),
                since: "5.0.0",
                complexity: "O(1)",
                summary: "Describes the subcommands.",
                syntax: "",
                handler: help,
                ..SCRIPT
            },
            Row {
                name: "script|kill",
                arity: 2,
                flags: SCRIPT.flags.or(Flags::ALLOW_BUSY),
                complexity: "O(1)",
                summary: "Ends the script that has run for longest, and undoes its changes.",
                syntax: "",
                handler: script::kill,
                ..SCRIPT
            },
            Row {
                name: "script|load",
                arity: 3,
                flags: SCRIPT.flags.or(Flags::STALE),
                summary: "Keeps a script, to be called by its SHA-1.",
                syntax: "script",
                handler: script::load,
                ..SCRIPT
            },
            Row {
                name: "script|show",
                arity: 3,
                since: "8.0.0",
                summary: "Shows the source of a script.",
                syntax: "sha1",
                handler: script::show,
                ..SCRIPT
            },
        ],
        ..SCRIPT
    },
];
