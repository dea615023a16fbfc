//! The workers that have subscribers of one topic, and the total number of subscribers.
//!
//! A presence has one bit per worker, the number of subscribers (with a special value for a retired topic),
//! and the number of subscribers that are behind. A presence is not a table of subscribers.
//!
//! Invariants
//! - A bit is set if and only if its worker has a subscriber, except during a change. Only that worker
//!   changes the bit: it sets the bit after it has counted its first subscriber, and clears it before it
//!   uncounts its last one.
//! - A presence without subscribers can be retired, once. A retired presence never gets a subscriber again: a
//!   worker that finds it removes it from the index and enters a new presence. So of the presences of one
//!   name that workers have entered, at most one is not retired.
//! - `behind <= count`, except while both change.

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The count of a retired presence.
const RETIRED: u32 = u32::MAX;

/// A set of workers, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WorkerSet(u128);

impl WorkerSet {
    pub(crate) fn from_words(words: [u64; 2]) -> WorkerSet {
        WorkerSet(u128::from(words[0]) | u128::from(words[1]) << 64)
    }

    pub(crate) fn one(worker: usize) -> WorkerSet {
        WorkerSet(1 << worker)
    }

    /// The union of both sets.
    pub(crate) fn or(self, other: WorkerSet) -> WorkerSet {
        WorkerSet(self.0 | other.0)
    }

    /// The workers in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let worker = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (worker < 128).then_some(worker)
        })
    }
}

/// The workers with subscribers of one topic, and the counts.
#[derive(Debug)]
pub(crate) struct Presence {
    workers: [AtomicU64; 2],
    count: AtomicU32,
    behind: AtomicU32,
}

impl Presence {
    pub(crate) fn new() -> Presence {
        Presence {
            workers: [AtomicU64::new(0), AtomicU64::new(0)],
            count: AtomicU32::new(0),
            behind: AtomicU32::new(0),
        }
    }

    /// Counts the first subscriber of a worker and sets its bit; `false` if the presence is retired.
    pub(crate) fn enter(&self, worker: usize) -> bool {
        let more = |count: u32| (count < RETIRED - 1).then(|| count + 1);
        if self.count.fetch_update(SeqCst, SeqCst, more).is_err() {
            return false;
        }
        self.workers[worker / 64].fetch_or(1 << (worker % 64), SeqCst);
        true
    }

    /// Counts a further subscriber of a worker.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    /// Uncounts a subscriber of a worker that has others.
    pub(crate) fn subtract(&self) {
        self.count.fetch_sub(1, SeqCst);
    }

    /// Uncounts the last subscriber of a worker; `true` if the presence is now retired and must be removed
    /// from the index.
    pub(crate) fn leave(&self, worker: usize) -> bool {
        self.workers[worker / 64].fetch_and(!(1 << (worker % 64)), SeqCst);
        self.count.fetch_sub(1, SeqCst) == 1
            && self.count.compare_exchange(0, RETIRED, SeqCst, SeqCst).is_ok()
    }

    pub(crate) fn workers(&self) -> WorkerSet {
        let word = |index: usize| self.workers[index].load(SeqCst);
        WorkerSet::from_words([word(0), word(1)])
    }

    /// The number of subscribers on all workers; 0 for a retired presence.
    pub(crate) fn count(&self) -> usize {
        match self.count.load(Relaxed) {
            RETIRED => 0,
            count => count as usize,
        }
    }

    /// Number of subscribers that count as behind.
    #[inline]
    pub(crate) fn behind(&self) -> usize {
        self.behind.load(Relaxed) as usize
    }

    /// Adds one to the number of subscribers that are behind, or subtracts one.
    pub(crate) fn note_behind(&self, is_behind: bool) {
        if is_behind {
            self.behind.fetch_add(1, Relaxed);
        } else {
            self.behind.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn workers(presence: &Presence) -> Vec<usize> {
        presence.workers().iter().collect()
    }

    #[test]
    fn bits_and_counts_follow_the_subscribers() {
        let presence = Presence::new();
        assert!(presence.enter(0) && presence.enter(64) && presence.enter(127));
        presence.add();
        assert_eq!((workers(&presence), presence.count()), (vec![0, 64, 127], 4));
        presence.subtract();
        assert!(!presence.leave(64) && !presence.leave(0));
        assert_eq!((workers(&presence), presence.count()), (vec![127], 1));
        assert!(presence.leave(127), "the last one retires it");
        assert!(!presence.enter(3), "a retired one takes nobody");
        assert_eq!((workers(&presence), presence.count()), (vec![], 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// An index with one name. The lock models the atomicity of the map for one key.
    type Entry = Mutex<Option<Arc<Presence>>>;

    fn enter(entry: &Entry, worker: usize) -> Arc<Presence> {
        loop {
            let presence = entry.lock().unwrap().get_or_insert_with(|| Arc::new(Presence::new())).clone();
            if presence.enter(worker) {
                return presence;
            }
            remove(entry, &presence);
        }
    }

    fn leave(entry: &Entry, presence: &Arc<Presence>, worker: usize) {
        if presence.leave(worker) {
            remove(entry, presence);
        }
    }

    fn remove(entry: &Entry, presence: &Arc<Presence>) {
        let mut entry = entry.lock().unwrap();
        if entry.as_ref().is_some_and(|it| Arc::ptr_eq(it, presence)) {
            *entry = None;
        }
    }

    fn sees(entry: &Entry, worker: usize) -> bool {
        let presence = entry.lock().unwrap().clone();
        presence.is_some_and(|it| it.workers().iter().any(|it| it == worker))
    }

    /// The last subscriber of worker 0 leaves while the first of worker 1 subscribes: a publisher that begins
    /// after the confirmation finds worker 1, even if the presence of worker 0 retires.
    #[test]
    fn loom_a_confirmed_subscription_is_seen_by_every_later_publish() {
        loom::model(|| {
            let entry = Arc::new(Entry::new(None));
            let first = enter(&entry, 0);
            let leaving = {
                let entry = entry.clone();
                thread::spawn(move || leave(&entry, &first, 0))
            };
            let confirmed = {
                let entry = entry.clone();
                thread::spawn(move || {
                    enter(&entry, 1);
                    assert!(sees(&entry, 1), "published after the confirmation");
                })
            };
            confirmed.join().unwrap();
            assert!(sees(&entry, 1), "and by another thread");
            leaving.join().unwrap();
            assert!(sees(&entry, 1) && !sees(&entry, 0), "whoever has left afterwards");
        });
    }

    /// The maximum number of preemptions, the switches away from a thread that could continue. More
    /// preemptions find nothing new here and take minutes.
    const PREEMPTIONS_MAX: usize = 4;

    /// Two workers enter and leave: at the end no presence remains, and none with a subscriber was removed.
    #[test]
    fn loom_coming_and_going_leaves_nothing_behind() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS_MAX);
        model.check(|| {
            let entry = Arc::new(Entry::new(None));
            let churn = |worker: usize| {
                let entry = entry.clone();
                thread::spawn(move || {
                    let presence = enter(&entry, worker);
                    assert!(sees(&entry, worker));
                    leave(&entry, &presence, worker);
                })
            };
            let (a, b) = (churn(0), churn(1));
            a.join().unwrap();
            b.join().unwrap();
            assert!(entry.lock().unwrap().is_none(), "nobody is subscribed");
        });
    }
}
