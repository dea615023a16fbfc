//! Reading hashes.

use engine::{CommandError, Context};
use keyspace::HashField;
use wire::Args;

use super::hash;

/// A field, unless it has expired.
fn field<'u>(
    cx: &'u mut Context<'_, '_>,
    key: &[u8],
    name: &[u8],
) -> Result<Option<HashField<'u>>, CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let hash = hash(cx.unit.read(db, key))?;
    Ok(hash.and_then(|hash| hash.field(name)).filter(|field| !field.is_expired(as_of_ms)))
}

/// `HGET key field`
pub(super) fn hget(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let hash = hash(cx.unit.read(db, args.at(1)))?;
    let field = hash.and_then(|hash| hash.field(args.at(2))).filter(|field| !field.is_expired(as_of_ms));
    cx.reply.bulk_or_null(field.as_ref().map(|field| &*field.value));
    Ok(())
}

/// `HMGET key field [field ...]`
pub(super) fn hmget(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let hash = hash(cx.unit.read(db, args.at(1)))?;
    let names = args.skip(2);
    cx.reply.array(names.len());
    for name in names.iter() {
        let field = hash.and_then(|hash| hash.field(name)).filter(|field| !field.is_expired(as_of_ms));
        cx.reply.bulk_or_null(field.as_ref().map(|field| &*field.value));
    }
    Ok(())
}

/// `HEXISTS key field`
pub(super) fn hexists(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let exists = field(cx, args.at(1), args.at(2))?.is_some();
    cx.reply.integer(exists.into());
    Ok(())
}

/// `HSTRLEN key field`
pub(super) fn hstrlen(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let len = field(cx, args.at(1), args.at(2))?.map_or(0, |field| field.value.len());
    cx.reply.count(len);
    Ok(())
}

/// `HLEN key`
pub(super) fn hlen(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let len = hash(cx.unit.read(db, args.at(1)))?.map_or(0, |hash| hash.len());
    cx.reply.count(len);
    Ok(())
}

/// `HGETALL key`
pub(super) fn hgetall(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    whole(cx, args, Shown::Pairs)
}

/// `HKEYS key`
pub(super) fn hkeys(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    whole(cx, args, Shown::Names)
}

/// `HVALS key`
pub(super) fn hvals(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    whole(cx, args, Shown::Values)
}

/// The parts of each field in the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Names,
    Values,
    Pairs,
}

/// Replies with all fields that have not expired.
fn whole(cx: &mut Context<'_, '_>, args: Args<'_>, shown: Shown) -> Result<(), CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let hash = hash(cx.unit.read(db, args.at(1)))?;
    let fields = || hash.iter().flat_map(|hash| hash.iter()).filter(|field| !field.is_expired(as_of_ms));
    let len = match hash {
        Some(hash) if hash.has_deadlines() => fields().count(),
        Some(hash) => hash.len(),
        None => 0,
    };
    if shown == Shown::Pairs {
        cx.reply.map(len);
    } else {
        cx.reply.array(len);
    }
    for field in fields() {
        if shown != Shown::Values {
            cx.reply.bulk(&field.name);
        }
        if shown != Shown::Names {
            cx.reply.bulk(&field.value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::Protocol;

    use crate::testing::{TestServer, check};

    #[test]
    fn a_whole_hash_is_a_map_where_there_are_maps() {
        for (protocol, expected) in
            [(Protocol::Resp2, r#"["a", "1", "b", "2"]"#), (Protocol::Resp3, r#"{"a": "1", "b": "2"}"#)]
        {
            let mut server = TestServer::new();
            server.session.protocol = protocol;
            server.check(&[("HSET h a 1 b 2", ":2"), ("HGETALL h", expected), ("HKEYS nokey", "[]")]);
        }
    }

    #[test]
    fn fields_are_read_one_by_one() {
        check(&[
            ("HSET h a 1 b two", ":2"),
            ("HGET h a", r#""1""#),
            ("HGET h c", "nil"),
            ("HGET nokey a", "nil"),
            ("HMGET h b c a", r#"["two", nil, "1"]"#),
            ("HMGET nokey a b", "[nil, nil]"),
            ("HEXISTS h a", ":1"),
            ("HEXISTS h c", ":0"),
            ("HSTRLEN h b", ":3"),
            ("HSTRLEN h c", ":0"),
            ("HLEN h", ":2"),
            ("HLEN nokey", ":0"),
            ("TYPE h", "+hash"),
        ]);
    }

    #[test]
    fn other_types_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET s v", "+OK"),
            ("HGET s f", wrong),
            ("HMGET s f", wrong),
            ("HGETALL s", wrong),
            ("HLEN s", wrong),
            ("HSET s f v", wrong),
            ("HDEL s f", wrong),
            ("HINCRBY s f 1", wrong),
            ("HSET h f v", ":1"),
            ("GET h", wrong),
            ("INCR h", wrong),
            ("SET h v", "+OK"),
            ("GET h", r#""v""#),
        ]);
    }
}
