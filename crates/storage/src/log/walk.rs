//! Verifying the records of one batch one after the other, as its bytes arrive.
//!
//! The caller reads the bytes, and decides whether an invalid batch is a torn tail or damage.

use lsn::Lsn;

use super::{
    footer::{self, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Invalid, RecordKind},
};

/// The largest batch that is accepted: far more than the ring of a server, which bounds the batches that the
/// server writes.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// The position of the record at which a batch is invalid, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) position: Lsn,
    pub(crate) reason: String,
}

/// The result of one step of a walk.
#[derive(Debug)]
pub(crate) enum Walked {
    /// The batch is complete and valid, and has this many bytes.
    Whole(usize, Footer),
    /// The next step needs more of the batch: this many bytes from its start.
    Short(usize),
    /// An invalid record, footer or continuation.
    Invalid(Stop),
}

/// The verification of one batch, resumed with more bytes of the same batch.
#[derive(Debug)]
pub(crate) struct BatchWalk {
    start: Lsn,
    offset: usize,
    before: Predecessor,
    /// The highest epoch of a record so far.
    highest_epoch: u32,
    records: u64,
}

impl BatchWalk {
    /// A walk over the batch that starts at `start` and must continue `before`.
    pub(crate) fn new(start: Lsn, before: Predecessor) -> BatchWalk {
        BatchWalk { start, offset: 0, before, highest_epoch: before.epoch, records: 0 }
    }

    /// Number of bytes of the batch needed for the first step.
    pub(crate) const BYTES_MIN: usize = record::RECORD_HEADER_BYTES;

    /// The position of the next record to verify.
    pub(crate) fn position(&self) -> Lsn {
        self.start.advance(self.offset as u64)
    }

    /// Number of verified records, without the batch-end record.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Continues the walk; `batch` has the bytes available so far, from the start of the batch.
    pub(crate) fn resume(&mut self, batch: &[u8]) -> Walked {
        loop {
            let position = self.position();
            let stop = |reason: String| Walked::Invalid(Stop { position, reason });
            let record = match record::decode(&batch[self.offset.min(batch.len())..], position) {
                Ok(record) => record,
                Err(Invalid::Short(bytes)) => return Walked::Short(self.offset + bytes),
                Err(invalid) => return stop(invalid.to_string()),
            };
            if record.epoch < self.before.epoch {
                return stop(format!("a record of epoch {} in epoch {}", record.epoch, self.before.epoch));
            }
            if self.offset + record.occupied_bytes() as usize > BATCH_BYTES_MAX {
                return stop("a batch without end".into());
            }
            self.offset += record.occupied_bytes() as usize;
            self.highest_epoch = self.highest_epoch.max(record.epoch);
            if record.kind == RecordKind::BatchEnd {
                let records = &batch[..self.offset - record.occupied_bytes() as usize];
                return match Footer::decode(record.payload, record.lsn) {
                    Some(footer)
                        if self.is_end(&footer) && footer::is_of(&footer, records, record.payload) =>
                    {
                        match self.before.require_continued_by(&footer) {
                            Ok(()) => Walked::Whole(self.offset, footer),
                            Err(reason) => stop(reason),
                        }
                    }
                    _ => stop("a batch end that does not match its batch".into()),
                };
            }
            self.records += 1;
        }
    }

    fn is_end(&self, footer: &Footer) -> bool {
        footer.start == self.start && footer.epoch >= self.highest_epoch && footer.end.is_aligned(BLOCK_BYTES)
    }
}
