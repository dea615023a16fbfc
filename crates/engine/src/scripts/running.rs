//! The scripts and functions that run now: for SCRIPT KILL, FUNCTION KILL and the BUSY error.

use parking_lot::Mutex;
use scripting::{Meter, Stop};
use wire::OwnedArgs;

/// The scripts that run now, or are being offloaded to another thread.
#[derive(Debug, Default)]
pub(super) struct RunningScripts(Mutex<Vec<Running>>);

#[derive(Debug)]
struct Running {
    started_us: u64,
    meter: Meter,
    /// The function that runs; `None` for a script.
    function: Option<RunningFunction>,
    /// Whether [`RunningScripts::take_slow`] has reported the script.
    is_reported: bool,
}

impl Running {
    fn kind(&self) -> ScriptKind {
        if self.function.is_some() { ScriptKind::Function } else { ScriptKind::Script }
    }
}

/// A function that runs, as FUNCTION STATS shows it.
#[derive(Debug, Clone)]
pub struct RunningFunction {
    /// The name of the function, as registered.
    pub name: Box<[u8]>,
    /// The command that the client has sent.
    pub command: OwnedArgs,
}

/// The kind of code that runs: SCRIPT KILL and FUNCTION KILL each end one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script of EVAL, EVALSHA or their variants.
    Script,
    /// A function called by FCALL or its variant.
    Function,
}

/// The result of SCRIPT KILL or FUNCTION KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// At least one script or function was killed.
    Done,
    /// Nothing of this kind runs, and nothing of the other kind keeps the server busy.
    Nothing,
    /// Nothing of this kind runs, but a script or function of the other kind keeps the server busy.
    Other,
}

impl RunningScripts {
    pub(super) fn begin(&self, started_us: u64, meter: Meter, function: Option<RunningFunction>) {
        self.0.lock().push(Running { started_us, meter, function, is_reported: false });
    }

    pub(super) fn end(&self, meter: &Meter) {
        self.0.lock().retain(|running| !running.meter.is(meter));
    }

    /// Has another meter stop the script from now on. A [final](Stop::is_final) stop through the old meter is
    /// carried over.
    pub(super) fn move_to(&self, meter: &Meter, other: &Meter) {
        let mut running = self.0.lock();
        if let Some(why) = meter.stopped().filter(|why| why.is_final()) {
            other.stop(why);
        }
        running.iter_mut().filter(|it| it.meter.is(meter)).for_each(|it| it.meter = other.clone());
    }

    pub(super) fn stop_all(&self, why: Stop) {
        self.0.lock().iter().for_each(|running| running.meter.stop(why));
    }

    /// Stops all that began at `before_us` or earlier. Returns how many.
    pub(super) fn stop_older(&self, before_us: u64, why: Stop) -> usize {
        let running = self.0.lock();
        let older = || running.iter().filter(|running| running.started_us <= before_us);
        older().for_each(|running| running.meter.stop(why));
        older().count()
    }

    /// The kinds of the scripts that began at `before_us` or earlier. Each script is reported once.
    pub(super) fn take_slow(&self, before_us: u64) -> Vec<ScriptKind> {
        let mut running = self.0.lock();
        let slow = running.iter_mut().filter(|it| it.started_us <= before_us && !it.is_reported);
        slow.map(|running| {
            running.is_reported = true;
            running.kind()
        })
        .collect()
    }

    /// The kind of the script or function that has run for longest.
    pub(super) fn longest(&self) -> Option<ScriptKind> {
        let running = self.0.lock();
        running.iter().min_by_key(|running| running.started_us).map(Running::kind)
    }

    /// The function that has run for longest, and when it began.
    pub(super) fn function(&self) -> Option<(RunningFunction, u64)> {
        let running = self.0.lock();
        let functions = running.iter().filter_map(|it| Some((it.function.as_ref()?, it.started_us)));
        functions.min_by_key(|(_, started_us)| *started_us).map(|(function, us)| (function.clone(), us))
    }

    /// Kills the script of this kind that has run for longest, and all of this kind that began at `before_us`
    /// or earlier.
    pub(super) fn kill(&self, before_us: u64, kind: ScriptKind) -> Kill {
        let running = self.0.lock();
        let of_kind = || running.iter().filter(|running| running.kind() == kind);
        let Some(oldest) = of_kind().map(|running| running.started_us).min() else {
            let is_busy = running.iter().any(|running| running.started_us <= before_us);
            return if is_busy { Kill::Other } else { Kill::Nothing };
        };
        let ended = of_kind().filter(|running| running.started_us <= oldest.max(before_us));
        ended.for_each(|running| running.meter.stop(Stop::Killed));
        Kill::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_script_is_reported_once() {
        let running = RunningScripts::default();
        running.begin(10, Meter::default(), None);
        running.begin(20, Meter::default(), None);
        assert!(running.take_slow(9).is_empty());
        assert_eq!(running.take_slow(10), [ScriptKind::Script]);
        assert!(running.take_slow(10).is_empty());
        assert_eq!(running.take_slow(20), [ScriptKind::Script], "the other one");
    }

    #[test]
    fn a_kill_ends_the_oldest_script_and_all_overdue_ones() {
        let (running, kind) = (RunningScripts::default(), ScriptKind::Script);
        assert_eq!(running.kill(0, kind), Kill::Nothing);
        let meters = [Meter::default(), Meter::default(), Meter::default()];
        for (meter, started_us) in meters.iter().zip([30, 10, 20]) {
            running.begin(started_us, meter.clone(), None);
        }
        let stopped = || [0, 1, 2].map(|index: usize| meters[index].stopped().is_some());
        assert_eq!(running.kill(0, kind), Kill::Done);
        assert_eq!(stopped(), [false, true, false]);
        running.end(&meters[1]);
        assert_eq!(running.kill(25, kind), Kill::Done);
        assert_eq!(stopped(), [false, true, true]);
        meters.iter().for_each(|meter| running.end(meter));
        assert_eq!(running.kill(u64::MAX, kind), Kill::Nothing);
    }

    #[test]
    fn a_kill_reaches_a_script_that_moves_between_threads() {
        let (running, kind) = (RunningScripts::default(), ScriptKind::Script);
        let meters = [Meter::default(), Meter::default(), Meter::default()];
        running.begin(10, meters[0].clone(), None);
        running.move_to(&meters[0], &meters[1]);
        assert_eq!(running.kill(0, kind), Kill::Done);
        assert_eq!((meters[0].stopped(), meters[1].stopped()), (None, Some(Stop::Killed)));
        running.move_to(&meters[1], &meters[2]);
        assert_eq!(meters[2].stopped(), Some(Stop::Killed));
        running.end(&meters[2]);
        assert_eq!(running.kill(0, kind), Kill::Nothing);
    }
}
