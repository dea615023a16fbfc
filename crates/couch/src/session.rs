//! Sessions: a cookie that says who has logged in and when, signed with a key of this process. Only those that were logged out are
//! remembered.
//!
//! The cookie is the URL-safe base64 of `NAME:SESSION:TIME:SIGNATURE`: a random number and the time in seconds, both hexadecimal,
//! and HMAC-SHA-256 of `NAME:SESSION:TIME`, a zero byte and the password under the key. A session ends after ten minutes without
//! requests, with a logout, with the process, and when the password changes. Pages of other sites do not have the cookie sent
//! (`SameSite=Strict`), and no page reads it (`HttpOnly`).
//!
//! Invariant: no cookie of a session that was logged out is taken, neither its last nor an earlier one, and it gets no other.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;

use super::{
    access::{Shown, User},
    cross_site,
    failure::Failure,
    reply::{self, Reply},
    request::Call,
};
use crate::Host;

pub(super) const WRONG_PASSWORD: &str = "Name or password is incorrect.";

/// Seconds without requests after which a session ends.
const SESSION_S: u64 = 600;
/// Bytes of a request with a name and a password.
const LOGIN_BYTES_MAX: usize = 16 << 10;
/// Seconds after which a cookie is renewed.
const RENEW_S: u64 = SESSION_S / 10;
/// Sessions that were logged out and are remembered as such. With one more, all sessions end that have begun by then.
const LOGGED_OUT_MAX: usize = 1 << 16;
const COOKIE: &str = "AuthSession";
const FORM: &str = "application/x-www-form-urlencoded";

/// Signs cookies and knows its own.
pub(super) struct Sessions {
    key: [u8; 32],
    logged_out: Mutex<LoggedOut>,
}

/// Sessions that have ended before their time.
#[derive(Default)]
struct LoggedOut {
    /// When each was logged out, in seconds.
    at_s: HashMap<u64, u64>,
    /// No cookie from then or before is taken.
    all_until_s: u64,
}

impl LoggedOut {
    fn add(&mut self, session: u64, now_s: u64) {
        // None of their cookies is young enough any more.
        self.at_s.retain(|_, at_s| now_s.saturating_sub(*at_s) < SESSION_S);
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

/// What a cookie of ours says.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    name: String,
    session: u64,
    /// When it was made, in seconds.
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

    /// What the cookie of a session is that begins or goes on now.
    fn token(&self, token: &Token, password: &str) -> String {
        let Token { name, session, begun_s } = token;
        let signed = format!("{name}:{session:X}:{begun_s:X}");
        let mut token = signed.clone().into_bytes();
        token.push(b':');
        token.extend_from_slice(&self.mac(&signed, password).finalize().into_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    /// What a cookie says, if it is ours and its session has not ended. `password_of` a name.
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

    /// What the cookie among these headers says, if one is ours.
    fn token_of(&self, host: &Host, headers: &HeaderMap) -> Option<Token> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|it| it.trim().split_once('='));
        let (_, token) = pairs.find(|(name, _)| *name == COOKIE)?;
        self.read(token, host.unix_ms() / 1000, |name| host.access.admin_password(name))
    }

    /// Who sends a cookie of ours.
    pub(super) fn user(&self, host: &Host, headers: &HeaderMap) -> Option<User> {
        let Token { name, session, begun_s } = self.token_of(host, headers)?;
        let renew = (host.unix_ms() / 1000).saturating_sub(begun_s) >= RENEW_S;
        Some(User::admin(&name, Shown::Cookie { session, renew }))
    }

    /// Gives the client of a session a cookie that lasts longer, if its own is not new.
    pub(super) fn renew(&self, host: &Host, user: &User, reply: &mut Reply) {
        if let (Shown::Cookie { session, renew: true }, Some(name)) = (user.shown, &user.name)
            && let Some(password) = host.access.admin_password(name)
        {
            let token = Token { name: name.clone(), session, begun_s: host.unix_ms() / 1000 };
            // It may have been logged out while the request was answered.
            if !self.logged_out.lock().has(session, token.begun_s) {
                set_cookie(reply, &self.token(&token, &password));
            }
        }
    }

    /// Ends the session whose cookie is among these headers, if there is one.
    fn log_out(&self, host: &Host, headers: &HeaderMap) {
        if let Some(token) = self.token_of(host, headers) {
            self.logged_out.lock().add(token.session, host.unix_ms() / 1000);
        }
    }
}

fn set_cookie(reply: &mut Reply, token: &str) {
    let cookie = format!("{COOKIE}={token}; Version=1; Path=/; HttpOnly; SameSite=Strict");
    reply::set(reply, header::SET_COOKIE, &cookie);
}

#[derive(Deserialize)]
struct Login {
    #[serde(alias = "username")]
    name: String,
    password: String,
}

/// `/_session`: who am I, log in, log out.
pub(super) async fn session(call: &mut Call) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => Ok(who_am_i(call)),
        "POST" => log_in(call).await,
        "DELETE" => {
            call.thread.front.sessions.log_out(call.thread.host(), &call.head.headers);
            // The cookie that the client has is not to be made longer.
            call.user.shown = Shown::Nothing;
            let mut reply = reply::ok(StatusCode::OK);
            set_cookie(&mut reply, "");
            Ok(reply)
        }
        _ => Err(Failure::MethodNotAllowed("GET,HEAD,POST,DELETE")),
    }
}

