//! WATCH, UNWATCH.

use engine::{CommandError, Context};
use wire::Args;

/// `WATCH key [key ...]`
pub(super) fn watch(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if cx.session.transaction.is_some() {
        return Err(CommandError::Text("ERR WATCH inside MULTI is not allowed"));
    }
    let (db, keys) = (cx.db(), args.skip(1));
    cx.session.watches.require_room(keys.len())?;
    for key in keys {
        cx.session.watches.add(&cx.unit, db, key);
    }
    cx.session.client.set_watched(cx.session.watches.len());
    cx.reply.ok();
    Ok(())
}

/// `UNWATCH`
pub(super) fn unwatch(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.session.end_watches();
    cx.reply.ok();
    Ok(())
}
