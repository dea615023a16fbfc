//! The leader's side of one replica: ships the log, hears how far the replica is, notices when it is gone.
//!
//! ```text
//! log grows | socket drained | tick of the log thread ended | time --> step --> headers and payloads, to be written in order
//! bytes of the replica -------------------------------------------> receive --> Acked, for `Acks`
//! ```
//!
//! What it is: a position, a few times and the rule when something is sent.
//! What it is not: a buffer. Payloads are the bytes that the log hands out, passed on unchanged; what a replica is too slow for
//! stays on disk.
//!
//! Invariants
//! - What is shipped are whole batches, each byte once, in order, from the position on that was agreed, and only up to
//!   `shippable`, which is durable here.
//! - A step ships at most [`RelayOptions::round_bytes_max`], or one batch, however fast the log grows meanwhile; then it is
//!   others' turn.
//! - Nothing is read from the log while the socket holds [`RelayOptions::unsent_bytes_max`].
//! - What is pending waits for nothing but more of it: it goes out when there is enough, when the socket has nothing to do, or
//!   when the log thread has ended its tick, whichever comes first.

use lsn::Lsn;

use crate::{
    Acked, Close, Inbox,
    epoch::is_too_far,
    frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX},
    timing::{HEARTBEAT_MS, SILENCE_MS},
};

/// Where a relay reads the log, from its own position on.
pub trait Source {
    /// Bytes of the log.
    type Bytes;
    /// Why it cannot be read.
    type Error;

    /// The next whole batches, about `bytes_max` or one batch; `None` if there is nothing to ship.
    ///
    /// # Errors
    /// If the log cannot be read, or is forgotten already.
    fn read(&mut self, bytes_max: u64) -> Result<Option<Chunk<Self::Bytes>>, Self::Error>;
}

/// Whole batches of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk<B> {
    /// Where they start.
    pub start: Lsn,
    /// Where they end.
    pub end: Lsn,
    /// Their bytes, from start to end.
    pub bytes: B,
}

/// When a relay ships.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayOptions {
    /// So many pending bytes are enough.
    pub flush_bytes: u64,
    /// A step ships no more than this, or one batch.
    pub round_bytes_max: u64,
    /// A socket that holds so many bytes is given no more.
    pub unsent_bytes_max: u64,
}

impl Default for RelayOptions {
    fn default() -> Self {
        RelayOptions { flush_bytes: 64 << 10, round_bytes_max: 1 << 20, unsent_bytes_max: 1 << 20 }
    }
}

/// How things stand when a step is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Monotonic milliseconds.
    pub now_ms: u64,
    /// Bytes that were handed out and that the socket has not taken.
    pub unsent_bytes: u64,
    /// What may be shipped ends here.
    pub shippable: Lsn,
    /// What is committed ends here.
    pub commit: Lsn,
    /// The epoch of the log here.
    pub epoch: u32,
    /// Whether the log thread has ended a tick since the last step.
    pub has_tick_ended: bool,
}

/// What is to be written: a header, then what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing<B> {
    /// Header of a frame.
    pub header: [u8; HEADER_BYTES],
    /// Its payload, if it has one.
    pub payload: Option<B>,
}

/// What comes after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// There is more to ship: another step, once others have had their turn.
    Again,
    /// A step is due then, or before when the log has grown, the socket is empty, or the log thread's tick has ended.
    Wait {
        /// Monotonic milliseconds.
        until_ms: u64,
    },
}

/// Why a step failed; the connection is to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RelayError<E> {
    /// Because of the replica.
    #[error(transparent)]
    Close(#[from] Close),
    /// The log cannot be read.
    #[error("cannot read the log for a replica: {0}")]
    Source(E),
    /// A batch is larger than a frame may be.
    #[error("a batch of {0} bytes is too large for a replica")]
    Batch(u64),
}

/// See the module documentation.
pub struct Relay {
    options: RelayOptions,
    epoch: u32,
    /// Where what was shipped ends.
    position: Lsn,
    commit_sent: Lsn,
    sent_ms: u64,
    inbox: Inbox,
    acked: Acked,
}

impl Relay {
    /// Ships from `start` on, where the log of the replica ends.
    pub fn new(options: RelayOptions, epoch: u32, start: Lsn, now_ms: u64) -> Relay {
        let acked = Acked { flushed: start, applied: Lsn::ZERO, as_of_ms: 0, heard_ms: now_ms };
        Relay {
            options,
            epoch,
            position: start,
            commit_sent: Lsn::ZERO,
            sent_ms: now_ms,
            inbox: Inbox::default(),
            acked,
        }
    }

    /// Where what was shipped ends.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// How far the replica is.
    pub fn acked(&self) -> Acked {
        self.acked
    }

