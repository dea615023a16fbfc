//! MODULE: there are none, and none can be loaded.

use engine::{CommandError, Context, Flags, Row};
use wire::Args;

use super::{ADMIN, HELP, ROW};

/// For administrators; neither while the server loads, nor on a stale replica, nor in scripts.
const FLAGS: Flags = Flags::ADMIN.or(Flags::NOSCRIPT);

pub(super) const ROWS: [Row; 5] = [
    Row { name: "module|help", ..HELP },
    Row {
        name: "module|list",
        arity: 2,
        flags: FLAGS,
        since: "4.0.0",
        summary: "Replies with an empty list: there are no modules.",
        handler: list,
        ..ROW
    },
    Row {
        name: "module|load",
        arity: -3,
        flags: ADMIN,
        since: "4.0.0",
        summary: "Is refused: there are no modules.",
        syntax: "path [arg [arg ...]]",
        handler: refuse,
        ..ROW
    },
    Row {
        name: "module|loadex",
        arity: -3,
        flags: ADMIN,
        since: "7.0.0",
        summary: "Is refused: there are no modules.",
        syntax: "path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]",
        handler: refuse,
        ..ROW
    },
    Row {
        name: "module|unload",
        arity: 3,
        flags: ADMIN,
        since: "4.0.0",
        summary: "Is refused: there are no modules.",
        syntax: "name",
        handler: unload,
        ..ROW
    },
];

/// `MODULE LIST`
fn list(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.array(0);
    Ok(())
}

/// `MODULE LOAD path [arg ...]`, `MODULE LOADEX path ...`
fn refuse(_cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Text(
        "ERR Sheaf loads no modules: documents, durable channels and exactly-once calls are part of the server",
    ))
}

/// `MODULE UNLOAD name`
fn unload(_cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Text("ERR Error unloading module: no such module with that name"))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn there_are_no_modules() {
        const REFUSED: &str = "-ERR Sheaf loads no modules: documents, durable channels and exactly-once calls are part of \
                               the server";
        check(&[
            ("module list", "[]"),
            ("MODULE LOAD /tmp/x.so a", REFUSED),
            ("module loadex /tmp/x.so ARGS a", REFUSED),
            ("module unload x", "-ERR Error unloading module: no such module with that name"),
            ("module list x", "-ERR wrong number of arguments for 'module|list' command"),
            ("module foo", "-ERR unknown subcommand 'foo'. Try MODULE HELP."),
        ]);
    }
}
