//! Traces: which commands are traced, and the times of each.
//!
//! This module chooses commands, and knows the facts about a command when its reply may leave. It neither
//! makes nor exports spans: a [`TraceSink`] makes spans of these facts.
//!
//! Invariants
//! - Commands are chosen among those that are timed: tracing costs the others nothing.
//! - A traced command has neither keys nor values nor passwords: of its arguments, only their number is
//!   noted.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use keyspace::DbId;
use lsn::Lsn;

use crate::{Row, stats::TIMED_EVERY};

/// The share, in millionths, that stands for all commands.
const WHOLE: u32 = 1_000_000;
/// The maximum length of the code of an error: longer words are no codes.
const CODE_BYTES_MAX: usize = 32;
/// The maximum number of traced commands of one worker that wait for the log.
pub(crate) const WAITING_MAX: usize = 1024;

/// A command that has run and was chosen to be traced. Times are monotonic microseconds.
#[derive(Debug, Clone)]
pub struct TracedCommand {
    /// The row of the command.
    pub row: &'static Row,
    /// The number of the command's arguments, the name included.
    pub args: usize,
    /// The database of the session.
    pub db: DbId,
    /// The time at which the command began to run.
    pub began_us: u64,
    /// The time at which the command had run and its reply was written.
    pub ran_us: u64,
    /// The position for which the reply of the command waits; [`Lsn::ZERO`] for none.
    pub gate: Lsn,
    /// The code of the error that the command replied with, such as `WRONGTYPE`.
    pub error: Option<String>,
    /// Whether the client now waits for a key, or for another thread: the reply comes later.
    pub is_blocked: bool,
}

/// Takes the commands that were traced.
pub trait TraceSink: Send + Sync {
    /// Takes a command whose reply may leave since `released_us` (monotonic microseconds). Must not wait for
    /// anything.
    fn ran(&self, command: &TracedCommand, released_us: u64);
    /// Notes that a chosen command is dropped, because too many wait already.
    fn overflowed(&self);
}

/// The share of the commands that are traced, and the sink that takes them.
#[derive(Default)]
pub struct Traces {
    millionths: AtomicU32,
    sink: OnceLock<Arc<dyn TraceSink>>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Traces").field("millionths", &self.millionths).finish_non_exhaustive()
    }
}

impl Traces {
    /// Sets the sink: from now on commands are traced, if the share is not 0. Only the first call has an
    /// effect.
    pub fn send_to(&self, sink: Arc<dyn TraceSink>) {
        let _ = self.sink.set(sink);
    }

    /// Sets the share of the commands that are traced, in millionths.
    pub fn set_share(&self, millionths: u32) {
        self.millionths.store(millionths, Relaxed);
    }

    /// The share in force; 0 without a sink.
    fn share(&self) -> u32 {
        if self.sink.get().is_some() { self.millionths.load(Relaxed) } else { 0 }
    }

    /// The sink that takes traced commands, if one is set.
    pub(crate) fn sink(&self) -> Option<&dyn TraceSink> {
        self.sink.get().map(|sink| &**sink)
    }

    /// Whether the share is so large that all commands have to be timed.
    pub(crate) fn needs_all(&self) -> bool {
        u64::from(self.share()) * TIMED_EVERY > u64::from(WHOLE)
    }

    /// Whether a timed command, which stands for `stands_for` commands, is traced; `random` decides.
    #[inline]
    pub(crate) fn chooses(&self, stands_for: u64, random: impl FnOnce() -> u32) -> bool {
        let share = u64::from(self.share()) * stands_for;
        share > 0 && u64::from(random()) * u64::from(WHOLE) < share << 32
    }
}

/// The code of the error with which a reply begins; `None` if the reply is no error.
pub(crate) fn error_code(reply: &[u8]) -> Option<String> {
    let text = reply.strip_prefix(b"-")?;
    let is_of_code = |byte: &&u8| byte.is_ascii_uppercase() || **byte == b'_';
    let len = text.iter().take_while(is_of_code).count();
    let is_word = (1..=CODE_BYTES_MAX).contains(&len);
    Some(if is_word { String::from_utf8_lossy(&text[..len]).into_owned() } else { "ERR".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl TraceSink for Nobody {
        fn ran(&self, _command: &TracedCommand, _released_us: u64) {}
        fn overflowed(&self) {}
    }

    #[test]
    fn as_many_are_chosen_as_the_share_says() {
        let traces = Traces::default();
        traces.set_share(WHOLE);
        assert!(!traces.chooses(1, || 0) && !traces.needs_all(), "nobody takes them");
        traces.send_to(Arc::new(Nobody));
        for (share, stands_for, chosen) in [
            (0, 32, 0.0),
            (10_000, 1, 0.01),
            (10_000, 32, 0.32),
            (31_250, 32, 1.0),
            (WHOLE, 1, 1.0),
            (WHOLE, 32, 1.0),
        ] {
            traces.set_share(share);
            let draws: u32 = 1 << 12;
            let spread = |at: u32| at << 20;
            let count = (0..draws).filter(|at| traces.chooses(stands_for, || spread(*at))).count();
            let found = count as f64 / f64::from(draws);
            assert!((found - chosen).abs() < 0.001, "{share} {stands_for}: {found}");
        }
        traces.set_share(31_250);
        assert!(!traces.needs_all());
        traces.set_share(31_251);
        assert!(traces.needs_all());
    }

    #[test]
    fn errors_have_codes() {
        let code = |reply: &[u8]| error_code(reply);
        assert_eq!(code(b"+OK\r\n"), None);
        assert_eq!(code(b"-WRONGTYPE Operation\r\n").as_deref(), Some("WRONGTYPE"));
        assert_eq!(code(b"-my own words\r\n").as_deref(), Some("ERR"));
        assert_eq!(code(&[b"-".as_slice(), &[b'A'; 40]].concat()).as_deref(), Some("ERR"));
    }
}