    /// Where what the replica sends is to be appended; then [`Relay::receive`].
    pub fn inbox(&mut self) -> &mut Vec<u8> {
        self.inbox.space()
    }

    /// Looks at what the replica has sent. Returns how far it is, if it has said so.
    ///
    /// # Errors
    /// If the connection is to be closed. For [`Close::Fenced`] the caller stops being a leader as well.
    pub fn receive(&mut self, now_ms: u64) -> Result<Option<Acked>, Close> {
        let mut has_acked = false;
        while let Some((frame, _)) = self.inbox.next()? {
            let Frame::Ack { epoch, flushed, applied, as_of_ms } = frame else {
                return Err(Close::Direction);
            };
            if is_too_far(epoch, self.epoch) {
                return Err(Close::Epoch { epoch, own: self.epoch });
            }
            if epoch > self.epoch {
                return Err(Close::Fenced { epoch, own: self.epoch });
            }
            let acked = flushed.max(applied);
            if acked > self.position {
                return Err(Close::NotShipped { acked, shipped: self.position });
            }
            self.acked = Acked {
                flushed: flushed.max(self.acked.flushed),
                applied: applied.max(self.acked.applied),
                as_of_ms: as_of_ms.max(self.acked.as_of_ms),
                heard_ms: now_ms,
            };
            has_acked = true;
        }
        Ok(has_acked.then_some(self.acked))
    }

    /// Appends to `out` what is to be written now.
    ///
    /// # Errors
    /// If the connection is to be closed.
    ///
    /// # Panics
    /// If the source is not at the position of this relay.
    pub fn step<S: Source>(
        &mut self,
        moment: Moment,
        source: &mut S,
        out: &mut Vec<Outgoing<S::Bytes>>,
    ) -> Result<Turn, RelayError<S::Error>> {
        let silent_ms = self.acked.heard_ms + SILENCE_MS;
        if moment.now_ms >= silent_ms {
            return Err(Close::Silent.into());
        }
        self.epoch = self.epoch.max(moment.epoch);
        let frames_before = out.len();
        if self.is_due(&moment) {
            self.ship(&moment, source, out)?;
        }
        let has_shipped = out.len() > frames_before;
        // A commit that has moved is told as soon as there is nothing to tell it with.
        let has_news = moment.commit > self.commit_sent && moment.unsent_bytes == 0;
        if !has_shipped && (has_news || moment.now_ms >= self.sent_ms + HEARTBEAT_MS) {
            let (epoch, end, commit) = (self.epoch, self.position, moment.commit);
            let heartbeat = Frame::Heartbeat { epoch, end, commit, sent_ms: moment.now_ms };
            self.send(heartbeat, None, out);
        }
        let may_go_on = has_shipped && self.position < moment.shippable;
        Ok(if may_go_on {
            Turn::Again
        } else {
            Turn::Wait { until_ms: silent_ms.min(self.sent_ms + HEARTBEAT_MS) }
        })
    }

    /// The flush rule.
    fn is_due(&self, moment: &Moment) -> bool {
        let pending_bytes = moment.shippable.get().saturating_sub(self.position.get());
        let is_enough =
            pending_bytes >= self.options.flush_bytes || moment.unsent_bytes == 0 || moment.has_tick_ended;
        pending_bytes > 0 && is_enough && moment.unsent_bytes < self.options.unsent_bytes_max
    }

    fn ship<S: Source>(
        &mut self,
        moment: &Moment,
        source: &mut S,
        out: &mut Vec<Outgoing<S::Bytes>>,
    ) -> Result<(), RelayError<S::Error>> {
        let mut left = self.options.round_bytes_max;
        while left > 0 && self.position < moment.shippable {
            let Some(chunk) = source.read(left).map_err(RelayError::Source)? else { break };
            assert_eq!(chunk.start, self.position, "the source follows the relay");
            let bytes = chunk.end.bytes_since(chunk.start);
            if bytes > PAYLOAD_BYTES_MAX as u64 {
                return Err(RelayError::Batch(bytes));
            }
            let (epoch, start, commit) = (self.epoch, chunk.start, moment.commit);
            let head = Frame::Log { epoch, start, bytes: bytes as u32, commit, sent_ms: moment.now_ms };
            self.send(head, Some(chunk.bytes), out);
            self.position = chunk.end;
            left = left.saturating_sub(bytes);
        }
        Ok(())
    }

    fn send<B>(&mut self, frame: Frame, payload: Option<B>, out: &mut Vec<Outgoing<B>>) {
        if let Frame::Log { commit, sent_ms, .. } | Frame::Heartbeat { commit, sent_ms, .. } = frame {
            (self.commit_sent, self.sent_ms) = (commit, sent_ms);
        }
        out.push(Outgoing { header: frame.encode(), payload });
    }
}

#[cfg(test)]
mod tests;
