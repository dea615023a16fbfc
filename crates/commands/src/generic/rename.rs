//! Renaming, copying and moving values: RENAME, RENAMENX, COPY, MOVE.
//!
//! A value changes its key in one of two ways. A large value is moved by [`Effect::Move`], unless a snapshot
//! forbids this (see `moves_as_it_is`). The size of a Move does not depend on the value, and neither does the
//! time for a big collection, but replay must process two slots together. Other values are put at the new
//! key and deleted at the old key, in one record, which replays slot by slot.

use engine::{CommandError, Context, EventClass};
use keyspace::{DbId, Effect, KeyOp, ValueBuf, slot_of};
use wire::Args;

use crate::database::parse_db;

/// Smaller values are moved by put and delete: that costs less than replaying two slots together.
const MOVE_BYTES_MIN: usize = 16 << 10;

/// Whether the value at a key is moved by [`Effect::Move`] instead of put and delete.
///
/// A snapshot captures slots one by one, and after it is loaded, each slot is replayed from its own capture
/// on. So the result must be `false` while the slot of the new key is captured and the slot of the old key is
/// not: replay would look for the value in the old slot, which is captured without the value. In the opposite
/// case a Move is correct: the new slot is captured with the value, and replay only removes the value from
/// the old slot.
///
/// A follower cannot choose, and captures the old slot first
/// ([`keyspace::LockedSlots::capture_before_moves`]). A command cannot capture a slot first, because an
/// earlier command of the same transaction may have changed that slot already.
fn moves_as_it_is(cx: &Context<'_, '_>, db: DbId, key: &[u8], to_key: &[u8]) -> bool {
    cx.unit.peek(db, key).is_some_and(|entry| entry.allocated_bytes() >= MOVE_BYTES_MIN)
        && cx.keyspace.may_move(slot_of(key), slot_of(to_key))
}

/// A copied value with its deadline.
struct Copied {
    value: ValueBuf,
    expire_at_ms: Option<u64>,
}

impl Copied {
    /// Copies the value at a key; `None` if the key is absent. Fails if the log has no room for a record with
    /// the value, so this must be called before the first change.
    fn of(cx: &Context<'_, '_>, db: DbId, key: &[u8]) -> Result<Option<Copied>, CommandError> {
        let Some(entry) = cx.unit.peek(db, key) else { return Ok(None) };
        let copied = Copied { value: ValueBuf::of(entry), expire_at_ms: entry.expire_at_ms() };
        cx.require_room(copied.value.size_bytes() as u64)?;
        Ok(Some(copied))
    }

    fn put(&self, cx: &mut Context<'_, '_>, db: DbId, key: &[u8]) {
        put_at(cx, db, key, |cx| {
            self.value.for_each_effect(db, key, self.expire_at_ms, |effect| {
                cx.unit.apply(effect);
            });
        });
    }
}

/// Stores a value at the key with `put`. If that replaces a value, notifies `new`, too.
fn put_at<'k>(cx: &mut Context<'_, 'k>, db: DbId, key: &[u8], put: impl FnOnce(&mut Context<'_, 'k>)) {
    let replaces = cx.unit.exists(db, key);
    put(cx);
    if replaces {
        // Redis removes the key with the value that is replaced, and adds it again, so the key counts as new.
        cx.notify_in(db, EventClass::NEW, "new", key);
    }
}

/// `RENAME key newkey`
pub(super) fn rename(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    rename_key(cx, args, true)?;
    cx.reply.ok();
    Ok(())
}

/// `RENAMENX key newkey`
pub(super) fn renamenx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let renamed = rename_key(cx, args, false)?;
    cx.reply.integer(renamed.into());
    Ok(())
}

/// Renames a key. Returns `false`, without a change, if the new key equals the old key, or exists and may not
/// be replaced.
fn rename_key(cx: &mut Context<'_, '_>, args: Args<'_>, replaces: bool) -> Result<bool, CommandError> {
    let (db, key, new_key) = (cx.db(), args.at(1), args.at(2));
    if cx.unit.get(db, key).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    if key == new_key || (!replaces && cx.unit.exists(db, new_key)) {
        return Ok(false);
    }
    let renamed = move_value(cx, (db, key), (db, new_key))?;
    cx.notify(EventClass::GENERIC, "rename_from", key);
    cx.notify(EventClass::GENERIC, "rename_to", new_key);
    Ok(renamed)
}

