//! The context of a handler: its unit, session, reply and host.
//!
//! # Events
//! A family reports changes of keys ([`Context::notify`]) with the class of its type and the name that Redis
//! gives the event, after the effect that makes it true:
//!
//! ```text
//! cx.apply(key, KeyOp::ListPush { .. });
//! cx.notify(EventClass::LIST, "lpush", key);
//! ```
//!
//! - Once per command and key, as in Redis: HSET of five fields is one `hset`, also if no value differs.
//! - A collection that has become empty: `cx.notify(EventClass::GENERIC, "del", key)` after the event that
//!   emptied it.
//! - Not reported by families: `new` and `expired`, which the unit notes when it applies an effect (RENAME,
//!   COPY and RESTORE with REPLACE, and SET with a past time report them where the unit sees no new or
//!   expired key); `evicted`, which eviction reports; and `keymiss`, which [`Unit::read`], [`Unit::inspect`]
//!   and [`Unit::touch`] note.
//! - A command that fails reports no change, because it has made none.

use keyspace::{Applied, DbId, KeyOp, Keyspace};
use pubsub::Local;
use storage::{CHAIN_BYTES_MAX, Durability};
use wire::{Args, ReplyWriter};

use crate::{
    CommandError, EventClass, Flags, Host, Row, Session, Unit, audit::Action, clients::append_line,
    deferred_reply::DeferredReply, error::LockContended, long_units::LONG_ELEMENTS, observe::Watch,
    row::ResolvedCommand, rules::Rules, script_machine::Scripting, shown_args::shown_args,
};

/// Bytes that a command may log besides its arguments: numbers, and the headers of its effects.
pub const EFFECT_BYTES_BESIDE_ARGS: usize = 64 << 10;

/// The number of argument bytes that one admission by the log covers: asking the log for every command would
/// make the workers contend for its positions.
pub(crate) const ADMITTED_BYTES: u64 = 16 << 10;

/// The size of a record, in bytes, above which a unit of several commands makes sure before each write that
/// the log has room for the whole record.
const ROOM_CHECKED_BYTES: usize = 1 << 20;

/// The admitted bytes of a command that cannot wait for room; see [`Context::begin_inner`].
pub(crate) const EVERYTHING_ADMITTED: u64 = u64::MAX;

/// The error for a record that would be longer than a log can hold ([`CHAIN_BYTES_MAX`]).
const RECORD_TOO_LARGE: CommandError =
    CommandError::Text("ERR this would write more than 2 GiB to the log at once, which is not possible");

/// A step that must be done before a command can run. The command has changed nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The log must admit a record of this many bytes.
    Room(u64),
    /// Every slot must be locked.
    AllSlots,
    /// The command must be offloaded.
    OwnThread,
    /// A long unit must release a slot, or the client must wait.
    Slot(LockContended),
}

/// The surroundings of a unit: they are the same for all of its commands.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a, 'k> {
    /// The keyspace on which the unit works.
    pub keyspace: &'k Keyspace,
    /// The process around the executor.
    pub host: &'a Host,
    /// The durability that replies wait for on this server; a client may wish for less.
    pub durability: Durability,
    /// Longest string a command may build, in bytes.
    pub bulk_bytes_max: usize,
    /// The rules of the round, by which waiting clients are served.
    pub rules: &'a Rules,
}

/// All that a command sees and changes while it runs. The commands of one unit (merged commands, a
/// transaction, a script) run one after another in the same context.
pub struct Context<'a, 'k> {
    /// The locked slots, and the effects applied so far.
    pub unit: Unit<'k>,
    /// The keyspace, for figures that need no lock. Walks over keys go through `unit`.
    pub keyspace: &'k Keyspace,
    /// The session of the client that has sent the command.
    pub session: &'a mut Session,
    /// The process around the executor.
    pub host: &'a Host,
    /// The command that runs; `None` before the first one.
    pub(crate) row: Option<&'static Row>,
    /// The reply. If the handler returns an error, its reply is discarded.
    pub reply: ReplyWriter<'a>,
    /// The parts of the reply that are written after the slots are unlocked; empty if `in_transaction`.
    pub deferred_reply: DeferredReply,
    /// The durability that replies wait for on this server; a client may wish for less.
    pub durability: Durability,
    /// Longest string a command may build, in bytes.
    pub bulk_bytes_max: usize,
    /// Whether the command must not block: it is part of a transaction, a script or IDEMP, or is served after
    /// it was blocked.
    pub in_transaction: bool,
    /// Whether a script runs the command.
    pub in_script: bool,
    /// The log has admitted a record of this many bytes.
    pub admitted_bytes: u64,
    /// The channels of the worker; `None` for merged commands and served waiters, which use keys only.
    pub channels: Option<&'a mut Local>,
    /// The script machine of the worker; `None` for served waiters.
    pub scripting: Option<&'a mut Scripting>,
    /// The commands that are timed in this round; none for merged commands and served waiters.
    pub(crate) watch: Watch,
    /// The lines for the monitors; `None` if there are none, and for merged commands and served waiters.
    pub monitor: Option<&'a mut Vec<u8>>,
}

