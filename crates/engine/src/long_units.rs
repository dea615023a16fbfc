//! Long units: those that keep their thread for longer than the other clients of a worker may wait.
//!
//! ```text
//! worker: unit begins -> ends in time
//!                    '-> it is long: undone -> LongUnit (arguments, session) -> a thread of its own: the same unit, from its start
//!                                              the worker goes on                '-> reply, session -> worker
//! ```
//!
//! What it is: the rules for long units, the arguments and session that move with one, and the slots that each of them holds.
//! What it is not: a thread; the server has those.
//!
//! Invariants
//! - A unit is handed over before anybody has seen anything of it: what it did is undone, its slots are free. It runs again as if
//!   it had just come.
//! - Nothing that cannot be undone, or that must not be done twice, is begun by a unit that may still be handed over.
//! - Who needs a slot that a long unit holds does not wait for it on a thread that others need: see [`crate::unit`].

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
    row::{Found, innermost},
    scripts::{HandedOver, ScriptKind},
};

/// A unit with scripts that has run for so long on a worker is long.
pub const LONG_AFTER_US: u64 = 3_000;

/// A transaction with scripts that cannot be handed over may run for so long.
pub(crate) const STAYING_US: u64 = 50_000;

/// What does something for more elements than this is long: about a millisecond.
pub const LONG_ELEMENTS: usize = 16 << 10;

/// Bytes of a string for which is done about as much as for an element.
pub const BYTES_PER_ELEMENT: usize = 256;

/// For how many elements a command may do something where it runs.
#[derive(Debug, Clone, Copy)]
pub struct ElementsMax(usize);

impl ElementsMax {
    /// Has the unit handed over if there are more. To be called before the first change.
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

/// What a value counts as, in elements.
pub fn elements(view: View<'_>) -> usize {
    match view {
        View::String(bytes) => bytes.len() / BYTES_PER_ELEMENT,
        view => view.len(),
    }
}

/// Where an executor runs its units.
#[derive(Clone, Default)]
pub enum Place {
    /// Where nothing else is to be done meanwhile, and from where nothing is handed over.
    #[default]
    Alone,
    /// On a thread that other clients wait for: what is long is handed over.
    Worker(ClockUs),
    /// On a thread of its own, which was handed it.
    OwnThread,
}

/// Whether a command can be a part of a unit that is handed over, from the easiest to the hardest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mobility {
    /// At any time: all that it does can be undone.
    #[default]
    AtAnyTime,
    /// Before it has begun: what it does cannot be undone, or must not be done twice.
    BeforeItBegins,
    /// Never: it has to do with the worker of its client, or others wait for what it locks.
    Never,
}

impl Mobility {
    /// Of a command, with that of one that it wraps.
    pub fn of(found: Found, args: wire::Args<'_>) -> Mobility {
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

/// Whether what a command does cannot be undone.
pub fn is_final(row: &Row) -> bool {
    matches!(row.name, "flushall" | "flushdb")
}

/// The slots that a unit holds on a thread of its own.
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

    /// The unit holds one more.
    pub fn add(&self, slot: SlotId) {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].fetch_or(bit, Relaxed);
    }

    fn has(&self, slot: SlotId) -> bool {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].load(Relaxed) & bit != 0
    }

    /// The unit has ended, or begins anew.
    pub fn clear(&self) {
        self.slots.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// A unit that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// When it began.
    pub since_us: u64,
    /// Whether others are told, after a while, that it keeps the server busy.
    pub runs_scripts: bool,
}

/// All units that run on threads of their own.
#[derive(Debug, Default)]
pub struct LongUnits(Mutex<Vec<Arc<HeldSlots>>>);

impl LongUnits {
    /// One begins; it ends when what is returned is dropped.
    pub(crate) fn begin(&self, since_us: u64, runs_scripts: bool) -> Holding<'_> {
        let held = Arc::new(HeldSlots::new(since_us, runs_scripts));
        self.0.lock().push(held.clone());
        Holding { units: self, held }
    }

    /// Who holds a slot.
    pub fn holder(&self, slot: SlotId) -> Option<Holder> {
        let units = self.0.lock();
        let holder = units.iter().find(|unit| unit.has(slot));
        holder.map(|unit| Holder { since_us: unit.since_us, runs_scripts: unit.runs_scripts })
    }
}

