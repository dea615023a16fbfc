//! IDEMP: a command that runs once, however often it is sent.
//!
//! ```text
//! IDEMP key ttl INCR c   lock the slots of key and c -> is a reply kept under key? yes: that is the reply
//!                                 no: INCR -> put its reply under key -> ONE record -> unlock
//! ```
//!
//! What it is: a safe repetition. When its connection or the server was lost, a client does not know whether
//! its command has run. It sends the command again under the same key, and gets the reply of the first time.
//! What it is not: a queue or a history. A key keeps one reply of one command, for as long as the key lives.
//!
//! Invariants
//! - A reply that is kept is in the record of the effects, so after a crash, and on a replica, there are both
//!   or neither.
//! - Two commands under one key that are sent at the same time run one after the other, because both lock the
//!   slot of the key.
//! - The reply of a command that has failed and has changed nothing is not kept: sent again, the command runs
//!   again.
//! - A reply that is kept can be sent again: its length and its form are checked before it is stored.
//! - The value of the key is a string like others (see `stored`): it expires, it may be evicted or deleted,
//!   and snapshots and replicas have it.
//!
//! The wrapped command cannot block, as in a transaction. IDEMP works in transactions, but not in scripts;
//! the command that it wraps may run a script.

mod stored;

use engine::{
    CommandError, Context, EventClass, Flags, Row,
    context::EFFECT_BYTES_BESIDE_ARGS,
    row::{ResolvedCommand, WRAPPED_AT},
};
use keyspace::{KeyOp, Value, View};
use storage::CHAIN_BYTES_MAX;
use wire::Args;

use crate::{deadline::Form, expiry_option::positive_deadline_ms, wrapped};
pub(crate) use rows::ROWS;
use stored::{Digest, Stored, is_reply};

/// Longest reply that is kept, in bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

const FOREIGN: CommandError = CommandError::Text("WRONGTYPE the key holds no reply that IDEMP has kept");

/// Visits the key of the kept reply, and the keys of the wrapped command.
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
    // Without room in the record nothing is kept. The reply is then the error by which [`check_reply`] has
    // replaced the reply of the command.
    if run(cx, key, found, call)? && has_room(cx.unit.record_bytes(), key, cx.reply.since(start)) {
        let value = Stored::encode(digest, cx.reply.protocol(), cx.reply.since(start));
        cx.apply(key, KeyOp::Put { value: Value::String(&value), expire_at_ms });
        cx.notify(EventClass::STRING, "idemp", key);
    }
    Ok(())
}

/// Runs the command and writes its reply. Returns whether the reply is to be kept.
fn run(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    found: ResolvedCommand,
    call: Args<'_>,
) -> Result<bool, CommandError> {
    let (start, record_bytes) = (cx.reply.position(), cx.unit.record_bytes());
    // A command that copies values can leave too little room for its reply, and is then undone.
    let can_undo = replies_at_length(found.row, call) || found.row.flags.has(Flags::COPIES);
    if can_undo {
        cx.unit.begin_undo();
    }
    let outer = std::mem::replace(&mut cx.in_transaction, true);
    let outcome = match (found.row.handler)(cx, call) {
        // A script has failed, perhaps after changes: its reply is judged as any other.
        Err(CommandError::Replied) => Ok(()),
        outcome => outcome,
    };
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

/// Undoes a command whose reply cannot be kept. If the command cannot be undone, the reply is replaced by an
/// error that says that the command has run.
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

/// Whether a record with this many bytes of effects can hold the key and its reply as well. Only the maximum
/// size of a record is checked: room in the ring can be waited for.
fn has_room(record_bytes: usize, key: &[u8], reply: &[u8]) -> bool {
    record_bytes + key.len() + reply.len() + EFFECT_BYTES_BESIDE_ARGS <= CHAIN_BYTES_MAX
}

/// The maximum length of a number in a reply, in bytes.
const NUMBER_BYTES_MAX: usize = 24;

/// Whether the reply of a command can be too long to be kept: it can be about as long as the data that the
/// command reads, or there are very many arguments. Otherwise IDEMP need not prepare to undo the command for
/// its reply.
fn replies_at_length(row: &Row, call: Args<'_>) -> bool {
    if call.len() >= REPLY_BYTES_MAX / NUMBER_BYTES_MAX {
        return true;
    }
    match row.name {
        // With options, of which one may be GET.
        "set" => call.len() > 3,
        name => row.flags.has(Flags::RUNS_SCRIPTS) || LONG_REPLIES.contains(&name),
    }
}

/// Commands that write, and whose replies contain the data that they read.
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

mod rows;
#[cfg(test)]
mod tests;
