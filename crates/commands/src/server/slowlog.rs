//! SLOWLOG: the log of slow commands.

use engine::{CommandError, Context, Flags, Row};
use wire::{Args, number::parse_i64};

use super::{ALWAYS, HELP, ROW};

/// For administrators, at any time, also in scripts; while the server loads, only for clients that have
/// logged in.
pub(super) const FLAGS: Flags = ALWAYS.or(Flags::ADMIN).or(Flags::GUARDED);
/// The default count of SLOWLOG GET.
const SHOWN_BY_DEFAULT: usize = 10;

pub(super) const ROWS: [Row; 4] = [
    Row {
        name: "slowlog|get",
        arity: -2,
        flags: FLAGS,
        since: "2.2.12",
        complexity: "O(N) where N is the number of entries shown.",
        summary: "Shows the last slow commands: id, unix time, microseconds, arguments, address and name of the client.",
        syntax: "[count]",
        handler: get,
        ..ROW
    },
    Row { name: "slowlog|help", since: "6.2.0", ..HELP },
    Row {
        name: "slowlog|len",
        arity: 2,
        flags: FLAGS,
        since: "2.2.12",
        summary: "Counts the slow commands that are kept.",
        handler: len,
        ..ROW
    },
    Row {
        name: "slowlog|reset",
        arity: 2,
        flags: FLAGS,
        since: "2.2.12",
        complexity: "O(N) where N is the number of entries.",
        summary: "Forgets the slow commands.",
        handler: reset,
        ..ROW
    },
];

/// `SLOWLOG GET [count]`: -1 shows all entries.
fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = match (args.get(2), args.len()) {
        (None, _) => SHOWN_BY_DEFAULT,
        (Some(count), 3) => parse_count(count)?,
        _ => {
            let subcommand = String::from_utf8_lossy(args.at(1));
            return Err(CommandError::Composed(format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try SLOWLOG HELP."
            )));
        }
    };
    show(cx, count);
    Ok(())
}

/// Replies with the newest entries, at most `count`.
pub(super) fn show(cx: &mut Context<'_, '_>, count: usize) {
    let entries = cx.host.observer.slow_log.newest(count);
    cx.reply.array(entries.len());
    for entry in &entries {
        cx.reply.array(6);
        [entry.id, entry.unix_s, entry.usec].iter().for_each(|&number| cx.reply.integer(number as i64));
        cx.reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| cx.reply.bulk(arg));
        cx.reply.bulk(entry.peer.as_bytes());
        cx.reply.bulk(entry.client_name.as_bytes());
    }
}

pub(super) fn parse_count(text: &[u8]) -> Result<usize, CommandError> {
    match parse_i64(text) {
        Some(-1) => Ok(usize::MAX),
        Some(count @ 0..) => Ok(count as usize),
        _ => Err(CommandError::Text("ERR count should be greater than or equal to -1")),
    }
}

/// `SLOWLOG LEN`
pub(super) fn len(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.count(cx.host.observer.slow_log.len());
    Ok(())
}

/// `SLOWLOG RESET`
pub(super) fn reset(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.host.observer.slow_log.reset();
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{START_MS, TestServer};

    #[test]
    fn slow_commands_are_shown_the_newest_first() {
        let mut server = TestServer::new();
        server.host.observer.slow_log.configure(0, 128);
        server.host.command_us.store(1500, std::sync::atomic::Ordering::Relaxed);
        let seconds = START_MS / 1000;
        let entry = |id: u64, args: &str, name: &str| {
            format!("[:{id}, :{seconds}, :1500, [{args}], \"127.0.0.1:50001\", \"{name}\"]")
        };
        server.check(&[
            ("slowlog len", ":0"),
            ("SET a 1", "+OK"),
            ("client setname jobs", "+OK"),
            ("slowlog len", ":3"),
            ("slowlog get 0", "[]"),
            ("auth x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
              configuration is correct?"),
        ]);
        let last = entry(5, "\"auth\", \"(redacted)\"", "jobs");
        let second = entry(4, "\"slowlog\", \"get\", \"0\"", "jobs");
        server.check(&[("slowlog get 2", &format!("[{last}, {second}]"))]);
        assert!(
            server.run("slowlog get -1").ends_with(&format!("{}]", entry(0, "\"slowlog\", \"len\"", "")))
        );
        server.host.observer.slow_log.configure(10_000, 128);
        server.check(&[
            ("slowlog len", ":8"),
            ("SLOWLOG RESET", "+OK"),
            ("slowlog len", ":0"),
            ("slowlog get", "[]"),
        ]);
    }

    #[test]
    fn the_date_is_that_of_the_end() {
        let mut server = TestServer::new();
        server.host.observer.slow_log.configure(0, 128);
        let run_for = |server: &mut TestServer, seconds: u64| {
            server.host.command_us.store(seconds * 1_000_000, std::sync::atomic::Ordering::Relaxed);
            server.run("get a");
            server.host.observer.slow_log.newest(1)[0].unix_s - START_MS / 1000
        };
        // The clock of the test goes on at each reading: at the beginning and at the end of a command.
        assert_eq!(run_for(&mut server, 5), 10);
        assert_eq!(run_for(&mut server, 2), 14);
    }

    #[test]
    fn usually_fast_commands_are_logged_above_the_threshold() {
        let mut server = TestServer::new();
        server.host.command_us.store(900, std::sync::atomic::Ordering::Relaxed);
        for (slower_than_us, logged) in [(901, 0), (900, 1), (-1, 0), (0, 1)] {
            server.host.observer.slow_log.reset();
            server.host.observer.slow_log.configure(slower_than_us, 128);
            server.run("get a");
            assert_eq!(server.host.observer.slow_log.len(), logged, "{slower_than_us}");
        }
    }

    #[test]
    fn invalid_calls_are_refused() {
        crate::testing::check(&[
            ("slowlog get -2", "-ERR count should be greater than or equal to -1"),
            ("slowlog get x", "-ERR count should be greater than or equal to -1"),
            (
                "slowlog Get 1 2",
                "-ERR unknown subcommand or wrong number of arguments for 'Get'. Try SLOWLOG HELP.",
            ),
            ("slowlog len x", "-ERR wrong number of arguments for 'slowlog|len' command"),
            ("slowlog foo", "-ERR unknown subcommand 'foo'. Try SLOWLOG HELP."),
        ]);
    }
}
