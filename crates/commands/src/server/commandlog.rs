//! COMMANDLOG, Valkey's name for SLOWLOG: only slow commands are logged, not large requests and replies.

use engine::{CommandError, Context, Row};
use wire::Args;

use super::{
    HELP, ROW,
    slowlog::{self, FLAGS},
};

const TYPES: CommandError =
    CommandError::Text("ERR type should be one of the following: slow, large-request, large-reply");
const SLOW_ONLY: CommandError =
    CommandError::Text("ERR Sheaf logs slow commands only, not large requests or replies");

pub(super) const ROWS: [Row; 4] = [
    Row {
        name: "commandlog|get",
        arity: 4,
        flags: FLAGS,
        since: "8.1.0",
        complexity: "O(N) where N is the number of entries shown.",
        summary: "Shows the last slow commands: id, unix time, microseconds, arguments, address and name of the client.",
        syntax: "count <SLOW>",
        handler: get,
        ..ROW
    },
    Row { name: "commandlog|help", since: "8.1.0", ..HELP },
    Row {
        name: "commandlog|len",
        arity: 3,
        flags: FLAGS,
        since: "8.1.0",
        summary: "Counts the slow commands that are kept.",
        syntax: "<SLOW>",
        handler: len,
        ..ROW
    },
    Row {
        name: "commandlog|reset",
        arity: 3,
        flags: FLAGS,
        since: "8.1.0",
        complexity: "O(N) where N is the number of entries.",
        summary: "Forgets the slow commands.",
        syntax: "<SLOW>",
        handler: reset,
        ..ROW
    },
];

/// `COMMANDLOG GET count SLOW`
fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = slowlog::parse_count(args.at(2))?;
    require_slow(args.at(3))?;
    slowlog::show(cx, count);
    Ok(())
}

/// `COMMANDLOG LEN SLOW`
fn len(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_slow(args.at(2))?;
    slowlog::len(cx, args)
}

/// `COMMANDLOG RESET SLOW`
fn reset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_slow(args.at(2))?;
    slowlog::reset(cx, args)
}

fn require_slow(kind: &[u8]) -> Result<(), CommandError> {
    match kind.to_ascii_lowercase().as_slice() {
        b"slow" => Ok(()),
        b"large-request" | b"large-reply" => Err(SLOW_ONLY),
        _ => Err(TYPES),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;

    #[test]
    fn it_is_the_log_of_slow_commands() {
        let mut server = TestServer::new();
        server.host.observer.slow_log.configure(0, 128);
        server.check(&[("set a 1", "+OK"), ("commandlog len slow", ":1")]);
        let entries = server.run("commandlog get 2 SLOW");
        assert!(entries.contains("[\"set\", \"a\", \"1\"]"), "{entries}");
        server.host.observer.slow_log.configure(-1, 128);
        assert_eq!(server.run("commandlog get -1 slow"), server.run("slowlog get"));
        server.check(&[
            ("commandlog reset slow", "+OK"),
            ("commandlog get 0 slow", "[]"),
            ("commandlog get x slow", "-ERR count should be greater than or equal to -1"),
            (
                "commandlog len large-reply",
                "-ERR Sheaf logs slow commands only, not large requests or replies",
            ),
            (
                "commandlog len foo",
                "-ERR type should be one of the following: slow, large-request, large-reply",
            ),
            ("commandlog get slow", "-ERR wrong number of arguments for 'commandlog|get' command"),
        ]);
    }
}
