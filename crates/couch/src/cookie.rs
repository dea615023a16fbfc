//! Log-in sessions: a signed cookie names the user and the time. The server remembers only the sessions that
//! were logged out.
//!
//! The cookie is the URL-safe base64 of `NAME:SESSION:TIME:SIGNATURE`. SESSION is a random number and TIME
//! the time of issue in seconds, both hexadecimal. SIGNATURE is the HMAC-SHA-256 of `NAME:SESSION:TIME`, a
//! zero byte and a digest of the user's passwords and of the random number that the user got when it was
//! made. The key of the HMAC is a setting of the data, so that the cookie is valid at every member of a
//! group, at replicas, and after a restart. If the key could not be written there, each server has its own.
//!
//! A session ends when its newest cookie is `http-session-timeout` old, with a logout, when the user is
//! deleted or disabled, and when the passwords of the user change. Another user of the same name does not get
//! the session. A successful request of the CouchDB protocol renews the cookie if it is at least a tenth of
//! the timeout old. The cookie says when it ends, because some clients (nano) drop cookies without an end. No
//! page can read it (`HttpOnly`); `http-session-same-site` says whether browsers send it for pages of other
//! sites. A cookie that was set over TLS is sent over TLS alone (`Secure`).
//!
//! There is no list of sessions. Only the server that was asked remembers a logout, until the server stops or
//! the cookies of the session have expired. At other servers, the last cookie is valid until its end, as in
//! CouchDB.
//!
//! Invariant: while a logout is remembered, no cookie of the session is accepted by this server, neither its
//! last nor an earlier one, and no new one is issued for it.

use std::{
    collections::HashMap,
    sync::OnceLock,
    time::{Duration, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, header};
use lsn::Lsn;
use parking_lot::Mutex;
use settings::Key;
use sha2::Sha256;

use super::{
    reply::{self, Reply},
    thread::HttpThread,
    user::{Shown, User},
};
use crate::{Account, Host};

/// The setting of the data that is the key of signatures: one of [`engine::users::OF_HTTP`].
pub(super) const SESSION_KEY: &[u8] = b"http:session-key";
const KEY_BYTES: usize = 32;
/// A cookie is renewed once this part of its time, a tenth, is over.
const RENEWED_AT: u64 = 10;
/// The maximum bytes of a cookie, which holds the name of a user.
const COOKIE_BYTES_MAX: usize = 4 << 10;
/// Limit of remembered logouts of a user. At the limit, a further logout makes the server forget them and
/// reject all cookies of the user issued until then.
const OF_USER_MAX: usize = 1 << 10;
/// Limit of remembered logouts of all users. If as many have not expired, a further logout affects the user
/// with the most logouts: the server forgets these, and rejects all cookies of that user issued until then.
const LOGGED_OUT_MAX: usize = 1 << 16;
/// Below this number of logouts, no expired ones are removed.
const LOGGED_OUT_FEW: usize = 1 << 10;
const COOKIE: &str = "AuthSession";

type SigningKey = [u8; KEY_BYTES];

/// Issues and verifies cookies.
pub(super) struct Sessions {
    /// The key that signs while the data have no key.
    own_key: SigningKey,
    /// The key in the data, once it was read.
    key_of_data: OnceLock<SigningKey>,
    logged_out: Mutex<LoggedOut>,
}

/// The logged-out sessions; some of their cookies may have expired.
#[derive(Default)]
struct LoggedOut {
    of_users: HashMap<String, OfUser>,
    /// The number of sessions in `of_users`.
    count: usize,
    /// Number of logouts at which expired ones are removed: twice the number that the last removal left, but
    /// from [`LOGGED_OUT_FEW`] to [`LOGGED_OUT_MAX`]. So the mean cost of a logout does not grow with the
    /// number of logouts.
    next_removal: usize,
}

/// The logged-out sessions of one user.
#[derive(Default)]
struct OfUser {
    /// Session number and time of its logout, in seconds.
    at_s: HashMap<u64, u64>,
    /// Cookies issued at this time or before are rejected.
    all_until_s: u64,
}

impl OfUser {
    /// Rejects all cookies of the user issued so far, and forgets the single logouts. Returns how many
    /// logouts were forgotten.
    fn end_all(&mut self, now_s: u64) -> usize {
        self.all_until_s = now_s;
        std::mem::take(&mut self.at_s).len()
    }
}

impl LoggedOut {
    fn add(&mut self, name: &str, session: u64, now_s: u64, timeout_s: u64) {
        if self.count >= self.next_removal {
            self.forget_expired(now_s, timeout_s);
        }
        if self.count >= LOGGED_OUT_MAX
            && let Some(most) = self.of_users.values_mut().max_by_key(|of_user| of_user.at_s.len())
        {
            self.count -= most.end_all(now_s);
        }
        let of_user = self.of_users.entry(name.to_owned()).or_default();
        if of_user.at_s.len() >= OF_USER_MAX {
            self.count -= of_user.end_all(now_s);
        }
        self.count += usize::from(of_user.at_s.insert(session, now_s).is_none());
    }

    /// Forgets logouts once the cookies of their sessions have expired.
    fn forget_expired(&mut self, now_s: u64, timeout_s: u64) {
        let counts = |at_s: u64| now_s.saturating_sub(at_s) < timeout_s;
        self.of_users.retain(|_, of_user| {
            of_user.at_s.retain(|_, at_s| counts(*at_s));
            !of_user.at_s.is_empty() || counts(of_user.all_until_s)
        });
        self.count = self.of_users.values().map(|of_user| of_user.at_s.len()).sum();
        self.next_removal = (2 * self.count).clamp(LOGGED_OUT_FEW, LOGGED_OUT_MAX);
    }

    fn has(&self, name: &str, session: u64, begun_s: u64) -> bool {
        let of_user = self.of_users.get(name);
        of_user.is_some_and(|it| begun_s <= it.all_until_s || it.at_s.contains_key(&session))
    }
}

/// The contents of a cookie.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) session: u64,
    /// When the cookie was issued, in seconds.
    pub(crate) begun_s: u64,
}

