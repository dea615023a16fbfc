//! A conversation: request bytes in, reply bytes out, with everything of a connection except the socket.
//!
//! The server's connections and the simulation drive the same code.
//!
//! ```text
//! bytes -> parse up to GROUP commands -> resolve and prefetch all -> execute each -> outbox (held by gates)
//! ```
//!
//! Invariants
//! - Bytes that were not turned into executed commands stay in `pending`, in order, until the conversation
//!   closes.
//! - After a protocol error or QUIT no further command is executed; the commands before it are answered, then
//!   the connection ends.
//! - While the outbox is above its limit, no command is executed: a client that takes no replies causes no
//!   more replies. The limit is [`Conversation::outbox_bytes_allowed`], and for a subscriber at least 32 MiB.
//! - After a message for subscribers that do not receive fast enough, nothing is executed until the caller
//!   resumes the conversation.
//! - While a command runs on another thread nothing is parsed.
//! - While a command is blocked nothing is parsed. The wait ends with [`Conversation::answer`],
//!   [`Conversation::notify`], [`Conversation::time_out`] or the end of the connection, whichever comes
//!   first.

use std::sync::Arc;

use lsn::Lsn;
use pubsub::{
    Delivery,
    durable::{Encoded, Flow, ReaderEvent, ReaderId, Run},
};
use wire::{Limits, ProtocolError, ReplyWriter, RequestBatch, RequestParser};

use crate::{
    Call, Executor, Host, LongReply, LongUnit, Outcome, Place, Resolved, Session, Wait,
    clients::TOO_MANY_CLIENTS, outbox::Outbox,
};

/// The maximum number of commands whose memory is fetched together. With 32, the latency of main memory is
/// covered several times.
const GROUP: usize = 32;
/// The smallest number of commands in a row on one key for which prefetching inside the key's value is
/// worthwhile.
const RUN_LEN_MIN: usize = 4;
/// About so many commands are executed before other connections get their turn.
const COMMANDS_PER_TURN_MAX: usize = 1024;
/// The turn of a connection ends about so many microseconds after its first script or EXEC has run: one
/// script can take as long as many commands.
const SCRIPTS_PER_TURN_US: u64 = 2_000;
/// Unsent bytes above which the commands of a client wait, unless it is allowed more.
pub const OUTBOX_BYTES_MAX: usize = 1 << 20;
/// As [`OUTBOX_BYTES_MAX`], for a subscriber: its UNSUBSCRIBE must not wait for all the messages before it.
const SUBSCRIBER_OUTBOX_BYTES_MAX: usize = 32 << 20;
/// While a command is blocked or held, input is read until this many request bytes are kept. After that the
/// client is not read, so its disconnection is noticed only later.
const PENDING_WHILE_BLOCKED_BYTES_MAX: usize = 1 << 20;
/// An idle connection keeps no larger input buffer.
const PENDING_BYTES_KEPT_MAX: usize = 16 << 10;

/// The tools that a worker lends to a conversation for one round.
pub struct Round<'w> {
    /// The executor of the worker, which runs the commands.
    pub executor: &'w mut Executor,
    /// The batch into which commands are parsed; reused by all conversations of the worker.
    pub batch: &'w mut RequestBatch,
    /// The process around the executor.
    pub host: &'w Host,
    /// The time of the round, unix milliseconds.
    pub now_ms: u64,
    /// The limits of authenticated clients.
    pub limits: Limits,
    /// Too many notices wait for the log: nothing is executed until there are fewer.
    pub is_congested: bool,
    /// Called after a command, or after commands on one key that ran as one; `None` unless `log-merge` is
    /// `no`.
    pub flush_alone: Option<&'w dyn Fn()>,
}

