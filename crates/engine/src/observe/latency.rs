//! LATENCY: a short history of events whose durations reached a threshold, by kind of event.
//!
//! This module keeps, per event, the worst value of each second in which the threshold was reached. It keeps
//! no distribution of durations: `stats` does, and is always on.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

/// The maximum number of samples kept per event, as in Redis; the oldest are dropped.
const SAMPLES_MAX: usize = 160;

/// The kinds of events that can take long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyEvent {
    /// A command that may be slow by itself.
    Command,
    /// A command that takes constant or logarithmic time.
    FastCommand,
    /// A cycle that removes expired keys.
    ExpireCycle,
    /// Evicting keys to make room.
    EvictionCycle,
    /// Making a batch of the log durable.
    LogSync,
}

impl LatencyEvent {
    /// All events, in the order of their discriminants.
    pub const ALL: [LatencyEvent; 5] = [
        LatencyEvent::Command,
        LatencyEvent::FastCommand,
        LatencyEvent::ExpireCycle,
        LatencyEvent::EvictionCycle,
        LatencyEvent::LogSync,
    ];

    /// The event's name in LATENCY.
    pub const fn name(self) -> &'static str {
        match self {
            LatencyEvent::Command => "command",
            LatencyEvent::FastCommand => "fast-command",
            LatencyEvent::ExpireCycle => "expire-cycle",
            LatencyEvent::EvictionCycle => "eviction-cycle",
            LatencyEvent::LogSync => "log-sync",
        }
    }

    /// The event of this name, in upper or lower case; `None` for other names.
    pub fn parse(name: &[u8]) -> Option<LatencyEvent> {
        LatencyEvent::ALL.into_iter().find(|event| event.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The worst value of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The second, as unix time.
    pub unix_s: u64,
    /// The longest duration in that second, in milliseconds.
    pub ms: u64,
}

/// The history of one event.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The samples, at most one a second, the oldest first.
    pub samples: VecDeque<Sample>,
    /// The worst value since the series was reset, in milliseconds.
    pub max_ms: u64,
}

/// The history of all events that reached the threshold.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    /// 0 turns the monitor off.
    threshold_ms: AtomicU64,
    series: Mutex<[Series; LatencyEvent::ALL.len()]>,
}

impl LatencyMonitor {
    /// Sets the threshold: events that take this long or longer are recorded; 0: none.
    pub fn set_threshold_ms(&self, threshold_ms: u64) {
        self.threshold_ms.store(threshold_ms, Relaxed);
    }

    /// Whether the threshold is above 0, so that slow events are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.threshold_ms.load(Relaxed) > 0
    }

    /// Records an event that has just ended, if it reached the threshold.
    #[inline]
    pub fn took(&self, event: LatencyEvent, usec: u64, now_ms: u64) {
        let threshold_ms = self.threshold_ms.load(Relaxed);
        if threshold_ms > 0 && usec / 1000 >= threshold_ms {
            self.add(event, Sample { unix_s: now_ms / 1000, ms: usec / 1000 });
        }
    }

    #[cold]
    fn add(&self, event: LatencyEvent, sample: Sample) {
        let series = &mut self.series.lock()[event as usize];
        series.max_ms = series.max_ms.max(sample.ms);
        match series.samples.back_mut() {
            // Workers see a second begin at slightly different times.
            Some(last) if last.unix_s >= sample.unix_s => last.ms = last.ms.max(sample.ms),
            _ => {
                if series.samples.len() == SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back(sample);
            }
        }
    }

    /// The history of an event.
    pub fn series(&self, event: LatencyEvent) -> Series {
        self.series.lock()[event as usize].clone()
    }

    /// The events with samples, and their histories.
    pub fn noted(&self) -> Vec<(LatencyEvent, Series)> {
        let all = LatencyEvent::ALL.into_iter().map(|event| (event, self.series(event)));
        all.filter(|(_, series)| !series.samples.is_empty()).collect()
    }

    /// Forgets the history of an event. Returns whether there were samples of the event.
    pub fn reset(&self, event: LatencyEvent) -> bool {
        !std::mem::take(&mut self.series.lock()[event as usize]).samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(monitor: &LatencyMonitor, event: LatencyEvent) -> Vec<(u64, u64)> {
        monitor.series(event).samples.iter().map(|sample| (sample.unix_s, sample.ms)).collect()
    }

    #[test]
    fn a_second_is_one_sample_of_events_at_or_above_the_threshold() {
        let monitor = LatencyMonitor::default();
        let command = LatencyEvent::Command;
        monitor.took(command, 1_000_000, 5_000);
        assert!(samples(&monitor, command).is_empty(), "off");
        monitor.set_threshold_ms(10);
        for (usec, now_ms) in
            [(9_999, 5_000), (10_000, 5_000), (12_000, 5_900), (11_000, 5_950), (30_000, 7_000)]
        {
            monitor.took(command, usec, now_ms);
        }
        monitor.took(command, 40_000, 6_999);
        assert_eq!(samples(&monitor, command), [(5, 12), (7, 40)]);
        assert_eq!(monitor.series(command).max_ms, 40);
        assert!(samples(&monitor, LatencyEvent::LogSync).is_empty());
        assert!(monitor.reset(command) && !monitor.reset(command));
        assert_eq!(monitor.series(command).max_ms, 0);
    }

    #[test]
    fn the_history_is_bounded_and_its_maximum_outlives_it() {
        let monitor = LatencyMonitor::default();
        monitor.set_threshold_ms(1);
        monitor.took(LatencyEvent::LogSync, 99_000, 0);
        for second in 1..=SAMPLES_MAX as u64 {
            monitor.took(LatencyEvent::LogSync, 1_000, second * 1000);
        }
        let (kept, series) =
            (samples(&monitor, LatencyEvent::LogSync), monitor.series(LatencyEvent::LogSync));
        assert_eq!((kept.len(), kept[0], series.max_ms), (SAMPLES_MAX, (1, 1), 99));
    }
}