impl Token {
    fn signed_text(&self) -> String {
        let Token { name, session, begun_s } = self;
        format!("{name}:{session:X}:{begun_s:X}")
    }

    /// The text of the cookie, with its signature.
    fn sign(&self, key: &SigningKey, account: &Account) -> String {
        let mut token = self.signed_text().into_bytes();
        let signature = mac(key, &token, account).finalize().into_bytes();
        token.push(b':');
        token.extend_from_slice(&signature);
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }
}

/// A decoded cookie whose signature was not checked.
#[derive(Debug)]
pub(crate) struct Unverified {
    token: Token,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl Unverified {
    /// Decodes a cookie; `None` if it has another form.
    pub(crate) fn decode(cookie: &str) -> Option<Unverified> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let token = BASE64_URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (signed, signature) = token.split_at_checked(token.len().checked_sub(KEY_BYTES)?)?;
        let signed = std::str::from_utf8(signed).ok()?.strip_suffix(':')?;
        let (rest, begun_s) = signed.rsplit_once(':')?;
        let (name, session) = rest.rsplit_once(':')?;
        let begun_s = u64::from_str_radix(begun_s, 16).ok()?;
        let session = u64::from_str_radix(session, 16).ok()?;
        let token = Token { name: name.into(), session, begun_s };
        Some(Unverified { token, signed: signed.into(), signature: signature.into() })
    }

    /// The contents, if the signature was made with this key for this account.
    fn verified(self, key: &SigningKey, account: &Account) -> Option<Token> {
        mac(key, &self.signed, account).verify_slice(&self.signature).ok()?;
        Some(self.token)
    }
}

/// Whether a text has the form of a session's cookie. Its signature is not checked.
pub fn is_session_cookie(text: &str) -> bool {
    Unverified::decode(text).is_some()
}

fn mac(key: &SigningKey, signed: &[u8], account: &Account) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(signed);
    mac.update(&[0]);
    mac.update(&account.login_digest);
    mac
}

impl Sessions {
    pub(super) fn new(host: &Host) -> Sessions {
        Sessions { own_key: random_key(host), key_of_data: OnceLock::new(), logged_out: Mutex::default() }
    }

    /// Writes a key into the data if they have none and this server may write.
    pub(super) async fn prepare(&self, thread: &HttpThread) {
        if self.key(thread.host()) == self.own_key {
            // Without a key in the data, the session holds at this server alone, until the server stops.
            let _ = thread.put_if_missing(SESSION_KEY, &random_key(thread.host())).await;
        }
    }

    fn key(&self, host: &Host) -> SigningKey {
        if let Some(key) = self.key_of_data.get() {
            return *key;
        }
        let data = host.store.get().map(|store| store.keyspace.data_settings());
        let key = data.and_then(|data| data.get(SESSION_KEY)?.try_into().ok());
        key.map_or(self.own_key, |key| *self.key_of_data.get_or_init(|| key))
    }

