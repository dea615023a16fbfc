//! When a script asks its meter whether it may continue.
//!
//! A hook of Lua asks after a number of instructions, which adapts to the time that they take: [`Pace`]. The
//! functions of this crate ask as well, after as many steps or bytes: see [`meter`](crate::meter).
//!
//! The time between two questions is bounded by the memory limit of the machine, not by a constant: one
//! instruction can copy, compare or convert a string of that size, and one call of Lua's own library can walk
//! through a string or a table of that size. While a script works on large values, about one such operation
//! lies between two questions. At worst, [`INSTRUCTIONS_PER_QUESTION`] instructions with such operations lie
//! between two questions: if the script is quick and small until a question, and makes and uses large values
//! from then on. After the next question the script asks more often.
//!
//! Invariant
//! - A thread of Lua counts its instructions from zero. So a script asks for each coroutine that it creates:
//!   otherwise short coroutines could follow each other without a question.

use std::{cell::Cell, rc::Rc};

use mlua::{Function, HookTriggers, Lua, Result, VmState};

use super::RUNNER;
use crate::{Meter, Stop, meter::INSTRUCTIONS_PER_QUESTION};

/// The maximum number of instructions before the first question. Many scripts execute fewer instructions, and
/// never ask.
const INSTRUCTIONS_AT_FIRST: u32 = 32;

/// The maximum number of instructions between two questions of a script with coroutines. It is smaller
/// because the hook can change its interval only for the main thread of a script: a coroutine keeps the
/// interval of the thread that created it.
const INSTRUCTIONS_PER_QUESTION_OF_COROUTINES: u32 = 256;

/// The maximum time between two questions, in microseconds, after which the number of instructions doubles.
const SHORT_US: u64 = 100;

/// The maximum product of two numbers: the instructions between two questions, and the bytes by which the
/// memory in use has grown in a run. So there are up to 4096 instructions with 512 KiB, and 128 with 16 MiB.
/// Without this bound, a script that has made a large table by quick instructions could execute thousands of
/// slow ones without a question.
const INSTRUCTIONS_TIMES_BYTES_MAX: usize = 1 << 31;

/// The number of instructions until the next question. The number doubles if the last instructions took a
/// short time, and becomes smaller in proportion if they took longer. It is small while the run uses much
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    instructions: u32,
    instructions_max: u32,
    /// The least memory in use at any question of the run.
    memory_bytes_min: usize,
    /// The time of the last question; `None` before the first.
    asked_us: Option<u64>,
}

impl Pace {
    fn new(instructions_max: u32) -> Pace {
        let instructions = INSTRUCTIONS_AT_FIRST.min(instructions_max);
        Pace { instructions, instructions_max, memory_bytes_min: usize::MAX, asked_us: None }
    }

    /// The pace after a question at this time, with this memory in use.
    fn after(self, now_us: u64, memory_bytes: usize) -> Pace {
        let memory_bytes_min = self.memory_bytes_min.min(memory_bytes);
        let grown_bytes = memory_bytes - memory_bytes_min;
        let by_memory = INSTRUCTIONS_TIMES_BYTES_MAX / grown_bytes.max(1);
        let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX).max(1);
        let by_time = match self.asked_us.map(|asked_us| now_us.saturating_sub(asked_us)) {
            None => self.instructions,
            Some(..=SHORT_US) => self.instructions.saturating_mul(2).min(self.instructions_max),
            // The result is smaller than the number of instructions, so it fits.
            Some(took_us) => (u64::from(self.instructions) * SHORT_US / took_us).max(1) as u32,
        };
        let instructions = by_time.min(by_memory);
        Pace { instructions, memory_bytes_min, asked_us: Some(now_us), ..self }
    }

    /// The pace of a script that has coroutines.
    fn with_coroutines(self) -> Pace {
        let instructions_max = self.instructions_max.min(INSTRUCTIONS_PER_QUESTION_OF_COROUTINES);
        Pace { instructions: self.instructions.min(instructions_max), instructions_max, ..self }
    }
}

/// The questions of the scripts of one machine. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    meter: Meter,
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pace: Cell<Pace>,
    /// The time at which a script is stopped with [`Stop::TooLong`], on the meter's clock, or on the host's
    /// if the meter has none.
    deadline_us: Cell<Option<u64>>,
}

impl Questions {
    /// Installs the hook by which Lua asks.
    pub(super) fn install(lua: &Lua, meter: &Meter) -> Result<Questions> {
        let shared =
            Shared { pace: Cell::new(Pace::new(INSTRUCTIONS_PER_QUESTION)), deadline_us: Cell::new(None) };
        let questions = Questions { meter: meter.clone(), shared: Rc::new(shared) };
        questions.set_hook(lua)?;
        Ok(questions)
    }

