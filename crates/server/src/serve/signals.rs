//! Handles the signals of the process: SIGTERM and SIGINT request the stop, SIGHUP causes files to be read
//! again.
//!
//! Signals have a thread of their own for as long as the process lives. So a signal also counts if it comes
//! between two incarnations.

use std::{io, sync::Arc, thread};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use crate::stop::Stop;

/// Starts the thread. Each SIGHUP notifies the returned `Notify`.
pub(super) fn listen(stop: Arc<Stop>) -> io::Result<Arc<Notify>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let signals = {
        let _entered = runtime.enter();
        Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        }
    };
    let hangups = Arc::new(Notify::new());
    let told = hangups.clone();
    let follow = move || runtime.block_on(signals.follow(&stop, &told));
    thread::Builder::new().name("signals".into()).spawn(follow)?;
    Ok(hangups)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    async fn follow(mut self, stop: &Stop, hangups: &Notify) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => stop.request(),
                _ = self.interrupt.recv() => stop.request(),
                _ = self.hangup.recv() => hangups.notify_one(),
            }
        }
    }
}
