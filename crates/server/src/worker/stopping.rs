//! The end of a worker: because the server stops, or because the log has failed.

use std::{rc::Rc, time::Duration};

use engine::CommandError;

use super::Worker;
use crate::connection::Connection;

/// Time that clients have to receive their last replies.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// Before a restart within the process, replies may wait for the disk or for replicas for this time.
const RESTART_GRACE: Duration = Duration::from_secs(2);

impl Worker {
    /// Ends all connections after the log has failed. Clients whose replies wait for the log get the error
    /// that the outcome of their commands is unknown.
    pub(super) fn fail_all(&self) {
        self.tick.borrow_mut().clear();
        self.held_back.clear();
        self.unread.borrow_mut().clear();
        let connections: Vec<_> = self.connections.borrow().values().cloned().collect();
        connections.iter().for_each(|connection| connection.fail(&CommandError::LogFailed));
    }

    /// Stops reading, waits until no reply waits for the disk or for replicas, sends the last replies, and
    /// closes all connections. A server that has led its group and restarts does not wait, so that its
    /// clients look for the new leader.
    pub(super) async fn stop(&self) {
        self.stopping.set(true);
        self.send_replies();
        for connection in self.connections.borrow().values() {
            connection.close_after_replies();
        }
        if !self.parts.node.drops_replies() {
            self.let_replies_leave().await;
        }
        for connection in self.connections.borrow().values() {
            connection.kill();
        }
        while !self.connections.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        self.tick.borrow_mut().clear();
        self.held_back.clear();
        self.unread.borrow_mut().clear();
        self.pushed.borrow_mut().clear();
        self.send_replies();
    }

    /// Waits until no reply waits for its gate and no long unit runs. Before a restart within the process,
    /// this takes [`RESTART_GRACE`] at most. Then waits until the clients have received the last replies, for
    /// [`CLOSE_GRACE`] at most.
    async fn let_replies_leave(&self) {
        let give_up_at = tokio::time::Instant::now() + RESTART_GRACE;
        let waits = |connection: &Rc<Connection>| connection.is_holding() || connection.is_away();
        while self.connections.borrow().values().any(waits) {
            // A leader that becomes a replica might never get the acknowledgements of its replicas.
            if self.parts.node.is_restarting() && tokio::time::Instant::now() >= give_up_at {
                break;
            }
            self.wake_up.notify_one();
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The connections and the worker hold each other. So if the server restarts within this process, a
        // socket that stays here would never be closed, and its client would wait for ever.
        let give_up_at = tokio::time::Instant::now() + CLOSE_GRACE;
        while !self.connections.borrow().is_empty() && tokio::time::Instant::now() < give_up_at {
            self.wake_up.notify_one();
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