    /// The user and the contents of the first session cookie among these headers, if it is valid.
    fn token_of(&self, host: &Host, headers: &HeaderMap) -> Option<(Token, Account)> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|it| it.trim().split_once('='));
        let (_, cookie) = pairs.find(|(name, _)| *name == COOKIE)?;
        let unverified = Unverified::decode(cookie)?;
        let account = host.access.account(&unverified.token.name)?;
        let token = unverified.verified(&self.key(host), &account)?;
        self.holds(&token, now_s(host), timeout_s(host)).then_some((token, account))
    }

    fn holds(&self, token: &Token, now_s: u64, timeout_s: u64) -> bool {
        now_s.saturating_sub(token.begun_s) < timeout_s
            && !self.logged_out.lock().has(&token.name, token.session, token.begun_s)
    }

    /// The user of a valid session cookie, and the position of the user's record in the log: see
    /// [`Account::lsn`].
    pub(super) fn user(&self, host: &Host, headers: &HeaderMap) -> Option<(User, Lsn)> {
        let (Token { name, session, begun_s }, account) = self.token_of(host, headers)?;
        let renew = now_s(host).saturating_sub(begun_s) >= timeout_s(host) / RENEWED_AT;
        let lsn = account.lsn;
        Some((User::known(&name, account, Shown::Cookie { session, begun_s, renew }), lsn))
    }

    /// The time, in seconds, at which a new session of this user begins: now, or the next second if a logout
    /// has just made the server reject all cookies of the user issued until now.
    pub(super) fn begins_s(&self, host: &Host, name: &str) -> u64 {
        let logged_out = self.logged_out.lock();
        let ended_s = logged_out.of_users.get(name).map_or(0, |of_user| of_user.all_until_s);
        now_s(host).max(ended_s.saturating_add(1))
    }

    /// Sets a new cookie if the cookie of the user is to be renewed, or the user has just logged in.
    pub(super) fn renew(&self, host: &Host, user: &User, reply: &mut Reply) {
        if let (Shown::Cookie { session, begun_s, renew: true }, Some(name)) = (&user.shown, &user.name)
            && let Some(account) = host.access.account(name)
        {
            let token = Token { name: name.clone(), session: *session, begun_s: now_s(host).max(*begun_s) };
            // A concurrent logout may have ended the session.
            if !self.logged_out.lock().has(name, *session, token.begun_s) {
                set_cookie(host, reply, &token.sign(&self.key(host), &account));
            }
        }
    }

    /// Whether the session of this user was ended by a logout. `false` for a user without a session.
    pub(super) fn has_logged_out(&self, name: &str, shown: &Shown) -> bool {
        match shown {
            Shown::Cookie { session, begun_s, .. } => self.logged_out.lock().has(name, *session, *begun_s),
            _ => false,
        }
    }

    /// Ends the session of the cookie among these headers, if it is valid.
    pub(super) fn log_out(&self, host: &Host, headers: &HeaderMap) {
        if let Some((token, _)) = self.token_of(host, headers) {
            self.logged_out.lock().add(&token.name, token.session, now_s(host), timeout_s(host));
        }
    }
}

fn random_key(host: &Host) -> SigningKey {
    let mut key = [0; KEY_BYTES];
    key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&host.random_u64().to_le_bytes()));
    key
}

fn now_s(host: &Host) -> u64 {
    host.unix_ms() / 1000
}

/// How long a cookie is valid from its issue, in seconds.
pub(super) fn timeout_s(host: &Host) -> u64 {
    host.settings().integer(Key::HttpSessionTimeout)
}

pub(super) fn remove_cookie(host: &Host, reply: &mut Reply) {
    set_cookie(host, reply, "");
}

fn set_cookie(host: &Host, reply: &mut Reply, token: &str) {
    let same_site = match host.settings().text(Key::HttpSessionSameSite) {
        "none" => "None",
        "lax" => "Lax",
        _ => "Strict",
    };
    let (max_age_s, ends_s) = match token {
        "" => (0, 0),
        _ => (timeout_s(host), now_s(host) + timeout_s(host)),
    };
    let ends = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(ends_s));
    let cookie = format!(
        "{COOKIE}={token}; Version=1; Expires={ends}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite={same_site}"
    );
    reply::set_header(reply, header::SET_COOKIE, &cookie);
}

