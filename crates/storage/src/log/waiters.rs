//! Waiters for progress of the log: one gate and one listener per appender.
//!
//! Protocol (Dekker): the waiter stores its gate and then checks the position again; the flusher stores the
//! position and then checks the gates. In every interleaving, at least one of them sees the other's store.

use std::sync::OnceLock;

use lsn::Lsn;

use crate::sync::{AtomicU64, Ordering, Padded, fence};

const NOBODY: u64 = u64::MAX;

type Listener = Box<dyn Fn() + Send + Sync>;

struct Waiter {
    gate: Padded<AtomicU64>,
    listener: OnceLock<Listener>,
}

/// The gates and listeners of all appenders.
pub(crate) struct Waiters {
    waiters: Box<[Waiter]>,
}

impl Waiters {
    pub(crate) fn new(count: usize) -> Self {
        let waiter = || Waiter { gate: Padded(AtomicU64::new(NOBODY)), listener: OnceLock::new() };
        Waiters { waiters: (0..count).map(|_| waiter()).collect() }
    }

    /// Sets the listener of `index`. The listener must not block, because it runs on the thread that has
    /// caused the change of the log.
    ///
    /// # Panics
    /// If the listener was set before.
    pub(crate) fn listen(&self, index: usize, listener: Listener) {
        assert!(self.waiters[index].listener.set(listener).is_ok(), "a waiter has one listener");
    }

    /// Whether `index` has a listener. Such an index is never given to another appender.
    pub(crate) fn is_listening(&self, index: usize) -> bool {
        self.waiters[index].listener.get().is_some()
    }

    /// Requests a call of the listener once `position` has reached `gate`. Returns `false` if `gate` is
    /// reached already: then the request is withdrawn, although a call may come if `gate` was reached
    /// meanwhile.
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

    /// Requests a call of the listener at the next progress of the log of any kind.
    pub(crate) fn arm_any(&self, index: usize) {
        self.waiters[index].gate.0.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Calls each listener whose gate is at or before `position`, once for each request. The caller must
    /// have stored the new position (with SeqCst) before this call.
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

    /// Clears all gates and calls every listener, armed or not, because the log has gained or lacks room, or
    /// is poisoned.
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

    /// In every interleaving, a parked reply is released by the waiter itself or by the listener.
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
