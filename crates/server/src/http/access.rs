//! Who may do what.
//!
//! Server admins are `admin-user` with `admin-password`, and `default` with `requirepass`. While there is neither, everybody on
//! this machine is one, and others are refused while `protected-mode` is on. With an admin, a database is open to admins only,
//! until its `_security` says more.

use std::net::SocketAddr;

use axum::http::{HeaderMap, header};
use base64::{Engine, prelude::BASE64_STANDARD};

use super::{failure::Failure, session};
use crate::http::thread::HttpThread;

/// The role of server admins.
pub(super) const ADMIN_ROLE: &str = "_admin";

/// How a user has shown who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Not at all.
    Nothing,
    /// With name and password.
    Password,
    /// With a cookie, which is to be renewed or not.
    Cookie { renew: bool },
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: Option<String>,
    pub(super) is_admin: bool,
    pub(super) shown: Shown,
}

impl User {
    const fn anonymous(is_admin: bool) -> User {
        User { name: None, is_admin, shown: Shown::Nothing }
    }

    pub(super) fn admin(name: &str, shown: Shown) -> User {
        User { name: Some(name.into()), is_admin: true, shown }
    }

    /// As in `userCtx`.
    pub(super) fn roles(&self) -> &'static [&'static str] {
        if self.is_admin { &[ADMIN_ROLE] } else { &[] }
    }

    pub(super) fn require_admin(&self) -> Result<(), Failure> {
        if self.is_admin { Ok(()) } else { Err(Failure::Unauthorized("You are not a server admin.")) }
    }
}

/// Whether `peer` may send requests at all.
pub(super) fn admit(thread: &HttpThread, peer: &SocketAddr) -> Result<(), Failure> {
    if thread.host.is_http_protected_from(peer) {
        return Err(Failure::Forbidden(
            "There is no password, so only clients on this machine are served: set admin-password, or turn \
             protected-mode off.",
        ));
    }
    Ok(())
}

/// Who sends these headers.
///
/// # Errors
/// If a name and a password are given, and wrong.
pub(super) fn identify(thread: &HttpThread, headers: &HeaderMap) -> Result<User, Failure> {
    let has_admins = thread.host.has_http_admins();
    if let Some((name, password)) = credentials(headers) {
        if thread.host.is_http_admin(&name, &password) {
            return Ok(User::admin(&name, Shown::Password));
        }
        // Without admins a name means nothing: whatever is sent along is as good.
        if has_admins {
            return Err(Failure::Unauthorized(session::WRONG_PASSWORD));
        }
    }
    if has_admins && let Some(user) = thread.shared.sessions.user(&thread.host, headers) {
        return Ok(user);
    }
    Ok(User::anonymous(!has_admins))
}

/// Name and password of HTTP Basic, if they are given.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, encoded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded =
        BASE64_STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.into(), password.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_read_and_anything_else_is_none() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            credentials(&headers)
        };
        // "anna:a:b"
        assert_eq!(read("Basic YW5uYTphOmI="), Some(("anna".into(), "a:b".into())));
        for text in ["Bearer YW5uYTphOmI=", "Basic", "Basic ???", "Basic YW5uYQ=="] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
