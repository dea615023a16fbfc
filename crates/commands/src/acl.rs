//! ACL: users, and what they may do.
//!
//! What it is: the commands that show and change users. A change is a record of the log, so every server that
//! has the data has the users; see `engine::users`.
//! What it is not: the language of rules, or any judgement (see the crate `access`).
//!
//! Invariant: no reply of these commands shows a user's password. Only ACL GETUSER and LIST show its hash;
//! ACL SAVE writes the hash to the file.

mod change;
mod file;
mod log;
mod rows;
mod show;

use std::collections::BTreeMap;

use access::{Grammar, User};
use engine::{CommandError, Context, clients::DEFAULT_USER, users::records};

pub(crate) use change::{UserChanges, user_changes};
pub(crate) use rows::ROWS;

/// The user with these rules applied.
///
/// # Errors
/// If one of the rules is wrong: then no rule is applied. The error has the text of the whole reply.
pub(crate) fn user_after<'r>(
    cx: &Context<'_, '_>,
    user: &User,
    rules: impl IntoIterator<Item = &'r [u8]>,
) -> Result<User, CommandError> {
    let changed = grammar(cx).apply(user, rules);
    changed.map_err(|error| CommandError::Composed(String::from_utf8_lossy(&error.reply()).into_owned()))
}

/// The grammar of rules, with the commands and the settings of this server.
fn grammar(cx: &Context<'_, '_>) -> Grammar<'static> {
    let users = &cx.host.users;
    Grammar { commands: users.commands(), all_channels: users.settings().all_channels }
}

/// The users that the data have, including the changes of this unit, and the default user, by their names.
fn all_users(cx: &mut Context<'_, '_>) -> BTreeMap<Box<[u8]>, User> {
    let data = cx.unit.data_settings();
    let decoded = |record: &[u8]| User::decode(record).unwrap_or_else(|_| User::initial(false));
    let mut users: BTreeMap<Box<[u8]>, User> =
        records(&data).map(|(name, record)| (name.into(), decoded(record))).collect();
    users.entry(DEFAULT_USER.as_bytes().into()).or_insert_with(|| cx.host.users.default_user());
    users
}

/// One user, as [`all_users`] has it.
fn find_user(cx: &mut Context<'_, '_>, name: &[u8]) -> Option<User> {
    all_users(cx).remove(name)
}

#[cfg(test)]
mod tests;
