//! Who sleeps until the log has moved: one gate and one listener per appender.
//!
//! Protocol (Dekker): the waiter stores its gate and then looks at the position again; the flusher stores the
//! position and then looks at the gates. Whatever the interleaving, one of them sees the other.

use std::sync::OnceLock;

use lsn::Lsn;

use crate::sync::{AtomicU64, Ordering, Padded, fence};

const NOBODY: u64 = u64::MAX;

type Listener = Box<dyn Fn() + Send + Sync>;

struct Waiter {
    gate: Padded<AtomicU64>,
    listener: OnceLock<Listener>,
}

/// See the module documentation.
pub(crate) struct Waiters {
    waiters: Box<[Waiter]>,
}

impl Waiters {
    pub(crate) fn new(count: usize) -> Self {
        let waiter = || Waiter { gate: Padded(AtomicU64::new(NOBODY)), listener: OnceLock::new() };
        Waiters { waiters: (0..count).map(|_| waiter()).collect() }
    }

    /// Sets whom to call for `index`. The listener must not block: it runs on the flushing thread.
    ///
    /// # Panics
    /// If it was set before.
    pub(crate) fn listen(&self, index: usize, listener: Listener) {
        assert!(self.waiters[index].listener.set(listener).is_ok(), "a waiter has one listener");
    }

    /// Asks for a call once `position` has reached `gate`. `false`: it already has, no call will come.
    pub(crate) fn arm(&self, index: usize, gate: Lsn, position: impl Fn() -> u64) -> bool {
        let waiter = &self.waiters[index].gate.0;
        waiter.store(gate.get(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if position() < gate.get() {
            return true;
        }
        waiter.store(NOBODY, Ordering::Relaxed);
        false
    }

    /// Asks for a call at the next movement of the log, whatever it is.
    pub(crate) fn arm_any(&self, index: usize) {
        self.waiters[index].gate.0.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Calls everyone whose gate `position` has reached, once. Store the position (SeqCst) before.
    pub(crate) fn wake(&self, position: Lsn) {
        fence(Ordering::SeqCst);
        for waiter in &self.waiters {
            if waiter.gate.0.load(Ordering::SeqCst) <= position.get()
                && waiter.gate.0.swap(NOBODY, Ordering::SeqCst) != NOBODY
                && let Some(listener) = waiter.listener.get()
            {
                listener();
            }
        }
    }

    /// Calls everyone who waits for anything: the log has gained room, or will not move again.
    pub(crate) fn wake_all(&self) {
        for waiter in &self.waiters {
            waiter.gate.0.store(NOBODY, Ordering::SeqCst);
            if let Some(listener) = waiter.listener.get() {
                listener();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::Arc, thread};

    /// A parked reply is released by the waiter itself or by the listener, whatever the interleaving.
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let woken = Arc::new(loom::sync::atomic::AtomicBool::new(false));
            let waiters = Arc::new(Waiters::new(1));
            let position = Arc::new(AtomicU64::new(0));
            let flag = woken.clone();
            waiters.listen(0, Box::new(move || flag.store(true, Ordering::SeqCst)));
            let flusher = {
                let (waiters, position) = (waiters.clone(), position.clone());
                thread::spawn(move || {
                    position.store(64, Ordering::SeqCst);
                    waiters.wake(Lsn::new(64));
                })
            };
            let armed = waiters.arm(0, Lsn::new(64), || position.load(Ordering::SeqCst));
            flusher.join().unwrap();
            assert!(!armed || woken.load(Ordering::SeqCst));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize};

    #[test]
    fn calls_once_and_only_when_reached() {
        let calls = Arc::new(AtomicUsize::new(0));
        let waiters = Waiters::new(2);
        let counter = calls.clone();
        waiters.listen(0, Box::new(move || _ = counter.fetch_add(1, Ordering::SeqCst)));
        assert!(!waiters.arm(0, Lsn::new(10), || 10), "already there");
        assert!(waiters.arm(0, Lsn::new(20), || 10));
        waiters.wake(Lsn::new(19));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        waiters.wake(Lsn::new(20));
        waiters.wake(Lsn::new(30));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}