fn who_am_i(call: &Call) -> Reply {
    let user = &call.user;
    let mut info = json!({ "authentication_handlers": ["cookie", "default"] });
    match user.shown {
        Shown::Cookie { .. } => info["authenticated"] = "cookie".into(),
        Shown::Password => info["authenticated"] = "default".into(),
        Shown::Nothing => {}
    }
    let who = json!({ "ok": true, "userCtx": { "name": user.name, "roles": user.roles() }, "info": info });
    reply::value(StatusCode::OK, &who)
}

async fn log_in(call: &mut Call) -> Result<Reply, Failure> {
    let is_form = cross_site::media_type(&call.head.headers) == Some(FORM);
    let body = match call.take_body() {
        // Anybody may ask: no more is taken than a name and a password need.
        Some(body) => body.at_most(LOGIN_BYTES_MAX).whole(&call.head.headers).await?,
        None => Bytes::new(),
    };
    let login = if is_form {
        let pairs = form_urlencoded::parse(&body);
        let take = |wanted: &[&str]| {
            pairs.clone().find(|(name, _)| wanted.contains(&&**name)).map(|(_, value)| value.into_owned())
        };
        Login {
            name: take(&["name", "username"]).unwrap_or_default(),
            password: take(&["password"]).unwrap_or_default(),
        }
    } else {
        call.require_json()?;
        serde_json::from_slice(&body)
            .map_err(|_| Failure::bad_request("request body must contain a username and password"))?
    };
    let host = call.thread.host();
    if !host.access.is_admin(&login.name, &login.password) {
        return Err(Failure::Unauthorized(WRONG_PASSWORD));
    }
    let user = User::admin(&login.name, Shown::Cookie { session: host.random_u64(), renew: true });
    let body = json!({ "ok": true, "name": login.name, "roles": user.roles() });
    let mut reply = reply::value(StatusCode::OK, &body);
    call.thread.front.sessions.renew(host, &user, &mut reply);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_cookies_that_are_young_say_who_somebody_is() {
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
        logged_out.add(1, 1000);
        logged_out.add(2, 1000 + SESSION_S);
        assert!(!logged_out.at_s.contains_key(&1), "its cookies are too old by now");
        (0..LOGGED_OUT_MAX as u64).for_each(|session| logged_out.add(10 + session, 2000));
        assert!(logged_out.at_s.len() <= LOGGED_OUT_MAX);
        assert!(logged_out.has(10, 1999) && logged_out.has(9, 2000), "all that had begun");
        assert!(!logged_out.has(9, 2001));
    }
}
