//! The footer of a batch, and the hash chain over all batches, of which footers are the links.
//!
//! ```text
//!  0  u64  position where the batch starts
//!  8  u64  batch number: one more than that of the batch before, 0 if there is none or it is not known
//! 16  u64  durable_lsn when the batch was closed
//! 24  u64  when it was closed, milliseconds since 1970
//! 32  u64  lsn: where the batch ends, a multiple of 4096
//! 40  u32  epoch
//! 44  u32  zero
//! 48  u64  reign
//! 56  u64  content: xxh3 of the batch's bytes before its batch-end record
//! 64  u64  the chain value of the batch before
//! 72  u32  magic "SEN2"                          (the earlier format: "SEND", without the fields 48 to 64)
//! 76  u32  crc32c of the footer's bytes before
//! ```
//!
//! **The chain value of a batch is the xxh3 of its footer's bytes before the magic.** The footer contains the
//! hash of the batch's bytes and the chain value of the previous batch. One chain value therefore identifies
//! the whole log up to the end of its batch: every byte, in order.
//!
//! Invariants
//! - **Whether two logs are equal up to a position is decided by their chain values there, never by
//!   positions, epochs or lengths.** Two servers that were both made leaders can write different batches to
//!   the same positions, in the same epoch, at the same time.
//! - Readers check each batch against its predecessor ([`Predecessor`]): a chain that does not continue is
//!   damage like a checksum that does not match.
//! - The first batch continues the seed of its log ([`seed_of`]); if the log starts later, the control file
//!   has the predecessor of its first batch.
//! - A footer vouches for the log before its `durable_lsn` (in a mirrored epoch for less, see
//!   [`Footer::vouches_for`]): damage there is corruption; damage after the last vouched position is an
//!   interrupted write. A footer occupies the last bytes of a block, so that batches after a damaged place
//!   can be found.
//! - The time at which a batch was closed never decreases along the log, even if the machine's clock is set
//!   back. So all batches up to a given time are a prefix of the log.
//! - A reign is one leader's time from its start or promotion on. The number of a reign is greater than that
//!   of the previous reign by a random step (at most [`REIGN_STEP_MAX`]). So two leaders that begin at the
//!   same position almost certainly have different reigns, even if their epochs are equal.
//!
//! Batches of the earlier format can be read. Their chain values cover only their footers, and later batches
//! are chained to these values.

use lsn::Lsn;
use xxhash_rust::xxh3::xxh3_64;

use super::record::{BLOCK_BYTES, u32_at, u64_at};

/// Size of a footer of the current format.
pub(crate) const FOOTER_BYTES: usize = 80;
/// The largest difference between two consecutive reigns. Lease tokens are the sum of a position and the
/// reign: with random steps of this size, the tokens of two diverged leaders are usually gigabytes of log
/// apart. For hundreds of thousands of starts, tokens still fit the 53 bits in which some clients keep
/// numbers.
pub(crate) const REIGN_STEP_MAX: u64 = 1 << 36;

const MAGIC: u32 = u32::from_le_bytes(*b"SEN2");
/// Size of the magic and the checksum, with which every footer ends.
const SEAL_BYTES: usize = 8;
const EARLIER_FOOTER_BYTES: usize = 56;
const EARLIER_MAGIC: u32 = u32::from_le_bytes(*b"SEND");

/// The fixed-size end of a batch. The module documentation has the byte layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) start: Lsn,
    pub(crate) batch_number: u64,
    pub(crate) durable: Lsn,
    /// When the batch was closed, in milliseconds since 1970.
    pub(crate) closed_at_ms: u64,
    pub(crate) end: Lsn,
    pub(crate) epoch: u32,
    /// The link to the batch before; `None` in the earlier format.
    pub(crate) link: Option<Link>,
}

/// The fields that chain a batch to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) reign: u64,
    /// Hash of the batch's bytes: [`sum_of`].
    pub(crate) content: u64,
    /// The chain value of the batch before.
    pub(crate) before: u64,
}

/// The hash of a batch's bytes without its batch-end record.
pub(crate) fn sum_of(records: &[u8]) -> u64 {
    xxh3_64(records)
}

/// The chain value that the first batch of a log continues.
pub(crate) fn seed_of(log_id: &[u8; 16]) -> u64 {
    chain_value(log_id)
}

/// The hash of `bytes`; never 0, which stands for an unknown chain value.
fn chain_value(bytes: &[u8]) -> u64 {
    xxh3_64(bytes).max(1)
}

impl Footer {
    /// A position up to which the log was certainly durable on this disk when the batch was written here. For
    /// an epoch that was mirrored, `durable` is the durable position on the first writer's disk; on this
    /// disk, the batch may have been written together with batches before it, see [`mirror`](super::mirror).
    pub(crate) fn vouches_for(&self, mirrored_epoch: u32) -> Lsn {
        let run_start = self.end.get().saturating_sub(super::mirror::RUN_BYTES_MAX);
        if self.epoch > mirrored_epoch { self.durable } else { self.durable.min(Lsn::new(run_start)) }
    }

