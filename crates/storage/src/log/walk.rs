//! Walking over the records of one batch, and verifying each, while its bytes come in.
//!
//! What it is not: the one who reads the bytes, nor who decides what an invalid batch means.

use lsn::Lsn;

use super::{
    footer::{self, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Invalid, RecordKind},
};

/// The largest batch that is believed: far above what a log of any ring size writes.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Where a batch was found to be invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) position: Lsn,
    pub(crate) reason: String,
}

/// How far a walk has come.
#[derive(Debug)]
pub(crate) enum Walked {
    /// To the end: the batch is valid and has so many bytes.
    Whole(usize, Footer),
    /// More is needed: so many bytes of the batch in all, for the next step.
    Short(usize),
    /// To something that does not belong there.
    Invalid(Stop),
}

/// A walk over one batch, to be resumed with more bytes of the same batch.
#[derive(Debug)]
pub(crate) struct BatchWalk {
    start: Lsn,
    offset: usize,
    before: Predecessor,
    /// The highest of a record that was met.
    highest_epoch: u32,
    records: u64,
}

impl BatchWalk {
    /// A walk over the batch that starts at `start` and has to continue `before`.
    pub(crate) fn new(start: Lsn, before: Predecessor) -> BatchWalk {
        BatchWalk { start, offset: 0, before, highest_epoch: before.epoch, records: 0 }
    }

    /// Bytes of the batch that are needed before anything can be said.
    pub(crate) const BYTES_MIN: usize = record::RECORD_HEADER_BYTES;

    /// The record it has come to.
    pub(crate) fn position(&self) -> Lsn {
        self.start.advance(self.offset as u64)
    }

    /// Records that were met, the batch end left out.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Goes on; `batch` are the bytes from where the batch starts, as far as they are there.
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
