//! Admission: the checks that can refuse a command before it touches a key.
//!
//! Order of the checks, as in Redis: known, arity, protected, authenticated, monitoring, subscribed, loading,
//! stale, redirected, log, memory.

use storage::Admission;
use wire::{Args, Protocol};

use crate::{
    CommandError, Executor, Flags, Host, Keys, Row, Session, context::ADMITTED_BYTES, redirect::redirect,
    row::wrapped,
};

const DEBUG_REFUSED: CommandError = CommandError::Text(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

impl Executor {
    /// Checks that the command wrapped by this one, if any, can be run.
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

    /// Runs all checks. `false`: the log cannot take the command now.
    #[inline]
    pub fn check(
        &mut self,
        row: &'static Row,
        args: Args<'_>,
        session: &Session,
        host: &Host,
    ) -> Result<bool, CommandError> {
        self.check_call(row, args, session, host)?;
        if row.flags.has(Flags::RUNS_SCRIPTS) {
            self.check_wrapped(row, args)?;
            return self.admit_script(args, host);
        }
        if !self.writes(row, args, host)? {
            return Ok(true);
        }
        if !self.admit_args(args.size_bytes() as u64)? {
            return Ok(false);
        }
        if row.flags.has(Flags::DENYOOM) {
            self.make_room(host)?;
        }
        Ok(true)
    }

    /// Determines for a script whether its commands may write and add data: the script runs in any case, and
    /// its commands are refused. Returns whether it may run now; `false`: the log cannot take it now.
    ///
    /// # Errors
    /// A long unit holds the slot of an eviction candidate.
    #[cold]
    pub(crate) fn admit_script(&mut self, args: Args<'_>, host: &Host) -> Result<bool, CommandError> {
        let writes = match self.admit_args(args.size_bytes() as u64) {
            Ok(false) => return Ok(false),
            other => other.map(|_| ()),
        };
        let growth = match self.make_room(host) {
            Err(error @ CommandError::SlotTaken { .. }) => return Err(error),
            growth => growth,
        };
        self.scripting.allow(writes, growth);
        Ok(true)
    }

    /// Whether the command may append to the log.
    ///
    /// # Errors
    /// [`CommandError::Loading`]: a message to a durable channel while there is no log yet; messages to other
    /// channels can be published.
    #[inline]
    pub fn writes(&self, row: &Row, args: Args<'_>, host: &Host) -> Result<bool, CommandError> {
        if row.flags.has(Flags::WRITE) || row.flags.has(Flags::RUNS_SCRIPTS) {
            return Ok(true);
        }
        if !row.flags.has(Flags::LOGS_MESSAGES) || !host.config.is_durable_channel(args.at(1)) {
            return Ok(false);
        }
        if self.loading { Err(CommandError::Loading) } else { Ok(true) }
    }

    /// The checks that apply to every command, whether it writes or not.
    #[inline]
    pub(crate) fn check_call(
        &self,
        row: &'static Row,
        args: Args<'_>,
        session: &Session,
        host: &Host,
    ) -> Result<(), CommandError> {
        if !row.accepts(args.len()) {
            return Err(CommandError::WrongArity(row.name));
        }
        if row.flags.has(Flags::PROTECTED) && !host.config.debug_access().includes(&session.client) {
            return Err(DEBUG_REFUSED);
        }
        if !session.authenticated && !row.flags.has(Flags::NO_AUTH) {
            return Err(CommandError::NoAuth);
        }
        if session.monitoring && (row.flags.has(Flags::WRITE) || row.flags.has(Flags::READONLY)) {
            return Err(CommandError::Text("ERR Replica can't interact with the keyspace"));
        }
        if session.subscribed && session.protocol == Protocol::Resp2 && !row.flags.has(Flags::SUBSCRIBER) {
            return Err(CommandError::Composed(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                row.name
            )));
        }
        if !row.flags.has(Flags::LOADING) && self.loading {
            return Err(CommandError::Loading);
        }
        if let Some(refusal) = self.read_refusal
            && self.is_denied_when_stale(row, session)
        {
            return Err(CommandError::Text(refusal));
        }
        if self.redirects
            && let Some(elsewhere) = redirect(row, args, session, host)
        {
            return Err(elsewhere);
        }
        if !row.flags.has(Flags::STALE) {
            session.shows_data.set(true);
        }
        Ok(())
    }

    /// Whether a command is refused because this server may not show its data. Writes are not refused here:
    /// they get READONLY or CLUSTERDOWN, as always on a replica.
    #[cold]
    fn is_denied_when_stale(&self, row: &Row, session: &Session) -> bool {
        // A command that wraps another one (IDEMP) shows the stored reply, so it counts as a read.
        let is_refused_as_write = |row: &Row| row.flags.has(Flags::WRITE) && !row.flags.has(Flags::WRAPS);
        // Redis refuses PING as well; here PING only asks whether the process is alive, and shows no data.
        let is_denied =
            |row: &Row| !row.flags.has(Flags::STALE) && !is_refused_as_write(row) && row.name != "ping";
        match (&session.transaction, row.keys) {
            (Some(transaction), Keys::Queued) => {
                transaction.commands().iter().any(|queued| is_denied(queued.found.row))
            }
            _ => is_denied(row),
        }
    }

    /// Asks the log whether a write with so many bytes of arguments may be executed, unless an earlier
    /// admission still covers it; `false`: not now.
    #[inline]
    pub(crate) fn admit_args(&mut self, bytes: u64) -> Result<bool, CommandError> {
        if bytes <= self.admitted_bytes {
            self.admitted_bytes -= bytes;
            return Ok(true);
        }
        self.admit_write(bytes)
    }

    /// Asks the log whether a write may be executed; `false`: not now.
    pub(crate) fn admit_write(&mut self, bytes: u64) -> Result<bool, CommandError> {
        // `begin_round` resets the admission, so every write of a round passes this check.
        if let Some(refusal) = self.refusal {
            return Err(CommandError::Text(refusal));
        }
        match self.admit(bytes) {
            Admission::Go => {
                self.admitted_bytes = ADMITTED_BYTES;
                Ok(true)
            }
            Admission::Wait => Ok(false),
            Admission::NoRoom => {
                let reason = self.appender().map_or_else(String::new, |it| it.log().no_room_reason());
                Err(CommandError::DiskFull(reason))
            }
            Admission::Frozen => Err(CommandError::RecoveryUnconfirmed),
            Admission::Stalled => Err(CommandError::LogStalled),
            Admission::Poisoned => Err(CommandError::LogFailed),
        }
    }

    /// Whether a record of about `bytes` may be appended now.
    pub fn admit(&self, bytes: u64) -> Admission {
        self.appender().map_or(Admission::Wait, |appender| appender.admit(bytes))
    }
}
