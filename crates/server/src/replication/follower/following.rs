//! [`Following`]: the state that the threads of a replica share with the rest of the server.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use backup::fetch::Breaker;
use engine::replication::LinkState;
use lsn::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use replication::Receiver;
use storage::Log;

/// The state that the link, the applier and the rest of the server share.
pub(crate) struct Following {
    /// Whether to receive nothing more.
    stopping: AtomicBool,
    /// Whether to apply everything received, committed or not, and then end.
    draining: AtomicBool,
    /// The connection to the leader, stored so that other threads can break it.
    socket: Mutex<Option<TcpStream>>,
    /// Breaks the full copy in progress.
    copying: Mutex<Option<Breaker>>,
    link: AtomicU8,
    /// The receiver and the socket, while frames arrive.
    session: Mutex<Option<(Receiver, TcpStream)>>,
    committed: (Mutex<Lsn>, Condvar),
    /// The position up to which the log was last shown; `None` if it was not shown yet.
    shown: Mutex<Option<Lsn>>,
    applied: AtomicU64,
    needed_from: AtomicU64,
    /// The number of servers in the chain of leaders above this server, as last heard; 1 if nothing was
    /// heard.
    distance: AtomicU8,
    /// When the leader was last heard from, or else following began, in monotonic milliseconds.
    heard_ms: AtomicU64,
    /// When the link last went down, or else following began, in monotonic milliseconds.
    down_since_ms: AtomicU64,
    /// When all committed records were last applied, in monotonic milliseconds; 0 if never.
    as_of_ms: AtomicU64,
    /// When following began, in monotonic milliseconds.
    began_ms: u64,
    /// The number of wake-ups so far, and the condition that ends the link's pause between two attempts.
    pause: (Mutex<u64>, Condvar),
}

const LINKS: [LinkState; 5] = [
    LinkState::Connect,
    LinkState::Connecting,
    LinkState::Copying,
    LinkState::Connected,
    LinkState::Leaderless,
];

impl Following {
    /// The state of a server that begins to follow at the end of its log, which is applied up to `applied`.
    pub(crate) fn new(applied: Lsn, now_ms: u64) -> Following {
        Following {
            stopping: false.into(),
            draining: false.into(),
            socket: Mutex::default(),
            copying: Mutex::default(),
            link: 0.into(),
            session: Mutex::default(),
            committed: (Mutex::new(Lsn::ZERO), Condvar::new()),
            shown: Mutex::default(),
            applied: applied.get().into(),
            needed_from: applied.get().into(),
            distance: 1.into(),
            heard_ms: now_ms.into(),
            down_since_ms: now_ms.into(),
            as_of_ms: 0.into(),
            began_ms: now_ms,
            pause: Default::default(),
        }
    }

    pub(crate) fn link(&self) -> LinkState {
        LINKS[usize::from(self.link.load(SeqCst)) % LINKS.len()]
    }

    pub(super) fn set_link(&self, link: LinkState, now_ms: u64) {
        let before = self.link.swap(link as u8, SeqCst);
        if before == LinkState::Connected as u8 {
            self.down_since_ms.store(now_ms, SeqCst);
        }
    }

    /// The position up to which the log is applied to memory.
    pub(crate) fn applied(&self) -> Lsn {
        Lsn::new(self.applied.load(SeqCst))
    }

    /// The position up to which the applier may apply.
    pub(crate) fn applicable(&self, log: &Log) -> Lsn {
        let received = log.shippable_lsn();
        if self.is_draining() { received } else { self.committed().min(received) }
    }

    /// The position from which a snapshot taken now needs the log.
    pub(crate) fn needed_from(&self) -> Lsn {
        Lsn::new(self.needed_from.load(SeqCst))
    }

    /// The position up to which the log is known to be committed, from the leader or the votes of the group.
    pub(crate) fn committed(&self) -> Lsn {
        *self.committed.0.lock()
    }

