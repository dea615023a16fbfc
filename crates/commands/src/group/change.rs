//! GROUP JOIN, REMOVE and TRANSFER, which the group decides; and PEER, which hands a connection over.

use engine::{CommandError, Context, PeerClaim, group::JoinRequest, replication::Address};
use wire::{Args, number::parse_u64};

/// The length of a member's id, in hexadecimal digits.
const ID_DIGITS: usize = 16;
/// The maximum length of the name of a group.
const NAME_BYTES_MAX: usize = 64;
/// The maximum length of a host name, as in DNS.
const HOST_BYTES_MAX: usize = 253;

/// `GROUP JOIN version group id host port http-port [WITNESS]`
pub(super) fn join(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let request = parse_join(args)?;
    let group = &cx.host.group;
    cx.promise_for_sure(|responder| group.join(request, responder));
    Ok(())
}

fn parse_join(args: Args<'_>) -> Result<JoinRequest, CommandError> {
    let error = CommandError::Text;
    let is_witness = match args.get(8) {
        None => false,
        Some(_) if args.len() > 9 => return Err(CommandError::WrongArity("group|join")),
        Some(word) if word.eq_ignore_ascii_case(b"witness") => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    let version = parse_u64(args.at(2)).and_then(|version| version.try_into().ok());
    let version = version.ok_or(error("ERR invalid version of the protocol between members"))?;
    let group = word(args.at(3), NAME_BYTES_MAX).ok_or(error("ERR invalid name of a group"))?;
    let id = id(args.at(4))?;
    let host = word(args.at(5), HOST_BYTES_MAX).filter(|host| !host.contains(['[', ']']));
    let host = host.ok_or(error("ERR invalid host"))?;
    let resp_port = port(args.at(6)).ok_or(error("ERR invalid port"))?;
    let http_port = port(args.at(7)).ok_or(error("ERR invalid port of HTTP"))?;
    let address = Address { host, port: resp_port };
    Ok(JoinRequest { version, group, id, address, http_port, is_witness })
}

/// The number of a port, from 1 on.
fn port(text: &[u8]) -> Option<u16> {
    parse_u64(text).and_then(|port| port.try_into().ok()).filter(|&port| port > 0)
}

/// The text, if it is UTF-8, not empty, not too long, and without white space and control characters.
fn word(text: &[u8], bytes_max: usize) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let is_word = !text.is_empty()
        && text.len() <= bytes_max
        && !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    is_word.then(|| text.to_string())
}

/// The id of a member, in lower case.
fn id(text: &[u8]) -> Result<String, CommandError> {
    let is_id = text.len() == ID_DIGITS && text.iter().all(u8::is_ascii_hexdigit);
    let id = is_id.then(|| String::from_utf8_lossy(text).to_ascii_lowercase());
    id.ok_or(CommandError::Text("ERR the id of a member is 16 hexadecimal digits: see GROUP MEMBERS"))
}

/// `GROUP REMOVE id [FORCE]`
pub(super) fn remove(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let id = id(args.at(2))?;
    let by_force = match args.get(3) {
        None => false,
        Some(_) if args.len() > 4 => return Err(CommandError::WrongArity("group|remove")),
        Some(word) if word.eq_ignore_ascii_case(b"force") => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    let group = &cx.host.group;
    cx.promise_for_sure(|responder| group.remove(&id, by_force, responder));
    Ok(())
}

/// `GROUP TRANSFER [id]`
pub(super) fn transfer(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::WrongArity("group|transfer"));
    }
    let to = args.get(2).map(id).transpose()?;
    let group = &cx.host.group;
    cx.promise_for_sure(|responder| group.transfer(to.as_deref(), None, responder));
    Ok(())
}

