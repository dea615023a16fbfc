//! Disconnects clients that have to log in and do not. Each of them takes a place among the clients, and
//! memory for its requests.
//!
//! While the server loads its data, no time counts, because no users are known.
//!
//! Before the first failed login, waits of a login do not count: the wait for its turn among the logins of
//! its address, for the check of a password, and for the end of a pause. After a failure these waits count.
//! Otherwise a stranger whose guesses wait in a pipeline would keep the turn for hours, and users with the
//! right password would have to wait. For the same reason a client that hangs up while its login waits for
//! its turn is disconnected.

use std::sync::atomic::Ordering::Relaxed;

use engine::{conversation::ConversationState, users::UserSet};

use super::Connection;

/// The seconds that a client has for its login.
const LOGIN_S_MAX: u32 = 10;

impl Connection {
    /// Disconnects a client that does not log in in time, or that hangs up while its login waits for its
    /// turn. Called about once a second, while the users are known.
    pub(crate) fn require_login(&self, users: &UserSet) {
        let (has_failed, checks_password) = {
            let session = &self.conversation.borrow().session;
            if !session.has_to_log_in(users) {
                return self.without_login_s.set(0);
            }
            (session.has_failed_login, session.checks_begun > 0)
        };
        let is_paused = self.state.get() == ConversationState::Paused;
        if is_paused && !checks_password && self.socket.has_hung_up() {
            return self.kill();
        }
        let waits = is_paused || self.state.get() == ConversationState::Held;
        if waits && !has_failed || self.broken.get() {
            return;
        }
        self.without_login_s.set(self.without_login_s.get() + 1);
        if self.without_login_s.get() > LOGIN_S_MAX {
            self.worker.parts.counters.login_timeouts.fetch_add(1, Relaxed);
            let client = self.client().clone();
            tracing::debug!(
                target: "server", id = client.id(), peer = client.peer(),
                "disconnected a client that has not logged in for {LOGIN_S_MAX} s"
            );
            self.kill();
        }
    }
}
