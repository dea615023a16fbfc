//! A connection: one socket, plain or encrypted, and the conversation on it.
//!
//! One task per connection polls a small state machine: it sends the replies that may be sent, resumes the
//! interrupted conversation, and reads more. Once the gates of parked replies are committed, the worker sends
//! them itself, without waking the task.
//!
//! Invariants
//! - The task sleeps only if an event will wake it. Such an event comes from the socket (readable, or
//!   writable after it refused bytes), from the worker (for example because the log has moved, or a blocked
//!   command is answered), or from a timer (DEBUG SLEEP, a login that waits, the deadline of a blocked or
//!   held command).
//! - While the conversation is interrupted the socket is not read, so the client feels back-pressure. If it
//!   does not read its replies while its commands wait, it gets more room within limits, and is disconnected
//!   in the end (`unread`).
//! - Blocked commands, which may wait for ever, and commands that CLIENT PAUSE holds are exceptions. A
//!   bounded amount of input is read behind them, to detect that the client has closed the connection. A
//!   client that sends more behind a blocked command is disconnected after a while (`backlog`).

mod backlog;
mod keeping_up;
mod login_time;
mod socket;
mod unread;

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use engine::{
    CommandError, Executor, Host, LongReply, PeerClaim, Place, Session,
    clients::{Client, ClientKind},
    conversation::{Conversation, ConversationState, Round},
};
use lsn::Lsn;
use pubsub::{
    Backpressure, Delivery,
    durable::{Encoded, ReaderEvent, ReaderId, Run},
};
use tokio::time::Instant;

use self::backlog::Backlog;
pub(crate) use self::backlog::UNSENT_BYTES_MAX;
pub(crate) use self::keeping_up::DISTRUST_US;
use self::keeping_up::KeepingUp;
pub(crate) use self::socket::{Socket, Taken};
use self::unread::Unread;
pub(crate) use self::unread::UnreadReplies;
use crate::worker::Worker;

/// The maximum number of non-empty reads of one connection before other connections get their turn.
const READS_PER_TURN_MAX: usize = 2;

/// The state of one client connection.
pub(crate) struct Connection {
    worker: Rc<Worker>,
    conversation: RefCell<Conversation>,
    socket: Socket,
    /// Wakes the task; set whenever the task has been polled.
    waker: RefCell<Option<Waker>>,
    state: Cell<ConversationState>,
    /// Whether the socket accepted less than it was given.
    refused: Cell<bool>,
    /// Whether the connection must close now and drop its unsent bytes.
    broken: Cell<bool>,
    /// Whether the interrupted conversation may go on.
    resumable: Cell<bool>,
    /// Whether bytes were pushed since the worker last called [`Connection::send_pushed`].
    pushed: Cell<bool>,
    /// Deadline of the blocked or held command.
    deadline: Cell<Option<Instant>>,
    /// State of the checks for a client that receives too slowly.
    backlog: Cell<Backlog>,
    /// The time of the first check that found the input behind a blocked command at its limit. `None` while
    /// no command is blocked, or while there is room for more input.
    full_since_ms: Cell<Option<u64>>,
    /// The share of this connection in [`Worker::unsent_bytes`].
    counted_bytes: Cell<usize>,
    /// State of the checks that decide whether publishers wait for this subscriber.
    keeping_up: Cell<KeepingUp>,
    /// State of the checks for a client that sends commands and does not read its replies.
    unread: Cell<Unread>,
    /// The seconds that [`Connection::require_login`] has counted; 0 if the client does not have to log in.
    without_login_s: Cell<u32>,
}

