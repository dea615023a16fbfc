//! The supervisor that started the server: systemd, or another one that sets `NOTIFY_SOCKET`.
//!
//! The supervisor is told when the server is ready (`Type=notify`), so that services ordered after it find
//! its data loaded, and when the server stops. A restart within the process, for replication, is not
//! reported.

use sd_notify::NotifyState;

/// Reports that the data is loaded and clients are served.
pub(crate) fn tell_ready() {
    tell(NotifyState::Ready);
}

/// Reports that the server stops in order.
pub(crate) fn tell_stopping() {
    tell(NotifyState::Stopping);
}

/// Sends a state to the supervisor. Does nothing if `NOTIFY_SOCKET` is not set.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(target: "server", %error, "the supervisor (NOTIFY_SOCKET) cannot be reached");
    }
}

/// Whether a supervisor has set `NOTIFY_SOCKET`.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}