/// What those are told who need what a script keeps for too long.
pub(crate) fn busy_error(host: &dyn Host) -> CommandError {
    match host.scripts().longest() {
        Some(ScriptKind::Function) => CommandError::BusyFunction,
        _ => CommandError::Busy,
    }
}

/// A unit that runs on a thread of its own.
pub(crate) struct Holding<'u> {
    units: &'u LongUnits,
    held: Arc<HeldSlots>,
}

impl Holding<'_> {
    /// Where it shows which slots it holds.
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

/// What became of a [`LongUnit`].
#[derive(Debug)]
pub struct LongReply {
    /// The session of the client, as the command has left it.
    pub session: Session,
    /// The bytes of the reply.
    pub reply: Vec<u8>,
    /// What the reply waits for.
    pub gate: lsn::Lsn,
}

impl Executor {
    /// From now on other clients wait while it executes: it returns [`Outcome::Long`] for what takes long. The clock is the
    /// one of the host.
    pub fn share_thread(&mut self, clock: ClockUs) {
        self.scripting.place = Place::Worker(clock);
    }

    /// From now on it executes what others have handed over: nobody waits for its thread.
    pub fn own_thread(&mut self) {
        self.scripting.place = Place::OwnThread;
    }

    /// After [`Outcome::Long`]: takes what another thread needs to execute the command. What stays in `session` stands in for it
    /// until the reply [comes back](Session::come_back).
    pub fn hand_over(&mut self, call: Call<'_>, session: &mut Session) -> LongUnit {
        LongUnit {
            args: call.args.into(),
            session: session.go_away(),
            script: self.scripting.handed_over.take(),
        }
    }

    /// Executes what was handed over. Each time that the log has no room, or somebody has a slot, `pause` is called with a number of
    /// milliseconds, and the command is tried again, in a round with the time that `now_ms` tells.
    pub fn execute_long(
        &mut self,
        unit: LongUnit,
        host: &dyn Host,
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

    /// What was handed over does not run any more, and its machine goes with the executor.
    fn end_long(&mut self, host: &dyn Host) {
        self.forget_handed_over(host);
        self.stats().set_vm_bytes(0);
    }

    /// Tells the client of what was handed over that scripts keep the server busy.
    pub fn refuse_long(&mut self, unit: LongUnit, host: &dyn Host) -> LongReply {
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

    /// The script that was handed over does not run again, or has run.
    pub(crate) fn forget_handed_over(&mut self, host: &dyn Host) {
        if let Some(script) = self.scripting.handed_over.take() {
            host.scripts().forget(script);
        }
    }

    /// Runs `run`, which executes a command; on a thread of its own others can see meanwhile which slots it holds.
    pub(crate) fn holding_visibly<R>(
        &mut self,
        runs_scripts: bool,
        host: &dyn Host,
        run: impl FnOnce(&mut Executor) -> R,
    ) -> R {
        let since_us =
            self.scripting.handed_over.as_ref().map_or_else(|| host.monotonic_us(), |it| it.started_us);
        let holding = host.scripts().long_units.begin(since_us, runs_scripts);
        self.scratch.held_slots = Some(holding.held().clone());
        let outcome = run(self);
        self.scratch.held_slots = None;
        outcome
    }
}

impl Context<'_, '_> {
    /// Whether this unit may be handed over now: others wait for its thread, and all that it has done can be undone.
    pub fn may_be_handed_over(&self) -> bool {
        self.scripting.as_deref().is_some_and(|scripting| scripting.hands_over())
            && (!self.in_transaction || self.unit.can_undo())
    }

    /// Before a command that walks over all that its keys hold, or has many arguments.
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

    /// For how many elements this unit may do something now: without bound where it cannot be handed over.
    #[inline]
    pub fn elements_max(&self) -> ElementsMax {
        ElementsMax(if self.may_be_handed_over() { LONG_ELEMENTS } else { usize::MAX })
    }

    /// To be called before the first change, and before the first byte of the reply, by commands that take long: has the unit
    /// handed over if that is possible.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[cold]
    pub fn require_own_thread(&self) -> Result<(), CommandError> {
        if self.may_be_handed_over() { Err(CommandError::NeedsOwnThread) } else { Ok(()) }
    }
}
