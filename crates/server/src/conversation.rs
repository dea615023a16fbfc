//! A conversation: request bytes in, reply bytes out, with everything a connection is but the socket.
//!
//! The server's connections and the simulation both drive it, so what is simulated is what runs.
//!
//! ```text
//! bytes -> parse up to GROUP commands -> resolve and prefetch all -> execute each -> outbox (held by gates)
//! ```
//!
//! Invariants
//! - Bytes that were not turned into executed commands stay in `pending`, in order.
//! - After a protocol error or QUIT nothing more is parsed; what was executed is answered, then the connection ends.
//! - While a limit is reached (`wants_input` is false) nothing is parsed, so memory per connection is bounded by the limits.

use commands::{Call, Executor, Host, Outcome, Resolved, Session};
use lsn::Lsn;
use wire::{Limits, RequestBatch, RequestParser};

use crate::outbox::Outbox;

/// Commands whose memory is fetched together. 32 covers the latency of main memory several times.
const GROUP: usize = 32;
/// Commands executed before other connections get their turn.
const COMMANDS_PER_TURN_MAX: usize = 1024;
/// Reply bytes not yet taken by the client above which its commands wait.
const OUTBOX_BYTES_MAX: usize = 1 << 20;
/// An idle connection keeps no larger input buffer.
const PENDING_BYTES_KEPT_MAX: usize = 16 << 10;

/// What one worker lends to the conversation it serves.
pub struct Round<'w> {
    /// Executes the commands.
    pub executor: &'w mut Executor,
    /// Reused by all conversations of the worker.
    pub batch: &'w mut RequestBatch,
    /// The process.
    pub host: &'w dyn Host,
    /// Unix milliseconds.
    pub now_ms: u64,
    /// The limits of authenticated clients.
    pub limits: Limits,
    /// With merging off, called around every command that may write.
    pub flush_alone: Option<&'w dyn Fn()>,
}

/// Why a conversation stopped although it had input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// All complete commands are executed.
    Idle,
    /// There is more to do: call [`Conversation::resume`] after the others had their turn.
    More,
    /// The log must move before the next command.
    WaitForLog,
    /// The client must take replies before the next command.
    WaitForClient,
    /// Paused for [`Session::pause_ms`].
    Paused,
    /// Nothing more will be executed: close when the outbox is empty.
    Closing,
}

/// See the module documentation.
pub struct Conversation {
    /// What the server remembers about the client.
    pub session: Session,
    /// Its replies.
    pub outbox: Outbox,
    parser: RequestParser,
    pending: Vec<u8>,
}

impl Conversation {
    /// A conversation that has just begun.
    pub fn new(session: Session) -> Conversation {
        Conversation { session, outbox: Outbox::default(), parser: RequestParser::new(), pending: Vec::new() }
    }

    /// Bytes held over from before.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Executes the commands in `input`, which follows everything received before. What is left is kept.
    pub fn receive(&mut self, input: &[u8], round: &mut Round<'_>) -> Turn {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(input);
            return self.resume(round);
        }
        let (consumed, turn) = self.process(input, round);
        if turn != Turn::Closing {
            self.pending.extend_from_slice(&input[consumed..]);
        }
        turn
    }

    /// Goes on with the input that is kept.
    pub fn resume(&mut self, round: &mut Round<'_>) -> Turn {
        let pending = std::mem::take(&mut self.pending);
        let (consumed, turn) = self.process(&pending, round);
        self.pending = pending;
        if consumed == self.pending.len() || turn == Turn::Closing {
            self.pending.clear();
            if self.pending.capacity() > PENDING_BYTES_KEPT_MAX {
                self.pending = Vec::new();
            }
        } else if consumed > 0 {
            self.pending.drain(..consumed);
        }
        turn
    }

    /// Executes commands from the front of `buffer`; returns how many bytes they took.
    fn process(&mut self, buffer: &[u8], round: &mut Round<'_>) -> (usize, Turn) {
        self.outbox.begin_round();
        round.executor.begin_round(round.now_ms, round.host, round.limits.bulk_bytes_max);
        let (mut at, mut executed) = (0, 0);
        let turn = loop {
            if let Some(turn) = self.blocked() {
                break turn;
            }
            if executed >= COMMANDS_PER_TURN_MAX {
                break Turn::More;
            }
            // AUTH lifts the limits, so it must be executed before what follows is parsed.
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
                // The parser has looked beyond the commands that ran; it must look at the others again.
                self.parser.reset();
                at += if done == 0 { 0 } else { round.batch.end(done - 1) };
                break stopped.unwrap_or(Turn::More);
            }
            at += parsed.consumed;
            if let Some(error) = parsed.error {
                error.render(self.outbox.bytes_mut());
                self.session.closing = true;
            } else if count < group {
                break self.blocked().unwrap_or(Turn::Idle);
            }
        };
        (at, turn)
    }

    /// Why no command may be executed now, if so.
    fn blocked(&self) -> Option<Turn> {
        if self.session.closing {
            Some(Turn::Closing)
        } else if self.session.pause_ms > 0 {
            Some(Turn::Paused)
        } else if self.outbox.len() > OUTBOX_BYTES_MAX {
            Some(Turn::WaitForClient)
        } else {
            None
        }
    }

    /// Executes the commands of the batch; returns how many ran and why it stopped before the end.
    fn execute_group(&mut self, buffer: &[u8], round: &mut Round<'_>) -> (usize, Option<Turn>) {
        let count = round.batch.len();
        let batch = &*round.batch;
        let executor = &mut *round.executor;
        let mut resolved = [const { Resolved::UNKNOWN }; GROUP];
        for (index, slot) in resolved[..count].iter_mut().enumerate() {
            *slot = executor.resolve(batch.command(index, buffer));
        }
        if count > 1 {
            for resolved in &resolved[..count] {
                executor.prefetch_bucket(&self.session, resolved);
            }
            for resolved in &resolved[..count] {
                executor.prefetch_entry(&self.session, resolved);
            }
        }
        for (index, &resolved) in resolved[..count].iter().enumerate() {
            if let Some(turn) = self.blocked() {
                return (index, Some(turn));
            }
            let call = Call { args: batch.command(index, buffer), resolved };
            if !self.execute(call, executor, round.host) {
                return (index, Some(Turn::WaitForLog));
            }
            if let Some(flush_alone) = round.flush_alone {
                flush_alone();
            }
        }
        (count, None)
    }

    /// Executes one command; `false` if the log cannot take it now.
    #[inline]
    fn execute(&mut self, call: Call<'_>, executor: &mut Executor, host: &dyn Host) -> bool {
        let mark = self.outbox.mark();
        match executor.execute(call, &mut self.session, host, self.outbox.bytes_mut()) {
            Outcome::Done { gate: Lsn::ZERO } => true,
            Outcome::Done { gate } => {
                if gate > executor.durable_lsn() {
                    self.outbox.hold(mark, gate);
                }
                true
            }
            Outcome::Wait => false,
        }
    }
}
