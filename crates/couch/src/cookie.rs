//! Log-in sessions: a signed cookie names the user and the time. The server remembers only the sessions that
//! were logged out.
//!
//! The cookie is the URL-safe base64 of `NAME:SESSION:TIME:SIGNATURE`: a random number and the time in
//! seconds, both hexadecimal, and HMAC-SHA-256 of `NAME:SESSION:TIME`, a zero byte and the password, with a
//! key of this process. A session ends when its newest cookie is [`SESSION_S`] old, with a logout, with the
//! process, and when the password changes. A successful request of the CouchDB protocol renews the cookie if
//! it is at least [`RENEW_S`] old, so a session ends 540 to 600 s after the last such request. Browsers do
//! not send the cookie for pages of other sites (`SameSite=Strict`), and no page can read it (`HttpOnly`).
//! One that was set over TLS is sent over TLS alone (`Secure`).
//!
//! Invariant: after a logout no cookie of the session is accepted, neither its last nor an earlier one, and
//! no new one is issued for it.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use sha2::Sha256;

use super::{
    reply::{self, Reply},
    user::{Shown, User},
};
use crate::Host;

/// The age in seconds from which a cookie is not accepted.
const SESSION_S: u64 = 600;
/// The age in seconds from which a successful request renews the cookie.
const RENEW_S: u64 = SESSION_S / 10;
/// Limit of remembered logouts. At the limit, a further logout makes the server forget the earlier ones and
/// reject all cookies issued until then.
const LOGGED_OUT_MAX: usize = 1 << 16;
/// Below this number of logouts, no expired ones are removed.
const LOGGED_OUT_FEW: usize = 1 << 10;
const COOKIE: &str = "AuthSession";

/// Issues and verifies cookies.
pub(super) struct Sessions {
    key: [u8; 32],
    logged_out: Mutex<LoggedOut>,
}

/// Logged-out sessions whose cookies have not yet expired.
#[derive(Default)]
struct LoggedOut {
    /// Session number and time of its logout, in seconds.
    at_s: HashMap<u64, u64>,
    /// Number of logouts at which expired ones are removed: twice the number that the last removal left, so
    /// that the mean cost of a logout does not grow with their number.
    next_removal: usize,
    /// Cookies issued at this time or before are rejected.
    all_until_s: u64,
}

impl LoggedOut {
    fn add(&mut self, session: u64, now_s: u64) {
        if self.at_s.len() >= self.next_removal {
            // Logouts are forgotten once the cookies of their sessions have expired.
            self.at_s.retain(|_, at_s| now_s.saturating_sub(*at_s) < SESSION_S);
            self.next_removal = (2 * self.at_s.len()).clamp(LOGGED_OUT_FEW, LOGGED_OUT_MAX);
        }
        if self.at_s.len() >= LOGGED_OUT_MAX {
            self.at_s.clear();
            self.all_until_s = now_s;
        }
        self.at_s.insert(session, now_s);
    }

    fn has(&self, session: u64, begun_s: u64) -> bool {
        begun_s <= self.all_until_s || self.at_s.contains_key(&session)
    }
}

/// The contents of a valid cookie.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    name: String,
    session: u64,
    /// When the cookie was issued, in seconds.
    begun_s: u64,
}

