//! The process: INFO, TIME, SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN.

use engine::{CancelAnswer, CommandError, Context, SAVE_IN_PROGRESS, SaveAnswer, ShutdownMode};
use wire::Args;

/// `INFO [section [section ...]]`
pub(super) fn info(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut sections: Vec<String> = Vec::new();
    for section in args.skip(1) {
        let section = String::from_utf8_lossy(section).to_lowercase();
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    let (text, seen) = cx.host.process.info(&sections);
    cx.unit.note_seen(seen);
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// `TIME`, precise to the millisecond.
pub(super) fn time(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms() as i64;
    cx.reply.array(2);
    cx.reply.bulk_integer(now_ms / 1000);
    cx.reply.bulk_integer(now_ms % 1000 * 1000);
    Ok(())
}

/// `SAVE`: the reply comes when the snapshot is taken. Only this client waits.
pub(super) fn save(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let host = cx.host;
    cx.responder(|responder| host.persistence.save_and_respond(responder)).map_err(CommandError::Text)
}

/// `BGSAVE [SCHEDULE | CANCEL]`
pub(super) fn bgsave(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 && args.at(1).eq_ignore_ascii_case(b"cancel") {
        return cancel_save(cx);
    }
    for option in args.skip(1) {
        if args.len() > 2 || !option.eq_ignore_ascii_case(b"schedule") {
            return Err(CommandError::Syntax);
        }
    }
    match cx.host.persistence.save(false) {
        SaveAnswer::InProgress => return Err(CommandError::Text(SAVE_IN_PROGRESS)),
        SaveAnswer::Unconfirmed => return Err(CommandError::RecoveryUnconfirmed),
        // The reply of Redis, which does not begin a snapshot before the transaction has ended.
        _ if cx.in_transaction => cx.reply.simple("Background saving scheduled"),
        SaveAnswer::Scheduled => cx.reply.simple("Background saving scheduled"),
        SaveAnswer::Started => cx.reply.simple("Background saving started"),
    }
    Ok(())
}

fn cancel_save(cx: &mut Context<'_, '_>) -> Result<(), CommandError> {
    match cx.host.persistence.cancel_save() {
        CancelAnswer::Running => cx.reply.simple("Background saving cancelled"),
        CancelAnswer::Scheduled => cx.reply.simple("Scheduled background saving cancelled"),
        CancelAnswer::Nothing => {
            return Err(CommandError::Text(
                "ERR Background saving is currently not in progress or scheduled",
            ));
        }
    }
    Ok(())
}

/// `BGREWRITEAOF`: takes a snapshot, which allows the log before it to be removed.
pub(super) fn bgrewriteaof(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    match cx.host.persistence.save(true) {
        SaveAnswer::Unconfirmed => return Err(CommandError::RecoveryUnconfirmed),
        SaveAnswer::Started if !cx.in_transaction => {
            cx.reply.simple("Background append only file rewriting started");
        }
        _ => cx.reply.simple("Background append only file rewriting scheduled"),
    }
    Ok(())
}

/// `LASTSAVE`
pub(super) fn lastsave(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.integer(cx.host.persistence.last_save_unix_s() as i64);
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`. Writes become durable in every mode, by the log; a
/// snapshot only makes the next start faster. Only ABORT and errors get a reply.
pub(super) fn shutdown(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mode = parse_shutdown(args.skip(1))?;
    cx.host.process.shutdown(mode).map_err(CommandError::Composed)?;
    if mode == ShutdownMode::Abort {
        cx.reply.ok();
    }
    Ok(())
}

fn parse_shutdown(options: Args<'_>) -> Result<ShutdownMode, CommandError> {
    let (mut save, mut nosave, mut abort) = (false, false, false);
    for option in options {
        match option.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"abort" => abort = true,
            b"now" | b"force" => {}
            _ => return Err(CommandError::Syntax),
        }
    }
    if (save && nosave) || (abort && options.len() > 1) {
        return Err(CommandError::Syntax);
    }
    Ok(match (abort, save, nosave) {
        (true, ..) => ShutdownMode::Abort,
        (_, true, _) => ShutdownMode::Save,
        (_, _, true) => ShutdownMode::NoSave,
        _ => ShutdownMode::InOrder,
    })
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use crate::testing::{START_MS, TestServer, check};

    #[test]
    fn info_passes_on_the_sections_once_each() {
        let mut server = TestServer::new();
        server.check(&[
            ("info", "\"# Sections\\r\\nsections:\\r\\n\""),
            ("info Server CLIENTS server", "\"# Sections\\r\\nsections:server,clients\\r\\n\""),
        ]);
        server.run("hello 3");
        assert!(matches!(
            server.value("info everything"),
            Value::Verbatim { format: [b't', b'x', b't'], .. }
        ));
    }

    #[test]
    fn time_is_the_time_of_the_round() {
        let seconds = START_MS / 1000;
        check(&[
            ("time", &format!("[\"{seconds}\", \"0\"]")),
            ("after 1234", ""),
            ("time", &format!("[\"{}\", \"234000\"]", seconds + 1)),
            ("lastsave", &format!(":{}", seconds + 1)),
            ("time x", "-ERR wrong number of arguments for 'time' command"),
            ("lastsave x", "-ERR wrong number of arguments for 'lastsave' command"),
        ]);
    }

    #[test]
    fn shutdown_has_no_reply_when_it_begins() {
        for (line, asked) in [
            ("shutdown", "shutdown InOrder"),
            ("SHUTDOWN NOSAVE", "shutdown NoSave"),
            ("shutdown save now force", "shutdown Save"),
            ("shutdown now now", "shutdown InOrder"),
        ] {
            let mut server = TestServer::new();
            assert_eq!(server.run(line), "", "{line}");
            assert_eq!(*server.host.asked.lock(), [asked], "{line}");
        }
    }

    #[test]
    fn snapshots_are_asked_for_one_at_a_time() {
        check(&[
            ("bgsave now", "-ERR syntax error"),
            ("bgsave schedule schedule", "-ERR syntax error"),
            ("bgsave cancel", "-ERR Background saving is currently not in progress or scheduled"),
            ("bgsave", "+Background saving started"),
            ("BGSAVE CANCEL", "+Background saving cancelled"),
            ("bgsave cancel schedule", "-ERR syntax error"),
            ("bgsave", "+Background saving started"),
            ("bgsave", "-ERR Background save already in progress"),
            ("bgsave SCHEDULE", "-ERR Background save already in progress"),
            ("bgrewriteaof", "+Background append only file rewriting scheduled"),
            ("bgrewriteaof now", "-ERR wrong number of arguments for 'bgrewriteaof' command"),
        ]);
        check(&[("bgrewriteaof", "+Background append only file rewriting started")]);
        check(&[("multi", "+OK"), ("bgsave", "+QUEUED"), ("exec", "[+Background saving scheduled]")]);
    }

    #[test]
    fn save_is_answered_when_the_snapshot_is_taken() {
        for (outcome, expected) in [(Ok(()), "+OK"), (Err("ERR no".to_string()), "-ERR no")] {
            let mut server = TestServer::new();
            let client = server.session.client.id();
            assert_eq!(server.run("save"), "");
            assert!(server.session.wait.is_some(), "what follows waits");
            server.session = server.connect();
            server.check(&[
                ("save", "-ERR Background save already in progress"),
                (&format!("client unblock {client}"), ":0"),
            ]);
            assert_eq!(server.host.take_answer(client), None);
            server.host.promises.lock().pop().expect("a responder").keep(outcome);
            assert_eq!(server.host.take_answer(client).expect("an answer").0, expected);
        }
        check(&[
            ("save x", "-ERR wrong number of arguments for 'save' command"),
            ("multi", "+OK"),
            ("save", "-ERR Command not allowed inside a transaction"),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ]);
    }

    #[test]
    fn an_invalid_shutdown_does_nothing() {
        let mut server = TestServer::new();
        server.check(&[
            ("shutdown foo", "-ERR syntax error"),
            ("shutdown save nosave", "-ERR syntax error"),
            ("shutdown abort now", "-ERR syntax error"),
        ]);
        assert!(server.host.asked.lock().is_empty());
        server.check(&[("shutdown abort", "-ERR No shutdown in progress.")]);
        assert_eq!(*server.host.asked.lock(), ["shutdown Abort"]);
    }
}
