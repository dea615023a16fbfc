//! Flow control of one reader: the number of bytes sent to it. The reader's worker adds to the number, and
//! the thread that reads the log reads it.
//!
//! Protocol (Dekker): the thread stores the total for which it waits, and then loads the number of sent
//! bytes; the worker adds to the number of sent bytes, and then loads the awaited total. Both have a fence in
//! between. In every interleaving at least one of them sees the other's store.

use std::fmt;

use crate::sync::{AtomicU64, Ordering::SeqCst, fence};

/// The awaited total if no wake-up is requested.
const NOTHING: u64 = u64::MAX;

/// The flow control of one reader's messages: a count of the bytes sent, and a wake-up at a requested
/// total.
pub struct Flow {
    taken: AtomicU64,
    wanted: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Flow {
    /// Starts with 0 bytes sent. `wake` is called on the worker's thread and must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Flow {
        Flow { taken: AtomicU64::new(0), wanted: AtomicU64::new(NOTHING), wake: Box::new(wake) }
    }

    /// Adds sent bytes; calls `wake` if the awaited total is reached.
    pub fn take(&self, bytes: u64) {
        let taken = self.taken.fetch_add(bytes, SeqCst) + bytes;
        fence(SeqCst);
        if taken >= self.wanted.load(SeqCst) && self.wanted.swap(NOTHING, SeqCst) != NOTHING {
            (self.wake)();
        }
    }

    /// Total bytes sent so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// Requests one call of `wake` when the total of sent bytes reaches `taken`. Returns `false` if the total
    /// has reached `taken` already, so that no call is needed.
    pub(super) fn want(&self, taken: u64) -> bool {
        self.wanted.store(taken, SeqCst);
        fence(SeqCst);
        self.taken() < taken
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("taken", &self.taken).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        sync::{Arc, atomic::AtomicBool},
        thread,
    };

    use super::*;

    /// The waiting thread sees that enough was sent, or is woken.
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let woken = Arc::new(AtomicBool::new(false));
            let flag = woken.clone();
            let flow = Arc::new(Flow::new(move || flag.store(true, SeqCst)));
            let worker = {
                let flow = flow.clone();
                thread::spawn(move || {
                    flow.take(1);
                    flow.take(1);
                })
            };
            let waits = flow.want(2);
            worker.join().unwrap();
            assert!(!waits || woken.load(SeqCst));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, atomic::AtomicU32};

    use super::*;

    #[test]
    fn wakes_once_when_enough_was_taken() {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = calls.clone();
        let flow = Flow::new(move || _ = counter.fetch_add(1, SeqCst));
        flow.take(10);
        assert!(!flow.want(10) && flow.want(20));
        flow.take(9);
        assert_eq!(calls.load(SeqCst), 0);
        flow.take(1);
        flow.take(1);
        assert_eq!((calls.load(SeqCst), flow.taken()), (1, 21));
    }
}
