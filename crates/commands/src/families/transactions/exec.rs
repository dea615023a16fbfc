//! EXEC.

use keyspace::DbId;
use wire::Args;

use crate::{CommandError, Context, Flags, Keys, Transaction, queueing::aborted, row::innermost, unit::Unit};

/// `EXEC`
pub(super) fn exec(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let Some(transaction) = &cx.session.transaction else {
        return Err(CommandError::Text("ERR EXEC without MULTI"));
    };
    if transaction.has_failed() {
        cx.session.end_transaction();
        return Err(CommandError::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    if cx.session.watches.is_broken(&cx.unit) {
        cx.session.end_transaction();
        cx.reply.null_array();
        return Ok(());
    }
    let bytes = record_bytes(&mut cx.unit, cx.session.db, transaction);
    match cx.require_room(bytes) {
        Ok(()) => {}
        // It runs again, once there is room.
        Err(error @ CommandError::NeedsRoom(_)) => return Err(error),
        Err(error) => {
            cx.session.end_transaction();
            return Err(aborted(&error));
        }
    }
    let Some(transaction) = cx.session.transaction.take() else { return Ok(()) };
    cx.session.watches.clear();
    cx.reply.array(transaction.commands().len());
    cx.begin_inner();
    for queued in transaction.commands() {
        cx.run_inner(queued.found, queued.args.as_args(), None);
    }
    cx.session.end_transaction();
    Ok(())
}

/// About how large the record can be: the arguments, the values that are copied, and the libraries, which each FLUSHALL
/// logs. Values that the transaction itself makes before it copies them are not counted twice.
fn record_bytes(unit: &mut Unit<'_>, db: DbId, transaction: &Transaction) -> u64 {
    let mut bytes = transaction.args_bytes();
    if !transaction.any(Flags::COPIES) {
        return bytes;
    }
    for queued in transaction.commands().iter().filter(|it| it.flags.has(Flags::COPIES)) {
        let args = queued.args.as_args();
        // FLUSHALL: the only one of these that is about all slots.
        if let Keys::AllSlots = innermost(queued.found, args).0.row.keys {
            bytes += unit.libraries().encoded_bytes() as u64;
        }
        queued.found.row.keys.for_each(args, |index| {
            let entry = unit.peek(db, args.at(index));
            bytes += entry.map_or(0, |entry| entry.allocated_bytes() as u64);
        });
    }
    bytes
}
