//! MONITOR: streams the commands of all clients to this connection, except commands for administrators.

use engine::{CommandError, Context};
use wire::Args;

/// `MONITOR`, until RESET or the end of the connection. As in Redis, a second MONITOR gets no reply.
pub(super) fn monitor(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    if cx.in_transaction {
        return Err(CommandError::Text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if cx.session.monitoring.is_none() {
        cx.session.monitoring = cx.command();
        cx.session.client.set_monitoring(true);
        cx.host.clients.monitors().add(&cx.session.client);
        cx.reply.ok();
    }
    Ok(())
}

/// Stops the stream of commands; for RESET.
pub(crate) fn stop(cx: &mut Context<'_, '_>) {
    if cx.session.monitoring.take().is_some() {
        cx.session.client.set_monitoring(false);
        cx.host.clients.monitors().remove(cx.session.client.id());
    }
}

#[cfg(test)]
mod tests {
    use lsn::Lsn;

    use crate::testing::{START_MS, TestServer};

    /// A server with a monitoring client (id 2) and an active one (id 1).
    fn monitored() -> TestServer {
        let mut server = TestServer::new();
        let mut monitor = server.connect();
        std::mem::swap(&mut server.session, &mut monitor);
        server.check(&[("monitor", "+OK"), ("monitor", "")]);
        std::mem::swap(&mut server.session, &mut monitor);
        server
    }

    fn shown(server: &TestServer) -> Vec<String> {
        let (lines, gate) = server.host.take_pushed(2);
        assert_eq!(gate, Lsn::ZERO, "a request waits for nothing");
        let head = format!("+{}.000000 ", START_MS / 1000);
        let strip =
            |line: String| line.strip_prefix(&head).map(str::to_string).expect("the time comes first");
        lines.into_iter().map(strip).collect()
    }

    #[test]
    fn commands_are_shown_with_database_and_client() {
        let mut server = monitored();
        server.check(&[
            ("SET a \"x y\"", "+OK"),
            ("select 3", "+OK"),
            ("GET a", "nil"),
            ("incr a b", "-ERR wrong number of arguments for 'incr' command"),
            ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
            ("setrange a -1 x", "-ERR offset is out of range"),
        ]);
        assert_eq!(
            shown(&server),
            [
                "[0 127.0.0.1:50001] \"SET\" \"a\" \"x y\"",
                "[3 127.0.0.1:50001] \"select\" \"3\"",
                "[3 127.0.0.1:50001] \"GET\" \"a\"",
                "[3 127.0.0.1:50001] \"setrange\" \"a\" \"-1\" \"x\"",
            ]
        );
    }

    #[test]
    fn passwords_and_administrative_commands_are_not_shown() {
        let mut server = monitored();
        for line in [
            "auth secret",
            "hello 3 auth user secret",
            "config get *",
            "client list",
            "slowlog get",
            "client id",
        ] {
            server.run(line);
        }
        assert_eq!(
            shown(&server),
            [
                "[0 127.0.0.1:50001] \"auth\" \"(redacted)\"",
                "[0 127.0.0.1:50001] \"hello\" \"3\" \"auth\" \"(redacted)\" \"(redacted)\"",
                "[0 127.0.0.1:50001] \"client\" \"id\"",
            ]
        );
    }

    #[test]
    fn a_monitor_cannot_use_keys_until_it_is_reset() {
        let mut server = monitored();
        server.session = server.connect();
        server.check(&[("monitor", "+OK")]);
        for line in ["get a", "set a 1", "dbsize"] {
            assert_eq!(server.run(line), "-ERR Replica can't interact with the keyspace", "{line}");
        }
        assert!(server.run("client list").contains("flags=O "));
        server.check(&[("ping", "+PONG"), ("reset", "+RESET"), ("set a 1", "+OK")]);
        assert!(!server.host.take_pushed(3).0.is_empty());
        server.check(&[("ping", "+PONG")]);
        assert!(server.host.take_pushed(3).0.is_empty(), "no longer a monitor");
        assert!(!server.host.take_pushed(2).0.is_empty(), "still one");
        server.host.clients.remove(2);
        server.check(&[("ping", "+PONG")]);
        assert!(server.host.take_pushed(2).0.is_empty(), "gone");
    }

    #[test]
    fn queued_commands_are_shown_when_they_run() {
        let mut server = monitored();
        server.check(&[
            ("multi", "+OK"),
            ("set a 1", "+QUEUED"),
            ("auth secret", "+QUEUED"),
            ("monitor", "+QUEUED"),
            ("select 1", "+QUEUED"),
        ]);
        assert_eq!(shown(&server), ["[0 127.0.0.1:50001] \"multi\""]);
        let reply = server.run("exec");
        assert!(reply.contains(", -ERR MONITOR isn't allowed for DENY BLOCKING client, +OK]"), "{reply}");
        assert_eq!(
            shown(&server),
            [
                "[0 127.0.0.1:50001] \"set\" \"a\" \"1\"",
                "[0 127.0.0.1:50001] \"auth\" \"(redacted)\"",
                "[1 127.0.0.1:50001] \"select\" \"1\"",
                "[1 127.0.0.1:50001] \"exec\"",
            ]
        );
    }

    #[test]
    fn many_lines_are_published_in_parts() {
        let mut server = monitored();
        let big = "x".repeat(100_000);
        server.run_args(&[b"set", b"a", big.as_bytes()]);
        server.run("get a");
        let lines = shown(&server);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(&format!("\"{big}\"")));
    }
}
