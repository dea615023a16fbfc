//! The rows of the commands on replication.

use access::Category;
use engine::{Family, Flags, Keys, Needs, Row, Treatment, row::ConnectionNeed};

use super::{follow, psync, wait};
use crate::help::no_subcommand;

/// For administrators, also on a stale replica, but not while the server loads, and not in scripts.
const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE);

const ROW: Row = Row {
    name: "",
    arity: 1,
    flags: ADMIN,
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

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "failover",
        arity: -1,
        flags: ADMIN.or(Flags::AUDITED),
        since: "6.2.0",
        summary: "Hands over to a replica, without losing anything.",
        syntax: "[TO <host port> [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        handler: follow::failover,
        ..ROW
    },
    Row {
        name: "psync",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        arity: -3,
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::AUDITED),
        since: "2.8.0",
        summary: "What a replica that is a Redis server begins with; not for clients.",
        syntax: "replicationid offset",
        handler: psync::psync,
        ..ROW
    },
    Row {
        name: "replconf",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        arity: -1,
        flags: ADMIN.or(Flags::LOADING).or(Flags::ALLOW_BUSY),
        since: "3.0.0",
        summary: "What a replica that is a Redis server says of itself; not for clients.",
        syntax: "[option value [option value ...]]",
        handler: psync::replconf,
        ..ROW
    },
    Row {
        name: "replicaof",
        arity: 3,
        // BETWEEN_SERVERS: with `REPLICAOF NO ONE`, a leader that hands the lead over tells the replica to
        // lead.
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::BETWEEN_SERVERS).or(Flags::AUDITED),
        since: "5.0.0",
        summary: "Has the server follow another, or lead.",
        syntax: "<host port | NO ONE>",
        handler: follow::replicaof,
        ..ROW
    },
    Row {
        name: "replicate",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        arity: -2,
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::BETWEEN_SERVERS).or(Flags::AUDITED),
        since: "7.2.0",
        summary: "What a replica begins with; not for clients.",
        syntax: "<version log-id epoch end chain port replica-id | MARKS end chain [end chain ...]>",
        handler: follow::replicate,
        ..ROW
    },
    Row {
        name: "role",
        needs: Needs::BY_FLAGS.with(&[Category::Admin, Category::Dangerous]),
        flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
        since: "2.8.12",
        summary: "Tells whether the server leads or follows, and whom.",
        handler: follow::role,
        ..ROW
    },
    Row {
        name: "slaveof",
        arity: 3,
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::AUDITED),
        summary: "The older name of REPLICAOF.",
        syntax: "<host port | NO ONE>",
        handler: follow::replicaof,
        ..ROW
    },
    Row {
        name: "sync",
        treatment: Treatment::of_connection(ConnectionNeed::Server),
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::AUDITED),
        summary: "The older form of PSYNC; not for clients.",
        handler: psync::sync,
        ..ROW
    },
    Row {
        name: "wait",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]).without(&[Category::Keyspace]),
        arity: 3,
        flags: Flags::BLOCKING,
        family: Family::Generic,
        since: "3.0.0",
        summary: "Waits until the writes of the client are on the disks of replicas.",
        syntax: "numreplicas timeout",
        handler: wait::wait,
        ..ROW
    },
    Row {
        name: "waitaof",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]).without(&[Category::Keyspace]),
        arity: 4,
        flags: Flags::BLOCKING,
        family: Family::Generic,
        since: "7.2.0",
        summary: "Waits until the writes of the client are on the disks of this server and of replicas.",
        syntax: "numlocal numreplicas timeout",
        handler: wait::waitaof,
        ..ROW
    },
    Row {
        name: "waitlsn",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]).without(&[Category::Keyspace]),
        arity: 3,
        flags: Flags::BLOCKING.or(Flags::STALE),
        family: Family::Generic,
        since: "7.2.0",
        summary: "Waits until the server shows all writes up to a position of the log.",
        syntax: "lsn timeout",
        handler: wait::waitlsn,
        ..ROW
    },
];
