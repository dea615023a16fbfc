//! Listing and closing connections: CLIENT LIST, INFO, KILL.

use engine::{
    CommandError, Context,
    clients::{Client, ClientCondition, ClientFilter, ClientKind, are_capabilities, are_flags},
    users::UserSet,
};
use keyspace::DbId;
use wire::{Args, number::parse_i64};

/// The approximate size of a client's line in a list, in bytes.
const LINE_BYTES: usize = 384;

/// `CLIENT INFO`
pub(super) fn info(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let client = cx.session.client.clone();
    reply_lines(cx, [&*client]);
    Ok(())
}

/// `CLIENT LIST [filter value ...]`
pub(super) fn list(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let filter = parse_filter(args.skip(2), None, cx)?;
    let clients = match filter.conditions.as_slice() {
        // The clients are listed in the order in which their ids are named.
        [(ClientCondition::Ids(ids), true)] if filter.except.is_none() => {
            ids.iter().filter_map(|id| cx.host.clients.find(*id)).collect()
        }
        _ => cx.host.clients.matching(&filter, cx.now_ms()),
    };
    reply_lines(cx, clients.iter().map(|client| &**client));
    Ok(())
}

fn reply_lines<'c>(cx: &mut Context<'_, '_>, clients: impl IntoIterator<Item = &'c Client>) {
    let clients = clients.into_iter();
    let mut lines = String::with_capacity(clients.size_hint().0 * LINE_BYTES);
    for client in clients {
        client.render(crate::table(), cx.now_ms(), &mut lines);
        lines.push('\n');
    }
    cx.reply.verbatim(*b"txt", lines.as_bytes());
}

/// `CLIENT KILL ip:port`, or `CLIENT KILL filter value [filter value ...]`
pub(super) fn kill(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() == 3 {
        let filter = ClientFilter::only(ClientCondition::Peer(args.at(2)));
        return match kill_matching(cx, &filter) {
            0 => Err(CommandError::Text("ERR No such client")),
            _ => {
                cx.reply.ok();
                Ok(())
            }
        };
    }
    let filter = parse_filter(args.skip(2), Some(cx.session.client.id()), cx)?;
    let killed = kill_matching(cx, &filter);
    cx.reply.count(killed);
    Ok(())
}

/// Kills the matching clients, and returns their number. This client itself is closed after its reply.
fn kill_matching(cx: &mut Context<'_, '_>, filter: &ClientFilter<'_>) -> usize {
    let own_id = cx.session.client.id();
    // The connections of Sheaf's own replicas are not in the list of clients. Only the kind of these
    // connections is known here, so they match a filter only if the kind is its single condition.
    let is_of_replicas = filter.wants_kind(ClientKind::Replica) && filter.conditions.len() == 1;
    let disconnected = if is_of_replicas { cx.host.replication.disconnect_replicas() } else { 0 };
    let matching = cx.host.clients.matching(filter, cx.now_ms());
    for client in &matching {
        if client.id() == own_id {
            cx.session.closing = true;
            client.set_closing();
        } else {
            client.kill();
        }
    }
    disconnected + matching.len()
}

/// Parses the filters of CLIENT LIST, where `except` is `None`, or of CLIENT KILL. For CLIENT KILL, `except`
/// is the client that has sent the command; this client is spared unless `SKIPME no` follows.
fn parse_filter<'a>(
    args: Args<'a>,
    except: Option<u64>,
    cx: &Context<'_, '_>,
) -> Result<ClientFilter<'a>, CommandError> {
    let (kills, own_id) = (except.is_some(), cx.session.client.id());
    let mut filter = ClientFilter { except, ..ClientFilter::default() };
    let mut at = 0;
    while let Some(option) = args.get(at) {
        let option = option.to_ascii_lowercase();
        let (name, wanted) =
            option.strip_prefix(b"not-").map_or((option.as_slice(), true), |name| (name, false));
        let value = args.get(at + 1).ok_or(CommandError::Syntax)?;
        at += 2;
        let condition = match name {
            b"skipme" if wanted && value.eq_ignore_ascii_case(b"yes") => {
                filter.except = Some(own_id);
                continue;
            }
            b"skipme" if wanted && value.eq_ignore_ascii_case(b"no") => {
                filter.except = None;
                continue;
            }
            b"id" => {
                let mut ids = vec![parse_id(value, kills)?];
                while let Some(id) = args.get(at).filter(|text| parse_i64(text).is_some()) {
                    ids.push(parse_id(id, kills)?);
                    at += 1;
                }
                if !kills && args.get(at).is_some_and(|option| !is_filter(option)) {
                    return Err(BAD_ID);
                }
                ClientCondition::Ids(ids)
            }
            _ => parse_condition(name, value, wanted, &cx.host.users.current())?,
        };
        filter.conditions.push((condition, wanted));
    }
    Ok(filter)
}

