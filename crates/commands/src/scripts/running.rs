//! The scripts that run now: who may end them, and who is told that they keep the server busy.

use parking_lot::Mutex;
use scripting::{Meter, Stop};

/// The scripts that run now, one for each worker at most.
#[derive(Debug, Default)]
pub(super) struct RunningScripts(Mutex<Vec<Running>>);

#[derive(Debug)]
struct Running {
    started_us: u64,
    meter: Meter,
}

impl RunningScripts {
    /// A script begins.
    pub(super) fn begin(&self, started_us: u64, meter: Meter) {
        self.0.lock().push(Running { started_us, meter });
    }

    /// It has ended.
    pub(super) fn end(&self, meter: &Meter) {
        self.0.lock().retain(|running| !running.meter.is(meter));
    }

    /// Whether one of them runs since before then.
    pub(super) fn any_before(&self, us: u64) -> bool {
        self.0.lock().iter().any(|running| running.started_us <= us)
    }

    /// Ends the one that has run for longest, and all that run since before then. Returns whether there was one.
    pub(super) fn kill(&self, before_us: u64) -> bool {
        let running = self.0.lock();
        let Some(oldest) = running.iter().map(|running| running.started_us).min() else { return false };
        let ended = running.iter().filter(|running| running.started_us <= oldest.max(before_us));
        ended.for_each(|running| running.meter.stop(Stop::Killed));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_ended_and_all_that_are_too_old() {
        let running = RunningScripts::default();
        assert!(!running.kill(0), "nothing runs");
        let meters = [Meter::default(), Meter::default(), Meter::default()];
        for (meter, started_us) in meters.iter().zip([30, 10, 20]) {
            running.begin(started_us, meter.clone());
        }
        assert!(running.any_before(10) && !running.any_before(9));
        let stopped = || [0, 1, 2].map(|index: usize| meters[index].stopped().is_some());
        assert!(running.kill(0));
        assert_eq!(stopped(), [false, true, false]);
        running.end(&meters[1]);
        assert!(running.kill(25));
        assert_eq!(stopped(), [false, true, true]);
        meters.iter().for_each(|meter| running.end(meter));
        assert!(!running.kill(u64::MAX));
    }
}