    /// Milliseconds since the leader was last heard from, or else since following began.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(SeqCst))
    }

    /// Milliseconds since the link went down; `None` while it is up.
    pub(crate) fn down_ms(&self, now_ms: u64) -> Option<u64> {
        (self.link() != LinkState::Connected).then(|| now_ms.saturating_sub(self.down_since_ms.load(SeqCst)))
    }

    /// When all committed records were last applied, in monotonic milliseconds; `None` if never.
    pub(crate) fn caught_up_ms(&self) -> Option<u64> {
        Some(self.as_of_ms.load(SeqCst)).filter(|&at_ms| at_ms > 0)
    }

    /// Milliseconds since all committed records were applied, or else since following began.
    pub(crate) fn behind_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.caught_up_ms().unwrap_or(self.began_ms))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Breaks the connection; the link tries again, perhaps with another leader. The link is shown as down
    /// from now on, before its thread notices.
    pub(crate) fn reconnect(&self, now_ms: u64) {
        self.set_link(LinkState::Connect, now_ms);
        self.break_connection();
    }

    fn break_connection(&self) {
        if let Some(socket) = &*self.socket.lock() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(breaker) = self.copying.lock().take() {
            breaker.break_off();
        }
        self.wake();
    }

    /// Registers the socket of an attempt, so that other threads can break the attempt. Fails if following is
    /// to stop.
    pub(super) fn begins(&self, socket: TcpStream) -> Result<(), String> {
        *self.socket.lock() = Some(socket);
        if self.is_stopping() { Err("it is to end".into()) } else { Ok(()) }
    }

    /// Registers the handle that breaks the copy in progress.
    pub(crate) fn set_copying(&self, breaker: Option<Breaker>) {
        *self.copying.lock() = breaker;
    }

    /// Stops receiving.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.break_connection();
    }

    /// Lets the applier apply everything received, and then end. Called after [`Following::stop`].
    pub(crate) fn drain(&self, log: &Log) {
        self.draining.store(true, SeqCst);
        self.wake();
        log.wake_cursors();
    }

    fn wake(&self) {
        *self.pause.0.lock() += 1;
        self.pause.1.notify_all();
        drop(self.committed.0.lock());
        self.committed.1.notify_all();
    }

    pub(crate) fn note_committed(&self, committed: Lsn) {
        let mut known = self.committed.0.lock();
        if *known < committed {
            *known = committed;
            self.committed.1.notify_all();
        }
    }

    /// Shows the log up to the commit position: replies and messages from records up to there may leave.
    /// Records that were applied earlier are visible already, so the log is shown at least up to the applied
    /// position.
    pub(super) fn show_committed(&self, log: &Log) {
        let position = self.committed().max(self.applied());
        let mut shown = self.shown.lock();
        if shown.is_none_or(|shown| shown < position) {
            *shown = Some(position);
            log.set_acked(position);
        }
    }

    /// Sends an acknowledgement if one is due. Skipped while another thread has locked the session, because
    /// that thread sends its own acknowledgement.
    pub(super) fn ack(&self, log: &Log, now_ms: u64) {
        if let Some(mut session) = self.session.try_lock()
            && let Some((receiver, socket)) = &mut *session
        {
            // If the write fails, the next read fails, too, and ends the connection.
            let _ = self.send_ack(receiver, socket, log, now_ms);
        }
    }

    /// Sends an acknowledgement if one is due.
    pub(super) fn send_ack(
        &self,
        receiver: &mut Receiver,
        mut socket: &TcpStream,
        log: &Log,
        now_ms: u64,
    ) -> io::Result<()> {
        match receiver.ack(now_ms, log.shippable_lsn(), self.applied()) {
            Some(ack) => socket.write_all(&ack),
            None => Ok(()),
        }
    }

    /// The receiver and the socket, while frames arrive.
    pub(super) fn session(&self) -> MutexGuard<'_, Option<(Receiver, TcpStream)>> {
        self.session.lock()
    }

    /// Notes that the leader was heard from. `distance` is the leader's own distance, plus one, if the leader
    /// has told it.
    pub(super) fn note_heard(&self, now_ms: u64, distance: Option<u8>) {
        self.heard_ms.store(now_ms, SeqCst);
        if let Some(distance) = distance {
            self.distance.store(distance, SeqCst);
        }
    }

    /// The number of servers in the chain of leaders above this server, as last heard; 1 if nothing was
    /// heard.
    pub(crate) fn distance(&self) -> u8 {
        self.distance.load(SeqCst)
    }

    /// Notes the beginning of an attempt to connect. Returns how often the link was woken, for
    /// [`Following::pause`].
    pub(super) fn begin_attempt(&self, now_ms: u64) -> u64 {
        self.set_link(LinkState::Connecting, now_ms);
        *self.pause.0.lock()
    }

    /// Notes the end of an attempt to connect, or of the connection.
    pub(super) fn end_attempt(&self, now_ms: u64) {
        *self.socket.lock() = None;
        self.set_link(LinkState::Connect, now_ms);
    }

    /// Pauses between two attempts: for `wait`, or, if `wait` is `None`, until the link is woken. Returns at
    /// once if the link was woken since [`Following::begin_attempt`] returned `woken`.
    pub(super) fn pause(&self, woken: u64, wait: Option<Duration>) {
        let mut pause = self.pause.0.lock();
        if *pause == woken {
            match wait {
                Some(wait) => _ = self.pause.1.wait_for(&mut pause, wait),
                None => self.pause.1.wait(&mut pause),
            }
        }
    }

    /// Receives nothing more, because the server restarts in-process.
    pub(super) fn end_receiving(&self) {
        self.stopping.store(true, SeqCst);
    }

    /// Whether everything received is to be applied, committed or not.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }

    /// Waits for a commit position above `applied`, or for a wake-up, for `wait` at most.
    pub(super) fn await_commit(&self, applied: Lsn, wait: Duration) {
        let mut known = self.committed.0.lock();
        if *known <= applied && !self.is_draining() {
            self.committed.1.wait_for(&mut known, wait);
        }
    }

    /// Notes that the log is applied up to `applied`, and that a snapshot taken now needs the log from
    /// `needed_from` on.
    pub(super) fn note_applied(&self, applied: Lsn, needed_from: Lsn) {
        self.applied.store(applied.get(), SeqCst);
        self.needed_from.store(needed_from.get(), SeqCst);
    }

    /// Notes that all committed records are applied at this time.
    pub(super) fn note_caught_up(&self, now_ms: u64) {
        self.as_of_ms.store(now_ms, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_never_caught_up_is_behind_since_it_began() {
        let following = Following::new(Lsn::ZERO, 1_000);
        assert_eq!((following.caught_up_ms(), following.behind_ms(7_000)), (None, 6_000));
        following.as_of_ms.store(6_500, SeqCst);
        assert_eq!((following.caught_up_ms(), following.behind_ms(7_000)), (Some(6_500), 500));
    }
}
