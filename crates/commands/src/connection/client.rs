//! The subcommands of CLIENT.

use engine::{CommandError, Context, Flags, Row, Treatment, clients::Paused, row::ConnectionNeed};
use wire::{Args, number::parse_i64};

use super::{ALWAYS, ROW, SESSION, attributes, list, tracking};
use crate::help::help;

/// For administrators, at any time, but not in scripts; while the server loads, only for clients that have
/// logged in.
const ADMIN: Flags = SESSION.or(Flags::ADMIN).or(Flags::GUARDED);

pub(super) const ROWS: [Row; 22] = [
    Row {
        name: "client|caching",
        treatment: Treatment::of_connection(ConnectionNeed::State),
        arity: 3,
        since: "6.0.0",
        summary: "Says whether the keys that the next command reads are tracked.",
        syntax: "<YES | NO>",
        handler: tracking::caching,
        ..ROW
    },
    Row {
        name: "client|capa",
        arity: -3,
        since: "8.0.0",
        summary: "Says what this client can do: REDIRECT.",
        syntax: "capability [capability ...]",
        handler: attributes::capabilities,
        ..ROW
    },
    Row {
        name: "client|durability",
        arity: -2,
        summary: "Shows which durability holds for this connection, or asks for less than the server's.",
        syntax: "[STRICT | COMMIT | INTERVAL | NONE | DEFAULT]",
        since: "7.2.0",
        handler: attributes::durability,
        ..ROW
    },
    Row {
        name: "client|getname",
        arity: 2,
        since: "2.6.9",
        summary: "Replies with the name of this connection.",
        handler: attributes::get_name,
        ..ROW
    },
    Row {
        name: "client|getredir",
        arity: 2,
        since: "6.0.0",
        summary: "Replies with the client that receives the invalidations of this one: 0 for itself, -1 without tracking.",
        handler: tracking::get_redirection,
        ..ROW
    },
    Row {
        name: "client|help",
        arity: 2,
        flags: ALWAYS,
        since: "5.0.0",
        summary: "Describes the subcommands.",
        handler: help,
        ..ROW
    },
    Row {
        name: "client|id",
        arity: 2,
        since: "5.0.0",
        summary: "Replies with the number of this connection.",
        handler: id,
        ..ROW
    },
    Row {
        name: "client|import-source",
        arity: 3,
        flags: ADMIN,
        since: "8.1.0",
        summary: "Marks this connection as a copy of another server, which alone decides about expiry.",
        syntax: "<ON | OFF>",
        handler: attributes::import_source,
        ..ROW
    },
    Row {
        name: "client|info",
        arity: 2,
        since: "6.2.0",
        summary: "Describes this connection, as CLIENT LIST does.",
        handler: list::info,
        ..ROW
    },
    Row {
        name: "client|kill",
        arity: -3,
        flags: ADMIN.or(Flags::AUDITED),
        since: "2.4.0",
        complexity: "O(N) where N is the number of clients.",
        summary: "Closes connections.",
        syntax: "<ip:port | [ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [USER username] \
                 [ADDR ip:port] [LADDR ip:port] [IP ip] [NAME name] [LIB-NAME libname] [LIB-VER libver] [FLAGS flags] \
                 [CAPA capa] [DB db] [MAXAGE maxage] [IDLE idle] [SKIPME <YES | NO>]>",
        handler: list::kill,
        ..ROW
    },
    Row {
        name: "client|list",
        arity: -2,
        flags: ADMIN,
        since: "2.4.0",
        complexity: "O(N) where N is the number of clients.",
        summary: "Describes the connections, one a line.",
        syntax: "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]] [USER username] [ADDR ip:port] \
                 [LADDR ip:port] [IP ip] [NAME name] [LIB-NAME libname] [LIB-VER libver] [FLAGS flags] [CAPA capa] \
                 [DB db] [MAXAGE maxage] [IDLE idle] [SKIPME <YES | NO>]",
        handler: list::list,
        ..ROW
    },
    Row {
        name: "client|lsn",
        arity: -2,
        since: "7.2.0",
        summary: "Tells the position of the last write of this connection, or has every reply tell it.",
        syntax: "[ON | OFF]",
        handler: attributes::lsn,
        ..ROW
    },
    Row {
        name: "client|no-evict",
        arity: 3,
        flags: ADMIN,
        since: "7.0.0",
        summary: "Says whether this connection may be closed to save memory.",
        syntax: "<ON | OFF>",
        handler: attributes::no_evict,
        ..ROW
    },
    Row {
        name: "client|no-touch",
        arity: 3,
        since: "7.2.0",
        summary: "Says whether reads of this connection count as use of the keys.",
        syntax: "<ON | OFF>",
        handler: attributes::no_touch,
        ..ROW
    },
    Row {
        name: "client|pause",
        arity: -3,
        flags: ADMIN.or(Flags::AUDITED),
        since: "3.0.0",
        summary: "Lets the commands of clients wait for some milliseconds: all, or those that write.",
        syntax: "timeout [WRITE | ALL]",
        handler: pause,
        ..ROW
    },
    Row {
        name: "client|reply",
        treatment: Treatment::of_connection(ConnectionNeed::State),
        arity: 3,
        since: "3.2.0",
        summary: "Turns replies to this connection on, off, or off for the next command.",
        syntax: "<ON | OFF | SKIP>",
        handler: attributes::reply,
        ..ROW
    },
    Row {
        name: "client|setinfo",
        arity: 4,
        since: "7.2.0",
        summary: "Says which library the client uses.",
        syntax: "<LIB-NAME libname | LIB-VER libver>",
        handler: attributes::set_info,
        ..ROW
    },
    Row {
        name: "client|setname",
        arity: 3,
        since: "2.6.9",
        summary: "Names this connection.",
        syntax: "connection-name",
        handler: attributes::set_name,
        ..ROW
    },
    Row {
        name: "client|tracking",
        treatment: Treatment::of_connection(ConnectionNeed::State),
        arity: -3,
        since: "6.0.0",
        summary: "Tells this connection, or another one, when what it has read changes.",
        syntax: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
        handler: tracking::tracking,
        ..ROW
    },
    Row {
        name: "client|trackinginfo",
        arity: 2,
        since: "6.2.0",
        summary: "Shows how this connection tracks what it reads.",
        handler: tracking::info,
        ..ROW
    },
    Row {
        name: "client|unblock",
        arity: -3,
        flags: ADMIN,
        since: "5.0.0",
        complexity: "O(log N) where N is the number of clients.",
        summary: "Wakes a client that is blocked in a command.",
        syntax: "client-id [TIMEOUT | ERROR]",
        handler: unblock,
        ..ROW
    },
    Row {
        name: "client|unpause",
        treatment: Treatment { is_never_paused: true, ..Treatment::DEFAULT },
        arity: 2,
        flags: ADMIN,
        since: "6.2.0",
        summary: "Ends a pause of clients.",
        handler: unpause,
        ..ROW
    },
];

