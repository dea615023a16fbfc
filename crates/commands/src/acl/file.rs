//! ACL LOAD, ACL SAVE: users from and to a file.

use access::{User, parse_file};
use engine::{CommandError, Context, users::records};
use wire::Args;

use super::{all_users, change::put_users, grammar};

/// `ACL LOAD`
pub(super) fn load(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.require_own_thread()?;
    let (path, content) = cx.host.config.read_users().map_err(CommandError::Composed)?;
    let users = parse_file(&grammar(cx), path.as_bytes(), &content)
        .map_err(|error| CommandError::Composed(format!("ERR {}", String::from_utf8_lossy(&error.text))))?;
    let data = cx.unit.data_settings();
    let gone = records(&data).map(|(name, _)| name).filter(|name| !users.contains_key(*name));
    let changes: Vec<(&[u8], Option<&User>)> =
        gone.map(|name| (name, None)).chain(users.iter().map(|(name, user)| (&**name, Some(user)))).collect();
    put_users(cx, changes)?;
    cx.reply.ok();
    Ok(())
}

/// `ACL SAVE`
pub(super) fn save(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.require_own_thread()?;
    let mut content = Vec::new();
    for (name, user) in all_users(cx) {
        content.extend_from_slice(&user.line(&name));
        content.push(b'\n');
    }
    cx.host.config.write_users(&content).map_err(CommandError::Composed)?;
    cx.reply.ok();
    Ok(())
}