impl<'a, 'k> Context<'a, 'k> {
    /// The context of a command that stands alone, can reach keys only, and needs no more room in the log
    /// than one admission gives ([`ADMITTED_BYTES`]).
    #[inline]
    pub(crate) fn new(
        unit: Unit<'k>,
        surroundings: Surroundings<'a, 'k>,
        session: &'a mut Session,
        reply: ReplyWriter<'a>,
    ) -> Context<'a, 'k> {
        let Surroundings { keyspace, host, durability, bulk_bytes_max, .. } = surroundings;
        Context {
            unit,
            keyspace,
            session,
            host,
            row: None,
            reply,
            deferred_reply: DeferredReply::default(),
            durability,
            bulk_bytes_max,
            in_transaction: false,
            in_script: false,
            admitted_bytes: ADMITTED_BYTES,
            channels: None,
            scripting: None,
            watch: Watch::Nothing,
            monitor: None,
        }
    }
}

impl Context<'_, '_> {
    /// The database that the client has selected.
    #[inline]
    pub fn db(&self) -> DbId {
        self.session.db
    }

    /// The time of the command, unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.unit.now_ms()
    }

    /// Deadlines up to this time count as expired; see [`Unit::as_of_ms`].
    #[inline]
    pub fn as_of_ms(&self) -> u64 {
        self.unit.as_of_ms()
    }

    /// The channels of the worker.
    ///
    /// # Panics
    /// For a merged command or a served waiter.
    pub fn channels(&mut self) -> &mut Local {
        self.channels.as_deref_mut().expect("what is merged or served has to do with keys only")
    }

    /// The script machine of the worker.
    ///
    /// # Panics
    /// For a served waiter.
    pub fn scripting(&mut self) -> &mut Scripting {
        self.scripting.as_deref_mut().expect("a served waiter runs no script")
    }

    /// Makes sure that the log has room for a record with `bytes` of content. A command whose record can be
    /// much larger than its arguments must call this before its first change. If the content is values that
    /// the command's keys hold, the row of the command carries [`Flags::COPIES`].
    ///
    /// # Errors
    /// To be passed on. With [`CommandError::NeedsRoom`], the executor asks the log and runs the command
    /// again. Other errors: the record is larger than a log can hold ([`CHAIN_BYTES_MAX`]), or, within
    /// [`Context::begin_inner`], the disk has no room for it.
    pub fn require_room(&self, bytes: u64) -> Result<(), CommandError> {
        let record_bytes = self.unit.record_bytes() as u64 + bytes;
        if record_bytes > CHAIN_BYTES_MAX as u64 {
            return Err(RECORD_TOO_LARGE);
        }
        if self.admitted_bytes == EVERYTHING_ADMITTED {
            return self.refuse_growth(record_bytes as usize).map_or(Ok(()), Err);
        }
        if bytes <= self.admitted_bytes { Ok(()) } else { Err(CommandError::NeedsRoom(bytes)) }
    }

    /// Changes a key of the selected database; see [`Unit::apply`], which makes all other changes.
    #[inline]
    pub fn apply(&mut self, key: &[u8], op: KeyOp<'_>) -> Applied {
        self.unit.apply(&op.on(self.session.db, key))
    }

    /// As [`Context::apply`], for a collection whose type was not looked at first.
    ///
    /// # Errors
    /// The key holds another type; nothing was changed.
    #[inline]
    pub fn try_apply(&mut self, key: &[u8], op: KeyOp<'_>) -> Result<Applied, CommandError> {
        let applied = self.apply(key, op);
        if applied.wrong_type { Err(CommandError::WrongType) } else { Ok(applied) }
    }

    /// Reports an event on a key of the selected database; see the module documentation.
    #[inline]
    pub fn notify(&self, class: EventClass, name: &'static str, key: &[u8]) {
        self.unit.notify(class, name, self.session.db, key);
    }

    /// As [`Context::notify`], for a key of another database.
    #[inline]
    pub fn notify_in(&self, db: DbId, class: EventClass, name: &'static str, key: &[u8]) {
        self.unit.notify(class, name, db, key);
    }

    /// Runs the handler. If the handler fails, its reply is discarded and the error becomes the reply.
    /// Returns whether the handler succeeded, or as an error the step that must be done first.
    #[inline]
    pub fn handle(&mut self, row: &'static Row, args: Args<'_>) -> Result<bool, Retry> {
        let is_inner = self.in_transaction;
        self.row = Some(row);
        // A command that turns the audit on, or off, is itself an entry in both cases, so the state before
        // the command counts, too.
        let is_action = row.flags.has(Flags::AUDITED);
        let was_audited = is_action && self.host.users.audit.is_on();
        let result = self.attempt(|cx| {
            if row.flags.has(Flags::WALKS) || args.len() > LONG_ELEMENTS {
                cx.require_short_walk(row, args)?;
            }
            (row.handler)(cx, args)
        });
        if self.session.tracking.is_some() {
            self.track(row, args, is_inner);
        }
        if let Ok(succeeded) = result
            && is_action
            && (was_audited || self.host.users.audit.is_on())
        {
            self.note_audited(row, args, succeeded);
        }
        result
    }

    #[cold]
    fn note_audited(&self, row: &'static Row, args: Args<'_>, succeeded: bool) {
        let user = self.session.on_behalf_of.as_deref().unwrap_or(self.session.login.name());
        let client = self.session.client.peer();
        let name = row.name.as_bytes();
        let action = Action { name, user, client, succeeded, now_ms: self.host.clock.unix_ms() };
        let words_of_name = row.name.split('|').count();
        self.host.users.audit.note(action, shown_args(row, args).skip(words_of_name));
    }

    /// As [`Context::handle`], for a part of a command.
    ///
    /// # Panics
    /// If `run` fails after it has changed something, with another error than [`CommandError::Replied`].
    #[inline]
    pub fn attempt(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), CommandError>,
    ) -> Result<bool, Retry> {
        let (reply_start, record_bytes) = (self.reply.position(), self.unit.record_bytes());
        let Err(error) = run(self) else { return Ok(true) };
        if error == CommandError::Replied {
            return Ok(false);
        }
        assert_eq!(self.unit.record_bytes(), record_bytes, "failed after it had changed something: {error}");
        self.reply.truncate(reply_start);
        self.deferred_reply.clear();
        match error {
            CommandError::NeedsRoom(bytes) => return Err(Retry::Room(bytes)),
            CommandError::NeedsAllSlots => return Err(Retry::AllSlots),
            CommandError::NeedsOwnThread => return Err(Retry::OwnThread),
            CommandError::SlotTaken { pause_ms } | CommandError::Later { pause_ms } => {
                return Err(Retry::Slot(LockContended::Later(pause_ms)));
            }
            _ => {}
        }
        self.reply_error(&error);
        Ok(false)
    }

    /// Records for a tracking client the keys that a command has read. A script has read what its commands
    /// have read, not what its call declares. CLIENT CACHING holds for one command, or for one transaction as
    /// a whole.
    #[cold]
    fn track(&mut self, row: &'static Row, args: Args<'_>, is_inner: bool) {
        let Some(tracking) = &mut self.session.tracking else { return };
        let reads = row.flags.has(Flags::READONLY) && !row.flags.has(Flags::RUNS_SCRIPTS);
        if reads && tracking.remembers() {
            // A remembered key may be evicted at once, also while this unit goes on.
            self.session.client.set_pushes_wait(true);
            row.keys.for_each(args, |index| self.unit.remember(tracking, args.at(index)));
        }
        let goes_on = is_inner || self.session.transaction.is_some() || row.name.starts_with("client|");
        tracking.caching &= goes_on;
    }

    /// Records the duration of a command that has run as a part of this unit.
    #[cold]
    fn note_duration(&self, row: &'static Row, index: u16, args: Args<'_>, started_us: u64) {
        let host = self.host;
        let usec = host.monotonic_us().saturating_sub(started_us);
        self.unit.stats().timed(index.into(), usec, 1);
        let slow_log = &host.observer.slow_log;
        slow_log.ran(usec, row, args, &self.session.client, || host.clock.unix_ms());
    }

    /// Writes an error as the reply, and counts it by its code.
    pub fn reply_error(&mut self, error: &CommandError) {
        let mut text = Vec::new();
        error.render(&mut text);
        self.unit.stats().replied_error(&text);
        self.reply.error(text);
    }

    /// Shows a script, or another command that runs commands, to the monitors, before the commands that it
    /// runs.
    pub fn show_script(&mut self, args: Args<'_>) {
        if let Some(lines) = &mut self.monitor {
            let (now_ms, db, peer) = (self.unit.now_ms(), self.session.db.get(), self.session.client.peer());
            append_line(lines, now_ms, db, peer, args.iter());
        }
    }

    /// Begins to run several commands as one, with [`Context::run_inner`].
    ///
    /// From here on no command waits for room in the log, because earlier changes cannot be taken back. If a
    /// record gets large, room is made for it while the locks are held; a command for whose record the disk
    /// has no room is refused.
    pub fn begin_inner(&mut self) {
        self.in_transaction = true;
        self.admitted_bytes = EVERYTHING_ADMITTED;
    }

    /// The reason why the record of this unit may not grow to `bytes`; `None` if it may.
    fn refuse_growth(&self, bytes: usize) -> Option<CommandError> {
        if bytes <= ROOM_CHECKED_BYTES {
            None
        } else if bytes > CHAIN_BYTES_MAX {
            Some(RECORD_TOO_LARGE)
        } else {
            self.host.persistence.make_room_for(bytes as u64).err().map(CommandError::DiskFull)
        }
    }

    /// Runs a command as a part of this unit, which has locked all keys of the command. Appends the reply of
    /// the command: a value or an error, or a null for a command without a reply. Monitors see `origin` as
    /// the source of the command; with `None` they see the client. Returns whether the command succeeded.
    ///
    /// # Errors
    /// To be passed on, once the effects of the unit are undone: [`CommandError::NeedsOwnThread`].
    ///
    /// # Panics
    /// If the command needs any other step before it can run.
    pub fn run_inner(
        &mut self,
        ResolvedCommand { row, index, .. }: ResolvedCommand,
        args: Args<'_>,
        origin: Option<&str>,
    ) -> Result<bool, CommandError> {
        self.reply.set_protocol(self.session.protocol);
        let reply_start = self.reply.position();
        let started_us = (self.watch == Watch::All).then(|| self.host.monotonic_us());
        let record_bytes = self.unit.record_bytes() + args.size_bytes() + EFFECT_BYTES_BESIDE_ARGS;
        let succeeded = if row.flags.has(Flags::WRITE)
            && let Some(refusal) = self.refuse_growth(record_bytes)
        {
            self.reply_error(&refusal);
            false
        } else {
            match self.handle(row, args) {
                Ok(succeeded) => succeeded,
                Err(Retry::OwnThread) => return Err(CommandError::NeedsOwnThread),
                Err(again) => panic!("everything is admitted, and locked: {again:?}"),
            }
        };
        if self.reply.position() == reply_start {
            self.reply.null();
        }
        self.unit.stats().called(index as usize, !succeeded);
        self.session.client.count_command();
        if let Some(started_us) = started_us {
            self.note_duration(row, index, args, started_us);
        }
        if let Some(lines) = &mut self.monitor
            && !row.flags.has(Flags::ADMIN)
            && !row.flags.has(Flags::RUNS_SCRIPTS)
        {
            let (now_ms, db) = (self.unit.now_ms(), self.session.db.get());
            let peer = origin.unwrap_or(self.session.client.peer());
            append_line(lines, now_ms, db, peer, shown_args(row, args));
        }
        Ok(succeeded)
    }
}
