//! The server's log lines (not the durable log): text for people, JSON for machines, both on standard error.

use settings::{Key, Settings};
use tracing_subscriber::{EnvFilter, fmt};

/// Starts logging with the level and format of the settings. A second call has no effect.
pub(crate) fn start(settings: &Settings) {
    let filter = EnvFilter::new(settings.text(Key::Loglevel));
    // Lines that cannot be written, because the disk behind standard error is full, are dropped: reporting
    // that on standard error would fail as well, and panic.
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // Fails only if a test has started logging before.
    let _ = match settings.text(Key::LogFormat) {
        "json" => lines.json().try_init(),
        _ => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
    };
}
