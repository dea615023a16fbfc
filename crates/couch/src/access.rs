//! Authentication and authorisation of HTTP clients.
//!
//! Users are the same for both protocols (`engine::users`). `admin-user` with `admin-password` is one more
//! user, an admin.
//!
//! While `admin-password` is not set, and the user `default` needs no password and may do everything, every
//! client that is served is an admin. With `protected-mode`, only clients on this machine are served in that
//! case. In all other cases, a database is open to admins only, unless its `_security` permits more (`_users`
//! has rules of its own). `/metrics` is for admins and for users with the right to INFO, `/_backup` for
//! admins and for users with the right to REPLICATE. Other servers may vouch for users as well: see
//! [`Host::access`].
//!
//! A client that is trusted for being on this machine must have addressed it by a name of this machine:
//! `localhost`, an address, or one of `http-hosts`. Otherwise a page of any site whose name is made to
//! resolve to this machine (DNS rebinding) would be an admin. The browser regards this server as the page's
//! own origin, so the page's requests need no `Origin`, and only the name in `Host` reveals the page.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use engine::users::{CHECKS_PER_LOGIN_MAX, PAUSE_MS};
use http::{HeaderMap, header};
use lsn::Lsn;
use settings::Key;
use tokio::task::JoinHandle;

use super::{
    cookie,
    failure::Failure,
    host::{Account, Attempt, Host, LogIn, Resource},
    proxy_auth::WrongToken,
    refusal::Refusal,
    thread::HttpThread,
    user::{LACKS_RIGHT, Shown, ShownToken, TOO_EARLY, User, WRONG_PASSWORD},
};

/// The longest time, in milliseconds, that a login waits for its turn after others of its address have
/// failed.
const TURN_WAIT_MS_MAX: u64 = 30_000;

/// The number of the next login.
static LOGINS: AtomicU64 = AtomicU64::new(0);

/// Checks that `peer` may send requests with these headers at all.
pub(super) fn admit(thread: &HttpThread, peer: &SocketAddr, headers: &HeaderMap) -> Result<(), Failure> {
    if !thread.host().access.trusts_this_machine() {
        return Ok(());
    }
    if !peer.ip().to_canonical().is_loopback() {
        return Err(Failure::Forbidden(
            "There is no password, so only clients on this machine are served: set admin-password, or turn \
             protected-mode off.",
        ));
    }
    if !names_this_machine(headers, thread.host().settings().text(Key::HttpHosts)) {
        return Err(Failure::Forbidden(
            "There is no password, so this server is called localhost, or by an address: list other names in \
             http-hosts, or set admin-password.",
        ));
    }
    Ok(())
}

/// Admits admins only. For resources other than databases.
pub(super) async fn admit_admin(
    thread: &HttpThread,
    peer: &SocketAddr,
    headers: &HeaderMap,
) -> Result<User, Failure> {
    admit(thread, peer, headers)?;
    let user = identify(thread, headers, peer).await?;
    user.require_admin().map(|()| user)
}

/// Admits admins, and users with the right to this resource who give their name and password (Basic).
pub(super) async fn admit_to(
    thread: &HttpThread,
    peer: &SocketAddr,
    headers: &HeaderMap,
    resource: Resource,
) -> Result<User, Failure> {
    match credentials(headers)?.filter(|_| thread.host().access.has_admins()) {
        Some((name, password)) => {
            admit(thread, peer, headers)?;
            let account = judge(thread.host(), peer, (&name, &password), Some(resource)).await?;
            Ok(User::known(&name, account, Shown::Password))
        }
        None => admit_admin(thread, peer, headers).await,
    }
}

/// Whether each `Host` header names this machine; `names` are its additional names. A request without `Host`
/// passes: it does not come from a browser.
fn names_this_machine(headers: &HeaderMap, names: &str) -> bool {
    headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(|host| is_ours(host, names)))
}

fn is_ours(host: &str, names: &str) -> bool {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<Ipv4Addr>().is_ok()
        || names
            .split(',')
            .map(str::trim)
            .any(|known| known == "*" || !known.is_empty() && known.eq_ignore_ascii_case(&name))
}

