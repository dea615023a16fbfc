//! The scripts that clients may call by hash. Shared by all workers.

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

use keyspace::SlotId;
use parking_lot::RwLock;
use rapidhash::fast::RandomState;
use scripting::{Meter, ScriptError, Sha, Source, Stop, Traits};

use super::{
    ScriptSettings,
    running::{Kill, RunningFunction, RunningScripts, ScriptKind},
};
use crate::{
    error::LockContended,
    long_units::{Holder, LongUnits},
};

/// Scripts kept from EVAL: above this number the oldest is forgotten, as in Redis. Scripts of SCRIPT LOAD are
/// kept until SCRIPT FLUSH.
const EVALUATED_MAX: usize = 500;

/// Bounds of the retry delay of a command that needs a slot of a long unit: it is retried after a tenth of
/// the time that the unit has run. Many such commands must not keep a worker busy with retries.
const RETRY_MS_MIN: u64 = 5;
const RETRY_MS_MAX: u64 = 100;

/// The interval after which one more command waits in line for a slot of a long unit.
const WAIT_EVERY_US: u64 = 5000;

/// A script that EVALSHA can name.
#[derive(Debug)]
pub struct Script {
    /// The SHA-1 of `source`.
    pub sha: Sha,
    /// The whole source, with the shebang line.
    pub source: Box<[u8]>,
    /// The flags of its shebang line.
    pub traits: Traits,
    /// The offset of the code in `source`.
    body_start: usize,
}

impl Script {
    /// Parses the first line of a source.
    pub fn new(source: &[u8]) -> Result<Script, ScriptError> {
        let Source { traits, body } = Source::of_script(source)?;
        let body_start = source.len() - body.len();
        Ok(Script { sha: Sha::of(source), source: source.into(), traits, body_start })
    }

    /// The code to compile: the source without its shebang line.
    pub fn body(&self) -> &[u8] {
        &self.source[self.body_start..]
    }
}

/// The script cache of the server, and the registry of running scripts.
#[derive(Debug, Default)]
pub struct Scripts {
    /// The settings for scripts and functions: limits, and when clients get BUSY.
    pub settings: ScriptSettings,
    cache: RwLock<Cache>,
    /// Incremented each time that all scripts are forgotten.
    generation: AtomicU64,
    running: RunningScripts,
    /// The units on threads of their own, with scripts or without.
    pub long_units: LongUnits,
    /// The time from which on a command may wait in line for a slot of a long unit.
    next_wait_us: AtomicU64,
    /// Whether the server is stopping, and with it every script.
    closed: AtomicBool,
}

/// A running script. Dropping this value unregisters the script.
pub struct Run<'s> {
    scripts: &'s Scripts,
    meter: Meter,
    started_us: u64,
}

/// A script that was stopped to run again, from its start and perhaps on another thread. The script stays
/// registered: a kill in between is in effect when it runs again.
#[derive(Debug)]
pub struct OffloadedScript {
    meter: Meter,
    /// The start of the script's first run, in monotonic microseconds.
    pub started_us: u64,
}

impl Run<'_> {
    /// Ends this run of a script that will run again, and keeps the script registered.
    pub fn offload(self) -> OffloadedScript {
        let meter = Meter::default();
        self.scripts.running.move_to(&self.meter, &meter);
        OffloadedScript { meter, started_us: self.started_us }
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
    /// Scripts from EVAL, the oldest first.
    evaluated: VecDeque<Sha>,
    source_bytes: u64,
}

#[derive(Debug)]
struct Kept {
    script: Arc<Script>,
    /// Whether SCRIPT LOAD has loaded the script.
    is_loaded: bool,
}

impl Scripts {
    /// The script with this hash, from SCRIPT LOAD or from EVAL; `None` if no such script is kept.
    pub fn find(&self, sha: Sha) -> Option<Arc<Script>> {
        self.cache.read().scripts.get(&sha).map(|kept| kept.script.clone())
    }

    /// Keeps a script, which must compile.
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

    /// Forgets all scripts (SCRIPT FLUSH).
    pub fn flush(&self) {
        *self.cache.write() = Cache::default();
        self.generation.fetch_add(1, Relaxed);
    }