/// The filters besides ID, which takes several values, and SKIPME, which is no condition.
const FILTERS: [&[u8]; 13] = [
    b"type",
    b"addr",
    b"laddr",
    b"user",
    b"maxage",
    b"idle",
    b"flags",
    b"name",
    b"lib-name",
    b"lib-ver",
    b"db",
    b"capa",
    b"ip",
];

/// Whether a word is the name of a filter, possibly after `not-`.
fn is_filter(word: &[u8]) -> bool {
    let word = word.to_ascii_lowercase();
    let name = word.strip_prefix(b"not-").unwrap_or(&word);
    FILTERS.contains(&name) || name == b"id" || name == b"skipme"
}

fn parse_condition<'a>(
    name: &[u8],
    value: &'a [u8],
    wanted: bool,
    users: &UserSet,
) -> Result<ClientCondition<'a>, CommandError> {
    Ok(match name {
        b"type" => ClientCondition::Kind(parse_kind(value)?),
        b"addr" => ClientCondition::Peer(value),
        b"laddr" => ClientCondition::Local(value),
        b"ip" => ClientCondition::Ip(value),
        b"user" if users.get(value).is_some() => ClientCondition::User(value),
        b"user" => return Err(unknown("ERR No such user", value)),
        b"maxage" if wanted => ClientCondition::AgeSecondsMin(parse_seconds(value, MAX_AGE)?),
        b"idle" if wanted => ClientCondition::IdleSecondsMin(parse_seconds(value, IDLE)?),
        b"flags" if are_flags(value) => ClientCondition::Flags(value),
        b"flags" => return Err(unknown_letters("flags", value)),
        b"capa" if are_capabilities(value) => ClientCondition::Capabilities(value),
        b"capa" => return Err(unknown_letters("capa", value)),
        b"name" => ClientCondition::Name(value),
        b"lib-name" => ClientCondition::Library(value),
        b"lib-ver" => ClientCondition::LibraryVersion(value),
        b"db" => ClientCondition::Db(parse_db(value)?),
        _ => return Err(CommandError::Syntax),
    })
}

const BAD_ID: CommandError = CommandError::Text("ERR Invalid client ID");

/// Parses the id of a client. CLIENT LIST takes any number, CLIENT KILL only positive numbers.
fn parse_id(text: &[u8], kills: bool) -> Result<u64, CommandError> {
    if kills {
        return parse_positive(text, "ERR client-id should be greater than 0");
    }
    Ok(u64::try_from(parse_i64(text).ok_or(BAD_ID)?).unwrap_or(0))
}

fn parse_db(text: &[u8]) -> Result<DbId, CommandError> {
    const NO_DB: CommandError = CommandError::Text("ERR DB number should be between 0 and 15");
    let number = parse_i64(text).ok_or(CommandError::Text("ERR DB is not an integer or out of range"))?;
    u8::try_from(number).ok().and_then(DbId::new).ok_or(NO_DB)
}