/// Identifies the sender of these headers.
///
/// # Errors
/// If clients have to authenticate, and the credentials (name and password, a token, or the headers of a
/// proxy) are malformed or wrong; if too many logins of the address wait, or this login has waited too long;
/// if the server loads its data; and as [`HttpThread::committed`].
pub(super) async fn identify(
    thread: &HttpThread,
    headers: &HeaderMap,
    peer: &SocketAddr,
) -> Result<User, Failure> {
    if !thread.host().access.has_admins() {
        // Everybody is an admin, whatever the credentials are.
        return Ok(User::anonymous(true));
    }
    if let Some(user) = vouched_for(thread.host(), headers, peer)? {
        return Ok(user);
    }
    if let Some((name, password)) = credentials(headers)? {
        let account = log_in(thread, peer, (&name, &password)).await?;
        return Ok(User::known(&name, account, Shown::Password));
    }
    match thread.front.sessions.user(thread.host(), headers) {
        Some((user, lsn)) => until_committed(thread, lsn).await.map(|()| user),
        None => Ok(User::anonymous(false)),
    }
}

/// Waits until the record of a user is committed: before, the user and its rights could still be lost. Does
/// not wait while this server shows no data, because nothing can be read by these rights then.
async fn until_committed(thread: &HttpThread, lsn: Lsn) -> Result<(), Failure> {
    let shows_data =
        thread.require_documents().is_ok() && Refusal::of_reads(&*thread.host().replication).is_none();
    if lsn == Lsn::ZERO || !shows_data { Ok(()) } else { thread.committed(lsn).await }
}

/// The user whom another server has authenticated, if this server trusts one: the issuer of tokens, or a
/// proxy.
fn vouched_for(host: &Host, headers: &HeaderMap, peer: &SocketAddr) -> Result<Option<User>, Failure> {
    let trusted = host.access.trusted_issuers();
    if let (Some(jwt), Some(token)) = (&trusted.jwt, bearer_token(headers)) {
        let claimed = jwt.judge(token, host.unix_ms() / 1000);
        let claimed = claimed.inspect_err(|_| host.access.note_refused(peer.ip()))?;
        let shown = Shown::Token(ShownToken::new(token, claimed.ends_s, jwt));
        return Ok(Some(User::vouched_for(claimed.name, claimed.roles, shown)));
    }
    let Some(secret) = &trusted.proxy else { return Ok(None) };
    let named = secret.judge(headers).map_err(|WrongToken| {
        host.access.note_refused(peer.ip());
        Failure::Unauthorized("The token of the proxy is missing or wrong.")
    })?;
    Ok(named.map(|named| User::vouched_for(named.name, named.roles, Shown::Proxy(secret.clone()))))
}

/// The token of a request with the header `Authorization: Bearer TOKEN`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The user with this name and password, once its record is committed.
///
/// # Errors
/// As [`judge`] and [`HttpThread::committed`].
pub(super) async fn log_in(
    thread: &HttpThread,
    peer: &SocketAddr,
    login: (&str, &[u8]),
) -> Result<Account, Failure> {
    let account = judge(thread.host(), peer, login, None).await?;
    until_committed(thread, account.lsn).await.map(|()| account)
}

/// The user with this name and password. If a resource is given, the user must have the right to this
/// resource. A password that takes long to check is checked on a thread that serves no clients.
///
/// # Errors
/// If no user with the right has this name and password; if too many logins of the address wait, or this
/// login has waited too long; or if the server loads its data.
async fn judge(
    host: &Host,
    peer: &SocketAddr,
    (name, password): (&str, &[u8]),
    resource: Option<Resource>,
) -> Result<Account, Failure> {
    let number = LOGINS.fetch_add(1, Relaxed);
    let attempt = Attempt { number, address: peer.ip(), name, password, resource };
    judged(|| host.access.log_in(&attempt)).await
}

