//! Attributes and options of a client: CLIENT SETNAME, GETNAME, SETINFO, NO-EVICT, NO-TOUCH, LSN, REPLY,
//! DURABILITY, IMPORT-SOURCE, CAPA.

use engine::{CommandError, Context, ReplyMode, clients::Label};
use storage::Durability;
use wire::Args;

/// The error for an invalid client name.
pub(super) const BAD_NAME: CommandError =
    CommandError::Text("ERR Client names cannot contain spaces, newlines or special characters.");

/// `CLIENT SETNAME connection-name`
pub(super) fn set_name(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let name = Label::parse(args.at(2)).ok_or(BAD_NAME)?;
    cx.session.client.change_labels(|labels| labels.name = name);
    cx.reply.ok();
    Ok(())
}

/// `CLIENT GETNAME`
pub(super) fn get_name(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let labels = cx.session.client.labels();
    let name = labels.name.as_str().as_bytes();
    cx.reply.bulk_or_null((!name.is_empty()).then_some(name));
    Ok(())
}

/// `CLIENT SETINFO <LIB-NAME libname | LIB-VER libver>`
pub(super) fn set_info(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let attribute = args.at(2);
    let is_name = attribute.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !attribute.eq_ignore_ascii_case(b"lib-ver") {
        let attribute = String::from_utf8_lossy(attribute);
        return Err(CommandError::Composed(format!("ERR Unrecognized option '{attribute}'")));
    }
    let Some(value) = Label::parse(args.at(3)) else {
        let attribute = String::from_utf8_lossy(attribute);
        let text = format!("ERR {attribute} cannot contain spaces, newlines or special characters.");
        return Err(CommandError::Composed(text));
    };
    cx.session.client.change_labels(|labels| {
        *(if is_name { &mut labels.library } else { &mut labels.library_version }) = value;
    });
    cx.reply.ok();
    Ok(())
}

/// `CLIENT CAPA capability [capability ...]`: unknown capabilities are ignored, as in Valkey.
pub(super) fn capabilities(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.skip(2).iter().any(|capability| capability.eq_ignore_ascii_case(b"redirect")) {
        cx.session.client.set_handles_redirects();
    }
    cx.reply.ok();
    Ok(())
}

/// `CLIENT NO-EVICT <ON | OFF>`
pub(super) fn no_evict(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.session.client.set_no_evict(switch(args.at(2))?);
    cx.reply.ok();
    Ok(())
}

/// `CLIENT NO-TOUCH <ON | OFF>`
pub(super) fn no_touch(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.session.no_touch = switch(args.at(2))?;
    cx.session.client.set_no_touch(cx.session.no_touch);
    cx.reply.ok();
    Ok(())
}

/// `CLIENT LSN [ON | OFF]`: without an argument, replies with the position of the last write of this
/// connection, for WAITLSN on a replica. With an argument, sets whether replies to writes carry that position
/// as a RESP3 attribute.
pub(super) fn lsn(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(text) = args.get(2) else {
        cx.reply.integer(cx.session.newest_write().get() as i64);
        return Ok(());
    };
    cx.session.tells_lsn = switch(text)?;
    cx.reply.ok();
    Ok(())
}

/// `CLIENT IMPORT-SOURCE <ON | OFF>`, as in Valkey: this client copies another server into this one. While
/// such a client is connected, active expiry removes nothing, and to the client itself no key is expired: the
/// other server sends the removal in time. Otherwise a key with a deadline could be removed here before the
/// command that extends its deadline arrives.
pub(super) fn import_source(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.session.is_import_source = switch(args.at(2))?;
    cx.host.clients.set_import_source(&cx.session.client, cx.session.is_import_source);
    cx.reply.ok();
    Ok(())
}

