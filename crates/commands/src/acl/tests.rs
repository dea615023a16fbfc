//! Users through a whole server: what they may do, and when changes take effect.

use std::mem::swap;

use engine::Session;
use prng::Prng;

use crate::testing::{TestServer, check};

const NO_KEY: &str = "-NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel";

fn no_command(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command")
}

/// A server and a second client, which is `user` with these rules.
fn with_user(rules: &str) -> (TestServer, Session) {
    let mut server = TestServer::new();
    server.check(&[(&format!("acl setuser user on >pw {rules}"), "+OK")]);
    let mut other = server.connect();
    swap(&mut server.session, &mut other);
    server.check(&[("auth user pw", "+OK")]);
    swap(&mut server.session, &mut other);
    (server, other)
}

/// Runs commands as another client.
fn check_as(server: &mut TestServer, session: &mut Session, table: &[(&str, &str)]) {
    swap(&mut server.session, session);
    server.check(table);
    swap(&mut server.session, session);
}

#[test]
fn design_documents_are_written_by_server_admins_alone() {
    let (mut server, mut other) = with_user("+@all -@admin ~*");
    server.create_database("db");
    let refused = "-FORBIDDEN You are not a db or server admin.";
    check_as(
        &mut server,
        &mut other,
        &[
            ("doc.put db _design/a {}", refused),
            ("doc.del db _design/a 1-00000000000000000000000000000000", refused),
        ],
    );
    assert!(server.run("doc.put db _design/a {}").starts_with("\"1-"));
}

/// About 335 users of 50 KB fit into 16 MiB. At the limit, a user can be replaced, but none can be added.
#[test]
fn a_replaced_user_does_not_count_against_the_limit() {
    let (mut server, rule) = (TestServer::new(), [b"~".as_slice(), &[b'k'; 50_000]].concat());
    let mut set = |name: &str| server.run_args(&[b"acl", b"setuser", name.as_bytes(), b"reset", &rule]);
    let full = (0..).find(|number| set(&format!("user{number}")) != "+OK").expect("there is a limit");
    assert!((300..340).contains(&full), "{full}");
    assert_eq!(set("user7"), "+OK");
    assert_ne!(set("another"), "+OK");
}

#[test]
fn a_user_may_do_what_its_rules_say_and_nothing_else() {
    let (mut server, mut user) = with_user("+@all -@dangerous -client|kill ~a* %R~read* %W~written* &news*");
    check_as(
        &mut server,
        &mut user,
        &[
            ("acl whoami", "\"user\""),
            ("set a 1", "+OK"),
            ("get b", NO_KEY),
            ("get read", "nil"),
            ("set read 1", NO_KEY),
            ("set written 1", "+OK"),
            ("set written 1 get", NO_KEY),
            ("strlen written", ":1"),
            ("rename a written2", "+OK"),
            ("rename written2 a", NO_KEY),
            ("copy read a", ":0"),
            ("mset a 1 b 2", NO_KEY),
            ("publish news.today x", ":0"),
            ("publish other x", NO_CHANNEL),
            ("subscribe other", NO_CHANNEL),
            ("psubscribe news*", "[\"psubscribe\", \"news*\", :1]"),
            ("punsubscribe", "[\"punsubscribe\", \"news*\", :0]"),
            ("psubscribe news.*", NO_CHANNEL),
            ("keys *", &no_command("user", "keys")),
            ("client kill id 1", &no_command("user", "client|kill")),
            ("acl users", &no_command("user", "acl|users")),
            ("eval \"return redis.call('get', 'a')\" 1 b", NO_KEY),
            ("sort a by w_* get x_*", &no_command("user", "sort")),
            ("idemp a1 1000 set a 2", "+OK"),
            ("idemp a1 1000 set b 2", NO_KEY),
            ("idemp b1 1000 set a 2", NO_KEY),
            ("lease b 1000 me", NO_KEY),
            ("xsubscribe durable FROM $", NO_CHANNEL),
        ],
    );
    server.check(&[("get b", "nil"), ("acl whoami", "\"default\"")]);
}

