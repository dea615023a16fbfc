//! Admission: the checks that can refuse a command before it touches a key.
//!
//! ```text
//!                        client and state of the server    log and memory
//! a call                 check_call                        its demand
//! a command is queued    check_call                        its demand
//! EXEC                   check_call                        the demands of all queued commands together
//! a waiter is served     refuse_waiter                     Rules::admit_waiter, also for stale data
//! a script's command     scripts::Caller                   as found for the script before it began
//! ```
//!
//! Order of the checks: known, arity, protected, authenticated, permitted, monitoring, subscribed, loading,
//! stale, redirected, paused, wrapped, log, memory. The rules hold for a round
//! ([`Rules`](crate::rules::Rules)).
//!
//! Invariants
//! - EXEC, and the service of a waiting client, ask the log and the memory again: no command relies on an
//!   admission of an earlier round.
//! - Commands that free memory, or only read, are never refused for want of memory, unless they are in one
//!   transaction with commands that add data, or run a script that declares its flags and may add data by
//!   them. Commands that only read are not refused for want of disk space either, unless they are in one
//!   transaction with commands that write.

use access::Context as DenialContext;
use storage::Admission;
use wire::{Args, Protocol};

use crate::{
    CommandError, Executor, Flags, Host, Keys, Row, Session,
    clients::{Pause, Paused, may_change},
    context::ADMITTED_BYTES,
    demand::Demand,
    judgement::{judge, refusal},
    redirect::redirect,
    row::{ResolvedCommand, wrapped},
    rules::{admit, is_denied_when_stale},
};

