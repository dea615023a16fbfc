//! DEBUG: inspection for tests of servers and clients.
//!
//! Digests show whether two servers hold the same data; DEBUG OBJECT describes one value; DEBUG SLEEP delays
//! a client. Nothing here changes data, but DEBUG DIGEST locks all slots. As in Redis, DEBUG is refused
//! unless `enable-debug-command` allows it.

use engine::{CommandError, Context, Flags, Keys, Row, error::LockContended, unit::LockPolicy};
use keyspace::{Digest, SlotId};
use wire::{Args, number::parse_f64};

use super::{ADMIN, HELP, ROW};
use crate::generic::{encoded_value, encoding_name};

/// The longest DEBUG SLEEP: one day.
const SLEEP_SECONDS_MAX: f64 = 86_400.0;
/// Redis keeps the second of the last access in this many bits.
const ACCESS_SECOND_BITS: u32 = 24;

/// The flags of subcommands that inspect data: not allowed while loading, when the data is incomplete.
const LOOKS: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::PROTECTED);

pub(super) const ROWS: [Row; 5] = [
    Row {
        name: "debug|digest",
        arity: 2,
        flags: LOOKS,
        keys: Keys::AllSlots,
        complexity: "O(N) where N is the size of all values; everybody waits.",
        summary: "Replies with a digest of all databases, which depends on the data only, not on its encoding.",
        handler: digest,
        ..ROW
    },
    Row {
        name: "debug|digest-value",
        arity: -2,
        flags: LOOKS,
        keys: Keys::Range { first: 2, last: -1, step: 1 },
        complexity: "O(N) where N is the size of the values.",
        summary: "Replies with a digest of the value and the expiry of each key, or zeros for a key that is not there.",
        syntax: "[key ...]",
        handler: digest_value,
        ..ROW
    },
    Row { name: "debug|help", flags: ADMIN.or(Flags::PROTECTED), ..HELP },
    Row {
        name: "debug|object",
        arity: 3,
        flags: LOOKS,
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        complexity: "O(N) where N is the size of the value.",
        summary: "Shows how a value is kept.",
        syntax: "key",
        handler: object,
        ..ROW
    },
    Row {
        name: "debug|sleep",
        arity: 3,
        flags: ADMIN.or(Flags::PROTECTED),
        complexity: "O(1); nobody else waits.",
        summary: "Holds this connection for some seconds, and no other.",
        syntax: "seconds",
        handler: sleep,
        ..ROW
    },
];

/// `DEBUG DIGEST`. Locks every slot, so that the digest is of one moment. Includes keys that have expired but
/// are not removed yet.
fn digest(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let patience = LockPolicy(cx.host);
    let digests = SlotId::all().map(|slot| cx.unit.with_slot(patience, slot, |slot| slot.digest()));
    let digest = digests.sum::<Result<Digest, LockContended>>()?;
    cx.reply.simple(&digest.to_hex());
    Ok(())
}

/// `DEBUG DIGEST-VALUE [key ...]`
fn digest_value(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let keys = args.skip(2);
    cx.reply.array(keys.len());
    for key in keys {
        let digest = cx.unit.peek_expired(cx.session.db, key).map(Digest::of_entry).unwrap_or_default();
        cx.reply.simple(&digest.to_hex());
    }
    Ok(())
}

/// `DEBUG OBJECT key`. Replies with the fields of Redis, with a constant for the address of the value.
fn object(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (policy, now_ms) = (cx.host.config.memory_limits().policy.access_policy(), cx.now_ms());
    let Some(entry) = cx.unit.peek_expired(cx.session.db, args.at(2)) else {
        return Err(CommandError::NoSuchKey);
    };
    // Under LFU the entry stores the access frequency in place of the access time.
    let idle_seconds = if policy == keyspace::AccessPolicy::Lfu { 0 } else { entry.idle_seconds(now_ms) };
    let accessed_second = (now_ms / 1000).saturating_sub(idle_seconds.into()) % (1 << ACCESS_SECOND_BITS);
    // Without the type byte, as in Redis.
    let serialized_bytes = encoded_value(entry.view(), now_ms).len() - 1;
    cx.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{} serializedlength:{serialized_bytes} lru:{accessed_second} \
         lru_seconds_idle:{idle_seconds}",
        encoding_name(entry),
    ));
    Ok(())
}

