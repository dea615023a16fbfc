//! The rows of SENTINEL in the table of commands. The subcommands that would configure a Sentinel have rows
//! too, and are refused.

use engine::{Family, Flags, Keys, Needs, Row, Treatment};

use crate::help::{help, no_subcommand};

/// For administrators, but not in scripts. Allowed at any time, because a member that still loads its data
/// can know who leads.
const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::LOADING);

const ROW: Row = Row {
    name: "",
    arity: 3,
    flags: ADMIN,
    keys: Keys::None,
    family: Family::Server,
    since: "2.8.4",
    complexity: "O(N) where N is the number of members.",
    summary: "",
    syntax: "master-name",
    handler: no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the rows of commands that would configure a Sentinel.
const CONFIGURE: Row = Row {
    complexity: "O(1)",
    summary: "Refused: the group manages itself.",
    handler: super::configure,
    ..ROW
};

pub(crate) const ROWS: &[Row] = &[Row {
    name: "sentinel",
    arity: -2,
    flags: Flags::CONTAINER,
    complexity: "Depends on the subcommand.",
    summary: "Shows the group to clients that know Redis Sentinel.",
    syntax: "",
    subcommands: &SUBCOMMANDS,
    ..ROW
}];

const SUBCOMMANDS: [Row; 15] = [
    Row {
        name: "sentinel|ckquorum",
        summary: "Tells whether enough voters can be reached to elect a leader.",
        handler: super::ckquorum,
        ..ROW
    },
    Row {
        name: "sentinel|failover",
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::GUARDED).or(Flags::AUDITED),
        summary: "Hands the lead over to the voter with the most log.",
        handler: super::failover,
        ..ROW
    },
    Row { name: "sentinel|flushconfig", arity: 2, syntax: "", ..CONFIGURE },
    Row {
        name: "sentinel|get-master-addr-by-name",
        summary: "Tells the address of the leader, or null if none is known.",
        handler: super::get_master_addr_by_name,
        ..ROW
    },
    Row {
        name: "sentinel|help",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE),
        complexity: "O(1)",
        summary: "Describes the subcommands.",
        syntax: "",
        handler: help,
        ..ROW
    },
    Row {
        name: "sentinel|master",
        summary: "Describes the leader as a master.",
        handler: super::master,
        ..ROW
    },
    Row {
        name: "sentinel|masters",
        arity: 2,
        summary: "Describes the leader as the only master, or no master if none is known.",
        syntax: "",
        handler: super::masters,
        ..ROW
    },
    Row { name: "sentinel|monitor", arity: 6, syntax: "name ip port quorum", ..CONFIGURE },
    Row {
        name: "sentinel|myid",
        arity: 2,
        summary: "Tells the id of this member, padded with zeros.",
        syntax: "",
        handler: super::myid,
        ..ROW
    },
    Row { name: "sentinel|remove", ..CONFIGURE },
    Row {
        name: "sentinel|replicas",
        since: "5.0.0",
        summary: "Describes the members that do not lead as replicas.",
        handler: super::replicas,
        ..ROW
    },
    Row {
        name: "sentinel|reset",
        summary: "Counts the masters that match; there is nothing to reset.",
        syntax: "pattern",
        handler: super::reset,
        ..ROW
    },
    Row {
        name: "sentinel|sentinels",
        summary: "Describes the other members as sentinels.",
        handler: super::sentinels,
        ..ROW
    },
    Row {
        name: "sentinel|set",
        arity: -5,
        syntax: "master-name option value [option value ...]",
        // SENTINEL SET is refused, but its values may be passwords of another group.
        treatment: Treatment::of_secrets(|_, index| index >= 4 && index % 2 == 0),
        ..CONFIGURE
    },
    Row {
        name: "sentinel|slaves",
        summary: "The older name of SENTINEL REPLICAS.",
        handler: super::replicas,
        ..ROW
    },
];
