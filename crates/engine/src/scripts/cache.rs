//! The scripts that clients may call by name. Workers share them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use foldhash::fast::RandomState;
use keyspace::SlotId;
use parking_lot::RwLock;
use scripting::{Meter, ScriptError, Sha, Source, Stop, Traits};

use super::{
    ScriptSettings,
    running::{Kill, RunningFunction, RunningScripts, ScriptKind},
};
use crate::{
    long_units::{Holder, LongUnits},
    unit::Taken,
};

/// Scripts that came with EVAL and are kept: with more, the oldest are forgotten, as in Redis. Those of SCRIPT LOAD are kept
/// until SCRIPT FLUSH.
const EVALUATED_MAX: usize = 500;

/// Others do not wait for the slots of a long unit: they come back after a tenth of the time that it has run, within these bounds.
/// Many of them must not keep a worker busy with asking.
const RETRY_MS_MIN: u64 = 5;
const RETRY_MS_MAX: u64 = 100;

/// One command in so long waits in line for such a slot.
const WAIT_EVERY_US: u64 = 5000;

/// One script.
#[derive(Debug)]
pub struct Script {
    /// The SHA1 of its source.
    pub sha: Sha,
    /// Its source.
    pub source: Box<[u8]>,
    /// The flags of its shebang line.
    pub traits: Traits,
    /// Where the code begins.
    body_start: usize,
}

impl Script {
    /// Understands the first line of a source.
    pub fn new(source: &[u8]) -> Result<Script, ScriptError> {
        let Source { traits, body } = Source::of_script(source)?;
        let body_start = source.len() - body.len();
        Ok(Script { sha: Sha::of(source), source: source.into(), traits, body_start })
    }

    /// What is compiled.
    pub fn body(&self) -> &[u8] {
        &self.source[self.body_start..]
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Scripts {
    /// What holds for them.
    pub settings: ScriptSettings,
    cache: RwLock<Cache>,
    /// How often all were forgotten.
    generation: AtomicU64,
    running: RunningScripts,
    /// What runs on threads of its own, with scripts or without.
    pub long_units: LongUnits,
    /// From when on somebody may wait in line for a slot that a long unit has.
    next_wait_us: AtomicU64,
    /// The server ends, and so does every script.
    closed: AtomicBool,
}

/// A script that runs.
pub struct Run<'s> {
    scripts: &'s Scripts,
    meter: Meter,
    started_us: u64,
}

/// A script that was stopped to run again, from its start and perhaps on another thread: whoever ends it meanwhile has ended it.
#[derive(Debug)]
pub struct HandedOver {
    meter: Meter,
    /// When it began for the first time.
    pub started_us: u64,
}

impl Run<'_> {
    /// It will run again.
    pub fn hand_over(self) -> HandedOver {
        let meter = Meter::default();
        self.scripts.running.move_to(&self.meter, &meter);
        HandedOver { meter, started_us: self.started_us }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.scripts.running.end(&self.meter);
    }
}

#[derive(Debug, Default)]
struct Cache {
    scripts: HashMap<Sha, Kept, RandomState>,
    /// Those that came with EVAL, the oldest first.
    evaluated: VecDeque<Sha>,
    source_bytes: u64,
}

#[derive(Debug)]
struct Kept {
    script: Arc<Script>,
    /// By SCRIPT LOAD.
    is_loaded: bool,
}

impl Scripts {
    /// The script of this name.
    pub fn find(&self, sha: Sha) -> Option<Arc<Script>> {
        self.cache.read().scripts.get(&sha).map(|kept| kept.script.clone())
    }

    /// Keeps a script that compiles.
    pub fn keep(&self, script: Arc<Script>, is_loaded: bool) {
        let cache = &mut *self.cache.write();
        let sha = script.sha;
        if let Some(kept) = cache.scripts.get_mut(&sha) {
            if is_loaded && !kept.is_loaded {
                kept.is_loaded = true;
                cache.evaluated.retain(|other| *other != sha);
            }
            return;
        }
        cache.source_bytes += script.source.len() as u64;
        cache.scripts.insert(sha, Kept { script, is_loaded });
        if is_loaded {
            return;
        }
        cache.evaluated.push_back(sha);
        if cache.evaluated.len() > EVALUATED_MAX
            && let Some(oldest) = cache.evaluated.pop_front()
            && let Some(kept) = cache.scripts.remove(&oldest)
        {
            cache.source_bytes -= kept.script.source.len() as u64;
        }
    }

    /// Forgets all.
    pub fn flush(&self) {
        *self.cache.write() = Cache::default();
        self.generation.fetch_add(1, Relaxed);
    }