/// Moves a value to another key, and replaces the value there. Returns whether there was a value to move.
fn move_value(
    cx: &mut Context<'_, '_>,
    (db, key): (DbId, &[u8]),
    (to_db, to_key): (DbId, &[u8]),
) -> Result<bool, CommandError> {
    if moves_as_it_is(cx, db, key, to_key) {
        put_at(cx, to_db, to_key, |cx| {
            cx.unit.apply(&Effect::Move { db, key, to_db, to_key });
        });
        return Ok(true);
    }
    let Some(copied) = Copied::of(cx, db, key)? else { return Ok(false) };
    copied.put(cx, to_db, to_key);
    cx.unit.apply(&KeyOp::Delete.on(db, key));
    Ok(true)
}

/// `COPY source destination [DB destination-db] [REPLACE]`
pub(super) fn copy(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, source, destination) = (cx.db(), args.at(1), args.at(2));
    let (mut destination_db, mut replaces) = (db, false);
    let mut words = args.skip(3).iter();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if word.eq_ignore_ascii_case(b"db") {
            destination_db = parse_db(words.next().ok_or(CommandError::Syntax)?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if (db, source) == (destination_db, destination) {
        return Err(CommandError::SameObject);
    }
    let found = cx.unit.read(db, source).is_some();
    let copies = found && (replaces || !cx.unit.exists(destination_db, destination));
    if copies && let Some(copied) = Copied::of(cx, db, source)? {
        copied.put(cx, destination_db, destination);
        cx.notify_in(destination_db, EventClass::GENERIC, "copy_to", destination);
    }
    cx.reply.integer(copies.into());
    Ok(())
}

/// `MOVE key db`
pub(super) fn move_key(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let destination_db = parse_db(args.at(2))?;
    if db == destination_db {
        return Err(CommandError::SameObject);
    }
    let moved = !cx.unit.exists(destination_db, key) && move_value(cx, (db, key), (destination_db, key))?;
    if moved {
        cx.notify(EventClass::GENERIC, "move_from", key);
        cx.notify_in(destination_db, EventClass::GENERIC, "move_to", key);
    }
    cx.reply.integer(moved.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use keyspace::DbId;

    use crate::testing::{TestServer, check};

    #[test]
    fn values_beyond_the_admitted_bytes_are_copied() {
        let mut server = TestServer::new();
        let value = vec![b'v'; 300_000];
        server.run_args(&[b"SET", b"a", &value]);
        assert_eq!(server.run("COPY a b"), ":1");
        assert_eq!(server.run("RENAME b c"), "+OK");
        assert_eq!(server.run("MOVE c 1"), ":1");
        assert_eq!(server.run("STRLEN a"), ":300000");
        server.assert_replays();
    }

    #[test]
    fn rename_takes_value_and_expiry_along() {
        check(&[
            ("RENAME a b", "-ERR no such key"),
            ("SET a 1 EX 10", "+OK"),
            ("SET b 2", "+OK"),
            ("RENAME a b", "+OK"),
            ("EXISTS a", ":0"),
            ("GET b", r#""1""#),
            ("PTTL b", ":10000"),
            ("RENAME b b", "+OK"),
            ("SET c 3", "+OK"),
            ("RENAME c b", "+OK"),
            ("PTTL b", ":-1"),
            ("RENAME c c", "-ERR no such key"),
            ("RENAME a", "-ERR wrong number of arguments for 'rename' command"),
            ("PEXPIRE b 5", ":1"),
            ("after 5", ""),
            ("RENAME b d", "-ERR no such key"),
        ]);
    }

    #[test]
    fn renamenx_spares_the_key_that_is_there() {
        check(&[
            ("RENAMENX a b", "-ERR no such key"),
            ("MSET a 1 b 2", "+OK"),
            ("RENAMENX a b", ":0"),
            ("RENAMENX a a", ":0"),
            ("MGET a b", r#"["1", "2"]"#),
            ("RENAMENX a c", ":1"),
            ("MGET a c", r#"[nil, "1"]"#),
            ("PEXPIRE b 5", ":1"),
            ("after 5", ""),
            ("RENAMENX c b", ":1"),
            ("GET b", r#""1""#),
            ("PTTL b", ":-1"),
        ]);
    }

    #[test]
    fn names_in_one_slot_are_exchanged_too() {
        check(&[
            ("SET {t}a 1", "+OK"),
            ("RENAME {t}a {t}b", "+OK"),
            ("MGET {t}a {t}b", r#"[nil, "1"]"#),
            ("COPY {t}b {t}a", ":1"),
            ("MGET {t}a {t}b", r#"["1", "1"]"#),
        ]);
    }

    #[test]
    fn copy_leaves_the_source() {
        check(&[
            ("COPY a b", ":0"),
            ("SET a 1 EX 10", "+OK"),
            ("COPY a b", ":1"),
            ("GET b", r#""1""#),
            ("PTTL b", ":10000"),
            ("SET a 2", "+OK"),
            ("COPY a b", ":0"),
            ("COPY a b replace", ":1"),
            ("MGET a b", r#"["2", "2"]"#),
            ("PTTL b", ":-1"),
            ("COPY none b REPLACE", ":0"),
            ("GET b", r#""2""#),
            ("COPY a a", "-ERR source and destination objects are the same"),
            ("COPY a a DB 0", "-ERR source and destination objects are the same"),
            ("COPY none none", "-ERR source and destination objects are the same"),
            ("COPY a b FOO", "-ERR syntax error"),
            ("COPY a b DB", "-ERR syntax error"),
            ("COPY a b DB x", "-ERR value is not an integer or out of range"),
            ("COPY a b DB 16", "-ERR DB index is out of range"),
            ("COPY a b DB -1", "-ERR DB index is out of range"),
            ("COPY a b DB 99 FOO", "-ERR DB index is out of range"),
            ("COPY a b FOO DB 99", "-ERR syntax error"),
            ("COPY a", "-ERR wrong number of arguments for 'copy' command"),
        ]);
    }

    /// Fills `list`, `set`, `zset`, `hash` and `string` with values far larger than [`MOVE_BYTES_MIN`].
    fn fill(server: &mut TestServer) {
        let items: Vec<String> = (0..3_000).map(|number| format!("{number:012}")).collect();
        let items: Vec<&[u8]> = items.iter().map(String::as_bytes).collect();
        let pairs: Vec<&[u8]> = items.iter().flat_map(|item| [*item, b"1"]).collect();
        let scored: Vec<&[u8]> = items.iter().flat_map(|item| [b"1", *item]).collect();
        for (command, key, args) in [
            (b"RPUSH", &b"list"[..], &items),
            (b"SADD ", b"set", &items),
            (b"ZADD ", b"zset", &scored),
            (b"HSET ", b"hash", &pairs),
        ] {
            server.run_args(&[&[command.trim_ascii(), key], &args[..]].concat());
        }
        server.run_args(&[b"SET", b"string", &[b'v'; 40_000]]);
    }

    const TYPES: [&str; 5] = ["list", "set", "zset", "hash", "string"];

    #[test]
    fn large_values_of_any_type_move_without_being_logged() {
        for type_name in TYPES {
            let mut server = TestServer::new();
            fill(&mut server);
            let digest_of =
                |server: &mut TestServer, key: &str| server.run(&format!("DEBUG DIGEST-VALUE {key}"));
            server.run(&format!("PEXPIRE {type_name} 9000"));
            let digest = digest_of(&mut server, type_name);
            let appended = server.appended_lsn();
            server.check(&[
                (&format!("RENAME {type_name} {type_name}"), "+OK"),
                (&format!("RENAMENX {type_name} {type_name}"), ":0"),
                (&format!("RENAME {type_name} other"), "+OK"),
                (&format!("EXISTS {type_name}"), ":0"),
                ("PTTL other", ":9000"),
                ("SET {other}b small", "+OK"),
                ("RENAMENX other {other}b", ":0"),
                ("RENAME other {other}b", "+OK"),
                ("TYPE {other}b", &format!("+{type_name}")),
                ("RENAMENX {other}b third", ":1"),
                ("MOVE third 5", ":1"),
                ("MOVE third 5", ":0"),
                ("EXISTS third", ":0"),
                ("SELECT 5", "+OK"),
                ("PTTL third", ":9000"),
            ]);
            assert_eq!(digest_of(&mut server, "third"), digest);
            let logged = server.appended_lsn().get() - appended.get();
            assert!(logged < 2_000, "{type_name}: {logged} bytes were logged");
            server.check(&[("after 9000", ""), ("EXISTS third", ":0")]);
            server.assert_replays();
        }
    }

    #[test]
    fn large_values_replace_each_other_in_one_transaction() {
        let mut server = TestServer::new();
        fill(&mut server);
        server.check(&[
            ("MULTI", "+OK"),
            ("RENAME list kept", "+QUEUED"),
            ("RENAME set list", "+QUEUED"),
            ("RENAME kept set", "+QUEUED"),
            ("RENAME string hash", "+QUEUED"),
            ("RPUSH set last", "+QUEUED"),
            ("SADD list member", "+QUEUED"),
            ("APPEND hash v", "+QUEUED"),
            ("EXEC", "[+OK, +OK, +OK, +OK, :3001, :1, :40001]"),
            ("LINDEX set -1", r#""last""#),
            ("SCARD list", ":3001"),
            ("EXISTS kept string", ":0"),
            ("DBSIZE", ":4"),
        ]);
        server.assert_replays();
    }

    #[test]
    fn fields_of_a_large_hash_expire_under_its_new_name() {
        let mut server = TestServer::new();
        fill(&mut server);
        server.check(&[
            ("HPEXPIRE hash 50 FIELDS 1 000000000007", "[:1]"),
            ("RENAME hash renamed", "+OK"),
            ("HPTTL renamed FIELDS 1 000000000007", "[:50]"),
            ("after 50", ""),
            ("HEXISTS renamed 000000000007", ":0"),
            ("HEXISTS renamed 000000000008", ":1"),
        ]);
        server.assert_replays();
    }

    #[test]
    fn large_values_replace_expired_keys() {
        let mut server = TestServer::new();
        fill(&mut server);
        server.check(&[
            ("SET old x PX 5", "+OK"),
            ("after 5", ""),
            ("RENAMENX list old", ":1"),
            ("LLEN old", ":3000"),
            ("PTTL old", ":-1"),
            ("PEXPIRE old 5", ":1"),
            ("after 5", ""),
            ("RENAME old list", "-ERR no such key"),
        ]);
        server.assert_replays();
    }

    #[test]
    fn copies_and_moves_reach_other_databases() {
        let mut server = TestServer::new();
        let in_db = |server: &mut TestServer, number, line: &str| {
            server.session.db = DbId::new(number).unwrap();
            let reply = server.run(line);
            server.session.db = DbId::ZERO;
            reply
        };
        server.check(&[
            ("SET a 1 EX 10", "+OK"),
            ("COPY a a DB 3", ":1"),
            ("COPY a a DB 3", ":0"),
            ("SET a 2 KEEPTTL", "+OK"),
            ("COPY a a DB 3 REPLACE", ":1"),
            ("MOVE a 3", ":0"),
            ("MOVE a 4", ":1"),
            ("EXISTS a", ":0"),
            ("MOVE a 4", ":0"),
            ("MOVE a 0", "-ERR source and destination objects are the same"),
            ("MOVE a 16", "-ERR DB index is out of range"),
            ("MOVE a x", "-ERR value is not an integer or out of range"),
            ("MOVE a", "-ERR wrong number of arguments for 'move' command"),
        ]);
        assert_eq!(in_db(&mut server, 3, "GET a"), "\"2\"");
        assert_eq!(in_db(&mut server, 4, "GET a"), "\"2\"");
        assert_eq!(in_db(&mut server, 4, "PTTL a"), ":10000");
        assert_eq!(in_db(&mut server, 4, "MOVE a 0"), ":1");
        server.clock.advance_ms(10_000);
        assert_eq!(in_db(&mut server, 3, "MOVE a 0"), ":0", "expired");
        server.run("SET a new");
        assert_eq!(server.run("MOVE a 3"), ":1", "what was there has expired");
        assert_eq!(in_db(&mut server, 3, "GET a"), "\"new\"");
        server.assert_replays();
    }
}