/// Has browsers send the cookie of this reply, if it sets one, over TLS alone.
pub(super) fn keep_encrypted(reply: &mut Reply) {
    if let Some(cookie) = reply.headers().get(header::SET_COOKIE).and_then(|cookie| cookie.to_str().ok()) {
        let cookie = format!("{cookie}; Secure");
        reply::set_header(reply, header::SET_COOKIE, &cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SigningKey = [7; KEY_BYTES];
    const TIMEOUT_S: u64 = 600;

    fn account(passwords: u8) -> Account {
        Account { roles: Vec::new(), is_admin: false, login_digest: [passwords; 32], lsn: Lsn::ZERO }
    }

    fn said() -> Token {
        Token { name: "an:na".into(), session: 0xabc, begun_s: 1_000_000 }
    }

    #[test]
    fn only_cookies_with_the_key_and_the_passwords_of_their_user_are_valid() {
        let read = |cookie: &str, key: u8, passwords: u8| {
            Unverified::decode(cookie)?.verified(&[key; KEY_BYTES], &account(passwords))
        };
        let cookie = said().sign(&KEY, &account(1));
        assert_eq!(read(&cookie, 7, 1), Some(said()));
        assert_eq!(read(&cookie, 8, 1), None, "it is another server's");
        assert_eq!(read(&cookie, 7, 2), None, "the password is another one by now");
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(&cookie).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(read(&BASE64_URL_SAFE_NO_PAD.encode(&bytes), 7, 1), None, "byte {at}");
            bytes[at] ^= 1;
        }
        for cookie in ["", "a", "????", &"a".repeat(COOKIE_BYTES_MAX + 4)] {
            assert!(Unverified::decode(cookie).is_none(), "{cookie}");
        }
    }

    #[test]
    fn sessions_end_with_their_time_and_with_a_logout() {
        let sessions = Sessions { own_key: KEY, key_of_data: OnceLock::new(), logged_out: Mutex::default() };
        let holds = |token: &Token, now_s| sessions.holds(token, now_s, TIMEOUT_S);
        assert!(holds(&said(), 1_000_010) && !holds(&said(), 1_000_000 + TIMEOUT_S));
        sessions.logged_out.lock().add("an:na", 0xabc, 1_000_010, TIMEOUT_S);
        assert!(!holds(&said(), 1_000_010));
        assert!(!holds(&Token { begun_s: 999_990, ..said() }, 1_000_010), "so were its earlier cookies");
        assert!(holds(&Token { session: 0xabd, ..said() }, 1_000_010), "not those of others");
    }

    #[test]
    fn logouts_are_remembered_as_long_as_cookies_live_and_never_too_many() {
        let mut logged_out = LoggedOut::default();
        let few = OF_USER_MAX as u64;
        (0..few).for_each(|session| logged_out.add("a", session, 1000, TIMEOUT_S));
        assert!((0..few).all(|session| logged_out.has("a", session, 1000)));
        (0..few).for_each(|session| logged_out.add("b", session, 1000 + TIMEOUT_S, TIMEOUT_S));
        logged_out.add("b", 1 << 40, 1000 + 2 * TIMEOUT_S, TIMEOUT_S);
        assert_eq!(logged_out.count, 1, "the cookies of all others are too old by now");
        assert_eq!(logged_out.of_users.len(), 1);
    }

    #[test]
    fn a_user_that_logs_out_often_ends_its_own_sessions_alone() {
        let mut logged_out = LoggedOut::default();
        (0..1 << 17).for_each(|session| logged_out.add("often", session, 2000, TIMEOUT_S));
        assert!(logged_out.count <= OF_USER_MAX);
        assert!(logged_out.has("often", 1 << 40, 2000), "a session that had begun");
        assert!(!logged_out.has("often", 1 << 40, 2001) && !logged_out.has("admin", 7, 1999));
        logged_out.add("admin", 7, 2000, TIMEOUT_S);
        for user in 0..100 {
            (0..OF_USER_MAX as u64)
                .for_each(|session| logged_out.add(&format!("{user}"), session, 2000, TIMEOUT_S));
        }
        assert!(logged_out.count <= LOGGED_OUT_MAX);
        assert!(logged_out.has("admin", 7, 1999) && !logged_out.has("admin", 8, 1999));
        assert!((0..100).all(|user| logged_out.has(&format!("{user}"), 9, 1999)), "forgotten or not");
    }
}