#[test]
fn scripts_act_with_the_rights_of_their_caller() {
    let (mut server, mut user) = with_user("+eval +get +set ~a");
    const DENIED: &str = "-ERR ACL failure in script: No permissions to access a key";
    swap(&mut server.session, &mut user);
    for (script, reply) in [
        ("return redis.call('get', 'a')", "nil"),
        ("return redis.call('get', 'b')", DENIED),
        (
            "return redis.call('del', 'a')",
            "-ERR ACL failure in script: User user has no permissions to run the 'del' command",
        ),
        ("return redis.acl_check_cmd('get', 'a')", ":1"),
        ("return redis.acl_check_cmd('get', 'b')", "nil"),
        ("return redis.acl_check_cmd('del', 'a')", "nil"),
    ] {
        let shown = server.run(&format!("eval \"{script}\" 0"));
        assert!(shown.starts_with(reply), "{script}: {shown}");
    }
    swap(&mut server.session, &mut user);
    let log = server.run("acl log");
    assert!(log.contains("\"lua\"") && log.contains("\"del\""), "{log}");
}

#[test]
fn patterns_of_sort_need_all_keys() {
    let (mut server, mut user) = with_user("+sort ~l");
    server.check(&[("rpush l 2 1", ":2")]);
    check_as(
        &mut server,
        &mut user,
        &[
            ("sort l", "[\"1\", \"2\"]"),
            ("sort l by nosort", "[\"2\", \"1\"]"),
            ("sort l by w_*", "-ERR BY option of SORT denied due to insufficient ACL permissions"),
            ("sort l get #", "-ERR GET option of SORT denied due to insufficient ACL permissions"),
            ("sort l store m", NO_KEY),
        ],
    );
    server.check(&[("acl setuser user %R~*", "+OK")]);
    check_as(
        &mut server,
        &mut user,
        &[("sort l get #", "[\"1\", \"2\"]"), ("sort l by w_*", "[\"1\", \"2\"]")],
    );
}