    /// The chain value: identifies this batch and all before it.
    pub(crate) fn chain(&self) -> u64 {
        let bytes = self.encode();
        match self.link {
            Some(_) => chain_value(&bytes[..FOOTER_BYTES - SEAL_BYTES]),
            None => chain_value(&bytes[FOOTER_BYTES - EARLIER_FOOTER_BYTES..FOOTER_BYTES - SEAL_BYTES]),
        }
    }

    /// The reign of the writer; 0 in the earlier format.
    pub(crate) fn reign(&self) -> u64 {
        self.link.map_or(0, |link| link.reign)
    }

    /// Encodes the footer. The earlier format is shorter: it stands at the end, after zeros.
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        let (bytes, magic) = match self.link {
            Some(_) => (FOOTER_BYTES, MAGIC),
            None => (EARLIER_FOOTER_BYTES, EARLIER_MAGIC),
        };
        let footer = &mut out[FOOTER_BYTES - bytes..];
        footer[0..8].copy_from_slice(&self.start.get().to_le_bytes());
        footer[8..16].copy_from_slice(&self.batch_number.to_le_bytes());
        footer[16..24].copy_from_slice(&self.durable.get().to_le_bytes());
        footer[24..32].copy_from_slice(&self.closed_at_ms.to_le_bytes());
        footer[32..40].copy_from_slice(&self.end.get().to_le_bytes());
        footer[40..44].copy_from_slice(&self.epoch.to_le_bytes());
        if let Some(Link { reign, content, before }) = self.link {
            footer[48..56].copy_from_slice(&reign.to_le_bytes());
            footer[56..64].copy_from_slice(&content.to_le_bytes());
            footer[64..72].copy_from_slice(&before.to_le_bytes());
        }
        let sealed = bytes - SEAL_BYTES;
        footer[sealed..sealed + 4].copy_from_slice(&magic.to_le_bytes());
        let crc = crc32c::crc32c(&footer[..sealed + 4]);
        footer[sealed + 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The footer in the last bytes of `bytes`, if they are a valid footer of a batch that ends at `end`.
    pub(crate) fn decode(bytes: &[u8], end: Lsn) -> Option<Footer> {
        let seal = bytes.get(bytes.len().checked_sub(SEAL_BYTES)?..)?;
        let (footer_bytes, is_earlier) = match u32_at(seal, 0) {
            MAGIC => (FOOTER_BYTES, false),
            EARLIER_MAGIC => (EARLIER_FOOTER_BYTES, true),
            _ => return None,
        };
        let footer = bytes.get(bytes.len().checked_sub(footer_bytes)?..)?;
        if u32_at(seal, 4) != crc32c::crc32c(&footer[..footer_bytes - 4]) || u32_at(footer, 44) != 0 {
            return None;
        }
        let link = (!is_earlier).then(|| Link {
            reign: u64_at(footer, 48),
            content: u64_at(footer, 56),
            before: u64_at(footer, 64),
        });
        let decoded = Footer {
            start: Lsn::new(u64_at(footer, 0)),
            batch_number: u64_at(footer, 8),
            durable: Lsn::new(u64_at(footer, 16)),
            closed_at_ms: u64_at(footer, 24),
            end: Lsn::new(u64_at(footer, 32)),
            epoch: u32_at(footer, 40),
            link,
        };
        let in_order = decoded.durable <= decoded.start && decoded.start < decoded.end;
        (decoded.end == end && in_order).then_some(decoded)
    }
}

/// The known properties of the last batch or, before the first batch, of the beginning of the log. The next
/// batch is checked against them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) epoch: u32,
    /// 0 if unknown.
    pub(crate) reign: u64,
    /// `None` if unknown.
    pub(crate) chain: Option<u64>,
    /// The number of the following batch; `None` if unknown.
    pub(crate) next_batch_number: Option<u64>,
    /// When the batch was closed, in milliseconds since 1970; 0 if unknown. If only the snapshot that begins
    /// after the batch is known, the time at which that snapshot was begun.
    pub(crate) closed_at_ms: u64,
}

impl From<&Footer> for Predecessor {
    fn from(footer: &Footer) -> Predecessor {
        Predecessor {
            epoch: footer.epoch,
            reign: footer.reign(),
            chain: Some(footer.chain()),
            next_batch_number: Some(footer.batch_number + 1),
            closed_at_ms: footer.closed_at_ms,
        }
    }
}

