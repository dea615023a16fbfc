//! Long units: units that would occupy their worker for longer than its other clients should wait.
//!
//! ```text
//! worker: unit begins -> ends in time
//!                    '-> long: undone -> LongUnit (arguments, session) -> own thread: the unit, again
//!                                         the worker goes on               '-> reply, session -> worker
//! ```
//!
//! This module has the rules for long units, the arguments and session that move with one, and the slots that
//! each of them holds. The threads belong to the server.
//!
//! Invariants
//! - A unit is handed over before any of its changes is visible: they are undone, its slots are free. It runs
//!   again as if it had just arrived.
//! - A unit that may still be handed over begins nothing that cannot be undone, or that must not be done
//!   twice.
//! - A command that needs a slot of a long unit does not block a shared thread for it: see [`crate::unit`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use keyspace::{SLOT_COUNT, SlotId, View};
use parking_lot::Mutex;
use scripting::ClockUs;
use wire::OwnedArgs;

use crate::{
    Call, CommandError, Context, Executor, Flags, Host, Outcome, Row, Session,
    execute::{refuse, silence},
    row::{ResolvedCommand, innermost},
    scripts::{HandedOver, ScriptKind},
};

/// A unit with scripts that has run for this long on a worker is long.
pub const LONG_AFTER_US: u64 = 3_000;

/// How long a transaction with scripts that cannot be handed over may run.
pub(crate) const STAYING_US: u64 = 50_000;

/// Work on more elements than this is long: about a millisecond.
pub const LONG_ELEMENTS: usize = 16 << 10;

/// Bytes of a string that take about as long as one element.
pub const BYTES_PER_ELEMENT: usize = 256;

/// How many elements a command may process on the thread where it runs.
#[derive(Debug, Clone, Copy)]
pub struct ElementsMax(usize);

impl ElementsMax {
    /// Requests a hand-over if there are more elements. To be called before the first change.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[inline]
    pub fn require(self, elements: usize) -> Result<(), CommandError> {
        if elements <= self.0 { Ok(()) } else { Err(CommandError::NeedsOwnThread) }
    }

    /// As [`ElementsMax::require`], for the bytes of a string.
    ///
    /// # Errors
    /// To be passed on.
    #[inline]
    pub fn require_bytes(self, bytes: usize) -> Result<(), CommandError> {
        self.require(bytes / BYTES_PER_ELEMENT)
    }
}

/// The size of a value in elements.
pub fn elements(view: View<'_>) -> usize {
    match view {
        View::String(bytes) => bytes.len() / BYTES_PER_ELEMENT,
        view => view.len(),
    }
}

/// The kind of thread on which an executor runs its units.
#[derive(Clone, Default)]
pub enum ThreadRole {
    /// A thread without other clients, from which no unit is handed over.
    #[default]
    Alone,
    /// A worker, on which other clients wait: long units are handed over.
    Worker(ClockUs),
    /// A thread for one long unit, which was handed over to it.
    OwnThread,
}

/// Whether a unit with this command can be handed over, from the easiest to the hardest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mobility {
    /// At any time: all its changes can be undone.
    #[default]
    AtAnyTime,
    /// Before it has begun: its changes cannot be undone, or must not be made twice.
    BeforeItBegins,
    /// Never: it depends on the worker of its client, or other clients wait for its locks.
    Never,
}

impl Mobility {
    /// The mobility of a command and of one that it wraps.
    pub fn of(found: ResolvedCommand, args: wire::Args<'_>) -> Mobility {
        Mobility::of_row(found.row).max(Mobility::of_row(innermost(found, args).0.row))
    }

    fn of_row(row: &Row) -> Mobility {
        let is_any = |names: &[&str]| names.contains(&row.name);
        if is_any(&["publish", "spublish", "select", "ping", "echo", "time"]) {
            Mobility::AtAnyTime
        } else if row.flags.has(Flags::DOCUMENTS)
            || row.flags.has(Flags::PUBSUB)
            || is_any(&["hello", "reset"])
        {
            Mobility::Never
        } else if is_final(row) || is_any(&["lease", "unlease"]) {
            Mobility::BeforeItBegins
        } else if [Flags::READONLY, Flags::WRITE, Flags::RUNS_SCRIPTS].into_iter().any(|it| row.flags.has(it))
        {
            Mobility::AtAnyTime
        } else {
            Mobility::BeforeItBegins
        }
    }
}

/// Whether the changes of a command cannot be undone.
pub fn is_final(row: &Row) -> bool {
    matches!(row.name, "flushall" | "flushdb")
}

