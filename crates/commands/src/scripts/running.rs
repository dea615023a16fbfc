//! The scripts and functions that run now: who may end them, and who is told that they keep the server busy.

use parking_lot::Mutex;
use scripting::{Meter, Stop};
use wire::OwnedArgs;

/// The scripts that run now, one for each worker at most.
#[derive(Debug, Default)]
pub(super) struct RunningScripts(Mutex<Vec<Running>>);

#[derive(Debug)]
struct Running {
    started_us: u64,
    meter: Meter,
    /// `None`: it is a script.
    function: Option<RunningFunction>,
}

impl Running {
    fn kind(&self) -> ScriptKind {
        if self.function.is_some() { ScriptKind::Function } else { ScriptKind::Script }
    }
}

/// A function that runs, as FUNCTION STATS shows it.
#[derive(Debug, Clone)]
pub(crate) struct RunningFunction {
    /// Its name.
    pub(crate) name: Box<[u8]>,
    /// What the client has sent.
    pub(crate) command: OwnedArgs,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    /// What came with EVAL.
    Script,
    /// What FCALL has called.
    Function,
}

/// What came of the wish to end a script or a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kill {
    /// It ends.
    Done,
    /// Nothing runs.
    Nothing,
    /// One of the other kind keeps the server busy.
    Other,
}

impl RunningScripts {
    /// A script or a function begins.
    pub(super) fn begin(&self, started_us: u64, meter: Meter, function: Option<RunningFunction>) {
        self.0.lock().push(Running { started_us, meter, function });
    }

    /// It has ended.
    pub(super) fn end(&self, meter: &Meter) {
        self.0.lock().retain(|running| !running.meter.is(meter));
    }

    /// Since when the first of them runs.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.0.lock().iter().map(|running| running.started_us).min()
    }

    /// Ends all.
    pub(super) fn kill_all(&self) {
        self.0.lock().iter().for_each(|running| running.meter.stop(Stop::Killed));
    }

    /// What the one is that has run for longest.
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

    /// Of this kind ends the one that has run for longest, and all that run since before then.
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
    fn the_oldest_is_ended_and_all_that_are_too_old() {
        let (running, kind) = (RunningScripts::default(), ScriptKind::Script);
        assert_eq!(running.kill(0, kind), Kill::Nothing);
        let meters = [Meter::default(), Meter::default(), Meter::default()];
        for (meter, started_us) in meters.iter().zip([30, 10, 20]) {
            running.begin(started_us, meter.clone(), None);
        }
        assert_eq!(running.first_us(), Some(10));
        let stopped = || [0, 1, 2].map(|index: usize| meters[index].stopped().is_some());
        assert_eq!(running.kill(0, kind), Kill::Done);
        assert_eq!(stopped(), [false, true, false]);
        running.end(&meters[1]);
        assert_eq!(running.kill(25, kind), Kill::Done);
        assert_eq!(stopped(), [false, true, true]);
        meters.iter().for_each(|meter| running.end(meter));
        assert_eq!(running.kill(u64::MAX, kind), Kill::Nothing);
        assert!(running.first_us().is_none());
    }
}
