//! EXEC.

use engine::{
    CommandError, Context, Flags, Keys, Transaction,
    long_units::{LONG_ELEMENTS, elements},
    queueing::aborted,
    row::Mobility,
    row::innermost,
    transaction::Queued,
    unit::Unit,
};
use keyspace::DbId;
use wire::Args;

use crate::{connection::check_queued_passwords, database::parse_db};

/// A transaction of more commands runs on a thread of its own, if it can be offloaded.
const LONG_COMMANDS: usize = 4096;

/// `EXEC`
pub(super) fn exec(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let Some(transaction) = &cx.session.transaction else {
        return Err(CommandError::Text("ERR EXEC without MULTI"));
    };
    if transaction.has_failed() {
        cx.session.end_transaction();
        return Err(CommandError::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    let runs_scripts = transaction.any(Flags::RUNS_SCRIPTS);
    let mobility = if cx.session.watches.is_empty() { Mobility::AtAnyTime } else { Mobility::BeforeItBegins };
    let mobility = mobility.max(transaction.mobility());
    let is_long = transaction.commands().len() > LONG_COMMANDS || transaction.any(Flags::AWAITS_DISK);
    let is_long = is_long && mobility != Mobility::Never;
    let walks_far = walks_far(&mut cx.unit, |db| cx.keyspace.len(db), cx.session.db, transaction);
    if is_long || (runs_scripts || walks_far) && mobility == Mobility::BeforeItBegins {
        cx.require_own_thread()?;
    }
    if cx.session.watches.is_broken(&cx.unit) {
        cx.session.end_transaction();
        cx.reply.null_array();
        return Ok(());
    }
    check_queued_passwords(cx)?;
    let Some(transaction) = &cx.session.transaction else { return Ok(()) };
    let bytes = record_bytes(&mut cx.unit, cx.session.db, transaction);
    match cx.require_room(bytes) {
        Ok(()) => {}
        // EXEC runs again, once there is room.
        Err(error @ CommandError::NeedsRoom(_)) => return Err(error),
        Err(error) => {
            cx.session.end_transaction();
            return Err(aborted(&error));
        }
    }
    let Some(transaction) = cx.session.transaction.take() else { return Ok(()) };
    let db = cx.session.db;
    cx.session.end_watches();
    cx.reply.array(transaction.commands().len());
    cx.begin_inner();
    let may_be_long = runs_scripts || walks_far || transaction.any(Flags::WALKS);
    let has_to_ask = may_be_long || transaction.is_undone_on_failure();
    let outcome = if has_to_ask { run_in_time(cx, &transaction, mobility) } else { run(cx, &transaction) };
    if outcome == Err(CommandError::NeedsOwnThread) {
        cx.session.db = db;
        cx.session.transaction = Some(transaction);
        return outcome;
    }
    cx.session.end_transaction();
    outcome
}

/// Runs a transaction with documents. The first command on documents that fails undoes all; the reply is then
/// one error, which quotes the error of that command.
fn run_or_undo(cx: &mut Context<'_, '_>, transaction: &Transaction) -> Result<(), CommandError> {
    let db = cx.session.db;
    cx.unit.begin_undo();
    for (index, queued) in transaction.commands().iter().enumerate() {
        let start = cx.reply.position();
        let succeeded = run_queued(cx, queued)?;
        if succeeded || !queued.flags.has(Flags::DOCUMENTS) {
            continue;
        }
        let problem = String::from_utf8_lossy(cx.reply.since(start));
        let problem = problem.trim_start_matches('-').trim_end();
        let name = innermost(queued.found, queued.args.as_args()).0.row.name.to_uppercase();
        let error = CommandError::Composed(format!("{name} (command {}): {problem}", index + 1));
        assert!(cx.unit.undo(), "what cannot be undone is not queued with documents");
        cx.unit.end_undo();
        cx.session.db = db;
        return Err(aborted(&error));
    }
    cx.unit.end_undo();
    Ok(())
}

fn run(cx: &mut Context<'_, '_>, transaction: &Transaction) -> Result<(), CommandError> {
    let mut commands = transaction.commands().iter();
    commands.try_for_each(|queued| run_queued(cx, queued).map(|_| ()))
}

/// Runs a queued command, if the user may still run it. Returns whether it succeeded.
fn run_queued(cx: &mut Context<'_, '_>, queued: &Queued) -> Result<bool, CommandError> {
    let args = queued.args.as_args();
    match cx.judge_queued(queued.found, args) {
        Ok(()) => cx.run_inner(queued.found, args, None),
        Err(denied) => {
            cx.reply.set_protocol(cx.session.protocol);
            cx.reply_error(&denied);
            Ok(false)
        }
    }
}

/// Runs a transaction in which some command may take long, or one with documents. All its scripts together
/// have the time of one script. When this time is over, the transaction is undone and moves to another
/// thread. If the transaction must stay on this thread, its running script is stopped and undone instead.
fn run_in_time(
    cx: &mut Context<'_, '_>,
    transaction: &Transaction,
    mobility: Mobility,
) -> Result<(), CommandError> {
    let now_us = cx.host.monotonic_us();
    let scripting = cx.scripting();
    scripting.stays = mobility == Mobility::Never;
    scripting.deadline_us = scripting.deadline_us(now_us);
    let offloads = scripting.offloads() && mobility == Mobility::AtAnyTime;
    let outcome = if transaction.is_undone_on_failure() {
        run_or_undo(cx, transaction)
    } else if offloads {
        cx.unit.begin_undo();
        let outcome = run(cx, transaction);
        if outcome.is_err() {
            cx.unit.undo();
        }
        cx.unit.end_undo();
        outcome
    } else {
        run(cx, transaction)
    };
    let scripting = cx.scripting();
    (scripting.stays, scripting.deadline_us) = (false, None);
    outcome
}

/// The queued commands, each with the database in which it runs. `db` is the database of the first command.
fn with_databases(transaction: &Transaction, mut db: DbId) -> impl Iterator<Item = (DbId, &Queued)> {
    transaction.commands().iter().map(move |queued| {
        let args = queued.args.as_args();
        // A SELECT that fails changes nothing.
        if queued.found.row.name == "select" {
            db = parse_db(args.at(1)).unwrap_or(db);
        }
        (db, queued)
    })
}

/// Whether a command that is not always fast names a key with a large value, or reads all keys while there
/// are many.
fn walks_far(
    unit: &mut Unit<'_>,
    key_count: impl Fn(DbId) -> u64,
    db: DbId,
    transaction: &Transaction,
) -> bool {
    with_databases(transaction, db).any(|(db, queued)| {
        if queued.flags.has(Flags::FAST) || queued.flags.has(Flags::BRIEF) {
            return false;
        }
        let mut is_large = queued.flags.has(Flags::READS_ALL) && key_count(db) > LONG_ELEMENTS as u64;
        queued.found.row.keys.for_each(queued.args.as_args(), |index| {
            let entry = unit.peek(db, queued.args.as_args().at(index));
            is_large |= entry.is_some_and(|entry| elements(entry.view()) > LONG_ELEMENTS);
        });
        is_large
    })
}

/// The approximate size that the record can have: the arguments, the values that are copied, and the
/// libraries and settings, which each FLUSHALL logs. A value that the transaction makes and then copies
/// counts only as an argument.
fn record_bytes(unit: &mut Unit<'_>, db: DbId, transaction: &Transaction) -> u64 {
    let mut bytes = transaction.args_bytes();
    if !transaction.any(Flags::COPIES) {
        return bytes;
    }
    for (db, queued) in with_databases(transaction, db).filter(|(_, it)| it.flags.has(Flags::COPIES)) {
        let args = queued.args.as_args();
        // Of the commands that copy, only FLUSHALL names all slots.
        if let Keys::AllSlots = innermost(queued.found, args).0.row.keys {
            bytes += (unit.libraries().encoded_bytes() + unit.data_settings().encoded_bytes()) as u64;
        }
        queued.found.row.keys.for_each(args, |index| {
            let entry = unit.peek(db, args.at(index));
            bytes += entry.map_or(0, |entry| entry.allocated_bytes() as u64);
        });
    }
    bytes
}