/// `DEBUG SLEEP seconds`. Pauses only this connection; the worker serves others meanwhile.
fn sleep(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let seconds = parse_f64(args.at(2)).ok_or(CommandError::NotAFloat)?;
    if !(0.0..=SLEEP_SECONDS_MAX).contains(&seconds) {
        return Err(CommandError::OutOfRange);
    }
    cx.session.pause_ms = (seconds * 1000.0).ceil() as u64;
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use crate::testing::{START_MS, TestServer, check};
    use engine::DebugAccess;

    const NOTHING: &str = "+0000000000000000000000000000000000000000";
    const REFUSED: &str = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it \
                           from a local connection, otherwise you need to set this option in the configuration file, and then \
                           restart the server.";

    #[test]
    fn debug_needs_the_permission_of_the_settings() {
        let mut server = TestServer::new();
        *server.host.debug_access.lock() = DebugAccess::Nobody;
        let subcommands = ["sleep 0", "help", "digest", "digest-value a", "object a"];
        for subcommand in subcommands {
            assert_eq!(server.run(&format!("debug {subcommand}")), REFUSED, "{subcommand}");
        }
        server.check(&[
            ("debug sleep", "-ERR wrong number of arguments for 'debug|sleep' command"),
            ("multi", "+OK"),
            ("debug digest", REFUSED),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ]);
        server.session.authenticated = false;
        server.check(&[("debug sleep 0", REFUSED)]);
        server.session.authenticated = true;
        // The test client counts as local.
        for access in [DebugAccess::Local, DebugAccess::Everybody] {
            *server.host.debug_access.lock() = access;
            server.check(&[("debug sleep 0", "+OK")]);
        }
    }

    fn digest(server: &mut TestServer) -> String {
        server.run("debug digest")
    }

    #[test]
    fn the_digest_is_that_of_the_data() {
        let mut server = TestServer::new();
        assert_eq!(digest(&mut server), NOTHING);
        server.run("set a 1");
        let one = digest(&mut server);
        assert_ne!(one, NOTHING);
        server.check(&[
            ("rpush l x y", ":2"),
            ("hset h f v", ":1"),
            ("sadd s 1 2", ":2"),
            ("zadd z 1 a", ":1"),
            ("pexpire z 1000", ":1"),
        ]);
        let all = digest(&mut server);
        for (change, back) in [
            ("rpush l z", "rpop l"),
            ("hset h f w", "hset h f v"),
            ("srem s 2", "sadd s 2"),
            ("zadd z 2 a", "zadd z 1 a"),
            ("persist z", "pexpire z 1000"),
            ("rename l m", "rename m l"),
            ("move a 1", "swapdb 0 1"),
        ] {
            server.run(change);
            assert_ne!(digest(&mut server), all, "{change}");
            server.run(back);
            if change != "move a 1" {
                assert_eq!(digest(&mut server), all, "{change}, {back}");
            }
        }
        server.check(&[("multi", "+OK"), ("flushall", "+QUEUED"), ("debug digest", "+QUEUED")]);
        server.check(&[("exec", &format!("[+OK, {NOTHING}]"))]);
    }

    #[test]
    fn the_digest_of_a_value_does_not_depend_on_its_key() {
        let mut server = TestServer::new();
        server.check(&[
            ("debug digest-value", "[]"),
            ("debug digest-value nokey", &format!("[{NOTHING}]")),
            ("sadd a 1 2 3", ":3"),
            ("sadd b 3 2 1 x", ":4"),
            ("srem b x", ":1"),
            ("object encoding a", "\"intset\""),
            ("object encoding b", "\"listpack\""),
            ("rpush c 1 2 3", ":3"),
        ]);
        let mut digests = || match server.value("debug digest-value a b c") {
            Value::Array(digests) => digests,
            other => panic!("{other:?}"),
        };
        let before = digests();
        assert_eq!(before[0], before[1]);
        assert_ne!(before[0], before[2]);
        server.run("expire b 100");
        assert_ne!(server.run("debug digest-value a"), server.run("debug digest-value b"));
    }

    #[test]
    fn debug_object_tells_how_a_value_is_kept() {
        let second = START_MS / 1000 % (1 << 24);
        let shown = |encoding: &str, bytes: usize, second: u64, idle: u64| {
            format!(
                "+Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:{second} lru_seconds_idle:{idle}"
            )
        };
        check(&[
            ("debug object a", "-ERR no such key"),
            ("set a hello", "+OK"),
            ("debug object a", &shown("embstr", 6, second, 0)),
            ("after 3000", ""),
            ("debug object a", &shown("embstr", 6, second, 3)),
            ("rpush l x", ":1"),
            ("pexpire l 1", ":1"),
            ("after 1", ""),
            ("exists l", ":0"),
            ("debug object l", &shown("listpack", 3, second + 3, 0)),
        ]);
    }

    #[test]
    fn sleep_asks_the_worker_to_hold_the_connection() {
        let mut server = TestServer::new();
        for (seconds, pause_ms) in [("0", 0), ("0.0001", 1), ("1.5", 1500), ("86400", 86_400_000)] {
            assert_eq!(server.run(&format!("debug sleep {seconds}")), "+OK");
            assert_eq!(server.session.pause_ms, pause_ms);
        }
        server.session.pause_ms = 0;
        server.check(&[
            ("debug sleep x", "-ERR value is not a valid float"),
            ("debug sleep -1", "-ERR value is out of range"),
            ("debug sleep inf", "-ERR value is out of range"),
            ("debug sleep 86400.1", "-ERR value is out of range"),
            ("debug jmap", "-ERR unknown subcommand 'jmap'. Try DEBUG HELP."),
        ]);
        assert_eq!(server.session.pause_ms, 0);
    }
}
