//! What a follower has taken of what was handed out to it: written by its worker, read by the thread that hands out.
//!
//! Protocol (Dekker): the thread stores what it waits for and then looks at what was taken; the worker adds to what was taken and
//! then looks at what is waited for, each with a fence between. Whatever the interleaving, one of them sees the other.

use std::fmt;

use crate::sync::{AtomicU64, Ordering::SeqCst, fence};

/// Nothing is waited for.
const NOTHING: u64 = u64::MAX;

/// See the module documentation.
pub struct Flow {
    taken: AtomicU64,
    wanted: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Flow {
    /// Nothing was taken yet. `wake` is called on the worker's thread and must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Flow {
        Flow { taken: AtomicU64::new(0), wanted: AtomicU64::new(NOTHING), wake: Box::new(wake) }
    }

    /// So many more bytes were taken.
    pub fn take(&self, bytes: u64) {
        let taken = self.taken.fetch_add(bytes, SeqCst) + bytes;
        fence(SeqCst);
        if taken >= self.wanted.load(SeqCst) && self.wanted.swap(NOTHING, SeqCst) != NOTHING {
            (self.wake)();
        }
    }

    /// Bytes taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// Asks for one call of `wake` once so many bytes in all have been taken. `false`: they have, no call is needed.
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

    /// Who waits for what is taken sees that it is, or is woken.
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