    /// Prepares a run without a deadline, with the usual bound on instructions.
    pub(super) fn begin(&self, lua: &Lua) -> Result<()> {
        self.begin_with(lua, Pace::new(INSTRUCTIONS_PER_QUESTION), None)
    }

    /// Prepares a run that asks at least every `instructions_max` instructions, and ends at `deadline_us`.
    pub(super) fn begin_until(&self, lua: &Lua, instructions_max: u32, deadline_us: u64) -> Result<()> {
        self.begin_with(lua, Pace::new(instructions_max), Some(deadline_us))
    }

    fn begin_with(&self, lua: &Lua, pace: Pace, deadline_us: Option<u64>) -> Result<()> {
        self.shared.deadline_us.set(deadline_us);
        let before = self.shared.pace.replace(pace);
        if before.instructions == pace.instructions { Ok(()) } else { self.set_hook(lua) }
    }

    /// Sets the hook of the running thread of Lua; in a hook, that of the main thread.
    fn set_hook(&self, lua: &Lua) -> Result<()> {
        let (questions, instructions) = (self.clone(), self.shared.pace.get().instructions);
        let triggers = HookTriggers::new().every_nth_instruction(instructions);
        lua.set_global_hook(triggers, move |lua, _| {
            questions.ask(lua, instructions).map(|()| VmState::Continue)
        })
    }

    /// The question of the hook, after this number of instructions.
    fn ask(&self, lua: &Lua, instructions: u32) -> Result<()> {
        let host_us = || RUNNER.is_set().then(|| RUNNER.with(|calls| calls.clock_us()));
        let now_us = self.meter.now_us().or_else(host_us);
        if let Some(now_us) = now_us {
            if self.shared.deadline_us.get().is_some_and(|deadline_us| now_us >= deadline_us) {
                self.meter.stop(Stop::TooLong);
            }
            let next = self.shared.pace.get().after(now_us, lua.used_memory());
            self.shared.pace.set(next);
            if next.instructions != instructions {
                self.set_hook(lua)?;
            }
        }
        self.meter.count_at(instructions, now_us)
    }

    /// The function that the prelude calls before it creates a coroutine, which takes over the hook of the
    /// thread that creates it.
    pub(super) fn before_coroutine(&self, lua: &Lua) -> Result<Function> {
        let questions = self.clone();
        lua.create_function(move |lua, ()| {
            let before = questions.shared.pace.get();
            let pace = before.with_coroutines();
            questions.shared.pace.set(pace);
            if pace.instructions_max != before.instructions_max {
                questions.set_hook(lua)?;
            }
            questions.meter.count(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_adapts_to_the_time_that_instructions_take() {
        let mut pace = Pace::new(INSTRUCTIONS_PER_QUESTION);
        let mut now_us = 1000;
        let mut ask = |us: u64| {
            now_us += us;
            pace = pace.after(now_us, 1000);
            pace.instructions
        };
        assert_eq!(ask(500), INSTRUCTIONS_AT_FIRST, "the time before the first question is unknown");
        assert_eq!([ask(0), ask(1), ask(SHORT_US)], [64, 128, 256]);
        assert_eq!([ask(0), ask(0), ask(0), ask(0), ask(0)], [512, 1024, 2048, 4096, 4096]);
        assert_eq!([ask(SHORT_US * 4), ask(SHORT_US * 1000)], [1024, 1], "in proportion, but at least one");
        assert_eq!([ask(SHORT_US * 1000), ask(0), ask(0)], [1, 2, 4]);
    }

    #[test]
    fn scripts_that_use_much_memory_ask_more_often() {
        let mut pace = Pace::new(INSTRUCTIONS_PER_QUESTION);
        let mut ask = |memory_mib: usize| {
            pace = pace.after(1, memory_mib << 20);
            pace.instructions
        };
        let at_begin = [ask(100), ask(100), ask(100), ask(100), ask(100)];
        assert_eq!(at_begin, [32, 64, 128, 256, 512], "memory in use before is not counted");
        assert_eq!([ask(16), ask(32), ask(16 + 256), ask(16)], [1024, 128, 8, 16]);
    }

    #[test]
    fn scripts_with_coroutines_ask_more_often() {
        let mut pace = Pace::new(INSTRUCTIONS_PER_QUESTION);
        assert_eq!(pace.with_coroutines().instructions, INSTRUCTIONS_AT_FIRST);
        pace.instructions = INSTRUCTIONS_PER_QUESTION;
        pace = pace.with_coroutines();
        assert_eq!(pace.instructions, INSTRUCTIONS_PER_QUESTION_OF_COROUTINES);
        assert_eq!(pace.after(1, 0).after(1, 0).instructions, INSTRUCTIONS_PER_QUESTION_OF_COROUTINES);
        assert_eq!(Pace::new(16).with_coroutines().after(1, 0).after(1, 0).instructions, 16);
    }
}