/// Asks until there is a judgement. It asks again while a check runs, because the user may be disabled or
/// deleted meanwhile. After [`CHECKS_PER_LOGIN_MAX`] checks, the password counts as wrong.
async fn judged(mut ask: impl FnMut() -> LogIn) -> Result<Account, Failure> {
    let (mut begun, mut running, mut waited_ms) = (0, None, 0);
    loop {
        let mut next_in_ms = PAUSE_MS;
        match ask() {
            LogIn::Accepted(account) => return Ok(account),
            LogIn::LacksRight => return Err(Failure::Unauthorized(LACKS_RIGHT)),
            LogIn::Wrong => return Err(Failure::Unauthorized(WRONG_PASSWORD)),
            LogIn::Loading => return Err(Refusal::Loading.into()),
            LogIn::TooMany => return Err(Failure::Forbidden(TOO_EARLY)),
            LogIn::NotYet { pause_ms } => {
                waited_ms += pause_ms;
                if waited_ms > TURN_WAIT_MS_MAX {
                    return Err(Failure::Forbidden(TOO_EARLY));
                }
                next_in_ms = pause_ms;
            }
            LogIn::Begins(work) => {
                // The check goes on to its end, even if nobody waits for it any more.
                running = Some(tokio::task::spawn_blocking(work));
                if begun == CHECKS_PER_LOGIN_MAX {
                    return Err(Failure::Unauthorized(WRONG_PASSWORD));
                }
                begun += 1;
            }
            LogIn::Later => {}
        }
        tokio::select! {
            () = ended(&mut running) => {}
            () = tokio::time::sleep(Duration::from_millis(next_in_ms)) => {}
        }
    }
}

/// Waits for the end of the work, if there is any.
async fn ended(running: &mut Option<JoinHandle<()>>) {
    match running {
        Some(work) => drop(work.await),
        None => std::future::pending().await,
    }
    *running = None;
}

/// The user for a reply that goes on for long. If the reply renews the user's cookie, the session counts from
/// now on.
pub(super) fn begin_follow(thread: &HttpThread, user: &User) -> User {
    let mut user = user.clone();
    if let Shown::Cookie { begun_s, renew: renew @ true, .. } = &mut user.shown {
        (*begun_s, *renew) = (thread.host().unix_ms() / 1000, false);
    }
    user
}

/// For how long the user's token or session is still valid if nothing changes; `None`: without end.
pub(super) fn time_left(thread: &HttpThread, user: &User) -> Option<Duration> {
    let host = thread.host();
    let ends_s = match &user.shown {
        Shown::Token(token) => token.ends_s?,
        Shown::Cookie { begun_s, .. } => begun_s.saturating_add(cookie::timeout_s(host)),
        Shown::Nothing | Shown::Password | Shown::Proxy(_) => return None,
    };
    Some(Duration::from_millis(ends_s.saturating_mul(1000).saturating_sub(host.unix_ms())))
}

/// The user as of now, for a reply that goes on for long. `None` if its account is gone or disabled, its
/// passwords have changed, it has logged out, its token has expired, or its token or proxy is no longer
/// trusted. Whether its session has timed out is not checked here: see [`time_left`].
pub(super) fn still(thread: &HttpThread, user: &User) -> Option<User> {
    let host = thread.host();
    match (&user.name, &user.shown) {
        (None, _) => Some(User::anonymous(!host.access.has_admins())),
        // A user whom the proxy has named stays valid while the reply goes on, as long as this proxy is
        // trusted.
        (Some(_), Shown::Proxy(secret)) => {
            let is_trusted = host.access.trusted_issuers().proxy.is_some_and(|now| now == *secret);
            is_trusted.then(|| user.clone())
        }
        (Some(_), Shown::Token(token)) => {
            let keys = host.access.trusted_issuers().jwt;
            token.is_valid(keys.as_ref(), host.unix_ms() / 1000).then(|| user.clone())
        }
        (Some(name), shown) => {
            let account = host.access.account(name)?;
            let holds = user.login_digest == Some(account.login_digest)
                && !thread.front.sessions.has_logged_out(name, shown);
            holds.then(|| User::known(name, account, shown.clone()))
        }
    }
}

/// The name that a request gives with a password, whether the password is right or not.
pub(super) fn named(headers: &HeaderMap) -> String {
    credentials(headers).ok().flatten().map(|(name, _)| name).unwrap_or_default()
}

