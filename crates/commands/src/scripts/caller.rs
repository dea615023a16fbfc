//! The commands of a script, run as parts of the unit of the script.

use engine::{
    CommandError, Context, Flags,
    replication::WriteRefusal,
    row::{ResolvedCommand, is_final},
    rules::is_denied_when_stale,
};
use keyspace::KeyHash;
use scripting::{Calls, LogLevel, Refusal, Stop};
use smallvec::SmallVec;
use wire::{Args, Protocol};

use crate::resolve_call;

/// The number of declared keys whose hashes are kept for the commands of the script: the first ones, because
/// scripts usually declare their most used keys first.
const HASHED_KEYS_MAX: usize = 16;

const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";

/// The context of a running script.
pub(super) struct Caller<'c, 'a, 'k> {
    cx: &'c mut Context<'a, 'k>,
    /// The first declared keys, and their hashes.
    keys: Args<'c>,
    hashes: SmallVec<[KeyHash; HASHED_KEYS_MAX]>,
    is_read_only: bool,
    ignores_memory: bool,
    /// Whether the script has called a command that writes. From then on its commands may add data also above
    /// the memory limit, as in Redis: a refusal in the middle would leave half of the script's work.
    has_written: bool,
    /// If the script was stopped with [`Stop::Retry`]: the error that tells the executor what the client's
    /// command needs before it runs again.
    refusal: Option<CommandError>,
}

impl<'c, 'a, 'k> Caller<'c, 'a, 'k> {
    /// Runs a script. The database and protocol that the script selects are reset afterwards. The second
    /// value of the result is set only if the script was stopped with [`Stop::Retry`]: it is the error that
    /// tells the executor what the client's command needs before it runs again.
    pub(super) fn run<R>(
        cx: &'c mut Context<'a, 'k>,
        keys: Args<'c>,
        is_read_only: bool,
        ignores_memory: bool,
        script: impl FnOnce(&mut dyn Calls) -> R,
    ) -> (R, Option<CommandError>) {
        let (db, protocol) = (cx.session.db, cx.session.protocol);
        let outer = (cx.in_transaction, cx.in_script, cx.admitted_bytes);
        cx.begin_inner();
        cx.in_script = true;
        let keys = keys.take(HASHED_KEYS_MAX);
        let hashes = keys.iter().map(|key| cx.unit.hash(key)).collect();
        let mut caller =
            Caller { cx, keys, hashes, is_read_only, ignores_memory, has_written: false, refusal: None };
        let outcome = script(&mut caller);
        let Caller { cx, refusal, .. } = caller;
        cx.unit.forget_keys();
        (cx.session.db, cx.session.protocol) = (db, protocol);
        (cx.in_transaction, cx.in_script, cx.admitted_bytes) = outer;
        cx.reply.set_protocol(protocol);
        (outcome, refusal)
    }

    /// Looks up a command of the script, and checks whether the script may call it. Counts a refusal.
    fn find(&mut self, args: Args<'_>) -> Result<ResolvedCommand, String> {
        let (found, checked) = match resolve_call(args) {
            Ok(found) => (Some(found), self.check(found, args).map(|()| found)),
            // An unknown subcommand of CLUSTER counts as a command that scripts may not call.
            Err(CommandError::UnknownSubcommand { command: "cluster", .. }) => {
                (None, Err(NOT_ALLOWED.into()))
            }
            Err(_) => (None, Err("ERR Unknown Redis command called from script".to_string())),
        };
        if let Err(refusal) = &checked {
            let stats = self.cx.unit.stats();
            stats.replied_error(refusal.as_bytes());
            if let Some(found) = found {
                stats.rejected(found.index.into());
            }
        }
        checked
    }

