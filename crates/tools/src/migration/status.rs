//! Output about a copy in progress, on standard error: notes, and on a terminal a status line below them.

use std::io::{self, IsTerminal, Write};

use env::{Clock, RealClock};

pub(super) struct Status {
    is_terminal: bool,
    /// Whether the status line is displayed.
    is_shown: bool,
    /// Number of commands and time at the last display.
    before: (u64, u64),
}

/// The progress of following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The offset that the target has reached.
    pub(super) offset: u64,
    /// Bytes that the source is ahead, if known.
    pub(super) lag_bytes: Option<u64>,
    /// The number of forwarded commands.
    pub(super) commands: u64,
}

impl Status {
    pub(super) fn new() -> Status {
        Status {
            is_terminal: io::stderr().is_terminal(),
            is_shown: false,
            before: (0, RealClock.monotonic_us()),
        }
    }

    pub(super) fn note(&mut self, text: &str) {
        self.clear();
        // A failure cannot be reported anywhere.
        let _ = writeln!(io::stderr(), "sheaf: {text}");
    }

    /// Updates the status line; to be called about once a second.
    pub(super) fn show(&mut self, progress: Progress) {
        let now_us = RealClock.monotonic_us();
        let line = line(progress, self.before, now_us);
        self.before = (progress.commands, now_us);
        if self.is_terminal {
            self.clear();
            let _ = write!(io::stderr(), "{line}");
            self.is_shown = true;
        }
    }

    /// Ends the status line, so that later output begins on a new line.
    pub(super) fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = writeln!(io::stderr());
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.finish();
    }
}

fn line(progress: Progress, (commands_before, us_before): (u64, u64), now_us: u64) -> String {
    let elapsed_us = now_us.saturating_sub(us_before).max(1);
    let per_second = progress.commands.saturating_sub(commands_before) as f64 * 1e6 / elapsed_us as f64;
    let lag = match progress.lag_bytes {
        Some(0) => "in sync".into(),
        Some(bytes) => format!("{bytes} bytes behind"),
        None => "following".into(),
    };
    format!("{lag}: offset {}, {per_second:.0} commands a second; Ctrl-C to finish", progress.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_offset_lag_and_rate() {
        let shown = |lag_bytes| {
            let progress = Progress { offset: 900, lag_bytes, commands: 350 };
            line(progress, (50, 1_000_000), 2_500_000)
        };
        assert_eq!(shown(Some(0)), "in sync: offset 900, 200 commands a second; Ctrl-C to finish");
        assert_eq!(shown(Some(7)), "7 bytes behind: offset 900, 200 commands a second; Ctrl-C to finish");
        assert_eq!(shown(None), "following: offset 900, 200 commands a second; Ctrl-C to finish");
    }
}
