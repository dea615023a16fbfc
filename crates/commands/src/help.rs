//! HELP of container commands, generated from their rows.

use engine::{CommandError, Context};
use wire::Args;

/// `CONTAINER HELP`: lists each subcommand with its summary.
pub(super) fn help(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let container = crate::resolve(args.at(0)).ok_or(CommandError::Syntax)?;
    cx.reply.array(1 + 2 * container.subcommands.len());
    cx.reply.simple(&format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.name.to_uppercase()
    ));
    for row in container.subcommands {
        let (_, name) = row.name.split_once('|').expect("the row of a subcommand is named so; tested");
        cx.reply.simple(format!("{} {}", name.to_uppercase(), row.syntax).trim_end());
        cx.reply.simple(&format!("    {}", row.summary));
    }
    Ok(())
}

/// The handler in a container's own row. It never runs: the arity of the container requires a subcommand, and
/// a call with one runs the handler of the subcommand, or is refused.
pub(super) fn no_subcommand(_cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Syntax)
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use crate::{rows, testing::TestServer};
    use engine::Flags;

    #[test]
    fn every_container_describes_all_its_subcommands() {
        let mut server = TestServer::new();
        for container in rows().iter().filter(|row| row.flags.has(Flags::CONTAINER)) {
            let Value::Array(lines) = server.value(&format!("{} help", container.name)) else {
                panic!("{} HELP replies with something else", container.name);
            };
            let lines: Vec<String> = lines.iter().map(crate::testing::notation).collect();
            assert!(
                lines[0].starts_with(&format!("+{} <subcommand>", container.name.to_uppercase())),
                "{lines:?}"
            );
            assert_eq!(lines.len(), 1 + 2 * container.subcommands.len(), "{lines:?}");
            for row in container.subcommands {
                let (of, name) = row.name.split_once('|').expect("container|subcommand");
                assert_eq!(of, container.name);
                let title = format!("+{}", name.to_uppercase());
                assert!(
                    lines.iter().any(|line| line.split(' ').next() == Some(&title)),
                    "{name} in {lines:?}"
                );
            }
        }
    }

    #[test]
    fn a_container_alone_has_the_wrong_number_of_arguments() {
        crate::testing::check(&[
            ("client", "-ERR wrong number of arguments for 'client' command"),
            ("config", "-ERR wrong number of arguments for 'config' command"),
            ("debug", "-ERR wrong number of arguments for 'debug' command"),
            ("client foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP."),
            ("CONFIG Foo x", "-ERR unknown subcommand 'Foo'. Try CONFIG HELP."),
        ]);
    }
}
