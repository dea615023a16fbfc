//! Observation: the instruments that show an operator the commands that run, each at the lowest possible
//! cost.
//!
//! ```text
//!                        every command          every 32nd or so        slower than a threshold
//!  counters (stats) ------- x
//!  histograms ------------------------------------- x
//!  HOTKEYS ---------------------------------------- half of these
//!  SLOWLOG, LATENCY --------------------------------(x)---------------------- x
//!  traces -----------------------------------------(x), or any, if the share is large
//!  MONITOR ---------------- x, with any monitor
//! ```
//!
//! This module has the instruments that all workers share, and the rule for which commands are timed
//! ([`Watch`]). The commands that show them are in the families, the counters of each worker in `stats`.
//!
//! Invariants
//! - A command that is neither slow nor sampled costs one flag here, read once per round.
//! - Every instrument holds a bounded amount, which only settings can raise.
//! - No password is ever shown: the arguments of a command that has one come only through
//!   [`shown_args`](crate::shown_args::shown_args).

mod hot_keys;
mod latency;
mod slow_log;
mod traces;

pub(crate) use hot_keys::HotKeys;
pub use hot_keys::{COUNTERS as HOT_KEYS_MAX, HotKey};
pub use latency::{LatencyEvent, LatencyMonitor, Sample, Series};
pub use slow_log::{SlowEntry, SlowLog};
pub use traces::{TraceSink, TracedCommand, Traces};
pub(crate) use traces::{WAITING_MAX, error_code};

use crate::{Flags, Row};

/// The threshold of the slow log, in microseconds, below which every command is timed, not only those that
/// may take long.
const TIMES_ALL_BELOW_US: i64 = 1000;

/// The instruments of a server.
#[derive(Debug, Default)]
pub struct Observer {
    /// The newest slow commands, for SLOWLOG.
    pub slow_log: SlowLog,
    /// The history of slow events, for LATENCY.
    pub latency: LatencyMonitor,
    /// The choice of the commands that are traced, and the sink that takes them.
    pub traces: Traces,
}

/// The commands that are timed in a round, besides sampled ones.
///
/// Reading the clock twice costs a tenth of a GET. So as long as only slow commands can reach the thresholds,
/// only one in 32 fast commands is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Watch {
    /// No command is timed, except sampled ones.
    #[default]
    Nothing,
    /// Commands that may take long: those with neither FAST nor BRIEF.
    Slow,
    /// All commands are timed.
    All,
}

impl Watch {
    #[inline]
    pub(crate) fn includes(self, row: &Row) -> bool {
        match self {
            Watch::Nothing => false,
            Watch::Slow => !row.flags.has(Flags::FAST) && !row.flags.has(Flags::BRIEF),
            Watch::All => true,
        }
    }
}

impl Observer {
    pub(crate) fn watch(&self) -> Watch {
        let slower_than_us = self.slow_log.slower_than_us();
        if (0..TIMES_ALL_BELOW_US).contains(&slower_than_us)
            || self.latency.is_on()
            || self.traces.needs_all()
        {
            Watch::All
        } else if slower_than_us >= 0 {
            Watch::Slow
        } else {
            Watch::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_commands_follow_the_thresholds() {
        let observer = Observer::default();
        for (slower_than_us, watch) in [
            (-1, Watch::Nothing),
            (0, Watch::All),
            (999, Watch::All),
            (1000, Watch::Slow),
            (10_000, Watch::Slow),
        ] {
            observer.slow_log.configure(slower_than_us, 128);
            assert_eq!(observer.watch(), watch, "{slower_than_us}");
        }
        observer.latency.set_threshold_ms(100);
        assert_eq!(observer.watch(), Watch::All);
    }
}
