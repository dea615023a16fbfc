//! COMMAND DOCS: documentation from the rows, the source of the hints and the HELP of redis-cli.

use engine::{CommandError, Context, Row};
use wire::{Aggregate, Args, ReplyWriter};

use super::{
    arguments::{Argument, Kind, arguments},
    command::{find, top_level_rows},
    key_specifications,
};

/// `COMMAND DOCS [command-name [command-name ...]]`. Unknown names are left out.
pub(super) fn docs(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let rows: Vec<&'static Row> = match args.len() {
        2 => top_level_rows().collect(),
        _ => args.skip(2).iter().filter_map(find).collect(),
    };
    cx.reply.map(rows.len());
    rows.iter().for_each(|row| write_row(&mut cx.reply, row));
    Ok(())
}

/// Writes the name and the documentation of a command as a pair of the map.
fn write_row(reply: &mut ReplyWriter<'_>, row: &Row) {
    reply.bulk(row.name.as_bytes());
    // Cannot fail: a test checks that every syntax follows the notation.
    let arguments = arguments(row).unwrap_or_default();
    reply.map(4 + usize::from(!arguments.is_empty()) + usize::from(!row.subcommands.is_empty()));
    for (field, text) in [
        ("summary", row.summary),
        ("since", row.since),
        ("group", row.family.name()),
        ("complexity", row.complexity),
    ] {
        write_text(reply, field, text);
    }
    if !arguments.is_empty() {
        write_arguments(reply, &arguments, &mut KeyIndex::of(row));
    }
    if !row.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(row.subcommands.len());
        row.subcommands.iter().for_each(|row| write_row(reply, row));
    }
}

/// Assigns the keys of a command, in order, to its key specifications. The last specification covers all
/// remaining keys.
struct KeyIndex {
    next: usize,
    last: usize,
}

impl KeyIndex {
    fn of(row: &Row) -> KeyIndex {
        KeyIndex { next: 0, last: key_specifications::count(row).saturating_sub(1) }
    }

    fn take(&mut self) -> usize {
        let index = self.next;
        self.next = (index + 1).min(self.last);
        index
    }
}

fn write_arguments(reply: &mut ReplyWriter<'_>, arguments: &[Argument], keys: &mut KeyIndex) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_argument(reply, argument, keys));
}

fn write_argument(reply: &mut ReplyWriter<'_>, argument: &Argument, keys: &mut KeyIndex) {
    let map = reply.begin_deferred();
    let mut fields = 2;
    write_text(reply, "name", &argument.name);
    write_text(reply, "type", argument.kind.name());
    if !matches!(argument.kind, Kind::OneOf | Kind::Block) {
        write_text(reply, "display_text", &argument.name);
        fields += 1;
    }
    if argument.kind == Kind::Key {
        reply.bulk(b"key_spec_index");
        reply.count(keys.take());
        fields += 1;
    }
    if let Some(token) = &argument.token {
        write_text(reply, "token", token);
        fields += 1;
    }
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    let set = flags.iter().filter(|(on, _)| *on).count();
    if set > 0 {
        reply.bulk(b"flags");
        reply.set(set);
        flags.iter().filter(|(on, _)| *on).for_each(|(_, name)| reply.simple(name));
        fields += 1;
    }
    if !argument.inner.is_empty() {
        write_arguments(reply, &argument.inner, keys);
        fields += 1;
    }
    reply.end_deferred(map, Aggregate::Map, fields);
}

fn write_text(reply: &mut ReplyWriter<'_>, field: &str, text: &str) {
    reply.bulk(field.as_bytes());
    reply.bulk(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use super::*;
    use crate::{rows, testing::TestServer};

    #[test]
    fn a_command_is_documented_with_its_arguments() {
        let mut server = TestServer::new();
        server.run("hello 3");
        let summary = crate::resolve(b"getdel").expect("a row").summary;
        assert_eq!(
            server.run("command docs nosuch getdel"),
            format!(
                "{{\"getdel\": {{\"summary\": \"{summary}\", \"since\": \"6.2.0\", \"group\": \"string\", \
                 \"complexity\": \"O(1)\", \"arguments\": [{{\"name\": \"key\", \"type\": \"key\", \
                 \"display_text\": \"key\", \"key_spec_index\": :0}}]}}}}"
            )
        );
        let expire = server.run("command docs expire");
        let condition = "{\"name\": \"option\", \"type\": \"oneof\", \"flags\": ~[+optional], \"arguments\": \
                         [{\"name\": \"nx\", \"type\": \"pure-token\", \"display_text\": \"nx\", \"token\": \"NX\"}";
        assert!(expire.contains(condition), "{expire}");
    }

    #[test]
    fn the_older_protocol_gets_flat_lists() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("command docs config|get"),
            "[\"config|get\", [\"summary\", \"Replies with the settings whose names match a pattern.\", \"since\", \
             \"2.0.0\", \"group\", \"server\", \"complexity\", \"O(N) where N is the number of settings.\", \
             \"arguments\", [[\"name\", \"parameter\", \"type\", \"string\", \"display_text\", \"parameter\", \
             \"flags\", [+multiple]]]]]"
        );
    }

    #[test]
    fn without_names_every_command_is_documented_with_its_subcommands() {
        let mut server = TestServer::new();
        server.run("hello 3");
        let Value::Map(commands) = server.value("COMMAND DOCS") else { panic!("a map") };
        let names = |entries: &[(Value, Value)]| -> Vec<String> {
            let name = |(name, _): &(Value, Value)| match name {
                Value::Bulk(name) => String::from_utf8(name.clone()).expect("names are text"),
                other => panic!("{other:?}"),
            };
            entries.iter().map(name).collect()
        };
        let expected: Vec<&str> = top_level_rows().map(|row| row.name).collect();
        assert_eq!(names(&commands), expected);
        let mut documented = commands.len();
        for (_, docs) in &commands {
            let Value::Map(docs) = docs else { panic!("a map") };
            if let Some((_, Value::Map(subcommands))) =
                docs.iter().find(|(field, _)| *field == Value::Bulk(b"subcommands".to_vec()))
            {
                documented += subcommands.len();
            }
        }
        assert_eq!(documented, rows().len());
    }
}
