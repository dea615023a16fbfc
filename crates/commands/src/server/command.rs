//! COMMAND: shows the command table to clients.

use access::Category;
use engine::{CommandError, Context, Flags, KeyUsage, Keys, Needs, Row, Treatment};
use wire::{Aggregate, Args, ReplyWriter, glob};

use super::{ALWAYS, HELP, ROW, command_docs, key_specifications, tips};
use crate::{is_secret_of_call, resolve_call, rows};

/// Index of the command whose keys are asked for.
const CALL_AT: usize = 2;

const SHOWS_CALL: Treatment = Treatment::of_secrets(|args, index| is_secret_of_call(args, CALL_AT, index));

pub(super) const ROWS: [Row; 7] = [
    Row {
        name: "command|count",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: 2,
        since: "2.8.13",
        summary: "Counts the commands.",
        handler: count,
        ..ROW
    },
    Row {
        name: "command|docs",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -2,
        since: "7.0.0",
        complexity: "O(N) where N is the number of commands.",
        summary: "Replies with the documentation of commands.",
        syntax: "[command-name [command-name ...]]",
        handler: command_docs::docs,
        ..ROW
    },
    Row {
        name: "command|getkeys",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -3,
        since: "2.8.13",
        complexity: "O(N) where N is the number of arguments.",
        summary: "Finds the keys among the arguments of a command.",
        syntax: "command [arg ...]",
        treatment: SHOWS_CALL,
        handler: get_keys,
        ..ROW
    },
    Row {
        name: "command|getkeysandflags",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -3,
        since: "7.0.0",
        complexity: "O(N) where N is the number of arguments.",
        summary: "Finds the keys among the arguments of a command, and how it uses them.",
        syntax: "command [arg ...]",
        treatment: SHOWS_CALL,
        handler: get_keys_and_flags,
        ..ROW
    },
    Row { name: "command|help", needs: Needs::BY_FLAGS.with(&[Category::Connection]), ..HELP },
    Row {
        name: "command|info",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -2,
        flags: ALWAYS,
        since: "2.8.13",
        complexity: "O(N) where N is the number of commands.",
        summary: "Describes commands: arity, flags, keys.",
        syntax: "[command-name [command-name ...]]",
        handler: info,
        ..ROW
    },
    Row {
        name: "command|list",
        needs: Needs::BY_FLAGS.with(&[Category::Connection]),
        arity: -2,
        since: "7.0.0",
        complexity: "O(N) where N is the number of commands.",
        summary: "Replies with the names of the commands.",
        syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
        handler: list,
        ..ROW
    },
];

/// The rows of commands, without subcommands.
pub(super) fn top_level_rows() -> impl Iterator<Item = &'static Row> {
    rows().iter().copied().filter(|row| !row.name.contains('|'))
}

/// The row of a command or subcommand (`container|sub`), named in upper or lower case.
pub(super) fn find(name: &[u8]) -> Option<&'static Row> {
    rows().iter().copied().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}

/// `COMMAND`
pub(super) fn command(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    write_all(&mut cx.reply);
    Ok(())
}

