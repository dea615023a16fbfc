//! Frees what commands have detached, on a thread of its own: a flushed database of gigabytes stops nobody.

use std::{
    sync::mpsc::{Sender, channel},
    thread,
};

use keyspace::Freed;

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
        thread::Builder::new()
            .name("reaper".into())
            .spawn(move || receiver.into_iter().for_each(drop::<Freed>))?;
        Ok(Reaper { sender })
    }

    /// Frees it soon.
    pub fn free(&self, freed: Freed) {
        // Without the thread (at exit) it is freed here.
        let _ = self.sender.send(freed);
    }
}
