//! The workers that hold back publishers until subscribers have caught up or mailboxes have room.
//!
//! Invariants
//! - No wake-up is lost. A worker first enters itself ([`Waiting::enter`]) and then checks whether the reason
//!   still holds; a worker that ends a reason does so first and then reads the waiting workers
//!   ([`Waiting::workers`]). At least one of the two sees the other.

use crate::{
    presence::WorkerSet,
    sync::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

#[derive(Debug)]
pub(crate) struct Waiting {
    words: [AtomicU64; 2],
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting { words: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Adds a worker, which must then check once more whether it has to wait.
    pub(crate) fn enter(&self, worker: usize) {
        self.words[worker / 64].fetch_or(1 << (worker % 64), Relaxed);
        fence(SeqCst);
    }

    pub(crate) fn leave(&self, worker: usize) {
        self.words[worker / 64].fetch_and(!(1 << (worker % 64)), Relaxed);
    }

    /// The workers to wake after a reason to wait may have ended.
    pub(crate) fn workers(&self) -> WorkerSet {
        fence(SeqCst);
        let word = |index: usize| self.words[index].load(Relaxed);
        WorkerSet::from_words([word(0), word(1)])
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU32},
        },
        thread,
    };

    use super::*;

    /// A worker begins to wait for a subscriber while the subscriber catches up.
    #[test]
    fn loom_a_waiting_worker_is_woken_or_need_not_wait() {
        loom::model(|| {
            let waiting = Arc::new(Waiting::new());
            let behind = Arc::new(AtomicU32::new(1));
            let woken = Arc::new(AtomicBool::new(false));
            let catching_up = {
                let (waiting, behind, woken) = (waiting.clone(), behind.clone(), woken.clone());
                thread::spawn(move || {
                    behind.fetch_sub(1, Relaxed);
                    if waiting.workers().iter().any(|worker| worker == 1) {
                        woken.store(true, Relaxed);
                    }
                })
            };
            waiting.enter(1);
            let sleeps = behind.load(Relaxed) > 0;
            catching_up.join().unwrap();
            assert!(!sleeps || woken.load(Relaxed), "it would sleep for ever");
        });
    }
}