/// The slots that a unit on a thread of its own holds, readable by other threads.
#[derive(Debug)]
pub(crate) struct HeldSlots {
    since_us: u64,
    runs_scripts: bool,
    slots: Box<[AtomicU64]>,
}

impl HeldSlots {
    fn new(since_us: u64, runs_scripts: bool) -> HeldSlots {
        HeldSlots {
            since_us,
            runs_scripts,
            slots: (0..SLOT_COUNT.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn place(slot: SlotId) -> (usize, u64) {
        let number = usize::from(slot.get());
        (number / 64, 1 << (number % 64))
    }

    /// The unit holds one more slot.
    pub fn add(&self, slot: SlotId) {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].fetch_or(bit, Relaxed);
    }

    fn has(&self, slot: SlotId) -> bool {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].load(Relaxed) & bit != 0
    }

    /// The unit has ended, or begins again.
    pub fn clear(&self) {
        self.slots.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The long unit that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// When the unit began, monotonic microseconds.
    pub since_us: u64,
    /// Whether clients get BUSY when the unit has run for long.
    pub runs_scripts: bool,
}

/// All units that run on threads of their own.
#[derive(Debug, Default)]
pub struct LongUnits(Mutex<Vec<Arc<HeldSlots>>>);

impl LongUnits {
    /// Registers a unit; dropping the result removes it.
    pub(crate) fn begin(&self, since_us: u64, runs_scripts: bool) -> Holding<'_> {
        let held = Arc::new(HeldSlots::new(since_us, runs_scripts));
        self.0.lock().push(held.clone());
        Holding { units: self, held }
    }

    /// The long unit that holds a slot.
    pub fn holder(&self, slot: SlotId) -> Option<Holder> {
        let units = self.0.lock();
        let holder = units.iter().find(|unit| unit.has(slot));
        holder.map(|unit| Holder { since_us: unit.since_us, runs_scripts: unit.runs_scripts })
    }
}

/// The BUSY error of a command that needs a slot which a script has held for too long.
pub(crate) fn busy_error(host: &Host) -> CommandError {
    match host.scripts.longest() {
        Some(ScriptKind::Function) => CommandError::BusyFunction,
        _ => CommandError::Busy,
    }
}

/// The registration of a unit that runs on a thread of its own.
pub(crate) struct Holding<'u> {
    units: &'u LongUnits,
    held: Arc<HeldSlots>,
}

impl Holding<'_> {
    /// The slots of the unit, shown to other threads.
    pub fn held(&self) -> &Arc<HeldSlots> {
        &self.held
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.units.0.lock().retain(|unit| !Arc::ptr_eq(unit, &self.held));
    }
}

/// A command that is to run on a thread of its own, with the session of its client.
#[derive(Debug)]
pub struct LongUnit {
    args: OwnedArgs,
    session: Session,
    script: Option<HandedOver>,
}

/// The result of a [`LongUnit`].
#[derive(Debug)]
pub struct LongReply {
    /// The session of the client, as the command has left it.
    pub session: Session,
    /// The bytes of the reply.
    pub reply: Vec<u8>,
    /// The gate of the reply.
    pub gate: lsn::Lsn,
}

impl Executor {
    /// From now on other clients share the thread: [`Executor::execute`] returns [`Outcome::Long`] for
    /// commands that take long. The clock must be that of the host.
    pub fn share_thread(&mut self, clock: ClockUs) {
        self.scripting.place = ThreadRole::Worker(clock);
    }

    /// From now on this executor runs handed-over units, on a thread without other clients.
    pub fn own_thread(&mut self) {
        self.scripting.place = ThreadRole::OwnThread;
    }

    /// After [`Outcome::Long`]: takes the parts that another thread needs to execute the command. A stand-in
    /// remains in `session` until the session [comes back](Session::return_from_thread).
    pub fn hand_over(&mut self, call: Call<'_>, session: &mut Session) -> LongUnit {
        LongUnit {
            args: call.args.into(),
            session: session.go_away(),
            script: self.scripting.handed_over.take(),
        }
    }