/// `GROUP PEER version group-id from-id to-id`: hands the connection over to the group. Afterwards the
/// connection no longer speaks RESP. A member that has no roster yet is reached in this way, so no group is
/// required here.
pub(super) fn peer(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.session.claim = Some(PeerClaim::Member(args.skip(2).iter().map(<[u8]>::to_vec).collect()));
    // The new owner of the connection sends the answer.
    cx.session.closing = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::{PeerClaim, group::NO_GROUP};

    use crate::testing::{TestServer, check, sample_group};

    const NOT_AN_ID: &str = "-ERR the id of a member is 16 hexadecimal digits: see GROUP MEMBERS";

    #[test]
    fn changes_are_answered_when_the_group_has_decided() {
        let mut server = TestServer::new();
        *server.host.group.view.lock() = Some(sample_group());
        let client = server.session.client.id();
        for (command, asked, answer) in [
            (
                "group join 1 shop 00000000000000d4 db4.example 7004 7104",
                "join v1 shop 00000000000000d4 db4.example:7004 http 7104",
                "+0123456789abcdef0123456789abcdef",
            ),
            (
                "GROUP JOIN 4294967295 ärger 00000000000000D4 fd00::4 65535 1",
                "join v4294967295 ärger 00000000000000d4 [fd00::4]:65535 http 1",
                "+0123456789abcdef0123456789abcdef",
            ),
            (
                "GROUP JOIN 1 shop 00000000000000d4 db4.example 7004 7104 witness",
                "join v1 shop 00000000000000d4 db4.example:7004 http 7104 witness",
                "+0123456789abcdef0123456789abcdef",
            ),
            ("group remove 00000000000000b2", "remove 00000000000000b2", "+OK"),
            ("group remove 00000000000000B2", "remove 00000000000000b2", "+OK"),
            ("group transfer", "transfer", "+OK"),
            ("failover timeout 500", "transfer within 500 ms", "+OK"),
            ("group transfer 00000000000000b2", "transfer 00000000000000b2", "+OK"),
        ] {
            assert_eq!(server.run(command), "", "{command}");
            assert_eq!(server.host.group.take_asked(), [asked]);
            assert_eq!(server.host.take_answer(client), None);
            server.host.group.answer(Ok(()));
            assert_eq!(server.host.take_answer(client).expect("an answer").0, answer, "{command}");
            server.session.wait = None;
        }
        assert_eq!(server.run("group remove 00000000000000ff"), "");
        server.host.group.answer(Err("ERR no member has this id".into()));
        assert_eq!(server.host.take_answer(client).expect("an answer").0, "-ERR no member has this id");
    }

    #[test]
    fn a_server_without_a_group_refuses_changes() {
        let mut server = TestServer::new();
        let client = server.session.client.id();
        for command in [
            "group join 1 shop 00000000000000d4 db4 7004 7104",
            "group remove 00000000000000b2",
            "group transfer",
        ] {
            assert_eq!(server.run(command), "");
            let answer = server.host.take_answer(client).expect("an answer");
            assert_eq!(answer.0, format!("-{NO_GROUP}"), "{command}");
            server.session.wait = None;
        }
    }

    #[test]
    fn group_join_refuses_an_invalid_identity() {
        let long = format!("group join 1 shop 00000000000000d4 {} 7004 7104", "x".repeat(254));
        let long_name = format!("group join 1 {} 00000000000000d4 db4 7004 7104", "x".repeat(65));
        check(&[
            (
                "group join x shop 00000000000000d4 db4 7004 7104",
                "-ERR invalid version of the protocol between members",
            ),
            (
                "group join 4294967296 shop 00000000000000d4 db4 7004 7104",
                "-ERR invalid version of the protocol between members",
            ),
            ("group join 1 \"\" 00000000000000d4 db4 7004 7104", "-ERR invalid name of a group"),
            ("group join 1 \"a b\" 00000000000000d4 db4 7004 7104", "-ERR invalid name of a group"),
            ("group join 1 \"a\\xff\" 00000000000000d4 db4 7004 7104", "-ERR invalid name of a group"),
            (&long_name, "-ERR invalid name of a group"),
            ("group join 1 shop 00000000000000d db4 7004 7104", NOT_AN_ID),
            ("group join 1 shop 00000000000000dg db4 7004 7104", NOT_AN_ID),
            ("group join 1 shop 00000000000000d4 \"\" 7004 7104", "-ERR invalid host"),
            ("group join 1 shop 00000000000000d4 \"a\\x00\" 7004 7104", "-ERR invalid host"),
            ("group join 1 shop 00000000000000d4 [::1] 7004 7104", "-ERR invalid host"),
            (&long, "-ERR invalid host"),
            ("group join 1 shop 00000000000000d4 db4 0 7104", "-ERR invalid port"),
            ("group join 1 shop 00000000000000d4 db4 65536 7104", "-ERR invalid port"),
            ("group join 1 shop 00000000000000d4 db4 +1 7104", "-ERR invalid port"),
            ("group join 1 shop 00000000000000d4 db4 7004 0", "-ERR invalid port of HTTP"),
            ("group join 1 shop", "-ERR wrong number of arguments for 'group|join' command"),
            ("group join 1 shop 00000000000000d4 db4 7004 7104 x", "-ERR syntax error"),
            (
                "group join 1 shop 00000000000000d4 db4 7004 7104 witness x",
                "-ERR wrong number of arguments for 'group|join' command",
            ),
        ]);
    }

    #[test]
    fn members_are_named_by_their_ids() {
        check(&[
            ("group remove x", NOT_AN_ID),
            ("group remove 00000000000000000", NOT_AN_ID),
            ("group remove 00000000000000b2 x", "-ERR syntax error"),
            (
                "group remove 00000000000000b2 force x",
                "-ERR wrong number of arguments for 'group|remove' command",
            ),
            ("group remove", "-ERR wrong number of arguments for 'group|remove' command"),
            ("group transfer \"\"", NOT_AN_ID),
            (
                "group transfer 00000000000000b2 x",
                "-ERR wrong number of arguments for 'group|transfer' command",
            ),
        ]);
    }

    #[test]
    fn a_peer_takes_the_connection_over() {
        let mut server = TestServer::new();
        assert_eq!(server.run("group peer 1 0123 00000000000000a1 00000000000000b2"), "");
        let words =
            ["1", "0123", "00000000000000a1", "00000000000000b2"].map(|word| word.as_bytes().to_vec());
        assert_eq!(server.session.claim, Some(PeerClaim::Member(words.into())));
        assert!(server.session.closing);
        check(&[
            ("group peer 1 0123 00000000000000a1", "-ERR wrong number of arguments for 'group|peer' command"),
            ("group peer 1 2 3 4 5", "-ERR wrong number of arguments for 'group|peer' command"),
        ]);
    }

    #[test]
    fn neither_changes_nor_peers_are_queued() {
        for command in [
            "group join 1 shop 00000000000000d4 db4 7004 7104",
            "group peer 1 0123 00000000000000a1 00000000000000b2",
            "group remove 00000000000000b2",
            "group transfer",
        ] {
            check(&[
                ("multi", "+OK"),
                (command, "-ERR Command not allowed inside a transaction"),
                ("exec", "-EXECABORT Transaction discarded because of previous errors."),
            ]);
        }
    }
}