    /// Checks whether the script may call a command. Notes if the command writes.
    fn check(&mut self, found: ResolvedCommand, args: Args<'_>) -> Result<(), String> {
        let row = found.row;
        if !row.accepts(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".to_string());
        }
        let barred = [Flags::NOSCRIPT, Flags::PROTECTED, Flags::CONTAINER, Flags::IMMEDIATE, Flags::NO_MULTI];
        if barred.into_iter().any(|flag| row.flags.has(flag)) {
            return Err(NOT_ALLOWED.to_string());
        }
        self.cx.judge_in_script(found, args)?;
        if row.flags.has(Flags::FLUSHES) && self.cx.unit.has_documents() {
            return Err(format!(
                "ERR {} cannot be undone: it cannot be in one transaction with DOC commands",
                row.name.to_uppercase()
            ));
        }
        // This is checked for each command: the server may have become a stale replica during a long script.
        if !row.flags.has(Flags::STALE)
            && let Some(refusal) = self.cx.host.replication.refuses_reads()
        {
            // As outside of scripts, a write gets the error of writes.
            let refuses_writes = || self.cx.host.replication.refuses_writes().map(WriteRefusal::error);
            let of_writes = (!is_denied_when_stale(row)).then(refuses_writes).flatten();
            return Err(of_writes.unwrap_or(refusal).to_string());
        }
        let writes = row.flags.has(Flags::WRITE)
            || row.flags.has(Flags::LOGS_MESSAGES) && self.cx.host.config.is_durable_channel(args.at(1));
        if self.is_read_only && (writes || row.flags.has(Flags::PUBLISHES)) {
            return Err("ERR Write commands are not allowed from read-only scripts.".to_string());
        }
        if !writes {
            return Ok(());
        }
        let scripting = self.cx.scripting.as_deref();
        if let Some(error) = scripting.and_then(|it| it.no_writes.as_ref()) {
            return Err(error.to_string());
        }
        if row.flags.has(Flags::DENYOOM)
            && !self.ignores_memory
            && !self.has_written
            && let Some(error) = scripting.and_then(|it| it.no_growth.as_ref())
        {
            return Err(error.to_string());
        }
        self.has_written = true;
        Ok(())
    }

    /// Tries to lock the slots that a command needs in addition to those locked already. Returns whether all
    /// are locked.
    fn lock(&mut self, found: ResolvedCommand, args: Args<'_>) -> bool {
        let unit = &mut self.cx.unit;
        unit.forget_keys();
        if found.row.keys.spans_all(args) || found.row.flags.has(Flags::READS_ALL) {
            return unit.has_locked_all();
        }
        let mut has_all = true;
        found.row.keys.for_each(args, |index| {
            let key = args.at(index);
            let hash = self.keys.iter().position(|declared| declared == key).map(|at| self.hashes[at]);
            has_all = has_all && unit.try_lock_key(key, hash);
        });
        has_all
    }
}

impl Calls for Caller<'_, '_, '_> {
    fn call(&mut self, args: Args<'_>, protocol: Protocol, reply: &mut Vec<u8>) -> Result<(), Refusal> {
        let found = self.find(args).map_err(Refusal::Error)?;
        if !self.lock(found, args) {
            self.refusal = Some(CommandError::NeedsAllSlots);
            return Err(Refusal::Stop(Stop::Retry));
        }
        if is_final(found.row) && self.cx.may_be_offloaded() {
            return Err(Refusal::Stop(Stop::Overtime));
        }
        let start = self.cx.reply.position();
        self.cx.session.protocol = protocol;
        if self.cx.run_inner(found, args, Some("lua")).is_err() {
            return Err(Refusal::Stop(Stop::Overtime));
        }
        reply.extend_from_slice(self.cx.reply.since(start));
        self.cx.reply.truncate(start);
        Ok(())
    }

    fn may_call(&mut self, args: Args<'_>) -> Option<bool> {
        resolve_call(args).ok().map(|found| self.cx.may_call(found, args))
    }

    fn clock_us(&self) -> u64 {
        self.cx.host.monotonic_us()
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.cx.host.process.log_script(level, &String::from_utf8_lossy(message));
    }
}