    /// Executes a handed-over unit. Each time that the log has no room, or a slot is held by another unit,
    /// `pause` is called with a number of milliseconds; then the command is tried again, in a round at the
    /// time `now_ms()`.
    pub fn execute_long(
        &mut self,
        unit: LongUnit,
        host: &Host,
        bulk_bytes_max: usize,
        now_ms: impl Fn() -> u64,
        mut pause: impl FnMut(u64),
    ) -> LongReply {
        let LongUnit { args, mut session, script } = unit;
        self.scripting.handed_over = script;
        let mut reply = Vec::new();
        loop {
            self.begin_round(now_ms(), host, bulk_bytes_max);
            let call = Call { args: args.as_args(), resolved: self.resolve(args.as_args(), None) };
            let outcome = self.execute(call, &mut session, host, &mut reply);
            self.end_round(host);
            match outcome {
                Outcome::Done { gate } => {
                    self.end_long(host);
                    return LongReply { session, reply, gate };
                }
                Outcome::Wait | Outcome::Long if session.client.is_killed() => {
                    self.end_long(host);
                    session.closing = true;
                    return LongReply { session, reply, gate: lsn::Lsn::ZERO };
                }
                Outcome::Wait | Outcome::Long => pause(std::mem::take(&mut session.pause_ms).max(1)),
            }
        }
    }

    /// The unit has ended, and its script machine goes with the executor.
    fn end_long(&mut self, host: &Host) {
        self.forget_handed_over(host);
        self.stats().set_vm_bytes(0);
    }

    /// Refuses a handed-over unit: its client gets the BUSY error.
    pub fn refuse_long(&mut self, unit: LongUnit, host: &Host) -> LongReply {
        let LongUnit { args, mut session, script } = unit;
        self.scripting.handed_over = script;
        self.forget_handed_over(host);
        let mut reply = Vec::new();
        let error = busy_error(host);
        match self.table.resolve_call(args.as_args()) {
            Ok(found) => self.reject(found, error, &mut session, &mut reply),
            Err(error) => refuse(&error, &session, &mut reply),
        };
        silence(&mut session, &mut reply, 0);
        LongReply { session, reply, gate: lsn::Lsn::ZERO }
    }

    /// Unregisters the script that was handed over: it has run, or will not run again.
    pub(crate) fn forget_handed_over(&mut self, host: &Host) {
        if let Some(script) = self.scripting.handed_over.take() {
            host.scripts.forget(script);
        }
    }

    /// Runs `run`, which executes a command, with its slots visible to other threads (on a thread of its
    /// own).
    pub(crate) fn holding_visibly<R>(
        &mut self,
        runs_scripts: bool,
        host: &Host,
        run: impl FnOnce(&mut Executor) -> R,
    ) -> R {
        let since_us =
            self.scripting.handed_over.as_ref().map_or_else(|| host.monotonic_us(), |it| it.started_us);
        let holding = host.scripts.long_units.begin(since_us, runs_scripts);
        self.scratch.held_slots = Some(holding.held().clone());
        let outcome = run(self);
        self.scratch.held_slots = None;
        outcome
    }
}

impl Context<'_, '_> {
    /// Whether this unit may be handed over now: its thread is shared, and all its changes can be undone.
    pub fn may_be_handed_over(&self) -> bool {
        self.scripting.as_deref().is_some_and(|scripting| scripting.hands_over())
            && (!self.in_transaction || self.unit.can_undo())
    }

    /// Checks a command that walks over all elements of its keys, or has many arguments, before it runs.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[cold]
    pub(crate) fn require_short_walk(&self, row: &Row, args: wire::Args<'_>) -> Result<(), CommandError> {
        let elements_max = self.elements_max();
        if row.flags.has(Flags::WALKS) {
            let (db, mut walked) = (self.db(), 0);
            row.keys.for_each(args, |index| {
                walked += self.unit.peek(db, args.at(index)).map_or(0, |entry| elements(entry.view()));
            });
            elements_max.require(walked)?;
        }
        let does_more =
            [Flags::BLOCKING, Flags::RUNS_SCRIPTS, Flags::WRAPS].iter().any(|it| row.flags.has(*it));
        if does_more || Mobility::of_row(row) != Mobility::AtAnyTime {
            return Ok(());
        }
        elements_max.require(args.len())
    }

    /// How many elements this unit may process now: unlimited where it cannot be handed over.
    #[inline]
    pub fn elements_max(&self) -> ElementsMax {
        ElementsMax(if self.may_be_handed_over() { LONG_ELEMENTS } else { usize::MAX })
    }

    /// Requests a hand-over of the unit, if possible. To be called by long commands before their first
    /// change, and before the first byte of their reply.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[cold]
    pub fn require_own_thread(&self) -> Result<(), CommandError> {
        if self.may_be_handed_over() { Err(CommandError::NeedsOwnThread) } else { Ok(()) }
    }
}
