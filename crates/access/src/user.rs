//! A user: whether it may log in, its passwords, and what it may do.

use subtle::{Choice, ConstantTimeEq};

use crate::password::PasswordHash;
use crate::selector::Selector;
use crate::words::is_word;

/// Whether a user can have this name.
pub fn is_user_name(name: &[u8]) -> bool {
    is_word(name)
}

/// A user, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Whether the user can log in.
    pub is_enabled: bool,
    /// Whether any password is accepted.
    pub needs_no_password: bool,
    /// Whether payloads that the user passes to RESTORE are trusted. Sheaf checks every value anyway; the
    /// flag is kept because clients set it.
    pub skips_sanitizing: bool,
    /// The passwords of the user, each of which is accepted.
    pub passwords: Vec<PasswordHash>,
    /// The rights that its rules give outside selectors.
    pub root: Selector,
    /// Further rights, each selector by itself.
    pub selectors: Vec<Selector>,
    /// The roles of the user for document databases, in the order in which they were given; `_admin` for an
    /// admin. Rules do not change roles, except that `reset` removes them.
    pub roles: Vec<Box<[u8]>>,
}

impl User {
    /// A new user to which no rule was applied: disabled, without a password, and without rights except as in
    /// [`Selector::initial`].
    pub const fn initial(all_channels: bool) -> User {
        User {
            is_enabled: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::initial(all_channels),
            selectors: Vec::new(),
            roles: Vec::new(),
        }
    }

    /// The user `default` of a server without other users, which may do everything without a password.
    pub fn all_powerful() -> User {
        User { is_enabled: true, needs_no_password: true, root: Selector::ALL, ..User::initial(true) }
    }

    /// Whether the user can log in with this password. Takes the same time whichever of the user's passwords
    /// it is.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let given = PasswordHash::of(password);
        let fits = |fits: Choice, known: &PasswordHash| fits | known.ct_eq(&given);
        let is_known: bool = self.passwords.iter().fold(Choice::from(0), fits).into();
        self.is_enabled && (self.needs_no_password || is_known)
    }

    /// The root and the other selectors.
    pub(crate) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }
}