impl Connection {
    /// The connection, and the future that serves it until it ends.
    pub(crate) fn new(
        socket: Socket,
        client: Arc<Client>,
        (place, on_behalf_of): (Place, Option<Box<[u8]>>),
        worker: Rc<Worker>,
    ) -> (Rc<Connection>, impl Future<Output = ()>) {
        let users = worker.host.users.current();
        let mut session = Session::new(client, users.default_user().admits_everybody());
        session.place = place;
        if let Some(name) = on_behalf_of {
            session.log_in_over_http(name, &users);
        }
        if worker.host.users.settings().certificates_name_users {
            session.certificate_name = socket.certificate_name().map(|name| name.into_bytes().into());
            if worker.parts.progress.loading().is_none() {
                session.log_in_by_certificate(&users);
            }
        }
        let connection = Rc::new(Connection {
            worker,
            conversation: RefCell::new(Conversation::new(session)),
            socket,
            waker: RefCell::new(None),
            state: Cell::new(ConversationState::Idle),
            refused: Cell::new(false),
            broken: Cell::new(false),
            resumable: Cell::new(false),
            pushed: Cell::new(false),
            deadline: Cell::new(None),
            backlog: Cell::default(),
            full_since_ms: Cell::default(),
            counted_bytes: Cell::new(0),
            keeping_up: Cell::default(),
            unread: Cell::default(),
            without_login_s: Cell::default(),
        });
        let served = connection.clone();
        (connection, async move { poll_fn(|cx| served.poll(cx)).await })
    }

