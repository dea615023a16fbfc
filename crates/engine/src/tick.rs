//! The tick of a worker as a machine: events in, actions out.
//!
//! ```text
//! rounds of connections -> park (replies), hold (notices), await room in the log (commands)
//! end of the tick, or the log has moved:
//!   gather writes -> flush here, or wake the log's thread
//!   -> release: notices, then replies, up to the committed position; ask the log for a wake-up at the next
//!   -> resume: commands that wait for room, once there is some
//!   -> gather messages (flush, release and resume between the looks) -> deliver
//! ```
//!
//! A [`Tick`] holds the replies, notices and commands that wait for the log at one worker, and decides the
//! order of steps at the end of a tick. The server's workers and the simulation carry out its actions. `C` is
//! the type by which these owners name a connection.
//!
//! A tick has no sockets and no threads, and sees the log as a [`LogView`]. Replies that wait for nothing do
//! not pass through it.
//!
//! Invariants
//! - A connection is released only when the log is committed up to the gate that it was parked with.
//! - Notices are released in the order in which they were held, and none before its gate.
//! - One wake-up is requested from the log: for the reply or notice that is first in its queue. An element
//!   with a smaller gate later in the queue waits for the first element.
//! - After a tick has ended, the replies and notices that are left will be looked at again: a wake-up is
//!   requested at the smaller gate of the first reply and the first notice, or before, or the next end is due
//!   (asserted in release builds too).
//! - A resumed command that has to wait for room again is not resumed in the same pass over the waiting
//!   commands.

mod log_view;

use std::collections::VecDeque;

use lsn::Lsn;
use pubsub::Backpressure;

pub use self::log_view::LogView;
use crate::{Executor, Notice, conversation::ConversationState, event_queue::EventQueue};

/// If at least one connection of a worker waits for the disk, and at most this many, the worker writes the
/// batch itself instead of waking the log's thread.
const FLUSH_HERE_PARKED_MAX: usize = 1;
/// The maximum number of extra looks at the sockets for further writes before a batch is begun.
const WRITE_LOOKS_MAX: usize = 3;
/// The maximum number of extra looks at the sockets before messages are delivered.
const MESSAGE_LOOKS_MAX: usize = 3;
/// Number of rounds that must have published before the worker looks for more.
const PUBLISHING_ROUNDS_MIN: usize = 2;

/// The next action of the owner of a [`Tick`].
#[derive(Debug, Clone, PartialEq)]
pub enum Action<C> {
    /// Let all connections that are ready have a round first: they probably bring more for the same batch, or
    /// for the same write to a subscriber.
    LookAgain,
    /// Flush one batch on this thread: with a single writer that saves two changes of thread.
    FlushHere,
    /// Wake the log's thread, if records wait to be written.
    WakeFlusher,
    /// Publish these notices, in this order: the log is committed up to all their gates.
    Publish(Vec<Notice>),
    /// The connection's replies up to this gate may leave.
    Release(C, Lsn),
    /// The connection may try its next command again: the log has room.
    Resume(C),
    /// Deliver the published messages, and send them with the other bytes pushed to connections.
    Deliver,
}

/// The consequences of the end of a round for the owner.
#[derive(Debug)]
#[must_use]
pub struct RoundEnd {
    /// Why the publisher's next command is to wait: the messages come faster than the receivers take them.
    pub backpressure: Option<Backpressure>,
    /// Whether the messages are so many that they must be delivered now.
    pub must_deliver: bool,
    /// Whether the end of the tick has become due: see [`Tick::request_end`].
    pub ends_tick: bool,
}

