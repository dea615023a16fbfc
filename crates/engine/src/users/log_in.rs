//! The user of a session, bound to the users of one moment.

use std::sync::{Arc, LazyLock};

use super::{Principal, UserSet};
use crate::clients::{Client, DEFAULT_USER};

/// A generation that no set of users has.
const UNBOUND: u64 = u64::MAX;

/// The name of the default user. Shared, because sessions are also made for single commands.
static DEFAULT_NAME: LazyLock<Arc<[u8]>> = LazyLock::new(|| DEFAULT_USER.as_bytes().into());

/// The user of a session.
#[derive(Debug, Clone)]
pub struct LogIn {
    name: Arc<[u8]>,
    /// The user as it was last looked up; see [`LogIn::principal`].
    principal: Option<Arc<Principal>>,
    /// The generation of the users in which the user was looked up.
    generation: u64,
    is_unrestricted: bool,
    /// Whether the client has not logged in since it connected or logged out, and has run no command since
    /// then with the users known. Unless `is_chosen`, the client's certificate may still name its user.
    is_provisional: bool,
    /// Whether a log-in or RESET has determined the user: the certificate no longer counts.
    is_chosen: bool,
}

impl Default for LogIn {
    fn default() -> LogIn {
        LogIn {
            name: DEFAULT_NAME.clone(),
            principal: None,
            generation: UNBOUND,
            is_unrestricted: false,
            is_provisional: true,
            is_chosen: false,
        }
    }
}

impl LogIn {
    /// A log-in as this user, one of the users of this generation.
    pub fn new(principal: &Arc<Principal>, generation: u64) -> LogIn {
        LogIn {
            name: (*principal.name).into(),
            principal: Some(principal.clone()),
            generation,
            is_unrestricted: principal.rights.are_unrestricted(),
            is_provisional: false,
            is_chosen: true,
        }
    }

    /// The log-in of a client that has asked for the default user.
    pub(crate) fn chosen_default() -> LogIn {
        LogIn { is_chosen: true, ..LogIn::default() }
    }

    /// The name of the user; `default` before a login.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The user, as it was at the last command or when the client logged in. `None` if the user was deleted.
    /// Also `None` from the connect or RESET until the next command, if the client has not logged in.
    pub fn principal(&self) -> Option<&Arc<Principal>> {
        self.principal.as_ref()
    }

    /// Whether the user may do everything, according to the users of this generation. Every command makes
    /// this test.
    #[inline]
    pub(crate) fn may_do_everything(&self, generation: u64) -> bool {
        self.is_unrestricted && self.generation == generation && !self.is_provisional
    }

    /// Looks the user up in these users, unless the user was looked up in the same generation before.
    pub(crate) fn bind(&mut self, users: &UserSet) {
        if self.generation != users.generation {
            self.principal = users.get(&self.name).cloned();
            self.generation = users.generation;
            self.is_unrestricted =
                self.principal.as_ref().is_some_and(|principal| principal.rights.are_unrestricted());
        }
    }

    /// Whether the user is still to be settled; see [`LogIn::settle`].
    pub(crate) fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Whether a log-in or RESET has determined the user.
    pub(crate) fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    /// Ends the provisional state, because the users are known. Returns whether the user was provisional.
    pub(crate) fn settle(&mut self) -> bool {
        std::mem::take(&mut self.is_provisional)
    }

    /// Shows the user in the list of clients.
    pub(crate) fn show(&self, client: &Client) {
        client.set_user(&self.name);
    }
}