    /// How often all were forgotten: a machine that has compiled scripts of an earlier generation forgets them.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// A script begins to run at this time of the monotonic clock, in microseconds; it ends when what is returned is dropped.
    /// From here on it can be ended by others. `function`: it is one; `before`: it has run before.
    pub fn begin(
        &self,
        now_us: u64,
        meter: &Meter,
        function: Option<RunningFunction>,
        before: Option<HandedOver>,
    ) -> Run<'_> {
        meter.reset();
        let started_us = before.as_ref().map_or(now_us, |before| before.started_us);
        match before {
            Some(before) => self.running.move_to(&before.meter, meter),
            None => self.running.begin(now_us, meter.clone(), function),
        }
        // In this order, so that either this sees that it is closed, or who closes it sees the script.
        if self.closed.load(SeqCst) {
            meter.stop(Stop::Killed);
        }
        Run { scripts: self, meter: meter.clone(), started_us }
    }

    /// What was handed over does not run again.
    pub(crate) fn forget(&self, script: HandedOver) {
        self.running.end(&script.meter);
    }

    /// Ends all that run, and all that begin.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.running.kill_all();
    }

    /// What becomes of a command whose slot somebody has; `None`: it waits, because that is no long unit.
    pub(crate) fn hold_up(&self, slot: SlotId, now_us: u64) -> Option<Taken> {
        let Holder { since_us, runs_scripts } = self.long_units.holder(slot)?;
        let (run_us, busy_after_us) = (now_us.saturating_sub(since_us), self.settings.busy_after_ms() * 1000);
        let is_busy = runs_scripts && busy_after_us > 0 && run_us >= busy_after_us;
        let later = Taken::Later((run_us / 10_000).clamp(RETRY_MS_MIN, RETRY_MS_MAX));
        Some(if is_busy { Taken::Busy } else { later })
    }

    /// Whether this is the turn of who asks to wait in line for a slot that a long unit has. Most only look whether it is free: a
    /// worker that waits serves nobody. Without any in line the next script would have the slot again at once.
    pub(crate) fn may_wait(&self, now_us: u64) -> bool {
        let next_us = self.next_wait_us.load(Relaxed);
        let after_us = now_us + WAIT_EVERY_US;
        now_us >= next_us && self.next_wait_us.compare_exchange(next_us, after_us, Relaxed, Relaxed).is_ok()
    }

    /// Of scripts or of functions ends the one that has run for longest, and all that keep the server busy.
    pub fn kill(&self, now_us: u64, kind: ScriptKind) -> Kill {
        self.running.kill(now_us.saturating_sub(self.settings.busy_after_ms() * 1000), kind)
    }

    /// What keeps the server busy, or would: what has run for longest.
    pub fn longest(&self) -> Option<ScriptKind> {
        self.running.longest()
    }

    /// Whether any script or function runs.
    pub fn is_running(&self) -> bool {
        self.longest().is_some()
    }

    /// The function that has run for longest, and when it began.
    pub fn running_function(&self) -> Option<(RunningFunction, u64)> {
        self.running.function()
    }

    /// How many there are, and the bytes of their sources.
    pub fn figures(&self) -> (usize, u64) {
        let cache = self.cache.read();
        (cache.scripts.len(), cache.source_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(number: usize) -> Arc<Script> {
        Arc::new(Script::new(format!("return {number}").as_bytes()).expect("a script"))
    }

    #[test]
    fn scripts_of_eval_are_forgotten_before_they_are_too_many() {
        let scripts = Scripts::default();
        let loaded = script(usize::MAX);
        scripts.keep(loaded.clone(), false);
        scripts.keep(loaded.clone(), true);
        for number in 0..EVALUATED_MAX + 10 {
            scripts.keep(script(number), false);
        }
        assert_eq!(scripts.figures().0, EVALUATED_MAX + 1);
        assert!(scripts.find(loaded.sha).is_some() && scripts.find(script(0).sha).is_none());
        assert!(scripts.find(script(EVALUATED_MAX + 9).sha).is_some());
        scripts.flush();
        assert_eq!(scripts.figures(), (0, 0));
    }

    #[test]
    fn others_come_back_for_the_slot_of_a_long_unit_then_are_told() {
        let scripts = Scripts::default();
        scripts.settings.set_busy_after(20);
        let (slot, other, begun_us) = (SlotId::FIRST, SlotId::LAST, 1_000_000);
        let holding = scripts.long_units.begin(begun_us, true);
        assert_eq!(scripts.hold_up(slot, begun_us), None);
        holding.held().add(slot);
        assert_eq!(scripts.hold_up(slot, begun_us), Some(Taken::Later(RETRY_MS_MIN)));
        assert_eq!(scripts.hold_up(slot, begun_us + 20_000), Some(Taken::Busy));
        assert_eq!(scripts.hold_up(other, begun_us + 20_000), None, "whatever else it holds");
        scripts.settings.set_busy_after(0);
        let later = |run_ms: u64| scripts.hold_up(slot, begun_us + run_ms * 1000);
        assert_eq!(later(200), Some(Taken::Later(20)), "nobody is ever told");
        assert_eq!(later(1_000_000), Some(Taken::Later(RETRY_MS_MAX)));
        drop(holding);
        assert_eq!(later(200), None);
        scripts.settings.set_busy_after(20);
        let holding = scripts.long_units.begin(begun_us, false);
        holding.held().add(slot);
        assert_eq!(later(200), Some(Taken::Later(20)), "what runs no scripts keeps nobody busy");
        assert!(scripts.may_wait(7) && !scripts.may_wait(7 + WAIT_EVERY_US - 1));
        assert!(scripts.may_wait(7 + WAIT_EVERY_US));
    }

    #[test]
    fn a_script_that_was_killed_once_it_is_known_does_not_go_on() {
        let scripts = Scripts::default();
        let meter = Meter::default();
        drop(scripts.begin(0, &meter, None, None));
        meter.stop(Stop::Killed);
        let running = scripts.begin(0, &meter, None, None);
        assert_eq!(meter.stopped(), None, "what was said of the one before is forgotten");
        assert_eq!(scripts.kill(0, ScriptKind::Script), Kill::Done);
        assert_eq!(meter.stopped(), Some(Stop::Killed));
        drop(running);
        scripts.close();
        let running = scripts.begin(0, &meter, None, None);
        assert_eq!(meter.stopped(), Some(Stop::Killed), "none begins any more");
        drop(running);
    }
}
