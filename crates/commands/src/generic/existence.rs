//! Existence of keys: DEL, UNLINK, EXISTS, TOUCH, TYPE.

use engine::{CommandError, Context, EventClass};
use keyspace::KeyOp;
use wire::Args;

/// `DEL key [key ...]`, `UNLINK key [key ...]`
pub(super) fn del(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let mut removed = 0;
    for key in args.skip(1) {
        if cx.unit.exists(db, key) {
            cx.apply(key, KeyOp::Delete);
            cx.notify(EventClass::GENERIC, "del", key);
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

#[cfg(test)]
mod tests {
    use keyspace::{EvictionPolicy, SlotId};

    use crate::testing::{TestServer, check};
    use engine::MemoryLimits;

    #[test]
    fn removing_counts_the_keys_that_were_there() {
        check(&[
            ("MSET a 1 b 2 c 3", "+OK"),
            ("DEL a x a", ":1"),
            ("UNLINK b c", ":2"),
            ("DEL a", ":0"),
            ("SET a 1 PX 10", "+OK"),
            ("after 10", ""),
            ("DEL a", ":0"),
            ("UNLINK a", ":0"),
            ("DEL", "-ERR wrong number of arguments for 'del' command"),
            ("UNLINK", "-ERR wrong number of arguments for 'unlink' command"),
        ]);
    }

    #[test]
    fn a_large_value_is_freed_aside() {
        let mut server = TestServer::new();
        server.run_args(&[b"SET", b"a", &vec![b'v'; 1 << 20]]);
        assert!(server.executor.take_freed().is_none());
        assert_eq!(server.run("DEL a"), ":1");
        assert!(server.executor.take_freed().is_some());
        assert_eq!(server.executor.keyspace().bytes(), 0);
    }

    #[test]
    fn large_values_that_go_otherwise_are_freed_aside_too() {
        let mut server = TestServer::new();
        let set_large = |server: &mut TestServer| {
            server.run_args(&[b"SET", b"a", &vec![b'v'; 1 << 20]]);
            assert!(server.executor.take_freed().is_none());
        };
        set_large(&mut server);
        server.check(&[("PEXPIRE a 10", ":1"), ("after 10", ""), ("EXISTS a", ":0")]);
        assert_eq!(server.executor.expire_due(SlotId::FIRST, SlotId::LAST, usize::MAX, &server.services), 1);
        assert!(server.executor.take_freed().is_some(), "expired");

        set_large(&mut server);
        server.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC", "[+OK]")]);
        assert!(server.executor.take_freed().is_some(), "replaced in a transaction");

        set_large(&mut server);
        let limits =
            MemoryLimits { memory_bytes_max: 1 << 19, policy: EvictionPolicy::AllKeysRandom, samples: 1 };
        *server.host.limits.lock() = limits;
        server.check(&[("SET b 1", "+OK"), ("EXISTS a", ":0")]);
        assert!(server.executor.take_freed().is_some(), "evicted");
    }

    #[test]
    fn existing_keys_are_counted_as_often_as_named() {
        check(&[
            ("EXISTS a", ":0"),
            ("MSET a 1 b 2", "+OK"),
            ("EXISTS a", ":1"),
            ("EXISTS a a x b", ":3"),
            ("TOUCH a a x b", ":3"),
            ("PEXPIRE a 5", ":1"),
            ("after 5", ""),
            ("EXISTS a b", ":1"),
            ("TOUCH a b", ":1"),
            ("EXISTS", "-ERR wrong number of arguments for 'exists' command"),
            ("TOUCH", "-ERR wrong number of arguments for 'touch' command"),
        ]);
    }

    #[test]
    fn types_are_named() {
        check(&[
            ("TYPE a", "+none"),
            ("SET a 1 PX 5", "+OK"),
            ("TYPE a", "+string"),
            ("after 5", ""),
            ("TYPE a", "+none"),
            ("TYPE", "-ERR wrong number of arguments for 'type' command"),
            ("TYPE a b", "-ERR wrong number of arguments for 'type' command"),
        ]);
    }

    #[test]
    fn reads_of_values_renew_the_access_and_questions_do_not() {
        let mut server = TestServer::new();
        let idle = |server: &mut TestServer, command: &str| {
            server.run("SET a 1");
            server.clock.advance_ms(60_000);
            server.run(command);
            server.run("OBJECT IDLETIME a")
        };
        for command in
            ["GET a", "GETEX a", "STRLEN a", "GETRANGE a 0 0", "MGET a", "APPEND a x", "TOUCH a", "COPY a b"]
        {
            assert_eq!(idle(&mut server, command), ":0", "{command}");
        }
        for command in ["EXISTS a", "TYPE a", "TTL a", "OBJECT ENCODING a", "KEYS *", "SCAN 0", "RANDOMKEY"] {
            assert_eq!(idle(&mut server, command), ":60", "{command}");
        }
        server.session.no_touch = true;
        for command in ["GET a", "STRLEN a", "MGET a"] {
            assert_eq!(idle(&mut server, command), ":60", "{command} of a client that leaves no trace");
        }
        assert_eq!(idle(&mut server, "TOUCH a"), ":0", "TOUCH is meant");
    }

    #[test]
    fn touching_raises_the_frequency_only_under_lfu() {
        let mut server = TestServer::new();
        server.host.set_policy(EvictionPolicy::AllKeysLfu);
        server.run("SET a 1");
        assert_eq!(server.run("OBJECT FREQ a"), ":5");
        assert_eq!(server.run("TOUCH a"), ":1");
        assert_eq!(server.run("OBJECT FREQ a"), ":6");
    }
}