/// The errors for a number of seconds: if it is no integer, and if it is not positive.
type SecondsErrors = [&'static str; 2];
const MAX_AGE: SecondsErrors =
    ["ERR maxage is not an integer or out of range", "ERR maxage should be greater than 0"];
const IDLE: SecondsErrors =
    ["ERR idle is not an integer or out of range", "ERR idle should be greater than 0"];

fn parse_seconds(text: &[u8], [no_number, not_positive]: SecondsErrors) -> Result<u64, CommandError> {
    parse_i64(text).ok_or(CommandError::Text(no_number))?;
    parse_positive(text, not_positive)
}

fn unknown_letters(what: &str, letters: &[u8]) -> CommandError {
    let letters = String::from_utf8_lossy(letters);
    CommandError::Composed(format!("ERR Unknown {what} found in the provided filter: {letters}"))
}

fn parse_positive(text: &[u8], error: &'static str) -> Result<u64, CommandError> {
    let number = parse_i64(text).filter(|number| *number > 0).ok_or(CommandError::Text(error))?;
    Ok(number.unsigned_abs())
}

fn parse_kind(text: &[u8]) -> Result<ClientKind, CommandError> {
    ClientKind::parse(text).ok_or_else(|| unknown("ERR Unknown client type", text))
}

fn unknown(what: &str, text: &[u8]) -> CommandError {
    CommandError::Composed(format!("{what} '{}'", String::from_utf8_lossy(text)))
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use crate::testing::{START_MS, TestServer, check};
    use engine::clients::Connected;

    /// Connects a second client from this address, ten seconds after the first.
    fn with_second_client(peer: &str) -> TestServer {
        let server = TestServer::new();
        server.clock.advance_ms(10_000);
        let (peer, local) = (peer.to_string(), "127.0.0.1:6379".to_string());
        let signaller = Box::new(|_, _| {});
        server.host.clients.register(Connected {
            peer,
            peer_uid: None,
            local,
            fd: 9,
            now_ms: START_MS + 10_000,
            signaller,
        });
        server
    }

    fn lines(server: &mut TestServer, command: &str) -> Vec<String> {
        let bytes = match server.value(command) {
            Value::Bulk(bytes) => bytes,
            Value::Verbatim { format, text } => {
                assert_eq!(format, *b"txt");
                text
            }
            other => panic!("{other:?}"),
        };
        let text = String::from_utf8(bytes).expect("lists are text");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(str::to_string).collect()
    }

    fn second_is_killed(server: &TestServer) -> bool {
        server.host.clients.find(2).expect("still registered").is_killed()
    }

    #[test]
    fn clients_are_listed_by_id() {
        let mut server = with_second_client("10.0.0.2:77");
        for protocol in ["hello 2", "hello 3"] {
            server.run(protocol);
            let all = lines(&mut server, "client list");
            assert_eq!(all.len(), 2);
            assert!(
                all[0].starts_with("id=1 addr=127.0.0.1:50001 laddr=127.0.0.1:6379 fd=8 name= age=10 idle=0")
            );
            assert!(all[0].contains(" cmd=client|list "), "{}", all[0]);
            assert!(all[1].starts_with("id=2 addr=10.0.0.2:77 "), "{}", all[1]);
            assert_eq!(lines(&mut server, "client list type normal").len(), 2);
            assert_eq!(lines(&mut server, "client list TYPE pubsub").len(), 0);
            assert_eq!(lines(&mut server, "client list id 2 99 1 -5").len(), 2);
            assert!(lines(&mut server, "client list ID 2")[0].starts_with("id=2 "));
            assert_eq!(lines(&mut server, "client list id 1 2 type normal not-name x").len(), 2);
            assert_eq!(lines(&mut server, "client list skipme yes").len(), 1);
            assert_eq!(lines(&mut server, "client list not-ip 10.0.0.2 flags N").len(), 1);
            let own = lines(&mut server, "client info");
            assert!(own.len() == 1 && own[0].contains(" cmd=client|info "), "{own:?}");
        }
    }

    #[test]
    fn client_list_refuses_unknown_arguments() {
        check(&[
            ("client list type foo", "-ERR Unknown client type 'foo'"),
            ("client list id x", "-ERR Invalid client ID"),
            ("client list id 1 x", "-ERR Invalid client ID"),
            ("client list id", "-ERR syntax error"),
            ("client list foo", "-ERR syntax error"),
            ("client list type", "-ERR syntax error"),
            ("client list not-skipme yes", "-ERR syntax error"),
            ("client list not-idle 1", "-ERR syntax error"),
            ("client list idle 0", "-ERR idle should be greater than 0"),
            ("client list idle x", "-ERR idle is not an integer or out of range"),
            ("client list flags Z", "-ERR Unknown flags found in the provided filter: Z"),
            ("client list capa x", "-ERR Unknown capa found in the provided filter: x"),
            ("client list db x", "-ERR DB is not an integer or out of range"),
            ("client list db 16", "-ERR DB number should be between 0 and 15"),
            ("client list user nobody", "-ERR No such user 'nobody'"),
            ("client info x", "-ERR wrong number of arguments for 'client|info' command"),
        ]);
    }

    #[test]
    fn the_old_form_kills_one_address_even_its_own() {
        let mut server = with_second_client("10.0.0.2:77");
        server
            .check(&[("client kill 10.0.0.9:1", "-ERR No such client"), ("client kill 10.0.0.2:77", "+OK")]);
        assert!(second_is_killed(&server) && !server.session.closing);
        assert_eq!(server.run("client kill 127.0.0.1:50001"), "+OK");
        assert!(server.session.closing && !server.session.client.is_killed(), "the reply must still leave");
    }

    #[test]
    fn the_new_form_kills_by_filters() {
        for (filters, killed) in [
            ("id 2", 1),
            ("id 3", 0),
            ("addr 10.0.0.2:77", 1),
            ("ADDR 10.0.0.2:78", 0),
            ("laddr 127.0.0.1:6379", 1),
            ("type normal", 1),
            ("type slave", 0),
            ("user default", 1),
            ("maxage 5", 1),
            ("maxage 6", 0),
            ("id 2 addr 10.0.0.2:77 laddr 127.0.0.1:6379 type normal user default maxage 1 skipme yes", 1),
            ("id 2 addr 10.0.0.2:78", 0),
            ("id 2 id 3", 0),
            ("id 3 2", 1),
            ("ip 10.0.0.2 not-user default", 0),
            ("ip 10.0.0.2 idle 5", 1),
            ("db 0 not-id 3", 1),
            ("db 1", 0),
        ] {
            let mut server = with_second_client("10.0.0.2:77");
            server.clock.advance_ms(5_000);
            assert_eq!(server.run(&format!("client kill {filters}")), format!(":{killed}"), "{filters}");
            assert_eq!(second_is_killed(&server), killed == 1, "{filters}");
            assert!(!server.session.closing, "{filters}");
        }
    }

    #[test]
    fn replicas_are_disconnected_by_their_kind_alone() {
        for (filters, killed) in [
            ("type replica addr 10.0.0.9:1", 0),
            ("type slave not-user default", 0),
            ("type replica", 2),
            ("type slave skipme no", 2),
        ] {
            let mut server = with_second_client("10.0.0.2:77");
            server.host.replication.replicas.store(2, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(server.run(&format!("client kill {filters}")), format!(":{killed}"), "{filters}");
            assert!(!second_is_killed(&server), "{filters}");
        }
    }

    #[test]
    fn the_new_form_spares_the_client_itself_unless_told() {
        let mut server = TestServer::new();
        assert_eq!(server.run("client kill id 1 skipme yes"), ":0");
        assert_eq!(server.run("client kill type normal"), ":0");
        assert!(!server.session.closing);
        assert_eq!(server.run("client kill id 1 SKIPME NO"), ":1");
        assert!(server.session.closing && !server.session.client.is_killed());
    }

    #[test]
    fn client_kill_refuses_unknown_arguments() {
        check(&[
            ("client kill", "-ERR wrong number of arguments for 'client|kill' command"),
            ("client kill id 0", "-ERR client-id should be greater than 0"),
            ("client kill id -1", "-ERR client-id should be greater than 0"),
            ("client kill id x", "-ERR client-id should be greater than 0"),
            ("client kill type x", "-ERR Unknown client type 'x'"),
            ("client kill user x", "-ERR No such user 'x'"),
            ("client kill skipme x", "-ERR syntax error"),
            ("client kill foo bar", "-ERR syntax error"),
            ("client kill id 1 addr", "-ERR syntax error"),
            ("client kill maxage x", "-ERR maxage is not an integer or out of range"),
            ("client kill maxage 0", "-ERR maxage should be greater than 0"),
        ]);
    }
}
