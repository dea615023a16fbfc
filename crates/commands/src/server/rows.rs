//! The rows of the commands on the server.

use access::Category;
use engine::{
    Family, Flags, Keys, Needs, Row, Treatment,
    row::{ConnectionNeed, Mobility},
};

use super::{
    command, commandlog, config, databases, debug, hotkeys, latency, lolwut, memory, module, monitor,
    process, slowlog,
};
use crate::help::{help, no_subcommand};

/// Allowed at any time, also while loading or stale.
pub(super) const ALWAYS: Flags = Flags::LOADING.or(Flags::STALE);
/// For administrators, at any time, but not in scripts; while the server loads, only for clients that have
/// logged in.
pub(super) const ADMIN: Flags = ALWAYS.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::GUARDED);
/// For administrators; neither while the server loads, nor on a stale replica, nor in scripts.
const SAVE: Flags = Flags::ADMIN.or(Flags::NOSCRIPT);
/// SHUTDOWN is for administrators at any time, also before the users are known.
const STOP: Flags =
    ALWAYS.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::NO_MULTI).or(Flags::ALLOW_BUSY).or(Flags::AUDITED);

/// Shared fields of the rows.
pub(super) const ROW: Row = Row {
    name: "",
    arity: 1,
    flags: ALWAYS,
    keys: Keys::None,
    family: Family::Server,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// The row of HELP, except for its name.
pub(super) const HELP: Row =
    Row { arity: 2, since: "5.0.0", summary: "Describes the subcommands.", handler: help, ..ROW };

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "bgrewriteaof",
        flags: SAVE,
        complexity: "O(1); the snapshot is taken aside.",
        summary: "Begins a snapshot, after which the log before it can be removed.",
        handler: process::bgrewriteaof,
        ..ROW
    },
    Row {
        name: "bgsave",
        arity: -1,
        flags: SAVE,
        complexity: "O(1); the snapshot is taken aside.",
        summary: "Begins a snapshot, or gives one up.",
        syntax: "[SCHEDULE | CANCEL]",
        handler: process::bgsave,
        ..ROW
    },
    Row {
        name: "command",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -1,
        flags: ALWAYS.or(Flags::CONTAINER),
        since: "2.8.13",
        complexity: "O(N) where N is the number of commands.",
        summary: "Describes all commands.",
        handler: command::command,
        subcommands: &command::ROWS,
        ..ROW
    },
    Row {
        name: "commandlog",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "8.1.0",
        complexity: "Depends on the subcommand.",
        summary: "Shows the commands that took long, under the name that Valkey gives to SLOWLOG.",
        subcommands: &commandlog::ROWS,
        ..ROW
    },
    Row {
        name: "config",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "2.0.0",
        complexity: "Depends on the subcommand.",
        summary: "Shows and changes the settings of the server.",
        subcommands: &config::ROWS,
        ..ROW
    },
    Row {
        name: "dbsize",
        flags: Flags::READONLY.or(Flags::FAST).or(Flags::READS_ALL),
        summary: "Counts the keys of the selected database.",
        handler: databases::dbsize,
        ..ROW
    },
    Row {
        name: "debug",
        needs: Needs::BY_FLAGS.with(&[Category::Admin, Category::Dangerous]),
        arity: -2,
        flags: Flags::CONTAINER,
        complexity: "Depends on the subcommand.",
        summary: "Helps to test clients.",
        subcommands: &debug::ROWS,
        ..ROW
    },
    Row {
        name: "flushall",
        arity: -1,
        // FLUSHALL copies the libraries and the settings of the data into its record.
        flags: Flags::WRITE.or(Flags::DANGEROUS).or(Flags::COPIES).or(Flags::FLUSHES).or(Flags::AUDITED),
        keys: Keys::AllSlots,
        complexity: "O(1) while commands wait; memory is freed aside.",
        summary: "Removes all keys of all databases.",
        syntax: "[ASYNC | SYNC]",
        handler: databases::flushall,
        ..ROW
    },
    Row {
        name: "flushdb",
        arity: -1,
        flags: Flags::WRITE.or(Flags::DANGEROUS).or(Flags::FLUSHES).or(Flags::AUDITED),
        keys: Keys::AllSlots,
        complexity: "O(1) while commands wait; memory is freed aside.",
        summary: "Removes all keys of the selected database.",
        syntax: "[ASYNC | SYNC]",
        handler: databases::flushdb,
        ..ROW
    },
    Row {
        name: "hotkeys",
        needs: Needs::BY_FLAGS.without(&[Category::Keyspace]),
        arity: -1,
        flags: Flags::READONLY.or(Flags::READS_ALL).or(Flags::ADMIN).or(Flags::NOSCRIPT),
        since: "7.2.0",
        complexity: "O(N) where N is the number of workers; the commands that are counted pay nothing more.",
        summary: "Names the keys that are used most in the last seconds, from a sample of 1 in 64 commands: key, \
                  database, accesses per second, share of all accesses, type.",
        syntax: "[COUNT count]",
        handler: hotkeys::hotkeys,
        ..ROW
    },
    Row {
        name: "info",
        arity: -1,
        flags: ALWAYS.or(Flags::DANGEROUS),
        summary: "Describes the state of the server.",
        syntax: "[section [section ...]]",
        handler: process::info,
        ..ROW
    },
    Row {
        name: "lastsave",
        needs: Needs::BY_FLAGS.with(&[Category::Admin]),
        flags: ALWAYS.or(Flags::FAST).or(Flags::DANGEROUS),
        summary: "Replies with the unix time of the newest snapshot.",
        handler: process::lastsave,
        ..ROW
    },
    Row {
        name: "latency",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "2.8.13",
        complexity: "Depends on the subcommand.",
        summary: "Shows how long things take.",
        subcommands: &latency::ROWS,
        ..ROW
    },
    Row {
        name: "lolwut",
        arity: -1,
        flags: Flags::READONLY.or(Flags::FAST),
        needs: Needs::BY_FLAGS.without(&[Category::Keyspace]),
        since: "5.0.0",
        summary: "Draws a sheaf, and tells the version.",
        syntax: "[VERSION version]",
        handler: lolwut::lolwut,
        ..ROW
    },
    Row {
        name: "memory",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "4.0.0",
        complexity: "Depends on the subcommand.",
        summary: "Shows where memory goes.",
        subcommands: &memory::ROWS,
        ..ROW
    },
    Row {
        name: "module",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "4.0.0",
        complexity: "Depends on the subcommand.",
        summary: "Tells that there are no modules.",
        subcommands: &module::ROWS,
        ..ROW
    },
    Row {
        name: "monitor",
        treatment: Treatment::of_connection(ConnectionNeed::Messages),
        flags: ADMIN.or(Flags::AUDITED),
        summary: "Shows this connection every command that the server executes.",
        handler: monitor::monitor,
        ..ROW
    },
    Row {
        name: "save",
        flags: SAVE.or(Flags::NO_MULTI),
        complexity: "O(N) where N is the number of keys; the snapshot is taken aside, and only this client waits.",
        summary: "Takes a snapshot and replies when it is taken.",
        handler: process::save,
        ..ROW
    },
    Row {
        name: "shutdown",
        arity: -1,
        // Without the flag GUARDED, so that a server without `requirepass` can be stopped also while it
        // loads.
        flags: STOP,
        complexity: "O(N) where N is the number of bytes not yet durable.",
        summary: "Stops the server once everything written is durable.",
        syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        handler: process::shutdown,
        ..ROW
    },
    Row {
        name: "slowlog",
        arity: -2,
        flags: Flags::CONTAINER,
        since: "2.2.12",
        complexity: "Depends on the subcommand.",
        summary: "Shows the commands that took long.",
        subcommands: &slowlog::ROWS,
        ..ROW
    },
    Row {
        name: "swapdb",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST).or(Flags::DANGEROUS).or(Flags::AUDITED),
        keys: Keys::AllSlots,
        since: "4.0.0",
        summary: "Exchanges the content of two databases.",
        syntax: "index1 index2",
        handler: databases::swapdb,
        ..ROW
    },
    Row {
        name: "time",
        treatment: Treatment::of_mobility(Mobility::AtAnyTime),
        flags: ALWAYS.or(Flags::FAST),
        since: "2.6.0",
        summary: "Replies with the unix time: seconds, and microseconds of the second.",
        handler: process::time,
        ..ROW
    },
];
