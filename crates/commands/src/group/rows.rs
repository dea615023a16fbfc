//! The rows of GROUP.

use engine::{Family, Flags, Keys, Needs, Row, Treatment, row::ConnectionNeed};

use super::{change, show};
use crate::help::{help, no_subcommand};

/// For administrators, but not in scripts. Allowed at any time, because a member that still loads its data
/// takes part in its group.
const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::LOADING);
/// As [`ADMIN`], for changes that a person asks for. The client waits for the group's answer, so transactions
/// cannot contain them. While the server loads, only for clients that have logged in.
const CHANGE: Flags = ADMIN.or(Flags::NO_MULTI).or(Flags::GUARDED).or(Flags::AUDITED);
/// Commands between members. Transactions cannot contain them: the sender waits for the group's answer, or
/// the connection changes hands.
const BETWEEN: Flags = ADMIN.or(Flags::NO_MULTI).or(Flags::BETWEEN_SERVERS);

const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: ADMIN,
    keys: Keys::None,
    family: Family::Server,
    since: "7.2.4",
    complexity: "O(N) where N is the number of members.",
    summary: "",
    syntax: "",
    handler: no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[Row {
    name: "group",
    arity: -2,
    flags: Flags::CONTAINER,
    complexity: "Depends on the subcommand.",
    summary: "Shows and changes the group of servers that this one is a member of.",
    subcommands: &SUBCOMMANDS,
    ..ROW
}];

const SUBCOMMANDS: [Row; 7] = [
    Row {
        name: "group|help",
        flags: Flags::LOADING.or(Flags::STALE),
        complexity: "O(1)",
        summary: "Describes the subcommands.",
        handler: help,
        ..ROW
    },
    Row {
        name: "group|info",
        summary: "Tells the name, the term and the leader of the group.",
        handler: show::info,
        ..ROW
    },
    Row {
        name: "group|join",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        arity: -8,
        flags: BETWEEN.or(Flags::AUDITED),
        summary: "Adds a server as a learner; sent by that server, not by clients.",
        syntax: "version group id host port http-port [WITNESS]",
        handler: change::join,
        ..ROW
    },
    Row { name: "group|members", summary: "Lists the members of the group.", handler: show::members, ..ROW },
    Row {
        name: "group|peer",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        arity: 6,
        flags: BETWEEN,
        complexity: "O(1)",
        summary: "What a connection between members begins with; not for clients.",
        syntax: "version group-id from-id to-id",
        handler: change::peer,
        ..ROW
    },
    Row {
        name: "group|remove",
        arity: -3,
        flags: CHANGE,
        summary: "Removes a member, unless too few others answer.",
        syntax: "id [FORCE]",
        handler: change::remove,
        ..ROW
    },
    Row {
        name: "group|transfer",
        arity: -2,
        flags: CHANGE,
        summary: "Hands the lead over to a member, or to the voter with the most log.",
        syntax: "[id]",
        handler: change::transfer,
        ..ROW
    },
];
