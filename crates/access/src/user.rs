//! A user: whether the user may log in, its passwords, and its permissions.

use subtle::{Choice, ConstantTimeEq};

use crate::command_rules::CommandRule;
use crate::derived_password::DerivedPassword;
use crate::password::PasswordHash;
use crate::selector::Selector;
use crate::words::is_word;

/// Whether a user can have this name.
pub fn is_user_name(name: &[u8]) -> bool {
    is_word(name)
}

/// Whether a user can have this role. An empty role is refused, and so is a role that begins with an
/// underscore, as the server's own roles do.
pub fn is_role(role: &[u8]) -> bool {
    !role.is_empty() && !role.starts_with(b"_")
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
    /// A further password, which takes long to check.
    pub derived_password: Option<DerivedPassword>,
    /// The root selector: the rights that the rules outside parentheses give.
    pub root: Selector,
    /// The other selectors, each of which permits calls by itself.
    pub selectors: Vec<Selector>,
    /// The roles of the user for document databases, in the order in which they were given.
    pub roles: Vec<Box<[u8]>>,
    /// A random number that distinguishes this user from earlier and later users of the same name.
    /// [`User::succeeding`] gives it to a new user. It is 0 before that, and for a user that an earlier
    /// version has made.
    pub birth: u64,
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
            derived_password: None,
            root: Selector::initial(all_channels),
            selectors: Vec::new(),
            roles: Vec::new(),
            birth: 0,
        }
    }

    /// The user `default` before any rule or setting has changed it. This user may do everything without a
    /// password.
    pub fn all_powerful() -> User {
        User { is_enabled: true, needs_no_password: true, root: Selector::ALL, ..User::initial(true) }
    }

    /// The user that a document of `_users` declares: `before`, if there is one, with the roles and the
    /// password of the document. If the document has a password, the user cannot log in without a password. A
    /// user without `before` may run only the commands of `@connection`, in the Redis protocol, that are
    /// neither in `@admin` nor in `@dangerous`.
    pub fn of_document(
        before: Option<User>,
        roles: Vec<Box<[u8]>>,
        derived_password: Option<DerivedPassword>,
    ) -> User {
        let new = || {
            let mut user = User { is_enabled: true, ..User::initial(false) };
            for (allows, category) in [(true, "@connection"), (false, "@admin"), (false, "@dangerous")] {
                user.root.commands.add(CommandRule { allows, target: category.as_bytes().into() });
            }
            user
        };
        let before = before.unwrap_or_else(new);
        let needs_no_password = before.needs_no_password && derived_password.is_none();
        let mut user = User { needs_no_password, derived_password, roles: Vec::new(), ..before };
        for role in roles {
            if !user.roles.contains(&role) {
                user.roles.push(role);
            }
        }
        user
    }

    /// Gives this user its birth: that of `before`, the present user of the same name, or, without `before`,
    /// `new_birth`.
    pub fn succeeding(self, before: Option<&User>, new_birth: u64) -> User {
        User { birth: before.map_or(new_birth.max(1), |before| before.birth), ..self }
    }

    /// Whether the user can log in with this password. May take long; [`User::accepts_at_once`] does not.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let derived = || self.derived_password.as_ref().is_some_and(|derived| derived.accepts(password));
        self.accepts_at_once(password).unwrap_or_else(derived)
    }

    /// Whether the user can log in with this password. `None` if only the derived password can tell, because
    /// its check takes too long for a thread that serves clients. The time taken does not depend on which of
    /// `passwords` matches.
    pub fn accepts_at_once(&self, password: &[u8]) -> Option<bool> {
        let given = PasswordHash::of(password);
        let fits = |fits: Choice, known: &PasswordHash| fits | known.ct_eq(&given);
        let is_known: bool = self.passwords.iter().fold(Choice::from(0), fits).into();
        let accepts = self.needs_no_password || is_known;
        let is_open = self.is_enabled && !accepts && self.derived_password.is_some();
        (!is_open).then_some(self.is_enabled && accepts)
    }

    /// The root and the other selectors.
    pub(crate) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }
}
