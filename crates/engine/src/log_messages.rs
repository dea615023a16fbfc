//! The messages of durable channels in the log: finding positions, and reading on from one.
//!
//! The position of a message is the start of its record plus the message's number in the record, from 1, so
//! positions ascend as the log does. A large record is split into pieces, between which other records may
//! lie. The positions of its messages count from the start of its last piece, at which it is assembled;
//! earlier pieces are skipped, so no incomplete record is kept. A record that has lost its first pieces to
//! retention has no messages.
//!
//! Invariants
//! - An unreadable part is reported as a gap that ends at the next readable batch, from which a reader can
//!   continue.

use std::borrow::Cow;

use keyspace::{Item, LoggedMessage};
use lsn::Lsn;
use pubsub::durable::{DurableMessage, From, LogSource, Position, Read};
use storage::{BatchInfo, CursorRead, Error, Log, LogCursor, Record, RecordKind};

/// About how many bytes of the log are read at a time.
const PIECE_BYTES: usize = 512 << 10;
/// The maximum number of cursors that stay open, so that reading continues without opening files again.
const CURSORS_MAX: usize = 8;

/// Why a reader cannot begin at a position.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The position is no longer kept.
    #[error("LOST position {wanted} is no longer kept; the oldest is {oldest}")]
    Forgotten {
        /// The position that the reader has requested.
        wanted: Position,
        /// The oldest position that is kept, from which the reader could begin.
        oldest: Position,
    },
    /// The position is in a log that a forced recovery has replaced.
    #[error(
        "LOST position {wanted} is no longer kept: a forced recovery has dropped all messages before the oldest position, {oldest}"
    )]
    Dropped {
        /// The position that the reader has requested.
        wanted: Position,
        /// The oldest position that is kept, from which the reader could begin.
        oldest: Position,
    },
    /// The position is in a log that has diverged from this one, or in another log.
    #[error(
        "LOST position {0} is not of this log: FROM - begins with the oldest message, FROM $ with the next one"
    )]
    Foreign(Position),
    /// A replica does not know yet whether the position is in its log.
    #[error("TRYAGAIN position {wanted} has not arrived at this replica yet; it has the log up to {end}")]
    Ahead {
        /// The position that the reader has requested.
        wanted: Position,
        /// The end of the log here.
        end: Lsn,
    },
    /// A forced recovery has left out damaged data, in the log or elsewhere, and the operator has not
    /// confirmed that yet: no reader begins until then.
    #[error("ERR a forced recovery must be confirmed first: CONFIG SET force-recovery confirmed")]
    Frozen,
    /// The log cannot be read.
    #[error("ERR the log cannot be read: {0}")]
    Unreadable(#[from] Error),
}

/// The messages of a log, read for readers of durable channels.
pub struct LogMessages {
    log: Log,
    /// The position before which a forced recovery has dropped all messages.
    lost_before: Option<Lsn>,
    /// The most recently used cursors, the latest at the end.
    cursors: Vec<LogCursor>,
    /// The error that was logged last. The readers of a damaged place all meet the same error.
    logged_error: String,
}

impl LogMessages {
    /// Reads the messages of this log, with no loss known and no cursor open.
    pub fn new(log: &Log) -> LogMessages {
        LogMessages { log: log.clone(), lost_before: None, cursors: Vec::new(), logged_error: String::new() }
    }

    /// Tells readers that all messages before this position were lost.
    pub fn without_messages_before(self, lost_before: Option<Lsn>) -> LogMessages {
        LogMessages { lost_before, ..self }
    }

    /// Closes the cursors, when no reader will read for a while.
    pub fn rest(&mut self) {
        self.cursors.clear();
    }

