//! The two threads of the log: one flushes batches, one makes segments ahead of need.
//!
//! Both sleep until they are unparked. A wake-up is never lost: an unpark before the park makes the park return at once,
//! and whoever appends looks, after appending, whether somebody is flushing ([`Log::needs_flusher`]).

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use env::Clock;
use parking_lot::Mutex;
use storage::{Error, Flush, Log, Prepare};

/// While nobody waits for the disk (durability interval or none), what is appended within this time goes out in one write.
const GATHER: Duration = Duration::from_millis(2);
/// ... unless it is more than this.
const GATHER_BYTES_MAX: u64 = 512 << 10;
/// Pause before another try to make a segment on a full disk.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

/// Handles to the threads; clones share them.
#[derive(Clone)]
pub struct LogThreads {
    log: Log,
    flusher: Thread,
    maker: Thread,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The flusher knows of what is appended and writes it within [`GATHER`].
    gathering: AtomicBool,
    stopping: AtomicBool,
    running: Mutex<Vec<JoinHandle<()>>>,
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
        let shared = Arc::new(Shared::default());
        let named = |name: &str| thread::Builder::new().name(name.into());
        let making = {
            let (log, shared) = (log.clone(), shared.clone());
            named("log-segments").spawn(move || make_segments(&log, &shared))?
        };
        let maker = making.thread().clone();
        let flushing = {
            let (log, maker, shared) = (log.clone(), maker.clone(), shared.clone());
            let run = move || {
                if let Err(error) = flush(&log, &*clock, &maker, &shared) {
                    failed(error);
                }
            };
            named("log").spawn(run)?
        };
        let flusher = flushing.thread().clone();
        shared.running.lock().extend([making, flushing]);
        Ok(LogThreads { log, flusher, maker, shared })
    }

    /// Sees to it that what was appended is flushed, without waiting for it.
    #[inline]
    pub fn wake_if_needed(&self) {
        let relaxed = self.shared.gathering.load(Relaxed) && self.log.unwritten_bytes() < GATHER_BYTES_MAX;
        if !relaxed && self.log.needs_flusher() {
            self.flusher.unpark();
        }
    }

    /// Sees to it that segments are made if commands wait for them, also while the log is idle.
    pub fn make_segment_if_needed(&self) {
        if self.log.needs_segment() {
            self.maker.unpark();
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
        self.make_segment_if_needed();
    }

    /// Ends both threads, once the log is closed. Blocks.
    pub fn stop(&self) {
        self.shared.stopping.store(true, SeqCst);
        for running in self.shared.running.lock().drain(..) {
            running.thread().unpark();
            // One that has panicked has told so.
            let _ = running.join();
        }
    }

    /// The log they work on.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl couch::LogDriver for LogThreads {
    fn wake_if_needed(&self) {
        LogThreads::wake_if_needed(self);
    }

    fn make_segment_if_needed(&self) {
        LogThreads::make_segment_if_needed(self);
    }
}

/// Flushes for as long as the log works.
fn flush(log: &Log, clock: &dyn Clock, maker: &Thread, shared: &Shared) -> Result<(), Error> {
    // Higher priority than the workers: everybody waits for it. Not permitted to everyone, and not needed.
    let _ = env::thread::set_nice(-5);
    while !shared.stopping.load(SeqCst) {
        if !log.durability().syncs_every_batch() && log.unwritten_bytes() > 0 {
            shared.gathering.store(true, Relaxed);
            if log.unwritten_bytes() < GATHER_BYTES_MAX {
                thread::park_timeout(GATHER);
            }
            shared.gathering.store(false, Relaxed);
        }
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
    Ok(())
}

fn make_segments(log: &Log, shared: &Shared) {
    while !shared.stopping.load(SeqCst) {
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