/// Why a conversation executes no further command now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationState {
    /// All complete commands are executed.
    Idle,
    /// There is more to do: call [`Conversation::resume`] after other connections had their turn.
    More,
    /// The log must move before the next command.
    WaitForLog,
    /// The client must take replies before the next command.
    WaitForClient,
    /// The subscribers of the client's messages are too slow: [`pubsub::Local::take_backpressure`] returns
    /// the condition for the next command.
    WaitForSubscribers,
    /// Paused: call [`Session::end_pause`] after [`Session::pause_ms`] milliseconds. No reply may leave
    /// meanwhile.
    Paused,
    /// Clients are paused for [`Session::pause_ms`], or until the client gets [`Signal::GoOn`]: call
    /// [`Session::end_pause`] then.
    ///
    /// [`Signal::GoOn`]: crate::clients::Signal::GoOn
    Held,
    /// The command waits for a key or for the answer of another thread, for at most
    /// [`Conversation::wait_timeout_ms`].
    Blocked,
    /// The command runs on another thread, until [`Conversation::return_from_thread`]. Pass the result of
    /// [`Conversation::take_long_unit`] to that thread.
    Away,
    /// Nothing more will be executed: close when the outbox is empty.
    Closing,
}

/// The commands and replies of one connection.
pub struct Conversation {
    /// The state of the client.
    pub session: Session,
    /// The replies to the client that are not sent yet.
    pub outbox: Outbox,
    parser: RequestParser,
    pending: Vec<u8>,
    /// Upper bound of the bytes in the outbox that others have pushed.
    pushed_bytes: usize,
    /// The flow of the messages from the log that are in the outbox.
    fed: Option<(ReaderId, Arc<Flow>)>,
    /// Upper bound of the bytes of the messages from the log that are in the outbox.
    fed_bytes: usize,
    /// Unsent bytes above which the commands of a client that is no subscriber wait.
    outbox_bytes_max: usize,
    /// Whether the conversation is closing because the client has sent a line of HTTP.
    spoke_http: bool,
    /// About the time at which this turn of the connection ends; `None` if it has run no script and no EXEC.
    turn_ends_us: Option<u64>,
    /// Whether a command runs on another thread.
    is_away: bool,
    /// Pushed bytes that follow the reply of the command on another thread, each with its gate.
    behind_reply: Vec<(Box<[u8]>, Lsn)>,
    /// The command for another thread, until [`Conversation::take_long_unit`].
    long_unit: Option<Box<LongUnit>>,
}

impl Conversation {
    /// A conversation that has just begun.
    pub fn new(session: Session) -> Conversation {
        let (outbox, parser) = (Outbox::default(), RequestParser::new());
        Conversation {
            session,
            outbox,
            parser,
            pending: Vec::new(),
            pushed_bytes: 0,
            fed: None,
            fed_bytes: 0,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            spoke_http: false,
            turn_ends_us: None,
            is_away: false,
            behind_reply: Vec::new(),
            long_unit: None,
        }
    }

    /// Whether the client has sent HTTP, for which it gets no answer.
    pub fn spoke_http(&self) -> bool {
        self.spoke_http
    }

    /// Request bytes that were received and not executed yet.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Appends bytes that others send to the client, held until `gate` is committed. A conversation that is
    /// closing takes nothing more. Bytes that may invalidate what the reply of a command on another thread
    /// shows wait for that reply: see [`Conversation::take_behind_reply`].
    pub fn push(&mut self, bytes: &[u8], gate: Lsn, committed: Lsn) {
        if self.session.closing {
            self.session.client.pushed_taken(bytes.len() as u64);
            return;
        }
        if self.is_away && self.session.client.pushes_wait() {
            self.behind_reply.push((bytes.into(), gate));
            return;
        }
        self.append(bytes, gate, committed);
        self.pushed_bytes += bytes.len();
    }

    /// Appends messages of channels. A conversation that is closing takes no more.
    pub fn deliver(&mut self, delivery: &mut Delivery) {
        if !self.session.closing {
            self.outbox.begin_round();
            self.outbox.deliver(delivery);
        }
    }

