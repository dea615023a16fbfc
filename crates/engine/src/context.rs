//! What a handler works with.
//!
//! # Events
//! A family tells what happens to keys ([`Context::notify`]) with the class of its type and the name that Redis gives the
//! event, after the effect that makes it true:
//!
//! ```text
//! cx.apply(&Effect::ListPush { .. });
//! cx.notify(EventClass::LIST, "lpush", key);
//! ```
//!
//! - Once per command and key, as Redis does it: HSET of five fields is one `hset`, and also if no value is another.
//! - A collection that has become empty: `cx.notify(EventClass::GENERIC, "del", key)` after the event that emptied it.
//! - Not told by families, because it is seen where effects are applied: `new`, `expired`, `evicted`, and `keymiss` for keys
//!   looked up with [`Unit::read`], [`Unit::inspect`] or [`Unit::touch`]. A command that replaces a key by removing it first
//!   (RENAME, COPY REPLACE, RESTORE REPLACE) tells `new` by itself, as Redis does.
//! - An error is told nobody: what fails has changed nothing.

use keyspace::{Applied, DbId, Effect, Keyspace};
use pubsub::Local;
use storage::{CHAIN_BYTES_MAX, Durability};
use wire::{Args, ReplyWriter};

use crate::{
    CommandError, EventClass, Flags, Host, Row, Session, Unit,
    long_units::LONG_ELEMENTS,
    observe::{append_line, shown_args},
    postponed::Postponed,
    row::Found,
    scripts::Scripting,
    unit::Taken,
};

/// What a command may log beside the bytes of its arguments: numbers, and the heads of its effects.
pub const EFFECT_BYTES_BESIDE_ARGS: usize = 64 << 10;

/// The record would be longer than a log can hold.
const RECORD_TOO_LARGE: CommandError =
    CommandError::Text("ERR this would write more than 2 GiB to the log at once, which is not possible");

/// What must be done before a command can run: nothing has happened yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The log must admit a record of so many bytes.
    Room(u64),
    /// Every slot must be locked.
    AllSlots,
    /// It must be handed over to a thread of its own.
    OwnThread,
    /// A script must give back a slot.
    Slot(Taken),
}

/// The surroundings of one command while it runs.
pub struct Context<'a, 'k> {
    /// The keys it has locked.
    pub unit: Unit<'k>,
    /// The keyspace, for what it tells without a lock. What walks keys goes through `unit`.
    pub keyspace: &'k Keyspace,
    /// The client.
    pub session: &'a mut Session,
    /// The process.
    pub host: &'a dyn Host,
    /// Where the reply goes. If the handler returns an error, what it wrote is taken back.
    pub reply: ReplyWriter<'a>,
    /// What of the reply is written when the slots are free again; nothing if `in_transaction`.
    pub postponed: Postponed,
    /// The server's durability.
    pub durability: Durability,
    /// Longest string a command may build, in bytes.
    pub bulk_bytes_max: usize,
    /// Whether it is one of several commands of its unit: it must not block.
    pub in_transaction: bool,
    /// Whether a script runs it.
    pub in_script: bool,
    /// The log has admitted a record of this many bytes.
    pub admitted_bytes: u64,
    /// The channels of the worker; `None` where only keys are served.
    pub channels: Option<&'a mut Local>,
    /// What scripts are run with; `None` where only keys are served.
    pub scripting: Option<&'a mut Scripting>,
    /// Where commands are shown to monitors, if there are any.
    pub monitor: Option<&'a mut Vec<u8>>,
}

impl Context<'_, '_> {
    /// The selected database.
    #[inline]
    pub fn db(&self) -> DbId {
        self.session.db
    }

