//! The session: HELLO, AUTH, SELECT, PING, ECHO, ASKING, READONLY, READWRITE, QUIT, RESET.

use access::{LoginOf, Turn, User, Waiter};
use engine::{
    CommandError, Context, ReplyMode, Session, Transaction,
    clients::{DEFAULT_USER, Label, Labels},
    replication::RoleView,
    users::{CHECKS_PER_LOGIN_MAX, LogIn, PAUSE_MS, Verdict},
};
use keyspace::DbId;
use wire::{Args, Protocol, ReplyWriter, number::parse_i64};

use crate::{
    REDIS_VERSION, channels::unsubscribe_all, connection::attributes::BAD_NAME, database::parse_db,
    server::stop_monitoring,
};

/// The error of HELLO without AUTH for a client that must authenticate.
const HELLO_BEFORE_AUTH: CommandError = CommandError::Text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
     <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

const TOO_MANY_LOGINS: CommandError =
    CommandError::Text("ERR too many logins from this address wait after failed ones, try again later");

#[derive(Default)]
struct Hello<'a> {
    protocol: Option<Protocol>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<Label>,
}

impl<'a> Hello<'a> {
    fn parse(args: Args<'a>) -> Result<Hello<'a>, CommandError> {
        let mut hello = Hello::default();
        let mut rest = args.skip(1).iter();
        let Some(version) = rest.next() else { return Ok(hello) };
        hello.protocol = Some(parse_protocol(version)?);
        while let Some(option) = rest.next() {
            let takes = rest.len();
            if option.eq_ignore_ascii_case(b"auth") && takes >= 2 {
                hello.credentials = rest.next().zip(rest.next());
            } else if option.eq_ignore_ascii_case(b"setname") && takes >= 1 {
                hello.name = Some(rest.next().and_then(Label::parse).ok_or(BAD_NAME)?);
            } else {
                let option = String::from_utf8_lossy(option);
                return Err(CommandError::Composed(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
        Ok(hello)
    }
}

fn parse_protocol(version: &[u8]) -> Result<Protocol, CommandError> {
    const NO_NUMBER: CommandError =
        CommandError::Text("ERR Protocol version is not an integer or out of range");
    match parse_i64(version).ok_or(NO_NUMBER)? {
        2 => Ok(Protocol::Resp2),
        3 => Ok(Protocol::Resp3),
        _ => Err(CommandError::NoProto),
    }
}

/// Whether the argument of HELLO at `index` is one of the two after AUTH: the username or the password.
pub(super) fn is_secret_of_hello(args: Args<'_>, index: usize) -> bool {
    let follows_auth =
        |distance: usize| index >= 2 + distance && args.at(index - distance).eq_ignore_ascii_case(b"auth");
    follows_auth(1) || follows_auth(2)
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
pub(super) fn hello(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Hello { protocol, credentials, name } = Hello::parse(args)?;
    if let Some((user, password)) = credentials {
        authenticate(cx, args.at(0), user, password)?;
    }
    if !cx.session.authenticated {
        return Err(HELLO_BEFORE_AUTH);
    }
    if let Some(name) = name {
        cx.session.client.change_labels(|labels| labels.name = name);
    }
    if let Some(protocol) = protocol {
        set_protocol(cx, protocol);
    }
    // The reply already uses the new protocol, but `cx.reply` still has the old one.
    let mut reply = Vec::with_capacity(128);
    let role = match cx.host.replication.role() {
        RoleView::Leader { .. } => "master",
        RoleView::Replica { .. } => "replica",
    };
    let mode = if cx.host.config.emulates_cluster() { "cluster" } else { "standalone" };
    introduce(&mut ReplyWriter::new(&mut reply, cx.session.protocol), cx.session, (mode, role));
    cx.reply.raw(&reply);
    Ok(())
}

fn introduce(reply: &mut ReplyWriter<'_>, session: &Session, (mode, role): (&str, &str)) {
    reply.map(7);
    let texts = |reply: &mut ReplyWriter<'_>, pairs: &[(&str, &str)]| {
        pairs.iter().flat_map(|(name, value)| [name, value]).for_each(|text| reply.bulk(text.as_bytes()));
    };
    texts(reply, &[("server", "redis"), ("version", REDIS_VERSION)]);
    reply.bulk(b"proto");
    reply.integer(match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    });
    reply.bulk(b"id");
    reply.integer(session.client.id() as i64);
    texts(reply, &[("mode", mode), ("role", role)]);
    reply.bulk(b"modules");
    reply.array(0);
}

/// `AUTH [username] password`
pub(super) fn auth(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match (args.get(1), args.get(2), args.len()) {
        (Some(_), None, _) if cx.host.users.current().default_user().user.needs_no_password => {
            return Err(CommandError::NoPasswordSet);
        }
        (Some(password), None, _) => authenticate(cx, args.at(0), DEFAULT_USER.as_bytes(), password)?,
        (Some(user), Some(password), 3) => authenticate(cx, args.at(0), user, password)?,
        _ => return Err(CommandError::Syntax),
    }
    cx.reply.ok();
    Ok(())
}

/// Logs the client in.
/// - An enabled user that needs no password accepts any password. If certificates name users, such a user,
///   except `default`, accepts only a client whose certificate names this user.
/// - The password for an unknown user is hashed, too, so that the time of a refusal hardly tells whether the
///   user exists.
/// - After failures, the clients of an address wait before the next password is looked at. A client also
///   waits while its password is checked on another thread.
/// - In a transaction, a login cannot wait and is refused instead. For this reason EXEC waits for the checks
///   before it begins ([`check_queued_passwords`]).
fn authenticate(
    cx: &mut Context<'_, '_>,
    command: &[u8],
    user: &[u8],
    password: &[u8],
) -> Result<(), CommandError> {
    if cx.host.process.loading().is_some() {
        return authenticate_while_loading(cx, command, user, password);
    }
    let (login, now_ms) = (login_of(cx, user), cx.now_ms());
    if cx.in_transaction && !cx.host.users.may_log_in_now(login, now_ms) {
        return Err(CommandError::WrongPass);
    }
    let turn = cx.host.users.ask_login(login, now_ms);
    require_turn(cx, turn)?;
    let users = cx.host.users.current();
    let known = users.get(user);
    if !known.is_some_and(|principal| principal.may_be_server) {
        // The reply waits until the last change of the user is committed or, if the user is unknown, the last
        // change of any user. The reply to a server does not wait: the commit may need its acknowledgement,
        // and a server must log in before it can send one.
        cx.unit.note_seen(known.map_or(users.lsn, |principal| principal.lsn));
    }
    let nobody = User::initial(false);
    let known_user = known.map_or(&nobody, |it| &it.user);
    let Some(accepts) = accepts(cx, known_user, password) else {
        return require_turn(cx, Turn::Later { pause_ms: PAUSE_MS });
    };
    cx.session.checks_begun = 0;
    let lacks_certificate = known.is_some_and(|it| {
        it.user.needs_no_password
            && user != DEFAULT_USER.as_bytes()
            && cx.host.users.settings().certificates_name_users
            && cx.session.certificate_name.as_deref() != Some(user)
    });
    let accepts = accepts && !lacks_certificate;
    let turn = cx.host.users.attempt_login(login, accepts, now_ms);
    require_turn(cx, turn)?;
    match known.filter(|_| accepts) {
        Some(principal) => {
            cx.session.log_in(LogIn::new(principal, users.generation));
            Ok(())
        }
        None => {
            cx.session.has_failed_login = true;
            cx.host.users.note_failed_login(command, user, cx.session, now_ms);
            Err(CommandError::WrongPass)
        }
    }
}

/// The login of this client as `user`: the address that it comes from, and the client that waits for it.
fn login_of<'a>(cx: &Context<'_, '_>, user: &'a [u8]) -> LoginOf<'a> {
    let client = &cx.session.client;
    LoginOf { address: client.address(), user, waiter: Waiter::Client(client.id()) }
}

/// Goes on if the login may be judged now.
///
/// # Errors
/// In a transaction, the login is refused. Otherwise the command runs again later. If too many logins of the
/// address wait, the login is refused, and the client is disconnected unless it is logged in already.
fn require_turn(cx: &mut Context<'_, '_>, turn: Turn) -> Result<(), CommandError> {
    match turn {
        Turn::Now => Ok(()),
        _ if cx.in_transaction => Err(CommandError::WrongPass),
        Turn::Later { pause_ms } => Err(CommandError::Later { pause_ms }),
        Turn::TooMany => {
            if !cx.session.authenticated {
                cx.session.closing = true;
                cx.session.client.set_closing();
            }
            Err(TOO_MANY_LOGINS)
        }
    }
}

/// Logs the client in before the users are known: the records replayed so far are those of an earlier moment.
/// So only users that the settings make can log in yet.
fn authenticate_while_loading(
    cx: &mut Context<'_, '_>,
    command: &[u8],
    user: &[u8],
    password: &[u8],
) -> Result<(), CommandError> {
    let (login, now_ms) = (login_of(cx, user), cx.now_ms());
    if cx.in_transaction && !cx.host.users.may_log_in_now(login, now_ms) {
        return Err(CommandError::Loading);
    }
    let known = cx.host.users.of_settings(user);
    let accepts = known.as_ref().is_some_and(|known| known.accepts(password));
    let turn = cx.host.users.attempt_login(login, accepts, now_ms);
    require_turn(cx, turn)?;
    let users = cx.host.users.current();
    let Some(known) = known else { return Err(CommandError::Loading) };
    if known.is_enabled && known.needs_no_password {
        // Such a user admits everybody, and the records may yet give it a password, so the client does not
        // become this user.
        cx.session.log_out(&users);
        return Ok(());
    }
    match users.get(user).filter(|_| accepts) {
        Some(principal) => {
            cx.session.log_in(LogIn::new(principal, users.generation));
            Ok(())
        }
        None => {
            cx.session.has_failed_login = true;
            cx.host.users.note_failed_login(command, user, cx.session, now_ms);
            Err(CommandError::Loading)
        }
    }
}

/// Makes EXEC wait until the passwords of its logins are checked on another thread. EXEC does not wait while
/// the server loads, nor while the client's address has to wait after failures.
///
/// # Errors
/// EXEC has to wait, and then runs again.
pub(crate) fn check_queued_passwords(cx: &mut Context<'_, '_>) -> Result<(), CommandError> {
    let Some(transaction) = cx.session.transaction.take() else { return Ok(()) };
    let is_known = are_passwords_known(cx, &transaction);
    cx.session.transaction = Some(transaction);
    if !is_known {
        return Err(CommandError::Later { pause_ms: PAUSE_MS });
    }
    cx.session.checks_begun = 0;
    Ok(())
}

fn are_passwords_known(cx: &mut Context<'_, '_>, transaction: &Transaction) -> bool {
    let mut logins = transaction.commands().iter().filter_map(|queued| {
        let args = queued.args.as_args();
        match queued.found.row.name {
            "auth" => Some((args.get(1)?, args.get(2)?)),
            "hello" => Hello::parse(args).ok()?.credentials,
            _ => None,
        }
    });
    if cx.host.process.loading().is_some() {
        return true;
    }
    let (users, now_ms) = (cx.host.users.current(), cx.now_ms());
    logins.all(|(name, password)| {
        !cx.host.users.may_log_in_now(login_of(cx, name), now_ms)
            || users.get(name).is_none_or(|known| accepts(cx, &known.user, password).is_some())
    })
}

/// Whether the user accepts this password. `None`: the check takes long and runs on another thread, so the
/// caller must ask again. Also `Some(false)` if the login needs one more check after
/// [`CHECKS_PER_LOGIN_MAX`] checks.
fn accepts(cx: &mut Context<'_, '_>, user: &User, password: &[u8]) -> Option<bool> {
    if let Some(accepts) = user.accepts_at_once(password) {
        return Some(accepts);
    }
    let (users, now_ms) = (cx.host.users.clone(), cx.now_ms());
    match users.password_checks.verdict(user.derived_password.as_ref()?, password, now_ms) {
        Verdict::Known(accepts) => Some(accepts),
        Verdict::Later => None,
        Verdict::Begins(check) => {
            let running = users.clone();
            cx.host.process.run_apart(Box::new(move || running.password_checks.run(check, now_ms)));
            if cx.in_transaction {
                return None;
            }
            // After so many checks this login is refused; the last check still runs, for the next login.
            let has_waited_enough = cx.session.checks_begun == CHECKS_PER_LOGIN_MAX;
            cx.session.checks_begun += u8::from(!has_waited_enough);
            has_waited_enough.then_some(false)
        }
    }
}

/// `SELECT index`
pub(super) fn select(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_db(cx.session, parse_db(args.at(1))?);
    cx.reply.ok();
    Ok(())
}

/// `PING [message]`
pub(super) fn ping(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let listens = cx.session.subscribed && cx.session.protocol == Protocol::Resp2;
    match args.len() {
        1 | 2 if listens => {
            cx.reply.array(2);
            cx.reply.bulk(b"pong");
            cx.reply.bulk(args.get(1).unwrap_or_default());
        }
        1 => cx.reply.simple("PONG"),
        2 => cx.reply.bulk(args.at(1)),
        _ => return Err(CommandError::WrongArity("ping")),
    }
    Ok(())
}

/// `ECHO message`
pub(super) fn echo(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.bulk(args.at(1));
    Ok(())
}

/// `ASKING`: does nothing, because slots never move from one server to another.
pub(super) fn asking(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    if !cx.host.config.emulates_cluster() {
        return Err(CommandError::Text("ERR This instance has cluster support disabled"));
    }
    cx.reply.ok();
    Ok(())
}

/// `READONLY`: sent by clients of a cluster before they read from a replica. Without `cluster-emulation`,
/// replicas answer reads even without READONLY.
pub(super) fn readonly(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.session.reads_replica = true;
    cx.reply.ok();
    Ok(())
}

/// `READWRITE`
pub(super) fn readwrite(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.session.reads_replica = false;
    cx.reply.ok();
    Ok(())
}

/// `QUIT`
pub(super) fn quit(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.session.closing = true;
    cx.session.client.set_closing();
    cx.reply.ok();
    Ok(())
}

/// `RESET`
pub(super) fn reset(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    stop_monitoring(cx);
    unsubscribe_all(cx);
    set_protocol(cx, Protocol::Resp2);
    let session = &mut *cx.session;
    session.end_transaction();
    set_db(session, DbId::ZERO);
    session.log_out(&cx.host.users.current());
    session.set_reply_mode(ReplyMode::On);
    session.durability = None;
    session.no_touch = false;
    session.tells_lsn = false;
    if std::mem::take(&mut session.is_import_source) {
        cx.host.clients.set_import_source(&session.client, false);
    }
    session.reads_replica = false;
    session.tracking = None;
    session.client.set_durability(None);
    session.client.set_no_touch(false);
    session.client.set_no_evict(false);
    // The attributes of the client library stay, as in Redis.
    session.client.change_labels(|labels: &mut Labels| labels.name = Label::default());
    cx.reply.simple("RESET");
    Ok(())
}

fn set_db(session: &mut Session, db: DbId) {
    session.db = db;
    session.client.set_db(db);
}

fn set_protocol(cx: &mut Context<'_, '_>, protocol: Protocol) {
    if let Some(id) = cx.session.subscriber {
        cx.channels().set_protocol(id, protocol);
    }
    cx.session.protocol = protocol;
    cx.session.client.set_protocol(protocol);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use access::{DerivedPassword, WAITING_MAX};
    use engine::users::UserSettings;

    use super::*;
    use crate::testing::{START_MS, TestServer, check};

    fn server_with_password() -> TestServer {
        let mut server = TestServer::new();
        server.set_password(Some(b"secret"));
        server.session.authenticated = false;
        server
    }

    #[test]
    fn hello_introduces_the_server_in_the_protocol_asked_for() {
        let mut server = TestServer::new();
        let introduction = |proto| {
            format!(
                "\"server\", \"redis\", \"version\", \"7.2.4\", \"proto\", :{proto}, \"id\", :1, \"mode\", \
                 \"standalone\", \"role\", \"master\", \"modules\", []"
            )
        };
        assert_eq!(server.run("hello"), format!("[{}]", introduction(2)));
        let map = server.run("HELLO 3");
        assert!(map.starts_with("{\"server\": \"redis\"") && map.contains("\"proto\": :3"), "{map}");
        assert_eq!(server.session.protocol, Protocol::Resp3);
        assert_eq!(server.run("HELLO"), map, "the protocol stays what it was");
        assert_eq!(server.run("hello 2 setname jobs"), format!("[{}]", introduction(2)));
        assert_eq!(server.session.client.labels().name.as_str(), "jobs");
    }

    #[test]
    fn an_invalid_hello_changes_nothing() {
        const BAD: &str = "-ERR Client names cannot contain spaces, newlines or special characters.";
        check(&[
            ("hello 4", "-NOPROTO unsupported protocol version"),
            ("hello 1", "-NOPROTO unsupported protocol version"),
            ("hello x", "-ERR Protocol version is not an integer or out of range"),
            ("hello 3 foo", "-ERR Syntax error in HELLO option 'foo'"),
            ("hello 3 auth default", "-ERR Syntax error in HELLO option 'auth'"),
            ("hello 3 SetName", "-ERR Syntax error in HELLO option 'SetName'"),
            ("hello 3 setname 'a b'", BAD),
            ("hello 3 auth default any setname 'a b'", BAD),
            (
                "hello 3 setname jobs auth someone any",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            ("client getname", "nil"),
        ]);
        let mut server = TestServer::new();
        server.run("hello 3 setname jobs auth someone any");
        assert_eq!(server.session.protocol, Protocol::Resp2);
    }

    #[test]
    fn nothing_but_greetings_is_answered_before_the_password() {
        const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
        let mut server = server_with_password();
        server.check(&[
            ("get a", "-NOAUTH Authentication required."),
            ("ping", "-NOAUTH Authentication required."),
            ("client id", "-NOAUTH Authentication required."),
            ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
            ("auth", "-ERR wrong number of arguments for 'auth' command"),
            ("auth wrong", WRONG),
            ("auth someone secret", WRONG),
            ("auth default wrong", WRONG),
            ("auth default secret more", "-ERR syntax error"),
            ("hello 3 auth default wrong", WRONG),
        ]);
        assert!(
            server.run("hello 3").starts_with("-NOAUTH HELLO must be called with the client already auth")
        );
        assert!(server.run("hello").starts_with("-NOAUTH HELLO must be called with the client already auth"));
        server.check(&[("auth secret", "+OK"), ("get a", "nil"), ("auth wrong", WRONG), ("get a", "nil")]);
        server.check(&[("reset", "+RESET"), ("get a", "-NOAUTH Authentication required.")]);
        server.check(&[("auth default secret", "+OK"), ("ping", "+PONG"), ("reset", "+RESET")]);
        assert!(server.run("hello 3 auth default secret").starts_with("{\"server\""));
        assert_eq!(server.run("ping"), "+PONG");
        server.check(&[("reset", "+RESET"), ("quit", "+OK")]);
        assert!(server.session.closing);
    }

    #[test]
    fn auth_without_a_password_in_force_is_told_so() {
        check(&[
            (
                "auth x",
                "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ),
            ("auth default anything", "+OK"),
            ("auth someone anything", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("auth a b c", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn a_user_without_a_password_needs_its_certificate_if_certificates_name_users() {
        const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
        let mut server = TestServer::new();
        server.check(&[
            ("acl setuser open on nopass +@all", "+OK"),
            ("acl setuser closed on >pw +@all", "+OK"),
            ("auth open anything", "+OK"),
            ("reset", "+RESET"),
        ]);
        let settings = UserSettings { certificates_name_users: true, ..UserSettings::DEFAULT };
        server.host.users.configure(settings);
        server.check(&[("auth open anything", WRONG), ("hello 2 auth open anything", WRONG)]);
        server.check(&[("auth closed pw", "+OK"), ("auth default anything", "+OK")]);
        server.session.certificate_name = Some(b"closed"[..].into());
        server.check(&[("auth open anything", WRONG)]);
        server.session.certificate_name = Some(b"open"[..].into());
        server.check(&[("auth open anything", "+OK"), ("acl whoami", "\"open\"")]);
    }

    /// A server with the user `u`, whose password `pw` takes long to check.
    fn server_with_derived_password() -> TestServer {
        let mut server = TestServer::new();
        let derived = DerivedPassword::derive(b"pw", b"salt", 1).expect("within limits");
        let rules = format!("acl setuser u reset on +@all ~* #{}", derived.to_text());
        server.check(&[(&rules, "+OK")]);
        server
    }

    #[test]
    fn exec_waits_for_the_checks_of_its_passwords() {
        const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
        for (queued, replies) in [
            ("auth u pw", "[+OK, \"u\"]".to_owned()),
            ("auth u wrong", format!("[{WRONG}, \"default\"]")),
            ("auth nobody pw", format!("[{WRONG}, \"default\"]")),
        ] {
            let mut server = server_with_derived_password();
            server.check(&[
                ("multi", "+OK"),
                (queued, "+QUEUED"),
                ("acl whoami", "+QUEUED"),
                ("exec", &replies),
            ]);
            assert_eq!(server.session.checks_begun, 0, "{queued}");
        }
    }

    #[test]
    fn a_login_does_not_wait_for_one_check_after_another() {
        const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
        let mut server = server_with_derived_password();
        // As if the password of the user had changed during each check.
        server.session.checks_begun = CHECKS_PER_LOGIN_MAX;
        server.check(&[("auth u pw", WRONG), ("auth u pw", "+OK")]);
    }

    #[test]
    fn few_logins_of_an_address_wait_and_further_clients_are_disconnected() {
        let mut server = server_with_password();
        let address = server.session.client.address();
        let now_ms = START_MS;
        (0..50).for_each(|_| server.host.users.note_failed_http_login(address, b"x", now_ms));
        for id in 1..=WAITING_MAX as u64 {
            let login = LoginOf { address, user: b"x", waiter: Waiter::Client(1_000 + id) };
            let turn = server.host.users.ask_login(login, now_ms);
            assert!(matches!(turn, Turn::Later { .. }), "{turn:?}");
        }
        server.check(&[(
            "auth secret",
            "-ERR too many logins from this address wait after failed ones, try again later",
        )]);
        assert!(server.session.closing && !server.session.authenticated);
        assert_eq!(server.host.users.logins_turned_away.load(Relaxed), 1);
        (server.session.closing, server.session.authenticated) = (false, true);
        server.check(&[(
            "auth secret",
            "-ERR too many logins from this address wait after failed ones, try again later",
        )]);
        assert!(!server.session.closing, "a client that is logged in goes on");
    }

    #[test]
    fn select_changes_the_database() {
        check(&[
            ("set a 0", "+OK"),
            ("select 15", "+OK"),
            ("get a", "nil"),
            ("select 16", "-ERR DB index is out of range"),
            ("select -1", "-ERR DB index is out of range"),
            ("select abc", "-ERR value is not an integer or out of range"),
            (
                "select 99999999999",
                "-ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
            ("set a 15", "+OK"),
            ("select 0", "+OK"),
            ("get a", "\"0\""),
        ]);
    }

    #[test]
    fn ping_and_echo_reply_with_their_argument() {
        check(&[
            ("ping", "+PONG"),
            ("ping 'a b'", "\"a b\""),
            ("ping ''", "\"\""),
            ("ping a b", "-ERR wrong number of arguments for 'ping' command"),
            ("echo \"\\x00\\xff\"", "\"\\x00\\xff\""),
            ("echo", "-ERR wrong number of arguments for 'echo' command"),
        ]);
    }

    #[test]
    fn readonly_and_readwrite_need_no_cluster() {
        check(&[
            ("asking", "-ERR This instance has cluster support disabled"),
            ("readonly", "+OK"),
            ("set k v", "+OK"),
            ("READWRITE", "+OK"),
            ("readonly x", "-ERR wrong number of arguments for 'readonly' command"),
            ("readwrite x", "-ERR wrong number of arguments for 'readwrite' command"),
        ]);
    }

    #[test]
    fn ping_waits_for_recovery_and_greetings_do_not() {
        let mut server = TestServer::new();
        *server.host.loading.lock() = Some(engine::Loading { percent: 1.0, eta_seconds: None });
        server.check(&[
            ("ping", "-LOADING Redis is loading the dataset in memory"),
            ("echo x", "\"x\""),
            ("select 1", "+OK"),
            ("client id", ":1"),
            ("reset", "+RESET"),
        ]);
        assert!(server.run("hello").starts_with("[\"server\""));
    }

    #[test]
    fn reset_makes_the_connection_a_new_one() {
        let mut server = TestServer::new();
        for line in ["hello 3 setname jobs", "select 3", "client no-touch on", "client no-evict on"] {
            server.run(line);
        }
        server.check(&[("client durability none", "+OK"), ("client reply off", "")]);
        assert_eq!(server.run("reset"), "+RESET");
        let session = &server.session;
        assert_eq!((session.db, session.protocol, session.durability), (DbId::ZERO, Protocol::Resp2, None));
        assert!(!session.no_touch && !session.client.no_evict() && session.authenticated && !session.closing);
        let mut line = String::new();
        session.client.render(crate::table(), 0, &mut line);
        for field in ["name=", "flags=N", "db=0", "resp=2", "durability=default"] {
            assert!(line.split(' ').any(|shown| shown == field), "{field} is not in {line}");
        }
        server
            .check(&[("ping", "+PONG"), ("reset now", "-ERR wrong number of arguments for 'reset' command")]);
    }

    #[test]
    fn clients_share_nothing_but_the_list() {
        let mut server = TestServer::new();
        let mut other = server.connect();
        server.check(&[("select 3", "+OK"), ("client setname one", "+OK"), ("client reply off", "")]);
        std::mem::swap(&mut server.session, &mut other);
        server.check(&[("client id", ":2"), ("client getname", "nil"), ("set a 1", "+OK")]);
        assert_eq!((server.session.db, other.db), (DbId::ZERO, DbId::new(3).expect("in range")));
        assert_eq!(other.client.labels().name.as_str(), "one");
        assert_eq!(server.host.clients.count(), 2);
    }

    #[test]
    fn quit_takes_any_arguments_and_closes() {
        let mut server = TestServer::new();
        server.check(&[("quit now please", "+OK")]);
        assert!(server.session.closing);
    }
}
