//! IDEMP: a command that runs once, however often it is sent.
//!
//! ```text
//! IDEMP key ttl INCR c   lock the slots of key and c -> reply stored at key?  yes: that is the reply
//!                                                    '-> no: INCR -> store reply -> ONE record -> unlock
//! ```
//!
//! A client that does not know whether its command has run, because its connection or the server was lost,
//! sends it again with the same key and gets the first reply. This is no queue and no history: one key, one
//! command, one reply, for as long as the key lives.
//!
//! Invariants
//! - The reply and the effects are one record, so neither exists without the other, not even after a crash or
//!   on a replica.
//! - Concurrent calls with the same key run one after the other, because each locks the slot of the key.
//! - The reply of a command that fails without a change is not stored: the command runs again when it is
//!   resent.
//! - Every stored reply can be sent again: replies that are too long or cannot be parsed are detected before
//!   they are stored.
//! - The stored reply is an ordinary string (see `stored`): it expires, can be evicted or deleted, and is
//!   part of snapshots and replicas.
//!
//! The command cannot block, as in a transaction. IDEMP works in transactions, but not in scripts: it runs
//! scripts itself.

mod stored;

use keyspace::{Effect, Value, View};
use storage::CHAIN_BYTES_MAX;
use wire::Args;

use crate::{
    CommandError, Context, EventClass, Family, Flags, Keys, Row,
    context::EFFECT_BYTES_BESIDE_ARGS,
    families::{deadline::Form, expiry_option::positive_deadline_ms},
    row::{Found, WRAPPED_AT, wrapped},
};
use stored::{Digest, Stored, is_reply};

/// The maximum size of a stored reply.
const REPLY_BYTES_MAX: usize = 1 << 20;

const FOREIGN: CommandError = CommandError::Text("WRONGTYPE the key holds no reply that IDEMP has kept");

pub(crate) const ROWS: &[Row] = &[Row {
    name: "idemp",
    arity: -4,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::NOSCRIPT).or(Flags::RUNS_SCRIPTS).or(Flags::WRAPS),
    keys: Keys::Computed { first: Some(1), find: find_keys, reads_others },
    family: Family::Transactions,
    since: "7.2.4",
    complexity: "That of the command.",
    summary: "Runs a command once: what is sent again under the same key gets the reply of the first time.",
    syntax: "key milliseconds command [arg [arg ...]]",
    handler: idemp,
    subcommands: &[],
}];

/// Visits the key of IDEMP and the keys of the command.
fn find_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    if args.len() > 1 {
        visit(1);
    }
    if let Ok((found, call)) = wrapped(args) {
        found.row.keys.for_each(call, |index| visit(WRAPPED_AT + index));
    }
}

fn reads_others(args: Args<'_>) -> bool {
    wrapped(args)
        .is_ok_and(|(found, call)| found.row.keys.spans_all(call) || found.row.flags.has(Flags::READS_ALL))
}

/// `IDEMP key milliseconds command [arg ...]`
fn idemp(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.show_script(args);
    let (db, key) = (cx.db(), args.at(1));
    let expire_at_ms = Some(positive_deadline_ms(Form::Px, args.at(2), cx.now_ms(), "idemp")?);
    let (found, call) = wrapped(args)?;
    let mut names_key = false;
    found.row.keys.for_each(call, |index| names_key |= call.at(index) == key);
    if names_key {
        return Err(CommandError::Text("ERR the key of IDEMP is one of its command's"));
    }
    let digest = Digest::of(call);
    if let Some(entry) = cx.unit.get(db, key) {
        let View::String(bytes) = entry.view() else { return Err(CommandError::WrongType) };
        let stored = Stored::parse(bytes).ok_or(FOREIGN)?;
        if stored.digest != digest {
            return Err(CommandError::Text("IDEMPMISMATCH the key was used for another command"));
        }
        if !stored.write(&mut cx.reply) {
            return Err(FOREIGN);
        }
        cx.unit.note_repeated();
        return Ok(());
    }
    let scripting = cx.scripting();
    if let Some(error) = scripting.no_writes.as_ref().or(scripting.no_growth.as_ref()) {
        return Err(error.clone());
    }
    let start = cx.reply.position();
    // If the record has no room for the reply, `check_reply` has reported that already.
    if run(cx, key, found, call)? && has_room(cx.unit.record_bytes(), key, cx.reply.since(start)) {
        let value = Stored::encode(digest, cx.reply.protocol(), cx.reply.since(start));
        cx.apply(&Effect::Put { db, key, value: Value::String(&value), expire_at_ms });
        cx.notify(EventClass::STRING, "idemp", key);
    }
    Ok(())
}