impl Sessions {
    pub(super) fn new(host: &Host) -> Sessions {
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&host.random_u64().to_le_bytes()));
        Sessions { key, logged_out: Mutex::default() }
    }

    fn mac(&self, signed: &str, password: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(signed.as_bytes());
        mac.update(&[0]);
        mac.update(password.as_bytes());
        mac
    }

    /// A signed cookie for this token.
    fn token(&self, token: &Token, password: &str) -> String {
        let Token { name, session, begun_s } = token;
        let signed = format!("{name}:{session:X}:{begun_s:X}");
        let mut token = signed.clone().into_bytes();
        token.push(b':');
        token.extend_from_slice(&self.mac(&signed, password).finalize().into_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    /// The contents of a cookie with a valid signature whose session has not ended. `password_of` returns the
    /// password of a user.
    fn read(&self, token: &str, now_s: u64, password_of: impl Fn(&str) -> Option<String>) -> Option<Token> {
        let token = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (signed, signature) = token.split_at_checked(token.len().checked_sub(32)?)?;
        let signed = std::str::from_utf8(signed).ok()?.strip_suffix(':')?;
        let (rest, begun_s) = signed.rsplit_once(':')?;
        let (name, session) = rest.rsplit_once(':')?;
        self.mac(signed, &password_of(name)?).verify_slice(signature).ok()?;
        let begun_s = u64::from_str_radix(begun_s, 16).ok()?;
        let session = u64::from_str_radix(session, 16).ok()?;
        let has_ended =
            now_s.saturating_sub(begun_s) >= SESSION_S || self.logged_out.lock().has(session, begun_s);
        (!has_ended).then(|| Token { name: name.into(), session, begun_s })
    }

    /// The contents of the first session cookie among these headers, if it is valid.
    fn token_of(&self, host: &Host, headers: &HeaderMap) -> Option<Token> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|it| it.trim().split_once('='));
        let (_, token) = pairs.find(|(name, _)| *name == COOKIE)?;
        self.read(token, host.unix_ms() / 1000, |name| host.access.admin_password(name))
    }

    /// The user of a valid session cookie.
    pub(super) fn user(&self, host: &Host, headers: &HeaderMap) -> Option<User> {
        let Token { name, session, begun_s } = self.token_of(host, headers)?;
        let renew = (host.unix_ms() / 1000).saturating_sub(begun_s) >= RENEW_S;
        Some(User::admin(&name, Shown::Cookie { session, renew }))
    }

    /// Sets a new cookie if the user's is at least [`RENEW_S`] old, or the user has just logged in.
    pub(super) fn renew(&self, host: &Host, user: &User, reply: &mut Reply) {
        if let (Shown::Cookie { session, renew: true }, Some(name)) = (user.shown, &user.name)
            && let Some(password) = host.access.admin_password(name)
        {
            let token = Token { name: name.clone(), session, begun_s: host.unix_ms() / 1000 };
            // A concurrent logout may have ended the session.
            if !self.logged_out.lock().has(session, token.begun_s) {
                set_cookie(reply, &self.token(&token, &password));
            }
        }
    }

    /// Ends the session of the cookie among these headers, if any.
    pub(super) fn log_out(&self, host: &Host, headers: &HeaderMap) {
        if let Some(token) = self.token_of(host, headers) {
            self.logged_out.lock().add(token.session, host.unix_ms() / 1000);
        }
    }
}

/// Removes the cookie of the client.
pub(super) fn remove_cookie(reply: &mut Reply) {
    set_cookie(reply, "");
}

fn set_cookie(reply: &mut Reply, token: &str) {
    let cookie = format!("{COOKIE}={token}; Version=1; Path=/; HttpOnly; SameSite=Strict");
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

    #[test]
    fn only_fresh_cookies_of_this_server_authenticate() {
        let sessions = Sessions { key: [7; 32], logged_out: Mutex::default() };
        let password_of = |name: &str| (name == "an:na").then(|| "secret".to_owned());
        let read = |sessions: &Sessions, token: &str, now_s| sessions.read(token, now_s, password_of);
        let said = || Token { name: "an:na".into(), session: 0xabc, begun_s: 1_000_000 };
        let token = sessions.token(&said(), "secret");
        assert_eq!(read(&sessions, &token, 1_000_010), Some(said()));
        assert_eq!(read(&sessions, &token, 1_000_000 + SESSION_S), None, "it has ended");
        let other = Sessions { key: [8; 32], logged_out: Mutex::default() };
        assert_eq!(read(&other, &token, 1_000_010), None, "it is another process'");
        let changed = sessions.read(&token, 1_000_010, |_| Some("other".into()));
        assert_eq!(changed, None, "the password is another one by now");
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(read(&sessions, &BASE64_URL_SAFE_NO_PAD.encode(&bytes), 1_000_010), None, "byte {at}");
            bytes[at] ^= 1;
        }
        for token in ["", "a", "????"] {
            assert_eq!(read(&sessions, token, 0), None, "{token}");
        }
        sessions.logged_out.lock().add(0xabc, 1_000_010);
        assert_eq!(read(&sessions, &token, 1_000_010), None, "it was logged out");
        let earlier = sessions.token(&Token { begun_s: 999_990, ..said() }, "secret");
        assert_eq!(read(&sessions, &earlier, 1_000_010), None, "so were its earlier cookies");
        let another = sessions.token(&Token { session: 0xabd, ..said() }, "secret");
        assert!(read(&sessions, &another, 1_000_010).is_some(), "not those of others");
    }

    #[test]
    fn logouts_are_remembered_as_long_as_cookies_live_and_never_too_many() {
        let mut logged_out = LoggedOut::default();
        (0..LOGGED_OUT_FEW as u64).for_each(|session| logged_out.add(session, 1000));
        assert!((0..LOGGED_OUT_FEW as u64).all(|session| logged_out.has(session, 1000)));
        (0..LOGGED_OUT_FEW as u64).for_each(|session| logged_out.add(session, 1000 + SESSION_S));
        logged_out.add(1 << 40, 1000 + 2 * SESSION_S);
        assert_eq!(logged_out.at_s.len(), 1, "the cookies of all others are too old by now");
        (0..LOGGED_OUT_MAX as u64).for_each(|session| logged_out.add(10 + session, 2000));
        assert!(logged_out.at_s.len() <= LOGGED_OUT_MAX);
        assert!(logged_out.has(10, 1999) && logged_out.has(9, 2000), "all that had begun");
        assert!(!logged_out.has(9, 2001));
    }
}
