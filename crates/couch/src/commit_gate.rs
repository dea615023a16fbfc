//! Waits, on one thread with an event loop, until the log has committed a position or has room again.
//!
//! ```text
//! task: committed(lsn).await --> waiting, by position --> one gate of the log --(log thread)--> moved
//!                                                                          --> task `run`: release
//! ```
//!
//! A commit gate serves tasks, each of which waits for the log by itself. (The parked replies of a worker are
//! served by [`engine::tick`].) Each thread has its own gate, with an appender of its own.
//!
//! Invariants
//! - A wait ends with success only when its position is committed. With durability `interval` or `none`, and
//!   without replicas to wait for, no wait for a position begins.
//! - When the log fails, every wait for a position ends with [`LogFailed`], and every wait for room with the
//!   log's answer.
//! - While any task waits, a wake-up is requested from the log: at the lowest of the positions or, while a
//!   task waits for room, at any progress. `release` checks again after the request, so no movement is
//!   missed.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BinaryHeap,
    sync::Arc,
};

use lsn::Lsn;
use storage::{Admission, Appender};
use tokio::sync::{Notify, oneshot};

/// The log has failed: whether the awaited records survive a restart is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogFailed;

/// The waits of one thread for its log.
pub(crate) struct CommitGate {
    appender: RefCell<Appender>,
    waiting: RefCell<BinaryHeap<Reverse<Waiting>>>,
    /// The number of the next wait, which makes waits for equal positions distinct.
    number: Cell<u64>,
    /// Notified when the log has moved.
    moved: Arc<Notify>,
    /// Number of tasks that wait for room.
    wanting_room: Cell<usize>,
    /// Notified when there may be room.
    room: Notify,
}

/// A wait for a position; ordered by position, then by number.
struct Waiting {
    lsn: Lsn,
    number: u64,
    done: oneshot::Sender<()>,
}

impl CommitGate {
    pub(crate) fn new(appender: Appender) -> CommitGate {
        let moved = Arc::new(Notify::new());
        let listener = moved.clone();
        appender.listen(move || listener.notify_one());
        CommitGate {
            appender: RefCell::new(appender),
            waiting: RefCell::default(),
            number: Cell::new(0),
            moved,
            wanting_room: Cell::new(0),
            room: Notify::new(),
        }
    }

    /// Appends with the thread's own appender. `append` must not use this gate.
    pub(crate) fn append<R>(&self, append: impl FnOnce(&mut Appender) -> R) -> R {
        append(&mut self.appender.borrow_mut())
    }

    /// Ends waits as the log moves. Spawned once per thread; it runs until the thread's event loop ends.
    pub(crate) async fn run(&self) {
        loop {
            self.moved.notified().await;
            self.room.notify_waiters();
            self.release();
        }
    }

    /// Returns when replies may show `lsn`: once it is committed, or at once if replies wait neither for the
    /// disk nor for replicas.
    ///
    /// # Errors
    /// If the log has failed.
    pub(crate) async fn committed(&self, lsn: Lsn) -> Result<(), LogFailed> {
        {
            let appender = self.appender.borrow();
            if !appender.reply_durability().syncs_every_batch() || appender.committed_lsn() >= lsn {
                return Ok(());
            }
        }
        let (done, waits) = oneshot::channel();
        let number = self.number.replace(self.number.get() + 1);
        self.waiting.borrow_mut().push(Reverse(Waiting { lsn, number, done }));
        self.release();
        waits.await.map_err(|_| LogFailed)
    }

    /// Returns the log's answer to a write of about `bytes`, once it is not [`Admission::Wait`].
    pub(crate) async fn admitted(&self, bytes: u64) -> Admission {
        loop {
            let moves = self.room.notified();
            tokio::pin!(moves);
            // The wait is registered before the check, so that no movement between the two is missed.
            moves.as_mut().enable();
            match self.appender.borrow().admit(bytes) {
                Admission::Wait => {}
                answer => return answer,
            }
            let _wanting = Wanting::new(&self.wanting_room);
            self.release();
            moves.await;
        }
    }

    /// Ends the waits whose positions are committed, or all if the log has failed. Asks the log for the next
    /// wake-up: at the lowest awaited position or, while a task waits for room, at any progress.
    fn release(&self) {
        self.release_unless_full(Appender::wait_for_room);
    }

    /// [`CommitGate::release`], with the function that asks the log for a wake-up while it has no room.
    fn release_unless_full(&self, wait_for_room: impl Fn(&Appender) -> bool) {
        let appender = self.appender.borrow();
        let mut waiting = self.waiting.borrow_mut();
        if appender.log().poison_reason().is_some() {
            waiting.clear();
            self.room.notify_waiters();
            return;
        }
        loop {
            let committed = appender.committed_lsn();
            while waiting.peek().is_some_and(|Reverse(next)| next.lsn <= committed) {
                if let Some(Reverse(over)) = waiting.pop() {
                    // The waiting task may be gone; then the result is dropped.
                    let _ = over.done.send(());
                }
            }
            if self.wanting_room.get() > 0 {
                if wait_for_room(&appender) {
                    // The log wakes this task at its next progress: a commit, or room.
                    return;
                }
                self.room.notify_waiters();
            }
            match waiting.peek() {
                Some(Reverse(next)) if !appender.wait_for(next.lsn) => {}
                _ => return,
            }
        }
    }
}

