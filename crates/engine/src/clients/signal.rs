//! Signals from any thread to the worker of a connection: to close it, or to send bytes to its client.
//!
//! Signals serve CLIENT KILL and other reasons to close a connection, the end of a pause, changes of users,
//! MONITOR, invalidations, and replies to clients that were blocked. Messages of channels go through the
//! mailboxes of [`pubsub`] instead. The signals of different senders have no order. The bytes of one sender
//! arrive in order, behind the replies of the current round of the client's worker.
//!
//! Invariants
//! - Signalling never waits and never fails: a signal to a disconnected client is dropped.
//! - The pushed bytes that a client has not taken are bounded: a client that takes them too slowly is
//!   disconnected.

use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, SeqCst},
};

use lsn::Lsn;

use super::{Client, ClientKind};

/// Pushed bytes that a client may leave unsent; a client above this is disconnected. Redis has the same limit
/// for the class `pubsub` (`client-output-buffer-limit`).
pub const PUSHED_BYTES_MAX: u64 = 32 << 20;

/// A request of another thread to the worker of a connection.
#[derive(Debug, Clone)]
pub enum Signal {
    /// Close the connection at once, without sending its buffered replies.
    Close,
    /// The rights of the user have changed: close the connection if it listens to a channel, or to MONITOR,
    /// that the user may no longer use.
    Review,
    /// Send these bytes, whole replies or pushes, once `gate` is committed and everything before them has
    /// been sent.
    Push {
        /// Encoded for the client's protocol. Shared: the same bytes often go to many clients.
        bytes: Arc<[u8]>,
        /// The newest position of anything the bytes show; [`Lsn::ZERO`] if they may be sent at once.
        gate: Lsn,
    },
    /// The client was blocked and its wait is over: send it this reply, as [`Signal::Push`] does, and let its
    /// next command run.
    Answer {
        /// The whole reply; empty if the client gets no replies.
        bytes: Arc<[u8]>,
        /// The position that must be committed before the reply is sent; as in [`Signal::Push`].
        gate: Lsn,
    },
    /// A pause held a command of the client, and was ended: try the command again.
    GoOn,
}

/// Takes a signal for the client with this id to the client's worker. The function is called from any thread,
/// also under slot locks, so it must not block.
pub type Signaller = Box<dyn Fn(u64, Signal) + Send + Sync>;

impl Client {
    /// Asks the worker to close the connection at once, without sending its buffered replies. Only the first
    /// call signals.
    pub fn kill(&self) {
        if !self.killed.swap(true, Relaxed) {
            // No element is popped for the wait that ends here: the client would not get the element.
            if let Some(waiter) = self.waiter() {
                waiter.end();
            }
            (self.signaller)(self.id, Signal::Close);
        }
    }

    /// Has the worker review the client's subscriptions and MONITOR; see [`Signal::Review`]. Signals nothing
    /// if an earlier review has been signalled and has not begun.
    pub fn review(&self) {
        let listens = self.kind() == ClientKind::PubSub || self.is_monitoring();
        if listens && !self.awaits_review.swap(true, SeqCst) {
            (self.signaller)(self.id, Signal::Review);
        }
    }

    /// Notes that the review begins now: a later change of rights needs another review.
    pub fn begin_review(&self) {
        self.awaits_review.store(false, SeqCst);
    }

    /// Has the worker send these bytes; see [`Signal::Push`]. A client that would exceed [`PUSHED_BYTES_MAX`]
    /// is killed instead.
    pub fn push(&self, bytes: Arc<[u8]>, gate: Lsn) {
        let count = bytes.len() as u64;
        let unsent = self.pushed_bytes.fetch_add(count, Relaxed) + count;
        if unsent > PUSHED_BYTES_MAX {
            self.disconnect_slow();
        } else {
            (self.signaller)(self.id, Signal::Push { bytes, gate });
        }
    }

    /// Kills the client because it leaves too many pushed bytes unsent, and says so in the server's log.
    pub(super) fn disconnect_slow(&self) {
        if !self.is_killed() {
            tracing::warn!(
                target: "server", id = self.id, peer = self.peer(), unsent_bytes = self.pushed_unsent_bytes(),
                "disconnected a client that reads too slowly what is pushed to it (MONITOR, CLIENT TRACKING)"
            );
        }
        self.kill();
    }

    /// Has the worker answer the command in which the client is blocked; see [`Signal::Answer`]. The caller
    /// must have ended the wait. There is at most one such answer at a time, so no limit is needed.
    pub fn answer(&self, bytes: Arc<[u8]>, gate: Lsn) {
        (self.signaller)(self.id, Signal::Answer { bytes, gate });
    }

    /// Has the worker try the command that a pause holds again.
    pub(super) fn go_on(&self) {
        (self.signaller)(self.id, Signal::GoOn);
    }

    pub(crate) fn pushed_unsent_bytes(&self) -> u64 {
        self.pushed_bytes.load(Relaxed)
    }

    /// Notes that pushed bytes have been sent, or dropped because the connection is closing.
    pub fn pushed_taken(&self, count: u64) {
        self.pushed_bytes.fetch_sub(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::clients::{Clients, Connected, tests::connected};

    fn recorded() -> (Arc<Client>, Arc<Mutex<Vec<String>>>) {
        let signals = Arc::new(Mutex::new(Vec::new()));
        let seen = signals.clone();
        let signaller: Signaller = Box::new(move |id, signal| {
            seen.lock().push(match signal {
                Signal::Close => format!("close {id}"),
                Signal::Review => format!("review {id}"),
                Signal::Push { bytes, gate } => format!("push {id} {} {}", bytes.len(), gate.get()),
                Signal::Answer { bytes, gate } => format!("answer {id} {} {}", bytes.len(), gate.get()),
                Signal::GoOn => format!("go on {id}"),
            });
        });
        (Clients::new().register(Connected { signaller, ..connected("a:1") }), signals)
    }

    #[test]
    fn killing_signals_once() {
        let (client, signals) = recorded();
        assert!(!client.is_killed());
        client.kill();
        client.kill();
        assert!(client.is_killed());
        assert_eq!(*signals.lock(), ["close 1"]);
    }

    #[test]
    fn changes_of_rights_cause_one_review_until_it_begins() {
        let (client, signals) = recorded();
        client.set_monitoring(true);
        client.review();
        client.review();
        assert_eq!(*signals.lock(), ["review 1"]);
        client.begin_review();
        client.review();
        assert_eq!(*signals.lock(), ["review 1", "review 1"]);
    }

    #[test]
    fn a_client_with_too_many_pushed_bytes_is_disconnected() {
        let (client, signals) = recorded();
        let half: Arc<[u8]> = vec![0; PUSHED_BYTES_MAX as usize / 2].into();
        client.push(half.clone(), Lsn::new(7));
        client.push(half.clone(), Lsn::ZERO);
        client.pushed_taken(half.len() as u64);
        client.push(half.clone(), Lsn::ZERO);
        assert!(!client.is_killed());
        client.push(b"x"[..].into(), Lsn::ZERO);
        let bytes = half.len();
        assert_eq!(
            *signals.lock(),
            [
                format!("push 1 {bytes} 7"),
                format!("push 1 {bytes} 0"),
                format!("push 1 {bytes} 0"),
                "close 1".into()
            ]
        );
    }
}