    /// Appends messages of durable channels for the reader `id`, in the protocol of the client. A
    /// conversation that is closing, or whose client is not this reader, takes nothing.
    pub fn feed(&mut self, id: ReaderId, run: &Run<'_>, encoded: &mut [Option<Encoded>; 2]) {
        let Some(reader) = self.session.reader.as_deref().filter(|it| it.id == id) else { return };
        if self.session.closing {
            return;
        }
        if self.fed.as_ref().is_none_or(|(fed, _)| *fed != id) {
            (self.fed, self.fed_bytes) = (Some((id, reader.flow.clone())), 0);
        }
        let protocol = self.session.protocol;
        let mut delivery = Delivery::default();
        encoded[protocol as usize].get_or_insert_with(|| run.encode(protocol)).deliver_to(&mut delivery);
        self.outbox.begin_round();
        self.outbox.deliver(&mut delivery);
        self.fed_bytes += run.len();
    }

    /// Applies an event of the thread of durable channels with `notify`, and appends the message that
    /// `notify` writes. A refusal is not appended for a client that gets no replies. Does nothing if the
    /// client is closing or is not this reader. Returns `true` if the wait of a blocked command is over;
    /// `false` for the loss of a subscription, and if nothing was done.
    pub fn notify(&mut self, event: &ReaderEvent, notify: impl FnOnce(&mut Session, &mut Vec<u8>)) -> bool {
        let is_reader = self.session.reader.as_ref().is_some_and(|it| it.id == event.reader());
        if !is_reader || self.session.closing {
            return false;
        }
        let mut said = Vec::new();
        notify(&mut self.session, &mut said);
        if matches!(event, ReaderEvent::Lost { .. }) {
            self.append(&said, Lsn::ZERO, Lsn::ZERO);
            return false;
        }
        match self.session.wait.take() {
            Some(Wait::Channels { is_silent: true }) if matches!(event, ReaderEvent::Refused { .. }) => {}
            _ => self.append(&said, Lsn::ZERO, Lsn::ZERO),
        }
        true
    }

    /// Unsent bytes, not counting messages from the log: a client may take those as slowly as it likes.
    pub fn limited_bytes(&self) -> u64 {
        self.outbox.len().saturating_sub(self.fed_bytes) as u64
    }

    /// The approximate memory of [`Conversation::limited_bytes`], without memory that other connections
    /// share.
    pub fn limited_memory_bytes(&self) -> usize {
        self.outbox.own_memory_bytes().saturating_sub(self.fed_bytes)
    }

    fn append(&mut self, bytes: &[u8], gate: Lsn, committed: Lsn) {
        self.outbox.begin_round();
        let mark = self.outbox.mark();
        self.outbox.bytes_mut().extend_from_slice(bytes);
        if gate > committed {
            self.outbox.hold(mark, gate);
        }
    }

    /// Appends the reply to the blocked command, held until `gate` is committed. The next command may run at
    /// once. Does nothing if no command is blocked.
    pub fn answer(&mut self, bytes: &[u8], gate: Lsn, committed: Lsn) {
        if self.session.wait.take().is_some() {
            self.append(bytes, gate, committed);
        }
    }

    /// Ends the wait of the blocked command, which has lasted [`Conversation::wait_timeout_ms`]: appends the
    /// reply of a timeout, and the next command may run. Returns `false` if something else has ended the
    /// wait.
    pub fn time_out(&mut self, host: &Host) -> bool {
        let reply = self.session.wait.as_ref().and_then(|wait| wait.time_out(host));
        let Some(reply) = reply else { return false };
        self.answer(&reply, Lsn::ZERO, Lsn::ZERO);
        true
    }

    /// The longest wait of the blocked command; `None` if no command is blocked, or its wait has no limit.
    pub fn wait_timeout_ms(&self) -> Option<u64> {
        self.session.wait.as_ref().and_then(Wait::timeout_ms)
    }

    /// Takes the command that is to run on another thread; `None` if it was taken, or there is none.
    pub fn take_long_unit(&mut self) -> Option<Box<LongUnit>> {
        self.long_unit.take()
    }

    /// Whether a command runs on another thread, which has the session meanwhile.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Takes the bytes to push after the reply that [`Conversation::return_from_thread`] has appended.
    pub fn take_behind_reply(&mut self) -> Vec<(Box<[u8]>, Lsn)> {
        std::mem::take(&mut self.behind_reply)
    }

