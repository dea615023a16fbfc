//! The sender of a request: its name, its roles, and how it has authenticated.

use std::{fmt, sync::Arc};

use super::{failure::Failure, jwt::Jwt, proxy_auth::ProxySecret};
use crate::Account;

/// The role of server admins.
pub(super) const ADMIN_ROLE: &str = "_admin";

/// The reason for refusing a login with a wrong name or password.
pub(super) const WRONG_PASSWORD: &str = "Name or password is incorrect.";

/// The reason for refusing a user whose password is right, but who lacks the right to the resource.
pub(super) const LACKS_RIGHT: &str =
    "This user may not do that: /metrics needs the right to INFO, /_backup to REPLICATE.";

/// The reason while an address waits after wrong passwords, as CouchDB 3.4 gives it.
pub(super) const TOO_EARLY: &str = "Account is temporarily locked due to multiple authentication failures";

/// How a user has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// Not authenticated.
    Nothing,
    /// With name and password.
    Password,
    /// With a session cookie that was issued at `begun_s` (in seconds). `renew`: the reply renews it.
    Cookie { session: u64, begun_s: u64, renew: bool },
    /// With a JSON Web Token.
    Token(ShownToken),
    /// With the headers of the proxy that has this secret.
    Proxy(Arc<ProxySecret>),
}

/// A JSON Web Token, and the keys by which it was valid.
#[derive(Clone)]
pub(super) struct ShownToken {
    text: Arc<str>,
    /// When it ends, in seconds.
    pub(super) ends_s: Option<u64>,
    judged_by: Arc<Jwt>,
}

impl ShownToken {
    pub(super) fn new(text: &str, ends_s: Option<u64>, judged_by: &Arc<Jwt>) -> ShownToken {
        ShownToken { text: text.into(), ends_s, judged_by: judged_by.clone() }
    }

    /// Whether the token is valid at this time by these keys, which are the current ones.
    pub(super) fn is_valid(&self, keys: Option<&Arc<Jwt>>, now_s: u64) -> bool {
        keys.is_some_and(|keys| {
            if Arc::ptr_eq(keys, &self.judged_by) {
                self.ends_s.is_none_or(|ends_s| now_s < ends_s)
            } else {
                keys.judge(&self.text, now_s).is_ok()
            }
        })
    }
}

impl PartialEq for ShownToken {
    fn eq(&self, other: &ShownToken) -> bool {
        self.text == other.text
    }
}

impl Eq for ShownToken {}

impl fmt::Debug for ShownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownToken")
    }
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: Option<String>,
    /// The roles, as in `userCtx`.
    pub(super) roles: Vec<String>,
    pub(super) is_admin: bool,
    pub(super) shown: Shown,
    /// The digest of its account when it was authenticated; `None` without an account.
    pub(super) login_digest: Option<[u8; 32]>,
}

impl User {
    pub(super) fn anonymous(is_admin: bool) -> User {
        let roles = if is_admin { vec![ADMIN_ROLE.into()] } else { Vec::new() };
        User { name: None, roles, is_admin, shown: Shown::Nothing, login_digest: None }
    }

    /// A user that has shown who it is.
    pub(super) fn known(name: &str, account: Account, shown: Shown) -> User {
        let Account { roles, is_admin, login_digest, lsn: _ } = account;
        User { name: Some(name.into()), roles, is_admin, shown, login_digest: Some(login_digest) }
    }

    /// A user whom another server has authenticated, with the roles that the other server names.
    pub(super) fn vouched_for(name: String, roles: Vec<String>, shown: Shown) -> User {
        let is_admin = roles.iter().any(|role| role == ADMIN_ROLE);
        User { name: Some(name), roles, is_admin, shown, login_digest: None }
    }

    /// The failure of a request that this user may not make. As in CouchDB, a client that has not logged in
    /// is told to log in.
    pub(super) fn refused(&self, reason: &'static str) -> Failure {
        match self.name {
            None => Failure::Unauthorized(reason),
            Some(_) => Failure::Forbidden(reason),
        }
    }

    pub(super) fn require_admin(&self) -> Result<(), Failure> {
        if self.is_admin { Ok(()) } else { Err(Failure::Unauthorized("You are not a server admin.")) }
    }
}
