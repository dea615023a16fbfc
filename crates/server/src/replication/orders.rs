//! Orders of clients to change the role of this server (REPLICAOF). They wait for the disk and for each
//! other. Each is answered within a fixed time, even if the disk does not answer.
//!
//! ```text
//! REPLICAOF -> Orders::begin -> thread: the change -> Order::answer -> Orders::end
//!                    '-> after ANSWER_MS: an error which says that the change goes on
//! ```
//!
//! The order of these changes is not decided here: `Node` has the locks.

use std::sync::Arc;

use engine::Responder;
use parking_lot::Mutex;
use wire::ReplyWriter;

/// A change of the role that is not done after this time is answered with an error, and goes on.
pub(super) const ANSWER_MS: u64 = 30_000;
/// The time for which a promotion waits for an earlier one, and then for another change of the role. After
/// that, it is not made.
pub(super) const TURN_MS: u64 = 10_000;

/// The answer to a promotion that waits for an earlier change for too long.
pub(super) const NOT_ITS_TURN: &str = "ERR an earlier change of this server's role has waited for the disk for 10 seconds, so nothing was \
                                       changed: try again when the disk answers";
/// The answer to a change that has begun and waits for too long.
const NOT_DONE_YET: &str = "ERR the disk has not taken this change of the server's role for 30 seconds: it is not done yet, and takes \
                            effect once the disk answers. ROLE shows which role is in force";

/// The orders whose changes are not done.
#[derive(Default)]
pub(super) struct Orders(Mutex<Vec<Arc<Order>>>);

/// One order of a client, with the client's answer channel.
pub(super) struct Order {
    begun_ms: u64,
    /// `None` once the order is answered.
    responder: Mutex<Option<Responder>>,
}

impl Orders {
    /// Begins an order. The caller must call [`Orders::end`], whether the order was answered or not.
    pub(super) fn begin(&self, now_ms: u64, responder: Responder) -> Arc<Order> {
        let order = Arc::new(Order { begun_ms: now_ms, responder: Mutex::new(Some(responder)) });
        self.0.lock().push(order.clone());
        order
    }

    /// Removes an order whose change is done, or was not made.
    pub(super) fn end(&self, order: &Arc<Order>) {
        self.0.lock().retain(|known| !Arc::ptr_eq(known, order));
    }

    /// Whether a change is under way.
    pub(super) fn are_under_way(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Answers the orders that have waited for too long. Call once a second.
    pub(super) fn answer_overdue(&self, now_ms: u64) {
        let is_overdue = |order: &&Arc<Order>| now_ms.saturating_sub(order.begun_ms) >= ANSWER_MS;
        let overdue: Vec<Arc<Order>> = self.0.lock().iter().filter(is_overdue).cloned().collect();
        overdue.iter().for_each(|order| order.answer(|reply| reply.error(NOT_DONE_YET)));
    }
}

impl Order {
    /// Answers the client, unless the client was answered before.
    pub(super) fn answer(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        if let Some(responder) = self.responder.lock().take() {
            responder.answer(write);
        }
    }
}