/// `CLIENT PAUSE timeout [WRITE | ALL]`
fn pause(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let paused = match args.get(3) {
        None => Paused::All,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => Paused::All,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => Paused::Writes,
        Some(_) => return Err(CommandError::Text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms =
        parse_i64(args.at(2)).ok_or(CommandError::Text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| CommandError::Text("ERR timeout is negative"))?;
    // As in Redis, the end of the pause in unix milliseconds must fit a signed number of 64 bits.
    cx.now_ms()
        .checked_add(timeout_ms)
        .filter(|ends_ms| i64::try_from(*ends_ms).is_ok())
        .ok_or(CommandError::Text("ERR timeout is out of range"))?;
    cx.host.clients.pause().begin(paused, timeout_ms, &*cx.host.clock);
    cx.reply.ok();
    Ok(())
}

/// `CLIENT UNPAUSE`
fn unpause(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.host.clients.pause().end();
    cx.reply.ok();
    Ok(())
}

/// `CLIENT ID`
fn id(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.integer(cx.session.client.id() as i64);
    Ok(())
}

/// `CLIENT UNBLOCK client-id [TIMEOUT | ERROR]`
fn unblock(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(CommandError::WrongArity("client|unblock"));
    }
    let with_error = match args.get(3) {
        None => false,
        Some(reason) if reason.eq_ignore_ascii_case(b"timeout") => false,
        Some(reason) if reason.eq_ignore_ascii_case(b"error") => true,
        Some(_) => return Err(CommandError::Text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let client = u64::try_from(id).ok().and_then(|id| cx.host.clients.find(id));
    let is_woken = client.is_some_and(|client| match (client.waiter(), with_error) {
        (Some(waiter), true) => waiter.wake_with(&CommandError::UnblockedByClient, cx.host, cx.unit.stats()),
        (Some(waiter), false) => waiter.wake(cx.host),
        (None, _) => cx.host.replication.unblock(client.id(), with_error),
    });
    cx.reply.integer(is_woken.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::clients::{Pause, Paused};

    use crate::testing::{TestServer, check};

    #[test]
    fn a_pause_is_of_writes_or_of_all() {
        let mut server = TestServer::new();
        server.check(&[
            ("client pause x", "-ERR timeout is not an integer or out of range"),
            ("client pause -1", "-ERR timeout is negative"),
            ("client pause 9223372036854775807", "-ERR timeout is out of range"),
            ("client pause 10 some", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
            ("client pause", "-ERR wrong number of arguments for 'client|pause' command"),
            ("client unpause x", "-ERR wrong number of arguments for 'client|unpause' command"),
            ("client pause 500 write", "+OK"),
        ]);
        let pause = server.host.clients.pause().at(&*server.host);
        assert_eq!(pause, Some(Pause { paused: Paused::Writes, left_ms: 500 }));
        server.check(&[("client pause 100", "+OK")]);
        let pause = server.host.clients.pause().at(&*server.host);
        assert_eq!(pause, Some(Pause { paused: Paused::All, left_ms: 500 }));
        server.check(&[("client unpause", "+OK")]);
        assert_eq!(server.host.clients.pause().at(&*server.host), None);
    }

    #[test]
    fn client_id_and_getredir_reply_with_numbers() {
        check(&[
            ("client id", ":1"),
            ("CLIENT ID", ":1"),
            ("client id x", "-ERR wrong number of arguments for 'client|id' command"),
            ("client getredir", ":-1"),
            ("client help x", "-ERR wrong number of arguments for 'client|help' command"),
        ]);
    }

    #[test]
    fn unblock_leaves_clients_alone_that_are_not_blocked() {
        check(&[
            ("client unblock 1", ":0"),
            ("client unblock 99 TIMEOUT", ":0"),
            ("client unblock 1 error", ":0"),
            ("client unblock x", "-ERR value is not an integer or out of range"),
            ("client unblock 1 why", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
            ("client unblock 1 error x", "-ERR wrong number of arguments for 'client|unblock' command"),
            ("client unblock", "-ERR wrong number of arguments for 'client|unblock' command"),
        ]);
    }
}