    /// Returns the position at which a reader begins, and the position from which the log is read for it, at
    /// or before the first. The second is the end of a batch, or a place in the part that was lost. `tail` is
    /// the position of the readers that have caught up, if there are any: a reader that begins with new
    /// messages begins there.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn place(&self, from: From, tail: Option<Lsn>) -> Result<(Position, Lsn), Refused> {
        if self.log.is_frozen() {
            return Err(Refused::Frozen);
        }
        match from {
            From::Oldest => {
                let oldest = self.oldest()?;
                if self.lost_before != Some(oldest.lsn) {
                    return Ok((oldest, oldest.lsn));
                }
                // The reader begins before the loss, so that it gets the report of the loss.
                let before = Lsn::new(oldest.lsn.get().saturating_sub(1));
                Ok((Position { lsn: before, ..oldest }, before.align_down(self.log.segment_bytes())))
            }
            From::Now => {
                let lsn = tail.unwrap_or(self.log.shippable_lsn());
                match self.log.batch_ending_at(lsn)? {
                    Some(batch) => Ok((Position { epoch: batch.epoch, lsn, reign: batch.reign }, lsn)),
                    None => self.oldest().map(|oldest| (oldest, oldest.lsn)),
                }
            }
            From::After(wanted) => self.place_after(wanted),
        }
    }

    fn place_after(&self, wanted: Position) -> Result<(Position, Lsn), Refused> {
        let oldest = self.oldest()?;
        if wanted.lsn <= oldest.lsn {
            // The earlier writers are unknown, but none had a later epoch or reign.
            let is_possible = wanted.epoch <= oldest.epoch && wanted.reign <= oldest.reign;
            return match is_possible {
                false => Err(Refused::Foreign(wanted)),
                true if self.lost_before.is_some_and(|lost| wanted.lsn < lost) => {
                    Err(Refused::Dropped { wanted, oldest })
                }
                true if wanted.lsn < oldest.lsn => Err(Refused::Forgotten { wanted, oldest }),
                true => Ok((wanted, wanted.lsn)),
            };
        }
        let end = self.log.shippable_lsn();
        if self.log.is_mirror() && wanted.lsn > end {
            return Err(Refused::Ahead { wanted, end });
        }
        match self.log.batch_at(wanted.lsn)? {
            Some(batch @ BatchInfo { start, end, .. })
                if is_said(wanted, self.position_of(Some(batch), wanted.lsn)) =>
            {
                Ok((wanted, if end == wanted.lsn { end } else { start }))
            }
            // The log before the end of a gap may be damaged, so no batch may be found there.
            None if self.ends_gap(wanted)? => Ok((wanted, wanted.lsn)),
            _ => Err(Refused::Foreign(wanted)),
        }
    }

    /// Whether a reported gap ends at this position.
    fn ends_gap(&self, wanted: Position) -> Result<bool, Error> {
        let shippable = self.log.shippable_lsn();
        let begins_batch = || {
            let next = self.log.batch_at(wanted.lsn.advance(1))?;
            Ok::<_, Error>(next.is_some_and(|batch| batch.start == wanted.lsn))
        };
        Ok(wanted.lsn <= shippable
            && (wanted.lsn == shippable || begins_batch()?)
            && is_said(wanted, self.gap_position(wanted.lsn)?))
    }

    /// The position, in the form for readers, of the batch boundary up to which the log cannot be read.
    fn gap_position(&self, lsn: Lsn) -> Result<Position, Error> {
        let before = self.log.batch_ending_at(lsn)?;
        let batch = match before {
            Some(batch) => Some(batch),
            None => self.log.batch_at(lsn.advance(1))?,
        };
        Ok(self.position_of(batch, lsn))
    }

    /// The position at which the log begins, with the epoch and the reign of the first batch.
    ///
    /// # Errors
    /// [`Refused::Unreadable`].
    pub fn oldest(&self) -> Result<Position, Refused> {
        let lsn = self.log.start_lsn();
        let first = self.log.batch_at(lsn.advance(1))?;
        Ok(self.position_of(first, lsn))
    }

    /// The gap that readers get at an unreadable position. The gap ends at `lsn`, the next readable position.
    fn gap_up_to(&self, lsn: Lsn) -> Read {
        let position = self.gap_position(lsn);
        Read::Forgotten(position.unwrap_or_else(|_| self.position_of(None, lsn)))
    }

    /// The position `lsn` for readers, with the epoch and the reign of its batch; without a batch, with the
    /// epoch and the reign of this server.
    fn position_of(&self, batch: Option<BatchInfo>, lsn: Lsn) -> Position {
        let (epoch, reign) =
            batch.map_or_else(|| (self.log.epoch(), self.log.reign()), |batch| (batch.epoch, batch.reign));
        Position { epoch, lsn, reign }
    }
}

