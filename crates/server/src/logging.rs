//! The server's log lines (not the durable log): text for people, JSON for machines, both on standard error.

use std::sync::OnceLock;

use settings::{Key, Settings};
use tracing_subscriber::{EnvFilter, fmt, reload};

/// Sets the lowest level of lines.
type SetLevel = Box<dyn Fn(&str) + Send + Sync>;

/// None before logging has started.
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

/// Starts logging with the level and format of the settings. A second call has no effect.
pub(crate) fn start(settings: &Settings) {
    let filter = EnvFilter::new(settings.text(Key::Loglevel));
    // Lines that cannot be written, because the disk behind standard error is full, are dropped: reporting
    // that on standard error would fail as well, and panic.
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // Fails only if a test has started logging before.
    let _ = if settings.text(Key::LogFormat) == "json" {
        let lines = lines.json().with_filter_reloading();
        keep_handle(lines.reload_handle());
        lines.try_init()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let lines = lines.with_ansi(colours).with_filter_reloading();
        keep_handle(lines.reload_handle());
        lines.try_init()
    };
}

fn keep_handle<L: 'static>(handle: reload::Handle<EnvFilter, L>) {
    let set = move |level: &str| {
        // Fails only when logging has ended.
        let _ = handle.reload(EnvFilter::new(level));
    };
    let _ = SET_LEVEL.set(Box::new(set));
}

/// Takes over the level of the settings. Without a logger it does nothing.
pub(crate) fn configure(settings: &Settings) {
    if let Some(set) = SET_LEVEL.get() {
        set(settings.text(Key::Loglevel));
    }
}