const DEBUG_REFUSED: CommandError = CommandError::Text(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// Whether a command is an EXEC with a queued command that may change data or publish messages.
fn has_queued_changes(row: &Row, session: &Session) -> bool {
    let is_exec = matches!(row.keys, Keys::Queued);
    let queued = session.transaction.iter().filter(|_| is_exec).flat_map(|it| it.commands());
    queued.into_iter().any(|queued| may_change(queued.found.row))
}

impl Executor {
    /// Checks that the command that this call wraps, if any, can be run.
    ///
    /// # Errors
    /// Those of [`wrapped`].
    #[inline]
    pub(crate) fn check_wrapped(&self, row: &Row, args: Args<'_>) -> Result<(), CommandError> {
        if row.flags.has(Flags::WRAPS) {
            wrapped(self.table, args)?;
        }
        Ok(())
    }

    /// Runs all checks. Returns `false` if the log cannot take the command now.
    ///
    /// # Errors
    /// The error of the first check that refuses the command.
    #[inline]
    pub fn check(
        &mut self,
        found: ResolvedCommand,
        args: Args<'_>,
        session: &mut Session,
        host: &Host,
    ) -> Result<bool, CommandError> {
        let row = found.row;
        self.check_call(found, args, session, host)?;
        self.check_wrapped(row, args)?;
        let demand = self.demand(row, args, host)?;
        self.admit_demand(demand, host)
    }

    /// The demand of one command.
    ///
    /// # Errors
    /// [`CommandError::Loading`]: a message to a channel while the server loads. The names of the durable
    /// channels are a part of the data, so it is not known yet whether the message must be in the log.
    #[inline]
    pub(crate) fn demand(&self, row: &Row, args: Args<'_>, host: &Host) -> Result<Demand, CommandError> {
        let runs_scripts = row.flags.has(Flags::RUNS_SCRIPTS);
        let appends = !runs_scripts && self.appends(row, args, host)?;
        if !appends && !runs_scripts {
            return Ok(Demand::default());
        }
        let grows = appends && row.flags.has(Flags::DENYOOM);
        Ok(Demand { appends, grows, runs_scripts, args_bytes: args.size_bytes() as u64 })
    }

    #[inline]
    fn appends(&self, row: &Row, args: Args<'_>, host: &Host) -> Result<bool, CommandError> {
        if row.flags.has(Flags::WRITE) {
            return Ok(true);
        }
        if !row.flags.has(Flags::LOGS_MESSAGES) {
            return Ok(false);
        }
        if self.rules.loading {
            return Err(CommandError::Loading);
        }
        Ok(host.config.is_durable_channel(args.at(1)))
    }

    /// Asks for the room in the log and in memory that a command, or a whole transaction, demands. Returns
    /// `false` if the log has no such room now.
    #[inline]
    pub(crate) fn admit_demand(&mut self, demand: Demand, host: &Host) -> Result<bool, CommandError> {
        if demand.runs_scripts {
            return self.admit_script(demand, host);
        }
        if !demand.appends {
            return Ok(true);
        }
        if !self.admit_args(demand.args_bytes)? {
            return Ok(false);
        }
        if demand.grows {
            self.make_room(host)?;
        }
        Ok(true)
    }

    /// Determines whether the commands of a script may write and add data. If these commands may not, the
    /// script still runs, and each of them is refused. Returns `false` if the log cannot take the script now.
    ///
    /// # Errors
    /// A long unit holds the slot of an eviction candidate, or a command that is queued beside the script in
    /// a transaction is refused.
    #[cold]
    fn admit_script(&mut self, demand: Demand, host: &Host) -> Result<bool, CommandError> {
        let writes = match self.admit_args(demand.args_bytes) {
            Ok(false) => return Ok(false),
            Err(error) if demand.appends => return Err(error),
            other => other.map(|_| ()),
        };
        let growth = match self.make_room(host) {
            Err(error) if demand.grows || matches!(error, CommandError::SlotTaken { .. }) => {
                return Err(error);
            }
            growth => growth,
        };
        self.scripting.allow(writes, growth);
        Ok(true)
    }

    /// The checks that apply to every command, whether it writes or not.
    #[inline]
    pub(crate) fn check_call(
        &mut self,
        found: ResolvedCommand,
        args: Args<'_>,
        session: &mut Session,
        host: &Host,
    ) -> Result<(), CommandError> {
        let row = found.row;
        if !row.accepts(args.len()) {
            return Err(CommandError::WrongArity(row.name));
        }
        if row.flags.has(Flags::PROTECTED) && !host.config.debug_access().includes(&session.client) {
            return Err(DEBUG_REFUSED);
        }
        if !session.may_do_everything(self.users.generation) {
            self.check_rights(found, args, session, host)?;
        }
        if session.monitoring.is_some() && (row.flags.has(Flags::WRITE) || row.flags.has(Flags::READONLY)) {
            return Err(CommandError::Text("ERR Replica can't interact with the keyspace"));
        }
        if session.subscribed && session.protocol == Protocol::Resp2 && !row.flags.has(Flags::SUBSCRIBER) {
            return Err(CommandError::Composed(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                row.name
            )));
        }
        if !row.flags.has(Flags::LOADING) && self.rules.loading {
            return Err(CommandError::Loading);
        }
        if let Some(refusal) = self.rules.read_refusal
            && self.is_denied_when_stale(row, session)
        {
            return Err(CommandError::Text(refusal));
        }
        if self.rules.redirects
            && let Some(elsewhere) = redirect(row, args, session, host)
        {
            return Err(elsewhere);
        }
        if let Some(pause) = self.rules.pause {
            self.check_pause(pause, row, args, session, host)?;
        }
        // The error of a refused write shows no data, so it does not wait for the lease of a leader.
        let refuses = self.rules.refusal.is_some() && row.flags.has(Flags::WRITE);
        let shows_none = row.flags.has(Flags::STALE) || row.treatment.asks_for_life;
        if !shows_none && (!refuses || row.flags.has(Flags::WRAPS)) {
            session.shows_data.set(true);
        }
        Ok(())
    }

    #[cold]
    fn check_pause(
        &mut self,
        pause: Pause,
        row: &Row,
        args: Args<'_>,
        session: &Session,
        host: &Host,
    ) -> Result<(), CommandError> {
        if !pause.holds(row, has_queued_changes(row, session))
            || pause.paused == Paused::Writes && self.declares_no_writes(row, args, host)
        {
            return Ok(());
        }
        match host.clients.pause().hold(&session.client, &*host.clock) {
            Some(left_ms) => Err(CommandError::Held { left_ms }),
            None => Ok(()),
        }
    }

    /// Checks that the client has logged in, and that its user may make the call.
    #[inline(never)]
    fn check_rights(
        &self,
        found: ResolvedCommand,
        args: Args<'_>,
        session: &mut Session,
        host: &Host,
    ) -> Result<(), CommandError> {
        session.login.bind(&self.users);
        if !session.authenticated || session.login.is_provisional() {
            let admits_everybody = self.users.default_user().admits_everybody();
            session.authenticated |= admits_everybody;
            if !self.rules.loading && session.login.settle() {
                session.authenticated = admits_everybody;
                if !session.login.is_chosen() {
                    // The client connected before the users were known, so its certificate is looked at now.
                    session.log_in_by_certificate(&self.users);
                }
            }
            if !session.authenticated {
                return if found.row.flags.has(Flags::NO_AUTH) { Ok(()) } else { Err(CommandError::NoAuth) };
            }
            if self.rules.loading && found.row.flags.has(Flags::GUARDED) && session.login.is_provisional() {
                return Err(CommandError::Loading);
            }
        }
        let Some(principal) = session.login.principal() else {
            // The user of the session was deleted.
            session.authenticated = false;
            session.client.kill();
            return Err(CommandError::NoAuth);
        };
        let Err(denied) = judge(&principal.rights, found, args) else { return Ok(()) };
        let context =
            if session.transaction.is_some() { DenialContext::Multi } else { DenialContext::TopLevel };
        Err(refusal(&denied, principal, context, session, (host, self.now_ms())))
    }

    /// Whether a call is refused because this server may not show its data.
    #[cold]
    fn is_denied_when_stale(&self, row: &Row, session: &Session) -> bool {
        match (&session.transaction, row.keys) {
            (Some(transaction), Keys::Queued) => {
                transaction.commands().iter().any(|queued| is_denied_when_stale(queued.found.row))
            }
            _ => is_denied_when_stale(row),
        }
    }

    /// Asks the log whether a write with this many bytes of arguments may be executed. The log is not asked
    /// if an earlier admission still covers the bytes. Returns `false` if the log cannot take the write now.
    #[inline]
    pub(crate) fn admit_args(&mut self, bytes: u64) -> Result<bool, CommandError> {
        if bytes <= self.admitted_bytes {
            self.admitted_bytes -= bytes;
            return Ok(true);
        }
        self.admit_write(bytes)
    }

    /// Asks the log whether a write may be executed. Returns `false` if the log cannot take the write now.
    pub(crate) fn admit_write(&mut self, bytes: u64) -> Result<bool, CommandError> {
        // `begin_round` resets the admission, so the log is asked at the first write of every round.
        let is_admitted = self.rules.admit_write(self.appender.as_ref(), bytes)?;
        if is_admitted {
            self.admitted_bytes = ADMITTED_BYTES;
        }
        Ok(is_admitted)
    }

    /// Whether a record of about `bytes` may be appended now.
    pub fn admit(&self, bytes: u64) -> Admission {
        admit(self.appender.as_ref(), bytes)
    }
}
