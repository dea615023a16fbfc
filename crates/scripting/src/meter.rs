//! The limits of a script, and requests to stop it.
//!
//! A script asks regularly whether it may continue. A hook of Lua asks after at most
//! [`INSTRUCTIONS_PER_QUESTION`] instructions; `vm::questions` decides after how many. The functions of this
//! crate ask after as many steps, or after bytes that take as long. If another thread has requested a stop,
//! or the deadline has passed, the script stops at its next question.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

/// The maximum number of instructions between two questions. So many plain instructions take some tens of
/// microseconds.
pub(crate) const INSTRUCTIONS_PER_QUESTION: u32 = 4096;

/// The number of bytes that can be produced in about the time of one instruction.
const BYTES_PER_INSTRUCTION: usize = 64;

/// The minimum number of bytes that are counted. Fewer bytes take hardly longer than the instructions of the
/// call itself.
const COUNTED_BYTES_MIN: usize = 1024;

/// The limits of one script: memory and instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum bytes of the machine's memory, including all that is kept between scripts.
    pub memory_bytes_max: usize,
    /// The maximum number of instructions of one run; 0 for no limit.
    pub instructions_max: u64,
}

/// Why a script was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// The script was killed by a user.
    Killed = 1,
    /// The script has executed more instructions than are allowed, or a library has taken too long to load.
    TooLong,
    /// The host will run the script again under other conditions.
    Retry,
    /// The script has reached its deadline, or the host stops it to run it on another thread.
    Overtime,
    /// The script kept a replica from applying the log of its leader.
    HeldReplication,
    /// The host ends: the server stops, or changes its role.
    HostEnds,
}

impl Stop {
    const ALL: [Stop; 6] =
        [Stop::Killed, Stop::TooLong, Stop::Retry, Stop::Overtime, Stop::HeldReplication, Stop::HostEnds];

    /// Whether the script is stopped from outside and will not be run again.
    pub fn is_final(self) -> bool {
        matches!(self, Stop::Killed | Stop::HeldReplication | Stop::HostEnds)
    }
}

/// A monotonic clock, in microseconds.
pub type ClockUs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Counts the instructions of a script and carries requests to stop it. Clones share their state with the
/// threads that may stop the script.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<MeterState>);

#[derive(Default)]
struct MeterState {
    stop: AtomicU8,
    instructions: AtomicU64,
    instructions_max: AtomicU64,
    /// Microseconds of the clock; 0 for none.
    deadline_us: AtomicU64,
    clock: Option<ClockUs>,
}

impl fmt::Debug for MeterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeterState").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Meter {
    /// A meter whose scripts may have a deadline.
    pub fn with_clock(clock: ClockUs) -> Meter {
        Meter(Arc::new(MeterState { clock: Some(clock), ..MeterState::default() }))
    }

    /// Sets the time at which the script is stopped with [`Stop::Overtime`]. The next [reset](Meter::reset)
    /// removes this deadline. Has no effect on a meter without a clock.
    pub fn stop_at(&self, deadline_us: u64) {
        self.0.deadline_us.store(deadline_us.max(1), Relaxed);
    }

    /// The time of the clock; `None` without a clock.
    pub(crate) fn now_us(&self) -> Option<u64> {
        self.0.clock.as_ref().map(|clock| clock())
    }

    /// The time at which the script is stopped; `None` for never.
    fn deadline_us(&self) -> Option<u64> {
        let deadline_us = self.0.deadline_us.load(Relaxed);
        (deadline_us > 0 && self.0.clock.is_some()).then_some(deadline_us)
    }

    /// Stops the script at its next question. The first reason counts, except that a [final](Stop::is_final)
    /// one replaces reasons after which a script is run again.
    pub fn stop(&self, why: Stop) {
        let runs_again = |now| now == Stop::Retry as u8 || now == Stop::Overtime as u8;
        let counts = |now| now == 0 || why.is_final() && runs_again(now);
        let _ = self.0.stop.fetch_update(Relaxed, Relaxed, |now| counts(now).then_some(why as u8));
    }

    /// Why the script must stop; `None` if it may go on.
    pub fn stopped(&self) -> Option<Stop> {
        let why = self.0.stop.load(Relaxed);
        Stop::ALL.into_iter().find(|stop| *stop as u8 == why)
    }

    /// Whether both are clones of one meter.
    pub fn is(&self, other: &Meter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Clears the stop request and the deadline of the previous script. The host must call this before other
    /// threads know of the next script, because their requests count from then on.
    pub fn reset(&self) {
        self.0.stop.store(0, Relaxed);
        self.0.deadline_us.store(0, Relaxed);
    }

    /// Starts counting for a run. An earlier request to stop stays in force.
    pub(crate) fn begin(&self, instructions_max: u64) {
        self.0.instructions.store(0, Relaxed);
        self.0.instructions_max.store(instructions_max, Relaxed);
    }

    /// Counts instructions since the last question, and asks whether to go on. To be called only by the
    /// script's thread.
    pub(crate) fn count(&self, instructions: u32) -> mlua::Result<()> {
        let now_us = self.deadline_us().and_then(|_| self.now_us());
        self.count_at(instructions, now_us)
    }

    /// As [`Meter::count`], at this time of the clock.
    pub(crate) fn count_at(&self, instructions: u32, now_us: Option<u64>) -> mlua::Result<()> {
        let used = self.0.instructions.load(Relaxed) + u64::from(instructions);
        self.0.instructions.store(used, Relaxed);
        let max = self.0.instructions_max.load(Relaxed);
        if max != 0 && used > max {
            self.stop(Stop::TooLong);
        }
        if self.deadline_us().zip(now_us).is_some_and(|(deadline_us, now_us)| now_us >= deadline_us) {
            self.stop(Stop::Overtime);
        }
        self.leave()
    }

    /// Counts as many instructions as take the time in which `bytes` bytes are read or produced. Few bytes
    /// are not counted.
    #[inline]
    pub(crate) fn count_bytes(&self, bytes: usize) -> mlua::Result<()> {
        if bytes < COUNTED_BYTES_MIN {
            return Ok(());
        }
        self.count(u32::try_from(bytes / BYTES_PER_INSTRUCTION).unwrap_or(u32::MAX))
    }

    /// Fails if the script must stop.
    pub(crate) fn leave(&self) -> mlua::Result<()> {
        match self.stopped() {
            None => Ok(()),
            Some(_) => Err(mlua::Error::runtime("script stopped")),
        }
    }
}

/// Counts the steps of a long library function as instructions.
#[derive(Debug)]
pub(crate) struct Steps<'m> {
    meter: &'m Meter,
    left: u32,
}

impl<'m> Steps<'m> {
    pub(crate) fn new(meter: &'m Meter) -> Steps<'m> {
        Steps { meter, left: INSTRUCTIONS_PER_QUESTION }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> mlua::Result<()> {
        self.left -= 1;
        if self.left == 0 {
            self.left = INSTRUCTIONS_PER_QUESTION;
            return self.meter.count(INSTRUCTIONS_PER_QUESTION);
        }
        Ok(())
    }

    /// Counts this many bytes that a step reads or produces. The step itself is counted by [`Steps::step`].
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: usize) -> mlua::Result<()> {
        self.meter.count_bytes(bytes)
    }

    /// Asks at once whether to continue, before a step that can itself take long.
    pub(crate) fn ask(&mut self) -> mlua::Result<()> {
        self.meter.count(1)
    }
}
