//! The two threads of the log: one flushes batches, one makes segments ahead of need.
//!
//! Both sleep until they are unparked. A wake-up is never lost: an unpark before the park makes the park return at once,
//! and whoever appends looks, after appending, whether somebody is flushing ([`Log::needs_flusher`]).

use std::{
    sync::Arc,
    thread::{self, Thread},
    time::Duration,
};

use env::Clock;
use storage::{Error, Flush, Log, Prepare};

/// Pause before another try to make a segment on a full disk.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

/// Handles to the threads; clones share them.
#[derive(Clone)]
pub struct LogThreads {
    log: Log,
    flusher: Thread,
    maker: Thread,
}

impl LogThreads {
    /// Starts both threads. `failed` is called once, on the flushing thread, when the log is poisoned.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub fn start(
        log: Log,
        clock: Arc<dyn Clock>,
        failed: impl FnOnce(Error) + Send + 'static,
    ) -> std::io::Result<LogThreads> {
        let maker = {
            let log = log.clone();
            thread::Builder::new()
                .name("log-segments".into())
                .spawn(move || make_segments(&log))?
                .thread()
                .clone()
        };
        let flusher = {
            let (log, maker) = (log.clone(), maker.clone());
            let run = move || {
                if let Err(error) = flush(&log, &*clock, &maker) {
                    failed(error);
                }
            };
            thread::Builder::new().name("log".into()).spawn(run)?.thread().clone()
        };
        Ok(LogThreads { log, flusher, maker })
    }

    /// Sees to it that what was appended is flushed, without waiting for it.
    #[inline]
    pub fn wake_if_needed(&self) {
        if self.log.needs_flusher() {
            self.flusher.unpark();
        }
    }

    /// Flushes one batch here, if nobody is flushing: with a single writer this saves two changes of thread.
    ///
    /// A failure is left to the flushing thread, which meets it again at once.
    pub fn flush_here(&self) {
        match self.log.try_flush() {
            Some(Ok(Flush::Idle { .. })) => {}
            // Something is due, more was appended meanwhile, or it failed: the thread sees to it.
            _ => self.flusher.unpark(),
        }
        if self.log.needs_segment() {
            self.maker.unpark();
        }
    }

    /// The log they work on.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

/// Flushes for as long as the log works.
fn flush(log: &Log, clock: &dyn Clock, maker: &Thread) -> Result<(), Error> {
    // Higher priority than the workers: everybody waits for it. Not permitted to everyone, and not needed.
    let _ = env::thread::set_nice(-5);
    loop {
        let flush = log.flush()?;
        if log.needs_segment() {
            maker.unpark();
        }
        match flush {
            Flush::Wrote => {}
            // Whoever makes the segment cannot know this thread; it is a matter of milliseconds.
            Flush::NeedSegment => thread::park_timeout(Duration::from_millis(1)),
            Flush::Idle { due_us: None } => thread::park(),
            Flush::Idle { due_us: Some(due_us) } => {
                thread::park_timeout(Duration::from_micros(
                    due_us.saturating_sub(clock.monotonic_us()).max(1),
                ));
            }
        }
    }
}

fn make_segments(log: &Log) {
    loop {
        match log.prepare_segment() {
            Ok(Prepare::Made) => {}
            Ok(Prepare::Enough) => thread::park(),
            Ok(Prepare::NoRoom) => thread::park_timeout(NO_ROOM_PAUSE),
            Err(error) => {
                tracing::error!(target: "server", %error, "cannot prepare the log");
                thread::park_timeout(NO_ROOM_PAUSE);
            }
        }
    }
}