/// The payload of a record, assembled if it was split into pieces. `None` for a piece that is not the last,
/// for the end of a batch, and for a record whose first pieces are not kept.
///
/// # Errors
/// If the log cannot be read.
pub fn whole_payload<'r>(log: &Log, record: &Record<'r>) -> Result<Option<Cow<'r, [u8]>>, Error> {
    match record.kind {
        RecordKind::Whole => return Ok(Some(Cow::Borrowed(record.payload))),
        RecordKind::Part | RecordKind::BatchEnd => return Ok(None),
        RecordKind::Last => {}
    }
    let Some((begin, rest)) = record.piece() else { return Ok(None) };
    let Some(batch) = log.batch_at(begin.advance(1))? else { return Ok(None) };
    let (mut cursor, mut whole) = (log.cursor(batch.start), Vec::new());
    while cursor.position() < record.lsn {
        let CursorRead::Chunk(chunk) = cursor.read(PIECE_BYTES)? else { return Ok(None) };
        for part in chunk.records().filter(|it| it.kind == RecordKind::Part && it.lsn < record.lsn) {
            if let Some((_, piece)) = part.piece().filter(|(id, _)| *id == begin) {
                whole.extend_from_slice(piece);
            }
        }
    }
    whole.extend_from_slice(rest);
    Ok(Some(Cow::Owned(whole)))
}

/// Whether `wanted`, from a client, means `position`. The positions that earlier versions sent to clients
/// have no reign.
fn is_said(wanted: Position, position: Position) -> bool {
    wanted == position || wanted == Position { reign: 0, ..position }
}

impl LogSource for LogMessages {
    fn read(&mut self, from: Lsn, each: &mut dyn FnMut(&DurableMessage<'_>)) -> Read {
        let known = self.cursors.iter().position(|cursor| cursor.position() == from);
        let mut cursor = match known {
            Some(index) => self.cursors.remove(index),
            None => self.log.cursor(from),
        };
        let read = match cursor.read_until(PIECE_BYTES, self.log.showable_lsn()) {
            Ok(CursorRead::Chunk(chunk)) => {
                let mut marked = chunk.records().filter(|record| record.is_marked);
                let batches: Vec<BatchInfo> = chunk.batches_backwards().collect();
                let reign_of = |record: &Record<'_>| {
                    // The newest batch that begins at or before the start of the record.
                    let at = batches.partition_point(|batch| batch.start > record.start());
                    batches.get(at).map_or(0, |batch| batch.reign)
                };
                match marked.try_for_each(|record| self.read_record(&record, reign_of(&record), each)) {
                    Ok(()) => Ok(Read::UpTo(chunk.end)),
                    Err(error) => Err(error),
                }
            }
            Ok(CursorRead::UpToDate) => Ok(Read::Nothing),
            Ok(CursorRead::Forgotten(start)) => Ok(self.gap_up_to(start)),
            Err(error) => Err(error),
        };
        if self.cursors.len() == CURSORS_MAX {
            self.cursors.remove(0);
        }
        self.cursors.push(cursor);
        read.unwrap_or_else(|error| {
            self.report(&error, from);
            self.cursors.clear();
            self.gap_up_to(self.log.readable_behind(from))
        })
    }
}

impl LogMessages {
    /// Logs an error, unless it was logged last.
    fn report(&mut self, error: &Error, from: Lsn) {
        let text = error.to_string();
        if text != self.logged_error {
            tracing::error!(
                target: "server", error = text, lsn = from.get(),
                "cannot read messages of durable channels: their readers are told (xlost, LOST)"
            );
            self.logged_error = text;
        }
    }

    fn read_record(
        &self,
        record: &Record<'_>,
        reign: u64,
        each: &mut dyn FnMut(&DurableMessage<'_>),
    ) -> Result<(), Error> {
        let Some(payload) = whole_payload(&self.log, record)? else { return Ok(()) };
        let mut rest = &*payload;
        let mut lsn = record.start();
        // A verified record can be decoded; if not, the next start reports it.
        while let Ok(Some(item)) = Item::decode_next(&mut rest) {
            if let Item::Message(LoggedMessage { channel, payload }) = item {
                lsn = lsn.advance(1);
                each(&DurableMessage {
                    position: Position { epoch: record.epoch, lsn, reign },
                    channel,
                    payload,
                });
            }
        }
        Ok(())
    }
}