    /// The connection's entry in the list of clients.
    pub(crate) fn client(&self) -> std::cell::Ref<'_, Arc<Client>> {
        std::cell::Ref::map(self.conversation.borrow(), |conversation| &conversation.session.client)
    }

    /// One step of the state machine. Ready when the connection has ended and none of its commands runs on
    /// another thread.
    fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.step(cx);
        if ended.is_ready() && self.is_away() {
            self.hang_up();
            return Poll::Pending;
        }
        ended
    }

    /// Shuts the socket down in both directions at once, although the connection object lives on.
    fn hang_up(&self) {
        if let Ok(socket) = self.socket.as_fd().try_clone_to_owned() {
            let _ = std::net::TcpStream::from(socket).shutdown(std::net::Shutdown::Both);
        }
    }

    fn step(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.remember(cx.waker());
        // The waker is registered only when the socket is not ready, so this writes until the socket refuses
        // bytes.
        while self.refused.get() && !self.broken.get() {
            match self.socket.stream().poll_write_ready(cx) {
                Poll::Ready(Ok(())) if self.send() => {}
                // No bytes may leave now. They leave when the pause ends, or when the leader has a lease
                // again; if the socket refuses bytes then, this task is woken.
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let mut reads = 0;
        loop {
            if self.broken.get() {
                return Poll::Ready(());
            }
            match self.state.get() {
                ConversationState::Idle if reads == READS_PER_TURN_MAX => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                ConversationState::Idle => match self.read(cx) {
                    Poll::Ready(Ok(())) => reads += 1,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                },
                ConversationState::Closing => {
                    let sent = self.conversation.borrow().outbox.is_empty() && self.socket.is_flushed();
                    return if sent && !self.is_away() { Poll::Ready(()) } else { Poll::Pending };
                }
                ConversationState::More => {
                    // Yield first: this task goes to the end of the queue.
                    if !self.resumable.replace(true) {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    self.go_on();
                }
                ConversationState::Blocked | ConversationState::Held if !self.resumable.get() => {
                    match self.read_ahead(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                ConversationState::Blocked | ConversationState::Held => self.go_on(),
                ConversationState::WaitForClient
                | ConversationState::WaitForLog
                | ConversationState::WaitForSubscribers
                | ConversationState::Paused
                | ConversationState::Away => {
                    if !self.resumable.get() {
                        return Poll::Pending;
                    }
                    self.go_on();
                }
            }
        }
    }

    fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if known.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_read(cx, buffer, &self.worker.encrypted_buffer)
    }

    /// The socket, the request and the user, if the client is another server that takes the connection over.
    /// `None` for other clients, and if no descriptor is left. Call when the connection has ended.
    pub(crate) fn take_over(&self) -> Option<(Taken, PeerClaim, Vec<u8>)> {
        let session = &mut self.conversation.borrow_mut().session;
        let claim = session.claim.take()?;
        self.socket.take().ok().map(|taken| (taken, claim, session.login.name().to_vec()))
    }

    /// Reads once and executes the received commands.
    fn read(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = self.worker.read_buffer.borrow_mut();
        let read = std::task::ready!(self.poll_read(cx, &mut buffer))?;
        let input = &buffer[..read];
        if input.is_empty() {
            // The client has closed its side for sending, but may still wait for replies.
            self.close_after_replies();
            return Poll::Ready(Ok(()));
        }
        self.round(|conversation, round| {
            conversation.session.client.received(input.len() as u64);
            conversation.receive(input, round)
        });
        Poll::Ready(Ok(()))
    }

    /// Reads while a command is blocked or held. As in Redis, a client that closes its sending side counts as
    /// disconnected.
    fn read_ahead(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.conversation.borrow().keeps_more() {
            return Poll::Pending;
        }
        let mut buffer = self.worker.read_buffer.borrow_mut();
        let read = std::task::ready!(self.poll_read(cx, &mut buffer))?;
        let input = &buffer[..read];
        if input.is_empty() {
            self.close_after_replies();
        } else {
            let mut conversation = self.conversation.borrow_mut();
            conversation.session.client.received(input.len() as u64);
            conversation.keep(input);
        }
        Poll::Ready(Ok(()))
    }

    fn go_on(self: &Rc<Self>) {
        self.send();
        self.resumable.set(false);
        self.conversation.borrow_mut().session.end_pause(&self.worker.host.clients);
        self.round(|conversation, round| conversation.resume(round));
    }

    /// Runs commands, sends the sendable replies, hands gated replies to the worker.
    fn round(self: &Rc<Self>, run: impl FnOnce(&mut Conversation, &mut Round<'_>) -> ConversationState) {
        self.worker.send_replies_of_before();
        let (state, held, pause_ms) = {
            let mut conversation = self.conversation.borrow_mut();
            let state = self.worker.with_round(|round| run(&mut conversation, round));
            if conversation.spoke_http() {
                let parts = &self.worker.parts;
                parts.cross_protocol.note(parts.clock.monotonic_us(), conversation.session.client.peer());
            }
            (state, conversation.outbox.held_in_round(), conversation.session.pause_ms)
        };
        self.state.set(state);
        match state {
            ConversationState::Blocked => {
                let timeout_ms = self.conversation.borrow().wait_timeout_ms();
                self.await_deadline(timeout_ms);
            }
            ConversationState::Held => self.await_deadline(Some(pause_ms)),
            _ => {}
        }
        if state == ConversationState::WaitForClient && self.is_newly_unread() {
            self.worker.watch_unread(self);
        }
        if state == ConversationState::Paused {
            let connection = self.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                connection.resume();
            });
        }
        let backpressure = self.worker.after_round(self, held, state);
        if let Some(reason) = backpressure
            && matches!(
                state,
                ConversationState::Idle | ConversationState::More | ConversationState::WaitForSubscribers
            )
        {
            self.state.set(ConversationState::WaitForSubscribers);
            self.worker.hold_back(self, reason);
        }
        if state == ConversationState::Away {
            let client_id = self.client().id();
            let unit = self.conversation.borrow_mut().take_long_unit();
            if let Some(unit) = unit {
                self.worker.run_on_own_thread(client_id, unit);
            }
        }
        if state == ConversationState::Idle {
            self.worker.send_together(self);
        } else {
            self.send();
        }
    }

    /// Has the worker call [`Connection::time_out`] at the deadline of the command that has blocked or is
    /// held.
    fn await_deadline(&self, timeout_ms: Option<u64>) {
        if self.deadline.get().is_some() {
            return;
        }
        let timeout = timeout_ms.map(Duration::from_millis);
        // A timeout beyond the range of the clock is for ever.
        self.deadline.set(timeout.and_then(|timeout| Instant::now().checked_add(timeout)));
        if let Some(deadline) = self.deadline.get() {
            self.worker.timeouts.add(deadline, self.client().id());
        }
    }

    /// Removes the deadline of a blocked or held command that waits no more.
    fn forget_deadline(&self) {
        self.full_since_ms.set(None);
        if let Some(deadline) = self.deadline.take() {
            self.worker.timeouts.remove(deadline, self.client().id());
        }
    }

    /// Ends the wait of the blocked or held command, whose deadline has passed.
    pub(crate) fn time_out(&self) {
        self.deadline.set(None);
        self.full_since_ms.set(None);
        let timed_out = self.state.get() == ConversationState::Held
            || self.conversation.borrow_mut().time_out(&self.worker.host);
        if timed_out {
            self.resume();
        }
    }

    /// Runs the command that CLIENT PAUSE has held: the pause was ended.
    pub(crate) fn end_hold(&self) {
        if self.state.get() == ConversationState::Held {
            self.forget_deadline();
            self.resume();
        }
    }

    /// Appends the reply to the blocked command; returns the same as [`Connection::push`].
    pub(crate) fn answer(&self, bytes: &[u8], gate: Lsn, committed: Lsn) -> (Option<Lsn>, bool) {
        self.forget_deadline();
        let mut conversation = self.conversation.borrow_mut();
        conversation.answer(bytes, gate, committed);
        let held = conversation.outbox.held_in_round();
        drop(conversation);
        self.resume();
        (held, !self.pushed.replace(true))
    }

    /// Takes the reply of a long unit that has ended; returns the same as [`Connection::push`]. With
    /// `backpressure`, the next command is held back, as after any other unit.
    pub(crate) fn return_from_thread(
        self: &Rc<Self>,
        reply: LongReply,
        committed: Lsn,
        backpressure: Option<Backpressure>,
    ) -> (Option<Lsn>, bool) {
        let mut conversation = self.conversation.borrow_mut();
        conversation.return_from_thread(reply, committed);
        let held = conversation.outbox.held_in_round();
        drop(conversation);
        match backpressure {
            Some(reason) if self.state.get() == ConversationState::Away => {
                self.state.set(ConversationState::WaitForSubscribers);
                self.worker.hold_back(self, reason);
            }
            _ => self.resume(),
        }
        (held, !self.pushed.replace(true))
    }

    /// Takes the bytes to push after the reply of the long unit that has just ended.
    pub(crate) fn take_behind_reply(&self) -> Vec<(Box<[u8]>, Lsn)> {
        self.conversation.borrow_mut().take_behind_reply()
    }

    /// Whether a command of the client runs on another thread.
    pub(crate) fn is_away(&self) -> bool {
        self.conversation.borrow().is_away()
    }

    /// Sends the sendable bytes, as far as the socket accepts them. A paused conversation (DEBUG SLEEP, a
    /// login that waits) sends nothing before its pause ends. Returns whether bytes may leave now.
    pub(crate) fn send(&self) -> bool {
        if self.state.get() == ConversationState::Paused && !self.resumable.get() {
            return false;
        }
        if self.broken.get() {
            // A broken connection sends nothing more. If it was closed because this server no longer leads,
            // its replies may show old data.
            return false;
        }
        if !self.worker.may_answer() && self.conversation.borrow().session.shows_data.get() {
            self.worker.withhold(self);
            return false;
        }
        let mut conversation = self.conversation.borrow_mut();
        let (mut sent, had_refused) = (0, self.refused.get());
        let refused = loop {
            let bytes = conversation.outbox.sendable();
            let is_all = bytes.is_empty();
            let written = if is_all {
                self.socket.flush().map(|()| 0)
            } else {
                self.socket.write(&conversation.outbox)
            };
            match written {
                Ok(_) if is_all => break false,
                Ok(count) => {
                    conversation.outbox.consume(count);
                    sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(_) => {
                    self.broken.set(true);
                    break false;
                }
            }
        };
        if sent > 0 {
            conversation.session.client.sent(sent as u64);
            conversation.note_sent();
        }
        let waits_for_client = self.state.get() == ConversationState::WaitForClient;
        if waits_for_client && conversation.outbox.is_empty() {
            self.resumable.set(true);
        }
        let finished =
            self.state.get() == ConversationState::Closing && conversation.outbox.is_empty() && !refused;
        let pending_bytes = conversation.pending_bytes() as u64;
        conversation.session.client.set_buffered(pending_bytes, conversation.outbox.len() as u64);
        drop(conversation);
        if refused || self.counted_bytes.get() > 0 {
            self.note_unsent(refused);
        }
        self.note_pace(had_refused, refused);
        if refused != self.refused.replace(refused) && refused
            || self.broken.get()
            || finished
            || self.resumable.get()
        {
            self.wake();
        }
        true
    }

    /// Sends the withheld replies. If the socket refuses bytes, the task waits for the socket.
    pub(crate) fn send_withheld(&self) {
        if self.send() && self.refused.get() {
            self.wake();
        }
    }

    /// Sends the replies whose gates are committed, now that the log is committed up to `committed`. If the
    /// socket has refused bytes, the task sends them later.
    pub(crate) fn release(&self, committed: Lsn) {
        self.conversation.borrow_mut().outbox.release(committed);
        if !self.refused.get() {
            self.send();
        }
    }

    /// Appends bytes pushed to the client; the worker calls [`Connection::send_pushed`] at the end of its
    /// tick. Returns the gate of the held bytes, if any, and whether these bytes are the first since the last
    /// `send_pushed`.
    pub(crate) fn push(&self, bytes: &[u8], gate: Lsn, committed: Lsn) -> (Option<Lsn>, bool) {
        let mut conversation = self.conversation.borrow_mut();
        conversation.push(bytes, gate, committed);
        (conversation.outbox.held_in_round(), !self.pushed.replace(true))
    }

    /// Appends messages of channels, which are sent together with pushed bytes. Returns whether these
    /// messages are the first bytes since `send_pushed`.
    pub(crate) fn deliver(&self, delivery: &mut Delivery) -> bool {
        self.conversation.borrow_mut().deliver(delivery);
        !self.pushed.replace(true)
    }

    /// Appends messages of durable channels, which are sent together with pushed bytes. Returns whether these
    /// messages are the first bytes since `send_pushed`.
    pub(crate) fn feed(&self, id: ReaderId, run: &Run<'_>, encoded: &mut [Option<Encoded>; 2]) -> bool {
        self.conversation.borrow_mut().feed(id, run, encoded);
        !self.pushed.replace(true)
    }

    /// Applies an event from the thread of durable channels with `notify`, and appends the client's message.
    /// Returns the same as [`Connection::feed`].
    pub(crate) fn notify(
        &self,
        event: &ReaderEvent,
        notify: impl FnOnce(&mut Session, &mut Vec<u8>),
    ) -> bool {
        if self.conversation.borrow_mut().notify(event, notify) {
            self.resume();
        }
        !self.pushed.replace(true)
    }

    /// Whether the connection must be closed with its bytes unsent.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Lends the session, to end its subscriptions and leases.
    pub(crate) fn with_session<R>(&self, run: impl FnOnce(&mut Session) -> R) -> R {
        run(&mut self.conversation.borrow_mut().session)
    }

    /// Sends the outbox after bytes were pushed, as far as bytes may leave now. If the socket has refused
    /// bytes, it only counts the unsent bytes and applies the limits: the task sends once the socket is
    /// writable.
    pub(crate) fn send_pushed(&self) {
        self.pushed.set(false);
        if !self.refused.get() {
            self.send();
            return;
        }
        {
            let conversation = self.conversation.borrow();
            let (pending, unsent) = (conversation.pending_bytes() as u64, conversation.outbox.len() as u64);
            conversation.session.client.set_buffered(pending, unsent);
        }
        self.note_unsent(true);
        self.note_pace(true, true);
    }

    /// Lets the conversation go on, because the cause of its interruption is over.
    pub(crate) fn resume(&self) {
        self.resumable.set(true);
        self.wake();
    }

    /// Ends the connection at once.
    pub(crate) fn kill(&self) {
        self.broken.set(true);
        self.wake();
    }

    /// Replaces held replies, whose outcome will never be known, by an error, and ends the connection.
    pub(crate) fn fail(&self, error: &CommandError) {
        {
            let mut conversation = self.conversation.borrow_mut();
            if conversation.outbox.is_holding() {
                conversation.outbox.discard_held();
                conversation.outbox.bytes_mut().extend_from_slice(&error_line(error));
            }
        }
        self.send();
        self.kill();
    }

    /// Whether the user may use all channels to which the connection listens, and MONITOR if it runs.
    pub(crate) fn may_listen(&self, executor: &mut Executor, host: &Host) -> bool {
        executor.may_listen(&self.conversation.borrow().session, host)
    }

    /// Whether the connection has a place for clients, a reserved one, or none any more.
    pub(crate) fn place(&self) -> Place {
        self.conversation.borrow().session.place
    }

    /// Whether a command of the client blocks.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.get() == ConversationState::Blocked
    }

    /// Ends a connection that loses its place, after an error that gives this reason.
    pub(crate) fn turn_away(&self) {
        self.conversation.borrow_mut().turn_away();
        self.send();
        self.kill();
    }

    /// Turns the replies that wait for a gate up to `up_to` into errors. Returns the number of these replies.
    /// If replies cannot be told from other bytes, it ends the connection as [`Connection::fail`] does and
    /// returns 1.
    pub(crate) fn fail_held(&self, up_to: Lsn, error: &CommandError) -> u64 {
        let listens = self.client().kind() == ClientKind::PubSub;
        let failed = match listens {
            // In RESP2, messages look like replies: held replies cannot be told from messages.
            true => None,
            false => self.conversation.borrow_mut().outbox.fail_held(up_to, &error_line(error)),
        };
        match failed {
            Some(0) => return 0,
            Some(_) => _ = self.send(),
            None => self.fail(error),
        }
        failed.unwrap_or(1)
    }

    /// Accepts no more commands; ends when the replies are sent.
    pub(crate) fn close_after_replies(&self) {
        self.forget_deadline();
        self.conversation.borrow_mut().close();
        self.state.set(ConversationState::Closing);
        self.wake();
    }

    /// Cleans up after the connection has ended. The wait of a blocked command ends, so that nothing more is
    /// popped for it.
    pub(crate) fn end(&self) {
        self.socket.say_goodbye();
        if self.is_holding() {
            // The worker keeps the connection until the log is committed up to the gates of its replies. The
            // log may never be committed so far, and the client must not wait for that.
            self.hang_up();
        }
        self.broken.set(true);
        self.forget_deadline();
        self.count_unsent(0);
        self.end_waiting_for_it();
        self.forget_unread();
        self.conversation.borrow_mut().close();
    }

    /// Whether the outbox has bytes that wait for no gate.
    pub(crate) fn has_sendable(&self) -> bool {
        !self.conversation.borrow().outbox.sendable().is_empty()
    }

    /// Whether replies wait for their gates.
    pub(crate) fn is_holding(&self) -> bool {
        self.conversation.borrow().outbox.is_holding()
    }
}

/// An error as a RESP line.
pub(crate) fn error_line(error: &CommandError) -> Vec<u8> {
    let mut line = vec![b'-'];
    error.render(&mut line);
    line.extend_from_slice(b"\r\n");
    line
}
