//! Between MULTI and EXEC: commands are checked and queued instead of run.
//!
//! This module decides whether a command is queued, runs at once, or makes the transaction fail. The commands
//! MULTI, EXEC and so on are in `commands::transactions`.
//!
//! Invariants
//! - Every refusal of a command here makes the transaction fail: EXEC then runs none of its commands.
//! - Memory and log admit EXEC by the demands of the queued commands: above `maxmemory`, a transaction that
//!   adds nothing runs.
//! - EXEC asks the log for room for the whole transaction before its first change; if the log cannot take it
//!   now, nothing has happened and [`Executor::execute`] returns [`Outcome::Wait`].

use wire::ReplyWriter;

use crate::{
    Call, CommandError, Executor, Flags, Host, Keys, Outcome, Session, demand::Demand, execute::refuse,
    row::ResolvedCommand, stats::WorkerStats,
};

impl Executor {
    /// Queues a command of a client that has begun a transaction, or runs it at once.
    #[inline(never)]
    pub(crate) fn execute_in_transaction(
        &mut self,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let found = match call.resolved.found().map_or_else(|| self.table.resolve_call(call.args), Ok) {
            Ok(found) => found,
            Err(error) => return fail(&error, self.stats(), session, out),
        };
        let demand = match self.check_in_transaction(found, call, session, host) {
            Ok(Some(demand)) => demand,
            Ok(None) => return Outcome::Wait,
            Err(error) => return self.reject(found, error, session, out),
        };
        if found.row.flags.has(Flags::IMMEDIATE) {
            return self.run_observed(found, call, session, host, out);
        }
        let Some(transaction) = &mut session.transaction else { unreachable!("the caller has seen it") };
        if let Err(error) = transaction.push(found, call.args, call.resolved.hash(), demand) {
            return self.reject(found, error, session, out);
        }
        session.client.set_queued(Some(transaction.commands().len()));
        ReplyWriter::new(out, session.protocol).simple("QUEUED");
        Outcome::Done { gate: lsn::Lsn::ZERO }
    }

    /// Runs all checks after which a command may be queued, or EXEC may run. Returns the demand of the
    /// command; `None` if the log cannot take the command now.
    fn check_in_transaction(
        &mut self,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
    ) -> Result<Option<Demand>, CommandError> {
        let row = found.row;
        self.check_call(found, call.args, session, host)?;
        self.check_wrapped(row, call.args)?;
        if row.flags.has(Flags::NO_MULTI) {
            return Err(CommandError::Text("ERR Command not allowed inside a transaction"));
        }
        let demand = match (&session.transaction, row.keys) {
            (Some(transaction), Keys::Queued) => transaction.demand(),
            _ if row.flags.has(Flags::IMMEDIATE) => return Ok(Some(Demand::default())),
            _ => self.demand(row, call.args, host)?,
        };
        let is_exec = matches!(row.keys, Keys::Queued);
        if demand.runs_scripts && !is_exec && self.declares_growth(row, call.args, host) {
            self.make_room(host)?;
        }
        // A script that is only queued demands nothing: its own commands are checked one by one when they
        // run.
        let runs_scripts = demand.runs_scripts && is_exec;
        Ok(self.admit_demand(Demand { runs_scripts, ..demand }, host)?.then_some(demand))
    }

    /// Replies to a command that was refused before it ran. The refusal makes a transaction fail; if EXEC
    /// itself is refused, the transaction ends. A command that a pause holds back, or that needs a slot which
    /// a long unit holds, is not refused but retried later.
    #[cold]
    pub(crate) fn reject(
        &self,
        found: ResolvedCommand,
        error: CommandError,
        session: &mut Session,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match error {
            CommandError::SlotTaken { pause_ms } => {
                session.pause_ms = pause_ms;
                return Outcome::Wait;
            }
            CommandError::Held { left_ms } => {
                (session.pause_ms, session.is_held) = (left_ms, true);
                return Outcome::Wait;
            }
            _ => {}
        }
        self.stats().rejected(found.index as usize);
        if matches!(found.row.keys, Keys::Queued) {
            session.end_transaction();
            let refused = refuse(&aborted(&error), self.stats(), session, out);
            return self.behind_user(refused, found.row, session);
        }
        let failed = fail(&error, self.stats(), session, out);
        self.behind_user(failed, found.row, session)
    }
}

/// The reply of EXEC when this error has ended its transaction.
pub fn aborted(error: &CommandError) -> CommandError {
    let text = error.to_string();
    let reason = text.strip_prefix("ERR ").unwrap_or(&text);
    CommandError::Composed(format!("EXECABORT Transaction discarded because of: {reason}"))
}

fn fail(error: &CommandError, stats: &WorkerStats, session: &mut Session, out: &mut Vec<u8>) -> Outcome {
    if let Some(transaction) = &mut session.transaction {
        transaction.fail();
    }
    refuse(error, stats, session, out)
}