impl Predecessor {
    /// Checks that a batch with this footer continues this predecessor; does not check the batch's bytes.
    ///
    /// # Errors
    /// The reason why the batch does not continue it.
    pub(crate) fn require_continued_by(&self, footer: &Footer) -> Result<(), String> {
        if footer.epoch < self.epoch {
            return Err(format!("a batch of epoch {} behind one of epoch {}", footer.epoch, self.epoch));
        }
        if let Some(number) = self.next_batch_number.filter(|number| *number != footer.batch_number) {
            return Err(format!("batch {} in the place of batch {number}", footer.batch_number));
        }
        if footer.reign() < self.reign {
            return Err(format!("a batch of reign {} behind one of reign {}", footer.reign(), self.reign));
        }
        match (footer.link, self.chain) {
            (Some(Link { before, .. }), Some(chain)) if before != chain => {
                Err(format!("a batch of another log: it continues {before:016x}, before it is {chain:016x}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a footer matches a batch with these bytes and this payload of its batch-end record; always true in
/// the earlier format.
pub(crate) fn is_of(footer: &Footer, records: &[u8], end_payload: &[u8]) -> bool {
    let Some(link) = footer.link else { return true };
    let padding = &end_payload[..end_payload.len().saturating_sub(FOOTER_BYTES)];
    footer.end.is_aligned(BLOCK_BYTES)
        && link.content == sum_of(records)
        && padding.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::{RecordKind, decode, encode_batch_end};

    fn footer() -> Footer {
        Footer {
            start: Lsn::new(4096),
            batch_number: 3,
            durable: Lsn::new(4096),
            closed_at_ms: 1_700_000_000_123,
            end: Lsn::new(8192),
            epoch: 2,
            link: Some(Link { reign: 77, content: 0xfeed, before: 0xbeef }),
        }
    }

    /// The chain values of fixed bytes do not change, because other readers of the format compute the same
    /// values.
    #[test]
    fn batches_and_logs_are_identified_by_xxh3() {
        assert_eq!(sum_of(b""), 0x2d06_8005_38d3_94c2, "XXH3_64bits of no bytes, seed 0");
        assert_ne!(sum_of(b"a"), sum_of(b"b"));
        assert_eq!(seed_of(&[9; 16]), sum_of(&[9; 16]));
    }

    #[test]
    fn a_batch_of_a_mirrored_epoch_vouches_for_less() {
        let end = Lsn::new(2 * crate::log::mirror::RUN_BYTES_MAX);
        let footer = Footer { end, durable: Lsn::new(end.get() - 4096), ..footer() };
        assert_eq!(footer.vouches_for(footer.epoch - 1), footer.durable);
        for mirrored in [footer.epoch, footer.epoch + 1] {
            assert_eq!(footer.vouches_for(mirrored), Lsn::new(crate::log::mirror::RUN_BYTES_MAX));
        }
    }

    #[test]
    fn a_footer_is_found_from_behind_and_only_where_it_belongs() {
        let mut space = vec![0; 128];
        encode_batch_end(&mut space, &footer());
        assert_eq!(Footer::decode(&space, Lsn::new(8192)), Some(footer()));
        assert_eq!(Footer::decode(&space, Lsn::new(12288)), None);
        assert_eq!(decode(&space, Lsn::new(8192 - 128)).unwrap().kind, RecordKind::BatchEnd);
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bad = space.clone();
            bad[128 - FOOTER_BYTES + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::decode(&bad, Lsn::new(8192)), None, "bit {bit} flipped unnoticed");
        }
    }

    /// The footer format of commit d08a10d: start 4096, number 3, durable 4096, closed at 1 700 000 000 123,
    /// end 8192, epoch 2.
    #[test]
    fn a_footer_of_the_earlier_format_is_read() {
        let mut bytes = Vec::new();
        for field in [4096u64, 3, 4096, 1_700_000_000_123, 8192, 2] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(b"SEND");
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), 56);
        let earlier = Footer { link: None, ..footer() };
        assert_eq!(Footer::decode(&bytes, Lsn::new(8192)), Some(earlier));
        assert_eq!(earlier.encode()[FOOTER_BYTES - 56..], bytes);
        assert_ne!(earlier.chain(), Footer { closed_at_ms: 0, ..earlier }.chain());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::decode(&bad, Lsn::new(8192)), None, "bit {bit} flipped unnoticed");
        }
    }

    #[test]
    fn the_chain_value_stands_for_everything() {
        let link = footer().link.unwrap();
        let others = [
            Footer { closed_at_ms: 1, ..footer() },
            Footer { epoch: 3, ..footer() },
            Footer { link: Some(Link { reign: 78, ..link }), ..footer() },
            Footer { link: Some(Link { content: 1, ..link }), ..footer() },
            Footer { link: Some(Link { before: 1, ..link }), ..footer() },
            Footer { link: None, ..footer() },
        ];
        for other in others {
            assert_ne!(other.chain(), footer().chain(), "{other:?}");
        }
    }

    #[test]
    fn a_footer_that_does_not_continue_the_chain_is_refused() {
        let before =
            Footer { start: Lsn::ZERO, durable: Lsn::ZERO, end: Lsn::new(4096), batch_number: 2, ..footer() };
        let predecessor = Predecessor::from(&before);
        let link = Link { before: before.chain(), ..footer().link.unwrap() };
        let next = Footer { link: Some(link), ..footer() };
        assert_eq!(predecessor.require_continued_by(&next), Ok(()));
        let wrong = [
            Footer { epoch: 1, ..next },
            Footer { batch_number: 4, ..next },
            Footer { link: None, ..next },
            Footer { link: Some(Link { reign: 76, ..link }), ..next },
            Footer { link: Some(Link { before: link.before ^ 1, ..link }), ..next },
        ];
        for wrong in wrong {
            assert!(predecessor.require_continued_by(&wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Predecessor::default().require_continued_by(&next), Ok(()), "nothing is known");
    }
}