/// `COMMAND INFO [command-name [command-name ...]]`
fn info(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let names = args.skip(2);
    if names.is_empty() {
        write_all(&mut cx.reply);
        return Ok(());
    }
    cx.reply.array(names.len());
    for name in names {
        match find(name) {
            Some(row) => write_row(&mut cx.reply, row),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// `COMMAND COUNT`
fn count(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.count(top_level_rows().count());
    Ok(())
}

/// `COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]`
fn list(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let filter = parse_filter(args.skip(2))?;
    let names: Vec<&str> = rows().iter().filter(|row| filter.passes(row)).map(|row| row.name).collect();
    cx.reply.array(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// The filter of COMMAND LIST.
enum Filter<'a> {
    All,
    /// Matches nothing, because Sheaf has no modules.
    Module,
    Category(&'a [u8]),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn passes(&self, row: &Row) -> bool {
        match self {
            Filter::All => true,
            Filter::Module => false,
            Filter::Category(name) => {
                Category::named(name).is_some_and(|category| row.categories().has(category))
            }
            Filter::Pattern(pattern) => glob::matches_ignore_case(pattern, row.name.as_bytes()),
        }
    }
}

fn parse_filter(args: Args<'_>) -> Result<Filter<'_>, CommandError> {
    let (Some(filter_by), Some(by), Some(what), 3) = (args.get(0), args.get(1), args.get(2), args.len())
    else {
        return if args.is_empty() { Ok(Filter::All) } else { Err(CommandError::Syntax) };
    };
    if !filter_by.eq_ignore_ascii_case(b"filterby") {
        return Err(CommandError::Syntax);
    }
    match by.to_ascii_lowercase().as_slice() {
        b"module" => Ok(Filter::Module),
        b"aclcat" => Ok(Filter::Category(what)),
        b"pattern" => Ok(Filter::Pattern(what)),
        _ => Err(CommandError::Syntax),
    }
}

/// `COMMAND GETKEYS command [arg ...]`
fn get_keys(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    write_keys(cx, args.skip(CALL_AT), |reply, _, key| reply.bulk(key))
}

/// `COMMAND GETKEYSANDFLAGS command [arg ...]`
fn get_keys_and_flags(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    write_keys(cx, args.skip(CALL_AT), |reply, usage, key| {
        reply.array(2);
        reply.bulk(key);
        write_set(reply, usage.names());
    })
}

/// Replies with the keys of a call; `write` writes each with its use.
fn write_keys(
    cx: &mut Context<'_, '_>,
    call: Args<'_>,
    write: impl Fn(&mut ReplyWriter<'_>, KeyUsage, &[u8]),
) -> Result<(), CommandError> {
    let Ok(found) = resolve_call(call) else {
        return Err(CommandError::Text("ERR Invalid command specified"));
    };
    let row = found.row;
    if !row.keys.any() {
        return Err(CommandError::Text("ERR The command has no key arguments"));
    }
    if !row.accepts(call.len()) {
        return Err(CommandError::Text("ERR Invalid number of arguments specified for command"));
    }
    let array = cx.reply.begin_deferred();
    let mut found = 0;
    row.keys.for_each(call, |index| {
        write(&mut cx.reply, row.usage(call, found), call.at(index));
        found += 1;
    });
    // A script may have no keys. As in Redis, an invalid number of keys counts as no keys.
    if found == 0 && !row.flags.has(Flags::RUNS_SCRIPTS) {
        return Err(CommandError::Text("ERR Invalid arguments specified for command"));
    }
    cx.reply.end_deferred(array, Aggregate::Array, found);
    Ok(())
}

fn write_all(reply: &mut ReplyWriter<'_>) {
    reply.array(top_level_rows().count());
    top_level_rows().for_each(|row| write_row(reply, row));
}

/// Writes the ten fields of COMMAND INFO.
fn write_row(reply: &mut ReplyWriter<'_>, row: &Row) {
    reply.array(10);
    reply.bulk(row.name.as_bytes());
    reply.integer(row.arity.into());
    let movable = matches!(row.keys, Keys::Counted { .. } | Keys::Computed { .. });
    write_set(reply, row.flags.names().chain(movable.then_some("movablekeys")));
    key_specifications::positions(row.keys).into_iter().for_each(|position| reply.integer(position));
    write_set(reply, row.categories().iter().map(|category| format!("@{}", category.name())));
    write_set(reply, tips::of(row.name));
    key_specifications::write(reply, row);
    reply.set(row.subcommands.len());
    row.subcommands.iter().for_each(|row| write_row(reply, row));
}

pub(super) fn write_set(reply: &mut ReplyWriter<'_>, names: impl Iterator<Item = impl AsRef<str>>) {
    let set = reply.begin_deferred();
    let count = names.map(|name| reply.simple(name.as_ref())).count();
    reply.end_deferred(set, Aggregate::Set, count);
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use super::*;
    use crate::testing::{TestServer, check};

    const GET: &str = "~[+@read, +@string, +@fast], ~[], ~[{\"flags\": ~[+RO, +access], \"begin_search\": {\"type\": \
                       \"index\", \"spec\": {\"index\": :1}}, \"find_keys\": {\"type\": \"range\", \"spec\": \
                       {\"lastkey\": :0, \"keystep\": :1, \"limit\": :0}}}], ~[]]";

    #[test]
    fn a_command_is_described_as_in_redis() {
        let mut server = TestServer::new();
        server.run("hello 3");
        assert_eq!(
            server.run("command info nosuch GET"),
            format!("[nil, [\"get\", :2, ~[+readonly, +fast], :1, :1, :1, {GET}]")
        );
        assert_eq!(
            server.run("command info config|get"),
            "[[\"config|get\", :-3, ~[+admin, +noscript, +loading, +stale], :0, :0, :0, ~[+@admin, +@slow, \
             +@dangerous], ~[], ~[], ~[]]]"
        );
        server.run("hello 2");
        assert_eq!(
            server.run("command info auth"),
            "[[\"auth\", :-2, [+noscript, +loading, +stale, +fast, +no_auth, +allow_busy], :0, :0, :0, [+@fast, +@connection], \
             [], [], []]]"
        );
    }

    #[test]
    fn keys_that_repeat_are_described() {
        let mut server = TestServer::new();
        server.run("hello 3");
        let mset = server.run("command info mset");
        assert!(
            mset.contains(":1, :-1, :2, ") && mset.contains("{\"lastkey\": :-1, \"keystep\": :2"),
            "{mset}"
        );
        let object = server.run("command info object|encoding");
        assert!(object.contains(":2, :2, :1, ") && object.contains("{\"index\": :2}"), "{object}");
        assert!(object.contains("{\"lastkey\": :0, \"keystep\": :1"), "{object}");
    }

    #[test]
    fn command_describes_all_commands_with_their_subcommands() {
        let mut server = TestServer::new();
        let Value::Integer(count) = server.value("command count") else { panic!("a number") };
        let Value::Array(all) = server.value("command") else { panic!("an array") };
        assert_eq!((all.len() as i64, all.len()), (count, top_level_rows().count()));
        assert_eq!(server.value("command info"), Value::Array(all.clone()));
        let config = all.iter().find_map(|command| match command {
            Value::Array(fields) if fields[0] == Value::Bulk(b"config".to_vec()) => Some(fields[9].clone()),
            _ => None,
        });
        let Some(Value::Array(subcommands)) = config else { panic!("CONFIG has subcommands") };
        assert_eq!(subcommands.len(), find(b"config").expect("a row").subcommands.len());
    }

    #[test]
    fn command_list_shows_the_names_that_its_filter_accepts() {
        let mut server = TestServer::new();
        let Value::Array(all) = server.value("command list") else { panic!("an array") };
        assert_eq!(all.len(), rows().len());
        server.check(&[
            ("command list filterby pattern GETD*", "[\"getdel\"]"),
            ("command list filterby pattern config|r*", "[\"config|resetstat\", \"config|rewrite\"]"),
            ("command list filterby pattern nosuch*", "[]"),
            ("command list filterby module json", "[]"),
            ("command list FILTERBY ACLCAT nosuch", "[]"),
            ("command list filterby foo bar", "-ERR syntax error"),
            ("command list filterby", "-ERR syntax error"),
            ("command list foo", "-ERR syntax error"),
            ("command list foo pattern x", "-ERR syntax error"),
            ("command list filterby pattern x y", "-ERR syntax error"),
        ]);
        let dangerous = server.run("command list filterby aclcat DANGEROUS");
        for name in ["flushall", "flushdb", "config|set", "shutdown", "client|kill", "keys"] {
            assert!(dangerous.contains(&format!("\"{name}\"")), "{name} is not in {dangerous}");
        }
        assert!(!dangerous.contains("\"get\""));
        let keyspace = server.run("command list filterby aclcat keyspace");
        assert!(
            keyspace.contains("\"dbsize\"") && keyspace.contains("\"del\"") && !keyspace.contains("\"info\"")
        );
    }

    #[test]
    fn keys_are_found_in_calls() {
        check(&[
            ("command getkeys set a b", "[\"a\"]"),
            ("command getkeys MSET a 1 b 2", "[\"a\", \"b\"]"),
            ("command getkeys object encoding k", "[\"k\"]"),
            ("command getkeys del a b c", "[\"a\", \"b\", \"c\"]"),
            ("command getkeys foo x", "-ERR Invalid command specified"),
            ("command getkeys object foo k", "-ERR Invalid command specified"),
            ("command getkeys ping", "-ERR The command has no key arguments"),
            ("command getkeys flushall", "-ERR The command has no key arguments"),
            ("command getkeys config get x", "-ERR The command has no key arguments"),
            ("command getkeys eval x 0", "[]"),
            ("command getkeys evalsha_ro x 5 a", "[]"),
            ("command getkeys fcall_ro f -1 a", "[]"),
            ("command getkeys zunion 0 a", "-ERR Invalid arguments specified for command"),
            ("command getkeys mset a", "-ERR Invalid number of arguments specified for command"),
            ("command getkeys", "-ERR wrong number of arguments for 'command|getkeys' command"),
        ]);
    }

    #[test]
    fn command_refuses_unknown_subcommands() {
        check(&[
            ("command foo", "-ERR unknown subcommand 'foo'. Try COMMAND HELP."),
            ("command count x", "-ERR wrong number of arguments for 'command|count' command"),
        ]);
    }
}
