//! Chains: payloads that were cut into parts, put together again while the log is replayed.
//!
//! What it is: the parts seen so far of every payload whose last part was not, by chain id. Bounded by what the log
//! holds, and each by [`CHAIN_BYTES_MAX`].
//! What it is not: the cutting; see `appender`.

use std::collections::HashMap;

use lsn::Lsn;

use super::record::{self, CHAIN_BYTES_MAX, CHAIN_ID_BYTES};

const _: () = assert!(record::PAYLOAD_BYTES_MAX < CHAIN_BYTES_MAX);

/// Payloads that came in parts and are not complete yet.
pub(super) struct Chains {
    /// A chain that began before is not whole: the log is read from here on.
    from: Lsn,
    open: HashMap<[u8; CHAIN_ID_BYTES], Vec<u8>>,
}

impl Chains {
    /// For a log that is read from `from` on.
    pub(super) fn from(from: Lsn) -> Chains {
        Chains { from, open: HashMap::new() }
    }

    /// What is read goes on at `from`: chains that began before have lost parts.
    pub(super) fn cut(&mut self, from: Lsn) {
        self.from = from;
        self.open.clear();
    }

    /// Where the chain began that this last part ends, if that is before what is read.
    pub(super) fn cut_begin(&self, payload: &[u8]) -> Option<Lsn> {
        let (id, _) = payload.split_first_chunk::<CHAIN_ID_BYTES>()?;
        let begin = Lsn::new(u64::from_le_bytes(*id));
        (begin < self.from).then_some(begin)
    }

    /// Takes a part that is not the last.
    pub(super) fn add(&mut self, payload: &[u8]) {
        if let Some((id, piece)) = payload.split_first_chunk::<CHAIN_ID_BYTES>()
            && u64::from_le_bytes(*id) >= self.from.get()
        {
            let chain = self.open.entry(*id).or_default();
            if chain.len() + piece.len() <= CHAIN_BYTES_MAX {
                chain.extend_from_slice(piece);
            }
        }
    }

    /// The whole payload, if its parts were all seen.
    pub(super) fn finish(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let (id, piece) = payload.split_first_chunk::<CHAIN_ID_BYTES>()?;
        let mut whole = self.open.remove(id)?;
        whole.extend_from_slice(piece);
        Some(whole)
    }
}
