//! The deadlines of the blocked and held commands of one worker.
//!
//! One timer serves all of them, set to the first deadline. A deadline is removed as soon as its wait ends
//! for another reason, so there are never more deadlines than connections, however quickly commands block and
//! are served.

use std::{cell::RefCell, collections::BTreeSet};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// The deadlines of one worker.
#[derive(Default)]
pub(crate) struct Timeouts {
    /// Each deadline with the id of the client, in the order of time.
    deadlines: RefCell<BTreeSet<(Instant, u64)>>,
    /// Notified when a new deadline comes before all others.
    changed: Notify,
}

impl Timeouts {
    /// Adds the deadline of a client's blocked or held command.
    pub(crate) fn add(&self, deadline: Instant, client_id: u64) {
        let mut deadlines = self.deadlines.borrow_mut();
        deadlines.insert((deadline, client_id));
        if deadlines.first() == Some(&(deadline, client_id)) {
            self.changed.notify_one();
        }
    }

    /// Removes a deadline. The timer may then fire once with no deadline due.
    pub(crate) fn remove(&self, deadline: Instant, client_id: u64) {
        self.deadlines.borrow_mut().remove(&(deadline, client_id));
    }

    /// Completes with the next client whose deadline has passed, and removes the deadline.
    pub(crate) async fn next(&self) -> u64 {
        loop {
            let first = self.deadlines.borrow().first().copied();
            let Some((deadline, client_id)) = first else {
                self.changed.notified().await;
                continue;
            };
            if deadline <= Instant::now() {
                self.remove(deadline, client_id);
                return client_id;
            }
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn deadlines_pass_in_their_order_unless_they_are_removed() {
        let timeouts = Timeouts::default();
        let now = Instant::now();
        let before = |ms| now - Duration::from_millis(ms);
        for (ms, client_id) in [(100, 1), (300, 2), (200, 3), (200, 4)] {
            timeouts.add(before(ms), client_id);
        }
        timeouts.remove(before(200), 3);
        let passed =
            block_on(async { [timeouts.next().await, timeouts.next().await, timeouts.next().await] });
        assert_eq!(passed, [2, 4, 1]);
        assert!(timeouts.deadlines.borrow().is_empty());
    }

    #[test]
    fn a_wait_for_a_later_deadline_ends_at_an_earlier_one() {
        let timeouts = Timeouts::default();
        let now = Instant::now();
        timeouts.add(now + Duration::from_secs(3600), 1);
        let earlier = async {
            tokio::task::yield_now().await;
            timeouts.add(now, 2);
        };
        let (passed, ()) = block_on(async { tokio::join!(timeouts.next(), earlier) });
        assert_eq!(passed, 2);
    }
}
