//! Chains: payloads that were split into parts, reassembled while the log is replayed.
//!
//! A `Chains` holds, by chain id, the parts seen so far of every payload whose last part was not seen yet.
//! The number of chains is bounded by the log, the size of each by [`CHAIN_BYTES_MAX`]. The splitting is in
//! `appender`.
//!
//! Invariants
//! - A replay that continues where another has ended must take over its chains, because the parts of a chain
//!   may lie on both sides of that position.
//! - All parts of a chain have the same epoch. A new epoch discards open chains: their writer is gone, so
//!   they will never be completed.

use std::{borrow::Cow, collections::HashMap};

use lsn::Lsn;

use super::record::{self, CHAIN_BYTES_MAX, CHAIN_ID_BYTES, Record, RecordKind};

const _: () = assert!(record::PAYLOAD_BYTES_MAX < CHAIN_BYTES_MAX);

/// Payloads whose parts are not complete yet.
#[derive(Debug)]
pub struct Chains {
    /// Chains that began before this position are incomplete, because the log is read from here on.
    from: Lsn,
    epoch: u32,
    open: HashMap<[u8; CHAIN_ID_BYTES], Vec<u8>>,
}

impl Chains {
    /// No chains yet, for a log that is read from `from` on.
    pub fn from(from: Lsn) -> Chains {
        Chains { from, epoch: 0, open: HashMap::new() }
    }

    /// The payload that this record contains or completes; `None` for other records. Records must be passed
    /// in the order of the log.
    pub fn payload<'r>(&mut self, record: &Record<'r>) -> Option<Cow<'r, [u8]>> {
        if record.epoch > self.epoch {
            self.epoch = record.epoch;
            self.open.clear();
        }
        match record.kind {
            RecordKind::Whole => Some(Cow::Borrowed(record.payload)),
            RecordKind::Last => self.finish(record.payload).map(Cow::Owned),
            RecordKind::Part => {
                self.add(record.payload);
                None
            }
            RecordKind::BatchEnd => None,
        }
    }

    /// The beginning of the oldest incomplete payload; to replay the following records, the log must be read
    /// from there. `None` if all are complete.
    pub fn first_open(&self) -> Option<Lsn> {
        self.open.keys().map(|id| Lsn::new(u64::from_le_bytes(*id))).min()
    }

    /// Continues at `from`, after a gap, and drops all open chains, because they may have lost parts.
    pub(super) fn cut(&mut self, from: Lsn) {
        self.from = from;
        self.open.clear();
    }

    /// The beginning of the chain that this last part ends, if it lies before the position from which the log
    /// is read.
    pub(super) fn cut_begin(&self, payload: &[u8]) -> Option<Lsn> {
        let (id, _) = payload.split_first_chunk::<CHAIN_ID_BYTES>()?;
        let begin = Lsn::new(u64::from_le_bytes(*id));
        (begin < self.from).then_some(begin)
    }

    /// Adds a part that is not the last.
    fn add(&mut self, payload: &[u8]) {
        if let Some((id, piece)) = payload.split_first_chunk::<CHAIN_ID_BYTES>()
            && u64::from_le_bytes(*id) >= self.from.get()
        {
            let chain = self.open.entry(*id).or_default();
            if chain.len() + piece.len() <= CHAIN_BYTES_MAX {
                chain.extend_from_slice(piece);
            }
        }
    }

    /// The whole payload, if all its parts were seen.
    fn finish(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let (id, piece) = payload.split_first_chunk::<CHAIN_ID_BYTES>()?;
        let mut whole = self.open.remove(id)?;
        whole.extend_from_slice(piece);
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, epoch: u32, payload: &[u8]) -> Record<'_> {
        Record { kind, is_marked: false, lsn: Lsn::new(4096), epoch, payload }
    }

    fn piece(id: u64, bytes: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes(), bytes].concat()
    }

    #[test]
    fn parts_that_mingle_are_told_apart() {
        let mut chains = Chains::from(Lsn::new(100));
        for (id, bytes) in [(200, b"ab"), (300, b"xy"), (200, b"cd")] {
            assert_eq!(chains.payload(&record(RecordKind::Part, 1, &piece(id, bytes))), None);
        }
        assert_eq!(chains.first_open(), Some(Lsn::new(200)));
        assert_eq!(chains.payload(&record(RecordKind::Whole, 1, b"whole")).as_deref(), Some(&b"whole"[..]));
        let last = piece(200, b"e");
        assert_eq!(chains.payload(&record(RecordKind::Last, 1, &last)).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(chains.first_open(), Some(Lsn::new(300)));
    }

    #[test]
    fn records_begun_before_the_start_or_in_an_earlier_epoch_are_dropped() {
        let mut chains = Chains::from(Lsn::new(100));
        assert_eq!(chains.payload(&record(RecordKind::Part, 1, &piece(50, b"early"))), None);
        assert_eq!(chains.payload(&record(RecordKind::Part, 1, &piece(200, b"ab"))), None);
        assert_eq!(chains.payload(&record(RecordKind::Last, 1, &piece(50, b"e"))), None);
        assert!(chains.payload(&record(RecordKind::Whole, 2, b"of the next leader")).is_some());
        assert_eq!(chains.first_open(), None);
        assert_eq!(chains.payload(&record(RecordKind::Last, 2, &piece(200, b"c"))), None);
    }
}
