//! The rows of CLUSTER.

use access::Category;
use engine::{Family, Flags, Keys, Needs, Row, Treatment};

use crate::help::{help, no_subcommand};

/// Allowed at any time: clients ask for the leader when they have lost it.
const ALWAYS: Flags = Flags::LOADING.or(Flags::STALE);

const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: ALWAYS,
    keys: Keys::None,
    family: Family::Server,
    since: "3.0.0",
    complexity: "O(N) where N is the number of nodes.",
    summary: "",
    syntax: "",
    handler: no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[Row {
    name: "cluster",
    arity: -2,
    flags: Flags::CONTAINER,
    complexity: "Depends on the subcommand.",
    summary: "Shows the servers of a group as a cluster of one shard.",
    subcommands: &SUBCOMMANDS,
    ..ROW
}];

const SUBCOMMANDS: [Row; 9] = [
    Row {
        name: "cluster|countkeysinslot",
        needs: Needs::BY_FLAGS.without(&[Category::Keyspace, Category::Read]),
        arity: 3,
        flags: Flags::READONLY.or(Flags::READS_ALL),
        complexity: "O(N) where N is the number of keys in the slot.",
        summary: "Counts the keys in a slot.",
        syntax: "slot",
        handler: super::countkeysinslot,
        ..ROW
    },
    Row {
        name: "cluster|getkeysinslot",
        needs: Needs::BY_FLAGS.without(&[Category::Keyspace, Category::Read]),
        arity: 4,
        flags: Flags::READONLY.or(Flags::READS_ALL),
        complexity: "O(N) where N is the number of keys.",
        summary: "Replies with keys in a slot.",
        syntax: "slot count",
        handler: super::getkeysinslot,
        ..ROW
    },
    Row {
        name: "cluster|help",
        since: "5.0.0",
        complexity: "O(1)",
        summary: "Describes the subcommands.",
        handler: help,
        ..ROW
    },
    Row { name: "cluster|info", summary: "Tells the state of the cluster.", handler: super::info, ..ROW },
    Row {
        name: "cluster|keyslot",
        arity: 3,
        complexity: "O(N) where N is the length of the key.",
        summary: "Tells the slot of a key.",
        syntax: "key",
        handler: super::keyslot,
        ..ROW
    },
    Row { name: "cluster|myid", summary: "Tells the id of this node.", handler: super::myid, ..ROW },
    Row { name: "cluster|nodes", summary: "Lists the nodes, as text.", handler: super::list, ..ROW },
    Row {
        name: "cluster|shards",
        since: "7.0.0",
        summary: "Lists the nodes of the one shard.",
        handler: super::shards,
        ..ROW
    },
    Row {
        name: "cluster|slots",
        summary: "Lists the servers of all slots, the leader first.",
        handler: super::slots,
        ..ROW
    },
];
