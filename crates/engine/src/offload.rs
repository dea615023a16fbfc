//! Offloading: a long unit moves to a thread of its own, and is executed there. The rules are in
//! `long_units`.

use scripting::ClockUs;
use wire::OwnedArgs;

use crate::{
    Call, CommandError, Context, Executor, Flags, Host, Outcome, Row, Session,
    execute::{refuse, silence},
    long_units::{ElementsMax, LONG_ELEMENTS, ThreadRole, elements},
    row::Mobility,
    scripts::{OffloadedScript, ScriptKind},
};

/// The maximum time, in milliseconds, between two attempts at a command that waits on a thread of its own.
const PAUSE_MS_MAX: u64 = 20;

/// The BUSY error of a command that needs a slot or a thread which a script has had for too long.
pub(crate) fn busy_error(host: &Host) -> CommandError {
    match host.scripts.longest() {
        Some(ScriptKind::Function) => CommandError::BusyFunction,
        _ => CommandError::Busy,
    }
}

/// A command that is to run on a thread of its own, with the session of its client.
#[derive(Debug)]
pub struct LongUnit {
    args: OwnedArgs,
    session: Session,
    script: Option<OffloadedScript>,
}

/// The result of a [`LongUnit`], for the worker of its client.
#[derive(Debug)]
pub struct LongReply {
    /// The session of the client, as the command has left it.
    pub session: Session,
    /// The encoded reply; empty if the client gets none.
    pub reply: Vec<u8>,
    /// The position that must be committed before the reply may leave.
    pub gate: lsn::Lsn,
}

impl Executor {
    /// Notes that other clients share the thread from now on: [`Executor::execute`] returns [`Outcome::Long`]
    /// for commands that take long. The clock must be that of the host.
    pub fn share_thread(&mut self, clock: ClockUs) {
        self.scripting.place = ThreadRole::Worker(clock);
    }

    /// Notes that this executor runs offloaded units from now on, on a thread without other clients.
    pub fn own_thread(&mut self) {
        self.scripting.place = ThreadRole::OwnThread;
    }

    /// Takes the parts that another thread needs to execute a command, after [`Outcome::Long`]. A stand-in
    /// remains in `session` until the session [comes back](Session::return_from_thread).
    pub fn offload(&mut self, call: Call<'_>, session: &mut Session) -> LongUnit {
        LongUnit {
            args: call.args.into(),
            session: session.go_away(),
            script: self.scripting.offloaded.take(),
        }
    }

    /// Executes an offloaded unit. Each time that it cannot run now, `pause` is called with a number of
    /// milliseconds; then the command is tried again, in a round at the time `now_ms()`. If the client is
    /// killed meanwhile, the unit ends without having run, and the connection closes.
    pub fn execute_long(
        &mut self,
        unit: LongUnit,
        host: &Host,
        bulk_bytes_max: usize,
        now_ms: impl Fn() -> u64,
        mut pause: impl FnMut(u64),
    ) -> LongReply {
        let LongUnit { args, mut session, script } = unit;
        self.scripting.offloaded = script;
        let mut reply = Vec::new();
        loop {
            self.begin_round(now_ms(), host, bulk_bytes_max);
            let call = Call { args: args.as_args(), resolved: self.resolve(args.as_args(), None) };
            let outcome = self.execute(call, &mut session, host, &mut reply);
            self.end_round(host);
            match outcome {
                Outcome::Done { gate } => {
                    // A wait belongs to the worker of the client, and would be lost with its answer.
                    debug_assert!(session.wait.is_none(), "a unit that waits is not offloaded");
                    self.end_long(host);
                    return LongReply { session, reply, gate };
                }
                Outcome::Wait | Outcome::Long if session.client.is_killed() => {
                    self.end_long(host);
                    session.closing = true;
                    return LongReply { session, reply, gate: lsn::Lsn::ZERO };
                }
                Outcome::Wait | Outcome::Long => {
                    let pause_ms = session.pause_ms.clamp(1, PAUSE_MS_MAX);
                    session.end_pause(&host.clients);
                    pause(pause_ms);
                }
            }
        }
    }

    /// Forgets an offloaded unit that has ended. The script machine of the unit is freed with this executor.
    fn end_long(&mut self, host: &Host) {
        self.forget_offloaded(host);
        self.stats().set_vm_bytes(0);
    }

    /// Refuses an offloaded unit: its client gets the BUSY error.
    pub fn refuse_long(&mut self, unit: LongUnit, host: &Host) -> LongReply {
        let LongUnit { args, mut session, script } = unit;
        self.scripting.offloaded = script;
        self.forget_offloaded(host);
        let mut reply = Vec::new();
        let error = busy_error(host);
        match self.table.resolve_call(args.as_args()) {
            Ok(found) => self.reject(found, error, &mut session, &mut reply),
            Err(error) => refuse(&error, self.stats(), &session, &mut reply),
        };
        silence(&mut session, &mut reply, 0);
        LongReply { session, reply, gate: lsn::Lsn::ZERO }
    }

    /// Unregisters the script that was offloaded, because it has run or will not run again.
    pub(crate) fn forget_offloaded(&mut self, host: &Host) {
        if let Some(script) = self.scripting.offloaded.take() {
            host.scripts.forget(script);
        }
    }

    /// Runs `run`, which executes the command of a long unit. Other threads see the command's slots
    /// meanwhile.
    pub(crate) fn holding_visibly<R>(
        &mut self,
        runs_scripts: bool,
        host: &Host,
        run: impl FnOnce(&mut Executor) -> R,
    ) -> R {
        let since_us =
            self.scripting.offloaded.as_ref().map_or_else(|| host.monotonic_us(), |it| it.started_us);
        let holding = host.scripts.long_units.begin(since_us, runs_scripts);
        self.scratch.held_slots = Some(holding.held().clone());
        let outcome = run(self);
        self.scratch.held_slots = None;
        outcome
    }
}

impl Context<'_, '_> {
    /// Whether this unit may be offloaded now. The unit must run on a worker, whose thread other clients
    /// share, and be free to leave it. Within a transaction or a script, it must be possible to undo all
    /// changes so far.
    pub fn may_be_offloaded(&self) -> bool {
        self.scripting.as_deref().is_some_and(|scripting| scripting.offloads())
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

    /// How many elements this unit may process now: unlimited where it cannot be offloaded.
    #[inline]
    pub fn elements_max(&self) -> ElementsMax {
        ElementsMax(if self.may_be_offloaded() { LONG_ELEMENTS } else { usize::MAX })
    }

    /// Has the unit offloaded, if possible. To be called by long commands before their first change, and
    /// before the first byte of their reply.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[cold]
    pub fn require_own_thread(&self) -> Result<(), CommandError> {
        if self.may_be_offloaded() { Err(CommandError::NeedsOwnThread) } else { Ok(()) }
    }
}
