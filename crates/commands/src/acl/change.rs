//! ACL SETUSER, ACL DELUSER.

use access::{User, is_user_name};
use engine::{
    CommandError, Context,
    clients::DEFAULT_USER,
    users::{USER_BYTES_MAX, have_room, setting_of},
};
use keyspace::Effect;
use wire::Args;

use super::{find_user, user_after};

const TOO_LARGE: CommandError = CommandError::Text("ERR the rules of a user take 64 KiB at most");
const TOO_MANY: CommandError =
    CommandError::Text("ERR there would be more than 10000 users, or more than 16 MiB of them");

/// `ACL SETUSER username [rule [rule ...]]`
pub(super) fn setuser(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let name = args.at(2);
    if !is_user_name(name) {
        return Err(CommandError::Text("ERR Usernames can't contain spaces or null characters"));
    }
    let all_channels = cx.host.users.settings().all_channels;
    let before = find_user(cx, name).unwrap_or_else(|| User::initial(all_channels));
    let user = user_after(cx, &before, args.skip(3).iter())?;
    put_users(cx, [(name, Some(&user))])?;
    cx.reply.ok();
    Ok(())
}

/// `ACL DELUSER username [username ...]`
pub(super) fn deluser(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let names = args.skip(2);
    if names.iter().any(|name| name == DEFAULT_USER.as_bytes()) {
        return Err(CommandError::Text("ERR The 'default' user cannot be removed"));
    }
    let data = cx.unit.data_settings();
    let mut known: Vec<&[u8]> = names.iter().filter(|name| data.get(&setting_of(name)).is_some()).collect();
    known.sort_unstable();
    known.dedup();
    put_users(cx, known.iter().map(|name| (*name, None)))?;
    if known.contains(&cx.session.login.name()) {
        // The connection closes once the reply is sent.
        cx.session.closing = true;
        cx.session.client.set_closing();
    }
    cx.reply.count(known.len());
    Ok(())
}

/// Stores users; a name without a user is removed.
///
/// # Errors
/// As [`user_changes`].
pub(super) fn put_users<'u>(
    cx: &mut Context<'_, '_>,
    users: impl IntoIterator<Item = (&'u [u8], Option<&'u User>)>,
) -> Result<(), CommandError> {
    user_changes(cx, users)?.apply(cx);
    Ok(())
}

/// Changes of users, checked against the limits: for each user the name of its setting, and its record, or
/// `None` to remove the user. A changed user keeps the birth that its record had before.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct UserChanges(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl UserChanges {
    /// Applies the changes as effects of the unit.
    pub(crate) fn apply(&self, cx: &mut Context<'_, '_>) {
        for (name, record) in &self.0 {
            cx.unit.apply(&Effect::Setting { name, value: record.as_deref() });
        }
    }
}

/// The changes that store the given users; a name without a user is removed.
///
/// # Errors
/// If a user is too large, or if there would be too many users or too many bytes of users. Also the errors of
/// [`Context::require_room`].
pub(crate) fn user_changes<'u>(
    cx: &mut Context<'_, '_>,
    users: impl IntoIterator<Item = (&'u [u8], Option<&'u User>)>,
) -> Result<UserChanges, CommandError> {
    let data = cx.unit.data_settings();
    let record = |name: &[u8], user: &User| {
        let before = data.get(name).and_then(|record| User::decode(record).ok());
        user.clone().succeeding(before.as_ref(), new_birth(cx)).encode()
    };
    let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = users
        .into_iter()
        .map(|(name, user)| {
            let name = setting_of(name);
            let record = user.map(|user| record(&name, user));
            (name, record)
        })
        .collect();
    let sizes = changes.iter().map(|(name, record)| {
        let record_bytes = record.as_ref().map_or(0, |record| name.len() + record.len());
        (record_bytes, name.len() + record_bytes)
    });
    let (largest, total) = sizes.fold((0, 0), |(largest, total), (record_bytes, setting_bytes)| {
        (largest.max(record_bytes), total + setting_bytes)
    });
    if largest > USER_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    if !have_room(&data, changes.iter().map(|(name, record)| (&**name, record.as_deref()))) {
        return Err(TOO_MANY);
    }
    cx.require_room(total as u64)?;
    Ok(UserChanges(changes))
}

fn new_birth(cx: &Context<'_, '_>) -> u64 {
    let mut bytes = [0; 8];
    cx.host.process.fill_secret(&mut bytes);
    u64::from_le_bytes(bytes)
}
