//! The sender of a request: its name, whether it is an admin, and how it has authenticated.

use super::failure::Failure;

/// The role of server admins.
pub(super) const ADMIN_ROLE: &str = "_admin";

/// The reason for refusing a name with a password.
pub(super) const WRONG_PASSWORD: &str = "Name or password is incorrect.";

/// The reason while an address waits after wrong passwords, as CouchDB 3.4 gives it.
pub(super) const TOO_EARLY: &str = "Account is temporarily locked due to multiple authentication failures";

/// How a user has authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Not authenticated.
    Nothing,
    /// With name and password.
    Password,
    /// With a session cookie, which the reply renews or not.
    Cookie { session: u64, renew: bool },
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: Option<String>,
    pub(super) is_admin: bool,
    pub(super) shown: Shown,
}

impl User {
    pub(super) const fn anonymous(is_admin: bool) -> User {
        User { name: None, is_admin, shown: Shown::Nothing }
    }

    pub(super) fn admin(name: &str, shown: Shown) -> User {
        User { name: Some(name.into()), is_admin: true, shown }
    }

    /// The roles, as in `userCtx`.
    pub(super) fn roles(&self) -> &'static [&'static str] {
        if self.is_admin { &[ADMIN_ROLE] } else { &[] }
    }

    pub(super) fn require_admin(&self) -> Result<(), Failure> {
        if self.is_admin { Ok(()) } else { Err(Failure::Unauthorized("You are not a server admin.")) }
    }
}