    /// Appends the reply of a command that has run on another thread; the next command may run.
    pub fn return_from_thread(&mut self, long: LongReply, committed: Lsn) {
        let LongReply { session, mut reply, gate } = long;
        self.is_away = false;
        self.session.return_from_thread(session);
        self.outbox.begin_round();
        let mark = self.outbox.mark();
        self.outbox.append(&mut reply);
        if gate > committed {
            self.outbox.hold(mark, gate);
        }
    }

    /// Keeps input that arrives while a command is blocked or held.
    pub fn keep(&mut self, input: &[u8]) {
        self.pending.extend_from_slice(input);
    }

    /// Whether [`Conversation::keep`] may be called with more.
    pub fn keeps_more(&self) -> bool {
        self.pending.len() < PENDING_WHILE_BLOCKED_BYTES_MAX
    }

    /// Turns the client away, because its connection loses its place among those that are served. The client
    /// gets an error, and no further command is executed.
    pub fn turn_away(&mut self) {
        let mut text = Vec::new();
        TOO_MANY_CLIENTS.render(&mut text);
        ReplyWriter::new(self.outbox.bytes_mut(), self.session.protocol).error(text);
        self.session.place = Place::Lost;
        self.session.closing = true;
    }

    /// Ends the conversation: no further command is executed, and a blocked one stops waiting.
    pub fn close(&mut self) {
        self.session.closing = true;
        self.session.wait = None;
    }

    /// Lets the client's commands run until `bytes_max` are unsent, for a client that sends all of its
    /// commands before it reads a reply. The permission holds until everything is sent.
    pub fn allow_unsent(&mut self, bytes_max: usize) {
        self.outbox_bytes_max = bytes_max.max(OUTBOX_BYTES_MAX);
    }

    /// The unsent bytes up to which commands run now: [`OUTBOX_BYTES_MAX`], or more while
    /// [`Conversation::allow_unsent`] holds.
    pub fn outbox_bytes_allowed(&self) -> usize {
        self.outbox_bytes_max
    }

    /// Gives sent bytes back to the limits of pushed bytes and of messages from the log; to be called when
    /// something was sent. Sent bytes count as replies first, because replies are not told from pushed bytes
    /// and messages. So a client that never catches up gets too little back, never too much.
    pub fn note_sent(&mut self) {
        if self.outbox.is_empty() {
            self.outbox_bytes_max = OUTBOX_BYTES_MAX;
        }
        let left = self.pushed_bytes.min(self.outbox.len());
        if left < self.pushed_bytes {
            self.session.client.pushed_taken((self.pushed_bytes - left) as u64);
            self.pushed_bytes = left;
        }
        let left = self.fed_bytes.min(self.outbox.len());
        if left < self.fed_bytes {
            if let Some((_, flow)) = &self.fed {
                flow.take((self.fed_bytes - left) as u64);
            }
            self.fed_bytes = left;
        }
    }