#[test]
fn rights_that_were_revoked_in_mid_transaction_are_gone_at_exec() {
    let (mut server, mut user) = with_user("+@all ~*");
    check_as(&mut server, &mut user, &[("multi", "+OK"), ("set a 1", "+QUEUED"), ("set b 2", "+QUEUED")]);
    server.check(&[("acl setuser user resetkeys ~b", "+OK")]);
    check_as(
        &mut server,
        &mut user,
        &[
            (
                "exec",
                "[-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                 command is no longer allowed for the following reason: no permission to touch the specified keys, +OK]",
            ),
            ("multi", "+OK"),
            ("get a", NO_KEY),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
    server.check(&[("mget a b", "[nil, \"2\"]")]);
}

#[test]
fn a_client_that_lost_its_rights_while_it_waited_gets_nothing() {
    let (mut server, mut user) = with_user("+@all ~*");
    check_as(&mut server, &mut user, &[("blpop a 0", "")]);
    server.check(&[("acl setuser user resetkeys ~b", "+OK"), ("rpush a 1", ":1")]);
    let (answer, _) = server.host.take_answer(2).expect("it is answered");
    assert_eq!(answer, NO_KEY);
    server.check(&[("lrange a 0 -1", "[\"1\"]")]);
}

#[test]
fn rights_that_end_in_the_transaction_that_serves_a_waiter_are_gone_for_it() {
    let (mut server, mut user) = with_user("+@all ~*");
    check_as(&mut server, &mut user, &[("blpop a 0", "")]);
    server.check(&[
        ("multi", "+OK"),
        ("rpush a 1", "+QUEUED"),
        ("acl setuser user resetkeys ~b", "+QUEUED"),
        ("rpush a 2", "+QUEUED"),
        ("exec", "[:1, +OK, :2]"),
    ]);
    let (answer, _) = server.host.take_answer(2).expect("it is answered");
    assert_eq!(answer, NO_KEY);
    server.check(&[("lrange a 0 -1", "[\"1\", \"2\"]")]);
}

#[test]
fn rights_that_begin_in_the_transaction_that_serves_a_waiter_hold_for_it() {
    let (mut server, mut user) = with_user("+@all ~*");
    check_as(&mut server, &mut user, &[("blpop a 0", "")]);
    server.check(&[("acl setuser user resetkeys", "+OK")]);
    server.check(&[
        ("multi", "+OK"),
        ("rpush a 1 2", "+QUEUED"),
        ("acl setuser user ~a", "+QUEUED"),
        ("exec", "[:2, +OK]"),
    ]);
    let (answer, _) = server.host.take_answer(2).expect("it is answered");
    assert_eq!(answer, "[\"a\", \"1\"]");
    server.check(&[("lrange a 0 -1", "[\"2\"]")]);
}

#[test]
fn deleted_users_are_disconnected() {
    let (mut server, mut user) = with_user("+@all ~*");
    server.check(&[
        ("acl deluser default", "-ERR The 'default' user cannot be removed"),
        ("acl deluser user nobody", ":1"),
        ("acl users", "[\"default\"]"),
        ("acl deluser user", ":0"),
    ]);
    assert!(user.client.is_killed() && !server.session.client.is_killed());
    check_as(&mut server, &mut user, &[("get a", "-NOAUTH Authentication required.")]);
}

#[test]
fn a_user_who_deletes_itself_gets_the_reply() {
    let (mut server, mut user) = with_user("+@all ~*");
    check_as(&mut server, &mut user, &[("acl deluser user", ":1")]);
    assert!(user.closing && !user.client.is_killed());
}

#[test]
fn a_listener_that_lost_its_channel_is_reviewed() {
    let (mut server, mut user) = with_user("+@all &a &b");
    check_as(&mut server, &mut user, &[("subscribe a", "[\"subscribe\", \"a\", :1]")]);
    assert!(server.executor.may_listen(&user, &server.services));
    server.check(&[("acl setuser user resetchannels &a +get", "+OK")]);
    assert!(server.executor.may_listen(&user, &server.services));
    server.check(&[("acl setuser user resetchannels &b", "+OK")]);
    assert!(!server.executor.may_listen(&user, &server.services));
    assert!(server.host.reviewed.lock().contains(&2));
}

#[test]
fn users_are_shown_as_in_redis_8() {
    let hash = "1b3a9374e1a42e3d5f0e2d6d1a2b5f2c3d4e5f60718293a4b5c6d7e8f9000000";
    check(&[
        ("acl list", "[\"user default on nopass sanitize-payload ~* &* +@all\"]"),
        (&format!("acl setuser a on #{hash} ~k &c +get (~l +set)"), "+OK"),
        ("acl users", "[\"a\", \"default\"]"),
        ("acl getuser nobody", "nil"),
        ("flushall", "+OK"),
        ("acl users", "[\"a\", \"default\"]"),
        (
            "acl setuser a +nosuch",
            "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL",
        ),
        ("acl setuser 'a b'", "-ERR Usernames can't contain spaces or null characters"),
        ("acl setuser a (+get", "-ERR Unmatched parenthesis in acl selector starting at '(+get'."),
        ("acl dryrun nobody get a", "-ERR User 'nobody' not found"),
        ("acl dryrun a nosuch", "-ERR Command 'nosuch' not found"),
        ("acl dryrun a get", "-ERR wrong number of arguments for 'get' command"),
        ("acl dryrun a get k", "+OK"),
        ("acl dryrun a get l", "\"User a has no permissions to access the \\'l\\' key\""),
        ("acl dryrun a del l", "\"User a has no permissions to run the \\'del\\' command\""),
        ("acl cat nosuch", "-ERR Unknown category 'nosuch'"),
        ("acl genpass 5", "\"a5\""),
        (
            "acl genpass 0",
            "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ),
        ("acl log", "[]"),
        ("acl log reset", "+OK"),
        ("acl log x", "-ERR value is not an integer or out of range"),
        ("client kill user nobody", "-ERR No such user 'nobody'"),
        ("acl save", &format!("-{}", engine::host::NO_FILE_OF_USERS)),
    ]);
    let mut server = TestServer::new();
    server.run("hello 3");
    server.check(&[
        (&format!("acl setuser a on #{hash} ~k &c +get (~l +set)"), "+OK"),
        (
            "acl getuser a",
            &format!(
                "{{\"flags\": ~[\"on\", \"sanitize-payload\"], \"passwords\": [\"{hash}\"], \"commands\": \"-@all +get\", \
                 \"keys\": \"~k\", \"channels\": \"&c\", \"selectors\": [{{\"commands\": \"-@all +set\", \"keys\": \"~l\", \
                 \"channels\": \"\"}}]}}"
            ),
        ),
    ]);
    server.assert_replays();
}

#[test]
fn a_user_of_documents_logs_in_and_shows_its_roles() {
    let derived = "#pbkdf2-sha$4096$73616c74$4b007901b765489abead49d926f721d065a429c1";
    let mut server = TestServer::new();
    server.check(&[
        (&format!("acl setuser anna on {derived} role:writers"), "+OK"),
        (
            "acl getuser anna",
            &format!(
                "[\"flags\", [\"on\", \"sanitize-payload\"], \"passwords\", [\"{}\"], \"commands\", \"-@all\", \
                 \"keys\", \"\", \"channels\", \"\", \"selectors\", [], \"roles\", [\"writers\"]]",
                &derived[1..]
            ),
        ),
        ("acl setuser anna role:_admin", "-ERR Error in ACL SETUSER modifier 'role:_admin': Syntax error"),
    ]);
    server.assert_replays();
}

#[test]
fn a_change_within_a_transaction_holds_after_it() {
    check(&[
        ("multi", "+OK"),
        ("acl setuser a on nopass +get ~*", "+QUEUED"),
        ("acl users", "+QUEUED"),
        ("exec", "[+OK, [\"a\", \"default\"]]"),
        ("auth a x", "+OK"),
        ("get k", "nil"),
    ]);
}

#[test]
fn the_default_user_begins_with_requirepass() {
    let mut server = TestServer::new();
    server.set_password(Some(b"secret"));
    server.session.authenticated = false;
    server.check(&[
        ("get a", "-NOAUTH Authentication required."),
        ("auth secret", "+OK"),
        ("acl setuser default -@admin +acl", "+OK"),
        ("config set requirepass x", &no_command("default", "config|set")),
        ("reset", "+RESET"),
        ("get a", "-NOAUTH Authentication required."),
        ("auth secret", "+OK"),
        ("get a", "nil"),
        ("acl setuser default nopass", "+OK"),
        ("reset", "+RESET"),
        ("get a", "nil"),
    ]);
}

#[test]
fn requirepass_is_the_password_of_the_default_user_with_a_record_too() {
    let mut server = TestServer::new();
    server.host.settings.lock().insert("requirepass", String::new());
    server.check(&[
        ("config set requirepass one", "+OK"),
        ("acl setuser a on nopass", "+OK"),
        ("acl users", "[\"a\", \"default\"]"),
        ("acl setuser default >two -debug", "+OK"),
        ("config set requirepass three", "+OK"),
        ("auth two", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth three", "+OK"),
        ("multi", "+OK"),
        ("config set requirepass four", "+QUEUED"),
        (
            "exec",
            "[-ERR CONFIG SET of a setting that belongs to the data is a record of its own: not in a transaction]",
        ),
        ("auth three", "+OK"),
        ("config set requirepass ''", "+OK"),
        ("acl list", "[\"user a on nopass sanitize-payload resetchannels -@all\", \"user default on nopass \
         sanitize-payload ~* &* +@all -debug\"]"),
    ]);
    server.assert_replays();
}

#[test]
fn a_client_without_a_password_changes_and_sees_nothing_of_a_server_that_loads() {
    const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
    let mut server = TestServer::new();
    server.check(&[("acl setuser default resetpass >pw", "+OK")]);
    let mut stranger = server.connect();
    // As after a start: the records are not known yet.
    stranger.login = engine::users::LogIn::default();
    server.check(&[("acl setuser default nopass", "+OK")]);
    *server.host.loading.lock() = Some(engine::Loading { percent: 1.0, eta_seconds: None });
    check_as(
        &mut server,
        &mut stranger,
        &[
            ("echo x", "\"x\""),
            ("config set maxmemory 1", LOADING),
            ("config get masterauth", LOADING),
            ("monitor", LOADING),
            ("client list", LOADING),
            ("client kill type normal", LOADING),
            ("slowlog get", LOADING),
            ("latency reset", LOADING),
            ("group remove 0000000000000001 force", LOADING),
            ("group transfer", LOADING),
            ("sentinel failover mymaster", LOADING),
            // Any password is accepted, but the client does not become this user.
            ("auth default guessed", "+OK"),
            ("config set maxmemory 1", LOADING),
        ],
    );
    *server.host.loading.lock() = None;
    server.check(&[("acl setuser default resetpass >pw", "+OK")]);
    check_as(
        &mut server,
        &mut stranger,
        &[("get a", "-NOAUTH Authentication required."), ("auth pw", "+OK"), ("get a", "nil")],
    );
}

#[test]
fn nobody_logs_in_by_the_users_of_a_log_that_is_being_replayed() {
    const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
    let mut server = TestServer::new();
    // Later records, not replayed yet, may change this user or delete it.
    server.check(&[("acl setuser anna on >pw ~* +@all", "+OK")]);
    let mut client = server.connect();
    *server.host.loading.lock() = Some(engine::Loading { percent: 1.0, eta_seconds: None });
    let attempts = [
        ("auth anna pw", LOADING),
        ("auth anna wrong", LOADING),
        ("auth bob pw", LOADING),
        ("hello 3 auth anna pw", LOADING),
    ];
    check_as(&mut server, &mut client, &attempts);
    server.set_password(Some(b"of the settings"));
    let mut operator = server.connect();
    let steps = [
        ("auth guessed", LOADING),
        ("config get maxmemory", LOADING),
        ("auth 'of the settings'", "+OK"),
        ("config get maxmemory", "[]"),
    ];
    check_as(&mut server, &mut operator, &steps);
    server.set_password(None);
    *server.host.loading.lock() = None;
    check_as(&mut server, &mut client, &[("acl whoami", "\"default\""), ("auth anna pw", "+OK")]);
    assert_eq!(server.host.users.counts.get(access::Reason::Auth), 1, "of those, only one has failed");
}

#[test]
fn no_text_shows_a_password() {
    let mut server = TestServer::new();
    server.services.observer.slow_log.configure(0, 128);
    for line in [
        "acl setuser u on >topsecret +@all",
        "acl setuser u on >topsecret +nosuch",
        "acl setuser u on (>topsecret",
        "acl setuser u <topsecret2",
        "auth u topsecret",
        "auth u topsecret2",
        "hello 3 auth u topsecret",
    ] {
        let reply = server.run(line);
        assert!(!reply.contains("topsecret"), "{line}: {reply}");
    }
    for line in ["acl log", "slowlog get 100", "acl list", "client list", "acl getuser u"] {
        let reply = server.run(line);
        assert!(!reply.contains("topsecret"), "{line}: {reply}");
    }
}

/// Rules for random users.
const RULES: &[&str] = &[
    "+@all",
    "-@all",
    "+@read",
    "-@write",
    "+@string",
    "-@dangerous",
    "+get",
    "-set",
    "+set",
    "+config|get",
    "-config",
    "+select|1",
    "+@pubsub",
    "-@fast",
    "~a*",
    "%R~b*",
    "%W~b*",
    "~*",
    "resetkeys",
    "&c*",
    "&*",
    "resetchannels",
    "(~b* +@write)",
    "(%R~* +@read)",
    "clearselectors",
    "+@scripting",
    "+sort",
    "+idemp",
    "+@transaction",
];

/// Calls that change nothing about the connection.
const CALLS: &[&str] = &[
    "get a1",
    "get b1",
    "set a1 v",
    "set b1 v",
    "set b1 v get",
    "mset a1 1 b1 2",
    "rename a1 b1",
    "copy b1 a1",
    "del a1 c1",
    "exists b1",
    "strlen c1",
    "getset b1 v",
    "bitfield b1 get u8 0",
    "bitfield b1 incrby u8 0 1",
    "lmpop 2 a1 b1 left",
    "zunionstore a1 1 b1",
    "zunion 2 a1 b1",
    "sort a1 store b1",
    "xread count 1 streams a1 0",
    "config get port",
    "config resetstat",
    "select 1",
    "select 0",
    "publish c1 m",
    "publish d1 m",
    "spublish c1 m",
    "ping",
    "keys *",
    "dbsize",
    "acl whoami",
    "acl users",
    "object encoding a1",
    "object help",
    "eval 'return 1' 1 b1",
    "eval 'return 1' 0",
    "idemp a9 1000 set b1 v",
    "idemp b9 1000 set a1 v",
    "sinterstore b1 a1",
    "georadius a1 0 0 1 m store b1",
    "pfmerge a1 b1",
    "smove a1 b1 m",
    "doc.get db id",
    "lease a8 1000 me",
    "unlease a8 me",
    "touch c1",
    "append b1 v",
    "getrange b1 0 1",
];

#[test]
fn what_dryrun_says_is_what_happens() {
    let mut random = Prng::new(7);
    let mut pick = |from: &[&'static str]| from[random.next_u64() as usize % from.len()];
    let (mut server, mut user) = with_user("+@all ~* &*");
    for _ in 0..300 {
        let rules: Vec<&str> = (0..6).map(|_| pick(RULES)).collect();
        let set = server.run(&format!("acl setuser user reset on nopass {}", rules.join(" ")));
        if set != "+OK" {
            continue;
        }
        for call in CALLS {
            let verdict = server.run(&format!("acl dryrun user {call}"));
            swap(&mut server.session, &mut user);
            let reply = server.run(call);
            swap(&mut server.session, &mut user);
            assert_eq!(
                verdict == "+OK",
                !reply.starts_with("-NOPERM"),
                "{rules:?} {call}: {verdict}, {reply}"
            );
        }
    }
    server.assert_replays();
}
