//! A progress bar on standard error, if that is a terminal.
//!
//! Invariants
//! - A bar with a percentage shows 0 % until the total is known, so never 100 % of nothing.
//! - A bar is redrawn every [`DRAW_PERIOD`] even without progress, so that slow work is distinguishable from
//!   a hung process.

use std::{
    io::{self, IsTerminal},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use indicatif::{ProgressBar as Bar, ProgressStyle};

const DRAW_PERIOD: Duration = Duration::from_millis(200);

/// A progress bar; it shows nothing if standard error is not a terminal.
pub struct ProgressBar {
    bar: Bar,
    style: &'static str,
    is_known: AtomicBool,
}

impl ProgressBar {
    /// A bar that counts bytes.
    pub fn new(what: &'static str) -> ProgressBar {
        Self::begun(what, "{msg} [{bar:30}] {percent}% {bytes}/{total_bytes} {bytes_per_sec}, {eta} to go")
    }

    pub(crate) fn of_keys(what: &'static str) -> ProgressBar {
        Self::begun(what, "{msg} [{bar:30}] {percent}% {pos}/{len} keys {per_sec}, {eta} to go")
    }

    /// A bar that counts bytes of an unknown total.
    pub(crate) fn of_unknown(what: &'static str) -> ProgressBar {
        Self::styled(what, "{msg} {bytes} {bytes_per_sec}", "{msg} {bytes} {bytes_per_sec}")
    }

    /// A bar that shows the time waited for another server.
    pub(crate) fn of_waiting(what: &'static str) -> ProgressBar {
        Self::styled(what, "{msg} {elapsed}", "{msg} {elapsed}")
    }

    pub(crate) fn of_slots(what: &'static str) -> ProgressBar {
        Self::begun(what, "{msg} [{bar:30}] {percent}%, {eta} to go")
    }

    fn begun(what: &'static str, style: &'static str) -> ProgressBar {
        Self::styled(what, "{msg} [{bar:30}] 0%", style)
    }

    fn styled(what: &'static str, until_known: &str, style: &'static str) -> ProgressBar {
        if !io::stderr().is_terminal() {
            return ProgressBar { bar: Bar::hidden(), style, is_known: false.into() };
        }
        let bar = Bar::new(1);
        set_style(&bar, until_known);
        bar.set_message(what);
        bar.enable_steady_tick(DRAW_PERIOD);
        ProgressBar { bar, style, is_known: false.into() }
    }

    /// Shows the amount done; a `total` of 0 means that it is unknown.
    pub fn show(&self, done: u64, total: u64) {
        if total > 0 && !self.is_known.swap(true, Relaxed) {
            set_style(&self.bar, self.style);
        }
        // A new length is drawn at once, a position only now and then.
        if total > 0 && self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn set_style(bar: &Bar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
