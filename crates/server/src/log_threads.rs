//! The two threads of the log: one flushes batches, one makes segments ahead of need.
//!
//! Both sleep until they are unparked, or for a limited time if they have work later. A wake-up is never
//! lost:
//! - an unpark before the park makes the park return at once;
//! - an appender checks, after appending, whether the flusher is awake ([`Log::needs_flusher`]);
//! - another thread that has flushed wakes the flusher for records that were appended meanwhile
//!   ([`Log::on_flush_wanted`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use env::Clock;
use parking_lot::Mutex;
use storage::{Error, Flush, Log, Prepare};

/// With durability interval or none, records appended within this time are written together.
const GATHER: Duration = Duration::from_millis(2);
/// If more bytes than this are unwritten, they are written at once.
const GATHER_BYTES_MAX: u64 = 512 << 10;
/// Pause before the next attempt to make a segment, on a full disk or after an error.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

/// Handles to the threads; clones share them.
#[derive(Clone)]
pub struct LogThreads {
    log: Log,
    flusher: Thread,
    maker: Thread,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    /// Whether the flusher will write all appended records within [`GATHER`], without being woken.
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
        let shared = Arc::new(SharedState::default());
        let named = |name: &str| thread::Builder::new().name(name.into());
        let making = {
            let (log, shared) = (log.clone(), shared.clone());
            named("log-segments").spawn(move || make_segments(&log, &shared))?
        };
        let maker = making.thread().clone();
        let woken = maker.clone();
        log.on_segment_wanted(move || woken.unpark());
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
        let woken = flusher.clone();
        log.on_flush_wanted(move || woken.unpark());
        shared.running.lock().extend([making, flushing]);
        Ok(LogThreads { log, flusher, maker, shared })
    }

    /// Wakes the flusher if records need it. Does not wait for the flush.
    #[inline]
    pub fn wake_if_needed(&self) {
        // The flag is read after the records were appended: a flusher that clears the flag later writes these
        // records.
        let is_gathering =
            || self.shared.gathering.load(SeqCst) && self.log.unwritten_bytes() < GATHER_BYTES_MAX;
        if self.log.needs_flusher() && !is_gathering() {
            self.flusher.unpark();
        }
    }

    /// Flushes one batch on the calling thread, if no other thread is flushing. This saves a single writer
    /// the wait for two context switches.
    ///
    /// After a failure, the flusher tries the same flush at once and handles the error.
    pub fn flush_here(&self) {
        match self.log.try_flush() {
            Some(Ok(Flush::Idle { .. })) => {}
            // In all other cases the flusher goes on. A batch was written, and a sync or an empty batch is
            // due later; or another thread is flushing, a segment is missing, or the flush failed.
            _ => self.flusher.unpark(),
        }
        if self.log.needs_segment() {
            self.maker.unpark();
        }
    }

    /// Ends both threads. The log must be closed before. Blocks.
    pub fn stop(&self) {
        self.shared.stopping.store(true, SeqCst);
        for running in self.shared.running.lock().drain(..) {
            running.thread().unpark();
            // A panic was reported when it happened.
            let _ = running.join();
        }
    }

    /// The log that the threads serve.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl couch::LogDriver for LogThreads {
    fn wake_if_needed(&self) {
        LogThreads::wake_if_needed(self);
    }
}

/// Flushes until the threads stop or the log fails.
fn flush(log: &Log, clock: &dyn Clock, maker: &Thread, shared: &SharedState) -> Result<(), Error> {
    // This thread gets a higher priority than the workers, which all wait for it. The call fails without the
    // privilege to raise priorities, which does no harm.
    let _ = env::thread::set_nice(-5);
    while !shared.stopping.load(SeqCst) {
        if !log.durability().syncs_every_batch() && log.unwritten_bytes() > 0 {
            shared.gathering.store(true, SeqCst);
            if log.unwritten_bytes() < GATHER_BYTES_MAX {
                thread::park_timeout(GATHER);
            }
            shared.gathering.store(false, SeqCst);
        }
        let flush = log.flush()?;
        log.end_if_requested();
        if log.needs_segment() {
            maker.unpark();
        }
        match flush {
            Flush::Wrote => {}
            // The thread that makes segments does not wake this thread, and a segment takes milliseconds to
            // make.
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

fn make_segments(log: &Log, shared: &SharedState) {
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
