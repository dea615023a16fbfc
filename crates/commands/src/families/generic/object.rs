//! How a value is kept: OBJECT.
//!
//! There is one way to keep a string here. ENCODING names the one that Redis would have chosen for a string set to these bytes,
//! because tools print it; nothing is shared, so REFCOUNT is always 1.

use keyspace::{AccessPolicy, EntryRef, ValueType};
use wire::{Args, number::is_canonical_i64};

use crate::{CommandError, Context};

/// Longest string that Redis keeps in one allocation with its header.
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
    match cx.unit.inspect(cx.session.db, args.at(2)) {
        Some(entry) => cx.reply.bulk(encoding_name(entry).as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

fn encoding_name(entry: EntryRef<'_>) -> &'static str {
    match entry.string() {
        Some(bytes) if is_canonical_i64(bytes) => "int",
        Some(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Some(_) => "raw",
        None => match entry.value_type() {
            ValueType::String => "raw",
            ValueType::List => "quicklist",
            ValueType::Set | ValueType::Hash => "hashtable",
            ValueType::Zset => "skiplist",
            ValueType::Stream => "stream",
        },
    }
}

/// `OBJECT FREQ key`
pub(super) fn freq(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (policy, now_ms) = (access_policy(cx), cx.now_ms());
    match cx.unit.inspect(cx.session.db, args.at(2)) {
        Some(_) if policy != AccessPolicy::Lfu => return Err(NOT_LFU),
        Some(entry) => cx.reply.integer(entry.frequency(now_ms).into()),
        None => cx.reply.null(),
    }
    Ok(())
}

/// `OBJECT IDLETIME key`
pub(super) fn idletime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (policy, now_ms) = (access_policy(cx), cx.now_ms());
    match cx.unit.inspect(cx.session.db, args.at(2)) {
        Some(_) if policy == AccessPolicy::Lfu => return Err(IS_LFU),
        Some(entry) => cx.reply.integer(entry.idle_seconds(now_ms).into()),
        None => cx.reply.null(),
    }
    Ok(())
}

fn access_policy(cx: &Context<'_, '_>) -> AccessPolicy {
    cx.host.memory_limits().policy.access_policy()
}

/// `OBJECT REFCOUNT key`
pub(super) fn refcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match cx.unit.inspect(cx.session.db, args.at(2)) {
        Some(_) => cx.reply.integer(1),
        None => cx.reply.null(),
    }
    Ok(())
}

/// `OBJECT HELP`
pub(super) fn help(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    const LINES: [&str; 11] = [
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Name the form that a value is kept in.",
        "FREQ <key>",
        "    Show how often a key was used lately, on a logarithmic scale.",
        "IDLETIME <key>",
        "    Show for how many seconds a key was not used.",
        "REFCOUNT <key>",
        "    Show how many references to a value there are: always 1.",
        "HELP",
        "    Print this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(())
}
