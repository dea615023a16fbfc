//! Frees values that commands have detached, on a thread of its own, so that dropping a flushed database of
//! gigabytes blocks no worker. This thread also gives memory back to the OS after any thread has freed large
//! blocks: values, buffers of connections, records.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use keyspace::Freed;

/// The shortest time for which freed memory is kept for reuse.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Sends values to the thread that frees them. The queue is unbounded: a queued value takes no more memory
/// than it took before it was detached.
#[derive(Clone)]
pub struct Reaper {
    sender: Sender<Freed>,
    figures: Arc<ReaperFigures>,
}

/// The values that were detached, for INFO.
#[derive(Debug, Default)]
pub struct ReaperFigures {
    /// The number of values that are not freed yet.
    pub pending: AtomicU64,
    /// The number of values freed since the last CONFIG RESETSTAT.
    pub freed: AtomicU64,
}

impl Reaper {
    /// Starts the thread, which ends when the last handle is dropped.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub fn start(figures: Arc<ReaperFigures>) -> std::io::Result<Reaper> {
        let (sender, receiver) = channel();
        let of_thread = figures.clone();
        thread::Builder::new().name("reaper".into()).spawn(move || reap(&receiver, &of_thread))?;
        Ok(Reaper { sender, figures })
    }

    /// Queues a value to be freed.
    pub fn free(&self, freed: Freed) {
        self.figures.pending.fetch_add(freed.len() as u64, Relaxed);
        // If the thread has ended (at exit), the value is freed here.
        let _ = self.sender.send(freed);
    }
}

fn reap(receiver: &Receiver<Freed>, figures: &ReaperFigures) {
    let (mut seen, mut given_back) = (0, 0);
    loop {
        match receiver.recv_timeout(KEPT_FOR) {
            Ok(freed) => {
                let count = freed.len() as u64;
                drop(freed);
                figures.pending.fetch_sub(count, Relaxed);
                figures.freed.fetch_add(count, Relaxed);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let freed = env::allocator::large_blocks_freed();
                // Memory is given back only when no block was freed since the last check: a load of large
                // values frees and allocates all the time.
                if freed == seen && freed != given_back {
                    env::allocator::release_unused();
                    given_back = freed;
                }
                seen = freed;
            }
        }
    }
}
