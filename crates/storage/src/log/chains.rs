//! Chains: payloads that were split into parts, reassembled while the log is replayed.
//!
//! A `Chains` holds, by chain id, the parts seen so far of payloads whose last part was not seen yet. An
//! appender writes one chain at a time; the size of each is bounded by [`CHAIN_BYTES_MAX`]. The splitting is
//! in `appender`.
//!
//! Invariants
//! - A replay that continues where another has ended must take over its chains, because the parts of a chain
//!   may lie on both sides of that position.
//! - All parts of a chain have the same epoch. A new epoch discards open chains: their writer is gone, so
//!   they will never be completed.

use std::{borrow::Cow, collections::HashMap};

use lsn::Lsn;

use super::record::{self, CHAIN_BYTES_MAX, CHAIN_ID_BYTES, Record, RecordKind};
use crate::Error;

const _: () = assert!(record::PAYLOAD_BYTES_MAX < CHAIN_BYTES_MAX);

/// Payloads whose parts are not complete yet.
#[derive(Debug)]
pub struct Chains {
    /// Chains that began before this position are incomplete, because the log is read from here on.
    from: Lsn,
    epoch: u32,
    open: HashMap<[u8; CHAIN_ID_BYTES], Vec<u8>>,
    /// [`CHAIN_BYTES_MAX`], except in tests.
    bytes_max: usize,
}

impl Chains {
    /// No chains yet, for a log that is read from `from` on.
    pub fn from(from: Lsn) -> Chains {
        Chains { from, epoch: 0, open: HashMap::new(), bytes_max: CHAIN_BYTES_MAX }
    }

    /// The payload that this record contains or completes; `None` for other records. Records must be passed
    /// in the order of the log.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the record makes a payload longer than any that is written. Its parts are
    /// dropped.
    pub fn payload<'r>(&mut self, record: &Record<'r>) -> Result<Option<Cow<'r, [u8]>>, Error> {
        if record.epoch > self.epoch {
            self.epoch = record.epoch;
            self.open.clear();
        }
        match record.kind {
            RecordKind::Whole => Ok(Some(Cow::Borrowed(record.payload))),
            RecordKind::Last => self.finish(record).map(|whole| whole.map(Cow::Owned)),
            RecordKind::Part => self.add(record).map(|()| None),
            RecordKind::BatchEnd => Ok(None),
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
    fn add(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Some((id, piece)) = record.payload.split_first_chunk::<CHAIN_ID_BYTES>()
            && u64::from_le_bytes(*id) >= self.from.get()
        {
            let chain = self.open.entry(*id).or_default();
            if chain.len() + piece.len() > self.bytes_max {
                self.open.remove(id);
                return Err(Error::TooLong { lsn: record.lsn });
            }
            chain.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The whole payload, if all its parts were seen.
    fn finish(&mut self, record: &Record<'_>) -> Result<Option<Vec<u8>>, Error> {
        let Some((id, piece)) = record.payload.split_first_chunk::<CHAIN_ID_BYTES>() else { return Ok(None) };
        let Some(mut whole) = self.open.remove(id) else { return Ok(None) };
        if whole.len() + piece.len() > self.bytes_max {
            return Err(Error::TooLong { lsn: record.lsn });
        }
        whole.extend_from_slice(piece);
        Ok(Some(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, epoch: u32, payload: &[u8]) -> Record<'_> {
        Record { kind, is_marked: false, lsn: Lsn::new(4096), epoch, payload }
    }

    fn payload(chains: &mut Chains, kind: RecordKind, epoch: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        chains.payload(&record(kind, epoch, bytes)).expect("not too long").map(Cow::into_owned)
    }

    fn piece(id: u64, bytes: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes(), bytes].concat()
    }

    #[test]
    fn parts_that_mingle_are_told_apart() {
        let mut chains = Chains::from(Lsn::new(100));
        for (id, bytes) in [(200, b"ab"), (300, b"xy"), (200, b"cd")] {
            assert_eq!(payload(&mut chains, RecordKind::Part, 1, &piece(id, bytes)), None);
        }
        assert_eq!(chains.first_open(), Some(Lsn::new(200)));
        assert_eq!(payload(&mut chains, RecordKind::Whole, 1, b"whole").as_deref(), Some(&b"whole"[..]));
        let last = piece(200, b"e");
        assert_eq!(payload(&mut chains, RecordKind::Last, 1, &last).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(chains.first_open(), Some(Lsn::new(300)));
    }

    #[test]
    fn records_begun_before_the_start_or_in_an_earlier_epoch_are_dropped() {
        let mut chains = Chains::from(Lsn::new(100));
        assert_eq!(payload(&mut chains, RecordKind::Part, 1, &piece(50, b"early")), None);
        assert_eq!(payload(&mut chains, RecordKind::Part, 1, &piece(200, b"ab")), None);
        assert_eq!(payload(&mut chains, RecordKind::Last, 1, &piece(50, b"e")), None);
        assert!(payload(&mut chains, RecordKind::Whole, 2, b"of the next leader").is_some());
        assert_eq!(chains.first_open(), None);
        assert_eq!(payload(&mut chains, RecordKind::Last, 2, &piece(200, b"c")), None);
    }

    #[test]
    fn a_payload_that_is_too_long_is_refused_and_its_parts_dropped() {
        for (parts, last) in [(&[&b"abcd"[..], b"e"][..], None), (&[b"abc"], Some(b"de"))] {
            let mut chains = Chains { bytes_max: 4, ..Chains::from(Lsn::ZERO) };
            let parts = parts.iter().map(|part| (RecordKind::Part, piece(200, part)));
            let last = last.map(|last| (RecordKind::Last, piece(200, last)));
            let mut outcomes: Vec<bool> = Vec::new();
            for (kind, bytes) in parts.chain(last) {
                outcomes.push(chains.payload(&record(kind, 1, &bytes)).is_ok());
            }
            assert_eq!(outcomes, [true, false]);
            assert_eq!(payload(&mut chains, RecordKind::Last, 1, &piece(200, b"f")), None);
        }
    }
}
