//! The end of a worker's tick: replies that wait for the log, notices, and commands that wait for room in the
//! log.
//!
//! ```text
//! rounds of connections -> park (replies), hold (notices), await_log (commands)
//! end of the tick, or the log has moved:
//!   coalesces? -> look at the sockets once more      flusher: write here, or wake the log's thread
//!   release: notices, then connections, up to the durable position -> gate: ask the log for one wake-up there
//!   resume: commands that wait for room, once there is some
//! ```
//!
//! What it is: the decisions, for the server's workers and for the simulation. `C` is their handle of a
//! connection.
//! What it is not: sockets, threads, or the log; its owner acts on them.
//!
//! Invariants
//! - A connection is released only when the log is durable up to the gate that it was parked with.
//! - Notices are released in the order in which they were held, and none before its gate.
//! - The log is asked for one wake-up, at the first gate. A smaller gate behind it waits for at most one
//!   flush more.
//! - While anything waits for a position, [`Tick::gate`] names one: its owner is woken, or looks again at
//!   once.

use std::collections::VecDeque;

use lsn::Lsn;

use crate::{Notice, event_queue::EventQueue};

/// Connections that wait for the disk up to which a worker writes the batch itself instead of waking the
/// log's thread.
const FLUSH_HERE_PARKED_MAX: usize = 1;

/// What one worker holds until the log moves: parked connections, notices, commands that wait for room.
#[derive(Debug)]
pub struct Tick<C> {
    /// In the order of their rounds.
    parked: VecDeque<(Lsn, C)>,
    events: EventQueue,
    awaiting_log: Vec<C>,
}

/// The thread that writes the log next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flusher {
    /// This worker, on the spot: a single writer saves two changes of thread.
    Worker,
    /// The log's thread.
    LogThread,
}

impl<C> Default for Tick<C> {
    fn default() -> Self {
        Tick { parked: VecDeque::new(), events: EventQueue::default(), awaiting_log: Vec::new() }
    }
}

impl<C> Tick<C> {
    /// The connection's newest replies wait for `gate`.
    #[inline]
    pub fn park(&mut self, gate: Lsn, connection: C) {
        self.parked.push_back((gate, connection));
    }

    /// Keeps notices until they are durable. Returns whether there are any.
    #[inline]
    pub fn hold(&mut self, notices: Vec<Notice>) -> bool {
        self.events.hold(notices)
    }

    /// The connection's next command waits for room in the log.
    pub fn await_log(&mut self, connection: C) {
        self.awaiting_log.push(connection);
    }

    /// Parked connections, each counted once per round.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// So many notices wait for the disk that no command may run.
    pub fn is_congested(&self) -> bool {
        self.events.is_full()
    }

    /// Whether the sockets are worth another look before a batch is begun: several connections wait for it
    /// already. To write a batch, and to wake its writer, costs more than many records. A single writer waits
    /// for nobody.
    pub fn coalesces(&self) -> bool {
        self.parked.len() > FLUSH_HERE_PARKED_MAX
    }

    /// The thread that writes the next batch; `syncs`: replies wait for the disk; `is_needed`: something is
    /// appended, and no thread writes it.
    pub fn flusher(&self, syncs: bool, is_needed: impl FnOnce() -> bool) -> Flusher {
        let is_alone = (1..=FLUSH_HERE_PARKED_MAX).contains(&self.parked.len());
        if syncs && is_alone && is_needed() { Flusher::Worker } else { Flusher::LogThread }
    }

    /// Takes the notices that may be sent when the log is durable up to `durable`.
    pub fn release_notices(&mut self, durable: Lsn) -> Vec<Notice> {
        self.events.release(durable)
    }

    /// Takes the next connection whose replies may leave now that the log is durable up to `durable`.
    pub fn release(&mut self, durable: Lsn) -> Option<C> {
        let (gate, _) = self.parked.front()?;
        if *gate > durable {
            return None;
        }
        self.parked.pop_front().map(|(_, connection)| connection)
    }

    /// The position at which the log is to wake the worker; `None` if nothing waits for one.
    pub fn gate(&self) -> Option<Lsn> {
        let parked = self.parked.front().map(|(gate, _)| *gate);
        parked.into_iter().chain(self.events.gate()).min()
    }

    /// Takes the connections whose next commands wait for room. Without room they are to be
    /// [kept](Tick::await_log) again.
    pub fn take_awaiting_log(&mut self) -> Vec<C> {
        std::mem::take(&mut self.awaiting_log)
    }

    /// Takes the connections that are parked at positions up to `up_to`, where replicas have not acknowledged
    /// in time.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> Lsn {
        Lsn::new(position)
    }

    fn parked(gates: &[(u64, &'static str)]) -> Tick<&'static str> {
        let mut tick = Tick::default();
        gates.iter().for_each(|(gate, connection)| tick.park(at(*gate), *connection));
        tick
    }

    #[test]
    fn connections_are_released_in_order_and_not_before_their_gates() {
        let mut tick = parked(&[(8, "a"), (16, "b"), (8, "c")]);
        assert_eq!(tick.gate(), Some(at(8)));
        assert_eq!((tick.release(at(7)), tick.release(at(8)), tick.release(at(8))), (None, Some("a"), None));
        assert_eq!(tick.gate(), Some(at(16)), "the smaller gate behind it waits");
        assert_eq!((tick.release(at(16)), tick.release(at(16))), (Some("b"), Some("c")));
        assert_eq!((tick.gate(), tick.parked()), (None, 0));
    }

    #[test]
    fn a_single_writer_writes_by_itself() {
        assert_eq!(parked(&[]).flusher(true, || true), Flusher::LogThread, "nobody waits");
        let alone = parked(&[(8, "a")]);
        assert!(!alone.coalesces());
        assert_eq!(alone.flusher(true, || true), Flusher::Worker);
        assert_eq!(alone.flusher(false, || true), Flusher::LogThread, "nothing waits for the disk");
        assert_eq!(alone.flusher(true, || false), Flusher::LogThread, "somebody writes");
        let several = parked(&[(8, "a"), (16, "b")]);
        assert!(several.coalesces());
        assert_eq!(several.flusher(true, || true), Flusher::LogThread);
    }

    #[test]
    fn replies_that_replicas_have_not_acknowledged_in_time_are_taken_out() {
        let mut tick = parked(&[(8, "a"), (24, "b"), (16, "c")]);
        assert_eq!(tick.take_overdue(at(16)), ["a", "c"]);
        assert_eq!((tick.gate(), tick.parked()), (Some(at(24)), 1));
    }
}