/// The parked connections, notices, and commands waiting for room that a worker holds until the log moves.
#[derive(Debug)]
pub struct Tick<C> {
    /// The gates and the connections, in the order in which the connections were parked.
    parked: VecDeque<(Lsn, C)>,
    notices: EventQueue,
    awaiting_room: VecDeque<C>,
    /// Rounds that have published something since messages were last delivered.
    publishing_rounds: usize,
    /// Whether the end of the tick was requested and has not begun.
    is_due: bool,
    step: Step,
    /// Looks taken so far in this gathering.
    looks: usize,
    /// Parked connections, or rounds that published, at the last look.
    seen: usize,
    /// The committed position of the log, as the present release has last read it.
    committed: Lsn,
    /// The position at which the log is to wake the owner, if a wake-up was requested.
    wake_up: Option<Lsn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// No tick is ending: there is no action.
    Idle,
    /// Several connections may wait for a batch that is not begun.
    GatherWrites,
    Flush,
    BeginRelease(AfterRelease),
    Release(AfterRelease),
    /// Notices were published: their messages are delivered before further replies leave.
    DeliverNotices(AfterRelease),
    AskForRoom,
    /// The number of commands that are still to be resumed.
    Resume(usize),
    GatherMessages,
    Deliver,
    Finish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRelease {
    /// The connections that still wait are counted: with several, the sockets get another look.
    LookForWrites,
    AskForRoom,
}

impl<C> Default for Tick<C> {
    fn default() -> Self {
        Tick {
            parked: VecDeque::new(),
            notices: EventQueue::default(),
            awaiting_room: VecDeque::new(),
            publishing_rounds: 0,
            is_due: false,
            step: Step::Idle,
            looks: 0,
            seen: 0,
            committed: Lsn::ZERO,
            wake_up: None,
        }
    }
}

// ---- events -----------------------------------------------------------------------------------------------

impl<C: Clone> Tick<C> {
    /// Notes that a round of the connection has ended in `state`, and that its newest replies wait for
    /// `gate`, if any. Takes the executor's notices, and hands the executor's messages over to other workers.
    /// To be called before the replies of the round leave.
    pub fn after_round(
        &mut self,
        executor: &mut Executor,
        connection: &C,
        gate: Option<Lsn>,
        state: ConversationState,
    ) -> RoundEnd {
        let awaits_room = state == ConversationState::WaitForLog;
        if let Some(gate) = gate {
            self.parked.push_back((gate, connection.clone()));
        }
        if awaits_room {
            self.awaiting_room.push_back(connection.clone());
        }
        let notices = executor.take_notices();
        let backpressure = executor.backpressure_of(&notices);
        let holds = self.notices.hold(notices);
        let wrote = executor.take_wrote();
        let publishes = executor.channels().flush_mailboxes();
        self.publishing_rounds += usize::from(publishes);
        let is_due = wrote || holds || publishes || gate.is_some() || awaits_room;
        RoundEnd {
            backpressure,
            must_deliver: executor.channels().must_deliver(),
            ends_tick: is_due && self.request_end(),
        }
    }
}

impl<C> Tick<C> {
    /// Notes that the worker has made changes by itself: expiry, eviction, leases. Returns whether the end of
    /// the tick has become due.
    #[must_use]
    pub fn after_own_changes(&mut self, executor: &mut Executor) -> bool {
        let holds = self.notices.hold(executor.take_notices());
        (executor.take_wrote() || holds) && self.request_end()
    }

    /// Notes that a long unit has ended on its own thread, with these notices.
    pub fn after_long_unit(
        &mut self,
        executor: &mut Executor,
        notices: Vec<Notice>,
        wrote: bool,
    ) -> RoundEnd {
        let backpressure = executor.backpressure_of(&notices);
        let holds = self.notices.hold(notices);
        RoundEnd { backpressure, must_deliver: false, ends_tick: (wrote || holds) && self.request_end() }
    }

    /// Notes that bytes for the connection wait for `gate`.
    pub fn park(&mut self, gate: Lsn, connection: C) {
        self.parked.push_back((gate, connection));
    }

