//! What a script may use, and whether it must stop.
//!
//! The script asks for leave every so many instructions (a hook of the machine), and library functions that can run for
//! long ask every so many steps. Other threads may stop it between two questions, and so does its deadline.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

/// Instructions between two questions: some tens of microseconds.
pub(crate) const INSTRUCTIONS_PER_QUESTION: u32 = 4096;

/// Bytes that are made in about the time of an instruction.
const BYTES_PER_INSTRUCTION: usize = 64;

/// The limits of one script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the machine, in bytes, with everything that is kept between scripts.
    pub memory_bytes_max: usize,
    /// Instructions of one run; 0 for no limit.
    pub instructions_max: u64,
}

/// Why a script does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// Somebody has ended it.
    Killed = 1,
    /// It has used all instructions that it may.
    TooLong,
    /// Whoever runs it will run it again under other circumstances.
    Again,
    /// It has run up to its deadline.
    Overtime,
}

impl Stop {
    const ALL: [Stop; 4] = [Stop::Killed, Stop::TooLong, Stop::Again, Stop::Overtime];
}

/// Tells the time, in microseconds: a clock that only goes forward.
pub type ClockUs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// See the module documentation. Shared with those who may stop the script.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stop: AtomicU8,
    instructions: AtomicU64,
    instructions_max: AtomicU64,
    /// Microseconds of the clock; 0 for none.
    deadline_us: AtomicU64,
    clock: Option<ClockUs>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Meter {
    /// A meter whose scripts may have a deadline.
    pub fn with_clock(clock: ClockUs) -> Meter {
        Meter(Arc::new(Shared { clock: Some(clock), ..Shared::default() }))
    }

    /// From now until the next [reset](Meter::reset) what runs is stopped at this time, with [`Stop::Overtime`]. Without a clock
    /// it is not.
    pub fn stop_at(&self, deadline_us: u64) {
        self.0.deadline_us.store(deadline_us.max(1), Relaxed);
    }

    fn is_due(&self) -> bool {
        let deadline_us = self.0.deadline_us.load(Relaxed);
        deadline_us > 0 && self.0.clock.as_ref().is_some_and(|clock| clock() >= deadline_us)
    }

    /// Has the script stop at its next question. The first reason counts, but what somebody has ended is not run again.
    pub fn stop(&self, why: Stop) {
        let runs_again = |now| now == Stop::Again as u8 || now == Stop::Overtime as u8;
        let counts = |now| now == 0 || why == Stop::Killed && runs_again(now);
        let _ = self.0.stop.fetch_update(Relaxed, Relaxed, |now| counts(now).then_some(why as u8));
    }

    /// Why the script must stop, if it must.
    pub fn stopped(&self) -> Option<Stop> {
        let why = self.0.stop.load(Relaxed);
        Stop::ALL.into_iter().find(|stop| *stop as u8 == why)
    }

    /// Whether both are one.
    pub fn is(&self, other: &Meter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Forgets that the script before was to stop, and when. For who runs scripts, before others come to know of the next one: who stops
    /// it from then on is heard.
    pub fn reset(&self) {
        self.0.stop.store(0, Relaxed);
        self.0.deadline_us.store(0, Relaxed);
    }

    /// A run begins, unless it was stopped already.
    pub(crate) fn begin(&self, instructions_max: u64) {
        self.0.instructions.store(0, Relaxed);
        self.0.instructions_max.store(instructions_max, Relaxed);
    }

    /// About so many instructions were executed since the last question. Only the thread of the script asks.
    pub(crate) fn count(&self, instructions: u32) -> mlua::Result<()> {
        let used = self.0.instructions.load(Relaxed) + u64::from(instructions);
        self.0.instructions.store(used, Relaxed);
        let max = self.0.instructions_max.load(Relaxed);
        if max != 0 && used > max {
            self.stop(Stop::TooLong);
        }
        if self.is_due() {
            self.stop(Stop::Overtime);
        }
        self.leave()
    }

    /// So many bytes are about to be made by one instruction.
    pub(crate) fn count_bytes(&self, bytes: usize) -> mlua::Result<()> {
        self.count(u32::try_from(bytes / BYTES_PER_INSTRUCTION).unwrap_or(u32::MAX))
    }

    /// Whether to go on.
    pub(crate) fn leave(&self) -> mlua::Result<()> {
        match self.stopped() {
            None => Ok(()),
            Some(_) => Err(mlua::Error::runtime("script stopped")),
        }
    }
}

/// Counts the steps of a function that can run for long, as if they were instructions.
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

    /// Before a step that can itself take long.
    pub(crate) fn ask(&mut self) -> mlua::Result<()> {
        self.meter.count(1)
    }
}
