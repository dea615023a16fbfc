//! The leader's side of one replica: ships the log, receives acknowledgements, and detects a dead replica.
//!
//! ```text
//! log grows | socket drained | log thread idle | time --> step --> headers and payloads, in order
//! bytes of the replica --------------------------------> receive --> Acked, for `Acks`
//! ```
//!
//! A [`Relay`] holds a position, a few times and the rule when to send. It does not buffer: payloads are the
//! log's own bytes, passed on unchanged. If a replica is too slow, the log waits for it on disk.
//!
//! Invariants
//! - Whole batches are shipped, each byte once, in order, from the agreed position on, and only up to
//!   [`Moment::shippable`].
//! - A step ends once it has shipped [`RelayOptions::round_bytes_max`], however fast the log grows; then
//!   other work gets its turn.
//! - No step reads the log while [`RelayOptions::unsent_bytes_max`] wait for the socket.
//! - Below that limit, pending bytes are held only to gather more: they are sent when there are enough, when
//!   the socket is idle, or when the log thread has written all that was published, whichever comes first.

use lsn::Lsn;

use crate::{
    Acked, Close, Inbox,
    epoch::is_too_far,
    frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX},
    timing::{HEARTBEAT_MS, SILENCE_MS},
};

/// The source of a relay's log, read from the relay's position on.
pub trait Source {
    /// Bytes of the log.
    type Bytes;
    /// Why the log cannot be read.
    type Error;

    /// The next whole batches: about `bytes_max` bytes of them, or one batch if that is larger. None of them
    /// ends after `until`. `None` if nothing is to be shipped.
    ///
    /// # Errors
    /// If the log cannot be read, or is not kept any more.
    fn read(&mut self, bytes_max: u64, until: Lsn) -> Result<Option<Chunk<Self::Bytes>>, Self::Error>;
}

/// Whole batches of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk<B> {
    /// The position at which the first batch starts.
    pub start: Lsn,
    /// The position at which the last batch ends.
    pub end: Lsn,
    /// Their bytes, from start to end.
    pub bytes: B,
}

/// The rule when a relay ships.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayOptions {
    /// The number of pending bytes that are sent without waiting for more.
    pub flush_bytes: u64,
    /// A step that has shipped this many bytes, or more with its last batch, reads no further batch.
    pub round_bytes_max: u64,
    /// A socket with this many unsent bytes gets no more batches.
    pub unsent_bytes_max: u64,
}

impl Default for RelayOptions {
    fn default() -> Self {
        RelayOptions { flush_bytes: 64 << 10, round_bytes_max: 1 << 20, unsent_bytes_max: 1 << 20 }
    }
}

/// The conditions at the time of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The present time, in monotonic milliseconds.
    pub now_ms: u64,
    /// Bytes handed to the socket's owner that the socket has not accepted.
    pub unsent_bytes: u64,
    /// The end of the log that may be shipped.
    pub shippable: Lsn,
    /// The commit position, which every frame carries.
    pub commit: Lsn,
    /// The epoch of the log here.
    pub epoch: u32,
    /// Whether the log thread has written all that was published, so that no more is about to follow. A
    /// caller that does not know passes true.
    pub has_tick_ended: bool,
    /// The number of steps from this server to the one that leads; 0 if this server leads.
    pub distance: u8,
}

/// A frame to be written: a header, then its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing<B> {
    /// The encoded header.
    pub header: [u8; HEADER_BYTES],
    /// The payload of a LOG frame.
    pub payload: Option<B>,
}

/// When to take the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayTurn {
    /// There is more to ship: call again after other work has had its turn.
    More,
    /// Call again at this time, or earlier if the log has grown, the socket is empty, or the log thread has
    /// written all that was published.
    Wait {
        /// The time at which to call again, in monotonic milliseconds.
        until_ms: u64,
    },
}

/// Why a step failed; the connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RelayError<E> {
    /// A reason that lies in the connection, such as a silent replica.
    #[error(transparent)]
    Close(#[from] Close),
    /// The log cannot be read, or is not kept any more.
    #[error("cannot read the log for a replica: {0}")]
    Source(E),
    /// A batch is larger than a frame may be.
    #[error("a batch of {0} bytes is too large for a replica")]
    Batch(u64),
}

/// The state of a leader's connection to one replica.
pub struct Relay {
    options: RelayOptions,
    epoch: u32,
    /// The end of the shipped log.
    position: Lsn,
    commit_sent: Lsn,
    sent_ms: u64,
    inbox: Inbox,
    acked: Acked,
}

impl Relay {
    /// Ships from `start`, the end of the replica's log.
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

    /// The end of the shipped log.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The progress of the replica.
    pub fn acked(&self) -> Acked {
        self.acked
    }

    /// The buffer to which bytes of the replica are appended; then call [`Relay::receive`].
    pub fn inbox(&mut self) -> &mut Vec<u8> {
        self.inbox.space()
    }

    /// Processes received bytes. Returns the replica's progress if it has acknowledged any.
    ///
    /// # Errors
    /// If the connection must be closed. After [`Close::Fenced`] the caller must also stop leading, unless it
    /// is a member of a group.
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
                as_of_ms: Frame::time_of_ack(as_of_ms).max(self.acked.as_of_ms),
                heard_ms: now_ms,
            };
            has_acked = true;
        }
        Ok(has_acked.then_some(self.acked))
    }

    /// Appends the frames to be written now to `out`.
    ///
    /// # Errors
    /// If the connection must be closed.
    ///
    /// # Panics
    /// If the source is not at the position of this relay.
    pub fn step<S: Source>(
        &mut self,
        moment: Moment,
        source: &mut S,
        out: &mut Vec<Outgoing<S::Bytes>>,
    ) -> Result<RelayTurn, RelayError<S::Error>> {
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
        // A new commit position is sent as soon as the socket is idle and no batches carry it.
        let has_news = moment.commit > self.commit_sent && moment.unsent_bytes == 0;
        if !has_shipped && (has_news || moment.now_ms >= self.sent_ms + HEARTBEAT_MS) {
            let (epoch, end, commit) = (self.epoch, self.position, moment.commit);
            let (sent_ms, distance) = (moment.now_ms, moment.distance);
            let heartbeat = Frame::Heartbeat { epoch, end, commit, sent_ms, distance };
            self.send(heartbeat, None, out);
        }
        let may_go_on = has_shipped && self.position < moment.shippable;
        Ok(if may_go_on {
            RelayTurn::More
        } else {
            RelayTurn::Wait { until_ms: silent_ms.min(self.sent_ms + HEARTBEAT_MS) }
        })
    }

    /// Whether pending batches are shipped now (the flush rule).
    fn is_due(&self, moment: &Moment) -> bool {
        let pending_bytes = moment.shippable.get().saturating_sub(self.position.get());
        let is_enough =
            pending_bytes >= self.options.flush_bytes || moment.unsent_bytes == 0 || moment.has_tick_ended;
        is_enough && moment.unsent_bytes < self.options.unsent_bytes_max
    }

    fn ship<S: Source>(
        &mut self,
        moment: &Moment,
        source: &mut S,
        out: &mut Vec<Outgoing<S::Bytes>>,
    ) -> Result<(), RelayError<S::Error>> {
        let mut left = self.options.round_bytes_max;
        while left > 0 && self.position < moment.shippable {
            // A leader makes a change of members only after the previous change is committed. A follower that
            // receives the change must see this from the commit position in the same frame, which is that of
            // `moment`. So no batch is read that was written after `moment`: none that ends after
            // `moment.shippable`.
            let Some(chunk) = source.read(left, moment.shippable).map_err(RelayError::Source)? else { break };
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