/// Name and password of HTTP Basic authentication, if given.
///
/// # Errors
/// If they are not in base64.
fn credentials(headers: &HeaderMap) -> Result<Option<(String, Vec<u8>)>, Failure> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
    let Some((_, encoded)) = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic")) else {
        return Ok(None);
    };
    let decoded = BASE64_STANDARD.decode(encoded.trim());
    let decoded =
        decoded.map_err(|_| Failure::bad_request("Authorization header has invalid base64 value"))?;
    let Some(end) = decoded.iter().position(|byte| *byte == b':') else { return Ok(None) };
    // The conversion turns a name that is not UTF-8 into another name. In this protocol, no user has a name
    // that is not UTF-8.
    let name = String::from_utf8_lossy(&decoded[..end]).into_owned();
    Ok(Some((name, decoded[end + 1..].into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let names_us = |host: &'static str, names: &str| {
            names_this_machine(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]), names)
        };
        for host in
            ["localhost", "LocalHost:5984", "db.localhost", "127.0.0.1:5984", "192.168.1.7", "[::1]:5984"]
        {
            assert!(names_us(host, ""), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:5984",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[x]",
        ] {
            assert!(!names_us(host, ""), "{host}");
            assert!(!names_us(host, "db, db.example"), "{host}");
            assert!(names_us(host, "*") || host == "[x]", "{host}");
        }
        assert!(names_us("DB:5984", "db, db.example") && names_us("db.example", "db, db.example"));
        assert!(names_this_machine(&HeaderMap::new(), ""), "no browser leaves it out");
        let mut twice = HeaderMap::from_iter([(header::HOST, "localhost".parse().unwrap())]);
        twice.append(header::HOST, "evil.example".parse().unwrap());
        assert!(!names_this_machine(&twice, ""));
    }

    #[tokio::test]
    async fn a_login_does_not_wait_for_a_check_that_does_not_count_any_more() {
        let (end, is_over) = std::sync::mpsc::channel::<()>();
        let mut answers = vec![
            LogIn::Wrong,
            LogIn::Later,
            // This check ends only when the test drops `end`.
            LogIn::Begins(Box::new(move || _ = is_over.recv())),
        ];
        let refused = judged(|| answers.pop().expect("no further question")).await;
        assert_eq!(refused, Err(Failure::Unauthorized(WRONG_PASSWORD)));
        drop(end);
    }

    #[tokio::test]
    async fn a_login_waits_for_its_turn_but_not_for_ever() {
        let account = Account { roles: Vec::new(), is_admin: true, login_digest: [1; 32], lsn: Lsn::ZERO };
        let mut answers = vec![LogIn::Accepted(account.clone()), LogIn::NotYet { pause_ms: 1 }];
        assert_eq!(judged(|| answers.pop().expect("no further question")).await, Ok(account));
        let mut asked = 0;
        let refused = judged(|| {
            asked += 1;
            LogIn::NotYet { pause_ms: if asked < 3 { 1 } else { TURN_WAIT_MS_MAX } }
        });
        assert_eq!(refused.await, Err(Failure::Forbidden(TOO_EARLY)));
        assert_eq!(asked, 3, "it does not wait for longer than that");
        assert_eq!(judged(|| LogIn::TooMany).await, Err(Failure::Forbidden(TOO_EARLY)));
    }

    #[tokio::test]
    async fn a_login_does_not_wait_for_one_check_after_another() {
        let mut begun = 0;
        let refused = judged(|| {
            begun += 1;
            LogIn::Begins(Box::new(|| ()))
        });
        assert_eq!(refused.await, Err(Failure::Unauthorized(WRONG_PASSWORD)));
        assert_eq!(begun, CHECKS_PER_LOGIN_MAX + 1);
    }

    #[test]
    fn basic_credentials_are_read() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            credentials(&headers)
        };
        // "anna:a:b"
        assert_eq!(read("Basic YW5uYTphOmI="), Ok(Some(("anna".into(), b"a:b".into()))));
        assert_eq!(read("Basic YTpw6XNz"), Ok(Some(("a".into(), b"p\xe9ss".into()))), "bytes as they are");
        for text in ["Bearer YW5uYTphOmI=", "Basic", "Basic YW5uYQ=="] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
        let refused = Failure::bad_request("Authorization header has invalid base64 value");
        assert_eq!(read("basic ???"), Err(refused));
    }
}
