//! Frees values that commands have detached, on a thread of its own, so that dropping a flushed database of
//! gigabytes blocks no worker. It also gives memory back to the OS after large blocks were freed on any
//! thread: values, buffers of connections, records.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use keyspace::Freed;

/// Time for which freed memory is kept for reuse.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Sends memory to be freed. The queue is unbounded: queued values take no more memory than before they were
/// detached.
#[derive(Clone)]
pub struct Reaper {
    sender: Sender<Freed>,
}

impl Reaper {
    /// Starts the thread; it ends with the last handle.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub fn start() -> std::io::Result<Reaper> {
        let (sender, receiver) = channel();
        thread::Builder::new().name("reaper".into()).spawn(move || reap(&receiver))?;
        Ok(Reaper { sender })
    }

    /// Queues a value to be freed.
    pub fn free(&self, freed: Freed) {
        // Without the thread (at exit) it is freed here.
        let _ = self.sender.send(freed);
    }
}

fn reap(receiver: &Receiver<Freed>) {
    let (mut seen, mut given_back) = (0, 0);
    loop {
        match receiver.recv_timeout(KEPT_FOR) {
            Ok(freed) => drop(freed),
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