    /// The time of the command, unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.unit.now_ms()
    }

    /// What has a deadline up to here counts as absent; see [`Unit::as_of_ms`].
    #[inline]
    pub fn as_of_ms(&self) -> u64 {
        self.unit.as_of_ms()
    }

    /// The channels of the worker.
    pub fn channels(&mut self) -> &mut Local {
        self.channels.as_deref_mut().expect("what is merged or served has to do with keys only")
    }

    /// What scripts are run with.
    pub fn scripting(&mut self) -> &mut Scripting {
        self.scripting.as_deref_mut().expect("what is merged or served has to do with keys only")
    }

    /// To be called before the first change by commands whose record can be much larger than their arguments: makes sure
    /// that the log has room for a record with `bytes` of content. If they are values that keys of the command have, its row
    /// carries [`Flags::COPIES`].
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsRoom`], for which the executor asks the log and runs the command again; or no log
    /// could hold the record.
    pub fn require_room(&self, bytes: u64) -> Result<(), CommandError> {
        if self.unit.record_bytes() as u64 + bytes > CHAIN_BYTES_MAX as u64 {
            return Err(RECORD_TOO_LARGE);
        }
        if bytes <= self.admitted_bytes { Ok(()) } else { Err(CommandError::NeedsRoom(bytes)) }
    }

    /// Makes a change; see [`Unit::apply`].
    #[inline]
    pub fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        self.unit.apply(effect)
    }

    /// Makes a change of a collection without looking at its type first.
    ///
    /// # Errors
    /// The key holds another type; nothing was changed.
    #[inline]
    pub fn try_apply(&mut self, effect: &Effect<'_>) -> Result<Applied, CommandError> {
        let applied = self.unit.apply(effect);
        if applied.wrong_type { Err(CommandError::WrongType) } else { Ok(applied) }
    }

    /// Tells what has happened to a key of the selected database; see the module documentation.
    #[inline]
    pub fn notify(&self, class: EventClass, name: &'static str, key: &[u8]) {
        self.unit.notify(class, name, self.session.db, key);
    }

    /// The same for a key of another database.
    #[inline]
    pub fn notify_in(&self, db: DbId, class: EventClass, name: &'static str, key: &[u8]) {
        self.unit.notify(class, name, db, key);
    }

    /// Runs the handler; an error takes its reply back and becomes the reply. Returns whether it succeeded, or as an error
    /// what must be done first.
    #[inline]
    pub fn handle(&mut self, row: &'static Row, args: Args<'_>) -> Result<bool, Again> {
        let is_inner = self.in_transaction;
        let result = self.attempt(|cx| {
            if row.flags.has(Flags::WALKS) || args.len() > LONG_ELEMENTS {
                cx.require_short_walk(row, args)?;
            }
            (row.handler)(cx, args)
        });
        if self.session.tracking.is_some() {
            self.track(row, args, is_inner);
        }
        result
    }

    /// As [`Context::handle`], for what is no whole command.
    #[inline]
    pub fn attempt(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), CommandError>,
    ) -> Result<bool, Again> {
        let (reply_start, record_bytes) = (self.reply.position(), self.unit.record_bytes());
        let Err(error) = run(self) else { return Ok(true) };
        assert_eq!(self.unit.record_bytes(), record_bytes, "failed after it had changed something: {error}");
        self.reply.truncate(reply_start);
        self.postponed.clear();
        match error {
            CommandError::NeedsRoom(bytes) => return Err(Again::Room(bytes)),
            CommandError::NeedsAllSlots => return Err(Again::AllSlots),
            CommandError::NeedsOwnThread => return Err(Again::OwnThread),
            CommandError::SlotTaken { pause_ms } => return Err(Again::Slot(Taken::Later(pause_ms))),
            _ => {}
        }
        self.reply_error(&error);
        Ok(false)
    }

    /// Remembers for a client that tracks what a command has read. CLIENT CACHING holds for one command, or for one
    /// transaction as a whole.
    #[cold]
    fn track(&mut self, row: &'static Row, args: Args<'_>, is_inner: bool) {
        let Some(tracking) = &mut self.session.tracking else { return };
        if row.flags.has(Flags::READONLY) && tracking.remembers() {
            row.keys.for_each(args, |index| self.unit.remember(tracking, args.at(index)));
        }
        let goes_on = is_inner || self.session.transaction.is_some() || row.name.starts_with("client|");
        tracking.caching &= goes_on;
    }

    fn reply_error(&mut self, error: &CommandError) {
        let mut text = Vec::new();
        error.render(&mut text);
        self.reply.error(text);
    }

    /// Shows a script to the monitors, or another command that runs commands, before those.
    pub fn show_script(&mut self, args: Args<'_>) {
        if let Some(lines) = &mut self.monitor {
            let (now_ms, db, peer) = (self.unit.now_ms(), self.session.db.get(), self.session.client.peer());
            append_line(lines, now_ms, db, peer, args.iter());
        }
    }

    /// From now on runs several commands as one, with [`Context::run_inner`].
    ///
    /// Nothing is refused any more for lack of room in the log, because what was changed cannot be taken back. Room for most
    /// that they can need was asked for before ([`Context::require_room`]); for more, the end of the unit waits for the log
    /// with its locks held, as for every record above 1 MiB: making room needs none of them.
    pub fn begin_inner(&mut self) {
        self.in_transaction = true;
        self.admitted_bytes = u64::MAX;
    }

    /// Runs a command as a part of this unit, which has locked all its keys, and appends its reply: a value or an error, or no
    /// value for a command that says nothing. Monitors are told that it came from `origin`; `None`: from the client. Returns
    /// whether it succeeded.
    ///
    /// # Errors
    /// To be passed on, when what the unit has done is undone: [`CommandError::NeedsOwnThread`].
    ///
    /// # Panics
    /// If anything else must be done before it can run.
    pub fn run_inner(
        &mut self,
        Found { row, index, .. }: Found,
        args: Args<'_>,
        origin: Option<&str>,
    ) -> Result<bool, CommandError> {
        self.reply.set_protocol(self.session.protocol);
        let reply_start = self.reply.position();
        let record_bytes = self.unit.record_bytes() + args.size_bytes() + EFFECT_BYTES_BESIDE_ARGS;
        let succeeded = if row.flags.has(Flags::WRITE) && record_bytes > CHAIN_BYTES_MAX {
            self.reply_error(&RECORD_TOO_LARGE);
            false
        } else {
            match self.handle(row, args) {
                Ok(succeeded) => succeeded,
                Err(Again::OwnThread) => return Err(CommandError::NeedsOwnThread),
                Err(again) => panic!("everything is admitted, and locked: {again:?}"),
            }
        };
        if self.reply.position() == reply_start {
            self.reply.null();
        }
        self.unit.stats().called(index as usize, !succeeded);
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
