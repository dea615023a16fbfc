//! The output of `sheaf tail`: messages on standard output, everything else on standard error.
//!
//! Invariants
//! - The status line is the last line of a terminal, and is removed while other output is written there.

use std::io::{self, IsTerminal, Write};

use env::{Clock, RealClock};
use recovery::unix_time;

use super::event::Message;

pub(super) struct Screen {
    /// Lines of messages that are not written yet.
    lines: String,
    /// Whether standard error is a terminal.
    has_status: bool,
    /// Whether the status line must be removed before messages are written.
    shares_terminal: bool,
    rate: Rate,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let has_status = io::stderr().is_terminal();
        let shares_terminal = has_status && io::stdout().is_terminal();
        Screen {
            lines: String::new(),
            has_status,
            shares_terminal,
            rate: Rate::new(RealClock.monotonic_us()),
        }
    }

    /// Adds a message, to be written by [`Screen::flush`].
    pub(super) fn add(&mut self, message: &Message<'_>) {
        message.write_line(&unix_time::shown(RealClock.unix_ms()), &mut self.lines);
        self.rate.messages += 1;
    }

    /// Writes the added lines to standard output.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        if self.shares_terminal {
            self.clear();
        }
        let mut lines = std::mem::take(&mut self.lines);
        // Another thread writes: the reader of a pipe may be slow, and interruptions must still be handled.
        let written = tokio::task::spawn_blocking(move || {
            let mut out = io::stdout().lock();
            let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
            lines.clear();
            written.map(|()| lines)
        });
        self.lines = written.await.map_err(io::Error::other)??;
        if self.shares_terminal {
            self.show();
        }
        Ok(())
    }

    /// Prints a note on standard error.
    pub(super) fn note(&self, text: &str) {
        if self.has_status {
            self.clear();
        }
        // A failure cannot be reported anywhere.
        let _ = writeln!(io::stderr(), "sheaf: {text}");
    }

    /// Updates the rate; to be called about once a second.
    pub(super) fn tick(&mut self) {
        self.rate.tick(RealClock.monotonic_us());
        if self.has_status {
            self.clear();
            self.show();
        }
    }

    fn clear(&self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }

    fn show(&self) {
        let _ = write!(io::stderr(), "{} messages, {} a second", self.rate.messages, self.rate.per_second);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.has_status {
            self.clear();
        }
    }
}

/// The messages so far, and how many came per second between the last two ticks.
#[derive(Debug)]
struct Rate {
    messages: u64,
    per_second: u64,
    /// Number of messages and time at the last tick.
    before: (u64, u64),
}

impl Rate {
    fn new(now_us: u64) -> Rate {
        Rate { messages: 0, per_second: 0, before: (0, now_us) }
    }

    fn tick(&mut self, now_us: u64) {
        let (messages, at_us) = self.before;
        let elapsed_us = now_us.saturating_sub(at_us);
        if elapsed_us > 0 {
            self.per_second = ((self.messages - messages) as f64 * 1e6 / elapsed_us as f64).round() as u64;
            self.before = (self.messages, now_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_time_since_the_last_tick() {
        let mut rate = Rate::new(5_000_000);
        rate.messages = 30;
        rate.tick(5_000_000);
        assert_eq!(rate.per_second, 0, "no time has passed");
        rate.tick(7_000_000);
        assert_eq!(rate.per_second, 15);
        rate.messages = 31;
        rate.tick(7_500_000);
        assert_eq!(rate.per_second, 2);
        rate.tick(8_500_000);
        assert_eq!((rate.per_second, rate.messages), (0, 31));
    }
}
