//! Whether keys are there: DEL, UNLINK, EXISTS, TOUCH, TYPE.

use keyspace::Effect;
use wire::Args;

use crate::{CommandError, Context};

/// `DEL key [key ...]`, `UNLINK key [key ...]`
pub(super) fn del(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let mut removed = 0;
    for key in args.skip(1) {
        if cx.unit.exists(db, key) {
            cx.apply(&Effect::Delete { db, key });
            removed += 1;
        }
    }
    cx.reply.count(removed);
    Ok(())
}

/// `EXISTS key [key ...]`
pub(super) fn exists(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let found = args.skip(1).iter().filter(|key| cx.unit.inspect(db, key).is_some()).count();
    cx.reply.count(found);
    Ok(())
}

/// `TOUCH key [key ...]`
pub(super) fn touch(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let found = args.skip(1).iter().filter(|key| cx.unit.touch(db, key)).count();
    cx.reply.count(found);
    Ok(())
}

/// `TYPE key`
pub(super) fn value_type(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let entry = cx.unit.inspect(cx.session.db, args.at(1));
    cx.reply.simple(entry.map_or("none", |entry| entry.value_type().name()));
    Ok(())
}
