//! Frees what commands have detached, on a thread of its own: a flushed database of gigabytes stops nobody. And gives memory back
//! to the OS after large blocks were freed, here or elsewhere: values, buffers of connections, records.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use keyspace::Freed;

/// How long what was freed is kept for whoever needs as much again.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Sends memory to be freed. Unbounded: what is in it takes no more memory than before it was detached.
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

    /// Frees it soon.
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
                // None since the last look: a load of large values frees and takes all the time.
                if freed == seen && freed != given_back {
                    env::allocator::release_unused();
                    given_back = freed;
                }
                seen = freed;
            }
        }
    }
}