/// Runs the command and writes its reply. Returns whether the reply is to be stored.
fn run(cx: &mut Context<'_, '_>, key: &[u8], found: Found, call: Args<'_>) -> Result<bool, CommandError> {
    let (start, record_bytes) = (cx.reply.position(), cx.unit.record_bytes());
    // A command that copies values may leave no room for its reply in the record, and is undone then.
    let can_undo = replies_at_length(found.row, call) || found.row.flags.has(Flags::COPIES);
    if can_undo {
        cx.unit.begin_undo();
    }
    let outer = std::mem::replace(&mut cx.in_transaction, true);
    let outcome = (found.row.handler)(cx, call);
    cx.in_transaction = outer;
    let outcome = outcome.and_then(|()| {
        if cx.reply.position() == start {
            cx.reply.null();
        }
        check_reply(cx, key, start, can_undo)
    });
    if can_undo {
        cx.unit.end_undo();
    }
    let is_again = matches!(
        outcome,
        Err(CommandError::NeedsRoom(_)
            | CommandError::NeedsAllSlots
            | CommandError::NeedsOwnThread
            | CommandError::SlotTaken { .. })
    );
    let is_error = outcome.is_err() || cx.reply.since(start).starts_with(b"-");
    if !is_again {
        cx.unit.stats().called(found.index.into(), is_error);
    }
    outcome?;
    Ok(!is_error || cx.unit.record_bytes() > record_bytes)
}

/// Undoes a command whose reply cannot be stored. If it cannot be undone, the reply becomes an error that
/// says so.
fn check_reply(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    start: usize,
    can_undo: bool,
) -> Result<(), CommandError> {
    let reply = cx.reply.since(start);
    let problem = if reply.len() > REPLY_BYTES_MAX || !has_room(cx.unit.record_bytes(), key, reply) {
        "too long for IDEMP to keep"
    } else if !is_reply(reply) {
        "none that IDEMP could tell again"
    } else {
        return Ok(());
    };
    if can_undo && cx.unit.undo() {
        return Err(CommandError::Composed(format!("ERR the reply is {problem}; the command is undone")));
    }
    cx.reply.truncate(start);
    cx.reply.error(format!("ERR the command has run, but its reply was {problem}"));
    Ok(())
}

/// Whether a record with this many bytes of effects can also hold the key and its reply. This is only the
/// maximum size of a record; the log makes room in memory as needed.
fn has_room(record_bytes: usize, key: &[u8], reply: &[u8]) -> bool {
    record_bytes + key.len() + reply.len() + EFFECT_BYTES_BESIDE_ARGS <= CHAIN_BYTES_MAX
}

/// Whether the reply can be about as long as the data that the command finds. Other commands reply with
/// counts or OK, so the data they change need not be copied for an undo.
fn replies_at_length(row: &Row, call: Args<'_>) -> bool {
    match row.name {
        // With options such as GET.
        "set" => call.len() > 3,
        name => row.flags.has(Flags::RUNS_SCRIPTS) || LONG_REPLIES.contains(&name),
    }
}

/// Write commands that reply with data.
const LONG_REPLIES: &[&str] = &[
    "bitfield",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "georadius",
    "georadiusbymember",
    "getdel",
    "getex",
    "getset",
    "hgetdel",
    "hgetex",
    "lmove",
    "lmpop",
    "lpop",
    "rpop",
    "rpoplpush",
    "sort",
    "spop",
    "xautoclaim",
    "xclaim",
    "xreadgroup",
    "zmpop",
    "zpopmax",
    "zpopmin",
];

#[cfg(test)]
mod tests;