/// Counts a task that waits for room; dropping it ends the count.
struct Wanting<'g>(&'g Cell<usize>);

impl<'g> Wanting<'g> {
    fn new(count: &'g Cell<usize>) -> Wanting<'g> {
        count.set(count.get() + 1);
        Wanting(count)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.lsn, self.number).cmp(&(other.lsn, other.number))
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, rc::Rc};

    use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
    use storage::{Durability, Log, LogOptions, Recovery};

    use super::*;

    fn log() -> Log {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
        let mut recovery = Recovery::open(disk, Path::new("/data"), options, &SimEntropy::new(1)).unwrap();
        assert!(recovery.next_batch().unwrap().is_none());
        recovery.finish(Arc::new(SimClock::new(0))).unwrap()
    }

    fn append(gate: &CommitGate) -> Lsn {
        gate.append(|appender| {
            let pending = appender.reserve(b"a record").unwrap();
            let lsn = pending.lsn();
            pending.publish();
            lsn
        })
    }

    /// Runs `work` beside the gate's task on a single-threaded event loop.
    fn with_gate<F: Future>(work: impl FnOnce(Rc<CommitGate>, Log) -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let log = log();
            let gate = Rc::new(CommitGate::new(log.appender()));
            let running = gate.clone();
            tokio::task::spawn_local(async move { running.run().await });
            work(gate, log).await
        })
    }

    #[test]
    fn waits_end_in_the_order_of_their_positions_and_not_before_them() {
        with_gate(|gate, log| async move {
            let (first, second) = (append(&gate), append(&gate));
            let ended = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [second, first, second]
                .map(|lsn| {
                    let (gate, ended, log) = (gate.clone(), ended.clone(), log.clone());
                    tokio::task::spawn_local(async move {
                        gate.committed(lsn).await.unwrap();
                        assert!(log.durable_lsn() >= lsn);
                        ended.borrow_mut().push(lsn);
                    })
                })
                .into();
            tokio::task::yield_now().await;
            assert!(ended.borrow().is_empty());
            log.flush_all().unwrap();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*ended.borrow(), [first, second, second]);
            gate.committed(first).await.unwrap();
        });
    }

    #[test]
    fn nothing_waits_for_a_disk_that_replies_do_not_wait_for() {
        with_gate(|gate, log| async move {
            let lsn = append(&gate);
            for durability in [Durability::None, Durability::Interval] {
                log.set_durability(durability);
                gate.committed(lsn).await.unwrap();
                assert!(log.written_lsn() < lsn, "no thread flushes this log");
            }
            // A reply waits for replicas with any durability.
            log.set_acked(Lsn::ZERO);
            let waits = {
                let gate = gate.clone();
                tokio::task::spawn_local(async move { gate.committed(lsn).await })
            };
            tokio::task::yield_now().await;
            assert!(!waits.is_finished());
            log.flush_all().unwrap();
            log.set_acked(lsn);
            waits.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_waiter_for_room_is_admitted_when_the_log_has_moved() {
        with_gate(|gate, log| async move {
            let mut appended = 0;
            while log.admit(0) == Admission::Go {
                gate.append(|appender| appender.reserve(&[7; 60_000]).unwrap().publish());
                appended += 1;
            }
            assert!(appended > 0 && log.admit(0) == Admission::Wait);
            let waits = {
                let gate = gate.clone();
                tokio::task::spawn_local(async move { gate.admitted(1).await })
            };
            tokio::task::yield_now().await;
            assert!(!waits.is_finished() && gate.wanting_room.get() == 1);
            log.flush_all().unwrap();
            assert_eq!(waits.await.unwrap(), Admission::Go);
            assert_eq!(gate.wanting_room.get(), 0);
        });
    }

    #[test]
    fn a_commit_is_noticed_that_comes_while_the_log_is_asked_for_room() {
        with_gate(|gate, log| async move {
            let lsn = append(&gate);
            let _wanting = Wanting::new(&gate.wanting_room);
            let (done, mut waits) = oneshot::channel();
            gate.waiting.borrow_mut().push(Reverse(Waiting { lsn, number: 0, done }));
            gate.release_unless_full(|appender| {
                log.flush_all().unwrap();
                appender.wait_for_room()
            });
            assert_eq!(waits.try_recv(), Ok(()), "no later movement of the log would end this wait");
        });
    }
}