    /// Executes the commands in `input`, which follows everything received before. The rest is kept.
    pub fn receive(&mut self, input: &[u8], round: &mut Round<'_>) -> ConversationState {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(input);
            return self.resume(round);
        }
        let (consumed, state) = self.process(input, round);
        if state != ConversationState::Closing {
            self.pending.extend_from_slice(&input[consumed..]);
        }
        state
    }

    /// Goes on with the input that is kept.
    pub fn resume(&mut self, round: &mut Round<'_>) -> ConversationState {
        let pending = std::mem::take(&mut self.pending);
        let (consumed, state) = self.process(&pending, round);
        self.pending = pending;
        if consumed == self.pending.len() || state == ConversationState::Closing {
            self.pending.clear();
            if self.pending.capacity() > PENDING_BYTES_KEPT_MAX {
                self.pending = Vec::new();
            }
        } else if consumed > 0 {
            self.pending.drain(..consumed);
        }
        state
    }

    /// Executes commands from the front of `buffer`; returns how many bytes they took.
    fn process(&mut self, buffer: &[u8], round: &mut Round<'_>) -> (usize, ConversationState) {
        self.outbox.begin_round();
        round.executor.begin_round(round.now_ms, round.host, round.limits.bulk_bytes_max);
        self.turn_ends_us = None;
        let (mut at, mut executed) = (0, 0);
        let state = loop {
            if let Some(state) = self.interruption(round.executor) {
                break state;
            }
            let is_over = executed >= COMMANDS_PER_TURN_MAX || self.is_turn_over(round.host);
            if is_over || round.is_congested {
                break ConversationState::More;
            }
            // AUTH lifts the limits, so it must be executed before the next command is parsed.
            let (limits, group) = if self.session.authenticated {
                (&round.limits, GROUP)
            } else {
                (&Limits::UNAUTHENTICATED, 1)
            };
            let parsed = self.parser.parse(&buffer[at..], limits, round.batch, group);
            let count = round.batch.len();
            let (done, stopped) = self.execute_group(&buffer[at..], round);
            executed += done;
            if done < count {
                // The parser is ahead of the commands that ran; it must parse the others again.
                self.parser.reset();
                at += if done == 0 { 0 } else { round.batch.end(done - 1) };
                break stopped.unwrap_or(ConversationState::More);
            }
            if self.is_away && count > 0 {
                // The input after the offloaded command, with any protocol error in it, is parsed only when
                // that command has returned: so replies keep their order.
                self.parser.reset();
                at += round.batch.end(count - 1);
                break ConversationState::Away;
            }
            at += parsed.consumed;
            if let Some(error) = parsed.error {
                error.render(self.outbox.bytes_mut());
                self.spoke_http = error == ProtocolError::Http;
                self.session.closing = true;
            } else if count < group {
                break self.interruption(round.executor).unwrap_or(ConversationState::Idle);
            }
        };
        round.executor.end_round(round.host);
        (at, state)
    }

    /// Whether scripts have taken the time of a turn.
    fn is_turn_over(&self, host: &Host) -> bool {
        self.turn_ends_us.is_some_and(|ends_us| host.monotonic_us() >= ends_us)
    }

    /// The state because of which no command may be executed now; `None` if one may.
    fn interruption(&self, executor: &Executor) -> Option<ConversationState> {
        if self.is_away {
            Some(ConversationState::Away)
        } else if self.session.closing {
            Some(ConversationState::Closing)
        } else if self.session.wait.is_some() {
            Some(ConversationState::Blocked)
        } else if self.session.is_held {
            Some(ConversationState::Held)
        } else if self.session.pause_ms > 0 {
            Some(ConversationState::Paused)
        } else if self.outbox.len() > self.outbox_bytes_max() {
            Some(ConversationState::WaitForClient)
        } else if executor.has_backpressure() {
            Some(ConversationState::WaitForSubscribers)
        } else {
            None
        }
    }

    fn outbox_bytes_max(&self) -> usize {
        let is_subscriber = self.session.subscribed;
        self.outbox_bytes_max.max(if is_subscriber { SUBSCRIBER_OUTBOX_BYTES_MAX } else { 0 })
    }

    /// Executes the commands of the batch; returns how many ran and why it stopped before the end.
    fn execute_group(&mut self, buffer: &[u8], round: &mut Round<'_>) -> (usize, Option<ConversationState>) {
        let count = round.batch.len();
        let batch = &*round.batch;
        let executor = &mut *round.executor;
        let mut resolved = [const { Resolved::UNKNOWN }; GROUP];
        let mut before = None;
        for (index, slot) in resolved[..count].iter_mut().enumerate() {
            let args = batch.command(index, buffer);
            *slot = executor.resolve(args, before);
            before = Some(Call { args, resolved: *slot });
        }
        if count > 1 {
            for resolved in &resolved[..count] {
                executor.prefetch_bucket(&self.session, resolved);
            }
            let runs = || resolved[..count].chunk_by(Resolved::shares_key);
            runs().for_each(|run| executor.prefetch_entry(&self.session, &run[0]));
            let mut start = 0;
            for run in runs() {
                if run.len() >= RUN_LEN_MIN {
                    let call =
                        |(index, &resolved)| Call { args: batch.command(start + index, buffer), resolved };
                    executor.prefetch_members(&self.session, run.iter().enumerate().map(call));
                }
                start += run.len();
            }
        }
        let call = |index: usize| Call { args: batch.command(index, buffer), resolved: resolved[index] };
        let mut index = 0;
        while index < count {
            if let Some(state) = self.interruption(executor) {
                return (index, Some(state));
            }
            if self.session.place == Place::Reserve && !resolved[index].is_between_servers() {
                self.turn_away();
                return (index, Some(ConversationState::Closing));
            }
            let others = resolved[index + 1..count].iter();
            let run = 1 + others.take_while(|other| other.shares_key(&resolved[index])).count();
            let merged = self.execute_merged((index..index + run).map(call), run, executor, round.host);
            if merged == 0 && !self.execute(call(index), executor, round.host) {
                return (index, Some(self.interruption(executor).unwrap_or(ConversationState::WaitForLog)));
            }
            index += merged.max(1);
            if let Some(flush_alone) = round.flush_alone {
                flush_alone();
            }
            if merged == 0 && resolved[index - 1].may_take_long() {
                self.turn_ends_us.get_or_insert_with(|| round.host.monotonic_us() + SCRIPTS_PER_TURN_US);
                if !self.is_away && index < count && self.is_turn_over(round.host) {
                    return (index, Some(ConversationState::More));
                }
            }
        }
        (count, None)
    }

    /// Executes a run of commands on one key as one unit, or as many of them as can be merged. Returns how
    /// many commands have run.
    #[inline]
    fn execute_merged<'b>(
        &mut self,
        calls: impl Iterator<Item = Call<'b>> + Clone,
        len: usize,
        executor: &mut Executor,
        host: &Host,
    ) -> usize {
        if len < 2 {
            return 0;
        }
        let mark = self.outbox.mark();
        let merged = executor.execute_merged(calls, &mut self.session, host, self.outbox.bytes_mut());
        if merged.gate > executor.committed_lsn() {
            self.outbox.hold(mark, merged.gate);
        }
        merged.count
    }

    /// Executes one command. Returns `false` if the command must wait: for as long as the session pauses, or
    /// for the log.
    #[inline]
    fn execute(&mut self, call: Call<'_>, executor: &mut Executor, host: &Host) -> bool {
        let mark = self.outbox.mark();
        match executor.execute(call, &mut self.session, host, self.outbox.bytes_mut()) {
            Outcome::Done { gate: Lsn::ZERO } => true,
            Outcome::Done { gate } => {
                if gate > executor.committed_lsn() {
                    self.outbox.hold(mark, gate);
                }
                true
            }
            Outcome::Wait => false,
            Outcome::Long => {
                self.long_unit = Some(Box::new(executor.offload(call, &mut self.session)));
                self.is_away = true;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clients::{Clients, Connected};

    use super::*;

    fn conversation() -> Conversation {
        let (peer, local) = ("127.0.0.1:50001".to_string(), "127.0.0.1:6379".to_string());
        let signaller = Box::new(|_, _| {});
        let client =
            Clients::new().register(Connected { peer, peer_uid: None, local, fd: 8, now_ms: 0, signaller });
        Conversation::new(Session::new(client, true))
    }

    fn sendable(conversation: &Conversation) -> &str {
        std::str::from_utf8(conversation.outbox.sendable()).unwrap()
    }

    #[test]
    fn pushed_bytes_follow_the_replies_and_wait_for_their_gate() {
        let mut conversation = conversation();
        conversation.outbox.begin_round();
        conversation.outbox.bytes_mut().extend_from_slice(b"+held\r\n");
        conversation.outbox.hold(0, Lsn::new(10));
        conversation.push(b"+free\r\n", Lsn::ZERO, Lsn::ZERO);
        assert_eq!(conversation.outbox.held_in_round(), None, "nothing new to wait for");
        conversation.push(b"+later\r\n", Lsn::new(20), Lsn::ZERO);
        assert_eq!(conversation.outbox.held_in_round(), Some(Lsn::new(20)));
        assert_eq!(sendable(&conversation), "");
        conversation.outbox.release(Lsn::new(10));
        assert_eq!(sendable(&conversation), "+held\r\n", "what follows belongs to the next gate");
        conversation.outbox.release(Lsn::new(20));
        assert_eq!(sendable(&conversation), "+held\r\n+free\r\n+later\r\n");
        conversation.push(b"+durable\r\n", Lsn::new(20), Lsn::new(20));
        assert!(sendable(&conversation).ends_with("+durable\r\n"));
    }

    #[test]
    fn what_may_invalidate_the_reply_of_a_long_unit_follows_that_reply() {
        let mut conversation = conversation();
        let away = conversation.session.go_away();
        conversation.is_away = true;
        conversation.push(b"+early\r\n", Lsn::ZERO, Lsn::ZERO);
        assert_eq!(sendable(&conversation), "+early\r\n", "the unit has read nothing yet");
        away.client.set_pushes_wait(true);
        conversation.push(b"+late\r\n", Lsn::ZERO, Lsn::ZERO);
        let reply = LongReply { session: away, reply: b"+reply\r\n".to_vec(), gate: Lsn::ZERO };
        conversation.return_from_thread(reply, Lsn::ZERO);
        for (bytes, gate) in conversation.take_behind_reply() {
            conversation.push(&bytes, gate, Lsn::ZERO);
        }
        assert_eq!(sendable(&conversation), "+early\r\n+reply\r\n+late\r\n");
    }

    #[test]
    fn a_conversation_that_ends_takes_nothing_more() {
        let mut conversation = conversation();
        conversation.session.closing = true;
        conversation.push(b"+x\r\n", Lsn::ZERO, Lsn::ZERO);
        assert!(conversation.outbox.is_empty());
    }

    #[test]
    fn a_client_is_allowed_more_until_all_is_sent() {
        let mut conversation = conversation();
        assert_eq!(conversation.outbox_bytes_max(), OUTBOX_BYTES_MAX);
        conversation.allow_unsent(1);
        assert_eq!(conversation.outbox_bytes_max(), OUTBOX_BYTES_MAX, "never less");
        conversation.allow_unsent(4 * OUTBOX_BYTES_MAX);
        conversation.outbox.bytes_mut().extend_from_slice(b"+OK\r\n+OK\r\n");
        conversation.outbox.consume(5);
        conversation.note_sent();
        assert_eq!(conversation.outbox_bytes_max(), 4 * OUTBOX_BYTES_MAX);
        conversation.session.subscribed = true;
        assert_eq!(conversation.outbox_bytes_max(), SUBSCRIBER_OUTBOX_BYTES_MAX);
        conversation.session.subscribed = false;
        conversation.outbox.consume(5);
        conversation.note_sent();
        assert_eq!(conversation.outbox_bytes_max(), OUTBOX_BYTES_MAX);
    }

    #[test]
    fn sent_bytes_no_longer_count_against_the_limit() {
        use crate::clients::PUSHED_BYTES_MAX;
        let mut conversation = conversation();
        let client = conversation.session.client.clone();
        let bytes: std::sync::Arc<[u8]> = vec![b'x'; PUSHED_BYTES_MAX as usize / 2 + 1].into();
        for _ in 0..3 {
            client.push(bytes.clone(), Lsn::ZERO);
            conversation.push(&bytes, Lsn::ZERO, Lsn::ZERO);
            let count = conversation.outbox.sendable().len();
            conversation.outbox.consume(count);
            conversation.note_sent();
        }
        assert!(!client.is_killed());
        client.push(bytes.clone(), Lsn::ZERO);
        client.push(bytes, Lsn::ZERO);
        assert!(client.is_killed());
    }
}
