//! The rows of the commands on the connection.

use access::Category;
use engine::{
    Family, Flags, Keys, Needs, Row, Treatment,
    row::{ConnectionNeed, Mobility},
};

use super::{client, greeting};
use crate::help::no_subcommand;

/// Allowed at any time, also while loading or stale.
pub(super) const ALWAYS: Flags = Flags::LOADING.or(Flags::STALE);
/// Allowed at any time, but not in scripts.
pub(super) const SESSION: Flags = ALWAYS.or(Flags::NOSCRIPT);
/// Allowed at any time, also before authentication, but not in scripts.
const GREETING: Flags = SESSION.or(Flags::FAST).or(Flags::NO_AUTH).or(Flags::ALLOW_BUSY);

/// Shared fields of the rows.
pub(super) const ROW: Row = Row {
    name: "",
    arity: 1,
    flags: SESSION,
    keys: Keys::None,
    family: Family::Connection,
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
        name: "asking",
        flags: Flags::FAST,
        since: "3.0.0",
        summary: "Lets a client of a cluster use a slot that is on its way; here none ever is.",
        handler: greeting::asking,
        ..ROW
    },
    Row {
        name: "auth",
        treatment: Treatment {
            is_secret: |_, index| index > 0,
            ..Treatment::of_connection(ConnectionNeed::State)
        },
        arity: -2,
        flags: GREETING.or(Flags::BETWEEN_SERVERS),
        summary: "Authenticates the client.",
        syntax: "[username] password",
        handler: greeting::auth,
        ..ROW
    },
    Row {
        name: "client",
        needs: Needs::BY_FLAGS.without(&[Category::Connection]),
        arity: -2,
        flags: Flags::CONTAINER,
        since: "2.4.0",
        complexity: "Depends on the subcommand.",
        summary: "Works with the connected clients.",
        subcommands: &client::ROWS,
        ..ROW
    },
    Row {
        name: "echo",
        treatment: Treatment::of_mobility(Mobility::AtAnyTime),
        arity: 2,
        flags: ALWAYS.or(Flags::FAST),
        summary: "Replies with its argument.",
        syntax: "message",
        handler: greeting::echo,
        ..ROW
    },
    Row {
        name: "hello",
        treatment: Treatment {
            mobility: Some(Mobility::Never),
            is_secret: greeting::is_secret_of_hello,
            ..Treatment::of_connection(ConnectionNeed::State)
        },
        arity: -1,
        flags: GREETING,
        since: "6.0.0",
        summary: "Agrees on the protocol, and tells client and server about each other.",
        syntax: "[protover [AUTH username password] [SETNAME clientname]]",
        handler: greeting::hello,
        ..ROW
    },
    Row {
        name: "ping",
        treatment: Treatment {
            mobility: Some(Mobility::AtAnyTime),
            asks_for_life: true,
            ..Treatment::DEFAULT
        },
        arity: -1,
        flags: Flags::FAST.or(Flags::SUBSCRIBER),
        summary: "Replies with PONG, or with its argument.",
        syntax: "[message]",
        handler: greeting::ping,
        ..ROW
    },
    Row {
        name: "quit",
        treatment: Treatment::of_connection(ConnectionNeed::State),
        arity: -1,
        flags: GREETING.or(Flags::IMMEDIATE).or(Flags::SUBSCRIBER),
        summary: "Closes the connection once all replies are sent.",
        handler: greeting::quit,
        ..ROW
    },
    Row {
        name: "readonly",
        flags: ALWAYS.or(Flags::FAST),
        since: "3.0.0",
        summary: "Lets a client of a cluster read from a replica.",
        handler: greeting::readonly,
        ..ROW
    },
    Row {
        name: "readwrite",
        flags: ALWAYS.or(Flags::FAST),
        since: "3.0.0",
        summary: "Sends a client of a cluster to the leader again, also for reads.",
        handler: greeting::readwrite,
        ..ROW
    },
    Row {
        name: "reset",
        treatment: Treatment {
            mobility: Some(Mobility::Never),
            ..Treatment::of_connection(ConnectionNeed::State)
        },
        flags: GREETING.or(Flags::IMMEDIATE).or(Flags::SUBSCRIBER),
        since: "6.2.0",
        summary: "Puts the connection into the state of a new one.",
        handler: greeting::reset,
        ..ROW
    },
    Row {
        name: "select",
        treatment: Treatment::of_mobility(Mobility::AtAnyTime),
        arity: 2,
        flags: ALWAYS.or(Flags::FAST),
        summary: "Selects the database that commands work on.",
        syntax: "index",
        handler: greeting::select,
        ..ROW
    },
];