    /// Requests the end of the tick. Returns false if the end was requested already; else the owner calls
    /// [`Tick::begin_end`] once the connections that are ready have had their rounds. The owner also calls
    /// [`Tick::begin_end`] whenever the log has woken the owner.
    #[must_use]
    pub fn request_end(&mut self) -> bool {
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Notes that published messages were delivered although no [`Action::Deliver`] asked for a delivery.
    pub fn note_delivered(&mut self) {
        self.publishing_rounds = 0;
    }

    /// Begins the end of the tick; [`Tick::next_action`] continues it.
    ///
    /// # Panics
    /// If an end has begun and has not ended.
    pub fn begin_end(&mut self) {
        assert!(!self.is_ending(), "a tick ends once");
        (self.is_due, self.looks) = (false, 0);
        self.step = Step::GatherWrites;
    }

    /// Takes the connections that are parked at positions up to `up_to`, because their replies have become
    /// errors.
    pub fn take_overdue(&mut self, up_to: Lsn) -> Vec<C> {
        let (overdue, parked) = self.parked.drain(..).partition(|(gate, _)| *gate <= up_to);
        self.parked = parked;
        let overdue: VecDeque<(Lsn, C)> = overdue;
        overdue.into_iter().map(|(_, connection)| connection).collect()
    }

    /// Forgets everything: the log has failed, or the worker ends.
    pub fn clear(&mut self) {
        *self = Tick::default();
    }

    /// Whether so many notices wait for the disk that no command may run.
    pub fn is_congested(&self) -> bool {
        self.notices.is_full()
    }

    /// Whether the end of a tick has begun and has not ended: there are actions left.
    pub fn is_ending(&self) -> bool {
        self.step != Step::Idle
    }
}

// ---- actions ----------------------------------------------------------------------------------------------

impl<C> Tick<C> {
    /// The next action of the end of the tick; `None` when it has ended. Between two calls the owner carries
    /// the action out; anything may happen meanwhile.
    ///
    /// # Panics
    /// If a reply or notice would wait for ever.
    pub fn next_action(&mut self, log: &impl LogView) -> Option<Action<C>> {
        loop {
            match self.step {
                Step::Idle => return None,
                Step::GatherWrites => self.step = self.gather_writes(log),
                Step::Flush => {
                    self.step = Step::BeginRelease(AfterRelease::AskForRoom);
                    let is_alone = (1..=FLUSH_HERE_PARKED_MAX).contains(&self.parked.len());
                    let here = is_alone && log.needs_flush();
                    return Some(if here { Action::FlushHere } else { Action::WakeFlusher });
                }
                Step::BeginRelease(after) => {
                    self.committed = log.committed_lsn();
                    self.step = Step::Release(after);
                }
                Step::Release(after) => match self.release(log) {
                    Some(action) => {
                        if matches!(action, Action::Publish(_)) {
                            self.step = Step::DeliverNotices(after);
                        }
                        return Some(action);
                    }
                    None if after == AfterRelease::AskForRoom => self.step = Step::AskForRoom,
                    None if self.parked.len() > FLUSH_HERE_PARKED_MAX => {
                        (self.looks, self.seen) = (self.looks + 1, self.parked.len());
                        self.step = Step::GatherWrites;
                        return Some(Action::LookAgain);
                    }
                    None => self.step = self.end_gathering_writes(),
                },
                Step::DeliverNotices(after) => {
                    self.publishing_rounds = 0;
                    self.step = Step::Release(after);
                    return Some(Action::Deliver);
                }
                Step::AskForRoom => {
                    let must_wait = self.awaiting_room.is_empty() || log.wait_for_room();
                    // Commands that have to wait again are resumed after the next look at the sockets, or at
                    // the end of another tick.
                    self.step = Step::Resume(if must_wait { 0 } else { self.awaiting_room.len() });
                }
                Step::Resume(left) => match self.awaiting_room.pop_front_if(|_| left > 0) {
                    Some(connection) => {
                        self.step = Step::Resume(left - 1);
                        return Some(Action::Resume(connection));
                    }
                    None => self.step = Step::GatherMessages,
                },
                Step::GatherMessages => {
                    let rounds = self.publishing_rounds;
                    let brings_more = self.looks == 0 || rounds != self.seen;
                    let looks_again = self.looks < MESSAGE_LOOKS_MAX && brings_more;
                    if rounds < PUBLISHING_ROUNDS_MIN || !looks_again {
                        self.step = Step::Deliver;
                    } else {
                        (self.looks, self.seen) = (self.looks + 1, rounds);
                        self.step = Step::Flush;
                        return Some(Action::LookAgain);
                    }
                }
                Step::Deliver => {
                    self.publishing_rounds = 0;
                    self.step = Step::Finish;
                    return Some(Action::Deliver);
                }
                Step::Finish => {
                    self.assert_nothing_is_forgotten();
                    self.step = Step::Idle;
                }
            }
        }
    }

    /// Decides whether the sockets get another look before a batch is begun. While several connections wait,
    /// the sockets get looks as long as each look brings further writes, at most [`WRITE_LOOKS_MAX`]: a
    /// batch, and waking the thread that writes it, costs more than many records. A single writer is never
    /// delayed.
    fn gather_writes(&mut self, log: &impl LogView) -> Step {
        let brings_more = self.looks == 0 || self.parked.len() > self.seen;
        if self.looks < WRITE_LOOKS_MAX && brings_more && log.needs_flush() {
            Step::BeginRelease(AfterRelease::LookForWrites)
        } else {
            self.end_gathering_writes()
        }
    }

    fn end_gathering_writes(&mut self) -> Step {
        self.looks = 0;
        Step::Flush
    }

    /// Releases the next notices or replies. If none may leave, the log is asked for a wake-up.
    fn release(&mut self, log: &impl LogView) -> Option<Action<C>> {
        loop {
            let notices = self.notices.release(self.committed);
            if !notices.is_empty() {
                return Some(Action::Publish(notices));
            }
            if let Some((_, connection)) = self.parked.pop_front_if(|(gate, _)| *gate <= self.committed) {
                return Some(Action::Release(connection, self.committed));
            }
            self.wake_up = self.gate();
            if log.wait_for(self.wake_up?) {
                return None;
            }
            // The log has moved meanwhile.
            self.committed = log.committed_lsn();
        }
    }

    /// The position at which the log is to wake the owner; `None` if no reply or notice waits.
    fn gate(&self) -> Option<Lsn> {
        let parked = self.parked.front().map(|(gate, _)| *gate);
        parked.into_iter().chain(self.notices.gate()).min()
    }

    fn assert_nothing_is_forgotten(&self) {
        let is_awaited = |gate| self.wake_up.is_some_and(|wake_up| wake_up <= gate);
        assert!(self.is_due || self.gate().is_none_or(is_awaited), "what waits will be looked at again");
    }
}

#[cfg(test)]
mod tests;
