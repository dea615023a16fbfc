//! A user: who it is, how it proves that, what it may do.

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
    /// Whether it can log in.
    pub is_enabled: bool,
    /// Whether any password will do.
    pub needs_no_password: bool,
    /// Whether what it RESTOREs is trusted. Kept because clients set it; Sheaf checks every value.
    pub skips_sanitizing: bool,
    /// Its passwords, any of which will do.
    pub passwords: Vec<PasswordHash>,
    /// What it may do.
    pub root: Selector,
    /// What else it may do.
    pub selectors: Vec<Selector>,
    /// Its roles for document databases, in the order in which they were given; `_admin` for an admin. They
    /// are no concern of rules, except that `reset` takes them.
    pub roles: Vec<Box<[u8]>>,
}

impl User {
    /// A user that was created and has been given no rule: disabled, without a password or any right.
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

    /// The user `default` of a server that knows no other: everything without a password.
    pub fn all_powerful() -> User {
        User { is_enabled: true, needs_no_password: true, root: Selector::ALL, ..User::initial(true) }
    }

    /// Whether this password logs it in. Takes the same time whichever of its passwords it is.
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
