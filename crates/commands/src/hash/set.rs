//! Changing hash fields: HSET, HMSET, HSETNX, HDEL.

use engine::{CommandError, Context, EventClass};
use keyspace::{Applied, Items, KeyOp};
use wire::Args;

use super::{expiry::remove_expired, hash};
use crate::{Slices, effect_bytes_max, gather};

/// `HSET key field value [field value ...]`
pub(super) fn hset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let applied = put(cx, args, "hset")?;
    cx.reply.count(applied.added as usize);
    Ok(())
}

/// `HMSET key field value [field value ...]`
pub(super) fn hmset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    put(cx, args, "hmset")?;
    cx.reply.ok();
    Ok(())
}

fn put(cx: &mut Context<'_, '_>, args: Args<'_>, name: &'static str) -> Result<Applied, CommandError> {
    let (key, pairs) = (args.at(1), args.skip(2));
    if !pairs.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(name));
    }
    remove_expired(cx, key, pairs.iter().step_by(2), effect_bytes_max(args))?;
    let mut slices = Slices::new();
    let pairs = gather(pairs, &mut slices);
    let applied = cx.try_apply(key, KeyOp::HashPut { pairs })?;
    cx.notify(EventClass::HASH, "hset", key);
    Ok(applied)
}

/// `HSETNX key field value`
pub(super) fn hsetnx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, as_of_ms) = (cx.db(), args.at(1), cx.as_of_ms());
    let hash = hash(cx.unit.get(db, key))?;
    let exists =
        hash.and_then(|hash| hash.field(args.at(2))).is_some_and(|field| !field.is_expired(as_of_ms));
    if !exists {
        let pairs = [args.at(2), args.at(3)];
        cx.apply(key, KeyOp::HashPut { pairs: Items::Slices(&pairs) });
        cx.notify(EventClass::HASH, "hset", key);
    }
    cx.reply.integer((!exists).into());
    Ok(())
}

/// `HDEL key field [field ...]`
pub(super) fn hdel(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let key = args.at(1);
    remove_expired(cx, key, args.skip(2).iter(), effect_bytes_max(args))?;
    let mut slices = Slices::new();
    let fields = gather(args.skip(2), &mut slices);
    let applied = cx.try_apply(key, KeyOp::HashRemove { fields })?;
    notify_removed(cx, "hdel", key, applied);
    cx.reply.count(applied.removed as usize);
    Ok(())
}

/// Notifies the removal of fields, and of the key if it became empty.
pub(super) fn notify_removed(cx: &Context<'_, '_>, event: &'static str, key: &[u8], applied: Applied) {
    if applied.removed > 0 {
        cx.notify(EventClass::HASH, event, key);
    }
    if applied.key_removed {
        cx.notify(EventClass::GENERIC, "del", key);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn fields_are_set_and_removed() {
        check(&[
            ("HSET h a 1", ":1"),
            ("HSET h a 2 b 3 a 4", ":1"),
            ("HMGET h a b", r#"["4", "3"]"#),
            ("HMSET h c 5", "+OK"),
            ("HSETNX h c 6", ":0"),
            ("HSETNX h d 7", ":1"),
            ("HKEYS h", r#"["a", "b", "c", "d"]"#),
            ("HVALS h", r#"["4", "3", "5", "7"]"#),
            ("HDEL h a nofield b", ":2"),
            ("HDEL h c d", ":2"),
            ("EXISTS h", ":0"),
            ("HDEL h a", ":0"),
            ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
            ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
            ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
        ]);
    }

    #[test]
    fn a_hash_may_grow_large_and_shrink() {
        let mut server = TestServer::new();
        for number in 0..2000 {
            assert_eq!(server.run(&format!("HSET h field:{number} {number}")), ":1");
        }
        server.check(&[("HLEN h", ":2000"), ("HGET h field:1999", r#""1999""#)]);
        server.assert_replays();
        for number in 0..2000 {
            assert_eq!(server.run(&format!("HDEL h field:{number}")), ":1");
        }
        server.check(&[("EXISTS h", ":0"), ("DBSIZE", ":0")]);
        server.assert_replays();
    }
}
