//! Ctrl-C and SIGTERM, for commands that run until then.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C or SIGTERM.
///
/// # Errors
/// If the operating system takes no handler.
pub(crate) async fn interruption() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
