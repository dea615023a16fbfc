//! OBJECT: the representation of a value.
//!
//! For strings, ENCODING is the encoding that Redis would have chosen, because tools print it: a string that
//! was changed in place is `raw` until it is put anew. For collections, ENCODING is Redis' name for the form
//! in Sheaf's memory. REFCOUNT is always 1, because no value is shared.

use engine::{CommandError, Context};
use keyspace::{AccessPolicy, EntryRef, View};
use wire::{Args, number::is_canonical_i64};

/// The longest string that Redis keeps in one allocation with its header.
const EMBEDDED_BYTES_MAX: usize = 44;

const NOT_LFU: CommandError = CommandError::Text(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
     policies at runtime LRU and LFU data will take some time to adjust.",
);
const IS_LFU: CommandError = CommandError::Text(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at \
     runtime LRU and LFU data will take some time to adjust.",
);

/// `OBJECT ENCODING key`
pub(super) fn encoding(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match cx.unit.inspect_silently(cx.session.db, args.at(2)) {
        Some(entry) => cx.reply.bulk(encoding_name(entry).as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

/// The reply of OBJECT ENCODING.
pub(crate) fn encoding_name(entry: EntryRef<'_>) -> &'static str {
    match entry.view() {
        View::String(_) if entry.is_edited() => "raw",
        View::String(bytes) if is_canonical_i64(bytes) => "int",
        View::String(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
        View::String(_) => "raw",
        View::List(list) => list.encoding(),
        View::Set(set) => set.encoding(),
        View::Zset(zset) => zset.encoding(),
        View::Hash(hash) => hash.encoding(),
        View::Stream(_) => "stream",
    }
}

/// `OBJECT FREQ key`
pub(super) fn freq(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (policy, now_ms) = (access_policy(cx), cx.now_ms());
    match cx.unit.inspect_silently(cx.session.db, args.at(2)) {
        Some(_) if policy != AccessPolicy::Lfu => return Err(NOT_LFU),
        Some(entry) => cx.reply.integer(entry.frequency(now_ms).into()),
        None => cx.reply.null(),
    }
    Ok(())
}

/// `OBJECT IDLETIME key`
pub(super) fn idletime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (policy, now_ms) = (access_policy(cx), cx.now_ms());
    match cx.unit.inspect_silently(cx.session.db, args.at(2)) {
        Some(_) if policy == AccessPolicy::Lfu => return Err(IS_LFU),
        Some(entry) => cx.reply.integer(entry.idle_seconds(now_ms).into()),
        None => cx.reply.null(),
    }
    Ok(())
}

fn access_policy(cx: &Context<'_, '_>) -> AccessPolicy {
    cx.host.config.memory_limits().policy.access_policy()
}

/// `OBJECT REFCOUNT key`
pub(super) fn refcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match cx.unit.inspect_silently(cx.session.db, args.at(2)) {
        Some(_) => cx.reply.integer(1),
        None => cx.reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use keyspace::EvictionPolicy;

    use super::{IS_LFU, NOT_LFU};
    use crate::testing::{TestServer, check};

    #[test]
    fn encodings_are_those_of_redis() {
        let short = format!("SET a {}", "x".repeat(44));
        let long = format!("SET a {}", "x".repeat(45));
        check(&[
            ("OBJECT ENCODING a", "nil"),
            ("SET a 12345", "+OK"),
            ("OBJECT ENCODING a", r#""int""#),
            ("SET a -9223372036854775808", "+OK"),
            ("object encoding a", r#""int""#),
            ("SET a 9223372036854775808", "+OK"),
            ("OBJECT ENCODING a", r#""embstr""#),
            ("SET a 012", "+OK"),
            ("OBJECT ENCODING a", r#""embstr""#),
            (&short, "+OK"),
            ("OBJECT ENCODING a", r#""embstr""#),
            (&long, "+OK"),
            ("OBJECT ENCODING a", r#""raw""#),
            ("HSET h f short", ":1"),
            ("OBJECT ENCODING h", r#""listpack""#),
            (&format!("HSET h f {}", "x".repeat(65)), ":0"),
            ("OBJECT ENCODING h", r#""hashtable""#),
            ("SADD n 1 2", ":2"),
            ("OBJECT ENCODING n", r#""intset""#),
            ("SADD n x", ":1"),
            ("OBJECT ENCODING n", r#""listpack""#),
            ("OBJECT REFCOUNT a", ":1"),
            ("OBJECT REFCOUNT none", "nil"),
        ]);
    }

    #[test]
    fn a_string_that_was_changed_in_place_is_raw() {
        for change in ["APPEND k 3", "SETRANGE k 1 3", "SETBIT k 7 0", "BITFIELD k SET u8 0 50"] {
            let mut server = TestServer::new();
            server.check(&[("SET k 12", "+OK"), ("OBJECT ENCODING k", r#""int""#)]);
            assert!(!server.run(change).starts_with('-'), "{change}");
            server.check(&[
                ("OBJECT ENCODING k", r#""raw""#),
                ("EXPIRE k 100", ":1"),
                ("OBJECT ENCODING k", r#""raw""#),
                ("PERSIST k", ":1"),
                ("OBJECT ENCODING k", r#""raw""#),
                ("SET k 12", "+OK"),
                ("OBJECT ENCODING k", r#""int""#),
            ]);
        }
        check(&[
            ("APPEND new ab", ":2"),
            ("OBJECT ENCODING new", r#""embstr""#),
            ("SETRANGE gap 1 a", ":2"),
            ("OBJECT ENCODING gap", r#""raw""#),
            ("SETBIT bits 1 1", ":0"),
            ("OBJECT ENCODING bits", r#""raw""#),
            ("SET n 1", "+OK"),
            ("APPEND n 2", ":2"),
            ("INCR n", ":13"),
            ("OBJECT ENCODING n", r#""int""#),
        ]);
    }

    #[test]
    fn calls_that_fit_no_subcommand_are_refused() {
        check(&[
            ("OBJECT", "-ERR wrong number of arguments for 'object' command"),
            ("OBJECT FOO", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
            ("OBJECT FREQ a b", "-ERR wrong number of arguments for 'object|freq' command"),
            ("OBJECT IDLETIME", "-ERR wrong number of arguments for 'object|idletime' command"),
            ("OBJECT REFCOUNT", "-ERR wrong number of arguments for 'object|refcount' command"),
            ("OBJECT HELP a", "-ERR wrong number of arguments for 'object|help' command"),
        ]);
    }

    #[test]
    fn the_stamp_is_shown_in_the_meaning_of_the_policy() {
        let mut server = TestServer::new();
        server.check(&[
            ("SET a 1", "+OK"),
            ("after 42999", ""),
            ("OBJECT IDLETIME a", ":42"),
            ("OBJECT IDLETIME none", "nil"),
            ("OBJECT FREQ none", "nil"),
            ("OBJECT FREQ a", &format!("-{NOT_LFU}")),
        ]);
        server.host.set_policy(EvictionPolicy::VolatileLfu);
        server.check(&[
            ("SET a 1", "+OK"),
            ("SET b 1", "+OK"),
            ("OBJECT FREQ b", ":5"),
            ("after 180000", ""),
            ("OBJECT FREQ b", ":2"),
            ("OBJECT FREQ none", "nil"),
            ("OBJECT IDLETIME none", "nil"),
            ("OBJECT IDLETIME b", &format!("-{IS_LFU}")),
        ]);
    }
}