    /// How often all scripts were forgotten: a machine that has compiled scripts of an earlier generation
    /// drops them.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Registers a script that begins at this time of the monotonic clock, in microseconds; dropping the
    /// result unregisters the script. Other clients can kill the script from here on. `function` is given if
    /// the script is a function, `before` if the script has run before.
    pub fn begin(
        &self,
        now_us: u64,
        meter: &Meter,
        function: Option<RunningFunction>,
        before: Option<OffloadedScript>,
    ) -> Run<'_> {
        meter.reset();
        let started_us = before.as_ref().map_or(now_us, |before| before.started_us);
        match before {
            Some(before) => self.running.move_to(&before.meter, meter),
            None => self.running.begin(now_us, meter.clone(), function),
        }
        // This load follows the registration, so that it sees `closed`, or else `close` sees the script.
        if self.closed.load(SeqCst) {
            meter.stop(Stop::HostEnds);
        }
        Run { scripts: self, meter: meter.clone(), started_us }
    }

    /// Unregisters a script that does not run again.
    pub(crate) fn forget(&self, script: OffloadedScript) {
        self.running.end(&script.meter);
    }

    /// Stops all running scripts, and those that begin later.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.running.stop_all(Stop::HostEnds);
    }

    /// Ends all scripts that began at this time of the monotonic clock, in microseconds, or earlier, because
    /// they keep a replica from applying the log. Returns how many.
    pub fn end_for_replication(&self, before_us: u64) -> usize {
        self.running.stop_older(before_us, Stop::HeldReplication)
    }

    /// The answer to a command whose slot is locked by another unit; `None`: the command waits, because no
    /// long unit holds the slot. BUSY names SCRIPT KILL as the way out, so no client gets BUSY before a
    /// script is registered. A unit may hold its slots long before that, while it compiles or runs other
    /// commands.
    pub(crate) fn hold_up(&self, slot: SlotId, now_us: u64) -> Option<LockContended> {
        let Holder { since_us, runs_scripts } = self.long_units.holder(slot)?;
        let (run_us, busy_after_us) = (now_us.saturating_sub(since_us), self.settings.busy_after_ms() * 1000);
        let is_busy = runs_scripts && busy_after_us > 0 && run_us >= busy_after_us && self.is_running();
        let later = LockContended::Later((run_us / 10_000).clamp(RETRY_MS_MIN, RETRY_MS_MAX));
        Some(if is_busy { LockContended::Busy } else { later })
    }

    /// Whether it is the caller's turn to wait in line for a slot of a long unit. Most callers only try the
    /// lock: a worker that waits serves no clients. With no waiter in line, the next script would get the
    /// slot again at once.
    pub(crate) fn may_wait(&self, now_us: u64) -> bool {
        let next_us = self.next_wait_us.load(Relaxed);
        let after_us = now_us + WAIT_EVERY_US;
        now_us >= next_us && self.next_wait_us.compare_exchange(next_us, after_us, Relaxed, Relaxed).is_ok()
    }

    /// Kills the script or function of this kind that has run for longest. Also kills all others of this kind
    /// that have run for `busy-reply-threshold` or longer; if that setting is 0, all others of this kind.
    pub fn kill(&self, now_us: u64, kind: ScriptKind) -> Kill {
        self.running.kill(now_us.saturating_sub(self.settings.busy_after_ms() * 1000), kind)
    }

    /// The kinds of the scripts and functions that have run for `busy-reply-threshold` or longer; none if
    /// that setting is 0. Each script or function is reported once.
    pub fn take_slow(&self, now_us: u64) -> Vec<ScriptKind> {
        match self.settings.busy_after_ms() * 1000 {
            0 => Vec::new(),
            busy_after_us => self.running.take_slow(now_us.saturating_sub(busy_after_us)),
        }
    }

    /// The kind of the script or function that has run for longest.
    pub fn longest(&self) -> Option<ScriptKind> {
        self.running.longest()
    }

    /// Whether any script or function runs now, or is being offloaded.
    pub fn is_running(&self) -> bool {
        self.longest().is_some()
    }

    /// The function that has run for longest, and when it began.
    pub fn running_function(&self) -> Option<(RunningFunction, u64)> {
        self.running.function()
    }

    /// The number of cached scripts, and the bytes of their sources.
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
    fn commands_on_a_slot_of_a_long_unit_are_retried_and_then_get_busy() {
        let scripts = Scripts::default();
        scripts.settings.set_busy_after(20);
        let (slot, other, begun_us) = (SlotId::FIRST, SlotId::LAST, 1_000_000);
        let holding = scripts.long_units.begin(begun_us, true);
        assert_eq!(scripts.hold_up(slot, begun_us), None);
        holding.held().add(slot);
        assert_eq!(scripts.hold_up(slot, begun_us), Some(LockContended::Later(RETRY_MS_MIN)));
        let (later, after) = (Some(LockContended::Later(RETRY_MS_MIN)), begun_us + 20_000);
        assert_eq!(scripts.hold_up(slot, after), later, "nobody could kill it yet");
        let _running = scripts.begin(begun_us, &Meter::default(), None, None);
        assert_eq!(scripts.hold_up(slot, after), Some(LockContended::Busy));
        assert_eq!(scripts.hold_up(other, after), None, "whatever else it holds");
        scripts.settings.set_busy_after(0);
        let later = |run_ms: u64| scripts.hold_up(slot, begun_us + run_ms * 1000);
        assert_eq!(later(200), Some(LockContended::Later(20)), "nobody is ever told");
        assert_eq!(later(1_000_000), Some(LockContended::Later(RETRY_MS_MAX)));
        drop(holding);
        assert_eq!(later(200), None);
        scripts.settings.set_busy_after(20);
        let holding = scripts.long_units.begin(begun_us, false);
        holding.held().add(slot);
        assert_eq!(later(200), Some(LockContended::Later(20)), "what runs no scripts keeps nobody busy");
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
        assert_eq!(meter.stopped(), Some(Stop::HostEnds), "none begins any more");
        drop(running);
    }
}
