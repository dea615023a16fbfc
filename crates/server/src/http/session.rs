//! Sessions: a cookie that says who has logged in and when, signed with a key of this process. Nothing is stored.
//!
//! The cookie is the URL-safe base64 of `NAME:TIME:SIGNATURE`: the time in hexadecimal seconds, the signature HMAC-SHA-256 of
//! `NAME:TIME`, a zero byte and the password under the key. It ends after ten minutes without requests, with the process, and when the password changes.

use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode, header},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;

use super::{
    access::{Shown, User},
    failure::Failure,
    reply::{self, Reply},
    request::Call,
};
use crate::host::ServerHost;

pub(super) const WRONG_PASSWORD: &str = "Name or password is incorrect.";

/// Seconds without requests after which a session ends.
const SESSION_S: u64 = 600;
/// Bytes of a request with a name and a password.
const LOGIN_BYTES_MAX: usize = 16 << 10;
/// Seconds after which a cookie is renewed.
const RENEW_S: u64 = SESSION_S / 10;
const COOKIE: &str = "AuthSession";
const FORM: &str = "application/x-www-form-urlencoded";

/// Signs cookies and knows its own.
pub(super) struct Sessions {
    key: [u8; 32],
}

impl Sessions {
    pub(super) fn new(host: &ServerHost) -> Sessions {
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&host.random_u64().to_le_bytes()));
        Sessions { key }
    }

    fn mac(&self, signed: &str, password: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(signed.as_bytes());
        mac.update(&[0]);
        mac.update(password.as_bytes());
        mac
    }

    /// What the cookie of a session is that begins or goes on now.
    fn token(&self, name: &str, password: &str, now_s: u64) -> String {
        let signed = format!("{name}:{now_s:X}");
        let mut token = signed.clone().into_bytes();
        token.push(b':');
        token.extend_from_slice(&self.mac(&signed, password).finalize().into_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    /// The name in a cookie, and its age in seconds, if the cookie is ours and has not ended. `password_of` a name.
    fn read(
        &self,
        token: &str,
        now_s: u64,
        password_of: impl Fn(&str) -> Option<String>,
    ) -> Option<(String, u64)> {
        let token = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (signed, signature) = token.split_at_checked(token.len().checked_sub(32)?)?;
        let signed = std::str::from_utf8(signed).ok()?.strip_suffix(':')?;
        let (name, begun_s) = signed.rsplit_once(':')?;
        self.mac(signed, &password_of(name)?).verify_slice(signature).ok()?;
        let age_s = now_s.saturating_sub(u64::from_str_radix(begun_s, 16).ok()?);
        (age_s < SESSION_S).then(|| (name.into(), age_s))
    }

    /// Who sends a cookie of ours.
    pub(super) fn user(&self, host: &ServerHost, headers: &HeaderMap) -> Option<User> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|it| it.trim().split_once('='));
        let (_, token) = pairs.find(|(name, _)| *name == COOKIE)?;
        let (name, age_s) = self.read(token, host.unix_ms() / 1000, |name| host.http_admin_password(name))?;
        Some(User::admin(&name, Shown::Cookie { renew: age_s >= RENEW_S }))
    }

    /// Gives the client of a session a cookie that lasts longer, if its own is not new.
    pub(super) fn renew(&self, host: &ServerHost, user: &User, reply: &mut Reply) {
        if let (Shown::Cookie { renew: true }, Some(name)) = (user.shown, &user.name)
            && let Some(password) = host.http_admin_password(name)
        {
            set_cookie(reply, &self.token(name, &password, host.unix_ms() / 1000));
        }
    }
}

fn set_cookie(reply: &mut Reply, token: &str) {
    reply::set(reply, header::SET_COOKIE, &format!("{COOKIE}={token}; Version=1; Path=/; HttpOnly"));
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
    let is_form = call.media_type() == Some(FORM);
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
    let host = &call.thread.host;
    if !host.is_http_admin(&login.name, &login.password) {
        return Err(Failure::Unauthorized(WRONG_PASSWORD));
    }
    let user = User::admin(&login.name, Shown::Cookie { renew: true });
    let body = json!({ "ok": true, "name": login.name, "roles": user.roles() });
    let mut reply = reply::value(StatusCode::OK, &body);
    call.thread.shared.sessions.renew(host, &user, &mut reply);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_cookies_that_are_young_say_who_somebody_is() {
        let sessions = Sessions { key: [7; 32] };
        let password_of = |name: &str| (name == "an:na").then(|| "secret".to_owned());
        let read = |sessions: &Sessions, token: &str, now_s| sessions.read(token, now_s, password_of);
        let token = sessions.token("an:na", "secret", 1_000_000);
        assert_eq!(read(&sessions, &token, 1_000_010), Some(("an:na".into(), 10)));
        assert_eq!(read(&sessions, &token, 1_000_000 + SESSION_S), None, "it has ended");
        assert_eq!(read(&Sessions { key: [8; 32] }, &token, 1_000_010), None, "it is another process'");
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
    }
}