fn switch(text: &[u8]) -> Result<bool, CommandError> {
    match text {
        on if on.eq_ignore_ascii_case(b"on") => Ok(true),
        off if off.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

/// `CLIENT REPLY <ON | OFF | SKIP>`. OFF and SKIP get no reply.
pub(super) fn reply(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mode = args.at(2);
    if mode.eq_ignore_ascii_case(b"skip") {
        if cx.session.reply_mode != ReplyMode::Off {
            cx.session.set_reply_mode(ReplyMode::SkipNext);
        }
    } else if switch(mode)? {
        cx.session.set_reply_mode(ReplyMode::On);
        cx.reply.ok();
    } else {
        cx.session.set_reply_mode(ReplyMode::Off);
    }
    Ok(())
}

/// `CLIENT DURABILITY [STRICT | COMMIT | INTERVAL | NONE | DEFAULT]`: shows or sets the durability of this
/// client. A durability stronger than the server's is refused, because the server could not provide it. In a
/// group, a durability weaker than `commit` is refused as well.
pub(super) fn durability(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(wish) = args.get(2) else {
        cx.reply.bulk(cx.session.effective_durability(cx.durability).name().as_bytes());
        return Ok(());
    };
    if args.len() > 3 {
        return Err(CommandError::WrongArity("client|durability"));
    }
    let wish = parse_durability(wish)?;
    if let Some(wish) = wish.filter(|wish| *wish > cx.durability) {
        return Err(CommandError::Composed(format!(
            "ERR the server's durability is '{}': a client can ask for less, not for '{}'",
            cx.durability.name(),
            wish.name()
        )));
    }
    if wish.is_some_and(|wish| wish < Durability::Commit) && cx.host.group.view().is_some() {
        return Err(CommandError::Text(
            "ERR in a group, an OK means that a majority has the write on disk: strict, commit or default",
        ));
    }
    cx.session.durability = wish;
    cx.session.client.set_durability(wish);
    cx.reply.ok();
    Ok(())
}

/// Parses a durability; `None` stands for the server's.
fn parse_durability(text: &[u8]) -> Result<Option<Durability>, CommandError> {
    let name = String::from_utf8_lossy(text).to_lowercase();
    if name == "default" {
        return Ok(None);
    }
    Durability::parse(&name).map(Some).ok_or_else(|| {
        let text = String::from_utf8_lossy(text);
        CommandError::Composed(format!(
            "ERR unknown durability '{text}': strict, commit, interval, none or default"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, check};

    #[test]
    fn names_are_kept_and_an_empty_one_is_none() {
        const BAD: &str = "-ERR Client names cannot contain spaces, newlines or special characters.";
        check(&[
            ("client getname", "nil"),
            ("client setname jobs", "+OK"),
            ("CLIENT GETNAME", "\"jobs\""),
            ("client setname 'a b'", BAD),
            ("client setname \"a\\n\"", BAD),
            ("client setname \"\\xc3\\xa4\"", BAD),
            ("client getname", "\"jobs\""),
            ("client setname ''", "+OK"),
            ("client getname", "nil"),
            ("client setname", "-ERR wrong number of arguments for 'client|setname' command"),
            ("client getname x", "-ERR wrong number of arguments for 'client|getname' command"),
        ]);
    }

    #[test]
    fn libraries_introduce_themselves() {
        let mut server = TestServer::new();
        server.check(&[
            ("client setinfo lib-name redis-py", "+OK"),
            ("client setinfo LIB-VER 5.0.1", "+OK"),
            ("client setinfo lib-foo x", "-ERR Unrecognized option 'lib-foo'"),
            (
                "client setinfo Lib-Name 'a b'",
                "-ERR Lib-Name cannot contain spaces, newlines or special characters.",
            ),
            ("client setinfo lib-name", "-ERR wrong number of arguments for 'client|setinfo' command"),
        ]);
        let labels = server.session.client.labels();
        assert_eq!((labels.library.as_str(), labels.library_version.as_str()), ("redis-py", "5.0.1"));
        assert_eq!(server.run("client setinfo lib-name ''"), "+OK");
        assert_eq!(server.session.client.labels().library.as_str(), "");
    }

    #[test]
    fn the_position_of_a_write_is_told() {
        let mut server = TestServer::new();
        server.check(&[("client lsn", ":0"), ("set k v", "+OK")]);
        let first = server.session.last_write;
        assert_eq!(server.run("client lsn"), format!(":{first}"));
        server.check(&[
            ("get k", "\"v\""),
            ("client lsn maybe", "-ERR syntax error"),
            ("client lsn on", "+OK"),
        ]);
        server.check(&[("set k v2", "+OK")]);
        assert!(server.session.last_write > first, "told to those who speak RESP3 only");
        server.run("hello 3");
        let out = server.raw("set k v3");
        let second = server.session.last_write;
        assert_eq!(String::from_utf8_lossy(&out), format!("|1\r\n$3\r\nlsn\r\n:{second}\r\n+OK\r\n"));
        server.check(&[("get k", "\"v3\""), ("reset", "+RESET")]);
        assert!(!server.session.tells_lsn);
    }

    #[test]
    fn capabilities_are_noted_and_unknown_ones_are_none() {
        let mut server = TestServer::new();
        server.check(&[
            ("client capa other", "+OK"),
            ("client capa", "-ERR wrong number of arguments for 'client|capa' command"),
        ]);
        assert_eq!(server.session.client.capabilities(), "");
        server.check(&[("client capa other Redirect", "+OK")]);
        assert_eq!(server.session.client.capabilities(), "r");
    }

    #[test]
    fn switches_take_on_and_off() {
        let mut server = TestServer::new();
        server.check(&[("client no-touch ON", "+OK"), ("client no-evict on", "+OK")]);
        assert!(server.session.no_touch && server.session.client.no_evict());
        server.check(&[
            ("client no-touch maybe", "-ERR syntax error"),
            ("client no-evict maybe", "-ERR syntax error"),
            ("client no-touch", "-ERR wrong number of arguments for 'client|no-touch' command"),
        ]);
        assert!(server.session.no_touch && server.session.client.no_evict());
        server.check(&[("client no-touch off", "+OK"), ("client no-evict off", "+OK")]);
        assert!(!server.session.no_touch && !server.session.client.no_evict());
    }

    #[test]
    fn reads_without_touching_leave_the_idle_time() {
        check(&[
            ("set a 1", "+OK"),
            ("client no-touch on", "+OK"),
            ("after 5000", ""),
            ("get a", "\"1\""),
            ("object idletime a", ":5"),
            ("client no-touch off", "+OK"),
            ("get a", "\"1\""),
            ("object idletime a", ":0"),
        ]);
    }

    #[test]
    fn for_an_import_source_nothing_has_expired() {
        let past = "1600000000000";
        let mut server = TestServer::new();
        server.check(&[
            ("set a 1 px 100", "+OK"),
            ("hset h f 1 g 2", ":2"),
            ("hpexpire h 100 fields 1 f", "[:1]"),
            ("client import-source on", "+OK"),
            ("after 200", ""),
            ("incr a", ":2"),
            ("hincrby h f 1", ":2"),
            (&format!("pexpireat h {past}"), ":1"),
            ("persist h", ":1"),
            (&format!("set b 1 pxat {past}"), "+OK"),
            (&format!("hpexpireat h {past} fields 1 g"), "[:1]"),
            ("exists a b h", ":3"),
            ("pexpire a 1000", ":1"),
            ("after 500", ""),
        ]);
        assert!(server.host.clients.has_import_source());
        server.check(&[
            ("client import-source off", "+OK"),
            ("pttl a", ":500"),
            ("exists b", ":0"),
            ("hgetall h", "[]"),
        ]);
        assert!(!server.host.clients.has_import_source());
        server.assert_replays();
    }

    #[test]
    fn nothing_is_removed_for_its_deadline_while_there_is_an_import_source() {
        let mut server = TestServer::new();
        server.check(&[("client import-source on", "+OK"), ("set a 1 px 100", "+OK"), ("after 200", "")]);
        let expire = |server: &mut TestServer| {
            let (from, to) = (keyspace::SlotId::FIRST, keyspace::SlotId::LAST);
            server.executor.expire_due(from, to, usize::MAX, &server.services)
        };
        server.run("echo x");
        assert_eq!(expire(&mut server), 0);
        server.host.clients.remove(server.session.client.id());
        assert_eq!(expire(&mut server), 1);
    }

    #[test]
    fn reset_withdraws_an_import_source() {
        let mut server = TestServer::new();
        server.check(&[("client import-source on", "+OK"), ("reset", "+RESET")]);
        assert!(!server.host.clients.has_import_source());
    }

    #[test]
    fn replies_can_be_turned_off_for_good_or_for_one_command() {
        check(&[
            ("client reply maybe", "-ERR syntax error"),
            ("client reply skip", ""),
            ("set a 1", ""),
            ("get a", "\"1\""),
            ("client reply skip", ""),
            ("nosuch", ""),
            ("get a", "\"1\""),
            ("client reply skip", ""),
            ("client reply skip", ""),
            ("get a", ""),
            ("get a", "\"1\""),
            ("client reply skip", ""),
            ("client reply on", "+OK"),
            ("client reply off", ""),
            ("set a 2", ""),
            ("client reply skip", ""),
            ("get a", ""),
            ("get a", ""),
            ("client reply on", "+OK"),
            ("get a", "\"2\""),
        ]);
    }

    #[test]
    fn durability_can_be_weakened_and_never_strengthened() {
        let mut server = TestServer::new();
        server.check(&[
            ("client durability", "\"strict\""),
            ("client durability NONE", "+OK"),
            ("client durability", "\"none\""),
            ("client durability interval", "+OK"),
            ("client durability", "\"interval\""),
            ("client durability commit", "+OK"),
            ("client durability", "\"commit\""),
            ("client durability default", "+OK"),
            ("client durability", "\"strict\""),
            ("client durability strict", "+OK"),
            (
                "client durability Some",
                "-ERR unknown durability 'Some': strict, commit, interval, none or default",
            ),
            ("client durability none none", "-ERR wrong number of arguments for 'client|durability' command"),
        ]);
        server.log.set_durability(Durability::Interval);
        server.check(&[
            ("client durability", "\"interval\""),
            (
                "client durability commit",
                "-ERR the server's durability is 'interval': a client can ask for less, not for 'commit'",
            ),
            ("client durability none", "+OK"),
            ("client durability", "\"none\""),
        ]);
        server.log.set_durability(Durability::Strict);
        assert_eq!(server.run("client durability"), "\"none\"");
    }

    #[test]
    fn a_weaker_durability_does_not_wait_for_the_disk() {
        let mut server = TestServer::new();
        assert!(server.gate("set a 1") > lsn::Lsn::ZERO);
        server.run("client durability none");
        assert_eq!(server.gate("set a 2"), lsn::Lsn::ZERO);
        server.run("client durability default");
        assert_eq!(server.gate("get a"), server.appended_lsn());
    }
}
