//! CLIENT PAUSE: for some time, the commands of clients wait.
//!
//! A worker reads the pause at the start of a round (one load while there is none). A command that is held
//! is tried again some milliseconds later, so the end of a pause, and CLIENT UNPAUSE, need no signal.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::Mutex;

use crate::{Flags, Row};

/// The longest time after which a held command is tried again.
const RETRY_MS_MAX: u64 = 20;

/// The commands that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// Those that may change data or publish messages, except those that [`Paused::All`] excepts.
    Writes,
    /// All, except those that begin or end a pause, and those between servers.
    All,
}

/// A pause in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The commands that wait.
    pub paused: Paused,
    /// Milliseconds until it ends.
    pub left_ms: u64,
}

impl Pause {
    /// Whether a command waits. `writes_queued`: it is an EXEC, and a queued command may change data or
    /// publish messages.
    pub(crate) fn holds(self, row: &Row, writes_queued: bool) -> bool {
        if row.flags.has(Flags::BETWEEN_SERVERS) || row.treatment.is_never_paused {
            return false;
        }
        match self.paused {
            Paused::All => true,
            Paused::Writes => writes_queued || may_change(row),
        }
    }

    /// When a held command is tried again.
    pub(crate) fn retry_ms(self) -> u64 {
        self.left_ms.clamp(1, RETRY_MS_MAX)
    }
}

/// Whether a command may change data or publish messages.
pub(crate) fn may_change(row: &Row) -> bool {
    let flags = row.flags;
    let runs_any = flags.has(Flags::RUNS_SCRIPTS) && !flags.has(Flags::READONLY);
    flags.has(Flags::WRITE) || flags.has(Flags::PUBLISHES) || runs_any
}

/// The pause of a server.
#[derive(Debug, Default)]
pub struct PauseSwitch {
    /// Unix milliseconds of its end, which may have passed; 0: there is no pause.
    ends_ms: AtomicU64,
    holds_all: AtomicBool,
    changing: Mutex<()>,
}

impl PauseSwitch {
    /// Begins a pause, or extends the one in force: it ends at the later time and holds what either holds.
    pub fn begin(&self, paused: Paused, ends_ms: u64, now_ms: u64) {
        let _changing = self.changing.lock();
        let old = self.at(now_ms);
        let holds_all = paused == Paused::All || old.is_some_and(|old| old.paused == Paused::All);
        self.holds_all.store(holds_all, Relaxed);
        let old_end_ms = old.map_or(0, |old| now_ms + old.left_ms);
        self.ends_ms.store(ends_ms.max(old_end_ms), Release);
    }

    /// Ends the pause.
    pub fn end(&self) {
        let _changing = self.changing.lock();
        self.ends_ms.store(0, Release);
    }

    /// The pause in force at this time, unix milliseconds.
    #[inline]
    pub fn at(&self, now_ms: u64) -> Option<Pause> {
        match self.ends_ms.load(Acquire) {
            0 => None,
            ends_ms => self.with_end(ends_ms, now_ms),
        }
    }

    #[cold]
    fn with_end(&self, ends_ms: u64, now_ms: u64) -> Option<Pause> {
        let left_ms = ends_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?;
        let paused = if self.holds_all.load(Relaxed) { Paused::All } else { Paused::Writes };
        Some(Pause { paused, left_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::samples;

    #[test]
    fn a_pause_ends_and_another_one_extends_it() {
        let switch = PauseSwitch::default();
        assert_eq!(switch.at(100), None);
        switch.begin(Paused::Writes, 200, 100);
        assert_eq!(switch.at(150), Some(Pause { paused: Paused::Writes, left_ms: 50 }));
        assert_eq!(switch.at(200), None);
        switch.begin(Paused::All, 300, 150);
        switch.begin(Paused::Writes, 250, 150);
        assert_eq!(
            switch.at(150),
            Some(Pause { paused: Paused::All, left_ms: 150 }),
            "the stricter, the later"
        );
        switch.begin(Paused::Writes, 500, 400);
        assert_eq!(switch.at(400), Some(Pause { paused: Paused::Writes, left_ms: 100 }));
        switch.end();
        assert_eq!(switch.at(400), None);
    }

    #[test]
    fn commands_are_held_by_what_they_may_do() {
        let row = |name: &str| samples::table().resolve(name.as_bytes()).expect("a row");
        let (writes, all) = (Paused::Writes, Paused::All);
        let holds = |paused, name: &str| Pause { paused, left_ms: 5 }.holds(row(name), false);
        assert!(!holds(writes, "get") && holds(all, "get"));
        assert!(Pause { paused: writes, left_ms: 5 }.holds(row("get"), true));
        assert_eq!(Pause { paused: all, left_ms: 5_000 }.retry_ms(), RETRY_MS_MAX);
    }
}
